"""The hash of the roles, to detect whether they differ from those of an attempt."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from gangctl.api.roles import Role
from gangctl.api.templates import Template

LENGTH = 16
"""Hexadecimal digits: 64 bits, enough to make accidental collisions impossible in practice."""
_LARGE: Final = 64 * 1024
"""Bytes of compressed templates from which on the hash is not remembered."""


def roles_hash(roles: Sequence[Role]) -> str:
    """A short hash of the roles' canonical JSON.

    It does not depend on the process, the Python release, the order of keys, or whether defaults are written. It
    depends on the order of roles, because ranks are assigned in this order.
    """
    plain = [role.model_dump(mode="json", by_alias=True, exclude_defaults=True) for role in roles]
    kept = tuple(role.template.kept for role in roles)
    if not any(kept):
        return _hash(plain)
    # Of compact roles, the whole templates have to be parsed: not with each decision.
    known = _of_compact if sum(map(len, kept)) <= _LARGE else _of_compact.__wrapped__
    return known(_text(plain), kept)


@lru_cache(256)
def _of_compact(roles: str, templates: tuple[bytes, ...]) -> str:
    """The hash of roles that have only parts of these templates."""
    whole = (Template.model_validate_json(zlib.decompress(one)) for one in templates)
    plain = (one.model_dump(mode="json", by_alias=True, exclude_defaults=True) for one in whole)
    return _hash([{**role, "template": template} for role, template in zip(json.loads(roles), plain, strict=True)])


def _hash(plain: list[dict[str, Any]]) -> str:
    return hashlib.sha256(_text(plain).encode()).hexdigest()[:LENGTH]


def _text(plain: list[dict[str, Any]]) -> str:
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))
