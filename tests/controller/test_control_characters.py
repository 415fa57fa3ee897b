"""Control characters in texts of a worker, a device or an API server are escaped wherever the text is shown."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.api.status import Snapshot, Status
from gangctl.cli.gang_view import GangView
from gangctl.cli.printers import tables
from gangctl.cli.printers.output import console
from gangctl.cluster.kube.events import event_object
from gangctl.core.facts.world import Device
from gangctl.core.lifecycle.plan import Plan
from gangctl.telemetry import logs
from tests.controller.fake_cluster import FakeCluster, running
from tests.core import given
from tests.core.world import World
from tests.messages import words
from tests.wait import until_async

HOSTILE = "[red]x[/red] \x1b[2J\x9b31m\r\n2026-01-01T00:00:00Z error fake\u202e\u2028:smile: <b>"
HARMLESS = r"[red]x[/red] \x1b[2J\x9b31m\x0d\x0a2026-01-01T00:00:00Z error fake\u202e\u2028:smile: <b>"
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u202e\u2028]")


def requested() -> tuple[World, Plan]:
    """A gang whose framework asked for a restart with this text."""
    world = World()
    given.runs(world)
    given.request(world, "worker-1", HOSTILE, None, None)
    return world, world.decide()


def sick() -> tuple[World, Plan]:
    """A gang with an unhealthy device of this name."""
    world = World()
    given.runs(world)
    world.pod("worker-1", devices=(Device("example.com/gpu", HOSTILE, "Unhealthy"),))
    return world, world.decide()


def refused() -> tuple[World, Plan]:
    """A gang whose pods an admission webhook refuses with this text."""
    world = World(refused=(HOSTILE,))
    return world, world.decide()


@pytest.mark.parametrize("happened", [requested, sick, refused])
def test_control_characters_are_escaped_in_status_conditions_reasons_and_events(happened: Any) -> None:
    world, plan = happened()
    assert plan.status is not None
    assert HARMLESS in plan.because
    assert HARMLESS in world.job.status.message
    assert any(HARMLESS in one.message for one in world.job.status.conditions)
    notes = [event_object(world.job, event, pod_uid="", now=1.0, instance="test")["note"] for event in plan.events]
    assert any(HARMLESS in note for note in notes)
    stored = plan.status.model_dump_json(by_alias=True, exclude_none=True)
    for text in (plan.because, *notes, *_texts(json.loads(stored))):
        assert not CONTROLS.search(text), text


@pytest.mark.parametrize("happened", [requested, sick, refused])
def test_an_escaped_status_reads_back_the_same_and_causes_no_second_decision(happened: Any) -> None:
    world, plan = happened()
    assert plan.status is not None
    assert Status.model_validate_json(plan.status.model_dump_json(by_alias=True, exclude_none=True)) == plan.status
    for _ in range(5):
        plan = world.decide()
    assert plan.status is None, "the same text again is no change"


def test_the_command_line_shows_markup_as_plain_text() -> None:
    world, _ = requested()
    status = world.job.status
    snapshot = Snapshot(name="g", uid="uid-g", generation=1, time=world.now, status=status, members=())
    stream = io.StringIO()
    out = console(stream)
    out.print(tables.head(GangView(world.job, snapshot, (), live=True), world.now))
    out.print(tables.incidents(status.incidents))
    text = "".join(line.strip() for line in stream.getvalue().splitlines())
    assert "[red]x[/red]" in text
    assert ":smile: <b>" in text
    assert not CONTROLS.search(text)


@pytest.mark.parametrize("style", logs.FORMATS)
async def test_a_message_with_line_breaks_stays_on_one_line_of_the_log(style: str, tmp_path: Path) -> None:
    _, plan = requested()

    def decide(_now: float, stored: GangJob, _observed: object) -> Plan:
        return plan if stored.status.attempt == 0 else Plan(words("nothing to do"))

    file = tmp_path / "log"
    handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(logs.JsonFormatter() if style == "json" else logs.TextFormatter())
    logger = logging.getLogger("gangctl.telemetry.logs")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        cluster = FakeCluster()
        async with running(cluster, decide):
            await until_async(
                "the decision is logged", lambda: "the framework asked" in file.read_text(encoding="utf-8")
            )
    finally:
        logger.removeHandler(handler)
        handler.close()
    lines = file.read_text(encoding="utf-8").splitlines()
    told = [line for line in lines if "the framework asked" in line]
    assert len(told) == 1
    assert not [line for line in lines if line.startswith("2026-01-01") or CONTROLS.search(line)]


def test_a_message_of_the_api_server_cannot_fake_a_log_line() -> None:
    record = logging.makeLogRecord({"msg": "gang g: an event is lost: %s", "args": (HOSTILE,), "levelname": "WARNING"})
    shown = logs.TextFormatter().format(record)
    assert HARMLESS in shown
    assert not CONTROLS.search(shown)


def _texts(value: Any) -> list[str]:
    match value:
        case dict():
            return [text for one in value.values() for text in _texts(one)]
        case list():
            return [text for one in value for text in _texts(one)]
        case str():
            return [value]
        case _:
            return []
