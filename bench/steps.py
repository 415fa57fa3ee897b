"""First steps of training, measured alike wherever the gang runs: one worker, one clock, one row of a table.

A restart counts from just before the fault to the moment when the last rank has made its first step, as it wrote.
"""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

WORKER = Path(__file__).with_name("worker.py")
DEADLINE_SECONDS = 300.0
"""For one restart, or for the templates."""
LOOK_SECONDS = 0.01
READY = "the template is ready"
"""What a supervisor logs of its template."""


@dataclass(frozen=True)
class Steps:
    """What the workers of a gang write into a folder that all of them see."""

    folder: Path
    ranks: int
    script: Path = WORKER

    def command(self, python: str, seen_as: str, modules: Sequence[str], options: Sequence[str] = ()) -> list[str]:
        """The worker's command; the script is put into the folder. ``seen_as``: the folder's path for workers."""
        shutil.copy(self.script, self.folder)
        return [python, f"{seen_as}/{self.script.name}", *options, seen_as, *modules]

    def wait(self, attempt: int, why: Callable[[], str]) -> dict[str, float]:
        """Wait for the last rank's first step in an attempt; its moments. ``why``: what to say if it doesn't come.

        If another fault ends this attempt before, the next one counts.

        Raises:
            TimeoutError: it has not.
        """

        def done() -> int | None:
            return next((one for one in (attempt, attempt + 1) if self._has(one)), None)

        wait_until(done, why)
        return self.moments(done() or attempt)

    def newest(self) -> int:
        """The newest attempt in which a rank has made a step."""
        return max(int(path.name.partition("-")[0]) for path in self.folder.glob("[0-9]*-[0-9]*"))

    def _has(self, attempt: int) -> bool:
        return all((self.folder / f"{attempt}-{rank}").exists() for rank in range(self.ranks))

    def moments(self, attempt: int) -> dict[str, float]:
        """When the last rank began with the script, had imported, and had made its first step."""
        found = [json.loads((self.folder / f"{attempt}-{rank}").read_text()) for rank in range(self.ranks)]
        return {name: max(one[name] for one in found) for name in found[0]}


def wait_until(holds: Callable[[], object], why: Callable[[], str], every: float = LOOK_SECONDS) -> None:
    """Wait for a condition, without taking much of the processors from what is measured.

    Raises:
        TimeoutError: it does not hold; ``why`` says the rest.
    """
    end = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(why())
        time.sleep(every)


def template_bytes(log: str) -> int | None:
    """The size of the newest template that a supervisor's log says is ready; None if there is none."""
    _, found, rest = log.rpartition(READY)
    return int(rest.partition("mebibytes=")[2].split()[0]) << 20 if found else None


@dataclass(frozen=True)
class Taken:
    """How long restarts took, in seconds, in their order."""

    seconds: Sequence[float]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.seconds)

    @property
    def flat(self) -> float:
        """The median of the later half divided by that of the earlier half."""
        half = len(self.seconds) // 2
        return statistics.median(self.seconds[half:]) / statistics.median(self.seconds[:half] or self.seconds)

    def __str__(self) -> str:
        return f"{self.median:8.2f} {min(self.seconds):7.2f} {max(self.seconds):7.2f} {self.flat:6.2f}"


TAKEN = f"{'median':>8} {'min':>7} {'max':>7} {'flat':>6}"
"""The heading of :class:`Taken`."""
