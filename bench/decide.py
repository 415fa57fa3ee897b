"""What one decision costs, by the size of the gang: each report with news triggers one.

    python bench/decide.py                         the table of the docs
    python bench/decide.py --members 10000

The gang is in memory, without a cluster: all pods exist, and all supervisors have reported. *running* is the normal
decision without a fault, *gathering* waits for the last member, *start* finds it ready, *fault* finds an exit code.
Medians in milliseconds, on one core.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

from gangctl.api.gangjob import GangJob
from gangctl.api.roles_hash import roles_hash
from gangctl.api.status import GangPhase, Replaced, Status
from gangctl.core.facts.world import Heard, Observed, Pod
from gangctl.core.lifecycle.decide import decide
from gangsidecar.wire import Checkpoint, End, Phase, Progress, Report

NOW = 1_000_000.0
SIZES = (64, 1000, 4000)
ROUNDS = 7
REPLACED = 100
"""Number of members that were replaced before, as is common."""


def job(members: int) -> GangJob:
    """A gang with a Member tier of checkpoints, in its second attempt."""
    template = {"spec": {"containers": [{"name": "worker", "command": ["train"]}]}}
    spec = {
        "roles": [{"name": "worker", "replicas": members, "template": template}],
        "checkpoint": {"tiers": [{"name": "ram", "scope": "Member", "source": {"type": "API"}}]},
    }
    made = GangJob.model_validate(
        {"apiVersion": "gangctl.io/v1alpha1", "kind": "GangJob", "metadata": {"name": "g", "uid": "u"}, "spec": spec}
    )
    status = Status(
        phase=GangPhase.RUNNING,
        phase_time=NOW - 600,
        observed_time=NOW - 1,
        attempt=2,
        start_time=NOW - 900,
        roles_hash=roles_hash(made.spec.roles),
        replaced=tuple(
            Replaced(member=f"worker-{at}", incarnation=1, attempt=2, time=NOW - 700)
            for at in range(min(members, REPLACED))
        ),
    )
    return made.model_copy(update={"status": status})


def observed(members: int, phase: Phase, attempt: int) -> Observed:
    """All pods exist, and all supervisors have just reported."""
    numbers = [(at, int(at < REPLACED)) for at in range(members)]
    pods = tuple(
        Pod(f"g-worker-{at}-{n}", f"pod-{at}", f"worker-{at}", n, f"node-{at}", NOW - 900, NOW - 900, NOW - 890)
        for at, n in numbers
    )
    heard = tuple(
        Heard(
            Report(
                gang="u",
                member=f"worker-{at}",
                incarnation=n,
                pod=f"pod-{at}",
                session="s",
                seq=9,
                attempt=attempt,
                phase=phase,
                checkpoints=tuple(Checkpoint("ram", step, at, 2, f"/dev/shm/{step}") for step in (100, 200)),
                progress=Progress(2, 250, 500, first_step=1, first_age_ms=500_000),
                address=f"10.0.{at // 250}.{at % 250}",
                ports=(29400, 29401),
            ),
            NOW - 1,
        )
        for at, n in numbers
    )
    return Observed(pods=pods, heard=heard, listening_since=NOW - 3600)


def cases(members: int) -> Iterator[tuple[str, GangJob, Observed]]:
    """The decisions to measure."""
    runs = job(members)
    trains = observed(members, Phase.RUNNING, 2)
    yield "running", runs, trains
    broken = replace(trains.heard[-1].report, ends=(End(2, 0, 5, rank=members - 1, exit_code=1),))
    failing = replace(trains, heard=(*trains.heard[:-1], replace(trains.heard[-1], report=broken)))
    yield "fault", runs, failing
    status = decide(NOW, runs, failing).status
    assert status is not None
    gathers = runs.model_copy(update={"status": status})
    ready = observed(members, Phase.READY, 3)
    yield "gathering", gathers, replace(ready, heard=(*ready.heard[:-1], failing.heard[-1]))
    yield "start", gathers, ready


def milliseconds(given: GangJob, world: Observed) -> float:
    """The median of several decisions."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        decide(NOW, given, world)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, nargs="*", default=SIZES, help="sizes of the gang")
    print("| members | running | fault | gathering | start |\n| ---: | ---: | ---: | ---: | ---: |")
    for members in parser.parse_args().members:
        row = [f"{milliseconds(given, world):.1f}" for _, given, world in cases(members)]
        print(f"| {members} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
