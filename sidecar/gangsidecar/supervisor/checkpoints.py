"""Find the complete checkpoint steps in a directory, or one of them, without any state.

A step is a folder whose name matches a pattern with ``{step}``. It is complete when the file that its framework writes
last is in it; a step that was begun and not completed must never be listed. Where no such file is named, a step is a
file, which its framework must write elsewhere and rename. The file system may block for any time, so the supervisor
runs this in a child process with a deadline.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from gangsidecar.wire import MAX_FOUND, Found, Tier, step_name

THERE, MISSING, UNKNOWN = "there", "missing", "unknown"
"""Answers to :func:`look`."""


def look(path: str) -> str:
    """Whether a step is there. Unknown: the folder that should hold it can't be listed, or is empty.

    A directory that isn't mounted is absent, or an empty mount point.
    """
    if os.path.exists(path):
        return THERE
    try:
        with os.scandir(os.path.dirname(path)) as others:
            return UNKNOWN if next(others, None) is None else MISSING
    except OSError:
        return UNKNOWN


def scan(tiers: Iterable[Tier], limit: int = MAX_FOUND) -> tuple[tuple[Found, ...], str]:
    """The newest complete steps of each tier, newest first, and what went wrong (empty: nothing).

    A directory that doesn't exist yet holds no step and is no error; one that can't be read is an error.
    """
    found: list[Found] = []
    errors: list[str] = []
    for tier in tiers:
        try:
            found.extend(_scan(tier, limit))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            errors.append(f"tier {tier.name}: {error}")
    return tuple(found), "; ".join(errors)[:1024]


def _scan(tier: Tier, limit: int) -> list[Found]:
    pattern = step_name(tier.pattern)
    matches = (pattern.fullmatch(name) for name in os.listdir(tier.directory))
    names = ((int(match.group(1)), len(match.group(0)), match.group(0)) for match in matches if match)
    root = os.path.realpath(tier.directory)
    found: list[Found] = []
    for step, _, name in sorted(names, reverse=True):
        if len(found) == limit:
            break
        if found and found[-1].step == step:
            continue  # A step that is written again gets a longer name from Lightning, such as step=7-v1.ckpt.
        path = os.path.join(tier.directory, name)
        marker = _marker(path, tier.complete) if _inside(root, path) else ""
        if marker:
            found.append(Found(tier=tier.name, step=step, path=path, marker=marker))
    return found


def _inside(root: str, path: str) -> bool:
    """A link may point to another step, but not out of the directory, which every rank sees."""
    return not os.path.islink(path) or os.path.realpath(path).startswith(root + os.sep)


def _marker(path: str, complete: str) -> str:
    """The identity of what marks the step complete, or nothing. It changes when the step is written again."""
    try:
        found = os.stat(os.path.join(path, complete) if complete else path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return f"{found.st_ino}-{found.st_mtime_ns}-{found.st_size}" if stat.S_ISREG(found.st_mode) else ""
