"""The hash of the roles, to detect whether they differ from those of an attempt."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from gangctl.api.roles import Role

LENGTH = 16
"""Hexadecimal digits: 64 bits, enough to make accidental collisions impossible in practice."""


def roles_hash(roles: Sequence[Role]) -> str:
    """A short hash of the roles' canonical JSON.

    It does not depend on the process, the Python release, the order of keys, or whether defaults are written. It
    depends on the order of roles, because ranks are assigned in this order.
    """
    plain = [role.model_dump(mode="json", by_alias=True, exclude_defaults=True) for role in roles]
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]
