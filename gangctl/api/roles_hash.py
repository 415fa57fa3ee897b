"""The hash that says whether the roles are still those that an attempt was made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from gangctl.api.roles import Role

LENGTH = 16
"""Hexadecimal digits: 64 bits, of which a user can't find two equal ones by accident."""


def roles_hash(roles: Sequence[Role]) -> str:
    """A short hash of the roles' canonical JSON.

    Stable over processes, releases of Python and the order of keys, and over fields written with their default. The
    order of roles counts: ranks are handed out in it.
    """
    plain = [role.model_dump(mode="json", by_alias=True, exclude_defaults=True) for role in roles]
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]
