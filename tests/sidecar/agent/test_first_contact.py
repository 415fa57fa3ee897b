"""A sidecar whose pod has never reached the controller ends with the reason, so that the pod's status has it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from gangsidecar import wire
from gangsidecar.agent import uplink
from gangsidecar.agent.uplink import MOST, FirstContact
from tests.moved_clock import MovedClock
from tests.ports import free_port
from tests.sidecar.agent.sidecars import controller, sidecar, until
from tests.wait import until_async

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_sidecar_that_cannot_read_its_token_ends_once_with_the_reason(directory: Path) -> None:
    message = directory / "message"
    async with (
        controller() as above,
        sidecar(directory, above.url, "--termination-log", str(message), token=None) as here,
    ):
        assert await here.process.wait() == wire.UNREACHED
        assert (
            message.read_text() == f"the token can't be read: [Errno 2] No such file or directory: '{directory}/token'"
        )
        async with sidecar(directory, above.url, "--termination-log", str(message)) as again:
            await above.connected()
            contact = directory / "contact"  # It is written a moment after the controller has the connection.
            await until_async("it is written", lambda: contact.read_text().splitlines()[-1] == "connected")
            assert await again.terminate() == 0


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_is_told_in_the_words_of_the_controller(directory: Path, status: int) -> None:
    message = directory / "message"
    async with controller() as above:
        above.refusal = status, "the token was issued for another audience"
        async with sidecar(directory, above.url, "--termination-log", str(message)) as here:
            assert await here.process.wait() == wire.UNREACHED
    assert message.read_text() == f"the controller answered {status}: the token was issued for another audience"


async def test_where_nothing_listens_that_is_the_reason(directory: Path) -> None:
    url, message = f"ws://127.0.0.1:{free_port()}/v1/connect", directory / "message"
    async with sidecar(directory, url, "--termination-log", str(message)) as here:
        assert await here.process.wait() == wire.UNREACHED
    assert "Cannot connect to host 127.0.0.1" in message.read_text()


@pytest.mark.nightly
async def test_a_controller_that_asks_to_try_again_ends_no_sidecar_until_it_says_more(directory: Path) -> None:
    message = directory / "message"
    async with controller() as above:
        above.refusal = 503, "this controller does not lead; the leader is not known"
        async with sidecar(directory, above.url, "--termination-log", str(message)) as here:
            late = time.monotonic() + uplink.PATIENCE + 2
            await until(lambda: above.refused > 1 and time.monotonic() > late)
            assert here.process.returncode is None
            assert not message.exists()
            above.refusal = 401, "the token was issued for another audience"
            assert await here.process.wait() == wire.UNREACHED
    assert message.read_text() == "the controller answered 401: the token was issued for another audience"


async def test_what_passes_is_no_reason_however_often_it_changes(directory: Path, clock: MovedClock) -> None:
    contact = FirstContact(str(directory / "contact"), str(directory / "message"))
    contact.failed("the controller answered 503: the token becomes valid in 9 s", passes=True)
    assert not await ends(contact, clock)
    contact.failed("the controller answered 503: the token becomes valid in 8 s", passes=True)
    assert not await ends(contact, clock)
    contact.failed("no route to host")
    assert await ends(contact, clock)


async def test_a_sidecar_whose_message_nothing_reads_goes_on(directory: Path, clock: MovedClock) -> None:
    contact = FirstContact(str(directory / "contact"), "")
    contact.failed("no route to host")
    assert not await ends(contact, clock)


async def test_each_reason_is_told_once_and_few_of_them(directory: Path, clock: MovedClock) -> None:
    message = directory / "message"
    for number in range(MOST + 1):
        for again in (False, True):
            contact = FirstContact(str(directory / "contact"), str(message))
            contact.failed(f"reason\n{number}")
            assert await ends(contact, clock) == (number < MOST and not again)
        assert message.read_text() == f"reason {min(number, MOST - 1)}"


async def test_a_pod_that_has_been_connected_never_ends_its_sidecar(directory: Path, clock: MovedClock) -> None:
    FirstContact(str(directory / "contact"), str(directory / "message")).connected()
    contact = FirstContact(str(directory / "contact"), str(directory / "message"))
    contact.failed("no route to host")
    assert not await ends(contact, clock)


async def test_a_controller_that_answers_nothing_is_told_after_a_longer_time(
    directory: Path, clock: MovedClock
) -> None:
    missed = asyncio.create_task(FirstContact(str(directory / "contact"), str(directory / "message")).missed())
    await clock.move(0)
    await clock.move(uplink.PATIENCE)
    await clock.move(uplink.LONG_PATIENCE - uplink.PATIENCE - 0.1)
    assert not missed.done()
    await clock.move(0.2)
    assert missed.done()
    assert (directory / "message").read_text() == "nothing answers"


async def test_a_reason_that_can_not_be_written_ends_nothing(directory: Path, clock: MovedClock) -> None:
    contact = FirstContact(str(directory / "contact"), str(directory / "no" / "message"))
    contact.failed("no route to host")
    assert not await ends(contact, clock)


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> MovedClock:
    return MovedClock(monkeypatch)


async def ends(contact: FirstContact, clock: MovedClock) -> bool:
    """Whether the sidecar is to end, after all of its patience."""
    missed = asyncio.create_task(contact.missed())
    for _ in range(4):
        await clock.move(uplink.LONG_PATIENCE)
    done = missed.done()
    missed.cancel()
    return done
