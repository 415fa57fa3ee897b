"""Jaeger on the control plane: it receives spans from pods, and returns traces through its query API."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from e2e.cluster import addresses
from e2e.cluster.lab import Lab
from tests.wait import until

PROGRAM: Final = "jaeger"
OTLP_PORT: Final = 4318
QUERY_PORT: Final = 16686
ROOT: Final = "gang.restart"
MICRO: Final = 1e-6
T = TypeVar("T")


@dataclass(frozen=True)
class Span:
    """One span as Jaeger stored it. Times are in seconds since the epoch, exact to a microsecond."""

    span_id: str
    parent: str
    """The parent's span id; empty for a root."""
    follows: tuple[str, ...]
    """Ids of the traces that it links to."""
    name: str
    service: str
    begin: float
    seconds: float
    tags: Mapping[str, Any]

    @property
    def end(self) -> float:
        """When it ended."""
        return self.begin + self.seconds


@dataclass(frozen=True)
class Trace:
    """All spans of a trace that Jaeger has, each one once."""

    trace_id: str
    spans: tuple[Span, ...]
    doubles: tuple[tuple[Span, Span], ...] = ()
    """Pairs of different spans that were stored with one id."""

    @cached_property
    def root(self) -> Span | None:
        """The span of the incident; the controller sends it last."""
        return next((span for span in self.spans if span.name == ROOT), None)

    def under(self, parent: Span) -> list[Span]:
        """The children of a span, by time."""
        return sorted((one for one in self.spans if one.parent == parent.span_id), key=lambda one: one.begin)

    def named(self, name: str) -> list[Span]:
        """All spans of this name, by time."""
        return sorted((one for one in self.spans if one.name == name), key=lambda one: one.begin)

    def only(self, name: str) -> Span:
        """The only span of this name."""
        found = self.named(name)
        assert len(found) == 1, f"{len(found)} spans {name} in {self}"
        return found[0]

    def __str__(self) -> str:
        return "\n".join([f"trace {self.trace_id}", *self._lines("", 1)])

    def _lines(self, parent: str, depth: int) -> Iterator[str]:
        ids = {one.span_id for one in self.spans}
        for one in sorted(self.spans, key=lambda one: one.begin):
            if one.parent == parent or (not parent and one.parent not in ids):
                who = one.tags.get("gang.member", "")
                yield f"{'  ' * depth}{one.name} {who} at {one.begin:.3f} for {one.seconds:.3f} s {dict(one.tags)}"
                yield from self._lines(one.span_id, depth + 1)


class Jaeger:
    """The Jaeger of a cluster of our own."""

    def __init__(self, lab: Lab) -> None:
        self._machine = lab.control_plane.machine
        self.endpoint = f"http://{addresses.CONTROL}:{OTLP_PORT}"
        """Where pods and controllers send spans (OTEL_EXPORTER_OTLP_ENDPOINT)."""
        self._host = addresses.entrance(lab.control_plane.number)
        self.url = f"http://{self._host}:{QUERY_PORT}"
        """The URL of the query API, as seen from the host."""

    def start(self) -> Jaeger:
        """Start it unless it runs already, and wait until it answers.

        Raises:
            TimeoutError: it does not answer; its log is in the cluster's folder.
        """
        if self._machine.program(PROGRAM) is None:
            self._machine.start(PROGRAM, "--collector.otlp.enabled=true", "--log-level=warn")
        until("Jaeger", lambda: self._answers("/api/services"))
        return self

    def trace(self, trace_id: str) -> Trace | None:
        """The spans of a trace that it has; None if it has none."""
        code, answer = self._get(f"/api/traces/{trace_id}?raw=true")
        if code == http.client.NOT_FOUND:
            return None
        assert code == http.client.OK, answer
        return _read(answer["data"][0])

    def until(self, what: str, trace_id: str, holds: Callable[[Trace], T | None], seconds: float = 60.0) -> T:
        """Wait until a condition holds for a trace; what the condition found.

        Raises:
            TimeoutError: it did not hold in time; the message has the last trace.
        """
        last: Trace | None = None

        def look() -> T | None:
            nonlocal last
            last = self.trace(trace_id)
            return None if last is None else holds(last)

        try:
            return until(f"{what} in trace {trace_id}", look, seconds, every=0.2)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; it is: {last}") from None

    def whole(self, trace_id: str, seconds: float = 60.0) -> Trace:
        """Wait for the whole trace of an incident: the root is sent last.

        Raises:
            TimeoutError: the root did not arrive in time.
        """
        return self.until("the root", trace_id, lambda trace: trace if trace.root else None, seconds)

    def of_service(self, service: str, **tags: str) -> list[str]:
        """Ids of the traces with a span of this service with these tags, as the search page finds them."""
        asked = urlencode({"service": service, "limit": 100, "tags": json.dumps(tags)})
        code, answer = self._get(f"/api/traces?{asked}")
        assert code == http.client.OK, answer
        return [str(one["traceID"]) for one in answer["data"]]

    def _answers(self, path: str) -> bool:
        try:
            return self._get(path)[0] == http.client.OK
        except OSError:
            return False

    def _get(self, path: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self._host, QUERY_PORT, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


def _read(found: dict[str, Any]) -> Trace:
    processes = {name: process["serviceName"] for name, process in found["processes"].items()}
    spans: dict[str, Span] = {}
    doubles = []
    for one in (_span(raw, processes) for raw in found["spans"]):
        before = spans.setdefault(one.span_id, one)
        if before != one:
            doubles.append((before, one))
    return Trace(found["traceID"], tuple(spans.values()), tuple(doubles))


def _span(raw: dict[str, Any], processes: Mapping[str, str]) -> Span:
    references = raw.get("references", [])
    return Span(
        span_id=raw["spanID"],
        parent=next((one["spanID"] for one in references if one["refType"] == "CHILD_OF"), ""),
        follows=tuple(one["traceID"] for one in references if one["refType"] == "FOLLOWS_FROM"),
        name=raw["operationName"],
        service=processes[raw["processID"]],
        begin=raw["startTime"] * MICRO,
        seconds=raw["duration"] * MICRO,
        tags={tag["key"]: tag["value"] for tag in raw["tags"]},
    )
