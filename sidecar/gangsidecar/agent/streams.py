"""The server-sent events of the framework API.

A stream ends when its reader is gone or the sidecar ends. It must not tell the same twice.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

from gangsidecar.agent import attempt_gate

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangsidecar.agent.attempt_gate import AttemptGate, StopNotice
    from gangsidecar.agent.relay import Relay

Event = tuple[str, dict[str, Any]]


async def events(relay: Relay, now_ms: Callable[[], int], request: web.Request) -> web.StreamResponse:
    """The current state, then each change."""
    stream = await _begun(request)
    sent: tuple[str, int] | None = None
    while not relay.closing:
        event = _event(relay.gate, now_ms())
        if event is not None and (event[0], event[1]["attempt"]) != sent:
            sent = event[0], event[1]["attempt"]
            await stream.write(_as_text(event))
        else:
            await relay.changes.wait()
    return stream


async def stop(relay: Relay, now_ms: Callable[[], int], request: web.Request) -> web.StreamResponse:
    """One event, then nothing until the reader has acted on it and closes: that is what the signal waits for."""
    stream = await _begun(request)
    while not relay.closing and attempt_gate.live_attempt(relay.gate) is None:
        await relay.changes.wait()
    with relay.watching(attempt_gate.current_attempt(relay.gate)):
        told = False
        while not relay.closing:
            event = None if told else _event(relay.gate, now_ms())
            if event is not None and event[0] == "stop":
                await stream.write(_as_text(event))
                told = True
            else:
                await relay.changes.wait()
    return stream


def stopping(notice: StopNotice) -> dict[str, Any]:
    """The stop, as answers and events describe it."""
    why = {"reason": notice.reason} if notice.reason else {}
    return {**why, "planned": notice.planned, "millisecondsLeft": notice.left_ms}


async def _begun(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await stream.prepare(request)
    return stream


def _event(gate: AttemptGate, now_ms: int) -> Event | None:
    """The event for the current state; None = there is no worker."""
    attempt, notice = attempt_gate.live_attempt(gate), attempt_gate.stop_notice(gate, now_ms)
    if notice is not None:
        return "stop", {"attempt": notice.attempt, **stopping(notice)}
    return None if attempt is None or attempt_gate.is_ending(gate) else ("run", {"attempt": attempt})


def _as_text(event: Event) -> bytes:
    return f"event: {event[0]}\ndata: {json.dumps(event[1])}\n\n".encode()
