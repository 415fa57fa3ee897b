"""Arbitrary jobs, statuses and worlds, most of which can't come about: the core must decide for them all the same."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from gangctl.api.gangjob import GangJob
from gangctl.api.roles import members_of, roles_hash
from gangctl.core.facts.gang import incarnation
from gangctl.core.facts.world import (
    Device,
    Heard,
    NodeAnswer,
    NodeSignal,
    NodeState,
    Observed,
    Pod,
    Replica,
    SidecarEnd,
    StartFailure,
)
from gangsidecar.wire import (
    Checkpoint,
    Corruption,
    End,
    Found,
    Level,
    Milestone,
    Phase,
    Progress,
    Reached,
    Report,
    Request,
    Scanned,
    Stacks,
    Verified,
    WarmStart,
)
from tests.core.arbitrary_status import codes, few, signals, some, statuses, steps, tiers, times
from tests.core.world import MANIFEST

SHARED = {"name": "shared", "scope": "Shared", "source": {"type": "Directory", "directory": "/c", "layout": "TorchDCP"}}
API = {"name": "api", "scope": "Shared", "source": {"type": "API"}}
RAM = {"name": "ram", "scope": "Member", "source": {"type": "API"}}
RULES = [
    {"name": "bug", "action": "FailJob", "onExitCodes": {"operator": "In", "values": [2, 137]}},
    {"name": "gpu", "action": "Ignore", "level": "Pod", "onDeviceHealth": {"health": ["Unhealthy", "Unknown"]}},
    {"action": "Count", "level": "Gang", "onSignals": ["SIGBUS"], "roles": ["worker"]},
    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
    {"action": "FailJob", "onReasons": ["OOMKilled", "Hang", "NodeLost"]},
    {"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [1, 2]}},
]
JOBS: list[dict[str, Any]] = [
    {},
    {
        "roles": [{"name": "worker", "replicas": 3, "spares": 1}],
        "checkpoint": {"fallbackAfter": 1, "tiers": [SHARED, RAM]},
    },
    {"roles": [{"name": "worker", "replicas": 2, "spares": 2, "launch": "PerProcess", "processesPerPod": 2}]},
    {
        "roles": [{"name": "chief", "processGroup": ""}, {"name": "worker", "replicas": 2, "launch": "Torchrun"}],
        "successPolicy": {"type": "Roles", "roles": ["chief"]},
        "checkpoint": {"tiers": [API]},
    },
    {
        "roles": [{"name": "worker", "processGroup": "all"}, {"name": "critic", "processGroup": "all"}],
        "successPolicy": {"type": "Never"},
        "progress": {"timeoutSeconds": 60, "startupTimeoutSeconds": 90, "onHang": "Restart", "adaptive": {"factor": 2}},
        "activeDeadlineSeconds": 3000,
    },
]
RECOVERIES: list[dict[str, Any]] = [
    {},
    {"budget": {"type": "Unlimited"}, "isolationTimeoutSeconds": 20, "replaceAfter": 1},
    {"onReplacementTimeout": "Suspend", "replacementTimeoutSeconds": 100},
    {
        "budget": {"type": "Windowed", "maxRestarts": 1, "windowSeconds": 500},
        "onExhausted": "Hold",
        "holdTimeoutSeconds": 100,
        "onReplacementTimeout": "Fail",
        "schedulingTimeoutSeconds": 500,
        "evidenceWindowSeconds": 0,
    },
]


@st.composite
def jobs(draw: DrawFn) -> GangJob:
    """A job with a status that need not fit it."""
    spec = {**MANIFEST["spec"], **draw(st.sampled_from(JOBS))}
    spec["roles"] = [{**MANIFEST["spec"]["roles"][0], "replicas": 1, **role} for role in spec["roles"]]
    spec |= {
        "suspend": draw(st.booleans()),
        "restartToken": draw(st.sampled_from(["", "again"])),
        **draw(
            st.sampled_from(
                [
                    {},
                    {},
                    {"replicaGroup": {"name": "model", "count": 2}, "rolling": {}},
                    {"replicaGroup": {"name": "model", "minCount": 2, "budget": {"maxRestarts": 1}}},
                ]
            )
        ),
        "recovery": draw(st.sampled_from(RECOVERIES)),
        "podFailurePolicy": {"rules": draw(st.sampled_from([[], RULES, RULES[::-1]]))},
    }
    job = GangJob.model_validate({**MANIFEST, "spec": spec})
    known = draw(st.sampled_from([roles_hash(job.spec.roles)] * 5 + ["of other roles"]))
    return job.model_copy(update={"status": draw(statuses(known))})


@st.composite
def worlds(draw: DrawFn, job: GangJob) -> Observed:
    """Pods of members that are there or not, and what supervisors say of them, whatever that is."""
    names = [*(one.name for role in job.spec.roles for one in members_of(role)), "ghost-7"]
    drawn = draw(st.lists(st.tuples(st.sampled_from(names), st.none() | st.integers(0, 2)), max_size=7, unique=True))
    places = dict.fromkeys((name, incarnation(job.status, name) if at is None else at) for name, at in drawn)
    pods = tuple(
        replace(draw(_pods()), name=f"g-{member}-{number}", uid=f"u{at}", member=member, incarnation=number)
        for at, (member, number) in enumerate(places)
    )
    ready = {pod.uid for pod in pods if draw(st.booleans())}
    pods = tuple(replace(pod, **_SOUND) if pod.uid in ready else pod for pod in pods)
    vanished = draw(st.lists(st.tuples(st.sampled_from(names), st.integers(0, 2)), max_size=2))
    there = [(pod.uid, pod.member, pod.incarnation) for pod in pods if draw(st.integers(0, 3))]
    there += [(f"v{at}", member, incarnation) for at, (member, incarnation) in enumerate(vanished)]
    return Observed(
        pods=pods,
        heard=tuple(
            _in_pod(draw(_heard(job.metadata.uid, job.status.attempt)), *one, is_ready=one[0] in ready, job=job)
            for one in there
        ),
        lost_nodes=draw(st.just({}) | st.fixed_dictionaries({"node-a": times})),
        nodes=draw(st.just({}) | st.fixed_dictionaries({"node-a": _STATES})),
        unfavoured_nodes=draw(st.sampled_from([frozenset(), frozenset({"node-a"})])),
        scanned=draw(st.none() | st.builds(Scanned, some, st.just("u0"), few(_FOUND), st.sampled_from(["", "broken"]))),
        scanned_at=draw(times),
        listening_since=draw(times),
        relayed_since=draw(st.just(0.0) | times),
        refused=draw(st.sampled_from([(), (), None, ("exceeded quota",), ("no " * 500, "image")])),
        group=tuple(
            draw(st.lists(st.builds(Replica, st.just("b"), st.just("Running"), st.none() | times), max_size=2))
        ),
    )


def _in_pod(heard: Heard, uid: str, member: str, incarnation: int, *, is_ready: bool, job: GangJob) -> Heard:
    report = replace(heard.report, member=member, incarnation=incarnation, pod=uid, session=f"session-{uid}")
    if not is_ready:
        return replace(heard, report=report)
    gang, attempt = job.metadata.uid, job.status.attempt
    return Heard(replace(report, gang=gang, attempt=attempt, phase=Phase.READY, terminating=False), heard.at)


_SIGNALS = st.builds(
    NodeSignal,
    st.sampled_from(NodeAnswer),
    st.just("taint gone:NoExecute"),
    times,
    pod=st.sampled_from(["", "u0", "u1"]),
)
_STATES = st.builds(NodeState, few(_SIGNALS), st.booleans())
_SOUND: dict[str, Any] = {"deleting": False, "terminated": False, "devices": ()}
_FOUND = st.builds(Found, tiers, steps, st.just("/c"), st.sampled_from(["", "m"]))


_FAILURES: list[StartFailure | None] = [
    None,
    None,
    StartFailure("StartError", 'exec: "train": permission denied', 128),
    StartFailure("InvalidImageName", "\x1b[2J" * 99),
    StartFailure("ImagePullBackOff", "context deadline exceeded"),
    StartFailure("Error", "exit code 127", 127),
]


@cache
def _pods() -> st.SearchStrategy[Pod]:
    """Pods that belong to no member yet."""
    condition = st.tuples(
        st.just("DisruptionTarget"),
        st.sampled_from(["True", "False"]),
        st.sampled_from(["PreemptionByScheduler", "DeletionByDeviceTaintManager", "New"]),
    )
    device = st.builds(
        Device,
        st.sampled_from(["gpu", "claim:gpu/one"]),
        st.just("gpu-0"),
        st.sampled_from(["Healthy", "Unhealthy", "Unknown"]),
        st.sampled_from(["", "too many ECC errors", "\x1b[2J" * 99]),
    )
    return st.builds(
        Pod,
        name=st.just(""),
        uid=st.just(""),
        member=st.just(""),
        incarnation=st.just(0),
        node=st.sampled_from(["", "node-a", "node-b"]),
        created_at=times,
        scheduled_at=st.none() | times,
        started_at=st.none() | times,
        ended_at=st.none() | times,
        ended_reason=st.sampled_from(["", "OOMKilled", "Error"]),
        start_failure=st.sampled_from(_FAILURES),
        starting=st.sampled_from(["", "init container fetch still runs"]),
        sidecar_end=st.none()
        | st.builds(SidecarEnd, times, st.sampled_from(["the token can't be read", "\x1b[2J" * 99]), st.booleans()),
        restarts=some,
        deleting=st.sampled_from([False, False, True]),
        terminated=st.sampled_from([False, False, True]),
        reason=st.sampled_from(["", "Evicted", "OOMKilled", "ImagePullBackOff"]),
        conditions=few(condition, most=1),
        devices=few(device, most=1),
    )


@cache
def _heard(gang: str, attempt: int) -> st.SearchStrategy[Heard]:
    """Reports of supervisors in no pod yet."""
    age = st.integers(0, 100_000)
    anything = st.integers(-(2**63), 2**63 - 1)
    rank, text = st.none() | some, st.text(max_size=9)
    by_itself = st.builds(
        End, some, some, age, rank, exit_code=codes, stopped=st.booleans(), oom=st.booleans(), hidden=st.booleans()
    )
    by_signal = st.builds(End, some, some, age, rank, signal=signals, stopped=st.booleans())
    report = st.builds(
        Report,
        gang=st.sampled_from([gang] * 9 + ["another gang"]),
        member=st.just(""),
        incarnation=st.just(0),
        pod=st.just(""),
        session=st.just(""),
        seq=some,
        attempt=st.just(attempt) | some,
        phase=st.sampled_from(list(Phase)),
        terminating=st.sampled_from([False, False, True]),
        ends=few(by_itself | by_signal),
        checkpoints=few(st.builds(Checkpoint, tiers, steps, some, some), most=6),
        missing_step=st.none() | steps,
        missing_attempt=some,
        missing_folder=st.booleans(),
        progress=st.none()
        | st.builds(
            Progress,
            some,
            steps,
            age,
            st.sampled_from(["Step", "Startup"]),
            st.none() | steps,
            age,
            st.none() | age,
            uncounted=st.booleans(),
        ),
        reached=few(
            st.builds(Reached, some, st.sampled_from(Milestone), age, st.none() | age, rank), most=len(Milestone)
        ),
        stacks=st.none() | st.builds(Stacks, some, text),
        warm_start=st.none() | st.builds(WarmStart, some, anything, anything, text, anything, text),
        request=st.none()
        | st.builds(Request, some, age, st.just("NaN"), rank, st.sampled_from(list(Level)), st.booleans()),
        verified=few(st.builds(Verified, some, steps)),
        corruption=st.none() | st.builds(Corruption, some, age, steps, st.just("NaN"), st.integers(0, 3)),
        address=st.just("10.0.0.1"),
        ports=st.sampled_from([(), (29400, 29401)]),
    )
    return st.builds(Heard, report, times, st.booleans())
