"""The hub passes on what the workers of a role import, to members of the role that have run nothing yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest

from gangctl.api.status import GangPhase
from gangctl.cluster.port import MemberIdentity
from gangsidecar import wire
from tests.controller.fake_sidecars import Served, Sidecar, job, serving
from tests.controller.test_hub_terms import says_nothing


async def identify(token: str) -> MemberIdentity:
    """A token is gang, member and namespace."""
    gang, member, namespace = token.split("/")
    return MemberIdentity(gang, member, 0, f"pod-{gang}-{member}", namespace)


@asynccontextmanager
async def hub() -> AsyncIterator[Served]:
    async with aiohttp.ClientSession() as session, serving(session, lambda *_: None, identify=identify) as here:
        yield here
        await session.close()


async def member(here: Served, name: str = "worker-0", gang: str = "uid-g", ran: int = 0) -> Sidecar:
    """A member that has reported, and whose report was taken."""
    sidecar = await here.dial(f"{gang}/{name}/of-{gang}")
    await sidecar.say(wire.Report(gang, name, 0, f"pod-{gang}-{name}", "session", 1, 1, wire.Phase.READY, ran=ran))
    assert isinstance(await sidecar.hear_all(), wire.Ping)
    return sidecar


def imports(*modules: str, name: str = "worker-0", gang: str = "uid-g") -> wire.Imports:
    return wire.Imports(gang, f"pod-{gang}-{name}", ("/usr/bin/python3", "train.py"), modules or ("torch",))


async def hears(sidecar: Sidecar) -> wire.Imports:
    found = await sidecar.hear()
    assert isinstance(found, wire.Imports)
    return found


async def test_a_list_reaches_the_spares_of_its_role_and_no_other_member() -> None:
    async with hub() as here:
        first, spare = await member(here, ran=1), await member(here, "worker-4")
        others = [
            first,
            await member(here, "worker-1", ran=1),
            await member(here, "evaluator-0"),
            await member(here, "worker-4", gang="uid-of-another-tenant"),
        ]
        await first.say(imports())
        assert await hears(spare) == imports()
        await asyncio.gather(*map(says_nothing, others))


async def test_the_list_of_the_first_pod_counts_until_it_has_gone() -> None:
    async with hub() as here:
        first, second, spare = (
            await member(here, ran=1),
            await member(here, "worker-1", ran=1),
            await member(here, "worker-4"),
        )
        await first.say(imports())
        assert await hears(spare) == imports()
        await second.say(imports("jax", name="worker-1"))
        await says_nothing(spare)
        for newer in ("flax", "keras"):
            await first.say(imports(newer))
        await says_nothing(spare)
        await spare.say(wire.Report("uid-g", "worker-4", 0, "pod-uid-g-worker-4", "session", 2, 1, wire.Phase.READY))
        assert await hears(spare) == imports("keras"), "lists that come fast go out with the next reports"


async def test_members_of_two_tenants_get_the_lists_of_their_own_gangs() -> None:
    async with hub() as here:
        for gang in ("uid-a", "uid-b"):
            await (await member(here, gang=gang, ran=1)).say(imports(f"secret_of_{gang[-1]}", gang=gang))
        for gang in ("uid-a", "uid-b"):
            late = await member(here, "worker-1", gang)
            assert (await hears(late)).modules == (f"secret_of_{gang[-1]}",)
            await says_nothing(late)


async def test_a_new_pod_and_a_new_session_get_the_newest_list_once() -> None:
    async with hub() as here:
        first = await member(here, ran=1)
        await first.say(imports("numpy"))
        await first.say(imports("torch"))
        late = await member(here, "worker-1")
        assert (await hears(late)).modules == ("torch",)
        said = wire.Report("uid-g", "worker-1", 0, "pod-uid-g-worker-1", "session", 2, 1, wire.Phase.READY)
        await late.say(said)
        await says_nothing(late)
    async with hub() as here:
        await (await member(here, ran=1)).say(imports())
        late = await member(here, "worker-1")
        await hears(late)
        await late.say(replace(said, session="after-a-restart-of-the-container", seq=1))
        assert await hears(late) == imports()


@pytest.mark.parametrize("phase", [GangPhase.GATHERING, GangPhase.RUNNING])
async def test_a_list_says_whether_the_gang_trains_meanwhile(phase: GangPhase) -> None:
    async with hub() as here:
        here.hub.publish(job(phase=phase))
        await (await member(here, ran=1)).say(imports())
        assert (await hears(await member(here, "worker-1"))).beside is (phase is GangPhase.RUNNING)


EMOJI = "\N{GRINNING FACE}" * 8000
WRONG = {
    "too long in ASCII": wire.encode(imports("#")).replace('"#"', ",".join([f'"{EMOJI}"'] * 15)),
    "another pod": imports(name="worker-1"),
    "another gang": imports(gang="uid-of-another-tenant"),
    "too long": imports(*(f"module_{number:06}" for number in range(4000)), "m" * 8000, "m" * 8000, *["m" * 8000] * 8),
    "too many": wire.encode(imports()).replace('["torch"]', "[" + ",".join(['"m"'] * (wire.MAX_ITEMS + 1)) + "]"),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_list_that_is_wrong_closes_the_connection_and_is_not_passed_on(wrong: str) -> None:
    message = WRONG[wrong]
    assert len(message if isinstance(message, str) else wire.encode(message)) < wire.MAX_REPORT_BYTES
    async with hub() as here:
        first = await member(here, ran=1)
        await first.say(message)
        assert await first.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
        for gang, name in (("uid-g", "worker-4"), ("uid-of-another-tenant", "worker-0")):
            await says_nothing(await member(here, name, gang))


async def test_a_gang_has_one_list_for_each_of_its_roles() -> None:
    async with hub() as here:
        for number in range(20):
            await (await member(here, f"worker-{number}", ran=1)).say(imports(f"m{number}", name=f"worker-{number}"))
            await hears(await member(here, f"worker-{number}"))  # It was taken.
        lists = here.hub._imports._lists  # noqa: SLF001 - nothing else tells what is kept
        assert {gang: list(roles) for gang, roles in lists.items()} == {"uid-g": ["worker"]}
        here.hub.forget("uid-g")
        assert lists == {}


async def test_a_new_leader_has_no_list_until_a_sidecar_sends_it_again() -> None:
    async with hub() as here:
        first = await member(here, ran=1)
        await first.say(imports())
        assert await hears(await member(here, "worker-4")) == imports()
        here.hub.end_term()
        spare = await member(here, "worker-4")
        await says_nothing(spare)
        await (await member(here, ran=1)).say(imports())
        assert await hears(spare) == imports()


async def test_a_list_goes_to_many_members_with_their_own_next_reports_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangctl.controller.hub.SLICE", 2)
    async with hub() as here:
        first, *others = [await member(here, f"worker-{at}", ran=int(at == 0)) for at in range(3)]
        await first.say(imports())
        await asyncio.gather(*map(says_nothing, others))
        await others[1].say(
            wire.Report("uid-g", "worker-2", 0, "pod-uid-g-worker-2", "session", 2, 1, wire.Phase.READY)
        )
        assert await hears(others[1]) == imports()
