"""What the status may hold is bounded, and what is over a bound is decided, not cut."""

from __future__ import annotations

import gc
from dataclasses import replace

from gangctl.api import roles
from gangctl.api.incident import Incident, IncidentMember, LedgerEntry, Output, Stacks
from gangctl.api.model import changed
from gangctl.api.reasons import Reason
from gangctl.api.roles import roles_hash
from gangctl.api.status import (
    Awaited,
    Condition,
    Finished,
    FinishedRole,
    GangPhase,
    HeldRank,
    RecordedStep,
    RejectedStep,
    Replaced,
    RestorePoint,
    Status,
)
from gangctl.core.facts import barrier, printed
from gangctl.core.facts.evidence import Fault
from gangctl.core.facts.fitness import Defect
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Observed, Pod
from gangctl.core.lifecycle.decide import decide
from gangctl.core.policy import pods, recovery, restore
from gangctl.core.policy.cause import judge_fault
from gangctl.core.policy.pods import CreatePod
from gangctl.core.policy.recovery import LEVELS
from gangctl.core.record import conditions, incidents, timings
from tests.core.fleet import Fleet
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
    members = [f"worker-{at}" for at in range(pods.MAX_REPLACED)]
    entries = tuple(Replaced(member=name, incarnation=1, time=START) for name in members)
    status = made.job.status.model_copy(update={"replaced": entries})
    gang = Gang(START, made.job.model_copy(update={"status": status}), Observed())
    why = Defect(Reason.POD_DELETED, "it is gone")
    assert pods.needs_recreation(gang, {"worker-999": why})
    assert not pods.needs_recreation(Gang(START, made.job, Observed()), {"worker-999": why})


def test_a_recreated_gang_has_incarnations_that_were_never_used() -> None:
    made = world(3)
    entries = (Replaced(member="worker-1", incarnation=4, time=START),)
    status = made.job.status.model_copy(update={"replaced": entries, "base_incarnation": 2})
    gang = Gang(START, made.job.model_copy(update={"status": status}), Observed())
    after = pods.recreate_members(gang, status, {})
    assert (after.base_incarnation, after.replaced) == (5, ())


def test_the_ledger_forgets_uncharged_entries_before_charged_ones() -> None:
    made = world(2)
    charged = LedgerEntry(time=START, attempt=2, charged=True)
    status = made.job.status.model_copy(update={"ledger": (charged,)})
    for attempt in range(3, recovery.LEDGER_ENTRIES + 10):
        entry = LedgerEntry(time=START, attempt=attempt, charged=False)
        status = status.model_copy(update={"ledger": recovery.ledger_with(made.job.spec, status, entry)})
    assert len(status.ledger) == recovery.LEDGER_ENTRIES
    assert status.ledger[0] == charged


def test_the_ledger_keeps_a_row_without_progress_which_the_budget_forgets() -> None:
    made = world(2)
    status = made.job.status
    for attempt, progressed in enumerate((True, False, False, False), 2):
        entry = LedgerEntry(time=START + 7200 * attempt, attempt=attempt, charged=True, progressed=progressed)
        status = incidents.enter_ledger(Gang(entry.time, made.job, Observed()), status, entry, 1)
    assert [one.attempt for one in status.ledger] == [3, 4, 5]
    assert status.restarts.in_window == 1
    entry = LedgerEntry(time=START + 7200 * 6, attempt=6, charged=True, progressed=True)
    assert recovery.ledger_with(made.job.spec, status, entry) == (entry,)


def test_the_newest_incidents_are_kept() -> None:
    made = world(2)
    cause = judge_fault(made.job.spec, Fault(Reason.SIGNAL, "worker-0", START, signal=9))
    old = tuple(Incident(attempt=attempt, time=START, cause=cause) for attempt in range(20, 0, -1))
    status = made.job.status.model_copy(update={"incidents": old, "attempt": 20})
    gang = Gang(START, made.job.model_copy(update={"status": status}), Observed())
    kept = incidents.open_incident(gang, cause, LEVELS[0])
    assert [one.attempt for one in kept] == list(range(21, 21 - incidents.KEPT, -1))


def test_the_newest_rejected_steps_are_kept() -> None:
    made = world(2)
    old = tuple(RejectedStep(tier="shared", step=step, marker="m") for step in range(restore.MAX_REJECTED + 8))
    kept = restore.rejections(Gang(START, made.job, Observed()), {}, 0, old)
    assert [entry.step for entry in kept] == list(range(8, restore.MAX_REJECTED + 8))


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


def test_more_bad_pods_than_a_status_can_name_recreate_the_gang_and_back_off() -> None:
    fleet = Fleet({"roles": [{"replicas": pods.MAX_REPLACED + 1}]})
    fleet.starts = lambda _member: False
    fleet.turn()
    for number in range(1, 4):
        fleet.now += 60
        fleet.turn()
        fleet.pods = {uid: replace(pod, terminated=True) for uid, pod in fleet.pods.items()}
        fleet.turn()
        assert (fleet.status.phase, fleet.status.base_incarnation) == (GangPhase.PENDING, number)
        assert len(fleet.status.replaced) <= pods.MAX_REPLACED
        assert fleet.status.recreated is not None
        assert fleet.status.recreated.failures == number - 1
    assert not fleet.pods, "the next pods wait"
    fleet.now += 10
    assert not fleet.turn().actions
    fleet.now += 10
    assert len(fleet.turn().actions) == pods.MAX_REPLACED + 1


def test_members_that_are_replaced_at_one_moment_keep_their_order() -> None:
    made = world(3)
    entries = tuple(Replaced(member=f"worker-{at}", incarnation=1, attempt=1, time=START) for at in range(3))
    made.job = changed(made.job, status=changed(made.job.status, replaced=entries))
    gang = Gang(START, made.job, Observed())
    assert pods.replace_members(gang, gang.status, {}).replaced == entries


def test_spares_take_as_many_places_as_a_status_can_name_and_the_others_wait() -> None:
    fleet = Fleet({"roles": [{"replicas": 600, "spares": 220}]})
    fleet.settle()
    lost = {f"worker-{at}" for at in range(recovery.MAX_TAKEN + 10)}
    fleet.starts = lambda member: member not in lost
    fleet.pods = {uid: pod for uid, pod in fleet.pods.items() if pod.member not in lost}
    fleet.heard = {uid: heard for uid, heard in fleet.heard.items() if uid in fleet.pods}
    fleet.settle(turns=4)
    assert fleet.status.phase is GangPhase.GATHERING, "ten places wait for new pods of their own members"
    fleet.pods = {uid: replace(pod, started_at=fleet.now) for uid, pod in fleet.pods.items()}
    fleet.settle()
    assert (fleet.status.phase, fleet.status.attempt) == (GangPhase.RUNNING, 2)
    assert len(fleet.status.ranks) <= recovery.MAX_TAKEN


def fullest(node: str, path: str) -> Status:
    """A status in which each list has as many entries as the code that fills it allows, each as long as it can be."""
    made = world(10_000)
    cause = judge_fault(
        made.job.spec, Fault(Reason.SIGNAL, "worker-9999", START, signal=9, message="m" * 2000, node=node)
    )
    cause = changed(cause, rule="r" * 60, why="w" * 1024, device="d" * 200, tied=("worker-9999",) * 8)
    member = IncidentMember(
        member="worker-9999",
        incarnation=1,
        node=node,
        part="Slowest",
        phase="CheckpointLoad",
        begin_milliseconds=10**6,
        milliseconds=10**5,
    )
    told = Condition(type="Ready", status="True", reason="Running", message="c" * 1024, last_transition_time=START)
    return changed(
        made.job.status,
        message="m" * 1024,
        conditions=(told,) * 9,
        incidents=tuple(
            Incident(
                attempt=at,
                time=START,
                cause=cause,
                members=(member,) * timings.MAX_LISTED,
                trace_id="0" * 32,
                linked_trace_id="0" * 32,
                stacks=Stacks(member="worker-9999", text="s" * 8192),
                output=Output(member="worker-9999", text="o" * printed.MAX_OUTPUT_BYTES),
            )
            for at in range(incidents.KEPT)
        ),
        ledger=tuple(
            LedgerEntry(time=START, attempt=at, member="worker-9999", charged=at % 5 > 0, restored_step=10**6)
            for at in range(recovery.LEDGER_ENTRIES)
        ),
        replaced=tuple(
            Replaced(member=f"worker-{at}", incarnation=1, time=START, since=START, avoid=(node,))
            for at in range(pods.MAX_REPLACED)
        ),
        awaited=tuple(
            Awaited(member=f"worker-{at}", incarnation=1, pod="u" * 36, node=node, vanished_time=START)
            for at in range(barrier.MAX_AWAITED)
        ),
        ranks=tuple(HeldRank(place=f"worker-{at}", member=f"worker-{at + 9000}") for at in range(recovery.MAX_TAKEN)),
        rejected_steps=tuple(RejectedStep(tier="shared", step=at, marker="m" * 100) for at in range(32)),
        recorded_steps=tuple(RecordedStep(tier="api", step=at, path=path, marker="attempt-1") for at in range(16)),
        restore_point=RestorePoint(step=1, tier="shared", path=path),
        finished=Finished(
            attempt=1,
            time=START,
            roles=(FinishedRole(name="worker", indexes=",".join(str(at) for at in range(0, 10_000, 2))),),
        ),
    )


def test_a_status_in_which_every_list_is_full_is_still_small_enough() -> None:
    full = fullest("n" * 63, "/" + "p" * 300)
    assert conditions.size(full) > 2 * LARGEST, "this is meant to be too large"
    kept = conditions.with_size_limited(full)
    assert conditions.size(kept) < 2 * LARGEST, conditions.size(kept)
    read = tuple(changed(one, stacks=None, output=None) for one in full.incidents[: conditions.RECENT])
    assert kept.incidents[: conditions.RECENT] == read, (
        "decisions read them, but not their stacks, nor what was printed"
    )
    same = ("attempt", "phase", "base_incarnation", "ranks", "finished", "recorded_steps", "restore_point")
    assert all(getattr(kept, name) == getattr(full, name) for name in same)
    assert [(one.member, one.incarnation) for one in kept.replaced] == [
        (one.member, one.incarnation) for one in full.replaced
    ]
    assert [one for one in kept.ledger if one.charged] == [one for one in full.ledger if one.charged]
    assert kept.awaited_all is not None, "every pod that is not named any more is waited for as one"


def test_a_status_that_is_small_enough_gives_up_nothing() -> None:
    small = changed(world(2).job.status, message="small")
    assert conditions.with_size_limited(small) is small


def test_a_step_that_was_rejected_is_not_tried_again_while_it_is_the_newest() -> None:
    steps = [*range(150, 0, -1), *range(300, 150, -1)]  # Each restart rejects the newest first.
    rejected = tuple(RejectedStep(tier="shared", step=step, marker="m") for step in steps)
    kept = restore.highest_steps(rejected, restore.MAX_REJECTED)
    assert sorted(one.step for one in kept) == list(range(301 - restore.MAX_REJECTED, 301))
    long = tuple(changed(one, marker="m" * 8000) for one in kept)
    fit = conditions.with_size_limited(changed(fullest("n" * 63, "/p"), rejected_steps=long)).rejected_steps
    assert {one.step for one in fit} == set(range(293, 301))


def test_rejected_steps_are_given_up_after_nodes_to_avoid() -> None:
    full = fullest("n" * 250, "/p")
    full = changed(full, incidents=(), ledger=(), ranks=(), finished=None, awaited=(), conditions=())
    full = changed(full, rejected_steps=full.rejected_steps * 5)
    assert conditions.size(full) > LARGEST
    kept = conditions.with_size_limited(full)
    assert kept.rejected_steps == full.rejected_steps
    assert sum(bool(one.avoid) for one in kept.replaced) == conditions.REMEMBERED


def test_a_gang_of_ten_thousand_costs_as_little_as_a_small_one_before_the_cluster_takes_its_pods() -> None:
    made = World()
    made.submit("roles: [{name: worker, replicas: 10000}]")
    made.refused = None
    for at in range(3):
        made_now = decide(made.now, made.job, made.observed())
        assert len(made_now.actions) <= pods.MAX_CREATED
        if at == 0:
            assert made_now.status is not None
            made.job = made.job.model_copy(update={"status": made_now.status})
    names = [one.member for one in made_now.actions if isinstance(one, CreatePod)]
    created = tuple(Pod(f"g-{name}-0", f"uid-{name}", name, 0) for name in names)
    following = decide(made.now, made.job, replace(made.observed(), pods=created)).actions
    assert next(one.member for one in following if isinstance(one, CreatePod)) == f"worker-{pods.MAX_CREATED}"


def test_the_layouts_that_are_remembered_are_bounded_by_their_members() -> None:
    for at in range(30):
        made = World()
        made.submit(f"roles: [{{name: r{at}, replicas: 10000}}]")
        roles.layout(made.job.spec.roles)
    gc.collect()
    known = sum(isinstance(one, roles.Member) for one in gc.get_objects())
    assert 10_000 < known < 300_000
    assert roles.layout(made.job.spec.roles) is roles.layout(made.job.spec.roles)
