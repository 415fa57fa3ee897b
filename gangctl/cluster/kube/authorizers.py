"""Authorize HTTP requests by the API server, as kube-rbac-proxy and controller-runtime do it, and the gangs they show.

The rule: a request is allowed only if the API server authenticates its bearer token (TokenReview, for the API server's
own audience) and says that this user may use the verb on the path (SubjectAccessReview). A viewer of the page sees the
gangs of the namespaces in which it may list GangJobs, as with kubectl. Without an answer of the API server
(ClusterError) a request is refused, never allowed, and a viewer sees nothing. An answer is cached for a minute at most,
so a right that was taken away ends within that time. One review runs at once: clients must not delay the controller's
own requests. The token must never be logged.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from pydantic import ValidationError

from gangctl.cluster.errors import ClusterError, Retryable
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.tokens import ReviewedUser, Reviews, review_token
from gangctl.kubernetes.schema import Raw

ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _Status(Raw):
    allowed: bool = False


class _Review(Raw):
    status: _Status = _Status()


def review_question(user: ReviewedUser, **attributes: Mapping[str, str]) -> str:
    """The question as JSON, the same for the same question. ``attributes``: (non-)resource attributes by their name."""
    spec: dict[str, Any] = {
        "user": user.username,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
        **attributes,
    }
    return json.dumps(spec, sort_keys=True)


async def review_access(client: Client, question: str) -> bool:
    """The API server's answer to a question of :func:`review_question`."""
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": json.loads(question)}
    # It changes nothing, so a replica that doesn't lead may send it as well.
    answer = await client.request("POST", ACCESS_REVIEWS, body=body, unguarded=True)
    try:
        return _Review.model_validate_json(answer).status.allowed
    except ValidationError as error:
        raise Retryable("the API server's answer isn't a SubjectAccessReview") from error


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
        """Return why a request with this Authorization header is refused; None = it is allowed."""
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
        if await review_access(self._client, review_question(status.user, nonResourceAttributes=attributes)):
            return status.user
        text = f"user {status.user.username} may not {self._verb} {self._path}: bind a ClusterRole that grants it"
        return HttpRefusal(HTTPStatus.FORBIDDEN, text)


_GANGS: Final = {"group": "gangctl.io", "resource": "gangjobs", "verb": "list"}


class GangAuthorizer:
    """Decides which gangs the users of one :class:`RequestAuthorizer` see."""

    def __init__(self, client: Client, requests: RequestAuthorizer) -> None:
        self._client = client
        self._requests = requests
        self._reviews = Reviews(CONCURRENCY, self._ask, bool)

    async def refusal(self, authorization: str, namespace: str) -> str:
        """Return why this user may not list the gangs of a namespace (empty: of all); empty if it may."""
        user = await self._requests.user(authorization)
        if isinstance(user, HttpRefusal):  # The cached answer has ended meanwhile.
            raise Retryable(user.text)
        if await self._reviews.find(review_question(user, resourceAttributes={**_GANGS, "namespace": namespace})):
            return ""
        where = f"namespace {namespace}" if namespace else "all namespaces"
        return f"user {user.username} may not list gangjobs.gangctl.io in {where}"

    async def _ask(self, question: str) -> bool:
        return await review_access(self._client, question)
