"""Manifests for these tests: a good one, and ways to make others of it."""

from __future__ import annotations

import copy
import json
from typing import Any

from gangctl.api.gangjob import GangJob
from gangctl.api.manifest import ManifestError, load_gangjob

MINIMAL: dict[str, Any] = {
    "apiVersion": "gangctl.io/v1alpha1",
    "kind": "GangJob",
    "metadata": {"name": "demo"},
    "spec": {
        "roles": [
            {
                "name": "worker",
                "replicas": 4,
                "template": {
                    "spec": {"containers": [{"name": "trainer", "image": "x", "command": ["python", "train.py"]}]}
                },
            }
        ]
    },
}

FULL = """\
apiVersion: gangctl.io/v1alpha1
kind: GangJob
metadata: {name: llama, namespace: research}
spec:
  suspend: false
  restartToken: ""
  roles:
  - name: worker
    replicas: 8
    spares: 1
    processGroup: worker
    processesPerPod: 8
    launch: PerProcess
    workerContainer: trainer
    template:
      metadata: {labels: {app: llama}}
      spec:
        restartPolicy: OnFailure
        tolerations: [{operator: Exists}]
        volumes: [{name: scratch, emptyDir: }]
        containers:
        - {name: logs, image: y, livenessProbe: {httpGet: {port: 80}}}
        - {name: trainer, image: x, command: [python, train.py], resources: {limits: {nvidia.com/gpu: 8}}}
  - name: launcher
    processGroup: ""
    template: {spec: {containers: [{name: main, command: [mpirun]}]}}
  successPolicy: {type: Roles, roles: [launcher]}
  podFailurePolicy:
    rules:
    - name: bad-config
      action: FailJob
      onExitCodes: {containerName: trainer, operator: In, values: [2, 78]}
    - name: lost-gpu
      action: Ignore
      level: Pod
      roles: [worker]
      onDeviceHealth: {resourceNames: ["nvidia.com/gpu"], health: [Unhealthy]}
    - {name: preempted, action: Ignore, onPodConditions: [{type: DisruptionTarget}]}
    - {name: killed, action: Count, onSignals: [SIGKILL, SIGBUS]}
    - {name: oom, action: FailJob, onReasons: [OOMKilled]}
    - {name: xid, action: Count, level: Pod, onLog: {pattern: "NVRM: Xid .*: (48|79)"}}
  recovery:
    budget: {type: Windowed, maxRestarts: 10, windowSeconds: 3600}
    evidenceWindowSeconds: 5
    stopGracePeriodSeconds: 3
    plannedStopGracePeriodSeconds: 120
    barrierTimeoutSeconds: 600
    podStartTimeoutSeconds: 1800
    schedulingTimeoutSeconds: 86400
    replacementTimeoutSeconds: 1800
    onReplacementTimeout: Hold
    lostPodGraceSeconds: 30
    isolationTimeoutSeconds: 300
    replaceAfter: 2
    avoidNodeSeconds: 3600
    onExhausted: Hold
    holdTimeoutSeconds: 600
  checkpoint:
    fallbackAfter: 3
    tiers:
    - {name: shared, scope: Shared, source: {type: Directory, directory: /checkpoints, layout: TorchDCP}}
    - name: own
      scope: Shared
      source: {type: Directory, directory: /c, layout: Pattern, pattern: "step-{step}", complete: DONE}
    - {name: ram, scope: Member, source: {type: API}}
  progress: {source: {type: Log, pattern: "step (?P<step>[0-9]+)"}, timeoutSeconds: 600, onHang: Restart}
  placement: {strategy: Pack, mode: Required, topologyKey: rack}
  network: {basePort: 29400, portCount: 64}
  activeDeadlineSeconds: 1000
  ttlSecondsAfterFinished: 1000
"""


def manifest(**spec: Any) -> dict[str, Any]:
    """The minimal manifest with these fields of its spec instead."""
    made = copy.deepcopy(MINIMAL)
    made["spec"].update(copy.deepcopy(spec))
    return made


def with_role(**fields: Any) -> dict[str, Any]:
    """The minimal manifest with these fields of its role instead."""
    made = copy.deepcopy(MINIMAL)
    made["spec"]["roles"][0].update(copy.deepcopy(fields))
    return made


def with_rules(*rules: dict[str, Any]) -> dict[str, Any]:
    return manifest(podFailurePolicy={"rules": list(rules)})


def with_container(**fields: Any) -> dict[str, Any]:
    """The minimal manifest with these fields of its container instead."""
    made = copy.deepcopy(MINIMAL)
    made["spec"]["roles"][0]["template"]["spec"]["containers"][0].update(copy.deepcopy(fields))
    return made


def role(name: str, **fields: Any) -> dict[str, Any]:
    """A role beside the minimal one."""
    return {**copy.deepcopy(MINIMAL["spec"]["roles"][0]), "name": name, **fields}


def loaded(made: dict[str, Any]) -> GangJob:
    """The GangJob of a manifest that is good."""
    return load_gangjob(json.dumps(made), "demo.yaml")


def refusal(made: dict[str, Any] | str) -> str:
    """What is said of a manifest that is bad; empty if it is good."""
    text = made if isinstance(made, str) else json.dumps(made)
    try:
        load_gangjob(text, "demo.yaml")
    except ManifestError as error:
        return str(error)
    return ""
