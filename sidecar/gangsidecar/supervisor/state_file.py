"""The file that outlives a supervisor: which attempt ran, how it ended, which checkpoints it registered or dropped.

To lose it may cost an older restore point or one more attempt, but must never cause a wrong decision. So it is written
without fsync, outside the path of a restart, and a file that can't be read counts as absent. Its first line is the
clock (boot id, milliseconds of CLOCK_BOOTTIME) and the newest attempt that was started, its second a whole report.

The file survives a reboot of its node, memory does not. So after another boot a checkpoint is reported as one of an
earlier boot, unless its path is known and lies on a disk.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import NamedTuple

from gangsidecar import wire

IN_MEMORY = frozenset(("tmpfs", "ramfs", "devtmpfs", "hugetlbfs"))
"""File systems whose content is lost with a boot."""
_MOUNTS = "/proc/self/mountinfo"


class Kept(NamedTuple):
    """What earlier sessions of this pod have left."""

    ends: tuple[wire.End, ...] = ()
    checkpoints: tuple[wire.Checkpoint, ...] = ()
    dropped: tuple[wire.Dropped, ...] = ()
    ran: int = 0
    """The newest attempt whose worker was started."""


def save(path: str, report: wire.Report, now_ms: int, ran: int = 0) -> None:
    """Replace the file in one step. ``ran``: the newest attempt that was started in the pod.

    Raises:
        OSError: it could not be written; the old one is still there.
    """
    temporary = f"{path}.tmp"
    try:
        with open(temporary, "w", encoding="ascii") as file:
            file.write(json.dumps({"boot": _boot(), "now_ms": now_ms, "ran": ran}) + "\n" + wire.encode(report) + "\n")
        os.replace(temporary, path)
    except OSError:
        _remove(temporary)
        raise


def load(path: str, gang: str, pod: str, now_ms: int) -> tuple[Kept, str]:
    """What the file of this pod has, aged to ``now_ms``, and what is wrong with the file (empty: nothing)."""
    try:
        with open(path, "rb") as file:
            header, _, body = file.read(wire.MAX_BYTES).partition(b"\n")
        clock = json.loads(header)
        report = wire.decode(body)
        same_boot = bool(clock["boot"]) and clock["boot"] == _boot()
        since = int(clock["now_ms"]) if same_boot else now_ms
        ran = int(clock.get("ran", 0))
    except FileNotFoundError:
        return Kept(), ""
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return Kept(), f"{type(error).__name__}: {error}"
    if not isinstance(report, wire.Report) or (report.gang, report.pod) != (gang, pod):
        return Kept(), "it belongs to another pod"
    report = wire.aged(report, now_ms - since)
    checkpoints = report.checkpoints
    if not same_boot:
        mounts = _mounts()
        checkpoints = tuple(
            one if _outlives_a_boot(one.path, mounts) else replace(one, earlier_boot=True) for one in checkpoints
        )
    return Kept(report.ends, checkpoints, report.dropped, ran), ""


def _outlives_a_boot(path: str, mounts: dict[str, str]) -> bool:
    """Whether the path is on a disk. The path itself is not looked at: a network file system may block without end."""
    if not os.path.isabs(path):
        return False
    place = os.path.normpath(path)
    while place not in mounts and place != "/":
        place = os.path.dirname(place)
    return mounts.get(place, "tmpfs") not in IN_MEMORY


def _mounts() -> dict[str, str]:
    """Mount point -> type of its file system. Without /proc nothing is known to be on a disk."""
    mounts = {}
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                before, _, after = line.partition(" - ")
                mounts[_unescaped(before.split(" ")[4])] = after.split(" ")[0]
    except (OSError, IndexError):
        return {}
    return mounts


def _unescaped(text: str) -> str:
    """A path of mountinfo, which writes a space, tab, newline and backslash as three octal digits."""
    for code in ("040", "011", "012", "134"):
        text = text.replace(f"\\{code}", chr(int(code, 8)))
    return text


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
