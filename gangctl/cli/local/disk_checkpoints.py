"""Find checkpoints in folders of this machine: the steps of a tier, and folders that look like one.

A tier has the steps that the supervisor finds in it: names that match its pattern, of which the file is there, or the
file that marks a folder complete. A link out of the directory isn't a step. What
:func:`checkpoint_folders` looks at is bounded. It takes no number for a step unless a word says so.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gangctl.api.recovery import DirectorySource
from gangctl.core.policy.checkpoints import LAYOUTS, folder_rule
from gangsidecar.wire import step_name

MAX_DEPTH: Final = 3
MAX_FOLDERS: Final = 500
MAX_NAMES: Final = 2_000
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", "site-packages", "venv"})
_MARKERS: Final = (
    *("DONE", "COMPLETE", "COMPLETED", "_SUCCESS", "SUCCESS", ".done", ".complete", "done", "complete"),
    *(complete for _, complete in LAYOUTS.values() if complete),
)
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
_STEP: Final = re.compile(
    r"(?:(?P<step>step)|(?P<iteration>iter(?:ation)?)|(?P<batch>batch|(?<![a-z])ba)|(?P<epoch>epoch|(?<![a-z])ep))s?[-_.=]?"
    r"(?P<number>[0-9]{1,18})(?![0-9])",
    re.IGNORECASE,
)
"""A number of which the word before it says that it is a step; of several words, the first in this order counts."""


@dataclass(frozen=True, slots=True)
class Step:
    """A complete step."""

    step: int
    path: Path


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """A folder whose content looks like checkpoints."""

    directory: Path
    layout: str
    """As in ``checkpoint.tiers[].source.layout``."""
    pattern: str
    complete: str
    """The file that marks a step's folder complete; empty = a step is a file, or no such file is known."""
    newest: Step | None
    """None where there is a doubt."""
    count: int
    doubt: str = ""
    """The reason why the steps, or the complete ones, can't be named."""

    @property
    def is_file(self) -> bool:
        return self.pattern.endswith((*_SUFFIXES, *_TEXTS))


def complete_steps(source: DirectorySource, base: Path) -> list[Step]:
    """The complete steps of a tier, newest first; none if its directory doesn't exist. ``base``: of relative paths."""
    try:
        return _complete(base / source.directory, *folder_rule(source))
    except FileNotFoundError:
        return []


def checkpoint_folders(folder: Path) -> list[CheckpointFolder]:
    """Folders at or below this one that look like checkpoints, the one that was written last first."""
    found = [one for directory in _folders(folder) if (one := _recognise(directory)) is not None]
    return sorted(found, key=_order)


def file_without_step(folder: Path) -> Path | None:
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
        if match is None or (path.is_symlink() and directory.resolve() not in path.resolve().parents):
            continue
        if (path / complete if complete else path).is_file():
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


def _recognise(directory: Path) -> CheckpointFolder | None:
    try:
        names = sorted(os.listdir(directory))[:MAX_NAMES]  # noqa: PTH208 - names are enough
        if not any(_NUMBER.search(name) for name in names):
            return None
        for layout, (pattern, complete) in LAYOUTS.items():
            found = _complete(directory, pattern, complete)
            if found:
                return CheckpointFolder(directory, layout, pattern, complete, found[0], len(found))
        return _by_pattern(directory, names)
    except OSError:
        return None


def _by_pattern(directory: Path, names: list[str]) -> CheckpointFolder | None:
    """Names that differ in numbers only, and speak of steps or checkpoints; a word says which number is the step."""
    if _NUMBER.search(directory.name) and _HINT.search(directory.name):
        return None  # It is a step itself.
    patterns: dict[tuple[bool, str], list[tuple[int, list[int], str]]] = {}
    for name in names:
        words = sorted(_STEP.finditer(name), key=lambda one: [word is None for word in one.groups()])
        spans = [one.span("number") for one in words] or [one.span() for one in _NUMBER.finditer(name)][-1:]
        speaks = _speaks(f"{directory.name}/{name}") or bool(words and not name.endswith(_TEXTS))
        if not spans or not speaks or set(name) & set("{}*"):
            continue
        start, end = spans[0]
        pattern = f"{_NUMBER.sub('*', name[:start])}{{step}}{_NUMBER.sub('*', name[end:])}"
        others = [int(name[slice(*span)]) for span in spans[1:]]
        patterns.setdefault((not words, pattern), []).append((int(name[start:end]), others, name))
    for (is_unclear, pattern), same in sorted(patterns.items(), key=lambda one: (one[0][0], -len(one[1]))):
        if (found := _of_pattern(directory, pattern, sorted(same), is_unclear=is_unclear)) is not None:
            return found
    return None


def _of_pattern(
    directory: Path, pattern: str, same: list[tuple[int, list[int], str]], *, is_unclear: bool
) -> CheckpointFolder | None:
    inside = [directory / name for _, _, name in same if (directory / name).is_dir()]
    marker = next((one for one in _MARKERS if any((path / one).is_file() for path in inside)), "")
    doubt = ""
    if is_unclear:
        doubt = "where no word (step, iteration, batch, epoch) says which number is the step"
    elif len({step for step, _, _ in same}) < len(same):
        doubt = "several of one step"
    elif sorted(others for _, others, _ in same) != [others for _, others, _ in same]:
        doubt = "where steps begin anew in each epoch"
    elif inside and not marker:
        doubt = "without a file that marks a step complete"
    if not inside and not pattern.endswith((*_SUFFIXES, *_TEXTS)):
        return None
    if inside and ((inside[0] / "pyvenv.cfg").exists() or not any(any(path.iterdir()) for path in inside)):
        return None
    found = [] if doubt else _complete(directory, pattern, marker)
    if not doubt and not found:
        return None
    return CheckpointFolder(
        directory, "Pattern", pattern, marker, found[0] if found else None, len(found or same), doubt
    )


def _speaks(path: str) -> bool:
    """Return whether a name speaks of steps or checkpoints. Logs and metrics are texts that have steps, too."""
    if path.endswith(_TEXTS):
        return _STATE.search(path) is not None and _ELSE.search(path) is None
    return _HINT.search(path) is not None


def _is_only(name: str) -> bool:
    stem, _, suffix = name.rpartition(".")
    return f".{suffix}" in {*_SUFFIXES, *_TEXTS} and _ONLY.fullmatch(stem) is not None and not _NUMBER.search(name)


def _order(one: CheckpointFolder) -> tuple[bool, float]:
    try:
        written = one.directory.stat().st_mtime if one.newest is None else one.newest.path.stat().st_mtime
    except OSError:
        written = 0.0
    return one.newest is None, -written
