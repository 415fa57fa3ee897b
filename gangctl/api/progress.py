"""How progress is seen, and when its absence is a hang."""

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
    """Ranks report their steps at the sidecar's API."""

    type: Literal["API"] = "API"


class LogProgress(Model):
    """A regular expression finds the step in the worker's output."""

    constraints = (
        Constraint(
            "the pattern must be a regular expression of Python with a group named step, such as step (?P<step>[0-9]+)",
            lambda source: _finds_step(source.pattern),
            "self.pattern.contains('(?P<step>')",
            ("pattern",),
        ),
    )

    type: Literal["Log"]
    pattern: Annotated[str, Field(min_length=1, max_length=1024)]
    """A regular expression of Python with a group named step, such as step (?P<step>[0-9]+); searched in each line."""


class FileProgress(Model):
    """The modification time of a file is the progress; no step is known then."""

    type: Literal["File"]
    path: Annotated[str, Field(min_length=1, max_length=1024)]
    """The file that a rank touches at each step, as the worker container sees it."""


ProgressSource = Annotated[
    Annotated[ApiProgress, Tag("API")] | Annotated[LogProgress, Tag("Log")] | Annotated[FileProgress, Tag("File")],
    kind("type", "API"),
]


class Progress(Model):
    """How progress is seen and when its absence is a hang."""

    source: ProgressSource = Field(default_factory=ApiProgress)
    """Where progress is read."""
    timeout_seconds: PositiveSeconds | None = None
    """When no rank has reported progress for this long, in seconds, the gang hangs. Absent (the default) = no hang
    detection. Several times the longest step, or a slow step is taken for a hang."""
    startup_timeout_seconds: PositiveSeconds = 1800
    """The same from the start of a worker to its first step, in seconds: imports, compilation, loading."""
    checkpoint_timeout_seconds: PositiveSeconds = 1800
    """The same while a rank says that it is in phase Checkpoint, in seconds."""
    evaluation_timeout_seconds: PositiveSeconds = 3600
    """The same while a rank says that it is in phase Evaluation, in seconds."""
    on_hang: Literal["Observe", "Restart"] = "Observe"
    """What a hang leads to. Observe: an event, a condition and a metric. Restart: a fault with the reason Hang. Look at
    what Observe finds before you choose Restart."""
