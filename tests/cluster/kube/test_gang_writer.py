from __future__ import annotations

import pytest
from aiohttp import web

from gangctl.api.status import GangPhase, Status
from gangctl.cluster.errors import Conflict, Retryable, Terminal
from tests.cluster.kube.fakeapi import status
from tests.cluster.kube.livecluster import GANG, live_cluster
from tests.cluster.kube.objects import UID, gang


async def test_a_written_status_is_read_at_once() -> None:
    async with live_cluster(GANG) as one:
        stored = await one.cluster.write_status(one.job, Status(phase=GangPhase.PENDING, attempt=1))
        assert one.job is stored
        assert one.api.objects["gangjobs", "default", "g"]["status"]["attempt"] == 1
        again = await one.cluster.write_status(stored, Status(phase=GangPhase.PENDING, attempt=2))
        assert one.job.status.attempt == again.status.attempt == 2


async def test_failed_writes_are_counted_from_zero() -> None:
    async with live_cluster(GANG) as one:
        assert one.cluster.gang_writer.failures == {"Conflict": 0, "Retryable": 0, "Terminal": 0}


async def test_a_conflict_refreshes_the_object() -> None:
    async with live_cluster(GANG) as one:
        old = one.job
        for _ in range(2):
            await one.cluster.write_status(one.job, Status(attempt=one.job.status.attempt + 1))
        with pytest.raises(Conflict, match="gang g was changed by another process"):
            await one.cluster.write_status(old, Status(attempt=9))
        assert one.job.status.attempt == 2


async def test_a_write_after_a_conflict_succeeds() -> None:
    async with live_cluster(GANG) as one:
        seen: set[str] = set()

        async def interfere(request: web.Request) -> None:
            if request.method == "PUT":
                version = (await request.json())["metadata"]["resourceVersion"]
                if not seen:
                    stored = one.api.objects["gangjobs", "default", "g"]
                    stored["metadata"]["annotations"] = {"touched": version}
                    await one.api.put("gangjobs", stored)
                seen.add(version)

        one.api.faults.append(interfere)
        with pytest.raises(Conflict):
            await one.cluster.write_status(one.job, Status(attempt=1))
        assert (await one.cluster.write_status(one.job, Status(attempt=1))).status.attempt == 1


async def test_a_new_gang_of_the_same_name_is_another_gang() -> None:
    async with live_cluster(GANG) as one:
        old = one.job

        async def swap(request: web.Request) -> None:
            if request.method == "PUT":
                del one.api.objects["gangjobs", "default", "g"]
                await one.api.put("gangjobs", gang(uid="new"))

        one.api.faults.append(swap)
        with pytest.raises(Conflict):
            await one.cluster.write_status(old, Status(attempt=1))
        assert one.cluster.gang(UID) is None
        assert one.cluster.uids() == ("new",)


async def test_a_stored_status_counts_when_the_answer_is_lost() -> None:
    async with live_cluster(GANG) as one:

        async def lose(request: web.Request) -> web.Response | None:
            if request.method != "PUT":
                return None
            stored = one.api.objects["gangjobs", "default", "g"]
            await one.api.put("gangjobs", {**stored, "status": (await request.json())["status"]})
            return status(504, "Timeout", "the request did not complete in time")

        one.api.faults.append(lose)
        written = await one.cluster.write_status(one.job, Status(attempt=4, phase_time=1795256484.126795))
        assert written.status.attempt == one.job.status.attempt == 4


async def test_a_failed_write_leaves_the_stored_object() -> None:
    async with live_cluster(GANG) as one:

        async def fail(request: web.Request) -> web.Response | None:
            return status(500, "InternalError", "etcd is away") if request.method == "PUT" else None

        one.api.faults.append(fail)
        with pytest.raises(Retryable, match="etcd is away"):
            await one.cluster.write_status(one.job, Status(attempt=1))
        assert one.job.status.attempt == 0


async def test_a_failed_write_is_counted_though_the_gang_cannot_be_read_either() -> None:
    async with live_cluster(GANG) as one:

        async def fail(request: web.Request) -> web.Response | None:
            return status(503, "ServiceUnavailable", "etcd is away") if request.path.count("/gangjobs/") else None

        one.api.faults.append(fail)
        with pytest.raises(Retryable, match="failed at PUT"):
            await one.cluster.write_status(one.job, Status(attempt=1))
        assert one.cluster.gang_writer.failures["Retryable"] == 1


async def test_a_gang_whose_deletion_is_refused_stays() -> None:
    async with live_cluster(GANG) as one:

        async def refuse(request: web.Request) -> web.Response | None:
            return status(409, "Conflict", "a webhook keeps it") if request.method == "DELETE" else None

        one.api.faults.append(refuse)
        with pytest.raises(Retryable, match="a webhook keeps it"):
            await one.cluster.delete_gang(one.job)
        assert one.cluster.gang(UID) is not None


async def test_a_rejected_status_is_terminal_with_the_api_servers_message() -> None:
    async with live_cluster(GANG) as one:

        async def refuse(request: web.Request) -> web.Response | None:
            return status(422, "Invalid", "status.attempt: too large") if request.method == "PUT" else None

        one.api.faults.append(refuse)
        with pytest.raises(Terminal, match=r"the status of gang g can't be stored: status\.attempt: too large"):
            await one.cluster.write_status(one.job, Status(attempt=1))


async def test_a_deleted_gang_is_gone_at_once() -> None:
    async with live_cluster(GANG) as one:
        old = one.job
        await one.cluster.delete_gang(old)
        assert one.cluster.gang(UID) is None
        assert ("gangjobs", "default", "g") not in one.api.objects
        await one.cluster.delete_gang(old)
