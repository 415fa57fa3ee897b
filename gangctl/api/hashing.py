"""A short stable hash of a gang's roles: pods are made of them, so other roles mean other pods."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangctl.api.gangjob import Role


def roles_hash(roles: Sequence[Role]) -> str:
    """Ten hexadecimal digits of the canonical JSON of the roles."""
    plain = [role.model_dump(mode="json", by_alias=True, exclude_none=True) for role in roles]
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:10]
