"""The live endpoint: ``GET /v1/gangs/NAME`` answers with a snapshot, so that watching costs no status write.

It is for the user who runs the controller: a random token lies in a file that only this user can read.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Iterable

from aiohttp import web

from gangctl.api.gangjob import GangJob
from gangctl.controller.snapshot import snapshot
from gangctl.core.world import Observed

Gangs = Callable[[], Iterable[tuple[GangJob, Observed]]]
"""All gangs that the controller knows, with the world as it sees it now."""


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(32)


def route(gangs: Gangs, token: str) -> web.RouteDef:
    """The route of the endpoint. ``token`` must be shown as ``Authorization: Bearer TOKEN``."""
    expected = f"Bearer {token}".encode()

    async def answer(request: web.Request) -> web.Response:
        given = request.headers.get("Authorization", "").encode(errors="replace")
        if not hmac.compare_digest(given, expected):
            raise web.HTTPUnauthorized(text="the token in the state directory is needed\n")
        name = request.match_info["name"]
        for job, observed in gangs():
            if job.metadata.name == name:
                text = snapshot(time.time(), job, observed).model_dump_json(by_alias=True, exclude_none=True)
                return web.Response(text=text, content_type="application/json")
        raise web.HTTPNotFound(text=f"this controller knows no gang {name!r:.80}\n")

    return web.get("/v1/gangs/{name}", answer)
