"""Commands that start torchrun: what gangctl sets itself goes, and the rest stays as it is.

gangctl gives torchrun its nodes, processes and rendezvous as ``PET_`` variables, anew for each attempt. A flag would
win over them, so the flags of the rendezvous must go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gangctl.convert import shell
from gangctl.convert.fields import Notes

_MODULES: Final = {"torch.distributed.run", "torch.distributed.launch"}
_WITH_VALUE: Final = (
    *("nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port", "max-restarts", "monitor-interval"),
    *("rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf"),
)
_ALONE: Final = ("standalone",)
_KEPT: Final = (
    *("-r", "redirects", "-t", "tee", "log-dir", "logs-specs", "local-ranks-filter", "role", "start-method"),
    *("local-addr", "event-log-handler", "numa-binding", "signals-to-handle"),
)
"""Those that have a value, too, and stay."""
_STARTS: Final = re.compile(r"(?<![\w.-])(?:torchrun|torch\.distributed\.(?:run|launch))(?![\w./-])")
_ELSEWHERE: Final = re.compile(r"--(?:nnodes|nproc[-_]per[-_]node|node[-_]rank|master[-_]\w+|rdzv[-_]\w+)")
_HIDDEN: Final = re.compile(rf'"?(?:\$\{{[^}}]*\}}|\$\w+|\$[@*]|\${shell.PARENTHESES}|`[^`]*`)"?')
"""A word that may be flags."""
_OF_DEVICES: Final = re.compile(r"gpu|auto|xpu|\$\{?SLURM_GPUS_(?:ON|PER)_NODE\}?")


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
        flags = words[at + 1 :]
        staying, _ = _staying(flags, path, notes, said)
        return [*words[: at + 1], *(flags[one] for one in staying)], said
    return [strip_text(word, path, notes, said) for word in words], said


def strip_text(text: str, path: str, notes: Notes, said: Torchrun) -> str:
    """A shell's text, without the flags of each torchrun in it. What comes after torchrun's own script stays."""
    made, end = "", 0
    for start in _STARTS.finditer(text):
        if start.end() < end:
            continue  # An argument of the one before.
        before, (found, rest) = text[end : start.end()], shell.split(text, start.end())
        if (elsewhere := _ELSEWHERE.search(before)) is not None:
            why = "stays, and wins over gangctl's variables if torchrun gets it: take it out"
            notes.add(path, f"{elsewhere[0]} before torchrun {why}", is_edit=True)
        end = found[-1].end() if found else start.end()
        staying, script = _staying([word["word"] for word in found], path, notes, said)
        if found and (not script or _HIDDEN.fullmatch(script)):
            why = "may hold flags of the rendezvous, which win over gangctl's variables: take them out"
            notes.add(path, f"what torchrun gets ({script or rest:.40}) {why}", is_edit=True)
        made += before + "".join(found[one][0] for one in staying)
    return made + text[end:]


def _staying(flags: list[str], path: str, notes: Notes, said: Torchrun) -> tuple[list[int], str]:
    """Which words after torchrun stay: flags of its own, the script, and what is the script's; and the script."""
    staying, at = list[int](), 0
    while at < len(flags) and flags[at].startswith("-"):
        name, equals, value = flags[at].partition("=")
        name, following = plain(name), at + 1
        if not equals and name in {*_WITH_VALUE, *_KEPT}:
            value, following = "".join(flags[at + 1 : at + 2]), at + 2
        if name in _WITH_VALUE:
            _note(name, value.strip("\"'"), path, notes, said)
        elif name not in _ALONE:
            staying += range(at, min(following, len(flags)))
        at = following
    return [*staying, *range(at, len(flags))], "".join(flags[at : at + 1])


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
    if devices is None and value in {"", "cpu"}:
        return 1
    if value:
        is_edit = devices is None or _OF_DEVICES.fullmatch(value) is None
        became = f"became {devices}, the number of devices of the container"
        why = "can't be told from here; set processesPerPod" if is_edit else became
        notes.add(path, f"{value} processes per node {why}", is_edit=is_edit)
    return devices or 1


def nodes(value: str, path: str, notes: Notes) -> int:
    """How many nodes ``--nnodes`` says, the larger number of a range; 1 where it can't be told."""
    least, _, most = value.partition(":")
    found = most or least
    if not found.isdecimal() or not int(found):
        if value:
            notes.add(path, f"{value} nodes can't be told from here; set replicas", is_edit=True)
        return 1
    if most and most != least:
        notes.add(path, f"{value} nodes became {found}: a gang runs with all members or waits")
    return int(found)
