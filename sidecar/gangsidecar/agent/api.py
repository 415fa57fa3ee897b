"""The framework API: HTTP and JSON on a unix socket, for the worker's own ranks.

No handler waits for the controller or the supervisor: an answer says what is known here, or that it was handed on.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

from gangsidecar import wire
from gangsidecar.agent import attempt_gate, operations
from gangsidecar.agent.attempt_gate import Verdict
from gangsidecar.agent.downlink import open_to_all
from gangsidecar.agent.operations import OPERATIONS, Operation
from gangsidecar.agent.schema import MismatchError, check
from gangsidecar.common.log import log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gangsidecar.agent.relay import Relay

BODY_LIMIT = 64 * 1024
RETRY_AFTER = 1
"""Seconds after which a call that found no supervisor may be made again."""
GOODBYE = 0.5
"""Seconds for calls that are being answered when the sidecar ends."""

Answer = tuple[int, dict[str, Any]]


class ProblemError(Exception):
    """A call that is answered with an error."""

    def __init__(self, status: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"reason": reason, "message": message, **details}}


class Api:
    """The handlers, by the names of :data:`operations.OPERATIONS`."""

    def __init__(self, relay: Relay, now_ms: Callable[[], int]) -> None:
        self._relay = relay
        self._now_ms = now_ms
        self._document = json.dumps(operations.document()).encode()
        self._stepped: tuple[int, frozenset[int]] = (0, frozenset())
        """An attempt, and its ranks that have reported a step."""

    async def open(self, path: str) -> web.AppRunner:
        """Listen on ``path``; a socket that a former sidecar has left there is replaced.

        Raises:
            OSError: it can't be listened on.
        """
        application = web.Application(middlewares=[_errors], client_max_size=BODY_LIMIT)
        bodies: dict[str, Callable[[Any], Answer]] = {
            "postProgress": self._progress,
            "postCheckpoint": self._checkpoint,
            "postLoaded": self._loaded,
            "postRestart": self._restart,
        }
        plain: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
            "getAttempt": self._attempt,
            "getEvents": self._events,
            "getDocument": self._get_document,
        }
        for one in OPERATIONS:
            handler = plain.get(one.name) or self._taking(one, bodies[one.name])
            application.router.add_route(one.method, one.path, handler)
        # A stream whose reader has gone ends at once.
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=GOODBYE)
        await runner.setup()
        await web.UnixSite(runner, path).start()
        open_to_all(path)
        return runner

    def _taking(
        self, operation: Operation, handle: Callable[[Any], Answer]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """A handler of a POST: its body is read, checked by the table, and judged by its attempt and rank."""
        takes = operation.takes
        if takes is None:
            raise ValueError(operation.name)

        async def handler(request: web.Request) -> web.StreamResponse:
            body = check(takes, _parsed(await request.read()))
            self._judge(body["attempt"], body["rank"])
            status, answer = handle(body)
            return web.json_response(answer, status=status)

        return handler

    def _judge(self, attempt: int, rank: int) -> None:
        """Does this attempt and rank speak here?

        Raises:
            ProblemError: 409, 422, or 503 while nobody knows.
        """
        now = self._relay.standing
        current = attempt_gate.current(now)
        match attempt_gate.judge(now, attempt):
            case Verdict.UNKNOWN:
                raise _no_supervisor()
            case Verdict.OVER:
                message = f"attempt {attempt} is over: the current attempt is {current}"
                raise ProblemError(409, "AttemptOver", message, attempt=current)
            case Verdict.ABSENT:
                message = f"no worker of attempt {attempt} runs here: the current attempt is {current}"
                raise ProblemError(409, "AttemptNotRunning", message, attempt=current)
            case _:
                run = attempt_gate.run_of(now)
                ranks = () if run is None else attempt_gate.ranks_of(run)
                if ranks and rank not in ranks:
                    message = f"rank {rank} is not of this member, whose ranks are {', '.join(map(str, ranks))}"
                    raise ProblemError(422, "RankUnknown", message, field="body.rank")

    def _ending(self) -> bool:
        return attempt_gate.ending(self._relay.standing)

    async def _attempt(self, _request: web.Request) -> web.StreamResponse:
        now = self._relay.standing
        if now.report is None:
            raise _no_supervisor()
        return web.json_response(_described(now, self._now_ms()))

    def _progress(self, body: Any) -> Answer:
        if self._ending():
            return 200, {"ignored": "AttemptEnding"}
        attempt, rank, step = body["attempt"], body["rank"], body["step"]
        first = body["phase"] == "Step" and self._first_step(attempt, rank)
        message = _restore_ignored(attempt_gate.run_of(self._relay.standing), step) if first else ""
        # A step that doesn't go on from the restore point isn't known to be the first: that one may have got lost.
        timed = first and not message and "seconds" in body
        self._relay.pacing.add(attempt, body["phase"], step, _milliseconds(body["seconds"]) if timed else None)
        if not message:
            return 200, {}
        log("warning", "RestorePointIgnored", attempt=attempt, rank=rank, found=message)
        return 200, {"warning": "RestorePointIgnored", "message": message}

    def _first_step(self, attempt: int, rank: int) -> bool:
        known, ranks = self._stepped
        ranks = ranks if known == attempt else frozenset()
        self._stepped = attempt, ranks | {rank}
        return rank not in ranks

    def _checkpoint(self, body: Any) -> Answer:
        place = {name: body[name] for name in ("tier", "step", "rank", "attempt")}
        completed = body["state"] == "Completed"
        # One that is begun exists no more than one that was dropped: it is being written over.
        message = wire.Checkpoint(**place, path=body.get("path", "")) if completed else wire.Dropped(**place)
        if not self._relay.hand(message):
            raise _no_supervisor()
        return 200, {}

    def _loaded(self, body: Any) -> Answer:
        if self._ending():
            return 200, {"ignored": "AttemptEnding"}
        took = _milliseconds(body["seconds"])
        if not self._relay.hand(wire.Loaded(body["attempt"], age_ms=0, milliseconds=took, rank=body["rank"])):
            raise _no_supervisor()
        return 200, {}

    def _restart(self, body: Any) -> Answer:
        attempt = body["attempt"]
        if self._ending():
            return 202, {"incident": attempt + 1, "ignored": "AttemptEnding"}
        request = wire.Request(
            attempt=attempt,
            age_ms=0,
            reason=body["reason"],
            rank=body["rank"],
            level=wire.Level(body.get("level", wire.Level.PROCESS.value)),
            exclude_node=body.get("excludeThisNode", False),
        )
        if not self._relay.hand(request):
            raise _no_supervisor()
        return 202, {"incident": attempt + 1}

    async def _events(self, request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await stream.prepare(request)
        sent: tuple[str, int] | None = None
        while not self._relay.closing:
            event = _event(self._relay.standing, self._now_ms())
            if event is not None and (event[0], event[1]["attempt"]) != sent:
                sent = event[0], event[1]["attempt"]
                await stream.write(f"event: {event[0]}\ndata: {json.dumps(event[1])}\n\n".encode())
            else:
                await self._relay.changes.wait()
        return stream

    async def _get_document(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(body=self._document, content_type="application/json")


@web.middleware
async def _errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except ProblemError as problem:
        answer = problem
    except MismatchError as error:
        answer = ProblemError(400, "BodyInvalid", str(error), field=error.field)
    except web.HTTPRequestEntityTooLarge:
        answer = ProblemError(413, "BodyTooLarge", f"the body is over the limit of {BODY_LIMIT} bytes")
    except web.HTTPNotFound:
        paths = ", ".join(one.path for one in OPERATIONS)
        answer = ProblemError(404, "PathUnknown", f"there is no {request.path[:80]}; there are {paths}")
    except web.HTTPMethodNotAllowed as error:
        allowed = " or ".join(sorted(error.allowed_methods))
        answer = ProblemError(405, "MethodNotAllowed", f"{request.path} takes {allowed}, not {request.method[:20]}")
    headers = {"Retry-After": str(RETRY_AFTER)} if answer.status == 503 else None  # noqa: PLR2004
    return web.json_response(answer.body, status=answer.status, headers=headers)


def _no_supervisor() -> ProblemError:
    message = f"no supervisor is connected to the sidecar just now: try again after {RETRY_AFTER} s"
    return ProblemError(503, "SupervisorAway", message)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MismatchError("body", f"not JSON: {str(error)[:120]}") from None


def _restore_ignored(run: wire.Run | None, step: int) -> str:
    """The sentence about a first step that doesn't go on from the restore point; "" if it does, or nobody can say."""
    if run is None or not run.checkpointed:
        return ""
    start = 0 if run.restore is None else run.restore.step
    if step in {start, start + 1}:
        return ""
    source = "there is no restore point" if run.restore is None else f"the restore point is step {start}"
    return f"{source}, but the first step reported is {step}: the framework has loaded something else"


def _described(now: attempt_gate.Standing, now_ms: int) -> dict[str, Any]:
    report, run, directive = now.report, attempt_gate.run_of(now), now.run
    if report is None:
        return {}
    body: dict[str, Any] = {
        "gang": report.gang,
        "member": report.member,
        "attempt": attempt_gate.current(now),
        "phase": report.phase.value,
    }
    if run is not None and directive is not None:
        shared = attempt_gate.environment(run)
        found = {
            "ranks": list(attempt_gate.ranks_of(run)),
            "worldSize": _number(shared.get("WORLD_SIZE", "")),
            "masterAddress": shared.get("MASTER_ADDR") or shared.get("PET_MASTER_ADDR"),
            "masterPort": _number(shared.get("MASTER_PORT") or shared.get("PET_MASTER_PORT", "")),
            "restore": None if run.restore is None else _restore(run.restore, report.checkpoints),
            "reason": directive.reason,
        }
        body |= {name: value for name, value in found.items() if value}
    stop = attempt_gate.stop_of(now, now_ms)
    if stop is not None:
        body["stopping"] = _stopping(stop)
    return body


def _restore(restore: wire.Restore, registered: tuple[wire.Checkpoint, ...]) -> dict[str, Any]:
    place = restore.tier, restore.step
    paths = [{"rank": one.rank, "path": one.path} for one in registered if (one.tier, one.step) == place and one.path]
    where = {"path": restore.path, "paths": paths}
    return {"step": restore.step, "tier": restore.tier, **{name: value for name, value in where.items() if value}}


def _stopping(stop: attempt_gate.Stop) -> dict[str, Any]:
    why = {"reason": stop.reason} if stop.reason else {}
    return {**why, "planned": stop.planned, "millisecondsLeft": stop.left_ms}


def _event(now: attempt_gate.Standing, now_ms: int) -> tuple[str, dict[str, Any]] | None:
    """What a worker should know now; None = there is no worker."""
    attempt, stop = attempt_gate.speaking(now), attempt_gate.stop_of(now, now_ms)
    if stop is not None:
        return "stop", {"attempt": stop.attempt, **_stopping(stop)}
    return None if attempt is None or attempt_gate.ending(now) else ("run", {"attempt": attempt})


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None
