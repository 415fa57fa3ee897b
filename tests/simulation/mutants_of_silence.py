"""Mutants of silence and the brake: mistakes that take what is not heard for what is dead."""

from __future__ import annotations

from tests.simulation.mutant import one

ADAPTIVE = "gangctl/core/facts/adaptive.py"
BRAKE = "gangctl/core/policy/brake.py"
DEADLINES = "gangctl/core/policy/deadlines.py"
FAULTS = "gangctl/core/facts/faults.py"
HANGS = "gangctl/core/facts/hangs.py"
LADDER = "gangctl/core/policy/ladder.py"
SILENCE = "gangctl/core/facts/silence.py"

MUTANTS = (
    one(
        "the replacement timeout runs without a leader",
        DEADLINES,
        "    began = max(min(since), gang.observed.listening_since, accepted, queue.known_since)\n",
        "    began = max(min(since), accepted, queue.known_since)\n",
    ),
    one(
        "a session that this leader has never heard counts as one that did not start",
        FAULTS,
        "    if heard is None and (pod.ended_at",
        "    if heard is None and pod.ended_at and (pod.ended_at",
    ),
    one(
        "an end of a container that an older leader may have seen counts",
        FAULTS,
        "    if heard is None and (pod.ended_at is None or pod.ended_at <= began):\n",
        "    if heard is None and (pod.ended_at is None or pod.ended_at <= gang.status.phase_time):\n",
    ),
    one(
        "a session that is heard late has no time to start",
        FAULTS,
        "pod.ended_at or 0.0 if heard is None else heard.since",
        "pod.ended_at or 0.0",
    ),
    one(
        "a node is lost as soon as it is shown so",
        SILENCE,
        "max(node, silent) + NODE_GRACE_SECONDS\n",
        "max(node, silent)\n",
    ),
    one(
        "a new leader counts as silent whose sidecars had no time to connect",
        SILENCE,
        "    return max(pod.started_at or pod.created_at, gang.observed.listening_since)\n",
        "    return pod.started_at or pod.created_at\n",
    ),
    one(
        "silent members hang",
        HANGS,
        "    return max(everyone, default=None) if len(everyone) == len(_at_work(gang)) else None\n",
        "    return max(everyone, default=0.0)\n",
    ),
    one(
        "a member that has finished knows whether the others hang",
        HANGS,
        "    done = need_no_pod(gang)\n",
        "    done = frozenset[str]()\n",
    ),
    one(
        "a rank that reports seldom is behind",
        HANGS,
        "reached.step > said.step + said.every",
        "reached.step > said.step + 1",
    ),
    one(
        "a rank whose report is on its way is behind",
        HANGS,
        "max(at, reached.time + SETTLED_SECONDS)",
        "max(at, reached.time)",
    ),
    one(
        "an attempt that repeats steps is judged by those before",
        ADAPTIVE,
        "    if most is None or found.attempt != job.status.attempt or repeats:\n",
        "    if most is None or found.attempt != job.status.attempt:\n",
    ),
    one(
        "a deadline follows the first step",
        ADAPTIVE,
        "default=0) >= ENOUGH",
        "default=0) >= 1",
    ),
    one(
        "a time between two steps that is not yet stored does not count",
        ADAPTIVE,
        "one.longest for one in found",
        "0.0 for one in found",
    ),
    one(
        "a new controller forgets how long a step may take",
        ADAPTIVE,
        "max(old.longest_milliseconds, math.ceil(longest * 1000))",
        "math.ceil(longest * 1000)",
    ),
    one(
        "only a gang of which no rank makes progress hangs",
        HANGS,
        "    times = [_all_hang_at(gang), None if behind is None else behind[0], None if left is None else left[0]]\n",
        "    times = [_all_hang_at(gang)]\n",
    ),
    one(
        "pods are replaced for their silence though no pod of the gang is heard",
        SILENCE,
        "    return None if gang.hearing_since is None else max(began, gang.hearing_since)\n",
        "    return began\n",
    ),
    one(
        "a node is lost under the brake",
        SILENCE,
        "    if node is None or gang.observed.brake.since is not None:\n",
        "    if node is None:\n",
    ),
    one(
        "deadlines run under the brake",
        BRAKE,
        "    listening = now if brake.since is not None else max(observed.listening_since, brake.released)\n",
        "    listening = max(observed.listening_since, brake.released)\n",
    ),
    one(
        "a deadline that passed under the brake counts after it",
        BRAKE,
        "else max(observed.listening_since, brake.released)\n",
        "else observed.listening_since\n",
    ),
    one(
        "the brake goes off at once",
        BRAKE,
        "    if now >= calm_since + CALM_SECONDS:\n",
        "    if now >= calm_since:\n",
    ),
    one(
        "what many gangs fail for costs their pods",
        LADDER,
        "    if cause.reason in gang.observed.brake.waves:\n        return highest(*asked)\n",
        "",
    ),
    one(
        "a gang that can never connect puts the brake on",
        BRAKE,
        "    if gang.status.phase is GangPhase.PENDING and gang.hearing_since is None:\n        return Census()\n",
        "",
    ),
    one(
        "a rank that has ended is left behind by the others of its pod",
        "gangctl/core/facts/furthest.py",
        "    return None if ended else last\n",
        "    return last\n",
    ),
    one(
        "a rank that reports seldom is left behind by the others of its pod",
        "gangctl/core/facts/furthest.py",
        "    return last if progress.step > last.step + progress.every else None\n",
        "    return last\n",
    ),
)
