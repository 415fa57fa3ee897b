"""Read command lines: the words of a shell's text, and the flags of torchrun that have to go.

A word is recognised by its quotes and substitutions. It is plain if every shell gives it as it stands. Whatever else
there is (operators, patterns, an open quote) isn't split: it is the rest of the text, which is kept as it is.

gangctl gives torchrun its nodes, processes and rendezvous as ``PET_`` variables, anew for each attempt. A flag would
win over them, so the flags of the rendezvous must go, and everything else stays as it is.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gangctl.annexes.convert.fields import ConvertError, Notes
from gangctl.api.shell import OPAQUE, PARENTHESES

_SUBSTITUTION: Final = rf"\${PARENTHESES}|\$\{{[^}}]*\}}|\$(?![({{])|`[^`]*`"
_QUOTED: Final = rf"""'[^']*'|"(?:\\.|{_SUBSTITUTION}|[^"\\$`])*\""""
_WORD: Final = re.compile(
    rf"""(?:[ \t]|\\\r?\n)*(?P<word>(?!\#)(?:\\[^\r\n]|{_QUOTED}|{_SUBSTITUTION}|[^\s"'`$\\;&|<>()])+)""", re.DOTALL
)
_PLAIN: Final = re.compile(r"""(?:[\w@%+=:,./^#-]|'[^']*'|"[^"$`\\!]*")+""")
_CONSTANT: Final = re.compile(r"[\w@%+=:,./^-]+(?: [\w@%+=:,./^-]+)*")
_VARIABLE: Final = re.compile(r"\\.|'[^']*'|\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.DOTALL)
"""A variable that a shell replaces, or text in which it replaces none."""
_COMMENT: Final = re.compile(r"\s*(?:#[^\n]*)?")
_ITEMS: Final = rf"""(?<==)\((?:{OPAQUE}|{PARENTHESES}|[^()'"\\\#]|(?<=[^\s(])\#)*\)"""
_LINE: Final = re.compile(rf"""(?:{OPAQUE}|{_ITEMS}|[^\n'"\\])+(?P<open>['"].*)?|['"].*""", re.DOTALL)
_ARRAY: Final = re.compile(r"(?:(?:declare|readonly|typeset) +(?:-[ar]+ +)*)?(\w+)(\+?)=\((.*)\) *", re.DOTALL)
_OF_ARRAY: Final = re.compile(r'"\$\{(\w+)\[@\]\}"|\$\{(\w+)\[[@*]\]\}')
"""A word that is all words of an array."""
_PART_OF_ARRAY: Final = re.compile(r"\$\{[#!]?(\w+)\[")
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
"""Flags that have a value, too, and stay."""
_STARTS: Final = re.compile(r"(?<![\w.-])(?:torchrun|torch\.distributed\.(?:run|launch))(?![\w./-])")
_ELSEWHERE: Final = re.compile(r"--(?:nnodes|nproc[-_]per[-_]node|node[-_]rank|master[-_]\w+|rdzv[-_]\w+)")
_HIDDEN: Final = re.compile(rf'"?(?:\$\{{[^}}]*\}}|\$\w+|\$[@*]|\${PARENTHESES}|`[^`]*`)"?')
"""A word that may be flags."""
_OF_DEVICES: Final = re.compile(r"gpu|auto|xpu|\$\{?SLURM_GPUS_(?:ON|PER)_NODE\}?")


def script_lines(text: str) -> list[str]:
    """The lines of a script, without those of comments; an open quote, array or backslash continues a line.

    Raises:
        ConvertError: a quote stays open.
    """
    found = list(_LINE.finditer(text.replace("\r\n", "\n")))
    if is_open := [one for one in found if one["open"]]:
        raise ConvertError(f"{is_open[0][0]:.80}: No closing quotation")
    made = (re.sub(OPAQUE, _joined, one[0].strip(), flags=re.DOTALL) for one in found)
    return [line for line in made if line and not line.startswith("#")]


def _joined(opaque: re.Match[str]) -> str:
    """A token without the line ends that a backslash hides, as a shell reads it."""
    return opaque[0] if opaque[0][0] in "'#" else re.sub(r"(\\[^\n])|\\\n", r"\1", opaque[0])


def split(text: str, start: int = 0) -> tuple[list[re.Match[str]], str]:
    """The words from there on, as they are written, and the rest; empty if that is a comment."""
    found, end = list[re.Match[str]](), start
    while (word := _WORD.match(text, end)) is not None:
        found.append(word)
        end = word.end()
    return found, "" if _COMMENT.fullmatch(text, end) else text[end:].strip()


def plain(word: str) -> str | None:
    """The value of a word; None if only a shell can tell."""
    return "".join(shlex.split(word)) if not word or _PLAIN.fullmatch(word) else None


def arguments(text: str) -> list[str] | None:
    """The values of the words of a text; None if only a shell can tell."""
    words, rest = split(text)
    values = [value for word in words if (value := plain(word["word"])) is not None]
    return values if not rest and len(values) == len(words) else None


def expand_text(text: str, values: Mapping[str, str]) -> str:
    """Put the values of variables in their place, where a shell would do no more than that."""

    def value(found: re.Match[str]) -> str:
        its = values.get(found[1] or found[2] or "")
        return found[0] if its is None or _CONSTANT.fullmatch(its) is None else its

    return _VARIABLE.sub(value, text)


@dataclass(frozen=True)
class Array:
    """An assignment of words, as they are written, to an array of bash."""

    name: str
    adds: bool
    words: list[str]


def array(line: str) -> Array | None:
    """The array that a line sets; None if it sets none, or only a shell can tell its words."""
    one_line = re.sub(rf"{OPAQUE}|\n", lambda one: " " if one[0][0] in "#\n" else one[0], line)
    if (found := _ARRAY.fullmatch(one_line)) is None:
        return None
    words, rest = split(found[3])
    return None if rest or "]=" in found[3] else Array(found[1], bool(found[2]), [word["word"] for word in words])


def expand_arrays(text: str, arrays: Mapping[str, Sequence[str]], notes: Notes) -> str:
    """Put the words of arrays in their place, where a shell would do no more than that, and name the other arrays."""
    made, end = "", 0
    for word in split(text)[0]:
        if (found := _OF_ARRAY.fullmatch(word["word"])) is not None:
            its = arrays.get(found[1] or found[2])
            if its is not None and (found[1] or not set("".join(its)) & set("'\"\\")):
                made, end = made + text[end : word.start("word")] + " ".join(its), word.end()
    made += text[end:]
    for name in dict.fromkeys(_PART_OF_ARRAY.findall(made)):
        notes.add("the command", f"array {name} is empty in the pod: write its words there", is_edit=True)
    return made


@dataclass
class Torchrun:
    """The values of torchrun's own flags."""

    nodes: str = ""
    processes: str = ""


def starts_torchrun(words: list[str]) -> bool:
    """Return whether these words start torchrun, themselves or in a shell's script."""
    return any(_STARTS.search(word) for word in words)


def strip(words: list[str], path: str, notes: Notes) -> tuple[list[str], Torchrun]:
    """The command without the flags of the rendezvous, and their values."""
    values = Torchrun()
    at = next((at for at, word in enumerate(words) if word.endswith("torchrun") or word in _MODULES), None)
    if at is not None:
        flags = words[at + 1 :]
        staying, _ = _staying(flags, path, notes, values)
        return [*words[: at + 1], *(flags[one] for one in staying)], values
    return [strip_text(word, path, notes, values) for word in words], values


def strip_text(text: str, path: str, notes: Notes, values: Torchrun) -> str:
    """A shell's text, without the flags of each torchrun in it. What comes after torchrun's own script stays."""
    made, end = "", 0
    for start in _STARTS.finditer(text):
        if start.end() < end:
            continue  # An argument of the one before.
        before, (found, rest) = text[end : start.end()], split(text, start.end())
        if (elsewhere := _ELSEWHERE.search(before)) is not None:
            why = "stays, and wins over gangctl's variables if torchrun gets it: take it out"
            notes.add(path, f"{elsewhere[0]} before torchrun {why}", is_edit=True)
        end = found[-1].end() if found else start.end()
        staying, script = _staying([word["word"] for word in found], path, notes, values)
        if found and (not script or _HIDDEN.fullmatch(script)):
            why = "may hold flags of the rendezvous, which win over gangctl's variables: take them out"
            notes.add(path, f"what torchrun gets ({script or rest:.40}) {why}", is_edit=True)
        made += before + "".join(found[one][0] for one in staying)
    return made + text[end:]


def _staying(flags: list[str], path: str, notes: Notes, values: Torchrun) -> tuple[list[int], str]:
    """The words after torchrun that stay (other flags, the script, its arguments), and the script."""
    staying, at = list[int](), 0
    while at < len(flags) and flags[at].startswith("-"):
        name, equals, value = flags[at].partition("=")
        name, following = name.removeprefix("--").replace("_", "-"), at + 1  # as torchrun's help has it
        if not equals and name in {*_WITH_VALUE, *_KEPT}:
            value, following = "".join(flags[at + 1 : at + 2]), at + 2
        if name in _WITH_VALUE:
            _note(name, value.strip("\"'"), path, notes, values)
        elif name not in _ALONE:
            staying += range(at, min(following, len(flags)))
        at = following
    return [*staying, *range(at, len(flags))], "".join(flags[at : at + 1])


def _note(name: str, value: str, path: str, notes: Notes, values: Torchrun) -> None:
    if name == "nnodes":
        values.nodes = value
    elif name == "nproc-per-node":
        values.processes = value
    elif name == "max-restarts":
        if value != "0":
            notes.add(path, f"--max-restarts {value} goes: gangctl restarts, within spec.recovery.budget")
    else:
        notes.add(path, f"--{name} goes: gangctl sets it for each attempt (PET_ variables)")


def process_count(value: str, devices: int | None, path: str, notes: Notes) -> int:
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


def node_count(value: str, path: str, notes: Notes) -> int:
    """The number of nodes in ``--nnodes``, of a range the larger one; 1 where it can't be told."""
    least, _, most = value.partition(":")
    found = most or least
    if not found.isdecimal() or not int(found):
        if value:
            notes.add(path, f"{value} nodes can't be told from here; set replicas", is_edit=True)
        return 1
    if most and most != least:
        notes.add(path, f"{value} nodes became {found}; {elastic(int(least) if least.isdecimal() else 1)}")
    return int(found)


def elastic(least: int) -> str:
    """Say how a role that may be smaller is written: what it takes depends on its checkpoints, which aren't known."""
    return (
        f"each attempt has all of them until you set minReplicas: {least} in the role, which needs a checkpoint tier "
        "with reshardable: true"
    )
