"""What a member says of its worker beside its steps: one function a sentence of a scenario file."""

from __future__ import annotations

from dataclasses import replace

from gangctl.core.facts.printed import OutputRead, ReadOutput, last_lines
from gangsidecar.wire import LogMatch, Milestone, Progress, RankBehind, Reached, Stacks, WarmStart
from tests.core.given import run
from tests.core.world import World


def loaded(world: World, member: str, milliseconds: str) -> None:
    """A rank of it says how long it took to load the restore point, a moment ago."""
    reached(world, member, Milestone.CHECKPOINT_LOAD, milliseconds)


def reached(world: World, member: str, milestone: str, milliseconds: str | None) -> None:
    """A rank of it has just reached a milestone, for which it may have been measured how long it took."""
    world.again(member)  # Its other milestones are older by now.
    report = world.heard[world.newest(member)].report
    took = None if milliseconds is None else int(milliseconds)
    world.again(member, reached=(*report.reached, Reached(report.attempt, Milestone(milestone), 0, took)))


def phase(world: World, member: str, name: str) -> None:
    """It reported that it does something else now."""
    report = world.heard[world.newest(member)].report
    step = 0 if report.progress is None else report.progress.step
    world.again(member, progress=Progress(report.attempt, step, 0, phase=name))


def rank_at(world: World, rank: str, pid: str, member: str, step: str, ago: str) -> None:
    """A rank of it is furthest behind its others, and has made this step so many seconds ago."""
    report = world.heard[world.newest(member)].report
    assert report.progress is not None
    last = RankBehind(int(rank), int(step), 1000 * int(ago), pid=int(pid))
    world.again(member, progress=replace(report.progress, behind=last))


def own_time(world: World, member: str, milliseconds: str) -> None:
    """Its slowest rank, its first, has taken so long for its own part of a step, over a whole window."""
    report = world.heard[world.newest(member)].report
    step = 1 if report.progress is None else report.progress.step + 1
    told = Progress(report.attempt, step, 0, first_step=1, own_ms=int(milliseconds), own_rank=0)
    world.again(member, progress=told)


def not_imported(world: World, member: str, modules: str) -> None:
    """It has forked its worker from a template that lacks modules."""
    warm(world, member, "forked its worker")
    told = world.heard[world.newest(member)].report.warm_start
    assert told is not None
    world.again(member, warm_start=replace(told, not_imported=modules))


def late_fork(world: World, member: str, seconds: str) -> None:
    """Its supervisor waits for the first step of its fork."""
    told = world.heard[world.newest(member)].report.warm_start
    assert told is not None
    world.again(member, warm_start=replace(told, late_after_seconds=int(seconds)))


def took_stacks(world: World, member: str, where: str) -> None:
    """Its supervisor has taken the stacks of the worker that it stops."""
    text = f"process 7 (python)\n  Python:\n    {where}\n  thread 7 (python): sleeping\n"
    world.again(member, stacks=Stacks(world.job.status.attempt - 1, text))


def log_ends(world: World, member: str, line: str) -> None:
    """What was to be read of its log has been read."""
    incident, pod = world.job.status.incidents[0], world.pods[world.newest(member)]
    query = ReadOutput(pod.member, pod.incarnation, incident.attempt - 1, incident.cause.rank)
    world.output = OutputRead(query, last_lines(line.encode(), query.attempt, query.rank, overtaken=False))


def prints(world: World, member: str, line: str, pattern: str) -> None:
    """Its supervisor has found a line in the output of its worker."""
    report = world.heard[world.newest(member)].report
    world.again(member, log_matches=(*report.log_matches, LogMatch(report.attempt, pattern, line)))


def warm(world: World, member: str, how: str) -> None:
    """It runs, and says how its worker was started."""
    run(world, member)
    attempt = world.heard[world.newest(member)].report.attempt
    _, _, obstacle = how.partition(" because ")
    if how.startswith("gone on"):
        told = WarmStart(attempt, 0, 0, went_on=1)
    else:
        told = WarmStart(attempt, int(not obstacle), int(bool(obstacle)), obstacle, template_bytes=300 << 20)
    world.again(member, warm_start=told)
