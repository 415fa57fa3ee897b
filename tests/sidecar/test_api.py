"""The framework API: every call, every refusal, and its document, which is compared with what really is answered."""

from __future__ import annotations

import asyncio
import json
import math
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangsidecar import wire
from gangsidecar.agent import operations, schema
from tests.sidecar.sidecars import (
    HOLD,
    REPORT,
    World,
    controller,
    folder,
    run,
    sidecar,
    supervisor,
    training,
    until,
    world,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

directory = pytest.fixture(folder)
RESTORE = wire.Restore(1200, "shared", "/checkpoints/1200")
WHO = {"attempt": 3, "rank": 4}
STEP = {**WHO, "phase": "Step", "step": 1201}
CHECKPOINT = {**WHO, "tier": "ram", "step": 1300, "state": "Completed", "path": "/dev/shm/1300"}
LOADED = {**WHO, "seconds": 2.5}
RESTART = {**WHO, "reason": "the loss is NaN", "level": "Pod", "excludeThisNode": True}
DOCUMENT = operations.document()


def valid(shape: dict[str, Any], body: Any) -> bool:
    """Is the body what the document says?"""
    whole = {**shape, "components": DOCUMENT["components"]}
    return bool(jsonschema.Draft202012Validator(whole).is_valid(body))


async def call(here: World, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Call, and compare the answer with the document that this sidecar publishes."""
    status, answer = await here.sidecar.call(method, path, body)
    described = DOCUMENT["paths"][path][method.lower()]["responses"][str(status)]
    content = described["content"]["application/json"]
    assert valid(content["schema"], answer), answer
    return status, answer


async def test_the_attempt_is_described(directory: Path) -> None:
    async with training(directory, RESTORE) as here:
        assert await call(here, "GET", "/v1/attempt") == (
            200,
            {
                "gang": "gang-uid",
                "member": "worker-2",
                "attempt": 3,
                "phase": "Running",
                "ranks": [4, 5],
                "worldSize": 8,
                "masterAddress": "10.0.0.7",
                "masterPort": 29401,
                "restore": {"step": 1200, "tier": "shared", "path": "/checkpoints/1200"},
                "reason": "worker-1 was killed",
            },
        )


async def test_each_rank_finds_the_path_that_it_registered_in_a_member_tier(directory: Path) -> None:
    async with training(directory, wire.Restore(1300, "ram")) as here:
        registered = tuple(wire.Checkpoint("ram", step, 4, 2, f"/dev/shm/{step}") for step in (1300, 1200))
        await here.report(attempt=3, phase=wire.Phase.RUNNING, checkpoints=registered)
        _, answer = await call(here, "GET", "/v1/attempt")
        assert answer["restore"] == {"step": 1300, "tier": "ram", "paths": [{"rank": 4, "path": "/dev/shm/1300"}]}


async def test_a_worker_that_calls_before_its_supervisor_said_running_is_known(directory: Path) -> None:
    async with world(directory) as here:
        await here.report(attempt=3, phase=wire.Phase.READY)
        assert (await call(here, "POST", "/v1/progress", STEP))[0] == 409
        await here.direct(run(3, RESTORE))
        assert (await call(here, "POST", "/v1/progress", STEP))[0] == 200


async def test_the_attempt_tells_of_a_stop_and_how_long_is_left(directory: Path) -> None:
    async with training(directory) as here:
        await here.direct(replace(HOLD, attempt=4, reason="node drain", planned=True, grace_ms=120_000))
        _, answer = await call(here, "GET", "/v1/attempt")
        assert answer["attempt"] == 3
        assert answer["stopping"]["planned"] is True
        assert answer["stopping"]["reason"] == "node drain"
        assert 110_000 < answer["stopping"]["millisecondsLeft"] <= 120_000


async def test_a_run_of_another_session_changes_nothing(directory: Path) -> None:
    async with world(directory) as here:
        await here.report(attempt=3, phase=wire.Phase.READY)
        await here.direct(run(3, session="session-z"))
        assert (await call(here, "POST", "/v1/progress", STEP))[0] == 409


async def test_the_first_step_goes_to_the_supervisor_at_once_and_others_once_a_second(directory: Path) -> None:
    async with training(directory, RESTORE) as here:
        loop = asyncio.get_running_loop()
        assert await call(here, "POST", "/v1/progress", {**STEP, "seconds": 0.25}) == (200, {})
        first = await here.supervisor.heard(wire.Progress)
        at = loop.time()
        assert (first.step, first.first_step, first.phase) == (1201, 1201, "Step")
        for step in range(1202, 1300):
            assert (await call(here, "POST", "/v1/progress", {**STEP, "step": step}))[0] == 200
        second = await here.supervisor.heard(wire.Progress, 2)
        assert loop.time() - at > 0.9
        assert (second.step, second.first_step) == (1299, 1201)
        assert second.first_age_ms is not None
        assert second.first_age_ms > 900
        assert second.first_age_ms > second.age_ms
        assert len(here.supervisor.all(wire.Progress)) == 2


async def test_a_first_step_right_after_the_startup_is_not_kept_waiting(directory: Path) -> None:
    async with training(directory, RESTORE) as here:
        await call(here, "POST", "/v1/progress", {**STEP, "phase": "Startup", "step": 0})
        await call(here, "POST", "/v1/progress", STEP)
        await until(lambda: len(here.supervisor.all(wire.Progress)) == 2, seconds=0.7)
        assert [one.first_step for one in here.supervisor.all(wire.Progress)] == [None, 1201]


async def test_progress_waits_for_a_supervisor_that_is_away(directory: Path) -> None:
    async with training(directory, RESTORE) as here:
        here.supervisor.writer.transport.abort()
        await until(lambda: "the supervisor's connection ended" in here.sidecar.log())
        assert (await call(here, "POST", "/v1/progress", STEP))[0] == 200
        async with supervisor(directory, replace(REPORT, attempt=3, phase=wire.Phase.RUNNING)) as back:
            assert (await back.heard(wire.Progress)).step == 1201


@pytest.mark.parametrize("step", [1200, 1201])
async def test_a_first_step_that_goes_on_from_the_restore_point_is_fine(directory: Path, step: int) -> None:
    async with training(directory, RESTORE) as here:
        assert await call(here, "POST", "/v1/progress", {**STEP, "step": step}) == (200, {})


@pytest.mark.parametrize(("restore", "step"), [(RESTORE, 1), (RESTORE, 1202), (None, 7)])
async def test_a_first_step_from_elsewhere_is_said(directory: Path, restore: wire.Restore | None, step: int) -> None:
    async with training(directory, restore) as here:
        _, answer = await call(here, "POST", "/v1/progress", {**STEP, "step": step})
        assert answer["warning"] == "RestorePointIgnored"
        assert str(step) in answer["message"]
        assert "RestorePointIgnored" in here.sidecar.log()
        assert await call(here, "POST", "/v1/progress", {**STEP, "step": step + 1}) == (200, {})


@pytest.mark.parametrize(("seconds", "milliseconds"), [(2.5, 2500), (0, 0), (0.0004, 0), (1e9, 10**12)])
async def test_what_was_loaded_goes_to_the_supervisor(directory: Path, seconds: float, milliseconds: int) -> None:
    async with training(directory) as here:
        assert await call(here, "POST", "/v1/checkpoints/loaded", {**LOADED, "seconds": seconds}) == (200, {})
        assert await here.supervisor.heard(wire.Loaded) == wire.Loaded(3, 0, milliseconds, rank=4)


async def test_the_longest_first_step_of_all_ranks_goes_to_the_supervisor_at_once(directory: Path) -> None:
    async with training(directory, RESTORE) as here:
        for rank, seconds in ((4, 0.25), (5, 0.75), (4, 9.0)):  # rank 4 does its second step
            step = {**STEP, "rank": rank, "step": 1202 if seconds == 9.0 else 1201, "seconds": seconds}
            assert await call(here, "POST", "/v1/progress", step) == (200, {})
        both = await here.supervisor.heard(wire.Progress, 2)
        assert [one.first_ms for one in here.supervisor.all(wire.Progress)] == [250, 750]
        assert both.first_step == 1201
        third = await here.supervisor.heard(wire.Progress, 3)
        assert (third.step, third.first_ms) == (1202, 750)


async def test_a_sidecar_that_has_restarted_doesnt_take_a_later_step_for_the_first(directory: Path) -> None:
    async with training(directory, RESTORE) as here:
        _, answer = await call(here, "POST", "/v1/progress", {**STEP, "step": 5000, "seconds": 60})
        assert answer["warning"] == "RestorePointIgnored"
        assert (await here.supervisor.heard(wire.Progress)).first_ms is None


async def test_checkpoints_go_to_the_supervisor(directory: Path) -> None:
    async with training(directory) as here:
        for state in ("Begun", "Completed", "Dropped"):
            assert await call(here, "POST", "/v1/checkpoints", {**CHECKPOINT, "state": state}) == (200, {})
        await until(lambda: len(here.supervisor.all(wire.Dropped)) == 2)
        dropped = wire.Dropped("ram", 1300, 4, 3)
        assert here.supervisor.received[-3:] == [
            dropped,
            wire.Checkpoint("ram", 1300, 4, 3, "/dev/shm/1300"),
            dropped,
        ]


async def test_while_a_worker_is_stopped_its_checkpoint_counts_and_nothing_else_does(directory: Path) -> None:
    async with training(directory) as here:
        await here.direct(replace(HOLD, attempt=4))
        for _ in range(2):  # before and after the supervisor has said that it is stopping
            assert await call(here, "POST", "/v1/checkpoints", CHECKPOINT) == (200, {})
            assert await call(here, "POST", "/v1/progress", STEP) == (200, {"ignored": "AttemptEnding"})
            answer = await call(here, "POST", "/v1/restart", RESTART)
            assert answer == (202, {"incident": 4, "ignored": "AttemptEnding"})
            await here.report(attempt=4, phase=wire.Phase.STOPPING)
        assert len(here.supervisor.all(wire.Checkpoint)) == 2
        assert here.supervisor.all(wire.Progress) == []
        assert here.supervisor.all(wire.Request) == []
        await here.report(attempt=4, phase=wire.Phase.READY)
        status, answer = await call(here, "POST", "/v1/checkpoints", CHECKPOINT)
        assert status == 409
        assert answer["error"]["attempt"] == 4


async def test_a_sidecar_that_begins_in_the_middle_of_a_stop_still_takes_checkpoints(directory: Path) -> None:
    async with world(directory) as here:
        await here.report(attempt=4, phase=wire.Phase.STOPPING)
        assert await call(here, "POST", "/v1/checkpoints", CHECKPOINT) == (200, {})
        assert (await here.supervisor.heard(wire.Checkpoint)).attempt == 3


async def test_a_sidecar_that_begins_while_a_worker_runs_serves_it_without_the_controller(directory: Path) -> None:
    running = replace(REPORT, attempt=3, phase=wire.Phase.RUNNING)
    async with sidecar(directory, "ws://127.0.0.1:9/") as here, supervisor(directory, running) as below:
        await until(lambda: here.process.pid)
        async with asyncio.timeout(5):
            while (await here.call("GET", "/v1/attempt"))[0] != 200:
                pass
        assert (await here.call("GET", "/v1/attempt"))[1]["attempt"] == 3
        assert (await here.call("POST", "/v1/checkpoints", CHECKPOINT))[0] == 200
        assert (await here.call("POST", "/v1/restart", RESTART))[0] == 202
        assert (await below.heard(wire.Request)).level is wire.Level.POD


async def test_a_request_for_a_restart_goes_to_the_supervisor(directory: Path) -> None:
    async with training(directory) as here:
        assert await call(here, "POST", "/v1/restart", RESTART) == (202, {"incident": 4})
        expected = wire.Request(3, 0, "the loss is NaN", 4, wire.Level.POD, exclude_node=True)
        assert await here.supervisor.heard(wire.Request) == expected
        assert (await call(here, "POST", "/v1/restart", {**WHO, "reason": "x"}))[0] == 202
        assert (await here.supervisor.heard(wire.Request, 2)).level is wire.Level.PROCESS


POSTS: dict[str, dict[str, Any]] = {
    "/v1/progress": STEP,
    "/v1/checkpoints": CHECKPOINT,
    "/v1/checkpoints/loaded": LOADED,
    "/v1/restart": RESTART,
}


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
async def test_without_a_supervisor_there_is_503_until_it_is_back(directory: Path, path: str) -> None:
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


async def test_before_any_supervisor_has_spoken_every_call_says_so(directory: Path) -> None:
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


async def test_a_wrong_body_gets_400_with_the_fields_path(directory: Path) -> None:
    async with training(directory) as here:
        for path, body, field, text in WRONG:
            status, answer = await call(here, "POST", path, body)
            assert status == 400
            assert (answer["error"]["reason"], answer["error"]["field"]) == ("BodyInvalid", field)
            assert text in answer["error"]["message"]
        assert here.supervisor.all(wire.Checkpoint) == []
        assert here.supervisor.all(wire.Loaded) == []


async def test_a_body_over_64_kib_gets_413(directory: Path) -> None:
    async with training(directory) as here:
        assert (await call(here, "POST", "/v1/progress", b" " * 65_537))[0] == 413
        assert (await call(here, "POST", "/v1/progress", json.dumps(STEP).encode().ljust(65_536)))[0] == 200


async def test_unknown_paths_and_methods_say_what_there_is(directory: Path) -> None:
    async with world(directory) as here:
        status, answer = await here.sidecar.call("GET", "/v2/attempt")
        assert status == 404
        assert "/v1/attempt" in answer["error"]["message"]
        status, answer = await here.sidecar.call("GET", "/v1/progress")
        assert status == 405
        assert "POST" in answer["error"]["message"]


class Stream:
    """The events that one reader has got."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def next(self) -> tuple[str, Any]:
        async with asyncio.timeout(5):
            name = (await self._answer.content.readline()).decode().strip().removeprefix("event: ")
            data = json.loads((await self._answer.content.readline()).decode().removeprefix("data: "))
            await self._answer.content.readline()
        shape = {"run": "RunEvent", "stop": "StopEvent"}[name]
        assert valid({"$ref": f"#/components/schemas/{shape}"}, data)
        return name, data


@asynccontextmanager
async def stream(here: World) -> AsyncIterator[Stream]:
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(here.sidecar.socket))) as session,
        session.get("http://gang/v1/events") as answer,
    ):
        assert answer.content_type == "text/event-stream"
        yield Stream(answer)


async def test_the_stream_tells_of_run_and_stop(directory: Path) -> None:
    async with training(directory) as here, stream(here) as events:
        assert await events.next() == ("run", {"attempt": 3})
        await here.direct(replace(HOLD, attempt=4, reason="worker-5 was killed", grace_ms=15_000))
        name, data = await events.next()
        assert name == "stop"
        assert 14_000 < data.pop("millisecondsLeft") <= 15_000
        assert data == {"attempt": 3, "reason": "worker-5 was killed", "planned": False}
        await here.report(attempt=4, phase=wire.Phase.STOPPING)
        await here.report(attempt=4, phase=wire.Phase.READY)
        await here.direct(run(4))
        assert await events.next() == ("run", {"attempt": 4})
        await here.direct(replace(HOLD, attempt=4, verb=wire.Verb.FINISH))
        assert (await events.next())[1]["attempt"] == 4


async def test_a_late_reader_of_the_stream_learns_of_the_stop_that_goes_on(directory: Path) -> None:
    async with training(directory) as here:
        await here.direct(replace(HOLD, attempt=4, planned=True, grace_ms=120_000))
        async with stream(here) as events:
            name, data = await events.next()
            assert (name, data["attempt"], data["planned"]) == ("stop", 3, True)


async def test_a_directive_of_an_older_attempt_tells_no_worker_to_stop(directory: Path) -> None:
    async with training(directory) as here, stream(here) as events:
        await events.next()
        await here.direct(replace(HOLD, attempt=2))
        await here.direct(replace(HOLD, attempt=3))
        await here.direct(replace(HOLD, attempt=5))
        assert (await events.next())[0] == "stop"
        assert (await call(here, "GET", "/v1/attempt"))[1]["attempt"] == 3


async def test_readers_that_go_away_leave_nothing_behind(directory: Path) -> None:
    async with training(directory) as here:
        descriptors = Path(f"/proc/{here.sidecar.process.pid}/fd")

        def opened() -> int:
            return len(list(descriptors.iterdir()))

        before = opened()
        for _ in range(20):
            async with stream(here) as events:
                await events.next()
        await until(lambda: opened() <= before + 1)


async def test_the_document_is_the_one_that_is_published_and_every_call_in_it_exists(directory: Path) -> None:
    async with training(directory) as here:
        status, published = await here.sidecar.call("GET", "/v1/openapi.json")
        assert (status, published) == (200, DOCUMENT)
        assert published["openapi"].startswith("3.1")
        for path, methods in published["paths"].items():
            for method in methods:
                if path != "/v1/events":
                    assert (await here.sidecar.call(method.upper(), path, b"?"))[0] in {200, 400}


def test_every_schema_of_the_document_is_one() -> None:
    for one in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(one)
    names = set(DOCUMENT["components"]["schemas"])
    references = {text.split('"')[0] for text in json.dumps(DOCUMENT).split("#/components/schemas/")[1:]}
    assert references <= names


def _values() -> st.SearchStrategy[Any]:
    numbers: st.SearchStrategy[Any] = st.sampled_from([-1, 0, 3, 3.0, 2.5, 2**53, 2**53 + 1, 1e300])
    others: st.SearchStrategy[Any] = st.sampled_from([None, True, "", "Step", "x" * 4097, [], {}])
    odd = numbers | others
    return odd | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)


@pytest.mark.parametrize("path", POSTS)
@given(data=st.data())
def test_what_is_taken_is_exactly_what_the_document_describes(path: str, data: st.DataObject) -> None:
    operation = next(one for one in operations.OPERATIONS if one.path == path)
    assert operation.takes is not None
    body = {**POSTS[path], **data.draw(st.dictionaries(st.sampled_from([*POSTS[path], "other"]), _values()))}
    for name in data.draw(st.sets(st.sampled_from(sorted(POSTS[path])), max_size=2)):
        body.pop(name, None)
    described = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    try:
        schema.check(operation.takes, body)
        taken = True
    except schema.MismatchError:
        taken = False
    assert taken == valid(described, body)
