"""Three replicas relay on a real cluster: one is killed or frozen in the middle of a restart, which goes on alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from e2e import installation, process_faults
from e2e.api_proxy import ApiProxy
from e2e.clusters import Cluster
from e2e.controllers import NAME, NAMESPACE, Controller, LocalControllers
from e2e.gangs import sleepers
from e2e.installation import Installed
from e2e.test_controller_faults import Submit, assert_one_restart
from tests.wait import until_async

AUDIENCE = "gangctl.io/relay"


def leader(controllers: LocalControllers) -> str:
    """The name of the replica that leads; empty = none does."""
    path = "jsonpath={.spec.holderIdentity}"
    found: str = controllers.kubectl("get", "lease", NAME, "-n", NAMESPACE, "--ignore-not-found", "-o", path)
    return found.partition("_")[0]


async def three(controllers: LocalControllers, server: str, folder: Path) -> list[Controller]:
    """Three replicas that relay, one of which leads, and all of which have a link to it."""
    token = folder / "relay-token"
    words = ("create", "token", NAME, "-n", NAMESPACE, f"--audience={AUDIENCE}", "--duration=1h")
    token.write_text(controllers.kubectl(*words))
    found = [await controllers.start(name, server, GANGCTL_RELAY_TOKEN=str(token)) for name in ("one", "two", "three")]
    await until_async("all are linked", lambda: all("linked to the leader" in one.log.read_text() for one in found), 60)
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("frozen", [False, True], ids=["killed", "frozen"])
@pytest.mark.parametrize("leads", [False, True], ids=["relay", "leader"])
async def test_a_replica_that_is_lost_in_the_middle_of_a_restart_costs_no_attempt(
    local_controllers: LocalControllers,
    api_proxy: ApiProxy,
    submit: Submit,
    shared_dir: Path,
    tmp_path: Path,
    *,
    leads: bool,
    frozen: bool,
) -> None:
    replicas = await three(local_controllers, api_proxy.url, tmp_path)
    name = f"relayed-{'leader' if leads else 'relay'}-{'frozen' if frozen else 'killed'}"
    gang = await asyncio.to_thread(submit, sleepers(name, replicas=3, directory=str(shared_dir)))
    await asyncio.to_thread(gang.runs, 1)
    uids = await asyncio.to_thread(gang.uids)
    leading = await asyncio.to_thread(leader, local_controllers)
    lost = next(one for one in replicas if (one.name == leading) is leads)
    await asyncio.to_thread(lambda: process_faults.kill(process_faults.worker(uids["worker-1"])))
    lost.freeze() if frozen else lost.kill()
    await assert_one_restart(gang, shared_dir, uids)


@pytest.mark.nightly
def test_the_charts_replicas_relay_and_their_leader_may_go(
    cluster: Cluster, submit: Submit, gangctl_installed: Installed, shared_dir: Path
) -> None:
    installation.enable(cluster, "relays", "replicaCount=3", "networkPolicy.enabled=true")
    try:
        gang = submit(sleepers("charted", replicas=3, directory=str(shared_dir)))
        gang.runs(1)
        uids = gang.uids()
        path = "jsonpath={.spec.holderIdentity}"
        held = cluster.kubectl("get", "lease", NAME, "-n", gangctl_installed.namespace, "-o", path).partition("_")[0]
        process_faults.kill(process_faults.worker(uids["worker-1"]))
        cluster.kubectl("delete", "pod", held, "-n", gangctl_installed.namespace, "--wait=false")
        asyncio.run(assert_one_restart(gang, shared_dir, uids))
    finally:
        installation.enable(cluster, "relays", "replicaCount=2", "networkPolicy.enabled=false", wanted=False)
