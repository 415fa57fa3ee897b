"""Arbitrary statuses, and the values that arbitrary worlds share with them."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st

from gangctl.api.gangjob import Action
from gangctl.api.incident import (
    Cause,
    Incident,
    IncidentLevel,
    IncidentMember,
    KeptSignal,
    LedgerEntry,
    Output,
    PhaseMilliseconds,
    Stacks,
    WarmStart,
)
from gangctl.api.names import SIGNALS
from gangctl.api.reasons import Reason
from gangctl.api.status import (
    Awaited,
    AwaitedAll,
    Condition,
    Fencing,
    FirstStep,
    GangPhase,
    HeldRank,
    Master,
    ProgressStatus,
    RecordedStep,
    RejectedStep,
    Replaced,
    RestorePoint,
    Spent,
    Status,
    StepGaps,
    VerifiedStep,
)
from tests.core.world import START

Made = TypeVar("Made")

times = st.integers(-3000, 200).map(lambda seconds: START + seconds)
some = st.integers(0, 4)
steps = st.integers(0, 5).map(lambda number: number * 100)
members = st.sampled_from(["worker-0", "worker-1", "worker-2", "worker-3", "chief-0", "critic-0", "ghost-7", ""])
codes = st.sampled_from([0, 1, 2, 137, 255])
signals = st.sampled_from([6, 7, 9, 15, 64])
tiers = st.sampled_from(["shared", "api", "ram", "gone"])
took = st.none() | st.sampled_from([0, 1, 999, 60_000, -5])
traces = st.sampled_from(["", "0" * 32, "a1" * 16, "b2" * 16, "no trace"])


def of(kind: type[Made], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Made]:
    """A pydantic type by the names of its fields, which Hypothesis would only know by their aliases."""
    return st.fixed_dictionaries(fields).map(lambda values: kind(**values))


def few(values: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    """At most so many of these."""
    return st.lists(values, max_size=most).map(tuple)


_ACCEPTED = of(
    Condition,
    type=st.just("Accepted"),
    status=st.sampled_from(["True", "False"]),
    reason=st.just("AsBefore"),
    last_transition_time=times,
)
_MEMBERS = of(
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


@cache  # To make a strategy costs more than to draw from it.
def statuses(known_hash: str) -> st.SearchStrategy[Status]:
    """Statuses that a controller could read, though none would have written them."""
    optional = st.none() | times
    causes = of(
        Cause,
        reason=st.sampled_from([*map(str, Reason), "FromTheFuture"]),
        member=members,
        incarnation=some,
        rank=st.none() | some,
        exit_code=st.none() | codes,
        signal=st.none() | st.sampled_from([*SIGNALS, "SIG64", "NOSIG"]),
        node=st.none() | st.just("node-a"),
        rule=st.none() | st.sampled_from(["bug", "rules[2]", "gone"]),
        action=st.none() | st.sampled_from(list(Action)),
        level=st.sampled_from(list(IncidentLevel)),
        time=times,
        tied=st.lists(members, max_size=3, unique=True).map(tuple),
    )
    incidents = of(
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
        milliseconds=of(
            PhaseMilliseconds,
            **dict.fromkeys(("detect", "stop", "replace", "barrier", "start", "first_step"), took),
        ),
        stacks=st.none() | of(Stacks, member=members, text=st.just("process 7 (python)\n  thread 7\x1b[2J\n")),
        output=st.none() | of(Output, member=members, text=st.just("RuntimeError: no dataset\nbye\x1b[2J")),
        kept_signal=st.none() | of(KeptSignal, member=members, members=some, milliseconds=some),
        restored_step=st.none() | steps,
        lost_steps=st.none() | some,
        lost_steps_at_most=st.none() | some,
        lost_seconds=st.none() | st.just(1.5),
        warm_start=st.none() | of(WarmStart, forked=some, executed=some, obstacle=st.just("a thread")),
        members=few(_MEMBERS, most=8),
        trace_id=traces,
        linked_trace_id=traces,
    )
    firsts = st.none() | of(FirstStep, attempt=some, step=st.none() | steps, time=times)
    return of(
        Status,
        phase=st.sampled_from(list(GangPhase)),
        phase_time=times,
        message=st.just("as before"),
        attempt=some,
        start_time=optional,
        first_step=firsts,
        step_gaps=st.none() | of(StepGaps, attempt=some, longest_milliseconds=some, reached_step=st.none() | steps),
        spent=of(Spent, **dict.fromkeys(Spent.model_fields, st.sampled_from([0.0, 1.5, 100.0]))),
        accounted_time=st.just(0.0) | times,
        restore_point=st.none() | of(RestorePoint, step=steps, tier=tiers),
        masters=few(of(Master, process_group=st.sampled_from(["worker", "all"]), address=st.just("::1"), port=some)),
        progress=st.none() | of(ProgressStatus, attempt=some, step=steps, time=times),
        incidents=few(incidents),
        ledger=few(
            of(
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
        restart_wait_time=st.none() | times,
        roles_hash=st.just(known_hash),
        rejected_steps=few(of(RejectedStep, tier=tiers, step=steps, marker=st.sampled_from(["", "m", "attempt-1"]))),
        verified_steps=few(of(VerifiedStep, step=steps, attempt=some)),
        corrupt_since=st.none() | steps,
        recorded_steps=few(of(RecordedStep, tier=tiers, step=steps)),
        replaced=few(
            of(
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
        awaited=few(
            of(Awaited, member=members, incarnation=some, pod=st.sampled_from(["u0", "u1", ""]), vanished_time=optional)
        ),
        fencing=st.none()
        | of(
            Fencing,
            revision=some,
            isolation_seconds=st.sampled_from([None, 20, 60]),
            stop_grace_seconds=st.sampled_from([0, 15]),
            longest_isolation_seconds=st.sampled_from([None, 20, 60]),
            longest_stop_grace_seconds=st.sampled_from([0, 15, 120]),
        ),
        awaited_all=st.none() | of(AwaitedAll, incarnation=some, vanished_time=optional),
        given_back=st.booleans(),
        conditions=few(_ACCEPTED, most=1),
        ranks=few(of(HeldRank, place=members, member=members)),
        barrier_timeouts=some,
        deadline_time=optional,
        observed_time=times,
    )
