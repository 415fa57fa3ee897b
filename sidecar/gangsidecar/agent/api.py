"""The framework API: HTTP and JSON on a unix socket, for the worker's own ranks.

A handler must never wait for the controller or the supervisor: its answer has what the sidecar knows, or says that the
call was passed on. A stream of server-sent events ends when its reader is gone or the sidecar ends. It must not say the
same twice.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from gangsidecar import wire
from gangsidecar.agent import attempt_gate, operations
from gangsidecar.agent.attempt_gate import AttemptGate, AttemptState
from gangsidecar.agent.http_server import BODY_LIMIT, Answer, Call, Malformed
from gangsidecar.agent.operations import (
    ATTEMPT_ENDING,
    DIRECTORY_TIER,
    OPERATIONS,
    RESTORE_POINT_IGNORED,
    MismatchError,
    Shape,
    check,
)
from gangsidecar.agent.progress import FirstSteps, follows, reported, restore_ignored
from gangsidecar.common import log

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from gangsidecar.agent.attempt_gate import AttemptGate, StopNotice
    from gangsidecar.agent.relay import Relay

RETRY_AFTER = 1
"""Seconds after which a call that found no supervisor may be made again."""

Reply = tuple[int, dict[str, Any]]
"""A status, and the body."""
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
        self._steps = FirstSteps()
        self._posts: dict[str, Callable[[Any], Reply]] = {
            "postProgress": self._progress,
            "postCheckpoint": self._checkpoint,
            "postVerified": self._verified,
            "postLoaded": partial(self._reached, wire.Milestone.CHECKPOINT_LOAD),
            "postJoined": partial(self._reached, wire.Milestone.RENDEZVOUS),
            "postRestart": self._restart,
            "postCorruption": self._corruption,
        }
        self._gets: dict[str, Callable[[], Answer]] = {
            "getAttempt": self._attempt,
            "getEvents": lambda: _stream(self._events()),
            "getStop": lambda: _stream(self._stop()),
            "getDocument": lambda: _json(200, operations.document()),
        }

    def answer(self, call: Call | Malformed) -> Answer:
        try:
            return self._answer(call)
        except ProblemError as error:
            problem = error
        except MismatchError as error:
            problem = ProblemError(400, "BodyInvalid", str(error), field=error.field)
        except Exception as error:  # noqa: BLE001 - without an answer, a rank would repeat the call without end
            log("error", "a call can't be answered, which is a bug", call=f"{call!r:.200}", found=repr(error))
            problem = ProblemError(500, "InternalError", "the sidecar can't answer this call: its log says why")
        later = (("Retry-After", str(RETRY_AFTER)),) if problem.status == 503 else ()  # noqa: PLR2004
        return _json(problem.status, problem.body, *later)

    def _answer(self, call: Call | Malformed) -> Answer:
        if isinstance(call, Malformed):
            raise ProblemError(call.status, "RequestInvalid", f"this isn't a request of HTTP/1.1: {call.reason}")
        found = {one.method: one for one in OPERATIONS if one.path == call.path}
        if not found:
            paths = ", ".join(one.path for one in OPERATIONS)
            raise ProblemError(404, "PathUnknown", f"there is no {call.path[:80]}; there are {paths}")
        operation = found.get(call.method)
        if operation is None:
            wrong = f"{call.path} takes {' or '.join(sorted(found))}, not {call.method[:20]}"
            raise ProblemError(405, "MethodNotAllowed", wrong)
        if call.body is None:
            raise ProblemError(413, "BodyTooLarge", f"the body is over the limit of {BODY_LIMIT} bytes")
        if operation.takes is None:
            return self._gets[operation.name]()
        body = _checked(operation.takes, call.body)
        self._check_caller(body["attempt"], body["rank"])
        return _json(*self._posts[operation.name](body))

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

    def _attempt(self) -> Answer:
        gate = self._relay.gate
        if gate.report is None:
            raise _no_supervisor()
        return _json(200, _described(gate, self._now_ms()))

    def _progress(self, body: Any) -> Reply:
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

    def _checkpoint(self, body: Any) -> Reply:
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

    def _verified(self, body: Any) -> Reply:
        if not self._relay.to_supervisor(wire.Verified(body["attempt"], body["step"])):
            raise _no_supervisor()
        return 200, {}

    def _reached(self, milestone: wire.Milestone, body: Any) -> Reply:
        if self._ending():
            return 200, {"ignored": ATTEMPT_ENDING}
        took = _milliseconds(body["seconds"]) if "seconds" in body else None
        if not self._relay.to_supervisor(wire.Reached(body["attempt"], milestone, 0, took, body["rank"])):
            raise _no_supervisor()
        return 200, {}

    def _restart(self, body: Any) -> Reply:
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

    def _corruption(self, body: Any) -> Reply:
        """Pass it on also in a stop: which step is restored depends on it."""
        attempt, rank = body["attempt"], body.get("rankAtFault", body["rank"])
        run = attempt_gate.live_run(self._relay.gate)
        size = None if run is None else _number(attempt_gate.shared_environment(run).get("WORLD_SIZE", ""))
        if size is not None and rank >= size:
            wrong = f"there is no rank {rank} at fault: the process group has {size} ranks"
            raise ProblemError(422, "RankUnknown", wrong, field="body.rankAtFault")
        found = wire.Corruption(attempt, age_ms=0, since_step=body["sinceStep"], reason=body["reason"], rank=rank)
        if not self._relay.to_supervisor(found):
            raise _no_supervisor()
        return 202, {"incident": attempt + 1}

    async def _events(self) -> AsyncGenerator[bytes, None]:
        """Send the current state, then each change."""
        relay = self._relay
        sent: tuple[str, int] | None = None
        while not relay.closing:
            event = _event(relay.gate, self._now_ms())
            if event is not None and (event[0], event[1]["attempt"]) != sent:
                sent = event[0], event[1]["attempt"]
                yield _as_text(event)
            else:
                await relay.changes.wait()

    async def _stop(self) -> AsyncGenerator[bytes, None]:
        """Send one event, then nothing until the reader has acted on it and closes: the signal waits for that."""
        relay = self._relay
        while not relay.closing and attempt_gate.live_attempt(relay.gate) is None:
            await relay.changes.wait()
        with relay.watching(attempt_gate.current_attempt(relay.gate)):
            is_sent = False
            while not relay.closing:
                event = None if is_sent else _event(relay.gate, self._now_ms())
                if event is not None and event[0] == "stop":
                    yield _as_text(event)
                    is_sent = True
                else:
                    await relay.changes.wait()


def _json(status: int, body: dict[str, Any], *headers: tuple[str, str]) -> Answer:
    return Answer(status, json.dumps(body).encode(), (("Content-Type", "application/json"), *headers))


def _stream(events: AsyncGenerator[bytes, None]) -> Answer:
    return Answer(200, events, (("Content-Type", "text/event-stream"), ("Cache-Control", "no-store")))


def _checked(takes: Shape, body: bytes) -> Any:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MismatchError("body", f"not JSON: {str(error)[:120]}") from None
    return check(takes, found)


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


def _event(gate: AttemptGate, now_ms: int) -> Event | None:
    """Return the event for the current state; None = there is no worker."""
    attempt, notice = attempt_gate.live_attempt(gate), attempt_gate.stop_notice(gate, now_ms)
    if notice is not None:
        return "stop", {"attempt": notice.attempt, **_stopping(notice)}
    return None if attempt is None or attempt_gate.is_ending(gate) else ("run", {"attempt": attempt})


def _as_text(event: Event) -> bytes:
    return f"event: {event[0]}\ndata: {json.dumps(event[1])}\n\n".encode()
