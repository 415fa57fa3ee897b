"""What goes over a link, on real sockets: no member behind a relay may break it for the others."""

from __future__ import annotations

import asyncio
from itertools import count

import aiohttp
import pytest

from gangctl.cluster.kube.election import LeaderAt
from gangctl.cluster.port import MemberIdentity, Refusal
from gangctl.controller import relay
from gangctl.controller.relay import counted
from gangctl.controller.relaying import LINK_BYTES, MAX_BATCH_BYTES, Desk, Entry, Open, Say, decode_batch, encode_batch
from gangsidecar import wire
from tests.controller import flooding
from tests.controller.fake_sidecars import MEMBERS
from tests.controller.linked import identity, linked, said
from tests.wait import until_async

LETTER = "\N{LATIN SMALL LETTER E WITH ACUTE}"


def largest(token: str) -> str:
    """A report with as many characters as are taken, each of which JSON may write as six bytes."""
    ends = tuple(wire.End(1, rank, 0, exit_code=1, message="#" * 8000) for rank in range(32))
    text = wire.encode(said(token, ends=ends)).replace("#", LETTER)
    assert wire.MAX_REPORT_BYTES - 16_000 < len(text) <= wire.MAX_REPORT_BYTES
    return text


def test_a_batch_ends_with_the_entry_that_fills_it_however_json_escapes_it() -> None:
    assert MAX_BATCH_BYTES + 4 * wire.MAX_BYTES < LINK_BYTES, "one entry may take three times its message"
    text = LETTER * (wire.MAX_BYTES // len(LETTER.encode()))
    entries = iter(Say(at, "Scanned", 0, text) for at in range(3))
    for at in range(3):
        batch = encode_batch("a/1", entries)
        assert len(batch.encode()) < LINK_BYTES
        assert decode_batch(batch) == ("a/1", [Say(at, "Scanned", 0, text)])


def test_what_a_session_says_goes_on_in_the_next_batch() -> None:
    desk, found = Desk(), list[Entry]()
    desk.link("a/1")
    for at in range(3):
        desk.open(at, MEMBERS[f"token-{at}"], 1, 1)
        for message in (wire.Scanned(0, f"pod-{at}"), wire.Imports("uid-g", f"pod-{at}", (), ())):
            desk.take(at, message, "x" * MAX_BATCH_BYTES, 1.0)
    batches = 0
    while desk.has_news:
        found += decode_batch(encode_batch("a/1", desk.news(1.0)))[1]
        batches += 1
    assert batches >= 6
    kinds = [one.kind if isinstance(one, Say) else type(one).__name__ for one in found]
    assert kinds == ["Open", "Scanned", "Imports"] * 3


async def test_the_leader_hears_what_a_sidecar_said_before_it_closed() -> None:
    desk = Desk()
    desk.link("a/1")
    desk.open(1, identity("g/worker-0"), 1, 1)
    desk.take(1, said("g/worker-0"), wire.encode(said("g/worker-0")), 1.0)
    batch = [encode_batch("a/1", desk.news(1.0))]
    last = said("g/worker-0", seq=2, attempt=1)
    desk.take(1, last, wire.encode(last), 2.0)
    desk.close(1)
    batch.append(encode_batch("a/1", desk.news(2.0)))
    assert not desk.has_news
    async with linked(relays=0) as here:
        link = await here.link("one")
        for text in batch:
            await link.send_str(text.replace("a/1", here.leader.term))
        await until_async("the connection ends", lambda: here.hub.reports.heard("g") and not here.hub.connections)
        assert [one.report.seq for one in here.hub.reports.heard("g")] == [2]


async def test_reports_that_json_makes_longer_break_no_link(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with linked() as here:
        here.found = None
        tenants = {token: await here.dial(token) for token in (f"tenant/worker-{at}" for at in range(8))}
        for token, sidecar in tenants.items():
            await sidecar.say(largest(token))
        other = await here.dial("other/worker-0")
        await other.say(said("other/worker-0"))
        here.found = here.leader
        assert isinstance(await other.hear_all(), wire.Ping)
        await here.connected(9)
        assert sum("linked to the leader" in text for text in caplog.messages) == 1


async def test_no_empty_batch_follows_one_that_took_all_news(monkeypatch: pytest.MonkeyPatch) -> None:
    async with linked() as here:
        (own,), batches = here.relays, list[tuple[str, bool]]()
        batch = own.batch

        def noted(leader: LeaderAt) -> tuple[str, bool]:
            batches.append(batch(leader))
            return batches[-1]

        monkeypatch.setattr(own, "batch", noted)
        await here.member("tenant/worker-0")
        assert any("Report" in text for text, _ in batches)
        assert not any(more for _, more in batches)


async def test_a_list_of_imports_for_all_members_behind_a_relay_breaks_no_link(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with linked() as here:
        first, *others = [await here.member(f"tenant/worker-{at}", ran=int(at == 0)) for at in range(100)]
        modules = tuple(f"{at:04d}" + "m" * 96 for at in range(1200))
        await first.say(wire.Imports("tenant", "tenant-worker-0", ("python",), modules))
        for one in others:
            heard = await one.hear()
            assert isinstance(heard, wire.Imports)
            assert heard.modules == modules
        assert sum("linked to the leader" in text for text in caplog.messages) == 1


async def test_a_relay_whose_links_break_at_once_sends_its_sidecars_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "HELD_SECONDS", 1.0)
    async with linked(relays=2, patience=0.5) as here:
        breaking, sidecar = here.relays[0], await here.dial("g/worker-0")
        closing = asyncio.create_task(sidecar.closed())
        while not closing.done():  # A link is replaced by another of the same name.
            await here.link("relay-0")
            await asyncio.sleep(0.02)
        assert await closing == aiohttp.WSCloseCode.TRY_AGAIN_LATER
        assert here.relays[1].can_serve
        await until_async("it is linked again", lambda: breaking.can_serve)


async def test_a_pod_has_one_connection_at_a_relay_without_a_link_the_newest() -> None:
    async with linked() as here:
        here.found = None
        sidecars = [await here.dial("g/worker-0", order) for order in (1, 3, 2)]
        for at in (0, 2):
            assert await sidecars[at].closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
        assert len(here.relays[0]) == 1
        await sidecars[1].say(said("g/worker-0"))
        here.found = here.leader
        assert isinstance(await sidecars[1].hear_all(), wire.Ping)


async def test_what_is_left_of_a_batch_when_the_term_ends_is_not_taken_in_the_next_term() -> None:
    async with linked(relays=0) as here:
        old = await here.link("old")
        tokens = [f"g/worker-{at}" for at in range(512)]

        def batch(of: list[str]) -> str:
            entries: list[Entry] = []
            for at, token in enumerate(of):
                opened = Open(at, identity(token), 1, 1)
                entries += [opened, Say(at, "Report", 0, wire.encode(said(token)))]
            return encode_batch(here.leader.term, iter(entries))

        await old.send_str(batch(tokens))
        await until_async("it takes the batch", lambda: len(here.hub.connections), every=0)
        assert len(here.hub.connections) < len(tokens), "it is in the middle of the batch"
        here.hub.end_term()
        here.links.end_term()
        new = await here.link("new")
        await new.send_str(batch(["other/worker-0"]))
        await until_async("the next term hears", lambda: here.hub.reports.heard("other"))
        assert here.hub.reports.heard("g") == ()
        assert len(here.hub.connections) == 1


async def test_a_leader_that_lost_its_lease_takes_nothing_from_a_link() -> None:
    async with linked() as here:
        sidecar = await here.member("g/worker-0")
        here.leads = False
        await sidecar.say(said("g/worker-0", seq=2, attempt=1))
        await (await here.dial("g/worker-1")).say(said("g/worker-1"))
        await until_async("it drops them", lambda: here.hub.stale["Superseded"] or not len(here.hub.connections))
        here.found = None
        await here.connected(0)
        assert [one.report.seq for one in here.hub.reports.heard("g")] == [1]


OPENED = '["Open", 1, ["g", "worker-0", 0, "pod-0", "ns"], 1, 1]'


@pytest.mark.parametrize(
    "entries",
    [
        f'{OPENED}, ["Open", 1, ["g", "worker-1", 0, "pod-1", "ns"], 1, 1]',
        '["Open", 1, [["g"], "worker-0", 0, "pod-0", "ns"], 1, 1]',
        f'{OPENED}, ["Say", 1, "Report", 0, 5]',
        f'{OPENED}, ["Beat", 1, {10**400}, 1, 1]',
        f'{OPENED}, ["Gone", [1]]',
    ],
)
async def test_what_no_relay_sends_ends_its_link_and_leaves_nothing(
    entries: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with linked() as here:
        other = await here.member("other/worker-0")
        link = await here.link()
        await link.send_str(f'["{here.leader.term}", [{entries}]]')
        while (await link.receive()).type is aiohttp.WSMsgType.TEXT:
            pass
        await until_async("it is counted", lambda: here.hub.refusals.counts["Malformed"])
        await here.connected(1)
        assert len(here.links) == 1
        await other.say(said("other/worker-0", seq=2, attempt=1))
        await until_async("the other is heard", lambda: here.hub.reports.heard("other")[0].report.seq == 2)
        assert not [one for one in caplog.records if one.levelname == "ERROR"]


async def test_a_link_holds_no_message_of_a_kind_that_no_sidecar_sends() -> None:
    async with linked(relays=0) as here:
        link = await here.link()
        report = Say(1, "Report", 0, wire.encode(said("g/worker-0")))
        entries: list[Entry] = [
            Open(1, identity("g/worker-0"), 1, 1),
            *(Say(1, f"kind-{at}", 0, "x") for at in range(99)),
            report,
        ]
        await link.send_str(encode_batch(here.leader.term, iter(entries)))
        await until_async("the report is taken", lambda: here.hub.reports.heard("g"))
        assert here.hub.refusals.counts["Malformed"] == 0


async def test_a_replica_counts_what_it_relays() -> None:
    async with linked(relays=2) as here:
        sidecar = await here.member("g/worker-0")
        await until_async("both relays are linked", lambda: all(one.is_linked for one in here.relays))
        at_relay, idle = (counted(one, None)[0].values for one in here.relays)
        assert at_relay == {"sidecar": 1, "leader": True, "relay": 0}
        assert idle == {"sidecar": 0, "leader": True, "relay": 0}
        assert counted(None, here.links)[0].values == {"sidecar": 0, "leader": 0, "relay": 2}
        assert all(counted(here.relays[0], None)[1].values.values())
        here.found = None
        await until_async("the links end", lambda: not len(here.links))
        assert not here.relays[0].is_linked
        assert not sidecar.socket.closed


async def test_an_address_has_one_link_authenticated_at_a_time() -> None:
    answering, asked = asyncio.Event(), list[str]()

    async def authenticate(token: str) -> Refusal | None:
        asked.append(token)
        await answering.wait()
        return None

    async with linked(relays=0, authenticate=authenticate) as here:
        first = asyncio.create_task(here.link("first"))
        await until_async("it is being authenticated", lambda: asked)
        with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
            await here.link("second")
        answering.set()
        await first
        await here.link("third")
        assert len(asked) == 2


async def test_a_pod_pays_at_the_leader_too_and_delays_no_other() -> None:
    async with linked() as here:
        other = await here.member("other/worker-0")
        socket = await here.link("by-hand")  # It lets everything pass.
        pod = MemberIdentity(flooding.GANG, "worker-0", 0, "flood-0", "team")
        await socket.send_str(encode_batch(here.leader.term, iter([Open(1, pod, 1, 1)])))
        text = flooding.largest(0)

        async def send() -> None:
            for seq in count(2):
                entry = Say(1, "Report", 0, text.format(seq=seq))
                await socket.send_str(encode_batch(here.leader.term, iter([entry])))
                await asyncio.sleep(0.01)

        sending = asyncio.create_task(send())
        await until_async("it is paused", lambda: here.hub.intake.pauses["Pod"])
        await other.say(said("other/worker-0", seq=2, attempt=1))
        await until_async("the other is heard", lambda: here.hub.reports.heard("other")[0].report.seq == 2)
        sending.cancel()


async def test_a_token_that_cannot_be_read_ends_no_relay() -> None:
    read = iter([b"\xff"])
    async with linked(token=lambda: next(read, b"token").decode()) as here:
        await here.member("g/worker-0")
        assert next(read, None) is None
