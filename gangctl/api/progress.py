"""How progress is measured, and when missing progress counts as a hang."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, Tag

from gangctl.api.model import Constraint, Model, PositiveSeconds, kind


def _finds_step(pattern: str) -> bool:
    try:
        return "step" in re.compile(pattern).groupindex
    except (re.error, OverflowError, RecursionError):
        return False


class ApiProgress(Model):
    """Ranks report steps through the sidecar's API."""

    type: Literal["API"] = "API"


class LogProgress(Model):
    """A regular expression finds the step in the worker's output."""

    constraints = (
        Constraint(
            "the pattern must be a Python regular expression with a group named step, such as step (?P<step>[0-9]+)",
            lambda source: _finds_step(source.pattern),
            "self.pattern.contains('(?P<step>')",
            ("pattern",),
            only_submitted=True,
        ),
    )

    type: Literal["Log"]
    pattern: Annotated[str, Field(min_length=1, max_length=1024)]
    """Python regular expression with a group named step that matches digits, such as step (?P<step>[0-9]+), searched in
    the first 8192 bytes of each line of standard output and standard error. A carriage return also ends a line. Sets
    PYTHONUNBUFFERED=1 unless the worker sets it."""


class FileProgress(Model):
    """Each change of a file's modification time is progress; steps are unknown."""

    type: Literal["File"]
    path: Annotated[str, Field(min_length=1, max_length=1024)]
    """Path in the worker container of a file that a rank touches at each step. Checked once a second."""


ProgressSource = Annotated[
    Annotated[ApiProgress, Tag("API")] | Annotated[LogProgress, Tag("Log")] | Annotated[FileProgress, Tag("File")],
    kind("type", "API"),
]


class Adaptive(Model):
    """A deadline that follows the longest time between two steps."""

    factor: Annotated[int, Field(ge=2, le=1000)] = 10
    """The deadline is this many times the longest time between two reported steps, at least 15 seconds and at most
    timeoutSeconds."""


class Progress(Model):
    """How progress is measured, and when missing progress counts as a hang."""

    constraints = (
        Constraint(
            "adaptive needs timeoutSeconds, which is in force until enough steps were seen and is never exceeded",
            lambda progress: progress.adaptive is None or progress.timeout_seconds is not None,
            "!has(self.adaptive) || has(self.timeoutSeconds)",
            ("adaptive", "timeoutSeconds"),
        ),
    )

    source: ProgressSource = Field(default_factory=ApiProgress)
    """Where progress is read from, in addition to the API. A change applies from the next attempt."""
    timeout_seconds: PositiveSeconds | None = None
    """Seconds without progress of any rank, or of a rank left behind by the others, after which the gang counts as
    hung. Use several times the longest step. If absent, hangs are not detected."""
    adaptive: Adaptive | None = None
    """Shortens timeoutSeconds to a multiple of the longest time between two reported steps, once an attempt has shown 8
    such times and has passed earlier attempts. Other phases keep their timeouts. If absent, timeoutSeconds applies."""
    startup_timeout_seconds: PositiveSeconds = 1800
    """Seconds from the start of a worker to its first step after which the gang counts as hung."""
    checkpoint_timeout_seconds: PositiveSeconds = 1800
    """Seconds without progress in phase Checkpoint after which the gang counts as hung."""
    evaluation_timeout_seconds: PositiveSeconds = 3600
    """Seconds without progress in phase Evaluation after which the gang counts as hung."""
    on_hang: Literal["Observe", "Restart"] = "Observe"
    """Observe: emit an event, set a condition and count a metric. Restart: treat the hang as a fault with reason
    Hang."""
