"""Keep what outlives a supervisor: its state file for the next session, and its last words for the controller.

Both are written whenever a process of the worker has ended, and once more at the end, after the report was sent: to
keep them must never delay a report. What can't be written is logged once, and costs only what it would have saved.

**The state file** says which attempt ran, how it ended, which checkpoints it registered or dropped. To lose it may cost
an older restore point or one more attempt, but must never cause a wrong decision. So it is written without fsync,
outside the path of a restart, and a file that can't be read counts as absent. Its first line is the clock (boot id,
milliseconds of CLOCK_BOOTTIME) and the newest attempt that was started, its second a whole report. The file survives a
reboot of its node, memory does not: after another boot a checkpoint is reported as one of an earlier boot, unless its
path is known and lies on a disk.

**The termination message** of the container has the last words first, then what others wrote. The kubelet reads the
last 4,096 bytes of the file, and may cut off the end of those. So the whole file is kept within that. What a worker
wrote must not be lost beyond what the kubelet drops anyway, until its next attempt begins: a container that is started
again has a message of its own, too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from gangsidecar import wire
from gangsidecar.common import log

IN_MEMORY = frozenset(("tmpfs", "ramfs", "devtmpfs", "hugetlbfs"))
"""File systems whose content is lost with a boot."""
_MOUNTS = "/proc/self/mountinfo"
TAIL = 4_096
SAID = 240
"""Characters of what a worker wrote that are reported."""
_MARK = wire.MARK.encode()
_TRACEBACK = "Traceback (most recent call last):"


class Persistence:
    """Writes the two files of one supervisor."""

    def __init__(self, state: str, termination_log: str) -> None:
        self._state = state
        self._termination_log = termination_log
        self._left: tuple[wire.End, ...] = ()  # The ends in the termination message, without their ages.
        self._failed = {"state": False, "words": False}

    def keep(self, report: wire.Report, now_ms: int, ran: int, *, last: bool) -> None:
        """Write what the report says, and which attempt ran. ``last``: the supervisor ends, so ages count from now."""
        try:
            save_state(self._state, report, now_ms, ran)
            self._failed["state"] = False
        except OSError as error:
            self._warn("state", "ends and checkpoints can't be kept for the next session", error)
        ends = tuple(replace(end, age_ms=0) for end in report.ends)
        if ends == self._left and not last:
            return
        self._left = ends
        try:
            leave_words(self._termination_log, report.ends)
            self._failed["words"] = False
        except OSError as error:
            self._warn("words", "how the worker ended can't be left in the termination message", error)

    def _warn(self, what: str, text: str, error: OSError) -> None:
        if not self._failed[what]:
            log("warning", text, reason=error)
        self._failed[what] = True


class Earlier(NamedTuple):
    """The remains of earlier sessions of this pod."""

    ends: tuple[wire.End, ...] = ()
    checkpoints: tuple[wire.Checkpoint, ...] = ()
    dropped: tuple[wire.Dropped, ...] = ()
    ran: int = 0
    """The newest attempt whose worker was started."""


def save_state(path: str, report: wire.Report, now_ms: int, ran: int = 0) -> None:
    """Replace the file in one step. ``ran``: the newest attempt that was started in the pod.

    OSError: it could not be written; the old one is still there.
    """
    temporary = f"{path}.tmp"
    try:
        with open(temporary, "w", encoding="ascii") as file:
            file.write(json.dumps({"boot": _boot(), "now_ms": now_ms, "ran": ran}) + "\n" + wire.encode(report) + "\n")
        os.replace(temporary, path)
    except OSError:
        remove(temporary)
        raise


def load_state(path: str, gang: str, pod: str, now_ms: int) -> tuple[Earlier, str]:
    """Return what the file of this pod has, aged to ``now_ms``, and what is wrong with it (empty: nothing)."""
    try:
        with open(path, "rb") as file:
            header, _, body = file.read(wire.MAX_BYTES).partition(b"\n")
        clock = json.loads(header)
        report = wire.decode(body)
        same_boot = bool(clock["boot"]) and clock["boot"] == _boot()
        since = int(clock["now_ms"]) if same_boot else now_ms
        ran = int(clock.get("ran", 0))
    except FileNotFoundError:
        return Earlier(), ""
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return Earlier(), f"{type(error).__name__}: {error}"
    if not isinstance(report, wire.Report) or (report.gang, report.pod) != (gang, pod):
        return Earlier(), "it belongs to another pod"
    report = wire.aged(report, now_ms - since)
    checkpoints = report.checkpoints
    if not same_boot:
        mounts = _mounts()
        checkpoints = tuple(
            one if _outlives_a_boot(one.path, mounts) else replace(one, earlier_boot=True) for one in checkpoints
        )
    return Earlier(report.ends, checkpoints, report.dropped, ran), ""


def _outlives_a_boot(path: str, mounts: dict[str, str]) -> bool:
    """Return whether the path is on a disk. It is not looked at: a network file system may block without end."""
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


def remove(path: str) -> None:
    """Delete a file, if it is there and can be deleted."""
    try:
        os.unlink(path)
    except OSError:
        return


def leave_words(path: str, ends: tuple[wire.End, ...]) -> None:
    """Write how the worker's processes ended, in place of what was written before. OSError: it can't be written."""
    words = wire.to_words(ends)
    if not words:
        return
    line = words.encode("ascii") + b"\n"
    _change(path, lambda lines: line + b"".join(_others(lines))[-(TAIL - len(line)) :])


def forget_message(path: str) -> None:
    """An attempt begins: remove what the worker wrote in earlier ones. OSError: the file can't be written."""
    if os.path.exists(path) and os.path.getsize(path):
        _change(path, lambda lines: b"".join(line for line in lines if line.startswith(_MARK)))


def read_message(path: str) -> str:
    """Return what the worker wrote: as many of its last lines as fit, or of a Python traceback the last one.

    Empty if it wrote nothing, or if that can't be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            written = _others(_lines(descriptor))
        finally:
            os.close(descriptor)
    except OSError:
        return ""
    found = (line.decode(errors="replace").strip("\0 \t\r\n") for line in written)
    lines = [line for line in found if line]
    first = len(lines) - 1
    while first > 0 and _TRACEBACK not in lines and len("\n".join(lines[first - 1 :])) <= SAID:
        first -= 1
    return "\n".join(lines[max(0, first) :])[:SAID]


def _change(path: str, change: Callable[[list[bytes]], bytes]) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        whole = change(_lines(descriptor))
        os.pwrite(descriptor, whole, 0)
        os.ftruncate(descriptor, len(whole))
    finally:
        os.close(descriptor)


def _lines(descriptor: int) -> list[bytes]:
    """The lines of the end of the file, as the kubelet reads it."""
    return os.pread(descriptor, TAIL, max(0, os.fstat(descriptor).st_size - TAIL)).splitlines(keepends=True)


def _others(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if not line.startswith(_MARK)]
