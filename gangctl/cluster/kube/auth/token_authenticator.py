"""The token authenticator: finds the pod that a sidecar's token belongs to, without an API call for each connection.

The rule: a token authenticates a member only if the cluster has signed it, for gangctl's audience alone and for exactly
one pod, and if that pod exists now and belongs to a gang. A pod's labels alone must never be trusted: its name,
namespace, labels and owner have to agree. The token must never be logged.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import jwt

from gangctl.api.names import pod_name
from gangctl.cluster.errors import Retryable, Terminal
from gangctl.cluster.kube.auth.claims import LEEWAY_SECONDS, TokenClaims, parse_claims
from gangctl.cluster.kube.auth.jwks import ALGORITHMS, JWKS
from gangctl.cluster.kube.auth.token_review import TokenReviewer
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.watch.projections import KubePod
from gangctl.cluster.port import MemberIdentity, Refusal, RefusalReason

MAX_TOKEN_CHARACTERS: Final = 16_384
"""Maximum length of a token, in characters."""
MAX_VERIFIED: Final = 20_000
"""Maximum number of verified tokens in the cache: a sidecar reconnects with the same token."""
APPEARING_SECONDS: Final = 30.0
"""Time in which an unknown pod may still appear: a sidecar can connect before the watch shows its pod."""
MAX_UNKNOWN_PODS: Final = 10_000
"""Maximum number of unknown pods that are remembered."""

_UNREADABLE: Final = (jwt.PyJWTError, RecursionError)
"""What PyJWT raises; RecursionError because brackets may be nested as deeply as a token is long."""

FindPod = Callable[[str], KubePod | None]
"""The pod with this UID, if a gang owns it."""
FindGang = Callable[[str], tuple[str, str] | None]
"""Namespace and name of the gang with this UID, if it exists."""


class TokenAuthenticator:
    """Authenticates tokens for one audience."""

    def __init__(self, client: Client, audience: str) -> None:
        self._audience = audience
        self._jwks = JWKS(client)
        self._reviewer = TokenReviewer(client, audience)
        self._verified: OrderedDict[bytes, tuple[TokenClaims, str]] = OrderedDict()
        """By hash of the token: its claims, and the id of the key that signed it."""
        self._unknown_until: OrderedDict[str, float] = OrderedDict()
        """By UID of an unknown pod: until when (monotonic seconds) it may still appear."""

    async def authenticate(self, token: str, find: FindPod, gang: FindGang) -> MemberIdentity | Refusal:
        """The pod that this token belongs to, or why the token is refused."""
        if len(token) > MAX_TOKEN_CHARACTERS or not token.isascii():
            return Refusal(RefusalReason.MALFORMED, "the token is too long, or isn't ASCII")
        claims = await self._claims(token, find)
        if isinstance(claims, Refusal):
            return claims
        pod = find(claims.uid)
        return self._missing(claims.uid) if pod is None else self._matched(pod, claims, gang)

    def _matched(self, found: KubePod, claims: TokenClaims, gang: FindGang) -> MemberIdentity | Refusal:
        pod = found.pod
        self._remember_unknown(pod.uid, 0.0)
        if (found.namespace, pod.name) != (claims.namespace, claims.pod):
            text = f"the pod with its UID is {found.namespace}/{pod.name} instead of {claims.namespace}/{claims.pod}"
            return Refusal(RefusalReason.NOT_A_MEMBER, f"{text:.300}")
        owner = gang(found.gang)
        if owner is None:
            return Refusal(RefusalReason.POD_GONE, f"the gang of pod {pod.name} is gone, or can't be read")
        namespace, name = owner
        expected = pod_name(name, pod.member, pod.incarnation)
        if found.owner != found.gang or found.namespace != namespace or pod.name != expected:
            text = (
                f"pod {pod.name} is labelled as {pod.member}, incarnation {pod.incarnation}, of gang {namespace}/{name}"
            )
            return Refusal(RefusalReason.NOT_A_MEMBER, f"{text}, which doesn't match its name or its owner")
        if pod.terminated:
            return Refusal(RefusalReason.POD_GONE, f"pod {pod.name} has ended")
        return MemberIdentity(found.gang, pod.member, pod.incarnation, pod.uid, namespace)

    def _missing(self, uid: str) -> Refusal:
        now = time.monotonic()
        if uid not in self._unknown_until:
            self._remember_unknown(uid, now + APPEARING_SECONDS)
        if now < self._unknown_until[uid]:
            return Refusal(
                RefusalReason.UNKNOWN_POD, f"no gang has a pod {uid:.40}, or that pod isn't known yet", retryable=True
            )
        return Refusal(RefusalReason.POD_GONE, f"no gang has a pod {uid:.40}")

    def _remember_unknown(self, uid: str, until: float) -> None:
        self._unknown_until[uid] = until
        if len(self._unknown_until) > MAX_UNKNOWN_PODS:
            self._unknown_until.popitem(last=False)

    async def _claims(self, token: str, find: FindPod) -> TokenClaims | Refusal:
        """The claims of a token that the cluster has signed."""
        digest, now = hashlib.sha256(token.encode()).digest(), time.time()
        known = self._verified.get(digest)
        if known is not None and known[0].expires + LEEWAY_SECONDS > now and self._jwks.holds(known[1]):
            return known[0]
        try:
            header = jwt.get_unverified_header(token)
        except _UNREADABLE as error:
            return Refusal(RefusalReason.MALFORMED, f"this isn't a signed token: {error!s:.100}")
        algorithm = str(header.get("alg"))
        if algorithm not in ALGORITHMS:
            return Refusal(
                RefusalReason.BAD_SIGNATURE, f"a signature with the algorithm {algorithm!r:.20} isn't accepted"
            )
        name = str(header.get("kid", ""))
        try:
            key = await self._jwks.find(name)
        except Retryable as error:
            return Refusal(
                RefusalReason.CANNOT_VERIFY, f"the cluster's signing keys can't be fetched: {error}", retryable=True
            )
        except Terminal:
            return await self._reviewed(token, find)
        if key is None:
            return Refusal(
                RefusalReason.UNKNOWN_KEY, f"the token is signed with the key {name!r:.60}, which isn't the cluster's"
            )
        claims = self._signed(token, key, now)
        if isinstance(claims, TokenClaims):
            self._verified[digest] = claims, name
            if len(self._verified) > MAX_VERIFIED:
                self._verified.popitem(last=False)
        return claims

    def _signed(self, token: str, key: jwt.PyJWK, now: float) -> TokenClaims | Refusal:
        try:
            # parse_claims() checks times and audience, and gives a better reason than PyJWT.
            checks: Any = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False}
            decoded = jwt.decode(token, key, algorithms=[key.algorithm_name], issuer=self._jwks.issuer, options=checks)
        except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError):
            return Refusal(RefusalReason.BAD_SIGNATURE, "the cluster has not signed the token")
        except (jwt.InvalidIssuerError, jwt.MissingRequiredClaimError):
            return Refusal(RefusalReason.WRONG_ISSUER, "the token wasn't issued by this cluster")
        except _UNREADABLE as error:
            return Refusal(RefusalReason.MALFORMED, f"the token can't be read: {error!s:.100}")
        return parse_claims(decoded, self._audience, now)

    async def _reviewed(self, token: str, find: FindPod) -> TokenClaims | Refusal:
        """Ask the API server, but only about a token that could be a member's."""
        try:
            decoded = jwt.decode(token, options={"verify_signature": False})
        except _UNREADABLE as error:
            return Refusal(RefusalReason.MALFORMED, f"the token can't be read: {error!s:.100}")
        unverified = parse_claims(decoded, self._audience, time.time())
        if isinstance(unverified, Refusal):
            return unverified
        if find(unverified.uid) is None:
            return self._missing(unverified.uid)
        return await self._reviewer.review(token)
