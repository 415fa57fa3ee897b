from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from gangctl.cluster.kube import tokens
from gangctl.cluster.port import Refusal
from tests.cluster.kube.auth.authentication import WORKER, Authentication
from tests.cluster.kube.auth.tokens import (
    AUDIENCE,
    CLUSTER_KEY,
    NAMESPACE,
    bound,
    claims,
    rsa_key,
    sign,
    token,
    unsigned,
)
from tests.cluster.kube.fakeapi import status
from tests.wait import until_async


@pytest.mark.parametrize("useless", [[], [{"kty": "oct", "k": "c2VjcmV0", "alg": "HS256", "kid": "rsa"}], [{}], [7]])
async def test_tokens_are_reviewed_without_a_usable_key(auth: Authentication, useless: list[Any]) -> None:
    auth.issuer.keys = useless
    auth.issuer.review = reviewed()
    assert await auth.authenticate(token()) == WORKER


def reviewed(**changes: Any) -> dict[str, Any]:
    """The review of worker-0's token."""
    extra = {
        "authentication.kubernetes.io/pod-name": ["g-worker-0-0"],
        "authentication.kubernetes.io/pod-uid": ["pod-0"],
    }
    user = {"username": f"system:serviceaccount:{NAMESPACE}:default", "extra": extra}
    return {"authenticated": True, "audiences": [AUDIENCE], "user": user, **changes}


NOT_PUBLISHED = status(403, "Forbidden", "the keys are not published")


async def test_each_token_is_reviewed_once_a_minute_where_keys_are_not_published(
    auth: Authentication, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth.issuer.hidden, auth.issuer.review = NOT_PUBLISHED, reviewed()
    shown = token()
    for _ in range(5):
        assert await auth.authenticate(shown) == WORKER
    assert auth.issuer.reviewed == [{"token": shown, "audiences": [AUDIENCE]}]
    monkeypatch.setattr(tokens, "ACCEPTED_SECONDS", 0.0)
    assert await auth.authenticate(sign(claims(jti="another"))) == WORKER
    assert await auth.authenticate(sign(claims(jti="another"))) == WORKER
    assert len(auth.issuer.reviewed) in {2, 3}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"authenticated": False, "error": "the token has been invalidated"}, "BadSignature"),
        ({}, "BadSignature"),
        (reviewed(audiences=[]), "WrongAudience"),
        (reviewed(audiences=["https://kubernetes.default.svc"]), "WrongAudience"),
        (reviewed(user={"username": "jane"}), "NotBound"),
        (reviewed(user={"username": f"system:serviceaccount:{NAMESPACE}:default"}), "NotBound"),
        ({"authenticated": "maybe"}, "CannotVerify"),
        (None, "CannotVerify"),
    ],
)
async def test_a_review_is_checked_like_a_token(
    auth: Authentication, answer: dict[str, Any] | None, reason: str
) -> None:
    auth.issuer.hidden, auth.issuer.review = NOT_PUBLISHED, answer
    assert await auth.refusal_reason(token()) == reason


async def test_a_token_that_cannot_be_a_members_is_not_reviewed(auth: Authentication) -> None:
    auth.issuer.hidden, auth.issuer.review = NOT_PUBLISHED, reviewed()
    for shown in ("", "garbage", "a.b.c", "é" * 40, unsigned(claims(), {"alg": "none", "kid": CLUSTER_KEY.name})):
        await auth.refusal_reason(shown)
    stranger = rsa_key()
    assert await auth.refusal_reason(sign(claims(aud=["other"]), stranger)) == "WrongAudience"
    assert await auth.refusal_reason(sign(claims(exp=int(time.time()) - 60), stranger)) == "Expired"
    assert await auth.refusal_reason(sign(bound(pod={"name": "x", "uid": "unknown-pod"}), stranger)) == "UnknownPod"
    assert auth.issuer.reviewed == []


async def test_the_number_of_waiting_reviews_is_bounded(auth: Authentication, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_WAITING", 10)
    auth.issuer.hidden, auth.issuer.review = NOT_PUBLISHED, reviewed()
    auth.issuer.answering.clear()
    asked = {asyncio.ensure_future(auth.authenticate(sign(claims(jti=str(at))))) for at in range(60)}
    await until_async("the tokens beyond the bound are refused", lambda: sum(one.done() for one in asked) == 50)
    refused = [one.result() for one in asked if one.done()]
    assert {(one.reason, one.retryable) for one in refused if isinstance(one, Refusal)} == {("CannotVerify", True)}
    assert len(auth.issuer.reviewed) <= tokens.CONCURRENCY
    auth.issuer.answering.set()
    assert sum(one == WORKER for one in await asyncio.gather(*asked)) == 10
