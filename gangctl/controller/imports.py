"""A list of what the workers of each role import, for supervisors of the role that have run nothing yet.

The rule: a list reaches only the gang and the role of the pod that has sent it. No decision reads it, and nothing
stores it: a new leader gets it as sidecars connect again. A gang has one list for each of its roles, compressed, and of
:data:`~gangsidecar.wire.MAX_IMPORTS_BYTES` at most before that.
"""

from __future__ import annotations

import zlib
from collections.abc import Container
from dataclasses import replace
from functools import lru_cache

from gangctl.cluster.port import MemberIdentity
from gangsidecar import wire


class ImportLists:
    """The lists of all gangs."""

    def __init__(self) -> None:
        self._lists: dict[str, dict[str, tuple[str, bytes]]] = {}
        """UID of the gang -> role -> the pod that has sent the list, and the list."""

    def add(self, sender: MemberIdentity, imports: wire.Imports, connected: Container[str]) -> bool:
        """Take a list from its sender's connection; return whether it counts.

        That of the first pod does, until it isn't ``connected`` any more: each change costs other pods a template.
        """
        lists = self._lists.setdefault(sender.gang, {})
        before, _ = lists.get(_role(sender), (sender.pod, b""))
        if before != sender.pod and before in connected:
            return False
        lists[_role(sender)] = sender.pod, zlib.compress(wire.encode(imports).encode())
        return True

    def of(self, member: MemberIdentity) -> bytes | None:
        """The list of this member's role, as :func:`imports_text` takes it."""
        _, packed = self._lists.get(member.gang, {}).get(_role(member), ("", None))
        return packed

    def forget(self, gang: str) -> None:
        """The gang is gone."""
        self._lists.pop(gang, None)


@lru_cache(maxsize=8)
def imports_text(packed: bytes, revision: int, *, beside: bool) -> str:
    """The message for a sidecar of this revision. ``beside``: the gang trains. Many members get the same at a time."""
    imports: wire.Imports = wire.decode(zlib.decompress(packed))
    return wire.encode(wire.in_revision(replace(imports, beside=beside), revision))


def _role(member: MemberIdentity) -> str:
    return member.member.rpartition("-")[0]
