"""Good and bad manifests."""

from __future__ import annotations

from typing import Any

from tests.api.bad_manifest import Bad, Check
from tests.api.manifests import manifest, role, with_container, with_role, with_rules
from tests.api.policy_cases import BAD_POLICIES


def _tier(**fields: Any) -> dict[str, Any]:
    tier = {"name": "shared", "scope": "Shared", "source": {"type": "API"}, **fields}
    return manifest(checkpoint={"tiers": [tier]})


def _directory(**fields: Any) -> dict[str, Any]:
    return _tier(source={"type": "Directory", "directory": "/c", **fields})


def _elastic(*tiers: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A gang of 2 to 4 members with these tiers."""
    made = [{"name": "store", "scope": "Shared", "source": {"type": "API"}, **tier} for tier in tiers]
    return manifest(roles=[role("worker", **{"replicas": 4, "minReplicas": 2, **changes})], checkpoint={"tiers": made})


def _named(gang: str, **fields: Any) -> dict[str, Any]:
    made = with_role(**fields)
    made["metadata"]["name"] = gang
    return made


_CODES = {"operator": "In", "values": [1]}
_WORKER = "spec.roles[0].template.spec.containers"

GOOD: dict[str, dict[str, Any]] = {
    "the minimal one": manifest(),
    "a success policy of its default kind without a type": manifest(successPolicy={}),
    "a budget of its default kind without a type": manifest(recovery={"budget": {"maxRestarts": 3}}),
    "an unlimited budget": manifest(recovery={"budget": {"type": "Unlimited"}}),
    "a rule pasted from a Job with exit codes": with_rules(
        {"action": "FailJob", "onExitCodes": {"containerName": "trainer", "operator": "NotIn", "values": [0, 1]}}
    ),
    "a rule pasted from a Job with pod conditions": with_rules(
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    ),
    "a rule with both": with_rules({"action": "Count", "onExitCodes": _CODES, "onPodConditions": [{"type": "X"}]}),
    "a hold with its timeout": manifest(recovery={"onExhausted": "Hold", "holdTimeoutSeconds": 1}),
    "checks": manifest(
        recovery={
            "checks": [
                {"name": "a", "when": "Fault", "scope": "Pair", "builtin": "AllReduce", "args": ["--floor", "9"]},
                {"name": "b", "when": "Start", "command": ["true"], "onFailure": "Hold"},
            ]
        }
    ),
    "a layout of one's own": _directory(layout="Pattern", pattern="step-{step}", complete="DONE"),
    "a layout of files": _directory(layout="Pattern", pattern="model-*-{step}.pt"),
    "a member tier": _tier(scope="Member"),
    "a tier in the memory of peers": _tier(scope="Peers"),
    "rules for the log": with_rules(*({"action": "Count", "onLog": {"pattern": f"Xid {at}"}} for at in range(8))),
    "an adaptive deadline": manifest(progress={"timeoutSeconds": 600, "adaptive": {}}),
    "a log pattern": manifest(progress={"source": {"type": "Log", "pattern": "(?P<step>[0-9]+)"}}),
    "a group that restarts in turn": manifest(
        replicaGroup={"name": "model", "index": 1, "count": 2}, rolling={"maxUnavailable": 2, "minReadySeconds": 0}
    ),
    "a placement": manifest(placement={"strategy": "Spread"}),
    "no process group": with_role(processGroup=""),
    "a probe beside the worker": with_role(
        template={"spec": {"containers": [{"name": "a", "command": ["x"]}, {"name": "b", "livenessProbe": {}}]}}
    ),
    "forked workers": with_role(start={"type": "Fork"}, launch="PerProcess", processesPerPod=2),
    "forked workers with modules": with_role(
        start={"type": "Fork", "preload": {"type": "Modules", "modules": ["torch", "torch.optim"]}}
    ),
    "two torchrun roles in one world": manifest(
        roles=[
            role("a", launch="Torchrun", processGroup="g", processesPerPod=2),
            role("b", launch="Torchrun", processGroup="g", processesPerPod=2),
        ]
    ),
    "two roles with different numbers of processes in one world": manifest(
        roles=[role("a", processGroup="g", processesPerPod=2), role("b", processGroup="g")]
    ),
    "ten thousand members": with_role(replicas=9_000, spares=1_000),
    "a name of 42 characters": _named("a" * 42),
}

BAD = (
    *BAD_POLICIES,
    Bad(
        "a string for a number",
        with_role(replicas="4"),
        "spec.roles[0].replicas",
        "an integer from 1 to 10000",
        Check.SCHEMA,
    ),
    Bad("a bool for a number", with_role(replicas=True), "spec.roles[0].replicas", "found true", Check.SCHEMA),
    Bad("a number out of bounds", with_role(replicas=0), "spec.roles[0].replicas", "from 1 to 10000", Check.SCHEMA),
    Bad("a string for a bool", manifest(suspend="true"), "spec.suspend", "expected true or false", Check.SCHEMA),
    Bad(
        "no modules to preload",
        with_role(start={"type": "Fork", "preload": {"type": "Modules"}}),
        "spec.roles[0].start.preload.modules",
        "found nothing, expected a list of 1 to 64 items",
        Check.CEL,
        "type Modules needs modules",
    ),
    Bad(
        "a file to preload",
        with_role(start={"type": "Fork", "preload": {"type": "Modules", "modules": ["train.py", "a-b"]}}),
        "spec.roles[0].start.preload.modules[1]",
        "matches",
        Check.SCHEMA,
    ),
    Bad("no role", manifest(roles=[]), "spec.roles", "a list of 1 to 8 items", Check.SCHEMA),
    Bad("a role's name with a dash", with_role(name="a-b"), "spec.roles[0].name", "matches", Check.SCHEMA),
    Bad(
        "an unknown kind",
        manifest(successPolicy={"type": "All"}),
        "spec.successPolicy.type",
        "one of AllRoles, Roles, Never",
        Check.SCHEMA,
    ),
    Bad(
        "a union without its type",
        _tier(source={}),
        "spec.checkpoint.tiers[0].source.type",
        "found nothing",
        Check.SCHEMA,
    ),
    Bad("null", manifest(checkpoint=None), "spec.checkpoint", "found null", Check.GANGCTL),
    Bad(
        "an unknown signal",
        with_rules({"action": "Count", "onSignals": ["SIGKILLED"]}),
        "spec.podFailurePolicy.rules[0].onSignals[0]",
        "did you mean SIGKILL?",
        Check.SCHEMA,
    ),
    Bad(
        "a pattern without a step",
        _directory(layout="Pattern", pattern="x", complete="D"),
        "spec.checkpoint.tiers[0].source.pattern",
        r"\{step\}",
        Check.SCHEMA,
    ),
    Bad("no template", manifest(roles=[{"name": "worker"}]), "spec.roles[0].template", "found nothing", Check.SCHEMA),
    Bad(
        "a negative duration",
        manifest(recovery={"lostPodGraceSeconds": -1}),
        "spec.recovery.lostPodGraceSeconds",
        "from 0 to",
        Check.SCHEMA,
    ),
    Bad(
        "a restart from the beginning for every token",
        manifest(restartFrom={"type": "Beginning"}),
        "spec.restartFrom.type",
        "need restartToken",
        Check.CEL,
        "need restartToken",
    ),
    Bad(
        "a restart from a step of a job without checkpoints",
        manifest(restartFrom={"type": "Step", "step": 300, "restartToken": "a"}),
        "spec.restartFrom.type",
        "Step needs checkpoint",
        Check.CEL,
        "Step needs checkpoint",
    ),
    Bad(
        "a pod that is always restarted",
        with_role(template={"spec": {"restartPolicy": "Always", "containers": [{"name": "a", "command": ["x"]}]}}),
        "spec.roles[0].template.spec.restartPolicy",
        "could never succeed",
        Check.CEL,
        "could never succeed",
    ),
    Bad(
        "a member tier in a directory",
        _tier(scope="Member", source={"type": "Directory", "directory": "/c", "layout": "Orbax"}),
        "spec.checkpoint.tiers[0].source.type",
        "needs source type API",
        Check.CEL,
        "needs source type API",
    ),
    Bad(
        "a layout of one's own without a pattern",
        _directory(layout="Pattern", complete="DONE"),
        "spec.checkpoint.tiers[0].source.layout",
        "needs pattern",
        Check.CEL,
        "needs pattern",
    ),
    Bad(
        "a pattern for a known layout",
        _directory(layout="Orbax", pattern="{step}"),
        "spec.checkpoint.tiers[0].source.layout",
        "belong to layout Pattern",
        Check.CEL,
        "belong to layout Pattern",
    ),
    Bad(
        "a log pattern without a step",
        manifest(progress={"source": {"type": "Log", "pattern": "step"}}),
        "spec.progress.source.pattern",
        "a group named step",
        Check.CEL,
        "a group named step",
    ),
    Bad(
        "a worker container that isn't there",
        with_role(workerContainer="x"),
        "spec.roles[0].workerContainer",
        "must name one",
        Check.CEL,
        "must name one",
    ),
    Bad("a worker without a command", with_container(command=[]), _WORKER, "must have a command", Check.CEL),
    Bad(
        "a worker with a liveness probe",
        with_container(livenessProbe={"exec": {}}),
        _WORKER,
        "livenessProbe would kill",
        Check.CEL,
        "livenessProbe would kill",
    ),
    Bad(
        "a worker with a startup probe",
        with_container(startupProbe={"exec": {}}),
        _WORKER,
        "startupProbe would kill",
        Check.CEL,
        "startupProbe would kill",
    ),
    Bad(
        "two containers of one name",
        with_role(template={"spec": {"containers": [{"name": "a", "command": ["x"]}, {"name": "a"}]}}),
        _WORKER,
        "same name",
        Check.CEL,
        "same name",
    ),
    Bad(
        "torchrun without ranks",
        with_role(launch="Torchrun", processGroup=""),
        "spec.roles[0].processGroup",
        "needs a process group",
        Check.CEL,
        "needs a process group",
    ),
    Bad(
        "torchrun with two numbers of processes",
        manifest(
            roles=[
                role("a", launch="Torchrun", processGroup="g", processesPerPod=2),
                role("b", launch="Torchrun", processGroup="g"),
            ]
        ),
        "spec.roles",
        "same processesPerPod",
        Check.CEL,
        "same processesPerPod",
    ),
    Bad(
        "torchrun beside another launch",
        manifest(roles=[role("a", launch="Torchrun", processGroup="b"), role("b")]),
        "spec.roles",
        "must have launch Torchrun if one has",
        Check.CEL,
        "must have launch Torchrun if one has",
    ),
    Bad("too many members", with_role(replicas=10_000, spares=1), "spec.roles", "at most 10000 members", Check.CEL),
    Bad(
        "a smaller gang without a checkpoint that it can load",
        with_role(replicas=4, minReplicas=2),
        "spec.roles",
        "reshardable: true on each of these",
        Check.CEL,
        "reshardable: true on each of these",
    ),
    Bad(
        "a smaller gang with one tier that it can't load",
        _elastic({"reshardable": True}, {"name": "other"}),
        "spec.roles",
        "reshardable: true on each of these",
        Check.CEL,
        "reshardable: true on each of these",
    ),
    Bad(
        "memory that reshards",
        _elastic({"reshardable": True}, {"name": "ram", "scope": "Peers", "reshardable": True}),
        "spec.checkpoint.tiers[1].reshardable",
        "needs scope Shared",
        Check.CEL,
        "needs scope Shared",
    ),
    Bad(
        "a least size beyond the wanted one",
        _elastic({"reshardable": True}, minReplicas=5),
        "spec.roles[0].minReplicas",
        "at most replicas",
        Check.CEL,
        "at most replicas",
    ),
    Bad(
        "roles that wait for each other",
        manifest(roles=[role("a", dependsOn=[{"name": "b"}]), role("b", dependsOn=[{"name": "a"}])]),
        "spec.roles",
        "dependsOn must name roles that come before",
        Check.CEL,
        "dependsOn must name roles that come before",
    ),
    Bad(
        "a role after another has ended",
        manifest(roles=[role("a"), role("b", dependsOn=[{"name": "a", "status": "Complete"}])]),
        "spec.roles[1].dependsOn[0].status",
        "what ends before belongs into a gang of its own",
        Check.CEL,
        "what ends before belongs into a gang of its own",
    ),
    Bad("a long name", _named("a" * 43), "metadata.name", "{0,40}", Check.CEL),
    Bad(
        "names that are too long together",
        _named("a" * 42, name="b" * 15),
        "metadata.name",
        "at most 63 characters",
        Check.CEL,
        "at most 63 characters",
    ),
    Bad("two roles of one name", manifest(roles=[role("a"), role("a")]), "spec.roles", "same name", Check.LIST_MAP),
    Bad(
        "two tiers of one name",
        manifest(checkpoint={"tiers": [{"name": "a", "scope": "Shared", "source": {"type": "API"}}] * 2}),
        "spec.checkpoint.tiers",
        "same name",
        Check.LIST_MAP,
    ),
    Bad(
        "two checks of one name",
        manifest(recovery={"checks": [{"name": "a", "when": "Start", "builtin": "Disk"}] * 2}),
        "spec.recovery.checks",
        "same name",
        Check.LIST_MAP,
    ),
    Bad(
        "a check without a command",
        manifest(recovery={"checks": [{"name": "a", "when": "Start"}]}),
        "spec.recovery.checks[0].command",
        "exactly one",
        Check.CEL,
        "exactly one of command and builtin",
    ),
    Bad(
        "arguments beside a command",
        manifest(recovery={"checks": [{"name": "a", "when": "Start", "command": ["true"], "args": ["-v"]}]}),
        "spec.recovery.checks[0].args",
        "belong to the command",
        Check.CEL,
        "args are those of a builtin check",
    ),
    Bad(
        "two tiers in one memory",
        manifest(
            checkpoint={"tiers": [{"name": name, "scope": "Peers", "source": {"type": "API"}} for name in ("a", "b")]}
        ),
        "spec.checkpoint.tiers",
        "only one tier",
        Check.CEL,
        "only one tier",
    ),
    Bad(
        "a log pattern that doesn't compile",
        manifest(progress={"source": {"type": "Log", "pattern": "((?P<step>"}}),
        "spec.progress.source.pattern",
        "regular expression",
        Check.GANGCTL,
    ),
    Bad("an unknown field", with_role(replica=4), "spec.roles[0].replica", "did you mean replicas?", Check.GANGCTL),
    Bad(
        "a Python name",
        manifest(restart_token="x"),
        "spec.restart_token",
        "did you mean restartToken?",
        Check.GANGCTL,
    ),
)
