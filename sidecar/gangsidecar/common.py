"""The clock and the log of both programs. Standard library only.

A line of the log is ``time level program: message key=value ...``, to stderr or to a file.
"""

from __future__ import annotations

import os
import time


def now_ms() -> int:
    """Milliseconds of CLOCK_BOOTTIME: it never jumps, and it counts while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class _Log:
    def __init__(self) -> None:
        self.program = "gangctl"
        self.file = ""  # Empty: stderr.


_LOG = _Log()


def log_as(program: str, file: str = "") -> None:
    """Log as this program from now on. ``file``: where to append the lines; empty for stderr."""
    _LOG.program, _LOG.file = program, file


def log(level: str, message: str, **fields: object) -> None:
    """Write one line. A file or a stderr that can't take it must not stop the program."""
    now = time.time()
    clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    parts = [f"{clock}.{int(now * 1000) % 1000:03d}Z", level, f"{_LOG.program}:", message]
    for name, value in fields.items():
        text = str(value)
        parts.append(f"{name}={text if text and not any(one.isspace() for one in text) else repr(text)}")
    _write((" ".join(parts) + "\n").encode("utf-8", errors="backslashreplace"))


def _write(line: bytes) -> None:
    # Not through sys.stderr: Python exits with 120 if its buffer can't be written.
    try:
        if not _LOG.file:
            os.write(2, line)
            return
        # Opened anew each time: a forked child closes the files of its parent.
        file = os.open(_LOG.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, line)
        finally:
            os.close(file)
    except OSError:
        return
