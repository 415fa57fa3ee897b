"""Commands that start torchrun: what gangctl sets itself goes, and the rest stays as it is.

gangctl gives torchrun its nodes, processes and rendezvous as ``PET_`` variables, anew for each attempt. A flag would
win over them, so the flags of the rendezvous must go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gangctl.convert.fields import Notes

_MODULES: Final = {"torch.distributed.run", "torch.distributed.launch"}
_WITH_VALUE: Final = (
    *("nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port", "max-restarts", "monitor-interval"),
    *("rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf"),
)
_ALONE: Final = ("standalone",)
_IN_TEXT: Final = re.compile(
    r"\s+(?:\\\n\s*)?--(?P<name>"
    + "|".join(name.replace("-", "[-_]") for name in (*_WITH_VALUE, "nproc_per_nodes"))
    + r")(?:=|\s+)(?P<value>\"[^\"]*\"|'[^']*'|\$\([^)]*\)|\S+)"
)
_STARTS: Final = re.compile(r"\btorchrun\b|\btorch\.distributed\.(?:run|launch)\b")


@dataclass
class Torchrun:
    """What the flags said."""

    nodes: str = ""
    processes: str = ""


def plain(name: str) -> str:
    """The name of a flag, as torchrun's help has it."""
    return name.removeprefix("--").replace("_", "-")


def starts_torchrun(words: list[str]) -> bool:
    """Whether these words start it, themselves or in a shell's script."""
    return any(_STARTS.search(word) for word in words)


def strip(words: list[str], path: str, notes: Notes) -> tuple[list[str], Torchrun]:
    """The command without the flags of the rendezvous, and what they said."""
    said = Torchrun()
    at = next((at for at, word in enumerate(words) if word.endswith("torchrun") or word in _MODULES), None)
    if at is not None:
        return [*words[: at + 1], *_without(words[at + 1 :], path, notes, said)], said
    kept = [_IN_TEXT.sub(lambda found: _found(found, path, notes, said), word) for word in words]
    return [re.sub(r"\s+--standalone\b", "", word) if _STARTS.search(word) else word for word in kept], said


def _without(flags: list[str], path: str, notes: Notes, said: Torchrun) -> list[str]:
    kept: list[str] = []
    while flags:
        word, *flags = flags
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            return [*kept, word, *flags]  # The script, and what is the script's.
        if plain(name) in _ALONE:
            continue
        if plain(name) not in _WITH_VALUE:
            kept.append(word)
            if plain(name) in {"module", "m"} or word == "-m":
                return [*kept, *flags]
            continue
        if not equals and flags:
            value, *flags = flags
        _note(plain(name), value, path, notes, said)
    return kept


def _found(found: re.Match[str], path: str, notes: Notes, said: Torchrun) -> str:
    if not _STARTS.search(found.string):
        return found.group()
    _note(plain(found["name"]), found["value"].strip("\"'"), path, notes, said)
    return ""


def _note(name: str, value: str, path: str, notes: Notes, said: Torchrun) -> None:
    if name == "nnodes":
        said.nodes = value
    elif name == "nproc-per-node":
        said.processes = value
    elif name == "max-restarts":
        if value != "0":
            notes.add(path, f"--max-restarts {value} goes: gangctl restarts, within spec.recovery.budget")
    else:
        notes.add(path, f"--{name} goes: gangctl sets it for each attempt (PET_ variables)")


def count(value: str, devices: int | None, path: str, notes: Notes) -> int:
    """Processes in a pod, as ``--nproc-per-node`` or ``nprocPerNode`` says it."""
    if value.isdecimal() and int(value) > 0:
        return int(value)
    if devices is not None:
        if value:
            notes.add(path, f"{value} processes per node became {devices}, the number of devices of the container")
        return devices
    if value and value != "cpu":
        notes.add(path, f"{value} processes per node can't be told from here; set processesPerPod", is_edit=True)
    return 1


def nodes(value: str, path: str, notes: Notes) -> int | None:
    """How many nodes ``--nnodes`` says; the larger number of a range."""
    least, _, most = value.partition(":")
    found = most or least
    if not found.isdecimal():
        return None
    if most and most != least:
        notes.add(path, f"{value} nodes became {found}: a gang runs with all members or waits")
    return int(found)
