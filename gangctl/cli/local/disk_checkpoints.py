"""Finds checkpoints in folders of this machine: the steps of a tier, and folders that look like one.

Which names are steps is decided by the pattern that the supervisor uses; what is complete, as it decides it: a file is
there, or the file that marks a folder complete is in it. Only what :func:`recognised` looks at is bounded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gangctl.api.checkpoint import DirectorySource
from gangctl.core.policy.layouts import LAYOUTS, folder_rule
from gangsidecar.wire import step_name

MAX_DEPTH: Final = 3
MAX_FOLDERS: Final = 500
MAX_NAMES: Final = 2_000
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", "site-packages", "venv"})
_MARKERS: Final = ("DONE", "COMPLETE", "COMPLETED", "_SUCCESS", "SUCCESS", ".done", ".complete", "done", "complete")
"""Files by which scripts mark a step's folder complete."""
_HINT: Final = re.compile(r"ckpt|checkpoint|step|iter|epoch", re.IGNORECASE)
_SUFFIXES: Final = (".pt", ".pth", ".ckpt", ".safetensors", ".npz", ".pkl", ".msgpack", ".bin", ".tar")
_TEXTS: Final = (".json", ".txt")
"""Files that may be checkpoints of small scripts, or much else."""
_STATE: Final = re.compile(r"ckpt|checkpoint|state|snapshot", re.IGNORECASE)
_ELSE: Final = re.compile(r"log|metric|eval|config|result", re.IGNORECASE)
_ONLY: Final = re.compile(r"(?:.*[-_.])?(?:ckpt|checkpoint|state|snapshot|latest|last)", re.IGNORECASE)
"""Stem of a file that a script writes again and again."""
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Step:
    """A complete step."""

    step: int
    path: Path


@dataclass(frozen=True, slots=True)
class Recognised:
    """A folder whose content looks like checkpoints."""

    directory: Path
    layout: str
    """As in ``checkpoint.tiers[].source.layout``."""
    pattern: str
    complete: str
    """The file that marks a step's folder complete; empty = a step is a file, or no such file is known."""
    newest: Step | None
    """None: the steps are folders of which none has a file that is known to mark it complete."""
    count: int


def steps(source: DirectorySource, base: Path) -> list[Step]:
    """The complete steps of a tier, newest first; ``base``: where relative paths begin.

    Raises:
        OSError: the directory can't be read. One that doesn't exist has no steps.
    """
    try:
        return _complete(base / source.directory, *folder_rule(source))
    except FileNotFoundError:
        return []


def recognised(folder: Path) -> list[Recognised]:
    """Folders at or below this one that look like checkpoints, the one that was written last first."""
    found = [one for directory in _folders(folder) if (one := _recognise(directory)) is not None]
    return sorted(found, key=_order)


def unnumbered(folder: Path) -> Path | None:
    """The newest file that looks like a checkpoint without a step in its name; None if there is none."""
    found: list[tuple[float, Path]] = []
    for directory in _folders(folder):
        try:
            names = sorted(os.listdir(directory))[:MAX_NAMES]  # noqa: PTH208 - names are enough
            paths = [directory / name for name in names if _is_only(name)]
            found += [(path.stat().st_mtime, path) for path in paths if path.is_file()]
        except OSError:
            continue
    return max(found)[1] if found else None


def _complete(directory: Path, pattern: str, complete: str) -> list[Step]:
    expression = step_name(pattern)
    found: dict[int, Step] = {}
    for name in sorted(os.listdir(directory), key=lambda one: (len(one), one)):  # noqa: PTH208 - names are enough
        match = expression.fullmatch(name)
        path = directory / name
        if match is not None and (path / complete if complete else path).is_file():
            found[int(match[1])] = Step(int(match[1]), path)
    return sorted(found.values(), key=lambda one: -one.step)


def _folders(top: Path) -> Iterator[Path]:
    """This folder and those below, without hidden ones and those of installed packages."""
    left = MAX_FOLDERS
    for path, folders, _ in os.walk(top, onerror=None):
        left -= 1
        if left < 0:
            return
        here = Path(path)
        depth = len(here.relative_to(top).parts)
        folders[:] = [
            name
            for name in sorted(folders)
            if depth < MAX_DEPTH
            and not name.startswith(".")
            and name not in _SKIPPED
            and not (here / name / "pyvenv.cfg").exists()
        ]
        yield here


def _recognise(directory: Path) -> Recognised | None:
    try:
        names = sorted(os.listdir(directory))[:MAX_NAMES]  # noqa: PTH208 - names are enough
        if not any(_NUMBER.search(name) for name in names):
            return None
        for layout, (pattern, complete) in LAYOUTS.items():
            found = _complete(directory, pattern, complete)
            if found:
                return Recognised(directory, layout, pattern, complete, found[0], len(found))
        return _by_pattern(directory, names)
    except OSError:
        return None


def _by_pattern(directory: Path, names: list[str]) -> Recognised | None:
    """Names that differ in one number only, and speak of steps or checkpoints."""
    patterns: dict[str, list[str]] = {}
    for name in names:
        number = next(reversed(list(_NUMBER.finditer(name))), None)
        if number is None or not _speaks(f"{directory.name}/{name}") or set(name) & set("{}*"):
            continue
        patterns.setdefault(f"{name[: number.start()]}{{step}}{name[number.end() :]}", []).append(name)
    for pattern, same in sorted(patterns.items(), key=lambda one: -len(one[1])):
        if pattern.endswith((*_SUFFIXES, *_TEXTS)):
            found = _complete(directory, pattern, "")
            if found:
                return Recognised(directory, "Pattern", pattern, "", found[0], len(found))
        inside = [directory / name for name in same if (directory / name).is_dir()]
        if not inside or directory.joinpath(inside[0].name, "pyvenv.cfg").exists():
            continue
        marker = next((one for one in _MARKERS if any((path / one).is_file() for path in inside)), "")
        if marker:
            found = _complete(directory, pattern, marker)
            return Recognised(directory, "Pattern", pattern, marker, found[0], len(found))
        if any(any(path.iterdir()) for path in inside):
            return Recognised(directory, "Pattern", pattern, "", None, len(inside))
    return None


def _speaks(path: str) -> bool:
    """Whether a name speaks of steps or checkpoints. Logs and metrics are texts that have steps, too."""
    if path.endswith(_TEXTS):
        return _STATE.search(path) is not None and _ELSE.search(path) is None
    return _HINT.search(path) is not None


def _is_only(name: str) -> bool:
    stem, _, suffix = name.rpartition(".")
    return f".{suffix}" in {*_SUFFIXES, *_TEXTS} and _ONLY.fullmatch(stem) is not None and not _NUMBER.search(name)


def _order(one: Recognised) -> tuple[bool, float]:
    try:
        written = one.directory.stat().st_mtime if one.newest is None else one.newest.path.stat().st_mtime
    except OSError:
        written = 0.0
    return one.newest is None, -written
