"""What one decision costs, by the size of the gang and by what happens to it: each report with news triggers one.

    python bench/decide.py                         the table of the docs
    python bench/decide.py --members 10000

The gang is in memory, without a cluster. CPU time in milliseconds, on one core, the least of several decisions: other
programs on the machine only add to it. The last row is a yardstick for the machine at that moment.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from gangctl.api.gangjob import GangJob
from gangctl.api.model import changed
from gangctl.api.names import pod_name
from gangctl.api.status import GangPhase, Replaced
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Heard, Observed, Pod
from gangctl.core.lifecycle.decide import decide
from gangctl.core.policy.brake import Census, census
from gangsidecar.wire import Checkpoint, End, Phase, Progress, Report

NOW = 1_000_000.0
SIZES = (1000, 4000, 10_000)
ROUNDS = 9
REPLACED = 100
"""Number of members that were replaced before, as is common."""
FAULTS = 1000
"""Workers that end at once: a switch, a file server."""
_PROGRESS = [Progress(2, 250, 500, first_step=1, first_age_ms=500_000, own_ms=900 + ms, own_rank=0) for ms in range(50)]


def job(members: int, phase: GangPhase = GangPhase.RUNNING, attempt: int = 2, replaced: int = REPLACED) -> GangJob:
    """A gang with spares and a Member tier of checkpoints."""
    spares = members // 50
    template = {"spec": {"containers": [{"name": "worker", "command": ["train"]}]}}
    spec = {
        "roles": [{"name": "worker", "replicas": members - spares, "spares": spares, "template": template}],
        "checkpoint": {"tiers": [{"name": "ram", "scope": "Member", "source": {"type": "API"}}]},
        "progress": {"timeoutSeconds": 7200},
    }
    made = GangJob.model_validate(
        {"apiVersion": "gangctl.io/v1alpha1", "kind": "GangJob", "metadata": {"name": "g", "uid": "u"}, "spec": spec}
    )
    first = decide(NOW - 900, made, Observed()).status
    assert first is not None
    status = first.model_copy(
        update={"phase": phase, "phase_time": NOW - (30 if attempt == 1 else 600), "attempt": attempt}
    )
    status = changed(
        status,
        observed_time=NOW - 1,
        started_attempt=attempt if phase is GangPhase.RUNNING else attempt - 1,
        start_time=NOW - 900,
        replaced=tuple(
            Replaced(member=f"worker-{at}", incarnation=1, attempt=2, time=NOW - 700)
            for at in range(min(members, replaced))
        ),
    )
    return changed(made, status=status)


def observed(given: GangJob, phase: Phase, attempt: int) -> Observed:
    """All pods of the gang exist, and all supervisors have just reported."""
    gang = Gang(NOW, given, Observed())
    pods = tuple(
        Pod(
            pod_name("g", name, gang.incarnation(name)),
            f"pod-{at}",
            name,
            gang.incarnation(name),
            f"node-{at}",
            NOW - 900,
            NOW - 900,
            NOW - 890,
        )
        for at, name in enumerate(gang.members)
    )
    trained = phase is Phase.RUNNING or attempt > 1
    return Observed(
        pods=pods,
        heard=tuple(Heard(_report(at, pod, phase, attempt, trained=trained), NOW - 1) for at, pod in enumerate(pods)),
        listening_since=NOW - 3600,
    )


def _report(at: int, pod: Pod, phase: Phase, attempt: int, *, trained: bool) -> Report:
    return Report(
        gang="u",
        member=pod.member,
        incarnation=pod.incarnation,
        pod=pod.uid,
        session="s",
        seq=9,
        attempt=attempt,
        phase=phase,
        checkpoints=tuple(Checkpoint("ram", step, at, 2, f"/dev/shm/{step}") for step in (100, 200) if trained),
        progress=_PROGRESS[at % len(_PROGRESS)] if trained else None,
        address=f"10.{at // 62_500}.{at // 250 % 250}.{at % 250}",
        ports=(29400, 29401),
    )


def _ending(world: Observed, members: int, message: str = "") -> Observed:
    """The first of the members have ended with an exit code, all in one moment; each message names its rank."""
    broken = tuple(
        replace(
            heard,
            report=replace(heard.report, ends=(End(2, 0, 5, rank=at, exit_code=1, message=message.format(rank=at)),)),
        )
        for at, heard in enumerate(world.heard[:members])
    )
    return replace(world, heard=(*broken, *world.heard[members:]))


def _after(given: GangJob, world: Observed) -> GangJob:
    """The gang once the decision is stored."""
    status = decide(NOW, given, world).status
    assert status is not None
    return changed(given, status=status)


Case = tuple[GangJob, Observed]


def _no_pods(members: int) -> Case:
    return job(members, GangPhase.PENDING, 1, 0), Observed(listening_since=NOW - 3600)


def _half_ready(members: int) -> Case:
    given = job(members, GangPhase.PENDING, 1, 0)
    world = observed(given, Phase.READY, 1)
    return given, replace(world, heard=world.heard[: members // 2])


def _first_start(members: int) -> Case:
    given = job(members, GangPhase.PENDING, 1, 0)
    return given, observed(given, Phase.READY, 1)


def _running(members: int) -> Case:
    given = job(members)
    return given, observed(given, Phase.RUNNING, 2)


def _fault(members: int) -> Case:
    given, world = _running(members)
    return given, _ending(world, 1)


def _faults(members: int) -> Case:
    given, world = _running(members)
    return given, _ending(world, FAULTS)


def _telling(members: int) -> Case:
    given, world = _running(members)
    return given, _ending(
        world, FAULTS, "RuntimeError: rank {rank} reads no batch from https://data/train?token=t{rank}"
    )


def _silent(members: int) -> Case:
    given, world = _running(members)
    return given, replace(world, heard=tuple(replace(heard, connected=False) for heard in world.heard))


def _suspended(members: int) -> Case:
    given, world = _running(members)
    return changed(given, spec=changed(given.spec, suspend=True)), world


def _stopping(members: int) -> Case:
    given, world = _faults(members)
    return _after(given, world), world


def _last_one(members: int) -> Case:
    given, world = _fault(members)
    after = _after(given, world)
    ready = observed(given, Phase.READY, 3)
    return after, replace(ready, heard=(world.heard[0], *ready.heard[1:]))


def _start(members: int) -> Case:
    given, world = _fault(members)
    return _after(given, world), _ending(observed(given, Phase.READY, 3), 1)


def _recreated(members: int) -> Case:
    """Every pod is replaced, half of the new ones are there, and the old ones are being deleted."""
    given, world = _running(members)
    after = _after(given, replace(world, pods=world.pods[: members // 3], heard=world.heard[: members // 3]))
    base = after.status.base_incarnation
    new = tuple(
        replace(pod, uid=f"new-{pod.uid}", incarnation=base, name=f"g-{pod.member}-{base}", started_at=None)
        for pod in world.pods[: members // 2]
    )
    old = tuple(replace(pod, deleting=True) for pod in world.pods)
    return after, replace(world, pods=(*new, *old))


CASES: dict[str, Callable[[int], Case]] = {
    "Pending: no pod is there yet": _no_pods,
    "Pending: half of the members are ready for the first start": _half_ready,
    "Pending: the first start": _first_start,
    "Running": _running,
    "Running: one worker has failed": _fault,
    f"Running: {FAULTS} workers have failed at once": _faults,
    f"Running: {FAULTS} workers have failed at once, each with a message": _telling,
    "Running: every member is silent": _silent,
    "Running: the user suspends": _suspended,
    "Gathering: all still stop": _stopping,
    "Gathering: all but one are ready": _last_one,
    "Gathering: the start": _start,
    "Pending: every pod is being replaced": _recreated,
}


def milliseconds(what: Callable[..., object], *arguments: object) -> float:
    """The least of several times."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        what(*arguments)
        times.append(time.process_time() - began)
    return min(times) * 1000


def counted(now: float, given: GangJob, world: Observed) -> Census:
    """The count for the brake, which comes before each decision."""
    return census(Gang(now, given, world))


def table(sizes: Sequence[int]) -> None:
    """Measure and print a row for each case."""
    print(f"| members | {' | '.join(f'{size:,}' for size in sizes)} |\n| --- |{' ---: |' * len(sizes)}")
    rows = {
        **{name: (decide, case) for name, case in CASES.items()},
        "The count for the brake before each, at most": (counted, _silent),
    }
    for name, (what, case) in rows.items():
        row = []
        for size in sizes:
            given, world = case(size)
            gc.collect()
            row.append(f"{milliseconds(what, NOW, given, world):.1f}")
        print(f"| {name} | {' | '.join(row)} |", flush=True)
    yardstick = f"{milliseconds(_add):.1f}"
    print(f"| A million additions in a loop, for comparison | {' | '.join([yardstick] * len(sizes))} |")


def _add() -> int:
    total = 0
    for one in range(1_000_000):
        total += one
    return total


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, nargs="*", default=SIZES, help="sizes of the gang")
    table(parser.parse_args().members)


if __name__ == "__main__":
    main()
