from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.cluster.errors import Retryable
from gangctl.core.facts.gang import trace_id
from gangctl.core.lifecycle.plan import Plan
from gangctl.core.policy.pods import CreatePod
from gangctl.telemetry import logs
from tests.controller.fake_cluster import FakeCluster, running
from tests.controller.fake_sidecars import job
from tests.controller.test_loop import once
from tests.messages import words
from tests.telemetry.traced_restart import restarted
from tests.wait import until_async


class Log:
    """What was written, as set_up would."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self) -> list[str]:
        return self._path.read_text(encoding="utf-8").splitlines()

    def entries(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.lines()]


@pytest.fixture(params=["json"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    logs.set_up(request.param, tmp_path / "log")
    try:
        yield Log(tmp_path / "log")
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)


def restarts() -> tuple[FakeCluster, Plan]:
    """A gang whose worker has just failed: what is stored, and what is decided next."""
    before, after, *_ = restarted()
    metadata = before.metadata.model_copy(update={"resource_version": "1"})
    world = FakeCluster(jobs={"uid-g": before.model_copy(update={"metadata": metadata})})
    return world, Plan(words(after.status.message), after.status, (CreatePod("worker-0", 0),))


async def test_every_line_of_a_round_has_namespace_gang_attempt_and_trace(log: Log) -> None:
    world, plan = restarts()

    def decide(_now: float, stored: GangJob, _observed: object) -> Plan:
        return plan if stored.status.attempt == 1 else Plan(words("nothing to do"), actions=plan.actions)

    def fail(_create: CreatePod) -> None:
        raise Retryable("no room")

    world.before_create = fail
    async with running(world, decide):
        await until_async("the failure is logged", lambda: any("no room" in line for line in log.lines()))
    sources = ("gangctl.telemetry.logs", "gangctl.controller.actions")
    decision, warning, *_ = (one for one in log.entries() if one["logger"] in sources)
    expected = {
        "namespace": "default",
        "gang": "g",
        "attempt": 2,
        "traceID": trace_id(world.jobs["uid-g"], 2),
    }
    for entry in (decision, warning):
        assert {name: entry[name] for name in expected} == expected
    assert decision["because"] == plan.because
    assert decision["message"] == f"Gathering: {plan.because}"
    assert warning["message"] == "CreatePod failed and will be retried: no room"


@pytest.mark.parametrize("log", ["text"], indirect=True)
async def test_a_text_line_ends_with_gang_attempt_and_trace(log: Log) -> None:
    world, plan = restarts()

    def decide(_now: float, stored: GangJob, _observed: object) -> Plan:
        return plan if stored.status.attempt == 1 else Plan(words("nothing to do"))

    async with running(world, decide):
        await until_async("the decision is logged", lambda: any("Gathering" in line for line in log.lines()))
    (line,) = [line for line in log.lines() if "Gathering" in line]
    trace = trace_id(world.jobs["uid-g"], 2)
    assert line.endswith(f" info    Gathering: {plan.because} [default/g attempt 2 trace {trace}]")


async def test_concurrent_rounds_log_their_own_gang(log: Log) -> None:
    first = job(version="1", attempt=0)
    metadata = first.metadata.model_copy(update={"uid": "uid-h", "name": "h", "namespace": "other"})
    world = FakeCluster(jobs={"uid-g": first, "uid-h": first.model_copy(update={"metadata": metadata})})
    async with running(world, once):
        await until_async("both gangs have a status, a pod and an event", lambda: len(world.done) == 6)
    told = {(one["namespace"], one["gang"]) for one in log.entries() if one["message"] == "Gathering: it begins"}
    assert told == {("default", "g"), ("other", "h")}


async def test_a_line_outside_of_a_round_names_no_gang(log: Log) -> None:
    logging.getLogger("gangctl").warning("hello")
    (entry,) = log.entries()
    assert not {"gang", "namespace", "attempt", "traceID"} & entry.keys()


async def test_a_repeated_decision_is_logged_once(log: Log) -> None:
    """A summary that is written every half a minute is no news, nor is an action that is tried again."""
    world = FakeCluster(jobs={"uid-g": job(version="1", attempt=3, phase=GangPhase.RUNNING)})

    def decide(_now: float, stored: GangJob, _observed: object) -> Plan:
        version = int(stored.metadata.resource_version)
        if version >= 6:
            return Plan(words("done"))
        status = stored.status.model_copy(update={"observed_time": float(version)})
        return Plan(words("attempt 3 runs" if version != 4 else "a worker is late"), status)

    async with running(world, decide):
        await until_async("version 6 is stored", lambda: world.jobs["uid-g"].metadata.resource_version == "6")
    told = [one["message"] for one in log.entries() if one["logger"] == "gangctl.telemetry.logs"]
    assert told == ["Running: attempt 3 runs", "Running: a worker is late", "Running: attempt 3 runs"]


@pytest.mark.parametrize("log", ["text"], indirect=True)
def test_control_characters_in_a_message_are_escaped(log: Log) -> None:
    said = "x\x1b[2J\n2026-01-01T00:00:00Z error  fake\r\u202eevil\u2066\x9b1m"
    logging.getLogger("gangctl").warning("the API server says: %s", said)
    (line,) = log.lines()
    assert line.isprintable()
    assert r"x\x1b[2J\x0a2026-01-01T00:00:00Z error  fake\x0d\u202eevil\u2066\x9b1m" in line


def test_a_json_entry_is_one_ascii_line_and_keeps_the_message(log: Log) -> None:
    said = "x\x1b[2J\n\u202eevil\u2028"
    logging.getLogger("gangctl").warning("%s", said)
    (line,) = log.lines()
    assert line.isascii()
    assert json.loads(line)["message"] == said
