"""Reads a stored GangJob, which another release may have written.

The rule: reading is lenient, writing is strict. A field that this release doesn't know is ignored, in the spec and in
the status; what users submit is read by ``manifest.py``, which rejects it. A status that a newer release needs in full
says so: ``readableFrom`` is above :data:`REVISION`. Such an object, and one with a value that is not valid, must not
be acted on: writing its status would lose what the newer release needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from gangctl.api.gangjob import GangJob
from gangctl.api.status import REVISION

_UNKNOWN = "extra_forbidden"


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored object, as far as this release knows it."""

    job: GangJob
    ignored: tuple[str, ...] = ()
    """Paths of the fields that this release doesn't know, such as ``spec.recovery.newField``."""


def read_stored(value: Any) -> Stored:
    """Read a stored object.

    Raises:
        ValueError: this release can't act on it. A ValidationError has the details.
    """
    try:
        found = Stored(GangJob.model_validate(value))
    except ValidationError as error:
        places = [one["loc"] for one in error.errors(include_url=False) if one["type"] == _UNKNOWN]
        if not places:
            raise
        known = deepcopy(value)
        ignored = tuple(_removed(known, place) for place in places)
        found = Stored(GangJob.model_validate(known), ignored)
    needed = found.job.status.readable_from
    if needed > REVISION:
        raise ValueError(
            f"its status is of a newer release (readableFrom {needed}, this release has {REVISION}): upgrade gangctl"
        )
    return found


def _removed(value: Any, place: Sequence[int | str]) -> str:
    """Remove the field at this place, and return its path. A place also names types of unions, which are no keys."""
    path: list[str] = []
    *above, name = place
    for key in above:
        match value, key:
            case dict(), str() if key in value:
                value = value[key]
            case list(), int():
                value = value[key]
            case _:
                continue
        path.append(str(key))
    match value:
        case dict():
            value.pop(name, None)
            return ".".join([*path, str(name)])
        case _:
            raise ValueError(f"{'.'.join(path)} has a field {name} that this release doesn't know")
