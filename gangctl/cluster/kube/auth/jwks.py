"""The JSON Web Key Set (JWKS) of the cluster: the public keys of its service account tokens.

The rule: the keys are fetched when a token names an unknown one, and once an hour. They must never be fetched more than
once in ten seconds, whatever keys the tokens name. While the API server is away, the known keys stay in use.
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
"""Algorithms with a public key. ``none`` would accept any token, and HS256 any token signed with the public key."""
FRESH_SECONDS: Final = 3600.0
MIN_FETCH_SECONDS: Final = 10.0
"""Minimum time between two fetches."""
REQUEST_SECONDS: Final = 5.0
"""Time limit of a fetch: sidecars wait for it."""


class JWKS:
    """The keys, by key id."""

    def __init__(self, client: Client) -> None:
        self.issuer = ""
        """Issuer of the cluster's tokens, as the API server publishes it."""
        self._client = client
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at = float("-inf")
        self._fresh_at = float("-inf")
        self._problem: ClusterError = Retryable("the cluster's signing keys haven't been fetched yet")
        self._fetching = asyncio.Lock()

    def holds(self, name: str) -> bool:
        """Whether the key with this id is known now."""
        return name in self._keys

    async def find(self, name: str) -> jwt.PyJWK | None:
        """The key with this id; None if the cluster publishes no such key.

        Raises:
            Retryable: no key is known, and the API server is away.
            Terminal: the API server doesn't publish its keys.
        """
        key, now = self._keys.get(name), time.monotonic()
        if key is not None and (now - self._fresh_at < FRESH_SECONDS or self._fetching.locked()):
            return key
        async with self._fetching:
            if name not in self._keys or time.monotonic() - self._fresh_at >= FRESH_SECONDS:
                await self._refresh()
        if not self._keys:
            raise self._problem
        return self._keys.get(name)

    async def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._fetched_at < MIN_FETCH_SECONDS:
            return
        self._fetched_at = now
        try:
            found, issuer = await self._published()
        except ClusterError as error:
            self._problem = error
            log.warning("the cluster's signing keys can't be fetched: %s", error)
            return
        if found.keys() != self._keys.keys():
            log.info("the cluster's signing keys are now %s", ", ".join(sorted(found)))
        self._keys, self.issuer, self._fresh_at = found, issuer, now

    async def _published(self) -> tuple[dict[str, jwt.PyJWK], str]:
        configuration = await self._get("/.well-known/openid-configuration")
        published = await self._get("/openid/v1/jwks")
        issuer, entries = configuration.get("issuer"), published.get("keys")
        if not isinstance(issuer, str) or not issuer or not isinstance(entries, list):
            raise Terminal("the API server publishes no issuer of tokens, or no keys")
        found = dict(filter(None, map(_key, entries)))
        if not found:
            raise Terminal("the API server publishes no usable key")
        return found, issuer

    async def _get(self, path: str) -> dict[str, Any]:
        try:
            answer = json.loads(await self._client.request("GET", path, timeout=REQUEST_SECONDS))
        except ValueError as error:
            raise Retryable(f"the API server's answer to GET {path} isn't JSON: {error}") from error
        if not isinstance(answer, dict):
            raise Retryable(f"the API server's answer to GET {path} isn't an object")
        return answer


def _key(entry: Any) -> tuple[str, jwt.PyJWK] | None:
    """Id and key; None if the key can't be used here."""
    try:
        key = jwt.PyJWK.from_dict(entry)
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError) as error:
        log.info("one of the cluster's keys can't be used: %s", error)
        return None
    return (str(key.key_id), key) if key.key_id and key.algorithm_name in ALGORITHMS else None
