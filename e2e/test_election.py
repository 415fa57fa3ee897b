"""Leader election: two controllers as local processes, with a Lease of their own and a proxy to the API server each.

They have no gang. The tests check which one leads, what each writes, and what it answers to sidecars.
"""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from e2e.api_proxy import ApiProxy, proxy
from e2e.clusters import Cluster
from e2e.installation import CRDS
from tests.ports import free_port
from tests.wait import SECONDS, until_async

DURATION, DEADLINE, RETRY = 15, 10, 2
NAME = "election"
LEADS, STANDS_BY = 401, 503
"""The status code for a sidecar without a token: of the leader, of a standby."""
ANY = ssl.create_default_context()
ANY.check_hostname, ANY.verify_mode = False, ssl.CERT_NONE
READS = {"GET", "HEAD", "OPTIONS"}


@dataclass
class Candidate:
    """A controller that may lead."""

    process: asyncio.subprocess.Process
    api_proxy: ApiProxy
    port: int
    log: Path

    async def answer(self) -> tuple[int, str | None]:
        """The status code for a sidecar without a token, and the leader that the answer names."""
        url = f"https://127.0.0.1:{self.port}/v1/connect"
        timeout = aiohttp.ClientTimeout(total=2)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, ssl=ANY) as answer:
            return answer.status, answer.headers.get("Gang-Leader")

    async def until(self, status: int, leader: str | None = None) -> None:
        """Wait until it answers this."""

        async def answers() -> bool:
            try:
                return await self.answer() == (status, leader)
            except (aiohttp.ClientError, TimeoutError):
                assert self.process.returncode is None, self.log.read_text()
                return False

        await until_async(f"answer {status}", answers)

    @property
    def address(self) -> str:
        """Its address, as the Lease has it."""
        return f"wss://127.0.0.1:{self.port}/v1/connect"

    @property
    def written(self) -> list[str]:
        """The requests that write, since the last ``api_proxy.forget()``."""
        return [f"{call.method} {call.path}" for call in self.api_proxy.calls if call.method not in READS]


@dataclass
class Election:
    """Both candidates, and their Lease."""

    first: Candidate
    second: Candidate
    kubectl: Callable[..., str]
    namespace: str

    def lease(self) -> dict[str, Any]:
        """The spec of the Lease."""
        found = self.kubectl("get", "lease", NAME, "-n", self.namespace, "-o", "jsonpath={.spec}")
        spec: dict[str, Any] = json.loads(found)
        return spec


def passed(begin: str, end: str) -> float:
    """Seconds between two times of a Lease."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


@pytest.fixture
def account(cluster: Cluster, namespace: str) -> str:
    """The token of a service account that may do everything in the namespace."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    binding = f"{namespace}-{NAME}"
    cluster.kubectl("create", "serviceaccount", NAME, "-n", namespace)
    role = "--clusterrole=cluster-admin"
    cluster.kubectl("create", "rolebinding", NAME, role, f"--serviceaccount={namespace}:{NAME}", "-n", namespace)
    cluster.kubectl("create", "clusterrole", binding, "--verb=get,list,watch", "--resource=nodes")
    cluster.kubectl(
        "create", "clusterrolebinding", binding, f"--clusterrole={binding}", f"--serviceaccount={namespace}:{NAME}"
    )
    return cluster.kubectl("create", "token", NAME, "-n", namespace, "--duration=1h").strip()


@pytest.fixture
async def election(cluster: Cluster, namespace: str, account: str, tmp_path: Path) -> AsyncIterator[Election]:
    """Two controllers: the first leads, the second stands by."""
    config = json.loads(cluster.kubectl("config", "view", "--raw", "--flatten", "--minify", "-o", "json"))
    server = config["clusters"][0]["cluster"]
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(base64.b64decode(server["certificate-authority-data"]))
    async with (
        candidate(namespace, account, (server["server"], str(ca_file)), tmp_path / "first") as first,
        candidate(namespace, account, (server["server"], str(ca_file)), tmp_path / "second") as second,
    ):
        await first.until(LEADS)
        await second.until(STANDS_BY, first.address)
        yield Election(first, second, cluster.kubectl, namespace)
    cluster.kubectl("delete", "clusterrole,clusterrolebinding", f"{namespace}-{NAME}")


@asynccontextmanager
async def candidate(namespace: str, token: str, api: tuple[str, str], home: Path) -> AsyncIterator[Candidate]:
    """Start a controller; the first one leads."""
    log, kubeconfig = home.with_suffix(".log"), home.with_suffix(".kubeconfig")
    async with proxy(*api) as api_proxy:
        document = {
            "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": api_proxy.url}}],
            "users": [{"name": "x", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        }
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(json.dumps(document))
        port = free_port()
        words = (
            *(sys.executable, "-P", "-m", "gangctl.controller.kube", "--kubeconfig", str(kubeconfig), "--name", NAME),
            *(
                "--namespace",
                namespace,
                "--watch-namespaces",
                namespace,
                "--pod-name",
                home.name,
                "--hub-port",
                str(port),
            ),
            *("--sidecar-image", "registry.example/gangctl/sidecar:1"),
            *("--health-port", str(free_port()), "--metrics-port", str(free_port()), "--lease-duration", str(DURATION)),
            *("--renew-deadline", str(DEADLINE), "--retry-period", str(RETRY)),
        )
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.DEVNULL, stderr=file)
        found = Candidate(process, api_proxy, port, log)
        try:
            await found.until(LEADS) if home.name == "first" else None
            yield found
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            await process.wait()


@pytest.mark.nightly
async def test_a_leader_that_gets_sigterm_hands_over_before_its_lease_expires(election: Election) -> None:
    before = election.lease()
    election.first.process.send_signal(signal.SIGTERM)
    await election.second.until(LEADS)
    async with asyncio.timeout(SECONDS):
        assert await election.first.process.wait() == 0
    after = election.lease()
    assert passed(before["renewTime"], after["acquireTime"]) < DURATION, "it did not wait until the Lease expired"
    assert after["leaseTransitions"] == before["leaseTransitions"] + 1
    assert after["holderIdentity"].startswith("second_")


@pytest.mark.nightly
async def test_the_standby_replaces_a_killed_leader_when_its_lease_expires(election: Election) -> None:
    before = election.lease()
    election.first.process.kill()
    await election.second.until(LEADS)
    assert passed(before["renewTime"], election.lease()["acquireTime"]) >= DURATION


@pytest.mark.nightly
async def test_a_leader_that_was_frozen_writes_nothing_after_it_thaws(election: Election) -> None:
    election.first.process.send_signal(signal.SIGSTOP)
    await election.second.until(LEADS)
    election.first.api_proxy.forget()
    election.first.process.send_signal(signal.SIGCONT)
    await election.first.until(STANDS_BY, election.second.address)
    assert election.first.api_proxy.calls, "it is awake"
    # A request that was in flight when it froze may be given up, and is not sent again.
    assert [one for one in election.first.written if "/leases/" not in one] == []
    assert election.lease()["holderIdentity"].startswith("second_")
    assert (await election.second.answer())[0] == LEADS
    assert election.first.process.returncode is None


async def test_a_leader_without_an_api_server_stops_before_another_one_leads_and_returns_as_a_standby(
    election: Election,
) -> None:
    election.first.api_proxy.leave()
    await election.first.until(STANDS_BY)
    assert (await election.second.answer())[0] == STANDS_BY, "no one may lead yet"
    await election.second.until(LEADS)
    election.first.api_proxy.come_back()
    await election.first.until(STANDS_BY, election.second.address)
    assert election.first.process.returncode is None


@pytest.mark.nightly
async def test_without_an_api_server_no_candidate_leads_and_after_its_return_one_does_without_a_restart(
    election: Election,
) -> None:
    both = (election.first, election.second)
    for one in both:
        one.api_proxy.leave()
    for one in both:
        await one.until(STANDS_BY)
    for one in both:
        one.api_proxy.come_back()

    async def one_leads() -> bool:
        answers = [(await one.answer())[0] for one in both]
        assert answers.count(LEADS) <= 1
        return LEADS in answers

    await until_async("one of them leads", one_leads, DURATION + 3 * RETRY + 2)
    assert [one.process.returncode for one in both] == [None, None]
