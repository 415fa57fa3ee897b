"""Crashes of gangctl or of Kueue in the middle of what they do together, and the quota that is then in use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import pytest

from e2e.api_proxy import ApiProxy
from e2e.cluster.lab import Lab
from e2e.controllers import Controller, LocalControllers
from e2e.failpoints import Failpoint, Hits, kill
from e2e.gangs import Kubectl
from e2e.queues import kueue
from gangctl.core.facts.node_affinity import quantity
from tests.wait import until, until_async

CPU = "cpu"

Program = Literal["gangctl", "kueue"]
each_crash = pytest.mark.parametrize(
    ("program", "after"),
    [
        pytest.param("gangctl", False, id="gangctl-before"),
        pytest.param("gangctl", True, id="gangctl-after"),
        pytest.param("kueue", True, id="kueue"),
    ],
)
"""Who is killed, and whether after gangctl's request or before."""


@dataclass(frozen=True)
class Crashes:
    """Where a program is killed and started again: gangctl's controllers behind a proxy, and Kueue."""

    controllers: LocalControllers
    proxy: ApiProxy
    lab: Lab
    environment: Mapping[str, str]
    """Of gangctl's controllers."""

    async def during(self, scenario: Callable[[], None], program: Program, moment: Hits, *, after: bool) -> None:
        """Run the scenario; meanwhile the program is killed once, and started again.

        Args:
            scenario: runs in a thread.
            program: that is killed.
            moment: the request of gangctl's at which it is killed.
            after: whether the request is stored first.
        """
        first = await self.controllers.start("first", self.proxy.url, **self.environment)

        async def strike(one: Controller) -> None:
            await (kill(one) if program == "gangctl" else asyncio.to_thread(kueue.kill, self.lab))

        failpoint = Failpoint(lambda: first, moment, after=after, strike=strike)
        self.proxy.faults.append(failpoint)

        async def revive() -> None:
            await until_async(f"{program} was killed", lambda: failpoint.done, 240)
            if program == "gangctl":
                await self.controllers.start("second", self.proxy.url, **self.environment)
            else:
                await asyncio.to_thread(kueue.start, self.lab)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(revive())
            tasks.create_task(asyncio.to_thread(scenario))


def uses(kubectl: Kubectl, namespace: str, *, sidecars: bool = True) -> None:
    """Wait until the queue of a namespace counts exactly what the pods in it hold.

    Args:
        kubectl: of the cluster.
        namespace: its name is the queue's.
        sidecars: whether those of gangctl are in the quota.
    """

    def same() -> bool:
        used, held = in_use(kubectl, namespace), _held(kubectl, namespace, sidecars=sidecars)
        return used == held

    until("the quota in use is what the pods hold", same, every=0.25)


def in_use(kubectl: Kubectl, queue: str) -> Decimal:
    """How much CPU the queue counts as used."""
    found = json.loads(kubectl("get", "clusterqueue", queue, "-o", "json")).get("status", {})
    flavors = (one["resources"] for one in found.get("flavorsUsage", ()))
    return sum((_amount(one["total"]) for each in flavors for one in each if one["name"] == CPU), Decimal())


def _held(kubectl: Kubectl, namespace: str, *, sidecars: bool) -> Decimal:
    """How much CPU the pods have that haven't ended."""
    pods = json.loads(kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"]
    live = [one["spec"] for one in pods if one["status"].get("phase") not in {"Succeeded", "Failed"}]
    return sum((_request(one) for spec in live for one in _containers(spec, sidecars=sidecars)), Decimal())


def _containers(spec: dict[str, Any], *, sidecars: bool) -> list[dict[str, Any]]:
    restarted = [one for one in spec.get("initContainers", ()) if one.get("restartPolicy") == "Always"]
    return [*spec["containers"], *(restarted if sidecars else ())]


def _request(container: dict[str, Any]) -> Decimal:
    return _amount(container.get("resources", {}).get("requests", {}).get(CPU, "0"))


def _amount(text: str) -> Decimal:
    found = quantity(text)
    assert found is not None
    return found
