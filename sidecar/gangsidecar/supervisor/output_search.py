"""Search the output of a worker for steps (``progress.source``) and for the patterns of ``podFailurePolicy``.

A line ends with a newline or, as progress bars have it, a carriage return. Only its beginning is searched, whatever its
length; bytes that aren't text are searched as replacement characters.

The rule: each pattern of ``podFailurePolicy`` is on its own, and the first line of each counts. A pattern that takes
too much processor time is given up, and the others go on: it has :data:`BURST`, and gets back :data:`REFILL` of the
time that passes. So a pattern never holds up the output for longer, and one that is cheap lasts as long as the job.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Sequence

from gangsidecar import wire
from gangsidecar.common import now_ms

STEP_LINE = 8192
"""Bytes of a line that are searched for a step."""
_DIGITS = 18
"""A number with more digits isn't a step."""
_ENDS = re.compile(rb"[\r\n]+")
PATTERN_LINE = 4096
"""Bytes of a line that are searched for a pattern of ``podFailurePolicy``."""
BURST = 1.0
"""Processor time that a pattern may take at once."""
REFILL = 0.05
"""The share of one core that it may take on average."""
_LEAST = 0.001
_BEFORE = 20
"""Characters before a match that are kept, where the line is too long to be kept whole."""


class LineSplitter:
    """Cuts one stream into lines."""

    def __init__(self) -> None:
        self._beginning = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that end in this piece; empty ones are left out."""
        lines = _ENDS.split(piece)
        lines[0] = self._beginning + lines[0]
        self._beginning = lines.pop()[:STEP_LINE]
        return [line[:STEP_LINE] for line in lines if line]

    def unfinished(self) -> list[bytes]:
        """Return the beginning of a line that has not ended."""
        return [self._beginning] if self._beginning else []

    def end(self) -> list[bytes]:
        """The last line, if no newline ended it."""
        last, self._beginning = self._beginning, b""
        return [last] if last else []


class StepSearch:
    """Searches lines for the group ``step`` of a pattern."""

    def __init__(self, pattern: str) -> None:
        """Compile it. re.error: this Python does not take the pattern, or it has no such group."""
        self._pattern = re.compile(pattern)
        if "step" not in self._pattern.groupindex:
            raise re.error("it has no group named step")

    def step(self, line: bytes) -> int | None:
        """Return the step in the line; None if the pattern is not in it, or its group isn't a number."""
        found = self._pattern.search(line.decode("utf-8", errors="replace"))
        text = "" if found is None else found.group("step") or ""
        return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


class _Pattern:
    """One pattern, and the processor time that it has left."""

    def __init__(self, text: str, compiled: re.Pattern[str]) -> None:
        self.text = text
        self.compiled = compiled
        self.left = BURST
        self.at = now_ms()
        self.found = ""

    def look(self, lines: Sequence[str]) -> None:
        """Look for it. TooSlowError: it has used up its time. RecursionError, MemoryError: it can't be searched for."""
        now = now_ms()
        self.left, self.at = min(BURST, self.left + REFILL * (now - self.at) / 1000), now
        self.left -= run_limited(self.left, lambda: self._search(lines))
        if self.left < _LEAST and not self.found:
            raise TooSlowError

    def _search(self, lines: Sequence[str]) -> None:
        for line in lines:
            match = self.compiled.search(line)
            if match is not None:
                self.found = shorten_line(line, match.start(), match.end())
                return


class LogSearch:
    """Looks for all patterns of a worker."""

    def __init__(self, patterns: Sequence[str], report: Callable[..., None]) -> None:
        """``report`` gets ``pattern`` and ``line`` of a match, or a sentence about what is ``wrong``."""
        self._report = report
        self._patterns: list[_Pattern] = []  # Those that are still searched for.
        for text in patterns:
            try:
                self._patterns.append(_Pattern(text, re.compile(text)))
            except (re.error, OverflowError, RecursionError) as error:
                self._give_up(text, f"can't be used with the Python of this image: {error}")

    def look(self, lines: Sequence[bytes]) -> None:
        if not self._patterns or not lines:
            return
        texts = [line[:PATTERN_LINE].decode("utf-8", errors="replace") for line in lines]
        self._patterns = [one for one in self._patterns if self._goes_on(one, texts)]

    def _goes_on(self, one: _Pattern, texts: Sequence[str]) -> bool:
        """Return whether it is still to be searched for afterwards."""
        try:
            one.look(texts)
        except (TooSlowError, RecursionError, MemoryError):
            if not one.found:
                self._give_up(one.text, f"took more than {BURST:g} s for the output; use one that backtracks less")
                return False
        if one.found:
            self._report(pattern=one.text, line=one.found)
        return not one.found

    def _give_up(self, text: str, why: str) -> None:
        self._report(wrong=f"the pattern {printable(text)} of onLog {why}. Until the next attempt, no line matches it")


def shorten_line(line: str, begin: int, end: int) -> str:
    """Shorten a line for a report: printable, and of a long line the part with the match."""
    whole = printable(line)
    if len(whole) <= wire.LOG_LINE:
        return whole
    if len(printable(line[:end])) > wire.LOG_LINE:
        whole = "..." + printable(line[max(0, begin - _BEFORE) :])
    return whole if len(whole) <= wire.LOG_LINE else whole[: wire.LOG_LINE - 3] + "..."


def printable(text: str) -> str:
    """The text as printable ASCII, with all else escaped."""
    return "".join(one if " " <= one <= "~" else ascii(one)[1:-1] for one in text)


class TooSlowError(Exception):
    """A search takes too long."""


def run_limited(seconds: float, work: Callable[[], None]) -> float:
    """Do the work; return how much processor time it took. TooSlowError: it took longer, and was ended."""
    signal.signal(signal.SIGVTALRM, _raise)
    began = time.thread_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        work()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return time.thread_time() - began


def _raise(_signum: int, _frame: object) -> None:
    raise TooSlowError
