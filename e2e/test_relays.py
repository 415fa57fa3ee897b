"""Three replicas relay on a real cluster. Whatever happens to one of them, each fault of a gang is one restart."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import aiohttp
import pytest

from e2e import installation, process_faults
from e2e.api_proxy import ApiProxy
from e2e.cluster import addresses
from e2e.cluster.lab import Lab
from e2e.clusters import Cluster
from e2e.controllers import NAME, NAMESPACE, Controller, LocalControllers
from e2e.failpoints import WRITE_1, WRITE_2, Failpoint, kill, writes
from e2e.gangs import has_stepped, sleepers
from e2e.installation import Installed
from e2e.test_authentication import bound_to, token
from e2e.test_controller_faults import Submit, assert_restarts
from gangctl.controller.links import LINK_PATH, RELAY_HEADER
from gangsidecar import wire
from tests.wait import until_async

pytestmark = pytest.mark.nightly

AUDIENCE = "gangctl.io"
HOST = f"{NAME}.{NAMESPACE}.svc"
LINKED = "linked to the leader"
MANY = {"replaceAfter": 100, "budget": {"maxRestarts": 100}}
RESTARTS = 20
FLOOD_SECONDS = 0.005
"""Between two messages of a pod that floods: it must leave this process some time."""
PHASES = ((WRITE_1, False), (WRITE_1, True), (WRITE_2, False), (WRITE_2, True))
"""Each phase of a restart begins before or after one of the leader's two writes."""


async def relay(controllers: LocalControllers, name: str, server: str, **environment: str) -> Controller:
    """Start a replica that relays."""
    own = controllers.folder / "relay-token"
    if not own.exists():
        words = ("create", "token", NAME, "-n", NAMESPACE, f"--audience={AUDIENCE}/relay", "--duration=1h")
        own.write_text(controllers.kubectl(*words))
    return await controllers.start(name, server, GANGCTL_RELAY_TOKEN=str(own), **environment)


async def three(controllers: LocalControllers, server: str, **environment: str) -> list[Controller]:
    """Three replicas that relay, one of which leads, and all of which have a link to it."""
    found = [await relay(controllers, name, server, **environment) for name in ("one", "two", "three")]
    await until_async("all are linked", lambda: all(LINKED in one.log.read_text() for one in found), 120)
    return found


def leader(kubectl: Callable[..., str]) -> str:
    """The name of the replica that leads."""
    path = "jsonpath={.spec.holderIdentity}"
    return kubectl("get", "lease", NAME, "-n", NAMESPACE, "-o", path).partition("_")[0]


def sidecars(controllers: LocalControllers, one: Controller) -> int:
    """How many connections this replica has: those of sidecars, if it doesn't lead."""
    words = (*controllers.enter, "ss", "-Htn", "state", "established", f"( sport = :{one.port} )")
    return len(subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines())


def chosen(controllers: LocalControllers, *, leads: bool) -> Controller:
    """The leader, or the relay with the most sidecars."""
    leading = leader(controllers.kubectl)
    found = [one for one in controllers.controllers if (one.name == leading) is leads]
    return max(found, key=partial(sidecars, controllers))


async def fault(shared_dir: Path, uids: dict[str, str], attempt: int) -> None:
    """Kill a worker of this attempt, once it has made a step."""
    await until_async("it has stepped", lambda: has_stepped(shared_dir, attempt))
    uid = uids[f"worker-{attempt % len(uids)}"]
    await asyncio.to_thread(lambda: process_faults.kill(process_faults.worker(uid)))


@pytest.mark.parametrize("how", ["killed", "frozen", "cut-off"])
@pytest.mark.parametrize("leads", [False, True], ids=["relay", "leader"])
async def test_a_replica_that_is_lost_in_any_phase_of_a_restart_costs_no_attempt(
    local_controllers: LocalControllers,
    api_proxy: ApiProxy,
    submit: Submit,
    shared_dir: Path,
    *,
    leads: bool,
    how: str,
) -> None:
    await three(local_controllers, api_proxy.url)
    document = sleepers("lost", replicas=3, directory=str(shared_dir), steps=True, recovery=MANY)
    gang = await asyncio.to_thread(submit, document)
    await asyncio.to_thread(gang.runs, 1)
    uids = await asyncio.to_thread(gang.uids)

    async def strike(one: Controller) -> None:
        if how == "killed":
            await kill(one)
        elif how == "frozen":
            one.freeze()
        else:
            local_controllers.cut_off(one)

    lost = partial(chosen, local_controllers, leads=leads)
    points = [
        Failpoint(lost, writes(write, attempt), after=after, strike=strike)
        for attempt, (write, after) in enumerate(PHASES, 2)
    ]
    api_proxy.faults += points
    for attempt, point in enumerate(points, 1):
        await fault(shared_dir, uids, attempt)
        await assert_restarts(gang, shared_dir, uids, attempt + 1)
        assert point.done
        local_controllers.reach()
        for one in local_controllers.controllers:
            one.thaw()
            if one.process.returncode is not None:
                await relay(local_controllers, one.name, api_proxy.url)


def report(gang: str, pod: str, seq: int = 1) -> str:
    """The largest report that is taken, of a member which says that it has failed."""
    ends = tuple(wire.End(1, rank, 0, exit_code=1, message=f"m{rank}") for rank in range(wire.MAX_ENDS))
    who = (gang, "worker-0", 0, pod, "session", seq, 1)
    return wire.encode(wire.Report(*who, wire.Phase.RUNNING, ends=ends))


async def test_a_hostile_pod_at_a_relay_is_no_replica_speaks_for_no_other_and_delays_none(
    local_controllers: LocalControllers,
    api_proxy: ApiProxy,
    submit: Submit,
    lab: Lab,
    shared_dir: Path,
) -> None:
    await three(local_controllers, api_proxy.url)
    (shared_dir / "hostile").mkdir(mode=0o777)
    hostile = await asyncio.to_thread(submit, sleepers("hostile", replicas=1, directory=str(shared_dir / "hostile")))
    gang = await asyncio.to_thread(submit, sleepers("victim", replicas=3, directory=str(shared_dir)))
    await asyncio.to_thread(gang.runs, 1)
    uids = await asyncio.to_thread(gang.uids)
    me = (await asyncio.to_thread(hostile.pods))["worker-0"]["metadata"]
    own = token(local_controllers.kubectl, gang.namespace, f"--audience={AUDIENCE}", *bound_to(me["name"], me["uid"]))
    kept = local_controllers.kubectl("get", "secret", f"{NAME}-tls", "-n", NAMESPACE, "-o", "json")
    tls = ssl.create_default_context(cadata=base64.b64decode(json.loads(kept)["data"]["ca.crt"]).decode())
    headers = {"Authorization": f"Bearer {own}", RELAY_HEADER: "one", wire.ORDER_HEADER: "1" * 16}
    ports = {one: chosen(local_controllers, leads=one).port for one in (False, True)}
    urls = {one: f"https://{addresses.entrance(lab.control_plane.number)}:{port}" for one, port in ports.items()}

    async with aiohttp.ClientSession(headers=headers) as session:
        dial = partial(session.ws_connect, ssl=tls, server_hostname=HOST)
        for url in urls.values():
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await dial(url + LINK_PATH)
        async with dial(urls[False] + wire.CONNECT_PATH) as socket:
            await socket.send_str(report((await asyncio.to_thread(gang.read))["metadata"]["uid"], uids["worker-0"]))
            while (await socket.receive()).type is aiohttp.WSMsgType.TEXT:
                pass
            assert socket.close_code == aiohttp.WSCloseCode.POLICY_VIOLATION
        mine = (await asyncio.to_thread(hostile.read))["metadata"]["uid"]

        async def flood() -> None:
            for seq in count(1):
                with suppress(aiohttp.ClientError, OSError):
                    async with dial(urls[False] + wire.CONNECT_PATH) as socket:
                        while not socket.closed:
                            await socket.send_str(report(mine, me["uid"], seq))
                            await asyncio.sleep(FLOOD_SECONDS)

        flooding = asyncio.create_task(flood())
        await asyncio.to_thread(lambda: process_faults.kill(process_faults.worker(uids["worker-1"])))
        await assert_restarts(gang, shared_dir, uids)
        assert not flooding.done()
        flooding.cancel()


@pytest.fixture
def charted(cluster: Cluster, gangctl_installed: Installed) -> Iterator[None]:  # noqa: ARG001 - it is changed
    """The chart's release with three replicas that relay, and the network policy."""
    installation.enable(cluster, "relays", "replicaCount=3", "networkPolicy.enabled=true")
    yield
    installation.enable(cluster, "relays", "replicaCount=2", "networkPolicy.enabled=false", wanted=False)


@pytest.mark.usefixtures("charted")
async def test_rolling_upgrades_during_twenty_restarts_cost_no_attempt(
    cluster: Cluster, submit: Submit, shared_dir: Path
) -> None:
    document = sleepers("rolled", replicas=3, directory=str(shared_dir), steps=True, recovery=MANY)
    gang = await asyncio.to_thread(submit, document)
    await asyncio.to_thread(gang.runs, 1)
    uids = await asyncio.to_thread(gang.uids)
    rolled: list[str] = []
    ended = asyncio.Event()

    async def roll() -> None:
        deployment = ("deployment", NAME, "-n", NAMESPACE)
        while not ended.is_set():
            await asyncio.to_thread(cluster.kubectl, "rollout", "restart", *deployment)
            await asyncio.to_thread(cluster.kubectl, "rollout", "status", *deployment, "--timeout=180s")
            rolled.append(await asyncio.to_thread(leader, cluster.kubectl))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(roll())
        for attempt in range(1, RESTARTS + 1):
            await fault(shared_dir, uids, attempt)
            await assert_restarts(gang, shared_dir, uids, attempt + 1)
        ended.set()
    assert len(rolled) == len(set(rolled)) > 1, "each rollout has replaced the leader"


@pytest.mark.usefixtures("charted")
async def test_sidecars_follow_relays_that_are_scaled_and_each_fault_is_one_restart(
    cluster: Cluster, submit: Submit, shared_dir: Path
) -> None:
    document = sleepers("scaled", replicas=3, directory=str(shared_dir), steps=True, recovery=MANY)
    gang = await asyncio.to_thread(submit, document)
    await asyncio.to_thread(gang.runs, 1)
    uids = await asyncio.to_thread(gang.uids)
    for attempt, replicas in enumerate((1, 3, 2), 1):
        await asyncio.to_thread(installation.scale, cluster, replicas)
        await fault(shared_dir, uids, attempt)
        await assert_restarts(gang, shared_dir, uids, attempt + 1)
