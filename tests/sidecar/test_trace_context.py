"""TRACEPARENT, as a framework with an OpenTelemetry of its own uses it: the lines of the docs, with the real SDK."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gangctl.api.incident import Cause, Incident
from gangctl.core.facts.gang import trace_parent
from tests.core.world import World
from tests.wait import SECONDS

PAGE = Path(__file__).parents[2] / "docs/tasks/make-a-framework-restartable.md"
TRACE = "5b8aa5a2d2c872e8321cf37308d69df2"
WORKER = """
import json, os
from opentelemetry.propagate import extract
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
tracer = provider.get_tracer("framework")
{lines}
[span] = exporter.get_finished_spans()
parent = span.parent and format(span.parent.span_id, "016x")
print(json.dumps({{"name": span.name, "trace": format(span.context.trace_id, "032x"), "parent": parent}}))
"""


def lines() -> str:
    """What the page tells a framework to write."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    [found] = [block for block in blocks if "TRACEPARENT" in block]
    return str(found)


def span_of_a_worker(variables: dict[str, str], trampoline: tuple[str, ...] = ()) -> dict[str, Any]:
    """The span that a worker's process makes in this environment."""
    source = WORKER.format(lines=lines())
    command = (*trampoline, sys.executable, "-c", source)
    kept = {name: value for name, value in os.environ.items() if name != "TRACEPARENT" and not name.startswith("OTEL_")}
    ended = subprocess.run(
        command, env={**kept, **variables}, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize("trampoline", [(), ("/bin/sh", "-c", 'exec "$0" "$@"')], ids=["itself", "through a shell"])
def test_a_frameworks_own_span_is_a_child_of_the_incidents_root(trampoline: tuple[str, ...]) -> None:
    job = World().job
    cause = Cause(reason="ProcessExited", message="worker-1 was killed", time=datetime.now(UTC))
    incident = Incident(attempt=3, time=datetime.now(UTC), cause=cause, trace_id=TRACE)
    span = span_of_a_worker({"TRACEPARENT": trace_parent(job, incident)}, trampoline)
    assert span == {"name": "build_model", "trace": TRACE, "parent": TRACE[:16]}


@pytest.mark.parametrize("variables", [{}, {"TRACEPARENT": ""}, {"TRACEPARENT": "00-garbage"}])
def test_a_frameworks_span_starts_its_own_trace_in_the_first_attempt(variables: dict[str, str]) -> None:
    span = span_of_a_worker(variables)
    assert span["parent"] is None
    assert span["trace"] not in {TRACE, "0" * 32}
