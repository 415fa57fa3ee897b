"""A fault before the first checkpoint costs the steps alone, and never a checkpoint that may be there."""

from __future__ import annotations

from gangctl.api.status import GangPhase
from gangctl.core.policy.restore import RETRAINED_SECONDS
from tests.core.scenario import sentence
from tests.core.world import World

JOB = """
roles: [{name: worker, replicas: 2}]
recovery: {stopGracePeriodSeconds: 0, evidenceWindowSeconds: 0}
checkpoint: {tiers: [{name: shared, scope: Shared, source: {type: Directory, directory: /c, layout: TorchDCP}}]}
"""
LOOKS = 4


def _told(world: World, *lines: str) -> None:
    for line in lines:
        sentence(world, line)


def _fails(found: str = "nothing", trained: float = 60.0, silent: float = 0.0, asked: str = "") -> World:
    """The world after a fault, as its checkpoints are looked for.

    Args:
        found: what the scan before the attempt that fails has found.
        trained: seconds from its first to its last step.
        silent: seconds from there to the fault.
        asked: the last sentence.
    """
    world = World()
    world.submit(JOB)
    _told(world, "decide", "every pod starts", "everyone is Ready", f"a scan finds {found}", "decide")
    _told(world, "everyone runs", "worker-0 reports step 101", "decide", f"{trained:g} s pass")
    _told(world, "worker-0 reports step 200", "decide", f"{silent:g} s pass", "worker-1 ends with 9", "decide")
    _told(world, "everyone is Ready", *filter(None, [asked]), "decide", "3 s pass", "a scan finds nothing", "decide")
    return world


def _looks(world: World, seconds: float = LOOKS) -> GangPhase:
    _told(world, f"{seconds:g} s pass", "a scan finds nothing", "decide")
    return world.job.status.phase


def test_a_gang_that_has_trained_little_starts_anew() -> None:
    world = _fails()
    assert _looks(world) is GangPhase.RUNNING
    assert world.job.status.restore_point is None
    assert "since no checkpoint was found of the 200 steps that it had made" in world.job.status.message


def test_more_than_one_member_looks_first() -> None:
    assert _fails().job.status.phase is GangPhase.GATHERING


def test_a_gang_that_had_a_checkpoint_waits_for_it() -> None:
    assert _looks(_fails(found="shared 100")) is GangPhase.GATHERING


def test_a_gang_that_may_have_trained_for_long_without_a_word_waits() -> None:
    assert _looks(_fails(trained=1.0, silent=RETRAINED_SECONDS)) is GangPhase.GATHERING


def test_a_gang_that_has_trained_for_half_an_hour_waits() -> None:
    assert _looks(_fails(trained=RETRAINED_SECONDS + 1)) is GangPhase.GATHERING


def test_a_step_that_a_user_asks_for_is_waited_for() -> None:
    world = _fails(asked="restartToken becomes again, from step 100")
    assert _looks(world) is GangPhase.GATHERING


def survived() -> World:
    """A gang without a checkpoint, of which one of two processes has survived a fault and offers step 5."""
    world = World()
    world.submit(JOB.replace("{tiers: [", "{tiers: [{name: live, scope: Process, source: {type: API}}, "))
    _told(world, "decide", "every pod starts", "everyone is Ready", "a scan finds nothing", "decide", "everyone runs")
    _told(world, "worker-0 reports step 5", "worker-1 ends with 9", "decide")
    _told(world, "worker-0 completes checkpoint 5 of tier live", "worker-0 is Ready", "decide")
    return world


def test_a_gang_that_has_gone_on_from_what_its_processes_had_starts_anew_without_them() -> None:
    made = survived()
    _told(made, "everyone is Ready", "a scan finds nothing", "decide")
    assert made.job.status.restore_point is not None
    _told(made, "everyone runs", "worker-0 reports step 9", "worker-0 ends with 9", "worker-1 ends with 9", "decide")
    _told(made, "everyone is Ready", "decide", "3 s pass", "a scan finds nothing", "decide")
    assert _looks(made) is GangPhase.RUNNING
    assert made.job.status.restore_point is None


def test_a_gang_whose_survivors_die_before_they_go_on_starts_anew() -> None:
    made = survived()
    _told(made, "the container of worker-0 starts again", "decide", "everyone is Ready")
    _told(made, "a scan finds nothing", "decide", "3 s pass", "a scan finds nothing", "decide")
    assert _looks(made) is GangPhase.RUNNING
    assert made.job.status.restore_point is None
