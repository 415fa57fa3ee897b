"""Service account tokens with generated keys, and a fake of the API server's endpoints for them.

A fake, because a real API server can't be made to rotate or hide its keys, or to sign false claims. The end-to-end
tests use real tokens of a real API server.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from gangctl.cluster.kube.projections import KubePod
from gangctl.core.facts.world import Pod
from tests.cluster.kube.fakeapi import status

AUDIENCE = "gangctl.io"
ISSUER = "https://kubernetes.default.svc.cluster.local"
NAMESPACE = "team"
GANG = "uid-g"


@dataclass(frozen=True)
class Key:
    """A key pair."""

    name: str
    algorithm: str
    private: Any

    @property
    def public(self) -> dict[str, Any]:
        """As the API server publishes it."""
        maker: Any = {"R": RSAAlgorithm, "E": ECAlgorithm}.get(self.algorithm[0])
        maker = OKPAlgorithm if self.algorithm == "EdDSA" else maker
        found: dict[str, Any] = json.loads(maker.to_jwk(self.private.public_key()))
        return {**found, "kid": self.name, "alg": self.algorithm, "use": "sig"}


def rsa_key(name: str = "rsa") -> Key:
    return Key(name, "RS256", rsa.generate_private_key(65537, 2048))


def ec_key(name: str = "ec") -> Key:
    return Key(name, "ES256", ec.generate_private_key(ec.SECP256R1()))


def ed_key(name: str = "ed") -> Key:
    return Key(name, "EdDSA", ed25519.Ed25519PrivateKey.generate())


CLUSTER_KEY = rsa_key()


def claims(at: int = 0, **changes: Any) -> dict[str, Any]:
    """The claims of the token of worker-AT's pod."""
    now = int(time.time())
    pod = {"name": f"g-worker-{at}-0", "uid": f"pod-{at}"}
    payload = {
        "aud": [AUDIENCE],
        "exp": now + 3600,
        "iat": now,
        "nbf": now,
        "iss": ISSUER,
        "jti": "6b2e",
        "sub": f"system:serviceaccount:{NAMESPACE}:default",
        "kubernetes.io": {
            "namespace": NAMESPACE,
            "node": {"name": "node-1", "uid": "uid-node-1"},
            "pod": pod,
            "serviceaccount": {"name": "default", "uid": "uid-default"},
        },
    }
    return {name: one for name, one in {**payload, **changes}.items() if one is not None}


def bound(**changes: Any) -> dict[str, Any]:
    """The same, with changes in ``kubernetes.io``."""
    payload = claims()
    return {**payload, "kubernetes.io": {**payload["kubernetes.io"], **changes}}


def sign(payload: Mapping[str, Any], key: Key = CLUSTER_KEY, **headers: Any) -> str:
    """A token."""
    return jwt.encode(dict(payload), key.private, algorithm=key.algorithm, headers={"kid": key.name, **headers})


def unsigned(payload: dict[str, Any], header: dict[str, Any]) -> str:
    """A token without a signature."""
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode() for one in (header, payload)]
    return ".".join((*parts, ""))


def token(at: int = 0) -> str:
    """A valid token."""
    return sign(claims(at))


def pod(at: int = 0, **changes: Any) -> KubePod:
    """The pod of worker-AT, as the informer has it."""
    known = {"name": f"g-worker-{at}-0", "uid": f"pod-{at}", "member": f"worker-{at}", "incarnation": 0}
    owner = changes.pop("owner", GANG)
    namespace, gang = changes.pop("namespace", NAMESPACE), changes.pop("gang", GANG)
    return KubePod(Pod(**{**known, **changes}), namespace, gang, owner)


@dataclass
class Issuer:
    """The API server's endpoints for tokens; a fault of a FakeApi."""

    keys: list[dict[str, Any]] = field(default_factory=lambda: [CLUSTER_KEY.public])
    issuer: str = ISSUER
    hidden: web.Response | None = None
    """The answer instead of the keys."""
    review: dict[str, Any] | None = None
    """The status in the answer to a TokenReview."""
    asked: list[str] = field(default_factory=list)
    """Paths."""
    reviewed: list[dict[str, Any]] = field(default_factory=list)
    """Specs of TokenReviews."""
    answering: asyncio.Event = field(default_factory=asyncio.Event)
    """TokenReviews are answered while it is set."""

    def __post_init__(self) -> None:
        self.answering.set()

    async def __call__(self, request: web.Request) -> web.StreamResponse | None:
        match request.path:
            case "/openid/v1/jwks" | "/.well-known/openid-configuration":
                self.asked.append(request.path)
                if self.hidden is not None:
                    return web.Response(status=self.hidden.status, body=self.hidden.body)
                about = {"issuer": self.issuer} if "known" in request.path else {"keys": self.keys}
                return web.json_response(about)
            case "/apis/authentication.k8s.io/v1/tokenreviews":
                self.reviewed.append((await request.json())["spec"])
                await self.answering.wait()
                if self.review is None:
                    return status(503, "ServiceUnavailable", "no reviews now")
                return web.json_response({"status": self.review}, status=201)
        return None

    @property
    def fetched(self) -> int:
        """Number of times the keys were fetched."""
        return self.asked.count("/openid/v1/jwks")
