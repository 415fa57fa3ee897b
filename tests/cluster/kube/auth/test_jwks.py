from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gangctl.cluster.kube import tokens
from gangctl.cluster.port import MemberIdentity, Refusal
from tests.cluster.kube.auth.authentication import WORKER, Authentication
from tests.cluster.kube.auth.tokens import (
    CLUSTER_KEY,
    GANG,
    claims,
    ec_key,
    ed_key,
    rsa_key,
    sign,
    token,
)
from tests.cluster.kube.fakeapi import status


@pytest.mark.parametrize("key", [ec_key(), ed_key(), rsa_key("another")], ids=lambda key: key.algorithm)
async def test_every_kind_of_public_key_is_accepted(auth: Authentication, key: Any) -> None:
    auth.issuer.keys = [CLUSTER_KEY.public, key.public]
    assert await auth.authenticate(sign(claims(), key)) == WORKER


async def test_many_tokens_need_one_fetch_of_the_keys(auth: Authentication) -> None:
    found = await asyncio.gather(*(auth.authenticate(token(at % 4)) for at in range(200)))
    assert all(isinstance(one, MemberIdentity) for one in found)
    assert auth.issuer.asked == ["/.well-known/openid-configuration", "/openid/v1/jwks"]
    assert auth.issuer.reviewed == []


async def test_a_new_key_is_fetched_and_an_old_key_is_refused(
    auth: Authentication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MIN_FETCH_SECONDS", 0.0)
    old = token()
    assert await auth.authenticate(old) == WORKER
    new = ec_key("new")
    auth.issuer.keys = [new.public]
    assert await auth.authenticate(sign(claims(), new)) == WORKER
    assert await auth.refusal_reason(old) == "UnknownKey", "although it was verified before"


async def test_a_flood_of_unknown_keys_causes_one_fetch(auth: Authentication) -> None:
    await auth.authenticate(token())
    stranger = rsa_key()
    flood = [sign(claims(), stranger, kid=f"key-{at}") for at in range(300)]
    assert {await auth.refusal_reason(one) for one in flood} == {"UnknownKey"}
    assert auth.issuer.fetched == 1


async def test_known_keys_stay_in_use_while_the_api_server_is_away(
    auth: Authentication, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await auth.authenticate(token()) == WORKER
    auth.issuer.hidden = status(503, "ServiceUnavailable", "away")
    monkeypatch.setattr(tokens, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(tokens, "MIN_FETCH_SECONDS", 0.0)
    assert await auth.authenticate(token(1)) == MemberIdentity(GANG, "worker-1", 0, "pod-1")
    assert auth.issuer.fetched == 1, "the second fetch failed at its first request, for the issuer"
    assert len(auth.issuer.asked) == 3


async def test_every_token_may_be_retried_while_no_key_can_be_fetched(auth: Authentication) -> None:
    auth.issuer.hidden = status(503, "ServiceUnavailable", "etcd is away")
    found = await asyncio.gather(*(auth.authenticate(token(at % 4)) for at in range(100)))
    assert {(one.reason, one.retryable) for one in found if isinstance(one, Refusal)} == {("CannotVerify", True)}
    assert all("etcd is away" in one.text for one in found if isinstance(one, Refusal))
    assert (len(auth.issuer.asked), auth.issuer.reviewed) == (1, [])
