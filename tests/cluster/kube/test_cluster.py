from __future__ import annotations

import asyncio
import time

import pytest
from aiohttp import web

from gangctl.api.reasons import Reason
from gangctl.cluster.kube import informers, reflector
from gangctl.cluster.kube.informers import Informers
from gangctl.core.lifecycle.plan import Event
from tests.cluster.kube.fakeapi import serving, status
from tests.cluster.kube.livecluster import GANG, NODE, LiveCluster, live_cluster
from tests.cluster.kube.objects import UID, gang, node, pod
from tests.messages import words
from tests.wait import until_async


async def test_no_object_is_shown_before_everything_was_listed() -> None:
    async with serving() as (api, client):
        await api.put("gangjobs", gang())
        await api.put("pods", pod())
        go_on = asyncio.Event()

        async def slow(request: web.Request) -> None:
            if request.path.endswith("/pods"):
                await go_on.wait()

        api.faults.append(slow)
        one = LiveCluster(api, client)
        task = asyncio.create_task(one.cluster.watch(one.notified.append))
        await until_async("gangs and nodes are watched", lambda: api.watches() == 2)
        assert (one.cluster.gang(UID), one.notified, one.cluster.uids()) == (None, [], ())
        assert one.cluster.listening_since(UID) == pytest.approx(time.time(), abs=1)
        go_on.set()
        await until_async("the gang is notified", lambda: one.notified == [UID])
        assert one.names() == ["g-worker-0-0"]
        assert one.cluster.uids() == (UID,)
        task.cancel()


def regarded(one: LiveCluster) -> list[str]:
    """The names of the gangs that Events are about."""
    return [event["regarding"]["name"] for key, event in one.api.objects.items() if key[0] == "events"]


async def test_a_deleted_or_unreadable_gang_is_not_shown_and_does_not_block_others() -> None:
    going = gang("going", "u-2")
    going["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
    async with live_cluster(
        GANG, ("gangjobs", going), ("gangjobs", gang("odd", "u-3", status={"phase": "Dancing"}))
    ) as one:
        assert set(one.cluster.uids()) == {UID, "u-3"}, "a term begins with a look at both"
        assert one.cluster.gang("u-2") is None
        assert one.cluster.gang("u-3") is None
        assert one.cluster.unreadable("u-2") is one.cluster.unreadable(UID) is None
        odd = one.cluster.unreadable("u-3")
        assert odd is not None
        assert odd.why.startswith("status.phase")
        await one.cluster.emit(odd, Event(Reason.UNREADABLE, words(odd.why)))
        await until_async("it is told of on its GangJob", lambda: regarded(one) == ["odd"])
        await one.api.put("gangjobs", gang("odd", "u-3"))
        await until_async("the corrected gang is shown", lambda: one.cluster.gang("u-3") is not None)
        assert one.notified[-1] == "u-3"


async def test_a_pod_that_names_a_gang_that_does_not_own_it_wakes_no_gang() -> None:
    async with live_cluster(GANG) as one:
        one.notified.clear()
        await one.api.put("pods", pod("worker-1", owner="another-owner"))
        await one.api.put("pods", pod("worker-2", namespace="other"))
        await one.api.put("pods", pod("worker-0"))
        await until_async("its own pod is shown", lambda: len(one.cluster.pods(UID)) == 1)
        assert one.notified == [UID]


async def test_a_pod_belongs_to_a_gang_only_if_the_gang_owns_it_in_its_namespace() -> None:
    async with serving() as (api, client):
        await api.put("gangjobs", gang())
        await api.put("pods", pod("worker-0"))
        await api.put("pods", pod("worker-1", owner="another-owner"))
        await api.put("pods", pod("worker-2", namespace="other"))
        found = Informers(client)
        task = asyncio.create_task(found.run(lambda _uid: None))
        await until_async("everything is listed", lambda: found.has_synced)
        assert [one.pod.name for one in found.pods_of(UID)] == ["g-worker-0-0"]
        assert found.pod("uid-g-worker-0-0") is not None
        assert found.pod("uid-g-worker-1-0") is None
        assert found.pod("uid-g-worker-2-0") is None
        task.cancel()


async def test_a_silent_or_deleted_node_is_lost_and_its_gangs_are_notified() -> None:
    async with live_cluster(GANG, NODE, ("nodes", node("n2")), ("pods", pod(spec={"nodeName": "n1"}))) as one:
        assert not one.cluster.lost_nodes()
        one.notified.clear()
        await one.api.put("nodes", node(ready="Unknown"))
        await until_async("the node is lost", lambda: set(one.cluster.lost_nodes()) == {"n1"})
        assert one.notified == [UID]
        await one.api.put("nodes", node(ready="False"))
        await until_async("the node is back", lambda: not one.cluster.lost_nodes())
        await one.api.remove("nodes", "", "n1")
        await until_async("the node is lost", lambda: set(one.cluster.lost_nodes()) == {"n1"})
        await one.api.put("nodes", node(uid="other"))
        await until_async("the node is back", lambda: not one.cluster.lost_nodes())


async def test_what_a_node_comes_to_show_is_told_to_the_gangs_on_it() -> None:
    quiet = node(ready="True", spec={})
    async with live_cluster(
        GANG, ("nodes", quiet), ("nodes", node("n2")), ("pods", pod(spec={"nodeName": "n1"}))
    ) as one:
        assert not one.cluster.nodes()
        one.notified.clear()
        taints = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]
        await one.api.put("nodes", node("n2", spec={"unschedulable": True}))
        await one.api.put("nodes", node(spec={"taints": taints}))
        await until_async("both are shown", lambda: set(one.cluster.nodes()) == {"n1", "n2"})
        (signal,) = one.cluster.nodes()["n1"].signals
        assert (signal.answer, signal.what) == ("Drain", "taint karpenter.sh/disrupted:NoSchedule")
        assert signal.since == pytest.approx(time.time(), abs=5)
        assert one.cluster.nodes()["n2"].cordoned
        assert one.notified == [UID], "the gang of the pod on n1, once"
        await one.api.put("nodes", quiet)
        await until_async("it is over", lambda: set(one.cluster.nodes()) == {"n2"})


async def test_an_unknown_node_is_lost_some_time_after_its_pod_was_scheduled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = pod(spec={"nodeName": "gone"})
    async with live_cluster(GANG, ("pods", old)) as one:
        assert set(one.cluster.lost_nodes()) == {"gone"}
        monkeypatch.setattr(informers, "UNSEEN_SECONDS", 1e12)
        await one.api.put("pods", pod("worker-1", spec={"nodeName": "new"}))
        await until_async("the new pod is shown", lambda: len(one.names()) == 2)
        assert not one.cluster.lost_nodes()


async def test_a_lost_node_counts_from_when_this_leaders_own_fresh_watch_shows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with live_cluster(GANG, NODE, ("pods", pod(spec={"nodeName": "n1"}))) as one:
        await one.api.put("nodes", node(ready="Unknown"))
        await until_async("the node is lost", lambda: bool(one.cluster.lost_nodes()))
        seen = one.cluster.lost_nodes()["n1"]
        assert seen == pytest.approx(time.time(), abs=5)
        one.cluster.leading_since = seen + 5
        assert one.cluster.lost_nodes() == {"n1": seen + 5}
        one.cluster.leading_since = 0.0
        assert one.cluster.lost_nodes() == {"n1": seen}
        monkeypatch.setattr(reflector, "BREAK_SECONDS", -1.0)
        assert one.cluster.lost_nodes()["n1"] > seen, "what a stale watch shows counts from now on"


async def test_listening_since_does_not_change_over_a_short_break_of_a_watch() -> None:
    async with live_cluster(GANG) as one:
        before = one.cluster.listening_since(UID)
        one.cluster.leading_since = before + 5
        assert one.cluster.listening_since(UID) == before + 5
        one.cluster.leading_since = 0.0

        async def away(_request: web.Request) -> web.Response:
            return status(503, "ServiceUnavailable", "starting")

        one.api.faults.append(away)
        await one.api.cut()
        await until_async("the watch is broken", lambda: one.cluster.informers.stale_seconds > 0)
        one.api.faults.clear()
        await until_async("the watch works", lambda: one.cluster.informers.stale_seconds == 0)
        assert one.cluster.listening_since(UID) == before


async def test_a_new_watch_shows_no_object_of_an_earlier_one() -> None:
    async with serving() as (api, client):
        await api.put("gangjobs", gang())
        await api.put("pods", pod())
        one = LiveCluster(api, client)
        async with one.watching():
            assert one.names() == ["g-worker-0-0"]
        del api.objects["pods", "default", "g-worker-0-0"]
        async with one.watching():
            assert one.names() == []
            assert one.notified == [UID, UID]
