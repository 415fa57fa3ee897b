"""Relays and links on real sockets, with replicas in this process and a fake API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_type_hints

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from bench.size import REPLICAS, REVIEW, relay_token
from gangctl.cluster.kube.election import LeaderAt
from gangctl.cluster.port import MemberIdentity, Refusal
from gangctl.controller.hub import Hub
from gangctl.controller.links import LINK_PATH
from gangctl.controller.relay import Dialing, Relay, pause_after
from gangctl.controller.relaying import (
    Beat,
    Close,
    Desk,
    Entry,
    Gone,
    Open,
    Roster,
    Say,
    decode_batch,
    encode_batch,
)
from gangsidecar import wire
from tests.cluster.kube import objects
from tests.cluster.kube.auth.tokens import AUDIENCE, Issuer, claims, sign
from tests.cluster.kube.fakeapi import FakeApi, serving
from tests.controller.fake_sidecars import MEMBERS, Sidecar, report
from tests.controller.replicas import ANY, Replica, holder, replica, until_answered
from tests.controller.test_rolling_upgrade import UID, running
from tests.wait import until_async

WHO = MEMBERS["token-0"]


def test_a_batch_is_read_as_it_was_written() -> None:
    entries: list[Entry] = [
        Open(1, WHO, 4, 17),
        Say(1, "Report", 5, '{"a": "\\n"}'),
        Beat(1, 0, 2, 3),
        Beat(1, 0, 2, 3, (40, 5)),
        Gone(2),
        Close(1, 1008, "é"),
    ]
    assert decode_batch(encode_batch("a/3", iter(entries))) == ("a/3", entries)


@pytest.mark.parametrize("text", ["", "[]", "{}", '["a", 1]', "[1, []]", '["a", ["Open"]]', "[" * 9999])
def test_what_is_no_batch_is_refused(text: str) -> None:
    with pytest.raises(wire.WireError):
        decode_batch(text)


def test_what_a_later_release_adds_to_a_batch_is_passed_over() -> None:
    text = """["a/1", [["Zone", 1, "east"], ["Beat", 1, 0, 2, 3], ["Beat", 1, 0, 2, 3, [4, 5], "more"], ["Gone", 2, 0],
        ["Open", 1, ["g", "worker-0", 0, "pod", "ns", "more"], 2, 7, "east"], ["Say", 1, "Later", 0, "", 1]], {}]"""
    who = MemberIdentity("g", "worker-0", 0, "pod", "ns")
    read = [Beat(1, 0, 2, 3), Beat(1, 0, 2, 3, (4, 5)), Gone(2), Open(1, who, 2, 7), Say(1, "Later", 0, "")]
    assert decode_batch(text) == ("a/1", read)


WRITTEN: tuple[Entry, ...] = (
    Open(1, WHO, 4, 17),
    Say(1, "Report", 5, "{}"),
    Beat(1, 0, 2, 3, (40, 5)),
    Gone(2),
    Close(1, 1008, ""),
)
GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**400), 10**400) | st.floats() | st.text(max_size=3),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=3), one, max_size=2),
    max_leaves=6,
)


@given(st.sampled_from(WRITTEN), st.data())
def test_an_entry_with_another_value_is_refused_or_has_the_right_types(entry: Entry, data: st.DataObject) -> None:
    term, (values,) = json.loads(encode_batch("a/1", iter([entry])))
    at = values if not data.draw(st.booleans()) else next((one for one in values if isinstance(one, list)), values)
    at[data.draw(st.integers(0, len(at) - 1))] = data.draw(GARBAGE)
    try:
        _, found = decode_batch(json.dumps([term, [values]]))
    except wire.WireError:
        return
    for one in found:
        for name, hint in get_type_hints(type(one)).items():
            value = getattr(one, name)
            parts = value if isinstance(value, tuple) else (value,)
            assert all(type(part) in {int, str} for part in parts) if value is not None else name == "step"
            assert type(value) is hint or name == "step"
        assert all(0 <= getattr(one, name, 0) <= wire.MAX_MS for name in ("age_ms", "sent_ms"))


def test_a_report_in_which_only_time_has_passed_is_a_beat() -> None:
    desk = Desk()
    desk.open(1, WHO, 1, 1)
    first = report(seq=1, sent_ms=1000, phase_age_ms=10)
    assert desk.take(1, first, wire.encode(first), 1.0)
    assert list(desk.news(1.0)) == [], "there is no link"
    desk.link("a/1")
    assert [type(one) for one in desk.news(1.5)] == [Open, Say]
    later = report(seq=2, sent_ms=6000, phase_age_ms=5010)
    assert not desk.take(1, later, wire.encode(later), 6.0)
    assert list(desk.news(6.25)) == [Beat(1, 250, 2, 6000)]
    news = report(seq=3, sent_ms=7000, phase_age_ms=5010)
    assert desk.take(1, news, wire.encode(news), 7.0), "it is younger than time alone would make it"


def test_a_step_is_a_beat_and_what_else_is_new_of_progress_is_not() -> None:
    desk, roster = Desk(), Roster()
    desk.open(1, WHO, 1, 1)
    desk.link("a/1")
    first = report(seq=1, sent_ms=1000, progress=wire.Progress(1, 4, 10, first_step=1, first_age_ms=500))
    step = report(seq=2, sent_ms=2000, phase_age_ms=1000, progress=wire.Progress(1, 9, 3, "Step", 1, 1500))
    phase = report(seq=3, sent_ms=3000, phase_age_ms=2000, progress=wire.Progress(1, 9, 3, "Checkpoint", 1, 2500))
    found: list[Entry] = []
    for one in (first, step, phase):
        assert desk.take(1, one, wire.encode(one), one.sent_ms / 1000), "it is news"
        found += desk.news(one.sent_ms / 1000)
    assert [type(one) for one in found] == [Open, Say, Beat, Say]
    heard: list[wire.Message] = []
    for entry in found[1:]:
        assert isinstance(entry, Say | Beat)
        roster.put(entry)
        heard += roster.take(1, wire.decode)
    assert heard == [first, step, phase]


def test_a_new_leader_gets_the_list_of_imports_that_came_first() -> None:
    desk = Desk()
    for session, at in ((1, 0), (2, 1)):
        who = MEMBERS[f"token-{at}"]
        desk.open(session, who, 1, 1)
        imports = wire.Imports(who.gang, who.pod, (), ())
        desk.take(session, imports, f"list of {who.pod}", 1.0)
    desk.link("a/1")
    assert [one.text for one in desk.news(1.0) if isinstance(one, Say)] == ["list of pod-0", "list of pod-1"]
    desk.link("b/2")
    assert [one.text for one in desk.news(1.0) if isinstance(one, Say)] == ["list of pod-0"]
    desk.close(1)
    desk.link("c/3")
    assert [one.text for one in desk.news(1.0) if isinstance(one, Say)] == ["list of pod-1"], "it takes the place"
    desk.close(2)
    assert desk._imports == {}, "it would be kept as long as this process runs"  # noqa: SLF001


@asynccontextmanager
async def relaying(folder: Path, *names: str) -> AsyncIterator[tuple[FakeApi, list[Replica]]]:
    """Replicas that relay for a gang of three."""
    async with serving() as (api, _):
        api.faults.append(Issuer(review=REVIEW))
        await api.put("nodes", objects.node())
        await api.put("gangjobs", objects.gang("g", UID))
        for at in range(3):
            await api.put("pods", running(at))
        flags = ("--relay-token", str(relay_token(folder)))
        async with replica(api, names[0], *flags) as first, replica(api, names[1], *flags) as second:
            await until_async("one leads", lambda: holder(api))
            yield api, [first, second]


async def dial(session: aiohttp.ClientSession, at: Replica, number: int) -> Sidecar:
    """Connect the sidecar of worker-NUMBER to this replica."""
    pod = {"name": f"g-worker-{number}-0", "uid": f"pod-{number}"}
    payload = claims()
    bound = {**payload["kubernetes.io"], "namespace": "default", "pod": pod}
    token = sign({**payload, "sub": "system:serviceaccount:default:default", "kubernetes.io": bound})
    headers = {"Authorization": f"Bearer {token}", wire.REVISION_HEADER: str(wire.REVISION)}
    return Sidecar(await session.ws_connect(at.url, headers=headers, ssl=ANY))


def said(number: int, **more: Any) -> wire.Report:
    return wire.Report(UID, f"worker-{number}", 0, f"pod-{number}", f"s-{number}", 1, 0, wire.Phase.IDLE, **more)


async def test_a_sidecar_keeps_its_connection_when_the_leader_hands_over(tmp_path: Path) -> None:
    async with relaying(tmp_path, "one", "two") as (api, replicas), aiohttp.ClientSession() as session:
        leader, other = replicas if holder(api) == "one" else replicas[::-1]
        await other.until_ready()
        sidecar = await dial(session, other, 0)
        await sidecar.say(said(0, sent_ms=5))
        assert await sidecar.hear_all() == wire.Ping(5)
        assert (await sidecar.hear()).verb is wire.Verb.HOLD
        leader.ended.set()
        await until_async("the other one leads", lambda: holder(api) == other.name)
        while not isinstance(message := await sidecar.hear_all(), wire.Directive):
            assert message == wire.Ping(5)
        assert message.verb is wire.Verb.HOLD, "the new leader says so itself"
        await session.close()


async def test_only_a_replica_may_link_and_only_to_the_leader(tmp_path: Path) -> None:
    async with relaying(tmp_path, "one", "two") as (api, replicas), aiohttp.ClientSession() as session:
        leader, other = replicas if holder(api) == "one" else replicas[::-1]
        await other.until_ready()

        async def answer(at: Replica, token: str) -> int:
            url = at.url.replace(wire.CONNECT_PATH, LINK_PATH)
            while True:  # All replicas have one address here, and of each address one token is checked at a time.
                async with session.get(url, headers={"Authorization": f"Bearer {token}"}, ssl=ANY) as found:
                    if "another link of this address" not in await found.text():
                        return found.status

        replicas_token = (tmp_path / "relay-token").read_text()
        assert await answer(leader, sign(claims())) == 401, "of a member"
        assert await answer(leader, "x") == 401
        assert await answer(other, replicas_token) == 503
        issuer = next(one for one in api.faults if isinstance(one, Issuer))
        issuer.review = {**REVIEW, "audiences": [AUDIENCE]}
        fresh = sign(claims(aud=[f"{AUDIENCE}/relay"], sub=REPLICAS, jti="2"))
        assert await answer(leader, fresh) == 401, "of another audience"
        issuer.review = {"authenticated": False}
        assert await answer(leader, sign(claims(sub=REPLICAS, jti="3"))) == 401


async def test_a_relay_that_cannot_reach_the_leader_sends_its_sidecars_elsewhere() -> None:
    async def known(_token: str) -> MemberIdentity | Refusal:
        return WHO

    hub = Hub(known, lambda _job, _before: lambda _report: None, print, print, lambda: "")
    dialing = Dialing("here", "name", lambda: "token", lambda: ANY)
    leader: list[LeaderAt | None] = [None]
    relay = Relay(hub, known, lambda: leader[0], lambda: None, dialing, 0.2)
    routes = {wire.CONNECT_PATH: relay.server.handle}
    async with hub.serve("127.0.0.1", 0, None, routes) as url, aiohttp.ClientSession() as session:
        task = asyncio.create_task(relay.run())
        headers = {"Authorization": "Bearer token"}
        sidecar = Sidecar(await session.ws_connect(url, headers=headers))
        await sidecar.say(report())
        leader[0] = LeaderAt("ws://127.0.0.1:9/v1/connect", "dead/1")
        assert await sidecar.closed() == aiohttp.WSCloseCode.TRY_AGAIN_LATER
        with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
            await session.ws_connect(url, headers=headers)
        leader[0] = None
        await until_answered("it serves again", lambda: _status(session, url, headers), lambda found: found == 101)
        task.cancel()
        await session.close()


def test_a_leader_that_cannot_be_reached_is_dialled_less_and_less_often() -> None:
    assert [pause_after(seconds) for seconds in (0, 1, 4, 3600)] == [0, 0.25, 1, 2]


async def test_another_leader_is_dialled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def known(_token: str) -> MemberIdentity | Refusal:
        return WHO

    async def refuse(request: web.Request, _admitted: Callable[[], None]) -> web.Response:
        dialled.put_nowait(request.path)
        return web.Response(status=401)

    monkeypatch.setattr("gangctl.controller.relay.pause_after", lambda _seconds: 1e9)
    dialled = asyncio.Queue[str]()
    hub = Hub(known, lambda _job, _before: lambda _report: None, print, print, lambda: "")
    paths = [f"/{name}{LINK_PATH}" for name in ("one", "two", "three")]
    async with hub.serve("127.0.0.1", 0, None, dict.fromkeys(paths, refuse)) as url:
        leaders = [LeaderAt(url.replace("/v1", f"{path.removesuffix(LINK_PATH)}/v1"), path) for path in paths]
        relay = Relay(hub, known, lambda: leaders[0], lambda: None, Dialing("x", "x", lambda: "token", lambda: ANY), 60)
        task = asyncio.create_task(relay.run())
        for path in paths:
            assert await dialled.get() == path
            del leaders[0]
            leaders.append(LeaderAt("ws://127.0.0.1:9", "none"))
        task.cancel()


async def _status(session: aiohttp.ClientSession, url: str, headers: dict[str, str]) -> int:
    try:
        await session.ws_connect(url, headers=headers)
    except aiohttp.WSServerHandshakeError as error:
        return error.status
    return 101
