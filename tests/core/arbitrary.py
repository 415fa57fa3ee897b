"""Arbitrary jobs, statuses and worlds, most of which can't come about: the core must decide for them all the same."""

from __future__ import annotations

from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from gangctl.api.gangjob import GangJob
from gangctl.api.reasons import Reason
from gangctl.api.roles_hash import roles_hash
from gangctl.api.signals import SIGNALS
from gangctl.api.status import (
    Awaited,
    AwaitedAll,
    Cause,
    Condition,
    GangPhase,
    HeldRank,
    Incident,
    IncidentLevel,
    IncidentMember,
    LedgerEntry,
    Master,
    PhaseMilliseconds,
    ProgressStatus,
    RecordedStep,
    RejectedStep,
    Replaced,
    RestorePoint,
    Spent,
    Status,
)
from gangctl.core.facts.gang import members_of
from gangctl.core.facts.world import Device, Heard, Observed, Pod
from gangsidecar.wire import Checkpoint, End, Found, Level, Loaded, Phase, Progress, Report, Request, Scanned
from tests.core.world import MANIFEST, START

Made = TypeVar("Made")
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
        "progress": {"timeoutSeconds": 60, "startupTimeoutSeconds": 90, "onHang": "Restart"},
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

times = st.integers(-3000, 200).map(lambda seconds: START + seconds)
some = st.integers(0, 4)
steps = st.integers(0, 5).map(lambda number: number * 100)
members = st.sampled_from(["worker-0", "worker-1", "worker-2", "worker-3", "chief-0", "critic-0", "ghost-7", ""])
codes = st.sampled_from([0, 1, 2, 137, 255])
signals = st.sampled_from([6, 7, 9, 15, 64])
tiers = st.sampled_from(["shared", "api", "ram", "gone"])
took = st.none() | st.sampled_from([0, 1, 999, 60_000, -5])
traces = st.sampled_from(["", "0" * 32, "a1" * 16, "b2" * 16, "no trace"])


@st.composite
def jobs(draw: DrawFn) -> GangJob:
    """A job with a status that need not fit it."""
    spec = {**MANIFEST["spec"], **draw(st.sampled_from(JOBS))}
    spec["roles"] = [{**MANIFEST["spec"]["roles"][0], "replicas": 1, **role} for role in spec["roles"]]
    spec |= {
        "suspend": draw(st.booleans()),
        "restartToken": draw(st.sampled_from(["", "again"])),
        "recovery": draw(st.sampled_from(RECOVERIES)),
        "podFailurePolicy": {"rules": draw(st.sampled_from([[], RULES, RULES[::-1]]))},
    }
    job = GangJob.model_validate({**MANIFEST, "spec": spec})
    known = draw(st.sampled_from([roles_hash(job.spec.roles)] * 5 + ["of other roles"]))
    return job.model_copy(update={"status": draw(statuses(known))})


def statuses(known_hash: str) -> st.SearchStrategy[Status]:
    """Statuses that a controller could read, though none would have written them."""
    optional = st.none() | times
    causes = _of(
        Cause,
        reason=st.sampled_from([*map(str, Reason), "FromTheFuture"]),
        member=members,
        incarnation=some,
        rank=st.none() | some,
        exit_code=st.none() | codes,
        signal=st.none() | st.sampled_from([*SIGNALS, "SIG64", "NOSIG"]),
        node=st.none() | st.just("node-a"),
        rule=st.none() | st.sampled_from(["bug", "rules[2]", "gone"]),
        time=times,
        tied=st.lists(members, max_size=3, unique=True).map(tuple),
    )
    incidents = _of(
        Incident,
        attempt=some,
        time=times,
        cause=causes,
        level=st.sampled_from(list(IncidentLevel)),
        charged=st.booleans(),
        settled=st.booleans(),
        settled_time=optional,
        outcome=st.sampled_from(["Open", "Restarted", "Failed", "Held", "Succeeded", "Suspended"]),
        planned=st.booleans(),
        milliseconds=_of(
            PhaseMilliseconds,
            **dict.fromkeys(("detect", "stop", "replace", "barrier", "start", "first_step"), took),
        ),
        restored_step=st.none() | steps,
        lost_steps=st.none() | some,
        lost_seconds=st.none() | st.just(1.5),
        members=_few(_MEMBERS, most=8),
        trace_id=traces,
        linked_trace_id=traces,
    )
    firsts = st.none() | _of(ProgressStatus, attempt=some, step=steps, time=times)
    return _of(
        Status,
        phase=st.sampled_from(list(GangPhase)),
        phase_time=times,
        message=st.just("as before"),
        attempt=some,
        start_time=optional,
        first_step=firsts,
        spent=_of(Spent, **dict.fromkeys(Spent.model_fields, st.sampled_from([0.0, 1.5, 100.0]))),
        accounted_time=st.just(0.0) | times,
        restore_point=st.none() | _of(RestorePoint, step=steps, tier=tiers),
        masters=_few(_of(Master, process_group=st.sampled_from(["worker", "all"]), address=st.just("::1"), port=some)),
        progress=st.none() | _of(ProgressStatus, attempt=some, step=steps, time=times),
        incidents=_few(incidents),
        ledger=_few(
            _of(
                LedgerEntry,
                time=times,
                attempt=some,
                member=members,
                incarnation=some,
                charged=st.booleans(),
                restored_step=st.none() | steps,
                progressed=st.none() | st.booleans(),
            ),
            most=6,
        ),
        base_incarnation=some,
        observed_restart_token=st.sampled_from(["", "again"]),
        roles_hash=st.just(known_hash),
        rejected_steps=_few(_of(RejectedStep, tier=tiers, step=steps, marker=st.sampled_from(["", "m", "attempt-1"]))),
        recorded_steps=_few(_of(RecordedStep, tier=tiers, step=steps)),
        replaced=_few(
            _of(
                Replaced,
                member=members,
                incarnation=some,
                attempt=some,
                time=times,
                since=times,
                avoid=st.sampled_from([(), ("node-a",)]),
                required=st.booleans(),
                failures=some,
            )
        ),
        awaited=_few(
            _of(
                Awaited, member=members, incarnation=some, pod=st.sampled_from(["u0", "u1", ""]), vanished_time=optional
            )
        ),
        awaited_all=st.none() | _of(AwaitedAll, incarnation=some, vanished_time=optional),
        given_back=st.booleans(),
        conditions=_few(_ACCEPTED, most=1),
        ranks=_few(_of(HeldRank, place=members, member=members)),
        barrier_timeouts=some,
        deadline_time=optional,
        observed_time=times,
    )


@st.composite
def worlds(draw: DrawFn, job: GangJob) -> Observed:
    """Pods of members that are there or not, and what supervisors say of them, whatever that is."""
    names = [*(one.name for role in job.spec.roles for one in members_of(role)), "ghost-7"]
    places = draw(st.lists(st.tuples(st.sampled_from(names), st.integers(0, 2)), max_size=7, unique=True))
    pods = tuple(draw(_pods(f"u{at}", member, incarnation)) for at, (member, incarnation) in enumerate(places))
    vanished = draw(st.lists(st.tuples(st.sampled_from(names), st.integers(0, 2)), max_size=2))
    there = [(pod.uid, pod.member, pod.incarnation) for pod in pods if draw(st.integers(0, 3))]
    there += [(f"v{at}", member, incarnation) for at, (member, incarnation) in enumerate(vanished)]
    return Observed(
        pods=pods,
        heard=tuple(draw(_heard(job, *one)) for one in there),
        lost_nodes=draw(st.sampled_from([frozenset(), frozenset({"node-a"})])),
        scanned=draw(
            st.none() | st.builds(Scanned, some, st.just("u0"), _few(_FOUND), st.sampled_from(["", "broken"]))
        ),
        listening_since=draw(times),
        refused=draw(st.sampled_from([(), (), None, ("exceeded quota",), ("no " * 500, "image")])),
    )


def _of(kind: type[Made], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Made]:
    """A pydantic type by the names of its fields, which Hypothesis would only know by their aliases."""
    return st.fixed_dictionaries(fields).map(lambda values: kind(**values))


_ACCEPTED = _of(
    Condition,
    type=st.just("Accepted"),
    status=st.sampled_from(["True", "False"]),
    reason=st.just("AsBefore"),
    last_transition_time=times,
)
_MEMBERS = _of(
    IncidentMember,
    member=members,
    incarnation=some,
    node=st.sampled_from(["", "node-a"]),
    device=st.none() | st.just("gpu-0"),
    part=st.sampled_from(["Cause", "Replaced", "Slowest"]),
    phase=st.sampled_from(["Stop", "Replace", "Start", "CheckpointLoad", "FirstStep"]),
    begin_milliseconds=st.sampled_from([0, 1, 500, 10**6, -7]),
    milliseconds=st.sampled_from([0, 3, 10**6, -7]),
)
_FOUND = st.builds(Found, tiers, steps, st.just("/c"), st.sampled_from(["", "m"]))


def _few(values: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, max_size=most).map(tuple)


def _pods(uid: str, member: str, incarnation: int) -> st.SearchStrategy[Pod]:
    condition = st.tuples(
        st.just("DisruptionTarget"),
        st.sampled_from(["True", "False"]),
        st.sampled_from(["PreemptionByScheduler", "New"]),
    )
    device = st.builds(Device, st.just("gpu"), st.just("gpu-0"), st.sampled_from(["Healthy", "Unhealthy", "Unknown"]))
    return st.builds(
        Pod,
        name=st.just(f"g-{member}-{incarnation}"),
        uid=st.just(uid),
        member=st.just(member),
        incarnation=st.just(incarnation),
        node=st.sampled_from(["", "node-a", "node-b"]),
        created_at=times,
        scheduled_at=st.none() | times,
        started_at=st.none() | times,
        ended_at=st.none() | times,
        ended_reason=st.sampled_from(["", "OOMKilled", "Error"]),
        restarts=some,
        deleting=st.sampled_from([False, False, True]),
        terminated=st.sampled_from([False, False, True]),
        reason=st.sampled_from(["", "Evicted", "OOMKilled", "ImagePullBackOff"]),
        conditions=_few(condition, most=1),
        devices=_few(device, most=1),
    )


def _heard(job: GangJob, uid: str, member: str, incarnation: int) -> st.SearchStrategy[Heard]:
    age = st.integers(0, 100_000)
    rank = st.none() | some
    by_itself = st.builds(
        End, some, some, age, rank, exit_code=codes, stopped=st.booleans(), oom=st.booleans(), hidden=st.booleans()
    )
    by_signal = st.builds(End, some, some, age, rank, signal=signals, stopped=st.booleans())
    report = st.builds(
        Report,
        gang=st.sampled_from([job.metadata.uid] * 9 + ["another gang"]),
        member=st.just(member),
        incarnation=st.just(incarnation),
        pod=st.just(uid),
        session=st.just(f"session-{uid}"),
        seq=some,
        attempt=st.just(job.status.attempt) | some,
        phase=st.sampled_from(list(Phase)),
        terminating=st.sampled_from([False, False, True]),
        ends=_few(by_itself | by_signal),
        checkpoints=_few(st.builds(Checkpoint, tiers, steps, some, some), most=6),
        missing_step=st.none() | steps,
        missing_attempt=some,
        progress=st.none()
        | st.builds(
            Progress, some, steps, age, st.sampled_from(["Step", "Startup"]), st.none() | steps, age, st.none() | age
        ),
        loaded=st.none() | st.builds(Loaded, some, age, age, rank),
        request=st.none()
        | st.builds(Request, some, age, st.just("NaN"), rank, st.sampled_from(list(Level)), st.booleans()),
        address=st.just("10.0.0.1"),
        ports=st.sampled_from([(), (29400, 29401)]),
    )
    return st.builds(Heard, report, times, st.booleans())
