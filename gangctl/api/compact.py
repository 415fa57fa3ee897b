"""Compact GangJobs: what a controller keeps of each stored object.

The rule: of the metadata the declared fields are kept, and of each pod template what decisions read; the template as it
was written is kept as compressed JSON, and parsed again when a pod is made from it. Objects that differ must differ as
kept. What the object costs must not grow with the number of its values: a Python dictionary for each environment
variable takes ten times as much as the text.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any, Final

from pydantic.alias_generators import to_camel

from gangctl.api.gangjob import Metadata
from gangctl.api.stored import Stored, read_stored

_METADATA: Final = frozenset(to_camel(name) for name in Metadata.model_fields)
_CONTAINER: Final = ("name", "image", "command", "args")
_PROBES: Final = ("livenessProbe", "startupProbe")
"""Only that there is one matters."""
_FASTEST: Final = 1
"""Of zlib's levels: an environment of 1 MB takes a few milliseconds."""


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
    slim = {key: container[key] for key in _CONTAINER if key in container}
    return slim | {key: container[key] and {} for key in _PROBES if key in container}
