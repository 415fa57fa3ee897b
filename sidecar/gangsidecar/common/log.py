"""One line of text for each event: ``time level message key=value ...``, to stderr."""

from __future__ import annotations

import os
import time


def log(level: str, message: str, **fields: object) -> None:
    """Write one line. A stderr that can't take it must not stop the program."""
    now = time.time()
    clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    parts = [f"{clock}.{int(now * 1000) % 1000:03d}Z", level, message]
    parts += [f"{name}={_value(value)}" for name, value in fields.items()]
    try:
        # Not through sys.stderr: Python exits with 120 if its buffer can't be written.
        os.write(2, (" ".join(parts) + "\n").encode("utf-8", errors="backslashreplace"))
    except OSError:
        return


def _value(value: object) -> str:
    text = str(value)
    return repr(text) if not text or any(one.isspace() for one in text) else text
