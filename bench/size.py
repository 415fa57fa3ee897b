"""The size that one controller manages: simulated sidecars against a real controller process.

    python -m bench.size                                  one gang of 10,000 members, then 1,000 gangs of 10
    python -m bench.size --gangs 1 --members 2000         one size
    python -m bench.size --gangs 1 --members 2000 --relays 3

Two replicas run, or more that relay, each a process of its own, as on a cluster: TLS with their own CA, tokens that
they verify, the Lease, the watches. The API server is the one of the tests and in this process, as are the sidecars
(``simulated_sidecars.py``) with pods that exist as objects alone. So the figures are those of the controller; the load
generator takes the other core, and what it lags behind is in the times. Printed: processor and memory of the leader at
rest and while all members report steps, the longest lag of its event loop, the time from write 1 to the directive of
each member, and the time in which all members are back after the leader was killed. With many gangs also a storm: half
of them, 500 at most, fail within a second, as when a switch dies. One in ten is in a namespace of its own, and must not
wait for the others.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import islice
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from aiohttp import web

from bench.simulated_sidecars import Fleet, Member
from bench.size_replicas import Replica, controllers
from gangctl.api.names import pod_name
from gangctl.controller import housekeeping
from gangsidecar import wire
from tests.cluster.kube import objects
from tests.cluster.kube.auth.tokens import AUDIENCE, Issuer, claims, sign
from tests.cluster.kube.fakeapi import FakeApi
from tests.wait import until_async

DEADLINE_SECONDS: Final = 120.0
SECONDS_A_GANG: Final = 0.06
"""How much longer the first start of many gangs may take: each needs five requests."""
REPLICAS: Final = "system:serviceaccount:default:gangctl"
REVIEW: Final = {"authenticated": True, "user": {"username": REPLICAS}, "audiences": [f"{AUDIENCE}/relay"]}
"""What the API server says of the replicas' tokens."""
NODES: Final = 100
PODS_A_NODE: Final = 100
DIALS_AT_ONCE: Final = 20
"""New members a tenth of a second, at the first start: pods of a real gang don't all start in one instant."""
STORM: Final = 500
"""The most gangs that fail within a second."""
CROWD: Final = "crowd"
"""The namespace of nine gangs in ten; that of the others is BESIDE."""
BESIDE: Final = "beside"
HISTORY: Final = 2000
"""Events that the API server keeps for its watches."""


class Bench:
    """One run."""

    def __init__(self, api: FakeApi, fleet: Fleet, replicas: list[Replica]) -> None:
        self.api, self.fleet, self.replicas = api, fleet, replicas
        self.writes: dict[tuple[str, int], float] = {}
        """Gang and attempt -> when its first status arrived."""
        self.requests: Counter[int] = Counter()
        """Second -> requests in it that were no watch."""

    @property
    def leader(self) -> Replica:
        """The replica that holds the Lease."""
        holder = self.api.objects["leases", "default", "gangctl"]["spec"]["holderIdentity"].partition("_")[0]
        return next(one for one in self.replicas if one.name == holder)

    async def note(self, request: web.Request) -> web.StreamResponse | None:
        """Note each request, and when each attempt is first stored; keep the history of the API server short."""
        if "watch" not in request.query:
            self.requests[int(time.monotonic())] += 1
        if request.method == "PUT" and request.path.endswith("/status"):
            gang = request.path.split("/")[-2]
            self.writes.setdefault((gang, (await request.json())["status"]["attempt"]), time.monotonic())
        del self.api.history[:-HISTORY], self.api.requests[:], self.api.headers[:]
        return web.Response(text="failed\n") if request.path.endswith("/log") else None

    async def runs(self, members: list[Member], attempt: int, seconds: float = DEADLINE_SECONDS) -> None:
        """Wait until these members run this attempt."""
        await until_async(
            f"attempt {attempt} runs", lambda: all(attempt in one.ran for one in members), seconds, every=0.1
        )

    async def at_rest(self, what: str, seconds: float) -> None:
        """Print what the leader takes while nothing fails."""
        leader = self.leader
        before, waited, began = leader.cpu_seconds, leader.waited_seconds, time.monotonic()
        leader.lags.clear()
        await asyncio.sleep(seconds)  # measures a period of time
        took, waited = leader.cpu_seconds - before, leader.waited_seconds - waited
        cores, given = took / (time.monotonic() - began), took / (took + waited)
        text = f"{cores:.2f} cores, {given:.0%} of what it asked for, {leader.memory_mib:.0f} MiB"
        show(what, text, leader.lags)

    async def restart(self, members: list[Member], failing: Member, gang: str) -> None:
        """Let the worker of one of these members fail; print how soon all are told.

        Each time another one: faults of the same member would replace its pod.
        """
        attempt, leader = failing.report.attempt + 1, self.leader
        leader.lags.clear()
        failed = time.monotonic()
        failing.say(ends=(wire.End(attempt - 1, 0, 0, exit_code=1),))
        await self.runs(members, attempt)
        done = time.monotonic() - failed
        told = sorted(one.held[attempt] - self.writes[gang, attempt] for one in members)
        text = f"fault to write 1 {self.writes[gang, attempt] - failed:.2f} s, write 1 to Hold {quantiles(told)}"
        show("restart", f"{text}, all run after {done:.2f} s", leader.lags)

    async def storm(self, gangs: dict[str, list[Member]]) -> None:
        """Let a worker of each of these gangs fail within a second; print how soon all run again.

        Args:
            gangs: name of a gang -> its members.
        """
        self.leader.lags.clear()
        self.requests.clear()
        failed, attempts = dict[str, float](), dict[str, int]()
        began = time.monotonic()
        for at, (gang, members) in enumerate(gangs.items()):
            attempts[gang], failed[gang] = members[-1].report.attempt + 1, time.monotonic()
            members[-1].say(ends=(wire.End(attempts[gang] - 1, 0, 0, exit_code=1),))
            await asyncio.sleep(began + at / len(gangs) - time.monotonic())
        for gang, members in gangs.items():
            await self.runs(members, attempts[gang])
        busiest, of_all = max(self.requests.values()), self.requests.total()
        took = {gang: max(one.ran[attempts[gang]] for one in members) - failed[gang] for gang, members in gangs.items()}
        for namespace in (CROWD, BESIDE):
            times = sorted(seconds for gang, seconds in took.items() if namespace_of(gang) == namespace)
            text = f"{len(times)} gangs of {namespace}: fault until all run {quantiles(times)}"
            show("storm", f"{text}; {of_all} requests, {busiest} in a second", self.leader.lags)

    async def change_leader(self) -> None:
        """Kill the leader; print how soon another leads, and how soon after that members are heard, by their share."""
        killed, before = self.leader, sum(self.fleet.lost.values())
        for one in self.replicas:
            one.lags.clear()
        began = time.monotonic()
        killed.process.kill()
        await killed.process.wait()
        self.replicas.remove(killed)
        for member in self.fleet.members:
            member.is_heard = False  # Until the next leader has heard it and says so.
        await until_async("another leads", lambda: self.leads(but=killed), DEADLINE_SECONDS, every=0.02)
        leads = time.monotonic() - began
        everyone, back = len(self.fleet.members), list[str]()
        for share, name in ((0.01, "the first"), (0.5, "half"), (0.99, "99 %"), (1.0, "all")):
            enough = ceil(share * everyone)
            await until_async("they are heard", lambda: self.fleet.connected >= enough, DEADLINE_SECONDS, every=0.05)  # noqa: B023 - it is awaited here
            back.append(f"{name} {time.monotonic() - began - leads:.1f} s")
        text = f"another leads after {leads:.1f} s; members are back after that: {', '.join(back)}"
        show("leader killed", text, self.leader.lags)
        lost = dict(self.fleet.lost.most_common(6))
        print(f"  {sum(self.fleet.lost.values()) - before} connections were lost; all that were: {lost}")

    def leads(self, *, but: Replica) -> bool:
        """Return whether another replica than this one holds the Lease."""
        holder = self.api.objects["leases", "default", "gangctl"]["spec"]["holderIdentity"].partition("_")[0]
        return holder not in {"", but.name}


def namespace_of(gang: str) -> str:
    """Return the namespace of the gang with this name."""
    return BESIDE if gang.endswith("9") else CROWD


def show(what: str, text: str, lags: list[float]) -> None:
    """Print one line."""
    print(f"  {what:<16}{text}; longest lag {max(lags, default=0) * 1000:.0f} ms", flush=True)


def quantiles(seconds: list[float]) -> str:
    """The median, the 99th percentile and the largest of sorted values."""
    chosen = (seconds[len(seconds) // 2], seconds[len(seconds) * 99 // 100], seconds[-1])
    return "p50 {:.2f}, p99 {:.2f}, last {:.2f} s".format(*chosen)


def _pod(gang: str, uid: str, at: int, number: int) -> dict[str, Any]:
    """A pod that runs, on one of the nodes."""
    running = {"running": {"startedAt": "2026-11-21T10:00:00Z"}}
    since = {"status": "True", "lastTransitionTime": "2026-11-21T10:00:00Z"}
    status = {
        "phase": "Running",
        "podIP": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
        "conditions": [{"type": one, **since} for one in ("PodScheduled", "Ready")],
        "containerStatuses": [{"name": "m", "restartCount": 0, "started": True, "state": running}],
    }
    fields: dict[str, Any] = {"gang": gang, "owner": uid, "label": uid, "uid": f"pod-{number}", "status": status}
    fields |= {"namespace": namespace_of(gang), "spec": {"nodeName": f"n{number // PODS_A_NODE % NODES}"}}
    return objects.pod(f"worker-{at}", **fields)


def _member(fleet: Fleet, gang: str, uid: str, at: int, number: int) -> Member:
    pod = {"name": pod_name(gang, f"worker-{at}", 0), "uid": f"pod-{number}"}
    payload = claims()
    bound = {**payload["kubernetes.io"], "namespace": namespace_of(gang), "pod": pod}
    report = wire.Report(uid, f"worker-{at}", 0, pod["uid"], f"session-{number}", 0, 0, wire.Phase.IDLE)
    subject = f"system:serviceaccount:{namespace_of(gang)}:default"
    return Member(fleet, sign({**payload, "sub": subject, "kubernetes.io": bound}), report)


@contextmanager
def _served(api: FakeApi, gangs: list[tuple[str, str]], size: int) -> Iterator[None]:
    """Serve these gangs with their pods in a thread: busy sidecars must not delay a Lease for long."""
    loop, began, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with api.serve():
            for at in range(NODES):
                await api.put("nodes", objects.node(f"n{at}"))
            for at, (gang, uid) in enumerate(gangs):
                job = objects.gang(gang, uid)
                job["metadata"]["namespace"] = namespace_of(gang)
                job["spec"]["roles"][0]["replicas"] = size
                await api.put("gangjobs", job)
                for index in range(size):
                    await api.put("pods", _pod(gang, uid, index, at * size + index))
            api.history.clear()
            began.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    began.wait()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


def relay_token(folder: Path) -> Path:
    """Write the replicas' token into this folder, and return its file."""
    payload = claims(aud=[f"{AUDIENCE}/relay"], sub=REPLICAS)
    file = folder / "relay-token"
    file.write_text(sign(payload))
    return file


async def measure(gangs: int, size: int, seconds: float, restarts: int, relays: int) -> None:
    """Print the figures of so many gangs of so many members. ``relays``: how many replicas relay; 0 = two don't."""
    how = f"{relays} replicas relay" if relays else "the leader has all connections"
    print(f"{gangs} {'gang' if gangs == 1 else 'gangs'} of {size} members; {how}", flush=True)
    async with AsyncExitStack() as stack:
        api, names = FakeApi(), [(f"g{at}", f"uid-{at}") for at in range(gangs)]
        stack.enter_context(_served(api, names, size))
        folder = Path(stack.enter_context(TemporaryDirectory()))
        flags = ("--relay-token", str(relay_token(folder))) if relays else ()
        replicas = await stack.enter_async_context(controllers(api, relays or 2, *flags))
        fleet = Fleet([one.url for one in replicas], spread=bool(relays))
        bench = Bench(api, fleet, replicas)
        api.faults += [Issuer(review=REVIEW), bench.note]
        fleet.members += [
            _member(fleet, gang, uid, index, at * size + index)
            for at, (gang, uid) in enumerate(names)
            for index in range(size)
        ]
        await until_async("a replica leads", lambda: ("leases", "default", "gangctl") in api.objects, DEADLINE_SECONDS)
        await until_async("all replicas listen", lambda: all(one.listens() for one in replicas), DEADLINE_SECONDS)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        running = list[asyncio.Task[None]]()
        fleet.urls = [bench.leader.url, *(one.url for one in replicas if one is not bench.leader)]
        bench.leader.lags.clear()
        running.append(tasks.create_task(fleet.keep_alive()))
        began, waiting = time.monotonic(), iter(fleet.members)
        while some := list(islice(waiting, DIALS_AT_ONCE)):
            running += [tasks.create_task(one.run()) for one in some]
            await asyncio.sleep(0.1)  # what is simulated: pods that start one after another
        await bench.runs(fleet.members, 1, DEADLINE_SECONDS + gangs * SECONDS_A_GANG)
        show("first start", f"all run after {time.monotonic() - began:.1f} s", bench.leader.lags)
        await bench.at_rest("at rest", seconds)
        fleet.is_stepping = True
        await bench.at_rest("steps", seconds)
        for at in range(restarts):
            first = at % gangs * size
            members = fleet.members[first : first + size]
            await bench.restart(members, members[at % size], f"g{at % gangs}")
        if gangs > 1:
            storms = {
                f"g{at}": fleet.members[at * size : (at + 1) * size]
                for at in range(gangs - min(STORM, gangs // 2), gangs)
            }
            await bench.storm(storms)
        await bench.change_leader()
        await bench.at_rest("new leader", seconds)
        for task in running:
            task.cancel()


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gangs", type=int, help="how many gangs; with --members, this size alone")
    parser.add_argument("--members", type=int, help="members of each gang")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement at rest (%(default)s)")
    parser.add_argument("--restarts", type=int, default=3, help="how many restarts (%(default)s)")
    parser.add_argument("--relays", type=int, default=0, help="how many replicas relay; 0 = the leader has all")
    found = parser.parse_args()
    housekeeping.raise_limit()
    sizes = [(1, 10_000), (1000, 10)] if found.members is None else [(found.gangs or 1, found.members)]
    for gangs, members in sizes:
        asyncio.run(measure(gangs, members, found.seconds, found.restarts, found.relays))


if __name__ == "__main__":
    main()
