"""The file that outlives a supervisor: how its processes ended, and which checkpoints they registered.

To lose it may cost an older restore point or one more attempt, but must never cause a wrong decision. So it is written
without fsync, outside the path of a restart, and a file that can't be read counts as absent. Its first line is the
clock (boot id, milliseconds of CLOCK_BOOTTIME), its second a whole report.
"""

from __future__ import annotations

import json
import os
from typing import Tuple

from gangsidecar import wire

Kept = Tuple[Tuple[wire.End, ...], Tuple[wire.Checkpoint, ...]]


def save(path: str, report: wire.Report, now_ms: int) -> None:
    """Replace the file in one step.

    Raises:
        OSError: it could not be written; the old one is still there.
    """
    temporary = f"{path}.tmp"
    try:
        with open(temporary, "w", encoding="ascii") as file:
            file.write(json.dumps({"boot": _boot(), "now_ms": now_ms}) + "\n" + wire.encode(report) + "\n")
        os.replace(temporary, path)
    except OSError:
        _remove(temporary)
        raise


def load(path: str, gang: str, pod: str, now_ms: int) -> tuple[Kept, str]:
    """The ends and checkpoints of this pod, aged to ``now_ms``, and what is wrong with the file (empty: nothing)."""
    try:
        with open(path, "rb") as file:
            header, _, body = file.read(wire.MAX_BYTES).partition(b"\n")
        clock = json.loads(header)
        report = wire.decode(body)
        since = int(clock["now_ms"]) if clock["boot"] == _boot() else now_ms
    except FileNotFoundError:
        return ((), ()), ""
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return ((), ()), f"{type(error).__name__}: {error}"
    if not isinstance(report, wire.Report) or (report.gang, report.pod) != (gang, pod):
        return ((), ()), "it belongs to another pod"
    report = wire.aged(report, now_ms - since)
    return (report.ends, report.checkpoints), ""


def _boot() -> str:
    """Ages are known within one boot only; after another they are at least what they were."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
