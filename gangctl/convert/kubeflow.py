"""PyTorchJobs and TrainJobs of Kubeflow."""

from __future__ import annotations

from typing import Any, Final

from gangctl.convert import jobs, pods
from gangctl.convert.fields import ConvertError, Fields, Notes

WORLD: Final = "world"
_CARRIED: Final = ("suspend", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
_SET: Final = "goes: gangctl sets the rendezvous for each attempt"
_PERMANENT: Final = {
    "name": "permanent",
    "action": "FailJob",
    "onExitCodes": {"operator": "In", "values": list(range(1, 128))},
}
"""restartPolicy ExitCode of Kubeflow: 1 to 127 are permanent, 128 to 255 are retried."""


_OLD: Final = {
    "cleanPodPolicy": "goes: pods end with the gang, and ttlSecondsAfterFinished deletes it",
    "backoffLimit": "is not carried over: it belongs to runPolicy",
    "ttlSecondsAfterFinished": "is not carried over: it belongs to runPolicy",
}


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
    for kind in ("Master", "Worker"):
        one = replicas.take(kind)
        if one is not None:
            made["roles"].append(_replicas(Fields(one, replicas.at(kind), spec.notes), kind.lower(), processes, made))
    replicas.finish()
    spec.leave(**_OLD)
    spec.finish()
    if not made["roles"]:
        raise ConvertError(f"{replicas.path}: there is neither Master nor Worker")
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
    count, processes = trainer.number("numNodes") or 1, str(trainer.take("numProcPerNode", ""))
    trainer.finish()
    template = Fields({"spec": {"containers": [container]}}, trainer.path, spec.notes)
    role = pods.role("node", count, template, processes)
    if name.startswith("torch") and "launch" not in role and role.get("processesPerPod", 1) > 1:
        trainer.note("command", "the runtime gives it PET_ variables: start torchrun in it, with launch: Torchrun")
    made: dict[str, Any] = {"roles": [role]}
    made |= {name: value for name in _CARRIED if (value := spec.take(name)) is not None}
    spec.leave(
        initializer="is not carried over: fetch model and data in an init container",
        podTemplateOverrides="is not carried over: write it into the role's template",
        runtimePatches="is not carried over: write it into the role's template",
        labels="goes: set labels in the role's template",
        annotations="goes: set annotations in the role's template",
        managedBy="goes: the GangJob is gangctl's",
        podGroupPolicy="is not carried over: see spec.gangScheduling",
    )
    policy = spec.map("failurePolicy")
    made |= jobs.restarts(policy.number("maxRestarts"), policy, "maxRestarts")
    policy.leave(rules="is not carried over: write spec.podFailurePolicy.rules")
    policy.finish()
    spec.finish()
    return made


def _run_policy(policy: Fields) -> dict[str, Any]:
    made = {name: value for name in _CARRIED if (value := policy.take(name)) is not None}
    made |= jobs.restarts(policy.number("backoffLimit"), policy, "backoffLimit")
    scheduling = policy.take("schedulingPolicy")
    if scheduling is not None:
        policy.note(
            "schedulingPolicy", "is not carried over: see spec.gangScheduling, and docs/tasks/schedule-as-a-gang"
        )
    policy.leave(
        cleanPodPolicy=_OLD["cleanPodPolicy"],
        managedBy="goes: the GangJob is gangctl's",
    )
    policy.finish()
    return made


def _replicas(one: Fields, name: str, processes: str, made: dict[str, Any]) -> dict[str, Any]:
    restart = one.take("restartPolicy")
    if restart == "ExitCode":
        made["podFailurePolicy"] = {"rules": [_PERMANENT]}
    elif restart == "Never":
        made.setdefault("recovery", {"budget": {"type": "Windowed", "maxRestarts": 0}})
        one.note("restartPolicy", "Never became a budget of 0: the first fault that is charged ends the gang")
    role = pods.role(name, one.number("replicas") or 1, one.map("template"), processes)
    one.finish()
    return role


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
