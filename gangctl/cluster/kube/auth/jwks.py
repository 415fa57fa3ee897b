"""The public keys that the cluster signs service account tokens with, as the API server publishes them.

The rule: they are asked for when a token names one that isn't known, and once an hour; never more often than every ten
seconds, whatever tokens name. While they can't be had, those that are known go on to be used.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any, Final

import jwt

from gangctl.cluster.errors import ClusterError, Retryable, Terminal
from gangctl.cluster.kube.client import Client

log = logging.getLogger(__name__)

ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA"})
"""Those with a public key. With ``none`` anybody could sign, and with HS256 anybody who has read the public key."""
FRESH_SECONDS: Final = 3600.0
AGAIN_SECONDS: Final = 10.0
"""They aren't asked for sooner again."""
REQUEST_SECONDS: Final = 5.0
"""Sidecars wait meanwhile."""


class JWKS:
    """By key id."""

    def __init__(self, client: Client) -> None:
        self.issuer = ""
        """Who issues the cluster's tokens, as the API server says."""
        self._client = client
        self._keys: dict[str, jwt.PyJWK] = {}
        self._asked_at = float("-inf")
        self._fresh_at = float("-inf")
        self._problem: ClusterError = Retryable("the cluster's keys are not known yet")
        self._asking = asyncio.Lock()

    def holds(self, name: str) -> bool:
        """Whether a key of this id is known now."""
        return name in self._keys

    async def find(self, name: str) -> jwt.PyJWK | None:
        """The key of this id; None if the cluster publishes no such key.

        Raises:
            Retryable: no key is known, and the API server is away.
            Terminal: it doesn't tell its keys.
        """
        key, now = self._keys.get(name), time.monotonic()
        if key is not None and (now - self._fresh_at < FRESH_SECONDS or self._asking.locked()):
            return key
        async with self._asking:
            if name not in self._keys or time.monotonic() - self._fresh_at >= FRESH_SECONDS:
                await self._refresh()
        if not self._keys:
            raise self._problem
        return self._keys.get(name)

    async def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._asked_at < AGAIN_SECONDS:
            return
        self._asked_at = now
        try:
            found, issuer = await self._published()
        except ClusterError as error:
            self._problem = error
            log.warning("the keys that the cluster signs tokens with can't be had: %s", error)
            return
        if found.keys() != self._keys.keys():
            log.info("the cluster signs tokens with the keys %s", ", ".join(sorted(found)))
        self._keys, self.issuer, self._fresh_at = found, issuer, now

    async def _published(self) -> tuple[dict[str, jwt.PyJWK], str]:
        about = await self._asked("/.well-known/openid-configuration")
        published = await self._asked("/openid/v1/jwks")
        issuer, entries = about.get("issuer"), published.get("keys")
        if not isinstance(issuer, str) or not issuer or not isinstance(entries, list):
            raise Terminal("the API server names no issuer of tokens, or no keys")
        found = dict(filter(None, map(_key, entries)))
        if not found:
            raise Terminal("the API server publishes no key that can be used")
        return found, issuer

    async def _asked(self, path: str) -> dict[str, Any]:
        try:
            answer = json.loads(await self._client.request("GET", path, timeout=REQUEST_SECONDS))
        except ValueError as error:
            raise Retryable(f"the API server's answer to GET {path} isn't JSON: {error}") from error
        if not isinstance(answer, dict):
            raise Retryable(f"the API server's answer to GET {path} isn't an object")
        return answer


def _key(entry: Any) -> tuple[str, jwt.PyJWK] | None:
    """Id and key; None if it is of no use here."""
    try:
        key = jwt.PyJWK.from_dict(entry)
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError) as error:
        log.info("one of the cluster's keys can't be used: %s", error)
        return None
    return (str(key.key_id), key) if key.key_id and key.algorithm_name in ALGORITHMS else None
