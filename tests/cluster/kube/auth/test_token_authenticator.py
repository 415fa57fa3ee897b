from __future__ import annotations

import base64
import json
import time

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from gangctl.cluster.kube import tokens
from gangctl.cluster.kube.projections import KubePod
from gangctl.cluster.port import MemberIdentity, Refusal
from tests.cluster.kube.auth.authentication import WORKER, Authentication
from tests.cluster.kube.auth.tokens import (
    AUDIENCE,
    CLUSTER_KEY,
    GANG,
    NAMESPACE,
    bound,
    claims,
    ec_key,
    pod,
    rsa_key,
    sign,
    token,
    unsigned,
)


async def test_a_signed_token_authenticates_its_member(auth: Authentication) -> None:
    assert await auth.authenticate(token()) == WORKER
    assert await auth.authenticate(token(3)) == MemberIdentity(GANG, "worker-3", 0, "pod-3")


def public_pem() -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    pem: bytes = CLUSTER_KEY.private.public_key().public_bytes(serialization.Encoding.PEM, form)
    return pem


def signed_with_the_public_key() -> str:
    """The known attack: HS256 with the public key as the secret."""
    import hashlib  # noqa: PLC0415
    import hmac  # noqa: PLC0415

    payload = unsigned(claims(), {"alg": "HS256", "typ": "JWT", "kid": CLUSTER_KEY.name}).rstrip(".")
    signature = hmac.new(public_pem(), payload.encode(), hashlib.sha256).digest()
    return f"{payload}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def tampered() -> str:
    head, body, signature = token().split(".")
    payload = json.loads(base64.urlsafe_b64decode(body + "=="))
    payload["kubernetes.io"]["pod"] = {"name": "g-worker-1-0", "uid": "pod-1"}
    return f"{head}.{base64.urlsafe_b64encode(json.dumps(payload).encode()).rstrip(b'=').decode()}.{signature}"


INVALID_TOKENS = [
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
    (signed_with_the_public_key(), "BadSignature"),
    (tampered(), "BadSignature"),
    (sign(claims(), rsa_key(CLUSTER_KEY.name)), "BadSignature"),
    (sign(claims(), ec_key(CLUSTER_KEY.name)), "BadSignature"),
    (sign(claims(), rsa_key("unknown")), "UnknownKey"),
    (jwt.encode(claims(), CLUSTER_KEY.private, algorithm="RS256"), "UnknownKey"),
    (sign(claims(aud=["https://kubernetes.default.svc"])), "WrongAudience"),
    (sign(claims(aud=[AUDIENCE, "vault"])), "WrongAudience"),
    (sign(claims(aud=[])), "WrongAudience"),
    (sign(claims(aud=None)), "Malformed"),
    (sign(claims(exp=None)), "Malformed"),
    (sign(claims(exp=int(time.time()) - 60)), "Expired"),
    (sign(claims(nbf=int(time.time()) + 86_400)), "NotYetValid"),
    (sign(claims(iss="https://another.cluster")), "WrongIssuer"),
    (sign(claims(iss=None)), "WrongIssuer"),
    (sign({name: one for name, one in claims().items() if name != "kubernetes.io"}), "NotBound"),
    (sign(bound(pod=None)), "NotBound"),
    (sign(bound(pod={"name": "g-worker-0-0", "uid": ""})), "NotBound"),
    (sign(bound(pod="g-worker-0-0")), "Malformed"),
    (sign(bound(serviceaccount={"name": "another", "uid": "x"})), "Malformed"),
    (sign(bound(pod={"name": "g-worker-0-0", "uid": "unknown-pod"})), "UnknownPod"),
    (sign(bound(pod={"name": "g-worker-1-0", "uid": "pod-0"})), "NotAMember"),
    (sign({**bound(namespace="other"), "sub": "system:serviceaccount:other:default"}), "NotAMember"),
]


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
@pytest.mark.parametrize(("shown", "reason"), INVALID_TOKENS, ids=range(len(INVALID_TOKENS)))
async def test_an_invalid_token_is_refused_with_its_reason(auth: Authentication, shown: str, reason: str) -> None:
    assert await auth.refusal_reason(shown) == reason
    assert auth.issuer.reviewed == []


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
async def test_the_labels_of_a_pod_alone_are_not_trusted(auth: Authentication, found: KubePod, reason: str) -> None:
    auth.pods["pod-0"] = found
    auth.gangs["uid-other"] = (NAMESPACE, "other")
    assert await auth.refusal_reason(token()) == reason
    assert isinstance(await auth.authenticate(token(1)), MemberIdentity), "other pods are not affected"


async def test_a_gang_in_another_namespace_has_no_such_member(auth: Authentication) -> None:
    auth.gangs[GANG] = ("other", "g")
    assert await auth.refusal_reason(token()) == "NotAMember"


async def test_a_terminating_pod_is_authenticated(auth: Authentication) -> None:
    auth.pods["pod-0"] = pod(deleting=True)
    assert await auth.authenticate(token()) == WORKER


async def test_an_unknown_pod_may_retry_and_a_deleted_pod_may_not(
    auth: Authentication, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = auth.pods.pop("pod-0")
    found = await auth.authenticate(token())
    assert isinstance(found, Refusal)
    assert (found.reason, found.retryable) == ("UnknownPod", True)
    auth.pods["pod-0"] = late
    assert await auth.authenticate(token()) == WORKER
    del auth.pods["pod-0"]
    found = await auth.authenticate(token())
    assert isinstance(found, Refusal)
    assert (found.reason, found.retryable) == ("PodGone", False)
    monkeypatch.setattr(tokens, "APPEARING_SECONDS", 0.0)
    del auth.pods["pod-1"]
    assert await auth.refusal_reason(token(1)) == "PodGone", "the time in which it may appear is over"


async def test_a_cached_token_is_refused_once_it_has_expired(
    auth: Authentication, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, expires = time.time, time.time() + 600
    short = sign(claims(exp=expires))
    assert await auth.authenticate(short) == WORKER
    later = expires + tokens.LEEWAY_SECONDS - real()
    monkeypatch.setattr(time, "time", lambda: real() + later)
    assert await auth.refusal_reason(short) == "Expired"


async def test_what_is_known_of_unknown_pods_is_bounded(auth: Authentication, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_UNKNOWN_PODS", 3)
    for at in range(12):
        assert await auth.authenticate(sign(claims(at % 4, jti=str(at))))
    assert len(auth.authenticator._unknown_until) == 3  # noqa: SLF001
