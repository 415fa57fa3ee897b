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
    """Ranks report their steps through the sidecar's API."""

    type: Literal["API"] = "API"


class LogProgress(Model):
    """A regular expression finds the step in the worker's output, which reaches the log unchanged."""

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
    """Python regular expression with a group named step, such as step (?P<step>[0-9]+). It is searched in the first
    8192 bytes of each line of standard output and standard error; a carriage return ends a line, too. The group must
    match the number of the step, with digits alone. PYTHONUNBUFFERED is set to 1, unless the worker has it set:
    otherwise Python keeps its output back until it is some kilobytes."""


class FileProgress(Model):
    """Each change of a file's modification time is progress; steps are unknown."""

    type: Literal["File"]
    path: Annotated[str, Field(min_length=1, max_length=1024)]
    """Path of the file that a rank touches at each step, as seen by the worker container. It is looked at once a
    second, and need not exist at the start."""


ProgressSource = Annotated[
    Annotated[ApiProgress, Tag("API")] | Annotated[LogProgress, Tag("Log")] | Annotated[FileProgress, Tag("File")],
    kind("type", "API"),
]


class Adaptive(Model):
    """A deadline that follows the steps: a gang that is clearly faster than timeoutSeconds needs less patience."""

    factor: Annotated[int, Field(ge=2, le=1000)] = 10
    """The deadline is this many times the longest time between two reported steps so far, at least 15 seconds and at
    most timeoutSeconds."""


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
    """Where progress is read from. A change counts from the next attempt on. What the worker reports through the API
    counts, whatever this is."""
    timeout_seconds: PositiveSeconds | None = None
    """Seconds without progress after which the gang counts as hung: of any rank, or of one that the others have left
    behind by more steps than it has ever left between two reports. If absent, hangs are not detected. Use several times
    the longest step; otherwise a slow step counts as a hang."""
    adaptive: Adaptive | None = None
    """Shortens timeoutSeconds to a multiple of the longest time between two reported steps, once an attempt has shown
    at least 8 such times and is past the steps of the attempts before. Startup, Checkpoint and Evaluation keep their
    own timeouts. If absent, timeoutSeconds alone counts. Without effect where steps are unknown."""
    startup_timeout_seconds: PositiveSeconds = 1800
    """Seconds without progress from the start of a worker to its first step (imports, compilation, loading), after
    which the gang counts as hung."""
    checkpoint_timeout_seconds: PositiveSeconds = 1800
    """Seconds without progress while a rank reports phase Checkpoint, after which the gang counts as hung."""
    evaluation_timeout_seconds: PositiveSeconds = 3600
    """Seconds without progress while a rank reports phase Evaluation, after which the gang counts as hung."""
    on_hang: Literal["Observe", "Restart"] = "Observe"
    """What to do about a hang. Observe: emit an event, set a condition and count a metric. Restart: treat it as a fault
    with reason Hang. Check what Observe finds before you select Restart."""
