"""What the status may hold is bounded, and what is over a bound is decided, not cut."""

from __future__ import annotations

from gangctl.api.incident import Incident, IncidentMember, LedgerEntry
from gangctl.api.reasons import Reason
from gangctl.api.roles_hash import roles_hash
from gangctl.api.status import Awaited, GangPhase, RejectedStep, Replaced, Status
from gangctl.core.facts import barrier
from gangctl.core.facts.evidence import Fault
from gangctl.core.facts.fitness import Defect
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Observed, Pod
from gangctl.core.lifecycle.decide import decide
from gangctl.core.policy import budget, replacement, restore
from gangctl.core.policy.cause import judged
from gangctl.core.policy.ladder import LEVELS
from gangctl.core.record import incidents, stragglers
from tests.core.world import START, World

LARGEST = 64 * 1024
"""Bytes of a status."""


def world(replicas: int) -> World:
    """A gang that runs, with so many workers."""
    made = World()
    made.submit(f"roles: [{{name: worker, replicas: {replicas}}}]")
    made.job = made.job.model_copy(update={"status": Status(phase=GangPhase.RUNNING, attempt=1, phase_time=START)})
    return made


def test_more_replaced_members_than_are_remembered_recreate_the_gang() -> None:
    made = world(1000)
    members = [f"worker-{at}" for at in range(replacement.MAX_REPLACED)]
    entries = tuple(Replaced(member=name, incarnation=1, time=START) for name in members)
    status = made.job.status.model_copy(update={"replaced": entries})
    gang = Gang(START, made.job.model_copy(update={"status": status}), Observed())
    why = Defect(Reason.POD_DELETED, "it is gone")
    assert replacement.most(gang, {"worker-999": why})
    assert not replacement.most(Gang(START, made.job, Observed()), {"worker-999": why})


def test_a_recreated_gang_has_incarnations_that_were_never_used() -> None:
    made = world(3)
    entries = (Replaced(member="worker-1", incarnation=4, time=START),)
    status = made.job.status.model_copy(update={"replaced": entries, "base_incarnation": 2})
    gang = Gang(START, made.job.model_copy(update={"status": status}), Observed())
    after = replacement.recreated(gang, status, {})
    assert (after.base_incarnation, after.replaced) == (5, ())


def test_the_ledger_forgets_uncharged_entries_before_charged_ones() -> None:
    made = world(2)
    charged = LedgerEntry(time=START, attempt=2, charged=True)
    status = made.job.status.model_copy(update={"ledger": (charged,)})
    for attempt in range(3, budget.LEDGER_ENTRIES + 10):
        entry = LedgerEntry(time=START, attempt=attempt, charged=False)
        status = status.model_copy(update={"ledger": budget.entered(made.job.spec, status, entry)})
    assert len(status.ledger) == budget.LEDGER_ENTRIES
    assert status.ledger[0] == charged


def test_the_newest_incidents_are_kept() -> None:
    made = world(2)
    cause = judged(made.job.spec, Fault(Reason.SIGNAL, "worker-0", START, signal=9))
    old = tuple(Incident(attempt=attempt, time=START, cause=cause) for attempt in range(20, 0, -1))
    status = made.job.status.model_copy(update={"incidents": old, "attempt": 20})
    gang = Gang(START, made.job.model_copy(update={"status": status}), Observed())
    kept = incidents.opened(gang, cause, LEVELS[0])
    assert [one.attempt for one in kept] == list(range(21, 21 - incidents.KEPT, -1))


def test_the_newest_rejected_steps_are_kept() -> None:
    made = world(2)
    old = tuple(RejectedStep(tier="shared", step=step, marker="m") for step in range(40))
    kept = restore.rejections(Gang(START, made.job, Observed()), {}, 0, old)
    assert [entry.step for entry in kept] == list(range(8, 40))


def test_a_gang_of_ten_thousand_is_suspended_and_resumed_within_the_size_of_a_status() -> None:
    made = world(10_000)
    spec = made.job.spec
    now = START + 100
    pods = tuple(
        Pod(f"g-worker-{at}-0", f"{at:036}", f"worker-{at}", 0, f"node-{at:030}", START, START, START)
        for at in range(10_000)
    )
    status = made.job.status.model_copy(update={"roles_hash": roles_hash(spec.roles)})
    job = made.job.model_copy(update={"status": status, "spec": spec.model_copy(update={"suspend": True})})

    def stored(observed: Observed) -> None:
        nonlocal job
        plan = decide(now, job, observed)
        if plan.status is not None:
            assert len(plan.status.model_dump_json(by_alias=True, exclude_none=True)) < LARGEST
            job = job.model_copy(update={"status": plan.status})

    stored(Observed(pods=pods))
    assert job.status.phase is GangPhase.SUSPENDED
    job = job.model_copy(update={"spec": spec})
    now += 60
    stored(Observed(pods=pods[5:]))  # Five have vanished, and the others are still there.
    assert job.status.phase is GangPhase.SUSPENDED
    stored(Observed())
    stored(Observed())
    assert job.status.phase is GangPhase.SUSPENDED, "they may still run"
    now += spec.recovery.lost_pod_grace_seconds
    stored(Observed())
    stored(Observed())
    assert (job.status.phase, job.status.attempt) == (GangPhase.PENDING, 2)


def test_the_largest_status_that_recoveries_lead_to_is_bounded() -> None:
    made = world(10_000)
    spec = made.job.spec
    cause = judged(
        made.job.spec, Fault(Reason.SIGNAL, "worker-9999", START, signal=9, message="m" * 200, node="n" * 60)
    )
    cause = cause.model_copy(update={"rule": "r" * 60, "why": "w" * 200})
    member = IncidentMember(
        member="worker-9999",
        incarnation=1,
        node="n" * 30,
        part="Slowest",
        phase="CheckpointLoad",
        begin_milliseconds=10**6,
        milliseconds=10**5,
    )
    status = made.job.status.model_copy(
        update={
            "roles_hash": roles_hash(spec.roles),
            "message": "m" * 1024,
            "incidents": tuple(
                Incident(
                    attempt=at,
                    time=START,
                    cause=cause,
                    members=(member,) * stragglers.LISTED,
                    trace_id="0" * 32,
                    linked_trace_id="0" * 32,
                )
                for at in range(10)
            ),
            "ledger": tuple(
                LedgerEntry(time=START, attempt=at, member="worker-9999", charged=False, restored_step=10**6)
                for at in range(budget.LEDGER_ENTRIES)
            ),
            "replaced": tuple(
                Replaced(member=f"worker-{at}", incarnation=1, time=START, since=START, avoid=("n" * 30,))
                for at in range(replacement.MAX_REPLACED)
            ),
            "awaited": tuple(
                Awaited(member=f"worker-{at}", incarnation=1, pod="u" * 36, node="n" * 30, vanished_time=START)
                for at in range(barrier.MAX_AWAITED)
            ),
        }
    )
    size = len(status.model_dump_json(by_alias=True, exclude_none=True))
    assert size < 2 * LARGEST, size
