"""A rank that another rank of its pod has left behind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RankBehind:
    """The newest word of the rank that is furthest behind the others of its pod."""

    rank: int
    step: int
    age_ms: int
    phase: str = "Step"
    """Startup, Step, Checkpoint or Evaluation."""
    pid: int | None = None
    """Its process, as it is seen in the worker's container, if the framework says it."""
