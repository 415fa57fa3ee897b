"""What a restart restored wrongly once, told as short stories: mixed, dropped, forgotten and superseded checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gangctl.api.recovery import RestartFrom
from gangctl.api.status import GangPhase
from gangsidecar.supervisor.machine import Input
from gangsidecar.wire import Progress
from tests.simulation import training
from tests.simulation.disk_faults import DISK_FAULTS
from tests.simulation.faults import FAULTS
from tests.simulation.lives import Run, settle
from tests.simulation.moves import Kind, Move, advance
from tests.simulation.test_regressions import cut_off, go_on, is_in, is_run_for, kill, running
from tests.simulation.universe import Universe


def step(u: Universe, *uids: str) -> None:
    """These members make a step each, and save it."""
    for uid in uids:
        training.train(u, uid, next(proc for proc in u.boxes[uid].procs if proc.local_rank == 0))


def restored(u: Universe) -> int:
    """The step that the attempt which runs was started from."""
    assert u.status.phase is GangPhase.RUNNING
    return 0 if u.status.restore_point is None else u.status.restore_point.step


def test_parts_of_two_attempts_make_no_checkpoint() -> None:
    u = running("registered")
    step(u, "worker-0.0", "worker-1.0", "worker-2.0")
    step(u, "worker-1.0")  # Its part of step 2 is there alone, and goes on being heard of when the pod is gone.
    go_on(u)
    u.delete_pod("worker-1.0")
    settle(Run(u))
    assert restored(u) == 1
    step(u, "worker-0.0", "worker-2.0")
    go_on(u)
    kill(u, "worker-0.0")
    settle(Run(u))
    assert restored(u) == 1


def test_parts_of_two_attempts_make_no_checkpoint_when_no_pod_was_lost() -> None:
    u = running("registered")
    step(u, "worker-0.0", "worker-1.0", "worker-2.0")
    step(u, "worker-1.0")
    kill(u, "worker-0.0")
    settle(Run(u))
    assert restored(u) == 1
    step(u, "worker-0.0", "worker-2.0")
    kill(u, "worker-0.0")
    settle(Run(u))
    assert restored(u) == 1


def test_what_a_restart_has_undone_does_not_exist_in_a_pod_that_never_heard_of_the_restart() -> None:
    u = running("registered")
    step(u, "worker-0.0", "worker-1.0", "worker-2.0")
    step(u, "worker-1.0")
    kill(u, "worker-0.0")
    go_on(u, but=is_run_for("worker-1.0"))
    assert restored(u) == 1
    step(u, "worker-0.0", "worker-2.0")
    cut_off(u, "worker-1.0")
    kill(u, "worker-2.0")
    go_on(u)
    assert is_in(u, GangPhase.GATHERING, 3)
    FAULTS["a member is reached again"](u, 0)
    settle(Run(u))
    assert restored(u) == 1


def restored_after(fault: str) -> int:
    """What is restored by a gang whose second step has this fault."""
    u = running("registered")
    for _ in range(2):
        step(u, "worker-0.0", "worker-1.0", "worker-2.0")
    go_on(u)
    advance(u, u.now + 60_000)
    go_on(u)
    DISK_FAULTS[fault](u, 1)
    go_on(u)
    kill(u, "worker-0.0")
    settle(Run(u))
    return restored(u)


@contextmanager
def silent() -> Iterator[Universe]:
    """A gang that has saved three steps and reports none."""
    feed = Universe.feed

    def heard(u: Universe, uid: str, event: Input) -> None:
        if not isinstance(event, Progress):
            feed(u, uid, event)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Universe, "feed", heard)
        patch.setattr(training, "KEPT_STEPS", 3)
        u = running("pair")
        for _ in range(3):
            step(u, *u.boxes)
        yield u


def restored_next(u: Universe) -> int:
    """The step that is restored when a worker has failed."""
    kill(u, min(u.boxes))
    settle(Run(u))
    return restored(u)


def test_a_gang_that_reports_no_steps_goes_one_checkpoint_back_and_no_further() -> None:
    with silent() as u:
        assert [restored_next(u) for _ in range(9)] == [3, 3, 3, 2, 2, 2, 2, 2, 2]


def test_a_gang_that_reports_no_steps_and_saves_one_goes_on_from_it() -> None:
    with silent() as u:
        assert [restored_next(u) for _ in range(3)] == [3, 3, 3]
        step(u, *u.boxes)
        assert [restored_next(u) for _ in range(4)] == [4, 4, 4, 3]


def test_a_gang_that_reports_no_steps_and_saves_one_restarts_at_once() -> None:
    with silent() as u:
        waits = []
        for _ in range(3):
            step(u, *u.boxes)
            restored_next(u)
            waits.append(u.status.incidents[0].back_off_time)
        assert (waits, restored(u), u.status.restarts.without_step) == ([None] * 3, 6, 1)
        restored_next(u)
        assert u.status.incidents[0].back_off_time is not None, "it saved nothing more"


def test_a_gang_whose_memory_went_with_its_pods_begins_again_on_request() -> None:
    u = running("spare")
    step(u, "worker-0.0", "worker-1.0")
    kill(u, "worker-0.0")
    settle(Run(u))
    assert restored(u) == 1
    u.change_spec(suspend=True)
    go_on(u)
    assert is_in(u, GangPhase.SUSPENDED, 2)
    assert not u.pods
    u.change_spec(suspend=False)
    go_on(u)
    assert is_in(u, GangPhase.HELD, 3)
    assert "--from-beginning" in u.status.message
    u.change_spec(restart_token="again")
    go_on(u)
    assert is_in(u, GangPhase.HELD, 4)
    u.change_spec(restart_token="anew", restart_from=RestartFrom(type="Beginning", restart_token="anew"))
    go_on(u)
    assert is_in(u, GangPhase.RUNNING, 5)
    assert restored(u) == 0


def test_a_step_that_every_rank_has_dropped_is_not_restored() -> None:
    assert restored_after("a checkpoint is dropped") == 1


def test_a_step_that_one_rank_has_begun_again_is_not_restored() -> None:
    assert restored_after("a rank tears its checkpoint") == 1


def test_a_directory_that_is_not_mounted_does_not_mean_the_beginning() -> None:
    u = running("pair")
    for _ in range(3):
        step(u, "worker-0.0", "worker-1.0")
    go_on(u)
    DISK_FAULTS["the directory is not mounted"](u, 0)
    kill(u, "worker-0.0")
    go_on(u)
    assert is_in(u, GangPhase.GATHERING, 2)
    DISK_FAULTS["the directory is mounted again"](u, 0)
    settle(Run(u))
    assert restored(u) == 3


def test_another_member_is_asked_when_the_directory_is_not_mounted_in_one() -> None:
    u = running("pair")
    for _ in range(3):
        step(u, "worker-0.0", "worker-1.0")
    go_on(u)
    DISK_FAULTS["the directory is not mounted"](u, 1)
    kill(u, "worker-0.0")
    settle(Run(u))
    assert restored(u) == 3


def test_a_step_is_not_rejected_while_its_directory_is_not_mounted() -> None:
    u = running("pair")
    for _ in range(3):
        step(u, "worker-0.0", "worker-1.0")
    go_on(u)
    kill(u, "worker-0.0")
    go_on(u, but=lambda _u, move: move.kind is Kind.INNER)
    assert is_in(u, GangPhase.RUNNING, 2)
    DISK_FAULTS["the directory is not mounted"](u, 0)
    go_on(u)
    assert is_in(u, GangPhase.GATHERING, 3)
    DISK_FAULTS["the directory is mounted again"](u, 0)
    settle(Run(u))
    assert restored(u) == 3
    assert not u.status.rejected_steps


def test_the_first_checkpoint_of_one_rank_alone_does_not_hold_the_gang() -> None:
    u = running("spare")
    step(u, "worker-0.0")
    kill(u, "worker-1.0")
    go_on(u)
    assert is_in(u, GangPhase.RUNNING, 2)
    assert restored(u) == 0


def test_a_misspelt_tier_does_not_hold_the_gang() -> None:
    u = running("registered")
    DISK_FAULTS["a tier is misspelt"](u, 0)
    kill(u, "worker-0.0")
    go_on(u)
    assert is_in(u, GangPhase.RUNNING, 2)
    assert restored(u) == 0


def test_memory_that_a_reboot_has_emptied_is_not_restored() -> None:
    u = running("groups")
    for _ in range(2):
        step(u, "actor-0.0", "worker-0.0", "worker-1.0")
    go_on(u)
    DISK_FAULTS["a node reboots"](u, 1)
    settle(Run(u))
    assert restored(u) == 2
    assert u.status.restore_point is not None
    assert u.status.restore_point.tier == "store"


def test_a_step_needs_every_process_group() -> None:
    u = running("groups")
    step(u, "worker-0.0", "worker-1.0", "actor-0.0")
    step(u, "worker-0.0", "worker-1.0")
    go_on(u)
    u.delete_pod("worker-1.0")
    go_on(u, but=lambda _u, move: move.kind is Kind.SIGTERM)
    settle(Run(u))
    assert restored(u) == 1


def test_a_token_that_comes_back_starts_from_the_beginning_no_second_time() -> None:
    u = running("registered")
    step(u, "worker-0.0", "worker-1.0", "worker-2.0")
    u.change_spec(restart_token="zero", restart_from=RestartFrom(type="Beginning", restart_token="zero"))
    settle(Run(u))
    assert restored(u) == 0
    step(u, "worker-0.0", "worker-1.0", "worker-2.0")
    for token in ("again", "zero"):
        u.change_spec(restart_token=token)
        settle(Run(u))
        assert restored(u) == 1


def stays(_u: Universe, move: Move) -> bool:
    """The object of a pod that was replaced and has ended is still there."""
    return move.who == "worker-1.0" and move.kind is Kind.REMOVE


def test_what_a_replaced_pod_has_saved_does_not_stand_for_what_its_successor_begins_again() -> None:
    u = running("registered")
    for _ in range(2):
        step(u, "worker-0.0", "worker-1.0", "worker-2.0")
    go_on(u)
    u.delete_pod("worker-1.0")
    go_on(u, but=stays)
    assert is_in(u, GangPhase.RUNNING, 2)
    assert restored(u) == 2
    DISK_FAULTS["a rank tears its checkpoint"](u, 5)
    assert [box.pod for box in u.boxes.values() if box.machine and box.machine.history.dropped] == ["worker-1.1"]
    kill(u, "worker-0.0")
    go_on(u, but=stays)
    advance(u, u.now + 5_000)
    go_on(u, but=stays)
    assert is_in(u, GangPhase.RUNNING, 3)
    assert restored(u) == 1


def test_a_gang_whose_steps_were_all_lost_does_not_begin_again_by_itself() -> None:
    u = running("registered")
    step(u, "worker-0.0", "worker-1.0", "worker-2.0")
    go_on(u)
    advance(u, u.now + 60_000)
    go_on(u)
    DISK_FAULTS["a checkpoint is dropped"](u, 1)
    kill(u, "worker-0.0")
    go_on(u)
    assert is_in(u, GangPhase.HELD, 2)
