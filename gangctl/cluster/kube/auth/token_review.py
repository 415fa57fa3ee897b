"""TokenReviews: asking the API server whose token it is, where the cluster doesn't publish its keys.

The rule: an answer is believed for a minute, and only a few are asked for at once; who would have to queue for too long
is told to come again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import OrderedDict
from typing import Final

from pydantic import Field, ValidationError

from gangctl.cluster.errors import ClusterError
from gangctl.cluster.kube.auth.claims import TokenClaims
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.watch.decoding import Raw
from gangctl.cluster.port import Refusal, RefusalReason

PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
BELIEVED_SECONDS: Final = 60.0
REFUSED_SECONDS: Final = 10.0
"""For so long a no is believed."""
AT_ONCE: Final = 8
WAITING: Final = 500
"""So many may wait for their turn."""
REMEMBERED: Final = 10_000
_USER: Final = "system:serviceaccount:"


class _User(Raw):
    username: str = ""
    extra: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class _Status(Raw):
    authenticated: bool = False
    user: _User = _User()
    audiences: tuple[str, ...] = ()
    error: str = ""


class _Review(Raw):
    status: _Status = _Status()


class TokenReviewer:
    """Asks for one audience."""

    def __init__(self, client: Client, audience: str) -> None:
        self._client = client
        self._audience = audience
        self._free = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        self._known: OrderedDict[bytes, tuple[TokenClaims | Refusal, float]] = OrderedDict()
        """By hash of the token, with the time until which it is believed."""

    async def review(self, token: str) -> TokenClaims | Refusal:
        """Whose it is, in the API server's words."""
        digest = hashlib.sha256(token.encode()).digest()
        known = self._known.get(digest)
        if known is not None and time.monotonic() < known[1]:
            return known[0]
        if self._waiting >= WAITING:
            return Refusal(RefusalReason.CANNOT_VERIFY, "too many tokens wait to be reviewed", again=True)
        self._waiting += 1
        try:
            async with self._free:
                found = await self._ask(token)
        except ClusterError as error:
            return Refusal(RefusalReason.CANNOT_VERIFY, f"the token can't be reviewed: {error}", again=True)
        finally:
            self._waiting -= 1
        seconds = BELIEVED_SECONDS if isinstance(found, TokenClaims) else REFUSED_SECONDS
        self._known[digest] = found, time.monotonic() + seconds
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return found

    async def _ask(self, token: str) -> TokenClaims | Refusal:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self._audience]},
        }
        answer = await self._client.request("POST", PATH, body=json.dumps(body).encode())
        try:
            status = _Review.model_validate_json(answer).status
        except ValidationError:
            return Refusal(RefusalReason.CANNOT_VERIFY, "the API server's answer is no TokenReview", again=True)
        if not status.authenticated:
            return Refusal(RefusalReason.BAD_SIGNATURE, f"the API server doesn't take it: {status.error:.200}")
        if self._audience not in status.audiences:  # an authenticator that knows no audiences says none
            return Refusal(RefusalReason.WRONG_AUDIENCE, f"it isn't meant for {self._audience}")
        namespace, _, account = status.user.username.removeprefix(_USER).partition(":")
        name, uid = (
            next(iter(status.user.extra.get(f"authentication.kubernetes.io/pod-{one}", ())), "")
            for one in ("name", "uid")
        )
        if not status.user.username.startswith(_USER) or not account or not name or not uid:
            return Refusal(RefusalReason.NOT_BOUND, "it isn't bound to a pod")
        return TokenClaims(namespace=namespace, pod=name, uid=uid)
