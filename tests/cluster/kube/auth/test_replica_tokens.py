"""Tokens of replicas: any client on the pod network can claim to be one."""

from __future__ import annotations

import pytest

from gangctl.cluster.kube.tokens import JWKS, ReplicaAuthenticator
from tests.cluster.kube.auth.tokens import AUDIENCE, CLUSTER_KEY, Issuer, claims, rsa_key, sign, unsigned
from tests.cluster.kube.fakeapi import serving, status

SUBJECT = "system:serviceaccount:gangctl-system:gangctl"
OWN = claims(aud=[f"{AUDIENCE}/relay"], sub=SUBJECT)
REVIEW = {"authenticated": True, "user": {"username": SUBJECT}, "audiences": [f"{AUDIENCE}/relay"]}


@pytest.mark.parametrize(
    "forged",
    [
        sign(OWN, rsa_key(CLUSTER_KEY.name)),
        sign(OWN, rsa_key("another")),
        unsigned(OWN, {"alg": "none", "kid": CLUSTER_KEY.name}),
        sign({**OWN, "iss": "https://elsewhere"}),
    ],
    ids=["another key", "unknown key", "unsigned", "another issuer"],
)
async def test_the_api_server_is_asked_only_about_what_the_cluster_has_signed(forged: str) -> None:
    async with serving() as (api, client):
        issuer = Issuer(review=REVIEW)
        api.faults.append(issuer)
        authenticator = ReplicaAuthenticator(client, JWKS(client), f"{AUDIENCE}/relay", lambda: sign(OWN))
        assert await authenticator.refusal(forged) is not None
        assert issuer.reviewed == []
        assert await authenticator.refusal(sign({**OWN, "jti": "2"})) is None
        assert len(issuer.reviewed) == 1


async def test_the_api_server_is_asked_about_all_where_the_cluster_does_not_publish_its_keys() -> None:
    async with serving() as (api, client):
        api.faults.append(Issuer(review=REVIEW, hidden=status(403, "Forbidden", "the keys are not published")))
        authenticator = ReplicaAuthenticator(client, JWKS(client), f"{AUDIENCE}/relay", lambda: sign(OWN))
        assert await authenticator.refusal(sign({**OWN, "jti": "2"})) is None


async def test_a_token_file_that_is_not_text_refuses_others_and_ends_nothing() -> None:
    async with serving() as (_, client):
        authenticator = ReplicaAuthenticator(client, JWKS(client), AUDIENCE, b"\xff".decode)
        assert await authenticator.refusal(sign(OWN)) is not None
