"""Stored GangJobs: read although another release wrote them, and kept small; the kinds of other tools."""

import json
import shlex
import zlib
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from gangctl.api.gangjob import GangJob, Metadata
from gangctl.api.names import GROUP, KIND
from gangctl.api.status import REVISION

# Reads a stored GangJob, which another release may have written.
#
# The rule: reading is lenient, writing is strict. A field that this release doesn't know is ignored, in the spec and in
# the status; what users submit is read by ``manifest.py``, which rejects it. A status that a newer release needs in
# full says so: ``readableFrom`` is above :data:`REVISION`. Such an object, and one with a value that is not valid, must
# not be acted on: writing its status would lose what the newer release needs.


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


# Compact GangJobs: what a controller keeps of each stored object.
#
# The rule: of the metadata the declared fields are kept, and of each pod template what decisions read; the template as
# it was written is kept as compressed JSON, and parsed again when a pod is made from it. Objects that differ must
# differ as kept. What the object costs must not grow with the number of its values: a Python dictionary for each
# environment variable takes ten times as much as the text.


_METADATA: Final = frozenset(to_camel(name) for name in Metadata.model_fields)
_CONTAINER: Final = ("name", "image", "command", "args")
_TIMES: Final = ("failureThreshold", "periodSeconds", "timeoutSeconds")
"""Of a readiness probe, how long it takes to fail."""
_PROBES: Final = ("livenessProbe", "startupProbe")
"""Only that there is one matters."""
_FASTEST: Final = 1
"""The level of zlib: an environment of 1 MB takes a few milliseconds."""


@dataclass(frozen=True, slots=True)
class Compact:
    """A stored object, and how large its templates are."""

    stored: Stored
    template_bytes: int
    """Size of all pod templates as JSON."""


def read_compact(value: dict[str, Any]) -> Compact:
    """Read a stored object.

    Raises:
        ValueError: this release can't act on it, as in :func:`~gangctl.api.stored.read_stored`.
    """
    slim, texts = dict(value), []
    if isinstance(value.get("metadata"), dict):
        slim["metadata"] = {key: one for key, one in value["metadata"].items() if key in _METADATA}
    spec = value.get("spec")
    if isinstance(spec, dict) and isinstance(spec.get("roles"), list):
        roles = [_slim_role(role) for role in spec["roles"]]
        slim["spec"] = {**spec, "roles": [role for role, _ in roles]}
        texts = [text for _, text in roles]
    stored = read_stored(slim)
    for role, text in zip(stored.job.spec.roles, texts, strict=True):
        if text:
            role.template.keep(zlib.compress(text, _FASTEST))
    return Compact(stored, sum(map(len, texts)))


def _slim_role(role: Any) -> tuple[Any, bytes]:
    """The role with what decisions read of its template, and the template as text. What is no role stays as it is."""
    match role:
        case {"template": {"spec": {"containers": [*containers]} as spec} as template} if all(
            isinstance(one, dict) for one in containers
        ):
            slim = {key: one for key, one in template.items() if key != "metadata" or not isinstance(one, dict)}
            slim["spec"] = {key: spec[key] for key in ("restartPolicy",) if key in spec}
            slim["spec"]["containers"] = [_slim_container(one) for one in containers]
            return {**role, "template": slim}, json.dumps(template, separators=(",", ":")).encode()
        case _:
            return role, b""


def _slim_container(container: dict[str, Any]) -> dict[str, Any]:
    slim: dict[str, Any] = {key: container[key] for key in _CONTAINER if key in container}
    probe = container.get("readinessProbe")
    if isinstance(probe, dict):
        slim["readinessProbe"] = {key: probe[key] for key in _TIMES if key in probe}
    return slim | {key: container[key] and {} for key in _PROBES if key in container}


# Kinds of other tools: the advice where a GangJob is expected.


CONVERTIBLE: Final = frozenset({"Job", "JobSet", "PyTorchJob", "TrainJob"})
"""Kinds that ``gangctl convert`` reads."""


def is_foreign(document: Any) -> bool:
    """Return whether kind and apiVersion are those of another tool, which has other fields."""
    if not isinstance(document, dict):
        return False
    kind, version = document.get("kind"), document.get("apiVersion")
    if not isinstance(kind, str) or kind == KIND:
        return False
    return kind in CONVERTIBLE or (isinstance(version, str) and not version.startswith(f"{GROUP}/"))


def kind_advice(documents: Sequence[Any], filename: str) -> str:
    """The advice for documents of which none is a GangJob."""
    if any(isinstance(one, dict) and one.get("kind") in CONVERTIBLE for one in documents):
        return f"gangctl convert {shlex.quote(filename)} makes a GangJob of it"
    return f"gangctl convert makes GangJobs of {', '.join(sorted(CONVERTIBLE))}, and of lines that start torchrun"
