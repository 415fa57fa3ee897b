"""PyTorchJobs and TrainJobs of Kubeflow."""

from __future__ import annotations

from typing import Any, Final

from gangctl.convert import jobs, pods
from gangctl.convert.fields import ConvertError, Fields, Notes

WORLD: Final = "world"
_CARRIED: Final = ("suspend", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
_SET: Final = "goes: gangctl sets the rendezvous for each attempt"
_PERMANENT: Final = {
    "ExitCode": {"operator": "In", "values": list(range(1, 128))},
    "Never": {"operator": "NotIn", "values": [0]},
}
"""The exit codes that end the job, by restartPolicy: with ExitCode, 128 to 255 are retried."""


_CLEAN: Final = "goes: pods end with the gang, and ttlSecondsAfterFinished deletes it"


def of_pytorchjob(spec: Fields) -> dict[str, Any]:
    """The spec of a GangJob, of that of a PyTorchJob."""
    processes = str(spec.take("nprocPerNode", ""))
    policy = spec.map("runPolicy")
    made: dict[str, Any] = {"roles": [], **_run_policy(policy)}
    elastic = spec.map("elasticPolicy")
    most = elastic.number("maxReplicas")
    processes = str(elastic.take("nProcPerNode", processes))
    if elastic.take("minReplicas") is not None or most is not None:
        elastic.note(
            "minReplicas", "goes: a gang runs with all members or waits; a spare takes the place of a lost pod"
        )
    made |= jobs.restarts(elastic.number("maxRestarts"), elastic, "maxRestarts")
    elastic.leave(**dict.fromkeys(("rdzvBackend", "rdzvPort", "rdzvHost", "rdzvId", "rdzvConf", "standalone"), _SET))
    elastic.leave(metrics="goes: a gang has a fixed size")
    elastic.finish()
    replicas = spec.map("pytorchReplicaSpecs")
    policies: dict[str, Any] = {}
    for kind in ("Master", "Worker"):
        value = replicas.take(kind)
        if value is not None:
            one = Fields(value, replicas.at(kind), spec.notes)
            policies[kind.lower()] = one.take("restartPolicy")
            made["roles"].append(pods.role(kind.lower(), one.count("replicas"), one.map("template"), processes))
            one.finish()
    replicas.finish()
    spec.leave(cleanPodPolicy=_CLEAN)
    spec.miss(**dict.fromkeys(("backoffLimit", "ttlSecondsAfterFinished"), "it belongs to runPolicy"))
    spec.finish()
    if not made["roles"]:
        raise ConvertError(f"{replicas.path}: there is neither Master nor Worker")
    made["roles"] = jobs.some(made["roles"], replicas)
    rules = list[dict[str, Any]]()
    for restart, codes in _PERMANENT.items():
        names = [role["name"] for role in made["roles"] if policies[role["name"]] == restart]
        of_some = {"roles": names} if len(names) < len(made["roles"]) else {}
        if names:
            rules.append({"name": restart.lower(), "action": "FailJob", **of_some, "onExitCodes": codes})
    if rules:
        made["podFailurePolicy"] = {"rules": rules}
    if len(made["roles"]) > 1:  # Master has rank 0, and the Job succeeds with it.
        _align(made["roles"], spec.notes)
        made["successPolicy"] = {"type": "Roles", "roles": ["master"]}
    return made


def of_trainjob(spec: Fields) -> dict[str, Any]:
    """The spec of a GangJob, of that of a TrainJob. The runtime that it refers to isn't in the file."""
    runtime = spec.map("runtimeRef")
    name = str(runtime.take("name", ""))
    runtime.take("kind")
    runtime.take("apiGroup")
    runtime.finish()
    spec.note(
        "runtimeRef",
        f"the pod template of the runtime {name} isn't in this file: add its volumes, node selector and image",
        is_edit=True,
    )
    trainer = spec.map("trainer")
    container: dict[str, Any] = {"name": "node"}
    for field in ("image", "command", "args", "env"):
        value = trainer.take(field)
        if value is not None:
            container[field] = value
    resources = trainer.take("resourcesPerNode")
    if resources is not None:
        container["resources"] = resources
    count, processes = trainer.count("numNodes"), str(trainer.take("numProcPerNode", ""))
    trainer.finish()
    template = Fields({"spec": {"containers": [container]}}, trainer.path, spec.notes)
    role = pods.role("node", count, template, processes)
    if name.startswith("torch") and "launch" not in role and role.get("processesPerPod", 1) > 1:
        trainer.note("command", "the runtime gives it PET_ variables: start torchrun in it, with launch: Torchrun")
    made: dict[str, Any] = {"roles": jobs.some([role], spec)}
    made |= {name: value for name in _CARRIED if (value := spec.take(name)) is not None}
    spec.miss(
        initializer="fetch model and data in an init container",
        **dict.fromkeys(("podTemplateOverrides", "runtimePatches"), "write it into the role's template"),
        **dict.fromkeys(("labels", "annotations"), "write them into the role's template"),
    )
    spec.leave(managedBy="goes: the GangJob is gangctl's", podGroupPolicy="goes: see spec.gangScheduling")
    policy = spec.map("failurePolicy")
    made |= jobs.restarts(policy.number("maxRestarts"), policy, "maxRestarts")
    policy.miss(rules="write spec.podFailurePolicy.rules")
    policy.finish()
    spec.finish()
    return made


def _run_policy(policy: Fields) -> dict[str, Any]:
    made = {name: value for name in _CARRIED if (value := policy.take(name)) is not None}
    made |= jobs.restarts(policy.number("backoffLimit"), policy, "backoffLimit")
    policy.leave(
        schedulingPolicy="goes: see spec.gangScheduling, and docs/tasks/schedule-as-a-gang",
        cleanPodPolicy=_CLEAN,
        managedBy="goes: the GangJob is gangctl's",
    )
    policy.finish()
    return made


def _align(roles: list[dict[str, Any]], notes: Notes) -> None:
    """One world: torchrun has one number of processes for all nodes."""
    uses = any(role.get("launch") == "Torchrun" for role in roles)
    count = max(role.get("processesPerPod", 1) for role in roles)
    for role in roles:
        role["processGroup"] = WORLD
        if uses and role.get("launch") != "Torchrun":
            notes.add(f"role {role['name']}", "does not start torchrun, as the others do", is_edit=True)
        if uses:
            role |= {"launch": "Torchrun", "processesPerPod": count}
