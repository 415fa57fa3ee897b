"""A controller with a selector manages the gangs that it selects, and no others; a changed label moves a gang.

For a moment both controllers may know the gang, or none of them. The one that gets it must not take the silence of
members that it could not hear for their end, and the one that loses it must not write any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from gangctl.cluster import clock
from gangctl.cluster.errors import Conflict
from tests.cluster.kube.fakeapi import FakeApi, serving, status
from tests.cluster.kube.livecluster import NODE, SETTINGS, LiveCluster
from tests.cluster.kube.objects import UID, gang, pod
from tests.controller.replicas import about
from tests.wait import until_async


def labelled(team: str, name: str = "g", uid: str = UID) -> dict[str, Any]:
    """A gang of this team; empty = without a label."""
    found = gang(name, uid)
    found["metadata"]["labels"] = {"team": team} if team else {}
    return found


async def relabel(api: FakeApi, team: str) -> None:
    """Give the gang to another team."""
    stored = api.objects["gangjobs", "default", "g"]
    await api.put("gangjobs", {**stored, "metadata": {**stored["metadata"], "labels": {"team": team}}})


@pytest.fixture
async def both() -> AsyncIterator[tuple[LiveCluster, LiveCluster]]:
    """The controllers of the red gangs and of all that are not red, which watch one API server."""
    async with serving() as (api, client):
        await api.put("gangjobs", labelled("red"))
        await api.put("gangjobs", labelled("blue", "b", "uid-b"))
        await api.put("gangjobs", labelled("", "n", "uid-n"))
        await api.put("pods", pod())
        await api.put(*NODE)
        red, others = (
            LiveCluster(api, client, replace(SETTINGS, selector=selector)) for selector in ("team=red", "team!=red")
        )
        async with red.watching(), others.watching():
            yield red, others


async def moved(api: FakeApi, team: str, to: LiveCluster, losing: LiveCluster) -> None:
    """Relabel the gang and wait until both have seen it."""
    await relabel(api, team)
    await until_async("one has it", lambda: to.cluster.exists(UID))
    await until_async("the other has lost it", lambda: not losing.cluster.exists(UID))


async def test_each_sees_its_own_gangs(both: tuple[LiveCluster, LiveCluster]) -> None:
    red, others = both
    assert red.cluster.uids() == (UID,)
    assert sorted(others.cluster.uids()) == ["uid-b", "uid-n"]
    assert red.names() == ["g-worker-0-0"]
    assert others.names() == [], "a pod belongs to a gang that this controller manages"


async def test_a_changed_label_moves_a_gang_with_its_pods_and_back(both: tuple[LiveCluster, LiveCluster]) -> None:
    red, others = both
    await moved(red.api, "blue", others, red)
    assert UID in red.notified
    assert (red.names(), others.names()) == ([], ["g-worker-0-0"])
    await moved(red.api, "red", red, others)
    assert (red.names(), others.names()) == (["g-worker-0-0"], [])
    for attempt in (7, 8):
        written = await red.cluster.write_status(red.job, red.job.status.model_copy(update={"attempt": attempt}))
        assert red.job == written, "the next decision sees each write of a gang that has come back"


async def test_the_one_that_gets_it_has_heard_nobody_before(both: tuple[LiveCluster, LiveCluster]) -> None:
    red, others = both
    others.cluster.begin_term()
    began = others.cluster.listening_since("uid-b")
    await until_async("time passes", lambda: clock.now() > began + 0.05)
    before = clock.now()
    await moved(red.api, "blue", others, red)
    assert others.cluster.listening_since("uid-b") == began
    assert others.cluster.listening_since(UID) >= before
    first = others.cluster.listening_since(UID)
    await moved(red.api, "red", red, others)
    await moved(red.api, "blue", others, red)
    assert others.cluster.listening_since(UID) > first, "what was heard between is not known"


async def test_the_one_that_loses_it_can_write_no_status_whatever_its_watch_shows(
    both: tuple[LiveCluster, LiveCluster],
) -> None:
    red, others = both
    job = red.job
    await relabel(red.api, "blue")
    with pytest.raises(Conflict):
        await red.cluster.write_status(job, job.status.model_copy(update={"attempt": 7}))
    await until_async("it has lost it", lambda: not red.cluster.exists(UID))
    assert others.job.status.attempt == 0


async def test_a_gang_that_was_given_away_while_the_watch_was_broken_is_lost_with_the_next_list(
    both: tuple[LiveCluster, LiveCluster],
) -> None:
    red, others = both
    fault = about("gangjobs", lambda: status(503, "ServiceUnavailable", "starting"))
    red.api.faults.append(fault)
    await red.api.cut()
    await relabel(red.api, "blue")
    red.api.forget()
    red.api.faults.remove(fault)
    await until_async("one has it", lambda: others.cluster.exists(UID))
    await until_async("the other has lost it", lambda: not red.cluster.exists(UID))


async def test_a_gang_that_leaves_and_comes_back_during_a_list_is_there(
    both: tuple[LiveCluster, LiveCluster],
) -> None:
    red, others = both
    arrived, listed, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> None:
        if request.path.endswith("/gangjobs") and request.query.get("labelSelector") == "team=red":
            arrived.set()
            await (done if "watch" in request.query else listed).wait()

    red.api.faults.append(slow)
    refreshing = asyncio.create_task(red.cluster.refresh())
    await arrived.wait()
    await moved(red.api, "blue", others, red)
    await red.api.cut()
    await relabel(red.api, "red")
    listed.set()
    await refreshing
    assert red.cluster.exists(UID)
    done.set()


async def test_pods_of_gangs_of_another_controller_wake_nothing(both: tuple[LiveCluster, LiveCluster]) -> None:
    red, others = both
    before = others.notified.count(UID)
    await red.api.put("pods", pod(status={"phase": "Running"}))
    await red.api.put("pods", pod(owner="n", label="uid-n", uid="uid-of-n", gang="n"))
    await until_async("both have seen the pods", lambda: "uid-n" in others.notified and red.notified.count(UID) > 1)
    assert others.notified.count(UID) == before
