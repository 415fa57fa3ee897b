"""Who holds the others up: what the stacks of all members tell, and what they don't."""

from __future__ import annotations

from gangctl.core.facts.gang import Gang
from gangctl.core.facts.progress import held_up
from gangsidecar.wire import Stacks
from tests.core.test_stacks import play
from tests.core.world import World

IN = "all_reduce (/lib/python3/torch/distributed/distributed_c10d.py:9)"
AT = "recv (/net.py:1)"
OTHER = "load (/train.py:7)"
UNKNOWN = "unknown"


def stacks(*frames: str, stopped: bool = False) -> str:
    """A process for each frame, beside a shell that runs no Python."""
    doing = "stopped by a signal in do_signal_stop" if stopped else "sleeping"
    text = "process 7 (sh)\n  thread 7 (sh): sleeping in do_wait\n"
    for pid, frame in enumerate(frames, 8):
        known = f"  Python:\n    {frame}\n    main (/train.py:1)\n"
        python = "  Python: unknown; no thread of it can take a signal\n" if frame == UNKNOWN else known
        text += f"process {pid} (python)\n{python}  thread {pid} (python): {doing}\n"
    return text


def named(*texts: str, roles: str = "") -> str:
    """The member that is named; empty if none is."""
    world, roles = World(), roles or f"[{{name: worker, replicas: {len(texts)}}}]"
    world.submit(f"{{roles: {roles}, progress: {{timeoutSeconds: 100, onHang: Restart}}}}")
    play(world, "the gang runs", "100 s pass", "decide")
    for member, text in zip(Gang(world.now, world.job, world.observed()).members, texts, strict=True):
        world.again(member, stacks=Stacks(1, text))
    found = held_up(Gang(world.now, world.job, world.observed()), 1)
    assert found is not None
    assert found.text
    return found.member


def test_the_member_that_is_not_in_the_collective_is_named() -> None:
    assert named(stacks(IN), stacks(OTHER)) == "worker-1"
    assert named(stacks(OTHER), stacks(IN), stacks(IN)) == "worker-0"


def test_of_members_with_several_ranks_the_one_with_fewer_in_the_collective_is_named() -> None:
    assert named(stacks(IN, IN), stacks(OTHER, IN), stacks(IN, IN)) == "worker-1"


def test_the_agent_of_a_launcher_is_in_no_collective() -> None:
    agent = "wait (/lib/python3/torch/distributed/elastic/agent.py:1)"
    assert named(stacks(agent, IN), stacks(agent, OTHER)) == "worker-1"


def test_a_process_that_was_stopped_is_named_whatever_else_is_known() -> None:
    assert named(stacks(IN), stacks(UNKNOWN, stopped=True), stacks(UNKNOWN)) == "worker-1"
    assert named(stacks(IN), stacks(OTHER, stopped=True), stacks(OTHER, stopped=True)) == ""


def test_where_no_collective_is_known_the_one_that_is_elsewhere_is_named() -> None:
    assert named(stacks(AT), stacks(AT), stacks(OTHER)) == "worker-2"
    assert named(stacks(AT), stacks(OTHER)) == ""
    assert named(stacks(AT), stacks(AT), stacks(OTHER), stacks("save (/train.py:8)")) == ""


def test_who_is_not_known_is_not_named_nor_is_another() -> None:
    assert named(stacks(IN), stacks(IN), stacks(UNKNOWN)) == ""
    assert named(stacks(IN), stacks(OTHER), stacks(UNKNOWN)) == ""
    assert named(stacks(IN), stacks(IN), "") == ""
    assert named(stacks(IN, IN), stacks(IN) + "and 3 more processes\n") == ""


def test_lines_are_compared_as_far_as_they_are_known_of_all() -> None:
    cut = stacks(IN).replace("    main (/train.py:1)", "    ...")
    assert named(stacks(IN), cut, stacks(IN)) == ""
    assert named(stacks(IN), cut, stacks(OTHER)) == "worker-2"


def test_a_member_of_which_too_few_frames_are_known_is_not_named_nor_is_another() -> None:
    cut = stacks(OTHER).replace("    main (/train.py:1)", "    ...")
    assert named(stacks(IN), cut, stacks(IN)) == ""
    assert named(stacks(AT), stacks(AT), cut) == ""
    deep = cut.replace(f"    {OTHER}\n", f"    {OTHER}\n" * 12)
    assert named(stacks(IN), deep, stacks(IN)) == "worker-1"


def test_two_that_are_not_in_the_collective_are_told_and_none_is_named() -> None:
    assert named(stacks(IN), stacks(OTHER), stacks(AT)) == ""


def test_all_in_the_same_call_tell_nothing() -> None:
    assert named(stacks(IN), stacks(IN), stacks(IN)) == ""


def test_nothing_is_said_while_a_member_has_not_reported_its_stacks() -> None:
    world = World()
    world.submit("{progress: {timeoutSeconds: 100, onHang: Restart}}")
    play(world, "the gang runs", "100 s pass", "decide")
    world.again("worker-0", stacks=Stacks(1, stacks(IN)))
    assert held_up(Gang(world.now, world.job, world.observed()), 1) is None


def test_members_of_different_process_groups_are_not_compared() -> None:
    roles = "[{name: worker, replicas: 2}, {name: evaluator, replicas: 1}]"
    assert named(stacks(IN), stacks(IN), stacks(OTHER), roles=roles) == ""
    assert named(stacks(IN), stacks(AT), stacks(AT), roles=roles) == "worker-1"
    assert named(stacks(IN), stacks(OTHER), roles="[{name: worker, replicas: 1}, {name: evaluator, replicas: 1}]") == ""
    both = "[{name: worker, replicas: 2}, {name: actor, replicas: 2}]"
    assert named(stacks(IN), stacks(OTHER), stacks(OTHER), stacks(OTHER), roles=both) == "worker-1"
    assert named(stacks(IN), stacks(OTHER), stacks(OTHER), stacks(IN), roles=both) == ""
