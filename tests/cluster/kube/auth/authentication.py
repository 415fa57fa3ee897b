"""A token authenticator with the pods and gangs that a test gives it."""

from __future__ import annotations

from dataclasses import dataclass, field

from gangctl.cluster.kube.projections import KubePod
from gangctl.cluster.kube.tokens import TokenAuthenticator
from gangctl.cluster.port import MemberIdentity, Refusal, RefusalReason
from tests.cluster.kube.auth.tokens import (
    GANG,
    NAMESPACE,
    Issuer,
    pod,
)

WORKER = MemberIdentity(GANG, "worker-0", 0, "pod-0")


@dataclass
class Authentication:
    """A token authenticator, and the pods and gangs that it finds."""

    authenticator: TokenAuthenticator
    issuer: Issuer
    pods: dict[str, KubePod] = field(default_factory=lambda: {f"pod-{at}": pod(at) for at in range(4)})
    gangs: dict[str, tuple[str, str]] = field(default_factory=lambda: {GANG: (NAMESPACE, "g")})

    async def authenticate(self, shown: str) -> MemberIdentity | Refusal:
        return await self.authenticator.authenticate(shown, self.pods.get, self.gangs.get)

    async def refusal_reason(self, shown: str) -> RefusalReason:
        """The reason of a refusal. Its text must not contain the token."""
        found = await self.authenticate(shown)
        assert isinstance(found, Refusal), found
        assert shown == "" or shown not in found.text
        return found.reason
