"""SubjectAccessReviews: the API server says whether a user may do something."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from gangctl.cluster.errors import Retryable
from gangctl.cluster.kube.auth.token_review import ReviewedUser
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.watch.decoding import Raw

PATH: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _Status(Raw):
    allowed: bool = False


class _Review(Raw):
    status: _Status = _Status()


def asked(user: ReviewedUser, **attributes: Mapping[str, str]) -> str:
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
    """The API server's answer to a question of :func:`asked`.

    Raises:
        ClusterError: there is no answer.
    """
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": json.loads(question)}
    # It changes nothing, so a replica that doesn't lead may send it as well.
    answer = await client.request("POST", PATH, body=json.dumps(body).encode(), unguarded=True)
    try:
        return _Review.model_validate_json(answer).status.allowed
    except ValidationError as error:
        raise Retryable("the API server's answer is no SubjectAccessReview") from error
