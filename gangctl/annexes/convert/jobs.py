"""Convert Jobs of Kubernetes, JobSets, and PyTorchJobs and TrainJobs of Kubeflow."""

from typing import Any, Final

from gangctl.annexes.convert import commands, pods
from gangctl.annexes.convert.fields import ConvertError, Fields, Notes

MOST_RESTARTS: Final = 200
EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_MANAGED: Final = "goes: the GangJob is gangctl's"
_CONTROLLER: Final = {
    "managedBy": _MANAGED,
    "manualSelector": "goes: gangctl labels its pods itself",
    "selector": "goes: gangctl labels its pods itself",
    "podReplacementPolicy": "goes: gangctl creates a pod again when the one before is gone",
}
_ENDS: Final = ("suspend", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
_INDEXES: Final = {
    "backoffLimitPerIndex": "goes: no member fails alone; spec.recovery.replaceAfter replaces its pod",
    "maxFailedIndexes": "goes: a gang has all of its members or waits",
}
_WORLD: Final = "world"
_SET: Final = "goes: gangctl sets the rendezvous for each attempt"
_CLEAN: Final = "goes: pods end with the gang, and ttlSecondsAfterFinished deletes it"
_PERMANENT: Final = {
    "ExitCode": {"operator": "In", "values": list(range(1, 128))},
    "Never": {"operator": "NotIn", "values": [0]},
}
"""The exit codes that end the job, by restartPolicy: with ExitCode, 128 to 255 are retried."""


def of_job(spec: Fields) -> dict[str, Any]:
    """The spec of the GangJob for the spec of a Job."""
    spec.leave(**_INDEXES)
    made = {
        "roles": _with_pods([_role(spec, "worker", 1)], spec),
        **_restarts(spec.number("backoffLimit"), spec, "backoffLimit"),
        **_ends(spec),
    }
    policy = _policy(spec)
    if policy:
        made["podFailurePolicy"] = policy
    spec.leave(**_CONTROLLER)
    spec.miss(successPolicy="a gang has succeeded when every process has exited with 0 (spec.successPolicy)")
    spec.finish()
    return made


def of_jobset(spec: Fields, annotations: dict[str, Any]) -> dict[str, Any]:
    """The spec of the GangJob for the spec of a JobSet."""
    roles, names, taken = list[dict[str, Any]](), dict[str, str](), set[str]()
    topology, jobs = annotations.pop(EXCLUSIVE, None), 0
    for one in spec.maps("replicatedJobs"):
        old = str(one.take("name", "worker"))
        names[old] = name = pods.role_name(old, one.at("name"), spec.notes, taken)
        job = one.map("template")
        within = job.map("metadata").items("annotations")
        topology = topology or within.get(EXCLUSIVE)
        job_spec = job.map("spec")
        times = one.count("replicas")
        jobs += times
        roles.append(_role(job_spec, name, times))
        _of_inner_job(job_spec)
        job.finish()
        one.leave(groupName="goes: ranks follow the order of the roles; see spec.roles[].processGroup")
        one.miss(
            dependsOn="for status Ready, see spec.roles[].dependsOn; do what has to be complete in an init container"
        )
        one.finish()
    roles = _with_pods(roles, spec)
    if len(roles) > 1:
        spec.note(
            "replicatedJobs",
            "each role has ranks of its own; give roles that share one world the same processGroup",
            is_edit=any(role.get("launch") == "Torchrun" for role in roles),
        )
    made = {"roles": roles, **_of_failure_policy(spec), **_of_success_policy(spec, names), **_ends(spec)}
    if topology:
        made["placement"] = {"strategy": "Pack", "mode": "Required", "topologyKey": str(topology)}
        spec.notes.add(
            "metadata.annotations",
            f"{EXCLUSIVE}: a gang is packed into one domain, and each of {jobs} Jobs had one: see spec.placement",
            is_edit=jobs > 1,
        )
    network = spec.map("network")
    fields = ("enableDNSHostnames", "subdomain", "publishNotReadyAddresses")
    network.leave(**dict.fromkeys(fields, "goes: gangctl gives the ranks their addresses (MASTER_ADDR, host files)"))
    network.finish()
    if spec.map("startupPolicy").take("startupPolicyOrder") == "InOrder":
        spec.note("startupPolicy", "is not carried over: see spec.roles[].dependsOn", is_edit=True)
    spec.leave(
        coordinator="goes: MASTER_ADDR is the address of rank 0",
        managedBy=_MANAGED,
        gangPolicy="goes: see spec.gangScheduling",
    )
    spec.miss(volumeClaimPolicies="make the claims yourself, or use an ephemeral volume")
    spec.finish()
    return made


def _with_pods(roles: list[dict[str, Any]], spec: Fields) -> list[dict[str, Any]]:
    """The roles that have pods; it is an error if none has."""
    found = [role for role in roles if role["replicas"]]
    for role in roles:
        if not role["replicas"]:
            spec.notes.add(f"role {role['name']}", "goes: it has no pods")
    if not found:
        raise ConvertError(f"{spec.path}: no pod is asked for")
    return found


def _restarts(limit: int | None, path: Fields, name: str) -> dict[str, Any]:
    """The budget that a number of retries becomes."""
    if limit is None:
        return {}
    if limit > MOST_RESTARTS:
        path.note(name, f"{limit} became {MOST_RESTARTS}, the most that a budget has")
    path.note(name, "counts restarts of the whole gang within an hour (spec.recovery.budget), and no disruptions")
    return {"recovery": {"budget": {"type": "Windowed", "maxRestarts": min(limit, MOST_RESTARTS)}}}


def _role(spec: Fields, name: str, times: int) -> dict[str, Any]:
    parallelism, completions = spec.number("parallelism"), spec.number("completions")
    if parallelism is None:
        parallelism = 1
    count = parallelism if completions is None else min(parallelism, completions)
    if completions is not None and parallelism < completions:
        spec.note(
            "parallelism",
            f"{parallelism} of {completions} pods at a time isn't a gang: all run at once; replicas became {count}",
            is_edit=True,
        )
    mode = spec.take("completionMode")
    if mode != "Indexed" and count > 1:
        spec.note("completionMode", "became Indexed: each member has its rank")
    return pods.role(name, count * times, spec.map("template"))


def _ends(spec: Fields) -> dict[str, Any]:
    return {name: value for name in _ENDS if (value := spec.take(name)) is not None}


def _policy(spec: Fields) -> dict[str, Any]:
    """Its podFailurePolicy, which is written alike."""
    rules = list[Any]()
    for one in spec.map("podFailurePolicy").values("rules"):
        if isinstance(one, dict) and one.get("action") == "FailIndex":
            spec.note("podFailurePolicy", "a rule with FailIndex goes: no member fails alone")
            continue
        rules.append(one)
    return {"rules": rules} if rules else {}


def _of_inner_job(spec: Fields) -> None:
    """Take the fields of a Job of a JobSet beyond its pods."""
    spec.miss(
        podFailurePolicy="write its rules into spec.podFailurePolicy, with roles",
        **{name: f"see spec.{name}" for name in ("successPolicy", *_ENDS)},
    )
    spec.leave(
        backoffLimit="goes: a fault restarts the gang, within spec.recovery.budget",
        **_INDEXES,
        **_CONTROLLER,
    )
    spec.finish()


def _of_failure_policy(spec: Fields) -> dict[str, Any]:
    policy = spec.map("failurePolicy")
    made = _restarts(policy.number("maxRestarts"), policy, "maxRestarts")
    policy.leave(restartStrategy="goes: gangctl restarts workers in their pods, and replaces pods only where it must")
    policy.miss(rules="rules of a JobSet match reasons of Jobs. Write spec.podFailurePolicy.rules")
    policy.finish()
    return made


def _of_success_policy(spec: Fields, names: dict[str, str]) -> dict[str, Any]:
    policy = spec.map("successPolicy")
    operator, targets = policy.take("operator"), [str(one) for one in policy.values("targetReplicatedJobs")]
    policy.finish()
    if operator == "Any":
        policy.note(
            "operator", "Any became All: the roles have succeeded when each of their processes has", is_edit=True
        )
    if not targets or set(targets) >= set(names):
        return {}
    return {"successPolicy": {"type": "Roles", "roles": [names.get(one, one) for one in targets]}}


def of_pytorchjob(spec: Fields) -> dict[str, Any]:
    """The spec of the GangJob for the spec of a PyTorchJob."""
    processes = str(spec.take("nprocPerNode", ""))
    policy = spec.map("runPolicy")
    made: dict[str, Any] = {"roles": [], **_run_policy(policy)}
    elastic = spec.map("elasticPolicy")
    most = elastic.number("maxReplicas")
    processes = str(elastic.take("nProcPerNode", processes))
    least = elastic.number("minReplicas")
    if least is not None or most is not None:
        elastic.note("minReplicas", commands.elastic(least or 1))
    made |= _restarts(elastic.number("maxRestarts"), elastic, "maxRestarts")
    elastic.leave(**dict.fromkeys(("rdzvBackend", "rdzvPort", "rdzvHost", "rdzvId", "rdzvConf", "standalone"), _SET))
    elastic.leave(metrics="goes: a gang has the members that are ready, up to replicas")
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
    made["roles"] = _with_pods(made["roles"], replicas)
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
    """The spec of the GangJob for the spec of a TrainJob, whose runtime isn't in the file."""
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
    made: dict[str, Any] = {"roles": _with_pods([role], spec)}
    made |= _ends(spec)
    spec.miss(
        initializer="fetch model and data in an init container",
        **dict.fromkeys(("podTemplateOverrides", "runtimePatches"), "write it into the role's template"),
        **dict.fromkeys(("labels", "annotations"), "write them into the role's template"),
    )
    spec.leave(managedBy=_MANAGED, podGroupPolicy="goes: see spec.gangScheduling")
    policy = spec.map("failurePolicy")
    made |= _restarts(policy.number("maxRestarts"), policy, "maxRestarts")
    policy.miss(rules="write spec.podFailurePolicy.rules")
    policy.finish()
    spec.finish()
    return made


def _run_policy(policy: Fields) -> dict[str, Any]:
    made = _ends(policy)
    made |= _restarts(policy.number("backoffLimit"), policy, "backoffLimit")
    policy.leave(
        schedulingPolicy="goes: see spec.gangScheduling, and docs/tasks/schedule-as-a-gang",
        cleanPodPolicy=_CLEAN,
        managedBy=_MANAGED,
    )
    policy.finish()
    return made


def _align(roles: list[dict[str, Any]], notes: Notes) -> None:
    """One world: torchrun has one number of processes for all nodes."""
    uses = any(role.get("launch") == "Torchrun" for role in roles)
    count = max(role.get("processesPerPod", 1) for role in roles)
    for role in roles:
        role["processGroup"] = _WORLD
        if uses and role.get("launch") != "Torchrun":
            notes.add(f"role {role['name']}", "does not start torchrun, as the others do", is_edit=True)
        if uses:
            role |= {"launch": "Torchrun", "processesPerPod": count}
