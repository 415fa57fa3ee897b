"""Which gangs a viewer of the page sees: those of the namespaces in which it may list GangJobs, as with kubectl.

The rule: the API server says so (SubjectAccessReview) for the user of the request's token, for all namespaces at once
or for one. Without an answer a viewer sees nothing. Answers are cached (reviews.py), and one review runs at once:
viewers must not delay the controller's own requests.
"""

from __future__ import annotations

from typing import Final

from gangctl.cluster.errors import Retryable
from gangctl.cluster.kube.auth.access_review import asked, review_access
from gangctl.cluster.kube.auth.request_authorizer import HttpRefusal, RequestAuthorizer
from gangctl.cluster.kube.auth.reviews import Reviews
from gangctl.cluster.kube.client import Client

CONCURRENCY: Final = 1
_GANGS: Final = {"group": "gangctl.io", "resource": "gangjobs", "verb": "list"}


class GangAuthorizer:
    """Decides which gangs the users of one :class:`RequestAuthorizer` see."""

    def __init__(self, client: Client, requests: RequestAuthorizer) -> None:
        self._client = client
        self._requests = requests
        self._reviews = Reviews(CONCURRENCY, self._ask, bool)

    async def refusal(self, authorization: str, namespace: str) -> str:
        """Why this user may not list the gangs of a namespace (empty: of all); empty if it may.

        Raises:
            ClusterError: there is no answer.
        """
        user = await self._requests.user(authorization)
        if isinstance(user, HttpRefusal):  # The cached answer has ended meanwhile.
            raise Retryable(user.text)
        if await self._reviews.find(asked(user, resourceAttributes={**_GANGS, "namespace": namespace})):
            return ""
        where = f"namespace {namespace}" if namespace else "all namespaces"
        return f"user {user.username} may not list gangjobs.gangctl.io in {where}"

    async def _ask(self, question: str) -> bool:
        return await review_access(self._client, question)
