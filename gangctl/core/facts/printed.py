"""The last lines that a worker printed, found in its log, without secrets.

What a worker printed last, found in the end of its log.

The rule: a log may hold what came before and after the attempt that failed. On a cluster, the supervisor writes lines
of its own between: the attempt's part begins after ``Running attempt=N`` and ends with the next line that tells a
phase. Where no such line is left, all of it counts, unless a later attempt has started: then nothing is known. Lines of
gangctl are never the worker's, nor those that PyTorch has marked with another rank than the one that failed, which
torchrun names. What is kept is bounded, escaped, and without what looks like a secret.

Secrets: what looks like one in a line that is kept or shown is replaced by ``***``.

The rule: a table of forms, each with an example in its test. It finds what is obvious: a password or token by its name,
credentials of a URL, keys with a known prefix. It can't find a secret that looks like any other word, so the output of
workers is not kept at all where that matters (``workerOutput.enabled`` of the chart). A masked line must not contain
the secret in part. A tenant writes the lines, so the work is bounded: a word is looked at as a whole (``*+`` doesn't
go back), and only the begin of a line is.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from gangctl.api.model import escaped
from gangsidecar.wire import Phase

# What a worker printed last, found in the end of its log


MAX_LINES: Final = 10
"""Lines that are kept."""
MAX_OUTPUT_BYTES: Final = 1_000
"""Bytes of these lines, with a newline after each."""
MAX_LINE: Final = 200
"""Characters of a line that are kept; of a longer one, the first."""
_READ: Final = 2_000
"""Characters of a line that are looked at."""
_OWN: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (?:debug|info|warning|error) (?:gangctl[a-z-]*: )?(?=\S)"
)
"""How a line of a supervisor begins (``gangsidecar/common.py``); not every release names the program."""
_PHASE: Final = re.compile(rf"({'|'.join(phase.value for phase in Phase)}) attempt=(\d+) ")
_SESSION: Final = "a session begins "
_ENDED: Final = "a process of the worker ended "
_COLOURS: Final = re.compile(r"\x1b\[[0-9;:?]*[A-Za-z]")
TRACEBACK: Final = "Traceback (most recent call last):"
_RANK: Final = re.compile(r"(?:\[\w{1,40}\]:)?\[rank(\d{1,9})\]:")
"""What PyTorch puts before each line of an exception (torch.distributed), and torchrun before that with --tee."""
_ROOT_CAUSE: Final = "Root Cause (first observed failure)"
_RANK_AT_FAULT: Final = re.compile(r"\s+rank\s+: (\d{1,9}) \(local_rank: \d+\)")
"""After the line before it, torchrun tells which of its children failed first."""
_ROWS: Final = 8
"""So soon after it."""
_HIDES: Final = "ChildFailedError"
"""torchrun raises this beside the error of its child."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What a worker printed last."""

    lines: tuple[str, ...] = ()
    """The last lines, without empty ones."""
    line: str = ""
    """The one that tells most: that of the last Python exception, or else the last one that has a word."""
    is_error: bool = False
    """Whether that line is the exception's."""
    is_complete: bool = False
    """Whether a line of the supervisor shows that no more of it comes."""
    has_begin: bool = False
    """Whether the log has a line of the supervisor that tells the begin of the attempt."""


@dataclass(frozen=True, slots=True)
class ReadOutput:
    """Read what the worker of a pod printed last in an attempt: a stateless query."""

    member: str
    incarnation: int
    attempt: int
    rank: int | None = None
    """Of the process that failed; None if it has none, or the member is one process for several ranks."""


@dataclass(frozen=True, slots=True)
class OutputRead:
    """The answer to such a query."""

    query: ReadOutput
    printed: Printed
    """Nothing if it can't be read."""


def last_lines(log: bytes, attempt: int, rank: int | None = None, *, overtaken: bool) -> Printed:
    """What the worker of an attempt printed last; nothing if it printed nothing, or if that can't be told.

    Args:
        log: the end of its log, without a line that is cut off at its begin.
        attempt: the attempt that failed.
        rank: that of the process that failed, if that is known.
        overtaken: whether a later attempt has started, so that what no line of the supervisor marks may be of that one.
    """
    part = _part(log, attempt, overtaken=overtaken)
    rank = _rank_at_fault(part.lines) if rank is None else rank
    lines = to_first_end = _plain(part.lines[: part.first_end], rank)
    if _error(to_first_end) is None:
        lines = _plain(part.lines, rank)
    if not lines:
        return Printed(is_complete=part.is_complete, has_begin=part.has_begin)
    error = _error(lines)
    words = (at for at in reversed(range(len(lines))) if any(map(str.isalnum, lines[at])))
    at = next(words, len(lines) - 1) if error is None else error
    kept = _kept(lines, len(lines))
    if len(lines) - len(kept) > at:
        kept = _kept(lines, at + 1)
    line = _shown(lines[at].lstrip(" |") or lines[at])
    return Printed(kept, line, error is not None, part.is_complete, part.has_begin)


class _Mark(NamedTuple):
    """A line with which a supervisor tells its phase."""

    at: int
    """So many lines of the worker came before it."""
    attempt: int
    """-1 where a session begins."""
    runs: bool


def _first_in_a_row(places: list[int]) -> int:
    """The first of those that follow one another up to the last."""
    return next(at for number, at in enumerate(places) if places[-1] - at == len(places) - 1 - number)


class _Part(NamedTuple):
    """The lines of one attempt."""

    has_begin: bool
    """Whether the log has its begin."""
    lines: list[str]
    first_end: int
    """So many of them came before the first of its processes had failed."""
    is_complete: bool


def _part(log: bytes, attempt: int, *, overtaken: bool) -> _Part:
    """The lines of the attempt; none if it can't be told which they are."""
    lines, marks, ends = _read(log)
    begins = [at for at, mark in enumerate(marks) if mark.runs and mark.attempt == attempt]
    later = marks[begins[-1] + 1 :] if begins else marks
    begin = marks[_first_in_a_row(begins)].at if begins else 0  # A supervisor says it again with each new directive.
    if not begins:
        is_older = any(mark.attempt < attempt for mark in marks)
        is_later = later[0].runs or later[0].attempt > attempt + 1 if later else overtaken
        if is_older or is_later:
            return _Part(has_begin=False, lines=[], first_end=0, is_complete=False)
    end = later[0].at if later else len(lines)
    first_end = next((at for at in ends if begin <= at <= end), None)
    is_complete = bool(later) or first_end is not None
    return _Part(bool(begins), lines[begin:end], (end if first_end is None else first_end) - begin, is_complete)


def _read(log: bytes) -> tuple[list[str], list[_Mark], list[int]]:
    """The worker's lines, the marks between, and before which lines one of its processes had failed."""
    lines: list[str] = []
    marks: list[_Mark] = []
    ends: list[int] = []
    for line in log.decode(errors="replace").split("\n"):
        own = _OWN.search(line)
        if own is None:
            lines.append(line)
            continue
        if own.start():
            lines.append(line[: own.start()])  # It did not end with a newline.
        said = line[own.end() :]
        phase = _PHASE.match(said)
        if phase is not None:
            marks.append(_Mark(len(lines), int(phase[2]), phase[1] == Phase.RUNNING.value))
        elif said.startswith(_SESSION):
            marks.append(_Mark(len(lines), -1, runs=False))
        elif said.startswith(_ENDED) and "exit_code=0 " not in said:
            ends.append(len(lines))
    return lines, marks, ends


def _rank_at_fault(lines: Sequence[str]) -> int | None:
    """The rank that torchrun puts the failure of its children down to."""
    heads = [at for at, line in enumerate(lines) if _ROOT_CAUSE in line]
    found = (_RANK_AT_FAULT.search(line) for line in lines[heads[-1] : heads[-1] + _ROWS]) if heads else ()
    return next((int(match[1]) for match in found if match), None)


def _plain(lines: Iterable[str], rank: int | None) -> list[str]:
    """The lines that are not empty nor another rank's, without colours; of a progress bar, its last state."""
    found = (_COLOURS.sub("", line.rstrip().rpartition("\r")[2][:_READ]).expandtabs().rstrip() for line in lines)
    marked = ((line, _RANK.match(line)) for line in found if line)
    return [line for line, mark in marked if rank is None or mark is None or int(mark[1]) == rank]


def _shown(line: str) -> str:
    text = escaped(mask_secrets(line))
    return text if len(text) <= MAX_LINE else f"{text[: MAX_LINE - 1]}…"


def _kept(lines: Sequence[str], end: int) -> tuple[str, ...]:
    """The last lines before the index ``end`` that may be kept, as they are shown."""
    kept: list[str] = []
    left = MAX_OUTPUT_BYTES
    for line in map(_shown, reversed(lines[max(0, end - MAX_LINES) : end])):
        left -= len(line.encode()) + 1
        if left < 0:
            break
        kept.append(line)
    return tuple(reversed(kept))


def _error(lines: Sequence[str]) -> int | None:
    """Where the line of the last Python exception is; None if there is no traceback."""
    found: int | None = None
    heads = [at for at, line in enumerate(lines) if TRACEBACK in line]
    for head, end in reversed(list(pairwise((*heads, len(lines))))):
        prefix = lines[head].partition(TRACEBACK)[0]  # Such as "[rank0]: ".
        for at in range(head + 1, end):
            line = lines[at].removeprefix(prefix)
            if lines[at] != prefix.rstrip() and not line.startswith(" "):
                if _HIDES not in line:
                    return at
                found = at if found is None else found
                break
    return found


# Secrets


MASK: Final = "***"
MAX_READ: Final = 1_000
"""Characters of a line that are looked at; what comes behind them is left out."""
_VALUE: Final = r"""("[^"]*"?|'[^']*'?|(?:[^\s"',;&)\]}]|,(?=[^\s"']))+)"""
"""Of a name: a quoted text, or a word."""
_NUMBER: Final = r"""(?!["']?\d+(\.\d+)?(?![\w.:/+-]))"""
"""Not before a number: jobs that train count tokens."""


def _named(word: str) -> str:
    """A word that begins so, and what is between it and its value."""
    return rf"""((?<![\w-])(?={word})[\w-]*+["']?\s*+[=:]\s*)"""


_FORMS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), rf"\1{MASK}")
    for pattern in (
        # Headers: Authorization: Bearer TEXT. Also of cookies.
        r"""(\b(?:proxy-)?authorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic|token|negotiate)\s+)?)[^\s"',]+""",
        r"""(\b(?:set-)?cookie["']?\s*:\s*["']?).+""",
        r"(\bbearer\s+)[\w.~+/=-]{8,}",
        # NAME=VALUE and "NAME": "VALUE", by the name.
        _named(r"[\w-]*?(?:passw(?:or)?d|passphrase|\bpwd)") + _VALUE,
        _named(r"[\w-]*?(?:secret|credential|(?:api|access|account|private|signing|encryption)[_-]?key)") + _VALUE,
        _named(r"[\w-]*+(?<=token)") + _NUMBER + _VALUE,
        # A flag and its value: --password TEXT, also as a list of words.
        r"""((?<![\w-])--[\w-]{0,60}?(?:passw(?:or)?d|secret|token|api-?key|access-?key)["']?[,\s]\s*["']?)(?!-)[^\s"',\]]+""",
        # Credentials and signatures of a URL.
        r"(\b[a-z][a-z0-9+.-]{0,20}://)[^\s/@:]*+:[^\s@]*+(?:@[^\s@]*+(?=@))*(?=@)",
        r"([?&](?:x-amz-[a-z-]+|x-goog-[a-z-]+|sig|signature|key|code)=)[^\s&\"']+",
        # Keys that are known by their form: AWS, GitHub, GitLab, Hugging Face, OpenAI and others, Slack, Google; JWT.
        r"(\b(?=(?:AKIA|ASIA)[A-Z0-9]{16}\b))\w+",
        r"(\b(?=gh[pousr]_\w{20}|github_pat_\w{20}|glpat-[\w-]{20}|hf_\w{20}|sk-[\w-]{16}|xox[abeoprs]-[\w-]{10}))[\w-]+",
        r"(\b(?=AIza[\w-]{35}))[\w-]+",
        r"(\b(?=eyJ[\w-]{8,}+\.[\w-]{8}))[\w.-]+",
        # A line of a key in PEM.
        r"(^\s*)(?=\S*\d)(?-i:(?=\S*[a-z])(?=\S*[A-Z]))[a-z0-9+/]{60,}={0,2}\s*$",
    )
)


@lru_cache(maxsize=4096)
def mask_secrets(line: str) -> str:
    """Mask what looks like a secret in a line. A decision asks for the same ones again and again."""
    line = line[:MAX_READ]
    for form, instead in _FORMS:
        line = form.sub(instead, line)
    return line
