"""Whose token is this? Verified with the cluster's own keys, without an API call for each connection.

The rule: a token speaks for a member only if the cluster has signed it, for us alone and for exactly one pod, and if
that pod is there now and is a gang's. Never is a pod believed what it says of itself: its name, namespace, labels and
owner have to fit together. The token itself is never logged.
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
from gangctl.cluster.kube.auth.claims import LEEWAY_SECONDS, TokenClaims, read
from gangctl.cluster.kube.auth.jwks import ALGORITHMS, JWKS
from gangctl.cluster.kube.auth.token_review import TokenReviewer
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.watch.projections import KubePod
from gangctl.cluster.port import MemberIdentity, Refusal, RefusalReason

LONGEST: Final = 16_384
"""Characters of a token that is looked at."""
REMEMBERED: Final = 20_000
"""Verified tokens that are remembered until they expire: sidecars come back with the same one."""
APPEARING_SECONDS: Final = 30.0
"""A pod that isn't known may still appear for so long: a sidecar can be faster than the watch that tells of its pod."""
MISSED: Final = 10_000
"""Pods of which it is remembered whether they may still appear."""

_UNREADABLE: Final = (jwt.PyJWTError, RecursionError)
"""What PyJWT raises; brackets may be nested as deeply as a token is long."""

FindPod = Callable[[str], KubePod | None]
"""The pod of a UID, if a gang owns it."""
FindGang = Callable[[str], tuple[str, str] | None]
"""Namespace and name of the gang of a UID, if it is there."""


class TokenAuthenticator:
    """Verifies tokens for one audience."""

    def __init__(self, client: Client, audience: str) -> None:
        self._audience = audience
        self._keys = JWKS(client)
        self._reviews = TokenReviewer(client, audience)
        self._verified: OrderedDict[bytes, tuple[TokenClaims, str]] = OrderedDict()
        """By hash of the token, with the id of the key that signed it."""
        self._may_appear: OrderedDict[str, float] = OrderedDict()
        """UID of a pod -> until when (monotonic) it may be missing because it is new."""

    async def authenticate(self, token: str, find: FindPod, gang: FindGang) -> MemberIdentity | Refusal:
        """The member that speaks with this token, or why nobody does."""
        if len(token) > LONGEST or not token.isascii():
            return Refusal(RefusalReason.MALFORMED, "it is too long for a token, or isn't ASCII")
        claims = await self._claims(token, find)
        if isinstance(claims, Refusal):
            return claims
        pod = find(claims.uid)
        return self._missing(claims.uid) if pod is None else self._there(pod, claims, gang)

    def _there(self, found: KubePod, claims: TokenClaims, gang: FindGang) -> MemberIdentity | Refusal:
        pod = found.pod
        self._keep_in_mind(pod.uid, 0.0)
        if (found.namespace, pod.name) != (claims.namespace, claims.pod):
            text = f"the pod of its UID is {found.namespace}/{pod.name}, and not {claims.namespace}/{claims.pod}"
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
            return Refusal(RefusalReason.NOT_A_MEMBER, f"{text}, and that isn't its name or its owner")
        if pod.terminated:
            return Refusal(RefusalReason.POD_GONE, f"pod {pod.name} has ended")
        return MemberIdentity(found.gang, pod.member, pod.incarnation, pod.uid)

    def _missing(self, uid: str) -> Refusal:
        now = time.monotonic()
        if uid not in self._may_appear:
            self._keep_in_mind(uid, now + APPEARING_SECONDS)
        if now < self._may_appear[uid]:
            return Refusal(RefusalReason.UNKNOWN_POD, f"no gang has a pod {uid:.40}, or it isn't known yet", again=True)
        return Refusal(RefusalReason.POD_GONE, f"no gang has a pod {uid:.40}")

    def _keep_in_mind(self, uid: str, until: float) -> None:
        self._may_appear[uid] = until
        if len(self._may_appear) > MISSED:
            self._may_appear.popitem(last=False)

    async def _claims(self, token: str, find: FindPod) -> TokenClaims | Refusal:
        """What a token says that the cluster has signed."""
        digest, now = hashlib.sha256(token.encode()).digest(), time.time()
        known = self._verified.get(digest)
        if known is not None and known[0].expires + LEEWAY_SECONDS > now and self._keys.holds(known[1]):
            return known[0]
        try:
            header = jwt.get_unverified_header(token)
        except _UNREADABLE as error:
            return Refusal(RefusalReason.MALFORMED, f"it isn't a signed token: {error!s:.100}")
        algorithm = str(header.get("alg"))
        if algorithm not in ALGORITHMS:
            return Refusal(RefusalReason.BAD_SIGNATURE, f"a signature by {algorithm!r:.20} proves nothing")
        name = str(header.get("kid", ""))
        try:
            key = await self._keys.find(name)
        except Retryable as error:
            return Refusal(RefusalReason.CANNOT_VERIFY, f"the cluster's keys can't be had: {error}", again=True)
        except Terminal:
            return await self._reviewed(token, find)
        if key is None:
            return Refusal(RefusalReason.UNKNOWN_KEY, f"it is signed with {name!r:.60}, which isn't the cluster's key")
        claims = self._signed(token, key, now)
        if isinstance(claims, TokenClaims):
            self._verified[digest] = claims, name
            if len(self._verified) > REMEMBERED:
                self._verified.popitem(last=False)
        return claims

    def _signed(self, token: str, key: jwt.PyJWK, now: float) -> TokenClaims | Refusal:
        try:
            # Times and audience are looked at by read(), which says more about what is wrong with them.
            checks: Any = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False}
            said = jwt.decode(token, key, algorithms=[key.algorithm_name], issuer=self._keys.issuer, options=checks)
        except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError):
            return Refusal(RefusalReason.BAD_SIGNATURE, "the cluster has not signed it")
        except (jwt.InvalidIssuerError, jwt.MissingRequiredClaimError):
            return Refusal(RefusalReason.WRONG_ISSUER, "it isn't issued by this cluster")
        except _UNREADABLE as error:
            return Refusal(RefusalReason.MALFORMED, f"it can't be read: {error!s:.100}")
        return read(said, self._audience, now)

    async def _reviewed(self, token: str, find: FindPod) -> TokenClaims | Refusal:
        """Ask the API server; but not about what can't be a member's in any case."""
        try:
            said = jwt.decode(token, options={"verify_signature": False})
        except _UNREADABLE as error:
            return Refusal(RefusalReason.MALFORMED, f"it can't be read: {error!s:.100}")
        unproven = read(said, self._audience, time.time())
        if isinstance(unproven, Refusal):
            return unproven
        if find(unproven.uid) is None:
            return self._missing(unproven.uid)
        return await self._reviews.review(token)
