"""Calls that the framework API refuses, and what it answers."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gangsidecar import wire
from gangsidecar.agent.api import Api
from gangsidecar.agent.http_server import Call
from gangsidecar.agent.relay import Relay
from tests.sidecar.agent.api_calls import CHECKPOINT, LOADED, POSTS, RESTART, STEP, WHO, call
from tests.sidecar.agent.sidecars import (
    REPORT,
    controller,
    sidecar,
    supervisor,
    training,
    until,
    world,
)


@pytest.mark.parametrize("path", POSTS)
async def test_another_attempt_gets_409_with_the_current_one(directory: Path, path: str) -> None:
    async with training(directory) as here:
        for attempt, reason in ((2, "AttemptOver"), (4, "AttemptNotRunning")):
            status, answer = await call(here, "POST", path, {**POSTS[path], "attempt": attempt})
            assert status == 409
            assert answer["error"]["reason"] == reason
            assert answer["error"]["attempt"] == 3


@pytest.mark.parametrize("path", POSTS)
async def test_a_rank_of_another_member_gets_422(directory: Path, path: str) -> None:
    async with training(directory) as here:
        status, answer = await call(here, "POST", path, {**POSTS[path], "rank": 6})
        assert status == 422
        assert "4, 5" in answer["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/checkpoints", "/v1/checkpoints/loaded", "/v1/restart"])
async def test_a_call_without_a_supervisor_gets_503_until_it_is_back(directory: Path, path: str) -> None:
    async with training(directory) as here:
        here.supervisor.writer.transport.abort()
        await until(lambda: "the supervisor's connection ended" in here.sidecar.log())
        assert (await call(here, "POST", path, POSTS[path]))[0] == 503
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(here.sidecar.socket))) as session,
            session.post(f"http://gang{path}", json=POSTS[path]) as answer,
        ):
            assert answer.headers["Retry-After"] == "1"
        async with supervisor(directory, replace(REPORT, seq=99, attempt=3, phase=wire.Phase.RUNNING)):
            await until(lambda: here.connection.reports()[-1].seq == 99)
            assert (await call(here, "POST", path, POSTS[path]))[0] in {200, 202}


async def test_every_call_before_the_first_report_gets_503(directory: Path) -> None:
    async with controller() as above, sidecar(directory, above.url) as here:
        for method, path, body in (("GET", "/v1/attempt", None), *(("POST", *one) for one in POSTS.items())):
            status, answer = await here.call(method, path, body)
            assert (status, answer["error"]["reason"]) == (503, "SupervisorAway")


WRONG: list[tuple[str, Any, str, str]] = [
    ("/v1/progress", b"{", "body", "not JSON"),
    ("/v1/progress", b"", "body", "not JSON"),
    ("/v1/progress", b"\xff", "body", "not JSON"),
    ("/v1/progress", b"[" * 60_000, "body", "not JSON"),
    ("/v1/progress", [], "body", "an array instead of an object"),
    ("/v1/progress", {**STEP, "stepp": 1}, "body.stepp", "unknown"),
    ("/v1/progress", WHO, "body.phase", "missing"),
    ("/v1/progress", {**STEP, "step": "7"}, "body.step", "a string instead of a number"),
    ("/v1/progress", {**STEP, "step": True}, "body.step", "a boolean"),
    ("/v1/progress", {**STEP, "step": 1.5}, "body.step", "whole"),
    ("/v1/progress", {**STEP, "step": -1}, "body.step", "from 0"),
    ("/v1/progress", {**STEP, "step": 10**400}, "body.step", "from 0"),
    ("/v1/progress", {**STEP, "seconds": math.nan}, "body.seconds", "from 0"),
    ("/v1/progress", {**STEP, "seconds": math.inf}, "body.seconds", "from 0"),
    ("/v1/progress", {**STEP, "seconds": None}, "body.seconds", "null"),
    ("/v1/progress", {**STEP, "phase": "Sleeping"}, "body.phase", "Startup, Step"),
    ("/v1/checkpoints", {**CHECKPOINT, "tier": ""}, "body.tier", "0 characters"),
    ("/v1/checkpoints", {**CHECKPOINT, "path": "p" * 5000}, "body.path", "5000 characters"),
    ("/v1/checkpoints/loaded", WHO, "body.seconds", "missing"),
    ("/v1/checkpoints/loaded", {**LOADED, "seconds": -0.1}, "body.seconds", "from 0"),
    ("/v1/checkpoints/loaded", {**LOADED, "seconds": math.nan}, "body.seconds", "from 0"),
    ("/v1/checkpoints/loaded", {**LOADED, "seconds": -math.inf}, "body.seconds", "from 0"),
    ("/v1/checkpoints/loaded", {**LOADED, "seconds": 10**400}, "body.seconds", "from 0"),
    ("/v1/checkpoints/loaded", {**LOADED, "seconds": "2.5"}, "body.seconds", "a string instead of a number"),
    ("/v1/checkpoints/loaded", {**LOADED, "step": 7}, "body.step", "unknown"),
    ("/v1/restart", {**RESTART, "level": "Container"}, "body.level", "Process, Pod, Gang"),
    ("/v1/restart", {**RESTART, "excludeThisNode": 1}, "body.excludeThisNode", "a number instead of"),
]


async def test_a_wrong_body_gets_400_with_the_path_of_the_field(directory: Path) -> None:
    async with training(directory) as here:
        for path, body, field, text in WRONG:
            status, answer = await call(here, "POST", path, body)
            assert status == 400
            assert (answer["error"]["reason"], answer["error"]["field"]) == ("BodyInvalid", field)
            assert text in answer["error"]["message"]
        assert here.supervisor.all(wire.Checkpoint) == []
        assert here.supervisor.all(wire.Reached) == []


async def test_a_misspelt_checkpoint_tier_gets_422_with_the_tiers_that_there_are(directory: Path) -> None:
    async with training(directory) as here:
        status, answer = await call(here, "POST", "/v1/checkpoints", {**CHECKPOINT, "tier": "rma"})
        assert status == 422
        assert (answer["error"]["reason"], answer["error"]["field"]) == ("TierUnknown", "body.tier")
        assert "no checkpoint tier 'rma'; spec.checkpoint.tiers has ram, near, shared" in answer["error"]["message"]
        assert here.supervisor.all(wire.Checkpoint) == []


async def test_a_directory_tier_needs_no_registration(directory: Path) -> None:
    async with training(directory) as here:
        status, answer = await call(here, "POST", "/v1/checkpoints", {**CHECKPOINT, "tier": "shared"})
        assert (status, answer["ignored"]) == (200, "DirectoryTier")
        assert "tier shared itself" in answer["message"]
        assert here.supervisor.all(wire.Checkpoint) == []


async def test_a_body_over_64_kib_gets_413(directory: Path) -> None:
    async with training(directory) as here:
        assert (await call(here, "POST", "/v1/progress", b" " * 65_537))[0] == 413
        assert (await call(here, "POST", "/v1/progress", json.dumps(STEP).encode().ljust(65_536)))[0] == 200


async def test_a_bug_in_a_handler_gets_an_answer_too(capfd: pytest.CaptureFixture[str]) -> None:
    def broken() -> int:
        raise RuntimeError("no clock")

    relay = Relay(asyncio.get_running_loop())
    relay.from_supervisor("", REPORT)
    answer = Api(relay, broken).answer(Call("GET", "/v1/attempt", b""))
    assert answer.status == 500
    assert "RuntimeError('no clock')" in capfd.readouterr().err


async def test_the_answer_to_an_unknown_path_or_method_lists_those_that_exist(directory: Path) -> None:
    async with world(directory) as here:
        status, answer = await here.sidecar.call("GET", "/v2/attempt")
        assert status == 404
        assert "/v1/attempt" in answer["error"]["message"]
        status, answer = await here.sidecar.call("GET", "/v1/progress")
        assert status == 405
        assert "POST" in answer["error"]["message"]
