"""The framework API: HTTP and JSON on a unix socket, for the worker's own ranks.

A handler must never wait for the controller or the supervisor: its answer has what the sidecar knows, or says that the
call was passed on. A stream of server-sent events ends when its reader is gone or the sidecar ends. It must not say the
same twice.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web

from gangsidecar import wire
from gangsidecar.agent import attempt_gate, operations
from gangsidecar.agent.attempt_gate import AttemptGate, AttemptState
from gangsidecar.agent.operations import (
    ATTEMPT_ENDING,
    DIRECTORY_TIER,
    OPERATIONS,
    RESTORE_POINT_IGNORED,
    MismatchError,
    Operation,
    check,
)
from gangsidecar.agent.progress import FirstSteps, follows, reported, restore_ignored
from gangsidecar.agent.relay import open_to_all
from gangsidecar.common import log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gangsidecar.agent.attempt_gate import AttemptGate, StopNotice
    from gangsidecar.agent.relay import Relay

BODY_LIMIT = 64 * 1024
RETRY_AFTER = 1
"""Seconds after which a call that found no supervisor may be made again."""
GOODBYE = 0.5
"""Seconds for calls that are being answered when the sidecar ends."""

Answer = tuple[int, dict[str, Any]]
Event = tuple[str, dict[str, Any]]


class ProblemError(Exception):
    """The call gets an error as its answer."""

    def __init__(self, status: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"reason": reason, "message": message, **details}}


class Api:
    """The handlers, by the names in :data:`operations.OPERATIONS`."""

    def __init__(self, relay: Relay, now_ms: Callable[[], int]) -> None:
        self._relay = relay
        self._now_ms = now_ms
        self._document = json.dumps(operations.document()).encode()
        self._steps = FirstSteps()

    async def open(self, path: str) -> web.AppRunner:
        """Listen on ``path``; a socket that an earlier sidecar left there is replaced. OSError: it can't be done."""
        application = web.Application(middlewares=[_errors], client_max_size=BODY_LIMIT)
        bodies: dict[str, Callable[[Any], Answer]] = {
            "postProgress": self._progress,
            "postCheckpoint": self._checkpoint,
            "postLoaded": partial(self._reached, wire.Milestone.CHECKPOINT_LOAD),
            "postJoined": partial(self._reached, wire.Milestone.RENDEZVOUS),
            "postRestart": self._restart,
        }
        plain: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
            "getAttempt": self._attempt,
            "getEvents": self._events,
            "getStop": self._stop,
            "getDocument": self._get_document,
        }
        for one in OPERATIONS:
            handler = plain.get(one.name) or self._taking(one, bodies[one.name])
            application.router.add_route(one.method, one.path, handler)
        # A stream ends as soon as its reader is gone.
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=GOODBYE)
        await runner.setup()
        await web.UnixSite(runner, path).start()
        open_to_all(path)
        return runner

    def _taking(
        self, operation: Operation, handle: Callable[[Any], Answer]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """The handler of a POST: it reads the body, checks it by the table, and checks its attempt and rank."""
        takes = operation.takes
        if takes is None:
            raise ValueError(operation.name)

        async def handler(request: web.Request) -> web.StreamResponse:
            try:
                json_body = json.loads(await request.read())
            except (ValueError, RecursionError) as error:
                raise MismatchError("body", f"not JSON: {str(error)[:120]}") from None
            body = check(takes, json_body)
            self._check_caller(body["attempt"], body["rank"])
            status, answer = handle(body)
            return web.json_response(answer, status=status)

        return handler

    def _check_caller(self, attempt: int, rank: int) -> None:
        """Raise ProblemError (409, 422 or 503) unless this rank of this attempt may call."""
        gate = self._relay.gate
        current = attempt_gate.current_attempt(gate)
        match attempt_gate.state_of(gate, attempt):
            case AttemptState.UNKNOWN:
                raise _no_supervisor()
            case AttemptState.OVER:
                message = f"attempt {attempt} is over: the current attempt is {current}"
                raise ProblemError(409, "AttemptOver", message, attempt=current)
            case AttemptState.ABSENT:
                message = f"no worker of attempt {attempt} runs here: the current attempt is {current}"
                raise ProblemError(409, "AttemptNotRunning", message, attempt=current)
            case _:
                run = attempt_gate.live_run(gate)
                ranks = () if run is None else attempt_gate.ranks_of(run)
                if ranks and rank not in ranks:
                    message = f"rank {rank} isn't a rank of this member, whose ranks are {', '.join(map(str, ranks))}"
                    raise ProblemError(422, "RankUnknown", message, field="body.rank")

    def _ending(self) -> bool:
        return attempt_gate.is_ending(self._relay.gate)

    async def _attempt(self, _request: web.Request) -> web.StreamResponse:
        gate = self._relay.gate
        if gate.report is None:
            raise _no_supervisor()
        return web.json_response(_described(gate, self._now_ms()))

    def _progress(self, body: Any) -> Answer:
        if self._ending():
            return 200, {"ignored": ATTEMPT_ENDING}
        attempt, rank, step = body["attempt"], body["rank"], body["step"]
        before, message, timed = self._steps, "", False
        if body["phase"] == "Step":
            self._steps = reported(before, attempt, rank, step)
            run = attempt_gate.live_run(self._relay.gate)
            message = restore_ignored(run, before, self._steps, rank)
            # A step that doesn't follow the restore point may not be the first: the first may have got lost.
            is_first = self._steps.ranks.keys() != before.ranks.keys() or before.attempt != attempt
            timed = is_first and "seconds" in body and follows(run, step)
            if "seconds" in body:
                self._relay.progress.took(attempt, rank, _milliseconds(body["seconds"]))
        first_ms = _milliseconds(body["seconds"]) if timed else None
        who = {"rank": rank, "pid": body.get("pid")}
        self._relay.progress.add(attempt, body["phase"], step, first_ms, self._steps.every, **who)
        if not message:
            return 200, {}
        log("warning", RESTORE_POINT_IGNORED, attempt=attempt, rank=rank, found=message)
        return 200, {"warning": RESTORE_POINT_IGNORED, "message": message}

    def _checkpoint(self, body: Any) -> Answer:
        run, tier = attempt_gate.live_run(self._relay.gate), body["tier"]
        tiers = {} if run is None else attempt_gate.checkpoint_tiers(run)
        if tiers and tier not in tiers:
            wrong = f"the GangJob has no checkpoint tier {tier[:80]!r}; spec.checkpoint.tiers has {', '.join(tiers)}"
            raise ProblemError(422, "TierUnknown", wrong, field="body.tier")
        if tiers.get(tier) == "Directory":
            why = f"gangctl lists the directory of tier {tier} itself: its checkpoints need no registration"
            return 200, {"ignored": DIRECTORY_TIER, "message": why}
        owner = body.get("owner", body["rank"])
        if run is not None and owner != body["rank"] and tier != attempt_gate.peers_tier(run):
            wrong = f"rank {body['rank']} holds no copy for rank {owner}: tier {tier} does not have scope Peers"
            raise ProblemError(422, "OwnerUnknown", wrong, field="body.owner")
        place = {"tier": tier, "step": body["step"], "rank": owner, "attempt": body["attempt"]}
        completed = body["state"] == "Completed"
        # A checkpoint that is begun is being overwritten, so it exists no more than a dropped one.
        message = wire.Checkpoint(**place, path=body.get("path", "")) if completed else wire.Dropped(**place)
        if not self._relay.to_supervisor(message):
            raise _no_supervisor()
        return 200, {}

    def _reached(self, milestone: wire.Milestone, body: Any) -> Answer:
        if self._ending():
            return 200, {"ignored": ATTEMPT_ENDING}
        took = _milliseconds(body["seconds"]) if "seconds" in body else None
        if not self._relay.to_supervisor(wire.Reached(body["attempt"], milestone, 0, took, body["rank"])):
            raise _no_supervisor()
        return 200, {}

    def _restart(self, body: Any) -> Answer:
        attempt = body["attempt"]
        if self._ending():
            return 202, {"incident": attempt + 1, "ignored": ATTEMPT_ENDING}
        request = wire.Request(
            attempt=attempt,
            age_ms=0,
            reason=body["reason"],
            rank=body["rank"],
            level=wire.Level(body.get("level", wire.Level.PROCESS.value)),
            exclude_node=body.get("excludeThisNode", False),
        )
        if not self._relay.to_supervisor(request):
            raise _no_supervisor()
        return 202, {"incident": attempt + 1}

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send the current state, then each change."""
        relay, stream = self._relay, await _begin_stream(request)
        sent: tuple[str, int] | None = None
        while not relay.closing:
            event = _event(relay.gate, self._now_ms())
            if event is not None and (event[0], event[1]["attempt"]) != sent:
                sent = event[0], event[1]["attempt"]
                await stream.write(_as_text(event))
            else:
                await relay.changes.wait()
        return stream

    async def _stop(self, request: web.Request) -> web.StreamResponse:
        """Send one event, then nothing until the reader has acted on it and closes: the signal waits for that."""
        relay, stream = self._relay, await _begin_stream(request)
        while not relay.closing and attempt_gate.live_attempt(relay.gate) is None:
            await relay.changes.wait()
        with relay.watching(attempt_gate.current_attempt(relay.gate)):
            is_sent = False
            while not relay.closing:
                event = None if is_sent else _event(relay.gate, self._now_ms())
                if event is not None and event[0] == "stop":
                    await stream.write(_as_text(event))
                    is_sent = True
                else:
                    await relay.changes.wait()
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
    message = f"no supervisor is connected to the sidecar right now: try again after {RETRY_AFTER} s"
    return ProblemError(503, "SupervisorAway", message)


def _described(gate: AttemptGate, now_ms: int) -> dict[str, Any]:
    report, run, directive = gate.report, attempt_gate.live_run(gate), gate.run
    if report is None:
        return {}
    body: dict[str, Any] = {
        "gang": report.gang,
        "member": report.member,
        "attempt": attempt_gate.current_attempt(gate),
        "phase": report.phase.value,
    }
    if run is not None and directive is not None:
        shared = attempt_gate.shared_environment(run)
        found = {
            "ranks": list(attempt_gate.ranks_of(run)),
            "worldSize": _number(shared.get("WORLD_SIZE", "")),
            "masterAddress": shared.get("MASTER_ADDR") or shared.get("PET_MASTER_ADDR"),
            "masterPort": _number(shared.get("MASTER_PORT") or shared.get("PET_MASTER_PORT", "")),
            "restore": None if run.restore is None else _restore(run.restore, report.checkpoints),
            "reason": directive.reason,
        }
        body |= {name: value for name, value in found.items() if value}
    stop = attempt_gate.stop_notice(gate, now_ms)
    if stop is not None:
        body["stopping"] = _stopping(stop)
    return body


def _restore(restore: wire.Restore, registered: tuple[wire.Checkpoint, ...]) -> dict[str, Any]:
    place = restore.tier, restore.step
    paths = [{"rank": one.rank, "path": one.path} for one in registered if (one.tier, one.step) == place and one.path]
    where = {"path": restore.path, "paths": paths}
    return {"step": restore.step, "tier": restore.tier, **{name: value for name, value in where.items() if value}}


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _stopping(notice: StopNotice) -> dict[str, Any]:
    """The stop, as answers and events describe it."""
    why = {"reason": notice.reason} if notice.reason else {}
    return {**why, "planned": notice.planned, "millisecondsLeft": notice.left_ms}


async def _begin_stream(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await stream.prepare(request)
    return stream


def _event(gate: AttemptGate, now_ms: int) -> Event | None:
    """Return the event for the current state; None = there is no worker."""
    attempt, notice = attempt_gate.live_attempt(gate), attempt_gate.stop_notice(gate, now_ms)
    if notice is not None:
        return "stop", {"attempt": notice.attempt, **_stopping(notice)}
    return None if attempt is None or attempt_gate.is_ending(gate) else ("run", {"attempt": attempt})


def _as_text(event: Event) -> bytes:
    return f"event: {event[0]}\ndata: {json.dumps(event[1])}\n\n".encode()
