from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from gangctl.cluster.kube.auth import jwks, token_authenticator, token_review
from gangctl.cluster.kube.auth.token_authenticator import TokenAuthenticator
from gangctl.cluster.kube.watch.projections import KubePod
from gangctl.cluster.port import MemberIdentity, Refusal, RefusalReason
from tests.cluster.kube.fakeapi import eventually, serving, status
from tests.cluster.kube.tokens import (
    AUDIENCE,
    CLUSTER_KEY,
    GANG,
    NAMESPACE,
    Issuer,
    bound,
    claims,
    ec_key,
    ed_key,
    pod,
    rsa_key,
    sign,
    token,
)

WORKER = MemberIdentity(GANG, "worker-0", 0, "pod-0")


@dataclass
class Here:
    """An identifier with the pods and gangs that it is shown."""

    authenticator: TokenAuthenticator
    issuer: Issuer
    pods: dict[str, KubePod] = field(default_factory=lambda: {f"pod-{at}": pod(at) for at in range(4)})
    gangs: dict[str, tuple[str, str]] = field(default_factory=lambda: {GANG: (NAMESPACE, "g")})

    async def who(self, shown: str) -> MemberIdentity | Refusal:
        return await self.authenticator.authenticate(shown, self.pods.get, self.gangs.get)

    async def why(self, shown: str) -> RefusalReason:
        """The reason of a refusal; the token isn't in its text."""
        found = await self.who(shown)
        assert isinstance(found, Refusal), found
        assert shown == "" or shown not in found.text
        return found.reason


@pytest.fixture
async def here() -> AsyncIterator[Here]:
    async with serving() as (api, client):
        issuer = Issuer()
        api.faults.append(issuer)
        yield Here(TokenAuthenticator(client, AUDIENCE), issuer)


async def test_a_token_that_the_cluster_has_signed_for_a_member_says_who_it_is(here: Here) -> None:
    assert await here.who(token()) == WORKER
    assert await here.who(token(3)) == MemberIdentity(GANG, "worker-3", 0, "pod-3")


@pytest.mark.parametrize("key", [ec_key(), ed_key(), rsa_key("another")], ids=lambda key: key.algorithm)
async def test_all_kinds_of_public_keys_are_understood(here: Here, key: Any) -> None:
    here.issuer.keys = [CLUSTER_KEY.public, key.public]
    assert await here.who(sign(claims(), key)) == WORKER


async def test_thousands_of_tokens_need_one_look_at_the_clusters_keys(here: Here) -> None:
    found = await asyncio.gather(*(here.who(token(at % 4)) for at in range(200)))
    assert all(isinstance(one, MemberIdentity) for one in found)
    assert here.issuer.asked == ["/.well-known/openid-configuration", "/openid/v1/jwks"]
    assert here.issuer.reviewed == []


def unsigned(said: dict[str, Any], header: dict[str, Any]) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode() for one in (header, said)]
    return ".".join((*parts, ""))


def public_pem() -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    pem: bytes = CLUSTER_KEY.private.public_key().public_bytes(serialization.Encoding.PEM, form)
    return pem


def with_public_key_as_secret() -> str:
    """The classic: HS256 with what everybody knows as the secret."""
    import hashlib  # noqa: PLC0415
    import hmac  # noqa: PLC0415

    said = unsigned(claims(), {"alg": "HS256", "typ": "JWT", "kid": CLUSTER_KEY.name}).rstrip(".")
    signature = hmac.new(public_pem(), said.encode(), hashlib.sha256).digest()
    return f"{said}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def tampered() -> str:
    head, body, signature = token().split(".")
    said = json.loads(base64.urlsafe_b64decode(body + "=="))
    said["kubernetes.io"]["pod"] = {"name": "g-worker-1-0", "uid": "pod-1"}
    return f"{head}.{base64.urlsafe_b64encode(json.dumps(said).encode()).rstrip(b'=').decode()}.{signature}"


STRANGERS = [
    ("", "Malformed"),
    ("garbage", "Malformed"),
    ("a.b.c", "Malformed"),
    ("é" * 40, "Malformed"),
    ("x" * 1_000_000, "Malformed"),
    (unsigned(claims(), {"alg": "none", "kid": CLUSTER_KEY.name}), "BadSignature"),
    (unsigned(claims(), {"alg": "None", "kid": CLUSTER_KEY.name}), "BadSignature"),
    (unsigned(claims(), {"alg": ["RS256"], "kid": CLUSTER_KEY.name}), "BadSignature"),
    (unsigned(claims(), {"alg": "RS256", "kid": 7}), "Malformed"),
    (unsigned(claims(), {"alg": "RS256", "kid": CLUSTER_KEY.name, "crit": ["b64"], "b64": False}), "Malformed"),
    (f"{base64.urlsafe_b64encode(b'[' * 9000).decode()}.e30.e30", "Malformed"),
    (with_public_key_as_secret(), "BadSignature"),
    (tampered(), "BadSignature"),
    (sign(claims(), rsa_key(CLUSTER_KEY.name)), "BadSignature"),
    (sign(claims(), ec_key(CLUSTER_KEY.name)), "BadSignature"),
    (sign(claims(), rsa_key("nobody's")), "UnknownKey"),
    (jwt.encode(claims(), CLUSTER_KEY.private, algorithm="RS256"), "UnknownKey"),
    (sign(claims(aud=["https://kubernetes.default.svc"])), "WrongAudience"),
    (sign(claims(aud=[AUDIENCE, "vault"])), "WrongAudience"),
    (sign(claims(aud=[])), "WrongAudience"),
    (sign(claims(aud=None)), "Malformed"),
    (sign(claims(exp=None)), "Malformed"),
    (sign(claims(exp=int(time.time()) - 60)), "Expired"),
    (sign(claims(nbf=int(time.time()) + 600)), "NotYetValid"),
    (sign(claims(iss="https://another.cluster")), "WrongIssuer"),
    (sign(claims(iss=None)), "WrongIssuer"),
    (sign({name: one for name, one in claims().items() if name != "kubernetes.io"}), "NotBound"),
    (sign(bound(pod=None)), "NotBound"),
    (sign(bound(pod={"name": "g-worker-0-0", "uid": ""})), "NotBound"),
    (sign(bound(pod="g-worker-0-0")), "Malformed"),
    (sign(bound(serviceaccount={"name": "another", "uid": "x"})), "Malformed"),
    (sign(bound(pod={"name": "g-worker-0-0", "uid": "pod-of-nobody"})), "UnknownPod"),
    (sign(bound(pod={"name": "g-worker-1-0", "uid": "pod-0"})), "NotAMember"),
    (sign({**bound(namespace="other"), "sub": "system:serviceaccount:other:default"}), "NotAMember"),
]


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
@pytest.mark.parametrize(("shown", "reason"), STRANGERS, ids=range(len(STRANGERS)))
async def test_a_stranger_is_nobody_and_is_told_why(here: Here, shown: str, reason: str) -> None:
    assert await here.why(shown) == reason
    assert here.issuer.reviewed == []


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (pod(terminated=True), "PodGone"),
        (pod(member="worker-1"), "NotAMember"),
        (pod(incarnation=1), "NotAMember"),
        (pod(gang="uid-other", owner="uid-other"), "NotAMember"),
        (pod(gang="uid-gone", owner="uid-gone"), "PodGone"),
        (pod(owner="uid-other"), "NotAMember"),
        (pod(owner=""), "NotAMember"),
        (pod(namespace="other"), "NotAMember"),
        (pod(name="x-worker-0-0"), "NotAMember"),
    ],
)
async def test_a_pod_isnt_believed_what_its_labels_say(here: Here, found: KubePod, reason: str) -> None:
    here.pods["pod-0"] = found
    here.gangs["uid-other"] = (NAMESPACE, "other")
    assert await here.why(token()) == reason
    assert isinstance(await here.who(token(1)), MemberIdentity), "the others are who they are"


async def test_a_gang_of_the_same_uid_in_another_namespace_has_no_such_member(here: Here) -> None:
    here.gangs[GANG] = ("other", "g")
    assert await here.why(token()) == "NotAMember"


async def test_a_pod_that_is_ending_may_still_speak(here: Here) -> None:
    here.pods["pod-0"] = pod(deleting=True)
    assert await here.who(token()) == WORKER


async def test_a_pod_that_isnt_known_yet_is_asked_to_come_again_and_one_that_was_deleted_is_gone(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = here.pods.pop("pod-0")
    found = await here.who(token())
    assert isinstance(found, Refusal)
    assert (found.reason, found.again) == ("UnknownPod", True)
    here.pods["pod-0"] = late
    assert await here.who(token()) == WORKER
    del here.pods["pod-0"]
    found = await here.who(token())
    assert isinstance(found, Refusal)
    assert (found.reason, found.again) == ("PodGone", False)
    monkeypatch.setattr(token_authenticator, "APPEARING_SECONDS", 0.0)
    del here.pods["pod-1"]
    assert await here.why(token(1)) == "PodGone", "it was waited for"


async def test_a_token_that_was_verified_is_refused_from_the_moment_on_at_which_it_expires(here: Here) -> None:
    short = sign(claims(exp=time.time() - 9.8))  # the clocks may be 10 s apart
    assert await here.who(short) == WORKER
    async with asyncio.timeout(5):
        while await here.who(short) == WORKER:  # noqa: ASYNC110 - time has to pass
            await asyncio.sleep(0.02)
    assert await here.why(short) == "Expired"


async def test_a_new_key_is_found_and_an_old_one_counts_no_more(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "AGAIN_SECONDS", 0.0)
    old = token()
    assert await here.who(old) == WORKER
    new = ec_key("new")
    here.issuer.keys = [new.public]
    assert await here.who(sign(claims(), new)) == WORKER
    assert await here.why(old) == "UnknownKey", "though it was verified before"


async def test_a_flood_of_unknown_keys_makes_no_flood_of_requests(here: Here) -> None:
    await here.who(token())
    stranger = rsa_key()
    flood = [sign(claims(), stranger, kid=f"key-{at}") for at in range(300)]
    assert {await here.why(one) for one in flood} == {"UnknownKey"}
    assert here.issuer.fetched == 1


async def test_keys_that_are_known_go_on_to_be_used_while_the_api_server_is_away(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await here.who(token()) == WORKER
    here.issuer.hidden = status(503, "ServiceUnavailable", "away")
    monkeypatch.setattr(jwks, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(jwks, "AGAIN_SECONDS", 0.0)
    assert await here.who(token(1)) == MemberIdentity(GANG, "worker-1", 0, "pod-1")
    assert here.issuer.fetched == 1, "it was asked for the issuer first, and there it ended"
    assert len(here.issuer.asked) == 3


async def test_while_no_key_is_known_and_the_api_server_is_away_everybody_is_asked_to_come_again(here: Here) -> None:
    here.issuer.hidden = status(503, "ServiceUnavailable", "etcd is away")
    found = await asyncio.gather(*(here.who(token(at % 4)) for at in range(100)))
    assert {(one.reason, one.again) for one in found if isinstance(one, Refusal)} == {("CannotVerify", True)}
    assert all("etcd is away" in one.text for one in found if isinstance(one, Refusal))
    assert (len(here.issuer.asked), here.issuer.reviewed) == (1, [])


@pytest.mark.parametrize("useless", [[], [{"kty": "oct", "k": "c2VjcmV0", "alg": "HS256", "kid": "rsa"}], [{}], [7]])
async def test_without_a_usable_key_the_api_server_is_asked(here: Here, useless: list[Any]) -> None:
    here.issuer.keys = useless
    here.issuer.review = reviewed()
    assert await here.who(token()) == WORKER


def reviewed(**changes: Any) -> dict[str, Any]:
    """What the API server says of the token of worker-0."""
    extra = {
        "authentication.kubernetes.io/pod-name": ["g-worker-0-0"],
        "authentication.kubernetes.io/pod-uid": ["pod-0"],
    }
    user = {"username": f"system:serviceaccount:{NAMESPACE}:default", "extra": extra}
    return {"authenticated": True, "audiences": [AUDIENCE], "user": user, **changes}


HIDDEN = status(403, "Forbidden", "you may not see the keys")


async def test_where_the_keys_are_hidden_each_token_is_reviewed_once_a_minute(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.issuer.hidden, here.issuer.review = HIDDEN, reviewed()
    shown = token()
    for _ in range(5):
        assert await here.who(shown) == WORKER
    assert here.issuer.reviewed == [{"token": shown, "audiences": [AUDIENCE]}]
    monkeypatch.setattr(token_review, "BELIEVED_SECONDS", 0.0)
    assert await here.who(sign(claims(jti="another"))) == WORKER
    assert await here.who(sign(claims(jti="another"))) == WORKER
    assert len(here.issuer.reviewed) in {2, 3}


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
async def test_a_review_is_read_with_the_same_suspicion(here: Here, answer: dict[str, Any] | None, reason: str) -> None:
    here.issuer.hidden, here.issuer.review = HIDDEN, answer
    assert await here.why(token()) == reason


async def test_what_cant_be_a_members_token_is_not_even_reviewed(here: Here) -> None:
    here.issuer.hidden, here.issuer.review = HIDDEN, reviewed()
    for shown, _ in STRANGERS[:6]:
        await here.why(shown)
    stranger = rsa_key()
    assert await here.why(sign(claims(aud=["other"]), stranger)) == "WrongAudience"
    assert await here.why(sign(claims(exp=int(time.time()) - 60), stranger)) == "Expired"
    assert await here.why(sign(bound(pod={"name": "x", "uid": "pod-of-nobody"}), stranger)) == "UnknownPod"
    assert here.issuer.reviewed == []


async def test_tokens_that_wait_for_a_review_are_bounded(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_review, "WAITING", 10)
    here.issuer.hidden, here.issuer.review = HIDDEN, reviewed()
    here.issuer.answering.clear()
    asked = {asyncio.ensure_future(here.who(sign(claims(jti=str(at))))) for at in range(60)}
    await eventually(lambda: sum(one.done() for one in asked) == 50)
    refused = [one.result() for one in asked if one.done()]
    assert {(one.reason, one.again) for one in refused if isinstance(one, Refusal)} == {("CannotVerify", True)}
    assert len(here.issuer.reviewed) <= token_review.AT_ONCE
    here.issuer.answering.set()
    assert sum(one == WORKER for one in await asyncio.gather(*asked)) == 10


async def test_what_is_remembered_is_bounded(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_authenticator, "REMEMBERED", 3)
    monkeypatch.setattr(token_authenticator, "MISSED", 3)
    for at in range(12):
        assert await here.who(sign(claims(at % 4, jti=str(at))))
    assert len(here.authenticator._verified) == 3  # noqa: SLF001 - memory has no other face
    assert len(here.authenticator._may_appear) == 3  # noqa: SLF001
