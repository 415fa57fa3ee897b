"""Stacks in the status: whose they are, how large they may be, and what gives way first."""

from __future__ import annotations

import pytest

from gangctl.api.incident import Stacks
from gangctl.api.model import changed
from gangctl.core.record import conditions
from gangctl.core.record.incidents import innermost
from gangsidecar import wire
from tests.core.scenario import sentence
from tests.core.test_bounds import fullest
from tests.core.world import World

SHELL_AND_PYTHON = """\
process 7 (sh)
  thread 7 (sh): sleeping
      do_wait+0x1
process 8 (python)
  Python:
    f (a.py:2)
    g (a.py:9)
  thread 8 (python): sleeping
"""


def hung() -> World:
    """Attempt 1 hangs, and attempt 2 gathers."""
    world = World()
    world.submit(
        "{progress: {timeoutSeconds: 100, onHang: Restart}, recovery: {budget: {type: Unlimited}, replaceAfter: 100}}"
    )
    play(world, "the gang runs")
    hang_again(world)
    return world


def hang_again(world: World) -> None:
    play(world, "everyone runs", "worker-0 reports step 8", "worker-1 reports step 7", "100 s pass", "decide")


def play(world: World, *lines: str) -> None:
    for line in lines:
        sentence(world, line)


def test_stacks_of_another_attempt_are_of_another_incident() -> None:
    world = hung()
    world.again("worker-1", stacks=wire.Stacks(2, "process 7 (python)\n"))
    play(world, "everyone is Ready", "decide")
    assert world.job.status.incidents[0].outcome == "Restarted"
    assert world.job.status.incidents[0].stacks is None


def test_what_a_supervisor_says_is_escaped_and_bounded() -> None:
    world = hung()
    world.again("worker-1", stacks=wire.Stacks(1, "process 7 (\x1b[2J\u202e)\n" + "x\x00" * 4_000))
    play(world, "everyone is Ready", "decide")
    stacks = world.job.status.incidents[0].stacks
    assert stacks is not None
    assert stacks.text.startswith("process 7 (\\x1b[2J\\u202e)\nx\\x00x\\x00")
    assert len(stacks.text) == wire.MAX_STRING


def test_stacks_that_are_heard_after_the_restart_change_nothing_more() -> None:
    world = hung()
    play(world, "everyone is Ready", "worker-1 was found in first (a.py:1)", "decide")
    stored = world.job.status.incidents[0].stacks
    play(world, "worker-1 was found in second (a.py:2)", "worker-0 ends with 1", "decide")
    assert world.job.status.incidents[1].stacks == stored
    assert world.job.status.incidents[0].stacks is None


def test_the_newest_two_that_were_taken_are_kept() -> None:
    world = hung()
    play(world, "everyone is Ready", "worker-1 was found in first (a.py:1)", "decide")
    for where in ("second", "third"):
        hang_again(world)
        play(world, "everyone is Ready", f"worker-1 was found in {where} (a.py:1)", "decide")
    found = [one.stacks for one in world.job.status.incidents]
    assert ["" if one is None else innermost(one) for one in found] == ["third (a.py:1)", "second (a.py:1)", ""]


def test_stacks_are_given_up_before_anything_else_and_the_newest_last() -> None:
    full = changed(fullest("n", "/p"), ledger=(), replaced=(), awaited=(), ranks=(), rejected_steps=(), conditions=())
    newest, *earlier = full.incidents
    larger = changed(newest, stacks=Stacks(member="worker-0", text="s" * 8_000))
    kept = conditions.with_size_limited(changed(full, incidents=(larger, *earlier)))
    assert kept.incidents == (larger, *(changed(one, stacks=None) for one in earlier))
    rest = conditions.LARGEST - conditions.size(kept)
    padded = changed(full, incidents=(larger, *earlier), message="m" * (rest + 2_000))
    plain = tuple(changed(one, stacks=None) for one in full.incidents)
    assert conditions.with_size_limited(padded).incidents == plain


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("process 7 (sh)\n  thread 7 (sh): sleeping in do_wait\n", "thread 7 (sh): sleeping in do_wait"),
        (SHELL_AND_PYTHON, "f (a.py:2)"),
        (SHELL_AND_PYTHON.replace("do_wait+0x1", "..."), "f (a.py:2)"),
        ("whatever", ""),
    ],
)
def test_the_innermost_line_is_of_the_first_process_that_runs_python(text: str, line: str) -> None:
    assert innermost(Stacks(member="worker-0", text=text)) == line
