"""TokenReviews: the API server authenticates tokens where the cluster doesn't publish its keys.

The rule: an answer is cached for a minute, and only a few reviews run at once. If too many wait, further sidecars are
told to retry.
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
ACCEPTED_SECONDS: Final = 60.0
"""Time for which an accepted token is cached."""
REFUSED_SECONDS: Final = 10.0
"""Time for which a refused token is cached."""
CONCURRENCY: Final = 8
MAX_WAITING: Final = 500
"""Maximum number of reviews that wait or run."""
MAX_CACHED: Final = 10_000
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
    """Reviews tokens for one audience."""

    def __init__(self, client: Client, audience: str) -> None:
        self._client = client
        self._audience = audience
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._waiting = 0
        self._cache: OrderedDict[bytes, tuple[TokenClaims | Refusal, float]] = OrderedDict()
        """By hash of the token: the answer, and until when (monotonic seconds) it is cached."""

    async def review(self, token: str) -> TokenClaims | Refusal:
        """The API server's answer."""
        digest = hashlib.sha256(token.encode()).digest()
        cached = self._cache.get(digest)
        if cached is not None and time.monotonic() < cached[1]:
            return cached[0]
        if self._waiting >= MAX_WAITING:
            return Refusal(RefusalReason.CANNOT_VERIFY, "too many tokens wait for a review", retryable=True)
        self._waiting += 1
        try:
            async with self._slots:
                found = await self._ask(token)
        except ClusterError as error:
            return Refusal(RefusalReason.CANNOT_VERIFY, f"the token can't be reviewed: {error}", retryable=True)
        finally:
            self._waiting -= 1
        seconds = ACCEPTED_SECONDS if isinstance(found, TokenClaims) else REFUSED_SECONDS
        self._cache[digest] = found, time.monotonic() + seconds
        while len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)
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
            return Refusal(RefusalReason.CANNOT_VERIFY, "the API server's answer is no TokenReview", retryable=True)
        if not status.authenticated:
            return Refusal(RefusalReason.BAD_SIGNATURE, f"the API server doesn't accept the token: {status.error:.200}")
        if self._audience not in status.audiences:  # an authenticator that knows no audiences returns none
            return Refusal(RefusalReason.WRONG_AUDIENCE, f"the token's audience isn't {self._audience}")
        namespace, _, account = status.user.username.removeprefix(_USER).partition(":")
        name, uid = (
            next(iter(status.user.extra.get(f"authentication.kubernetes.io/pod-{one}", ())), "")
            for one in ("name", "uid")
        )
        if not status.user.username.startswith(_USER) or not account or not name or not uid:
            return Refusal(RefusalReason.NOT_BOUND, "the token isn't bound to a pod")
        return TokenClaims(namespace=namespace, pod=name, uid=uid)
