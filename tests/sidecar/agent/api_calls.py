"""Calls to the framework API, checked against its own document."""

from __future__ import annotations

from typing import Any

import jsonschema

from gangsidecar import wire
from gangsidecar.agent import operations
from tests.sidecar.agent.sidecars import (
    World,
)

RESTORE = wire.Restore(1200, "shared", "/checkpoints/1200")


WHO = {"attempt": 3, "rank": 4}


STEP = {**WHO, "phase": "Step", "step": 1201}


CHECKPOINT = {**WHO, "tier": "ram", "step": 1300, "state": "Completed", "path": "/dev/shm/1300"}


LOADED = {**WHO, "seconds": 2.5}


RESTART = {**WHO, "reason": "the loss is NaN", "level": "Pod", "excludeThisNode": True}
CORRUPTION = {**WHO, "reason": "the loss is NaN", "sinceStep": 1100}


DOCUMENT = operations.document()
POSTS: dict[str, dict[str, Any]] = {
    "/v1/progress": STEP,
    "/v1/checkpoints": CHECKPOINT,
    "/v1/checkpoints/loaded": LOADED,
    "/v1/joined": LOADED,
    "/v1/restart": RESTART,
    "/v1/corruption": CORRUPTION,
    "/v1/checkpoints/verified": {**WHO, "step": 1200},
}


def valid(shape: dict[str, Any], body: Any) -> bool:
    """Whether the body matches the document."""
    whole = {**shape, "components": DOCUMENT["components"]}
    return bool(jsonschema.Draft202012Validator(whole).is_valid(body))


async def call(here: World, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Call, and compare the answer with the document that this sidecar publishes."""
    status, answer = await here.sidecar.call(method, path, body)
    described = DOCUMENT["paths"][path][method.lower()]["responses"][str(status)]
    content = described["content"]["application/json"]
    assert valid(content["schema"], answer), answer
    return status, answer
