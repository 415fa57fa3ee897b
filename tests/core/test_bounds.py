"""What the status may hold is bounded, and what is over a bound is decided, not cut."""

from __future__ import annotations

from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase, Incident, LedgerEntry, RejectedStep, Replaced, Status
from gangctl.core import budget, incidents, replacement, restore
from gangctl.core.evidence import Fault, as_cause
from gangctl.core.gang import Gang
from gangctl.core.ladder import LEVELS
from gangctl.core.world import Observed
from tests.core.world import START, World


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
    why = replacement.Why(Reason.POD_DELETED, "it is gone")
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
    cause = as_cause(Fault(Reason.SIGNAL, "worker-0", START, signal=9), None)
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
