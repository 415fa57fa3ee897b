"""TokenReviews: the API server authenticates sidecars' tokens where the cluster doesn't publish its keys.

The rule: an answer is cached for a minute, and only a few reviews run at once. If too many wait, further sidecars are
told to retry.
"""

from __future__ import annotations

import json
from typing import Final

from pydantic import Field, ValidationError

from gangctl.cluster.errors import ClusterError, Retryable
from gangctl.cluster.kube.auth.claims import TokenClaims
from gangctl.cluster.kube.auth.reviews import Reviews
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.watch.decoding import Raw
from gangctl.cluster.port import Refusal, RefusalReason

PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
CONCURRENCY: Final = 8
_USER: Final = "system:serviceaccount:"


class ReviewedUser(Raw):
    """Whom a token authenticates."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class TokenStatus(Raw):
    """What a TokenReview answers."""

    authenticated: bool = False
    user: ReviewedUser = ReviewedUser()
    audiences: tuple[str, ...] = ()
    error: str = ""


class _Review(Raw):
    status: TokenStatus = TokenStatus()


async def review_token(client: Client, token: str, audiences: tuple[str, ...] = ()) -> TokenStatus:
    """The API server's answer about a token. ``audiences``: none = those of the API server itself.

    Raises:
        ClusterError: there is no answer.
    """
    spec = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    # It changes nothing, so a replica that doesn't lead may send it as well.
    answer = await client.request("POST", PATH, body=json.dumps(body).encode(), unguarded=True)
    try:
        return _Review.model_validate_json(answer).status
    except ValidationError as error:
        raise Retryable("the API server's answer is no TokenReview") from error


class TokenReviewer:
    """Reviews tokens for one audience."""

    def __init__(self, client: Client, audience: str) -> None:
        self._client = client
        self._audience = audience
        self._reviews = Reviews(CONCURRENCY, self._ask, lambda found: isinstance(found, TokenClaims))

    async def review(self, token: str) -> TokenClaims | Refusal:
        """The API server's answer."""
        try:
            return await self._reviews.find(token)
        except ClusterError as error:
            return Refusal(RefusalReason.CANNOT_VERIFY, f"the token can't be reviewed: {error}", retryable=True)

    async def _ask(self, token: str) -> TokenClaims | Refusal:
        status = await review_token(self._client, token, (self._audience,))
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
