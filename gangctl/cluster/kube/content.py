"""The contents of the API server's answers: one as a whole, up to a limit, or line by line."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import aiohttp

from gangctl.cluster.errors import Retryable


class TooLarge(Retryable):
    """The answer is larger than the caller takes. The rest was not read."""


async def read(content: aiohttp.StreamReader, most: int) -> bytes:
    """All of it.

    Raises:
        TooLarge: it has more than ``most`` bytes.
    """
    chunks, size = [], 0
    async for chunk in content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            raise TooLarge(f"an answer is larger than {most} bytes")
    return b"".join(chunks)


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length: aiohttp's own reader fails for an object of a megabyte."""
    pending: list[bytes] = []
    async for chunk in content.iter_any():
        first, *others = chunk.split(b"\n")
        pending.append(first)
        for following in others:
            line = b"".join(pending)
            pending = [following]
            if line:
                yield line
    if line := b"".join(pending):
        yield line


def status_parts(body: bytes) -> tuple[str, str, str]:
    """Reason, message and disruption budget of a Status; of a proxy's page its beginning as the message."""
    try:
        parsed = json.loads(body)
    except ValueError:
        return "", " ".join(body[:300].decode(errors="replace").split()), ""
    if not isinstance(parsed, dict):
        return "", "", ""
    details = parsed.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    found = causes if isinstance(causes, list) else []
    named = [one for one in found if isinstance(one, dict) and one.get("reason") == "DisruptionBudget"]
    budget = str(named[0].get("message") or named[0]["reason"]) if named else ""
    return str(parsed.get("reason") or ""), str(parsed.get("message") or ""), budget
