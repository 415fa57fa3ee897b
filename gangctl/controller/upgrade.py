"""Which requests for a WebSocket are accepted: those of gang members, while this process leads.

The rule: a standby answers 503 with the leader's address; an unknown token is answered 401, or 503 if the same token
may be accepted in a moment. No token must get into an answer or into the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from gangctl.cluster.port import MemberIdentity, Refusal, RefusalReason
from gangctl.controller.refusals import ConnectionRefusal, RefusalLog
from gangsidecar.wire import LEADER_HEADER

Authenticate = Callable[[str], Awaitable[MemberIdentity | Refusal]]
"""The member that a token belongs to, or why it belongs to none."""
Leader = Callable[[], str | None]
"""None while this process leads; else the leader's URL, or empty if no leader is known."""


class UpgradeGate:
    """Checks requests for a WebSocket."""

    def __init__(self, authenticate: Authenticate, leader: Leader, refusals: RefusalLog) -> None:
        self._authenticate = authenticate
        self._leader = leader
        self._refusals = refusals

    async def check(self, request: web.Request) -> MemberIdentity | web.Response:
        """The member whose sidecar sent the request, or the answer that refuses it."""
        if (leader := self._leader()) is not None:
            return self._refuse_as_standby(leader)
        identity = await self._identity(request)
        if isinstance(identity, Refusal):
            self._refusals.add(identity.reason, str(request.remote), identity.text)
            return _refused(503 if identity.retryable else 401, f"{identity.reason}: {identity.text}")
        if (leader := self._leader()) is not None:  # It lost its Lease during the authentication.
            return self._refuse_as_standby(leader)
        return identity

    def _refuse_as_standby(self, leader: str) -> web.Response:
        self._refusals.counts[ConnectionRefusal.STANDBY] += 1
        answer = _refused(503, f"this controller does not lead; the leader is {leader or 'not known'}")
        if leader:
            answer.headers[LEADER_HEADER] = leader
        return answer

    async def _identity(self, request: web.Request) -> MemberIdentity | Refusal:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return await self._authenticate(token.strip())
        return Refusal(RefusalReason.NO_TOKEN, "the header Authorization has no bearer token")


def _refused(status: int, text: str) -> web.Response:
    """An answer without an upgrade, after which the client has to connect again."""
    answer = web.Response(status=status, text=text)
    answer.force_close()
    return answer
