"""The claims of a service account token: their form, validity period, audience, and the pod that they are bound to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from gangctl.cluster.kube.watch.decoding import Raw, first_error
from gangctl.cluster.port import Refusal, RefusalReason

LEEWAY_SECONDS: Final = 10
"""Maximum difference between the clocks of the API server and of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenClaims:
    """The pod that a token is bound to."""

    namespace: str
    pod: str
    """Name of the pod."""
    uid: str
    """UID of the pod."""
    expires: float = 0.0
    """Seconds since the epoch; 0 if a TokenReview gave the claims, which doesn't contain it."""


class _Named(Raw):
    name: str
    uid: str


class _Account(Raw):
    name: str


class _Bound(Raw):
    namespace: str
    serviceaccount: _Account
    pod: _Named | None = None


class _Registered(Raw):
    iss: str
    aud: str | tuple[str, ...]
    sub: str
    exp: float
    nbf: float = 0.0


def parse_claims(claims: Mapping[str, Any], audience: str, now: float) -> TokenClaims | Refusal:
    """The pod that a token is bound to, if the token is valid for ``audience`` at ``now`` (seconds since the epoch).

    A token with a second audience is refused: a server of that audience could use it here.
    """
    bound = claims.get("kubernetes.io")
    try:
        token = _Registered.model_validate(claims)
        account = None if bound is None else _Bound.model_validate(bound)
    except ValidationError as error:
        return Refusal(RefusalReason.MALFORMED, f"the token's claims can't be read: {first_error(error)}")
    if token.exp + LEEWAY_SECONDS <= now:
        return Refusal(RefusalReason.EXPIRED, f"the token expired {now - token.exp:.0f} s ago")
    if token.nbf - LEEWAY_SECONDS > now:
        return Refusal(
            RefusalReason.NOT_YET_VALID, f"the token becomes valid in {token.nbf - now:.0f} s", retryable=True
        )
    if token.aud not in (audience, (audience,)):
        return Refusal(
            RefusalReason.WRONG_AUDIENCE, f"the token's audience is {token.aud!r:.100} instead of {audience} alone"
        )
    if account is None or account.pod is None or not account.pod.uid:
        return Refusal(RefusalReason.NOT_BOUND, "the token isn't bound to a pod")
    if token.sub != f"system:serviceaccount:{account.namespace}:{account.serviceaccount.name}":
        return Refusal(RefusalReason.MALFORMED, "the token's subject isn't the service account that it is bound to")
    return TokenClaims(namespace=account.namespace, pod=account.pod.name, uid=account.pod.uid, expires=token.exp)
