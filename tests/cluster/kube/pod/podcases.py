"""The cases of the golden files: one for each change that the pod builder makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from gangctl.api.gangjob import GangJob
from gangctl.cluster.kube.projections import HubContact
from gangctl.cluster.kube.settings import KubeSettings
from gangctl.core.policy.pods import CreatePod

SETTINGS = KubeSettings(
    namespace="gangctl-system",
    sidecar_image="gangctl/sidecar:test",
    sidecar_resources={"requests": {"cpu": "10m", "memory": "48Mi"}, "limits": {"memory": "64Mi"}},
    url="wss://gangctl.gangctl-system.svc:8443/v1/connect",
    server_name="gangctl.gangctl-system.svc",
)
CONTACT = HubContact("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", SETTINGS.url, "10.96.0.7")
RESTRICTED = """\
securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
"""
CONTAINED = "securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}"


@dataclass(frozen=True)
class Case:
    """A pod to build."""

    description: str
    job: GangJob
    create: CreatePod
    restart_all: bool = True


def job(roles: str, spec: str = "{}", status: dict[str, Any] | None = None) -> GangJob:
    """A gang of the roles in this YAML text."""
    return GangJob.model_validate(
        {
            "apiVersion": "gangctl.io/v1alpha1",
            "kind": "GangJob",
            "metadata": {"name": "llama", "namespace": "research", "uid": "0aa2c5b4-8c1d-4b0e-9d5e-7d6f3f1f2a11"},
            "spec": {**yaml.safe_load(spec), "roles": yaml.safe_load(roles)},
            "status": status or {},
        }
    )


MINIMAL = f"""
- name: worker
  replicas: 2
  template:
    spec:
      {RESTRICTED}
      containers: [{{name: main, image: train, command: [python3, train.py], {CONTAINED}}}]
"""
TORCHRUN = f"""
- name: launcher
  processGroup: ""
  template: {{spec: {{containers: [{{name: main, image: mpi, command: [mpirun]}}]}}}}
- name: worker
  launch: Torchrun
  processesPerPod: 8
  workerContainer: trainer
  template:
    metadata:
      name: not-used
      labels: {{app: llama, gangctl.io/role: not-yours}}
      annotations: {{cluster-autoscaler.kubernetes.io/safe-to-evict: "false", karpenter.sh/do-not-disrupt: "true"}}
    spec:
      {RESTRICTED}
      hostname: mine
      restartPolicy: OnFailure
      terminationGracePeriodSeconds: 45
      priorityClassName: high
      schedulerName: default-scheduler
      nodeSelector: {{pool: gpu}}
      shareProcessNamespace: true
      volumes: [{{name: data, persistentVolumeClaim: {{claimName: data}}}}, {{name: shm, emptyDir: {{medium: Memory}}}}]
      initContainers:
      - {{name: download, image: s3, command: [sync, $(SOURCE)], {CONTAINED}}}
      containers:
      - {{name: logs, image: fluent, args: [--tag, $(TAG)], livenessProbe: {{httpGet: {{port: 80}}}}, {CONTAINED}}}
      - name: trainer
        image: train
        command: [torchrun, train.py]
        args: [--lr, "0.1"]
        workingDir: /src
        resources: {{limits: {{example.com/gpu: "8"}}}}
        volumeMounts: [{{name: data, mountPath: /data, readOnly: true}}, {{name: shm, mountPath: /dev/shm}}]
        readinessProbe: {{exec: {{command: ["true"]}}}}
        lifecycle: {{preStop: {{exec: {{command: [echo, bye]}}}}}}
        restartPolicy: Always
        {CONTAINED}
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions: [{{key: zone, operator: In, values: [a]}}]
            - matchFields: [{{key: metadata.name, operator: NotIn, values: [old]}}]
            - {{}}
          preferredDuringSchedulingIgnoredDuringExecution:
          - {{weight: 5, preference: {{matchExpressions: [{{key: fast, operator: Exists}}]}}}}
"""
VARIABLES = f"""
- name: worker
  template:
    spec:
      {RESTRICTED}
      containers:
      - name: main
        image: train
        command: [sh, -c, 'echo $HOME $(RANK) $$(RANK) $$']
        args: [$(MASTER_ADDR):$(MASTER_PORT), $(]
        env:
        - {{name: ME, value: $(GANG_POD_IP)/$(HOST)}}
        - {{name: GANG_UID, value: another}}
        - {{name: HOST, valueFrom: {{fieldRef: {{fieldPath: status.hostIP}}}}}}
        - {{name: GANG_ORPHAN_SECONDS, value: "60"}}
        {CONTAINED}
"""
FORK = "{type: Fork, preload: {type: Modules, modules: [torch, torch.optim]}}"
SPARES = MINIMAL.replace("replicas: 2", "replicas: 2\n  spares: 1")
REPLACED = {
    "phase": "Gathering",
    "attempt": 4,
    "incidents": [
        {
            "attempt": 4,
            "time": "2026-01-31T12:00:00Z",
            "cause": {"reason": "NodeLost", "time": "2026-01-31T12:00:00Z"},
            "traceID": "0af7651916cd43dd8448eb211c80319c",
        }
    ],
}

CASES = {
    "minimal": Case("A role with one container.", job(MINIMAL), CreatePod("worker-1", 0)),
    "onfailure": Case(
        "The same on nodes without RestartAllContainers.", job(MINIMAL), CreatePod("worker-1", 0), restart_all=False
    ),
    "forked": Case(
        "The supervisor gets the modules that the template of the worker imports.",
        job(MINIMAL.replace("replicas: 2", f"replicas: 2\n  start: {FORK}")),
        CreatePod("worker-1", 0),
    ),
    "spare": Case("The pod of a spare is like any other pod.", job(SPARES), CreatePod("worker-2", 0)),
    "torchrun": Case(
        "All fields of a template are kept; a node to avoid is added to every required term.",
        job(TORCHRUN),
        CreatePod("worker-0", 3, ("node-7",), required=True),
    ),
    "replaced": Case(
        "A replacement avoids two nodes and has the trace of its incident.",
        job(MINIMAL, status=REPLACED),
        CreatePod("worker-0", 1, ("node-7", "node-8"), required=True),
    ),
    "preferred": Case(
        "A node to avoid as a preference.", job(MINIMAL), CreatePod("worker-0", 1, ("node-7",), required=False)
    ),
    "packed": Case(
        "Packed into one rack, as a requirement.",
        job(MINIMAL, "placement: {strategy: Pack, mode: Required, topologyKey: rack}"),
        CreatePod("worker-0", 0),
    ),
    "spread": Case(
        "Spread over nodes as a preference, avoiding one node; the planned grace period is the pod's.",
        job(MINIMAL, "{placement: {strategy: Spread}, recovery: {plannedStopGracePeriodSeconds: 600}}"),
        CreatePod("worker-0", 1, ("node-7",)),
    ),
    "podgroup": Case(
        "The pod of a later incarnation is in the group of the pods that were created together.",
        job(MINIMAL, "gangScheduling: {type: PodGroup}", {"baseIncarnation": 2}),
        CreatePod("worker-0", 3),
    ),
    "variables": Case(
        "The supervisor expands $(VAR) in commands, the kubelet in values of env.",
        job(VARIABLES),
        CreatePod("worker-0", 0),
    ),
}
