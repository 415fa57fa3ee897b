"""Last words: how a pod's worker ended, in the termination message of its container.

Kubernetes keeps that message in the pod's status, so the words outlive the supervisor, its connection and every
controller. They are one line of ASCII, wherever it stands among what others write to the same file::

    gangctl: {"attempt":7,"finished":"0-6","ends":[{"local_rank":7,"age_ms":1200,"exit_code":1}]}

``finished`` are the local ranks that ended with 0 before any stop; ``ends`` are the others, first those that ended by
themselves, oldest first, as many as fit. Reading is lenient, as they may be of another release: it must never fail.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from gangsidecar.wire.coding import MAX_MS
from gangsidecar.wire.messages import End
from gangsidecar.wire.ranges import from_ranges, to_ranges

MARK = "gangctl: "
LINE = 1_000
"""Longest line. A kubelet shares 12 KiB between the containers of a pod, and cuts off the end: twelve have room."""
MESSAGE = 100
_PROCESSES = 4_096
_RANGES = {
    "local_rank": range(_PROCESSES),
    "age_ms": range(MAX_MS + 1),
    "rank": range(2**31),
    "exit_code": range(256),
    "signal": range(1, 65),
}
_FLAGS = ("stopped", "oom", "hidden")


def to_words(ends: Iterable[End]) -> str:
    """The line for the newest attempt of these ends; empty if there is none."""
    known = tuple(ends)
    attempt = max((end.attempt for end in known), default=0)
    newest = [end for end in known if end.attempt == attempt]
    if not newest:
        return ""
    finished = [end.local_rank for end in newest if end.exit_code == 0 and not end.stopped]
    others = [end for end in newest if end.exit_code != 0 or end.stopped]
    told: tuple[dict[str, Any], ...] = ()
    line = _line(attempt, finished, told)
    for end in sorted(others, key=lambda end: (end.stopped, -end.age_ms)):
        longer = _line(attempt, finished, (*told, _told(end)))
        if len(longer) > LINE:
            break
        told, line = (*told, _told(end)), longer
    return line


def from_words(message: str) -> tuple[End, ...]:
    """The ends that a termination message tells; none if it has no such line."""
    for line in message.splitlines():
        body = _object(line[len(MARK) :]) if line.startswith(MARK) else None
        if body is not None:
            return _ends(body)
    return ()


def _line(attempt: int, finished: Iterable[int], ends: tuple[dict[str, Any], ...]) -> str:
    body = {"attempt": attempt, "finished": to_ranges(finished), "ends": ends}
    return MARK + json.dumps({key: value for key, value in body.items() if value}, separators=(",", ":"))


def _told(end: End) -> dict[str, Any]:
    """What isn't its default, without the attempt."""
    values = ((field.name, getattr(end, field.name), field.default) for field in fields(End))
    told = {name: value for name, value, default in values if value != default and name != "attempt"}
    return {**told, "message": end.message[:MESSAGE]} if end.message else told


def _object(text: str) -> dict[str, Any] | None:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) and _is_in(body.get("attempt"), range(2**31)) else None


def _ends(body: dict[str, Any]) -> tuple[End, ...]:
    attempt, finished, others = body["attempt"], body.get("finished"), body.get("ends")
    ranks = from_ranges(finished, _PROCESSES) if isinstance(finished, str) else ()
    found = [End(attempt, rank, 0, exit_code=0) for rank in sorted(ranks)]
    for one in others if isinstance(others, list) else ():
        values = _known(one) if isinstance(one, dict) else {}
        if "local_rank" in values and "age_ms" in values and ("exit_code" in values) != ("signal" in values):
            found.append(End(attempt=attempt, **values))
    return tuple(found)


def _known(one: dict[str, Any]) -> dict[str, Any]:
    """What an end can have: any text may stand there, and a number that no process has could not be stored."""
    known: dict[str, Any] = {name: one[name] for name, allowed in _RANGES.items() if _is_in(one.get(name), allowed)}
    known.update({name: one[name] for name in _FLAGS if type(one.get(name)) is bool})
    return {**known, "message": one["message"][:MESSAGE]} if isinstance(one.get("message"), str) else known


def _is_in(value: Any, allowed: range) -> bool:
    return type(value) is int and value in allowed
