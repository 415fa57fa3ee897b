"""What a service account token says: its form, its times, whom it is meant for, and to which pod it is bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from gangctl.cluster.kube.watch.decoding import Raw, why
from gangctl.cluster.port import Refusal, RefusalReason

LEEWAY_SECONDS: Final = 10
"""So far the clocks of the API server and of this machine may be apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenClaims:
    """The pod that a token is bound to."""

    namespace: str
    pod: str
    """Name of the pod."""
    uid: str
    """UID of the pod."""
    expires: float = 0.0
    """Seconds since the epoch; of a reviewed one it isn't known."""


class _Named(Raw):
    name: str
    uid: str


class _Account(Raw):
    name: str


class _Bound(Raw):
    namespace: str
    serviceaccount: _Account
    pod: _Named | None = None


class _Said(Raw):
    iss: str
    aud: str | tuple[str, ...]
    sub: str
    exp: float
    nbf: float = 0.0


def read(said: Mapping[str, Any], audience: str, now: float) -> TokenClaims | Refusal:
    """The claims of a token, if they are a pod's and for us at ``now`` (seconds since the epoch).

    A token that is meant for others as well isn't taken: each of them could come here with it.
    """
    bound = said.get("kubernetes.io")
    try:
        token = _Said.model_validate(said)
        account = None if bound is None else _Bound.model_validate(bound)
    except ValidationError as error:
        return Refusal(RefusalReason.MALFORMED, f"its claims can't be read: {why(error)}")
    if token.exp + LEEWAY_SECONDS <= now:
        return Refusal(RefusalReason.EXPIRED, f"it has expired {now - token.exp:.0f} s ago")
    if token.nbf - LEEWAY_SECONDS > now:
        return Refusal(RefusalReason.NOT_YET_VALID, f"it begins in {token.nbf - now:.0f} s", again=True)
    if token.aud not in (audience, (audience,)):
        return Refusal(
            RefusalReason.WRONG_AUDIENCE, f"it is meant for {token.aud!r:.100}, and not for {audience} alone"
        )
    if account is None or account.pod is None or not account.pod.uid:
        return Refusal(RefusalReason.NOT_BOUND, "it isn't bound to a pod")
    if token.sub != f"system:serviceaccount:{account.namespace}:{account.serviceaccount.name}":
        return Refusal(RefusalReason.MALFORMED, "its subject isn't the service account that it is bound to")
    return TokenClaims(namespace=account.namespace, pod=account.pod.name, uid=account.pod.uid, expires=token.exp)
