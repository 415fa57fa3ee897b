"""A new CA or address of the hub reaches the pods that run; only the leader writes, and only where it must."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web

from gangctl.api.names import ANNOTATION_HUB_ADDRESS, ANNOTATION_HUB_CA, ANNOTATION_HUB_URL
from gangctl.cluster.kube import contact
from tests.cluster.kube.fakeapi import FakeApi, status
from tests.cluster.kube.livecluster import FIRST, GANG, NODE, SETTINGS, LiveCluster, live_cluster
from tests.cluster.kube.objects import pod
from tests.wait import until_async

SERVICE = {"metadata": {"name": "gangctl", "namespace": "gangctl-system"}, "spec": {"clusterIP": "10.96.0.7"}}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contact, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(contact, "ADDRESS_SECONDS", 0.02)


def told(ca: str = "CA", address: str = "", url: str | None = SETTINGS.url, **fields: Any) -> dict[str, Any]:
    """A pod that was told this; ``url`` None: by a release that told none."""
    annotations = {ANNOTATION_HUB_CA: ca, ANNOTATION_HUB_ADDRESS: address, "mine": "kept"}
    return pod(metadata={"annotations": annotations | ({} if url is None else {ANNOTATION_HUB_URL: url})}, **fields)


def annotations_of(api: FakeApi, name: str = "g-worker-0-0") -> dict[str, str]:
    found: dict[str, str] = api.objects["pods", "default", name]["metadata"]["annotations"]
    return found


async def has(live: LiveCluster, ca: str, address: str = "", name: str = "g-worker-0-0") -> None:
    def holds() -> bool:
        found = annotations_of(live.api, name)
        return (found[ANNOTATION_HUB_CA], found[ANNOTATION_HUB_ADDRESS]) == (ca, address)

    await until_async("the pod has it", holds)


async def test_a_new_ca_reaches_the_pods_that_run_and_changes_nothing_else() -> None:
    async with live_cluster(GANG, NODE, ("pods", told())) as live:
        live.cluster.begin_term()
        live.ca = "NEW"
        await has(live, "NEW")
        assert annotations_of(live.api)["mine"] == "kept"
        assert live.api.objects["pods", "default", "g-worker-0-0"]["spec"] == told()["spec"]
        sent = live.api.count("PATCH", "pods")
        await live.cluster.refresh()
        live.ca = "NEWER"
        await has(live, "NEWER")
        assert live.api.count("PATCH", "pods") == sent + 1 == 2


async def test_a_new_pod_has_the_address_of_the_service_and_an_older_one_gets_it_when_it_changes() -> None:
    async with live_cluster(GANG, NODE, ("services", dict(SERVICE))) as live:
        live.cluster.begin_term()
        await live.cluster.create_pod(live.job, FIRST)
        await has(live, "CA", "10.96.0.7")
        await live.api.remove("services", "gangctl-system", "gangctl")
        await has(live, "CA", "")
        await live.api.put("services", {**SERVICE, "spec": {"clusterIP": "None"}})
        await live.api.put("services", {**SERVICE, "spec": {"clusterIP": "fd00::7"}})
        await has(live, "CA", "fd00::7")


async def test_an_address_that_cannot_be_read_stays_as_it_was() -> None:
    async with live_cluster(GANG, NODE, ("services", dict(SERVICE)), ("pods", told())) as live:
        live.cluster.begin_term()
        await has(live, "CA", "10.96.0.7")

        async def forbidden(request: web.Request) -> web.StreamResponse | None:
            return status(403, "Forbidden", "no") if "/services/" in request.path else None

        live.api.faults.append(forbidden)
        live.ca = "NEW"
        await has(live, "NEW", "10.96.0.7")


async def test_a_new_leader_that_has_not_read_the_address_yet_leaves_it_to_the_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unread(_self: object) -> None:
        return

    monkeypatch.setattr(contact.ServiceAddress, "_refresh", unread)
    async with live_cluster(GANG, NODE, ("pods", told("OLD", "10.96.0.9"))) as live:
        live.cluster.begin_term()
        await has(live, "CA", "10.96.0.9")


async def test_a_pod_that_was_told_of_another_hub_learns_of_this_one_and_forgets_the_address_of_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unread(_self: object) -> None:
        return

    monkeypatch.setattr(contact.ServiceAddress, "_refresh", unread)
    async with live_cluster(GANG, NODE, ("pods", told("CA", "10.96.0.9", "wss://other.svc:8443/v1/connect"))) as live:
        live.cluster.begin_term()
        await until_async("it is told", lambda: annotations_of(live.api).get(ANNOTATION_HUB_URL) == SETTINGS.url)
        assert annotations_of(live.api)[ANNOTATION_HUB_ADDRESS] == ""


@pytest.mark.parametrize("leads", [False, True])
async def test_nothing_is_written_without_the_lead_without_a_ca_or_to_pods_of_others(leads: bool) -> None:  # noqa: FBT001
    others = [
        ("pods", told("OLD", owner="another", member="worker-1")),
        ("pods", pod("worker-2")),  # without the annotations
        ("pods", told("OLD", member="worker-3", status={"phase": "Succeeded"})),
    ]
    async with live_cluster(GANG, NODE, ("pods", told("OLD")), *others) as live:
        live.cluster.begin_term()
        await has(live, "CA")
        if not leads:
            live.cluster.resign()
        live.ca = "" if leads else "NEW"
        before = live.api.count("GET", "services")
        await until_async("it had time", lambda: live.api.count("GET", "services") >= before + 20)
        assert live.api.count("PATCH", "pods") == 1
        assert annotations_of(live.api)[ANNOTATION_HUB_CA] == "CA"


async def test_a_pod_of_another_uid_is_left_alone_and_a_failure_is_tried_again() -> None:
    failures = iter([status(403, "Forbidden", "no patch"), status(500, "InternalError", "later")])

    async def failing(request: web.Request) -> web.StreamResponse | None:
        return next(failures, None) if request.method == "PATCH" else None

    async with live_cluster(GANG, NODE, ("pods", told("OLD"))) as live:
        live.api.faults.append(failing)
        live.cluster.begin_term()
        await has(live, "CA")
        uids: list[str] = []

        async def replaced(request: web.Request) -> web.StreamResponse | None:
            if request.method == "PATCH":
                uids.append(json.loads(await request.read())["metadata"]["uid"])
                return status(409, "Conflict", "the UID in the precondition does not match the UID in record")
            return None

        live.api.faults.append(replaced)
        live.ca = "NEW"
        await until_async("it was tried again", lambda: len(uids) > 1)
        assert set(uids) == {"uid-g-worker-0-0"}


async def test_pods_that_are_refused_for_good_delay_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contact, "MAX_REQUESTS", 2)

    async def refusing(request: web.Request) -> web.StreamResponse | None:
        refused = request.method == "PATCH" and "worker-9" not in request.path
        return status(422, "Invalid", "annotations: Too long") if refused else None

    members = [("pods", told("OLD", member=f"worker-{at}")) for at in range(10)]
    async with live_cluster(GANG, NODE, *members) as live:
        live.api.faults.append(refusing)
        live.cluster.begin_term()
        await has(live, "CA", name="g-worker-9-0")
        assert annotations_of(live.api, "g-worker-8-0")[ANNOTATION_HUB_CA] == "OLD"
