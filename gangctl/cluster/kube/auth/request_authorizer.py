"""Delegated authentication and authorization of HTTP requests, as kube-rbac-proxy and controller-runtime do it.

The rule: a request is allowed only if the API server authenticates its bearer token (TokenReview, for the API server's
own audience) and says that this user may use the verb on the path (SubjectAccessReview). Without an answer of the API
server a request is refused, never allowed. An answer is cached for a minute at most, so a right that was taken away
ends within that time. The token must never be logged.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from gangctl.cluster.errors import ClusterError
from gangctl.cluster.kube.auth.access_review import asked, review_access
from gangctl.cluster.kube.auth.reviews import Reviews
from gangctl.cluster.kube.auth.token_review import ReviewedUser, review_token
from gangctl.cluster.kube.client import Client

CONCURRENCY: Final = 1
"""Anyone on the network can ask, and the controller's own requests must not wait for theirs."""
_SCHEME: Final = "bearer "


@dataclass(frozen=True, slots=True)
class HttpRefusal:
    """The answer to a request that isn't allowed."""

    status: HTTPStatus
    text: str
    """A sentence for the client."""


class RequestAuthorizer:
    """Decides about requests for one path with one verb."""

    def __init__(self, client: Client, path: str, verb: str = "get") -> None:
        """``path`` and ``verb``: the non-resource URL and the verb that a ClusterRole has to grant."""
        self._client = client
        self._path = path
        self._verb = verb
        self._reviews = Reviews(CONCURRENCY, self._ask, lambda found: isinstance(found, ReviewedUser))

    async def refusal(self, authorization: str) -> HttpRefusal | None:
        """Why a request with this Authorization header is refused; None = it is allowed."""
        found = await self.user(authorization)
        return found if isinstance(found, HttpRefusal) else None

    async def user(self, authorization: str) -> ReviewedUser | HttpRefusal:
        """Whose request it is, if it is allowed; else why it is refused."""
        token = authorization[len(_SCHEME) :].strip() if authorization.lower().startswith(_SCHEME) else ""
        if not token or not token.isascii():
            return HttpRefusal(
                HTTPStatus.UNAUTHORIZED, f"send a bearer token of a user who may {self._verb} {self._path}"
            )
        try:
            return await self._reviews.find(token)
        except ClusterError as error:
            return HttpRefusal(HTTPStatus.SERVICE_UNAVAILABLE, f"the token can't be reviewed now: {error}")

    async def _ask(self, token: str) -> ReviewedUser | HttpRefusal:
        status = await review_token(self._client, token)
        if not status.authenticated:
            return HttpRefusal(HTTPStatus.UNAUTHORIZED, "the API server doesn't accept the token")
        attributes = {"path": self._path, "verb": self._verb}
        if await review_access(self._client, asked(status.user, nonResourceAttributes=attributes)):
            return status.user
        text = f"user {status.user.username} may not {self._verb} {self._path}: bind a ClusterRole that grants it"
        return HttpRefusal(HTTPStatus.FORBIDDEN, text)
