"""Stops, deletes and reruns GangJobs of a cluster."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any, Final

from gangctl.api.gangjob import GangJob
from gangctl.api.status import ENDED, GangPhase
from gangctl.cli.errors import UserError
from gangctl.cli.targets.anew import document_anew
from gangctl.cli.targets.gangjobs import GangJobs
from gangctl.cli.targets.port import Say
from gangctl.cluster.errors import ClusterError

MARGIN_SECONDS: Final = 60.0
"""Beyond the grace period, for the kubelets to end the pods."""
DELETE_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.5

Pods = Callable[[GangJob], Awaitable[list[str]]]
"""Names of the pods of a gang."""


async def stop(gangs: GangJobs, pods: Pods, name: str, seconds: float | None, say: Say) -> bool:
    """Suspend a gang and wait until its pods are gone; False if they are not in time.

    Raises:
        UserError: there is no such gang.
        ClusterError: the API server refuses.
    """
    job = await gangs.read(name)
    if job.status.phase in ENDED:
        say(f"{name} has ended ({job.status.phase}): nothing of it runs")
        return True
    await gangs.change(name, {"suspend": True})
    grace = job.spec.recovery.planned_stop_grace_period_seconds
    left = await pods(job)
    say(f"{name}: spec.suspend is set: {len(left)} pods are deleted, with up to {grace} s for a last checkpoint")
    try:
        async with asyncio.timeout(grace + MARGIN_SECONDS if seconds is None else seconds):
            while job.status.phase not in {GangPhase.SUSPENDED, *ENDED} or left:
                await asyncio.sleep(POLL_SECONDS)
                job, left = await gangs.read(name), await pods(job)
    except TimeoutError:
        return False
    say(
        f"{name} is stopped: none of its pods is left; attempt {job.status.attempt} and restore point stay; "
        f"gangctl resume {name} continues it"
    )
    return True


async def delete(gangs: GangJobs, name: str, seconds: float | None, say: Say) -> bool:
    """Delete a gang and wait until the object is gone; False if it is not in time.

    Raises:
        UserError: there is no such gang.
        ClusterError: the API server refuses.
    """
    uid = (await gangs.document(name))["metadata"]["uid"]
    await gangs.delete(name, uid)
    if not await _is_gone(gangs, name, uid, DELETE_SECONDS if seconds is None else seconds):
        return False
    say(f"gangjob {name} is deleted; the cluster ends and deletes its pods")
    return True


async def rerun(gangs: GangJobs, name: str, say: Say) -> None:
    """Delete a gang that has ended and create it again from its stored spec.

    Raises:
        UserError: there is no such gang, it has not ended, or it could not be created again; the message has the file.
        ClusterError: the API server refuses the deletion.
    """
    document = await gangs.document(name)
    uid, wanted = document["metadata"]["uid"], document_anew(document)
    await gangs.delete(name, uid)
    try:
        why = "" if await _is_gone(gangs, name, uid, DELETE_SECONDS) else f"still there after {DELETE_SECONDS:g} s"
        if not why:
            await gangs.create(wanted)
    except (ClusterError, asyncio.CancelledError) as error:
        why = str(error) or "interrupted"
    if why:
        path = _saved(name, wanted)
        raise UserError(
            f"gangjob {name} is deleted and could not be created again ({why}); its manifest is in {path}: "
            f"kubectl create -f {path}"
        )
    say(f"gangjob {name} is created again; gangctl status {name} --watch follows it")


async def _is_gone(gangs: GangJobs, name: str, uid: str, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            while await gangs.uid(name) == uid:  # noqa: ASYNC110 - a user who may delete need not be allowed to watch
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        return False
    return True


def _saved(name: str, document: dict[str, Any]) -> str:
    with tempfile.NamedTemporaryFile("w", prefix=f"{name}-", suffix=".json", delete=False) as file:
        json.dump(document, file, indent=2)
    return file.name
