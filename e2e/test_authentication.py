"""The hub refuses every client that is not a member's sidecar, and running gangs are not disturbed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e import process_faults
from e2e.api_proxy import ApiProxy
from e2e.controllers import FIRST_PORT, LocalControllers
from e2e.gangs import Gang, Kubectl, sleepers

Submit = Callable[[dict[str, Any]], Gang]
AUDIENCE = "gangctl.io"
FLOOD = 2000
POD = {"apiVersion": "v1", "kind": "Pod"}
PAUSE = {"name": "main", "image": "gangctl/examples:e2e", "command": ["sleep", "100000"]}


def token(kubectl: Kubectl, namespace: str, *words: str) -> str:
    """A token of the namespace's default service account."""
    return kubectl("create", "token", "default", "-n", namespace, *words).strip()


def bound_to(pod: str, uid: str) -> tuple[str, ...]:
    """The flags that bind a token to a pod."""
    return ("--bound-object-kind=Pod", f"--bound-object-name={pod}", f"--bound-object-uid={uid}")


@pytest.fixture
def gang(submit: Submit, shared_dir: Path) -> Gang:
    """A running gang."""
    found = submit(sleepers("mine", replicas=2, directory=str(shared_dir), recovery={"replaceAfter": 100}))
    found.runs(1)
    return found


@pytest.fixture
def connect(lab: Any, kubectl: Kubectl) -> Callable[[str], tuple[int, str]]:
    """``connect(token)`` returns the status code and the text of the hub's answer, through its Service and its TLS."""
    address = kubectl("get", "service", "gangctl", "-n", "gangctl-system", "-o", "jsonpath={.spec.clusterIP}")
    ca = json.loads(kubectl("get", "secret", "gangctl-tls", "-n", "gangctl-system", "-o", "json"))["data"]["ca.crt"]

    def do(given: str) -> tuple[int, str]:
        script = CONNECT.replace("ADDRESS", address).replace("CA", ca)
        done = lab.node(1).machine.run("python3", "-c", script, given, check=False)
        assert done.returncode == 0, done.stderr
        code, _, text = done.stdout.partition(" ")
        return int(code), text

    return do


CONNECT = """
import base64, http.client, socket, ssl, sys
context = ssl.create_default_context(cadata=base64.b64decode('CA').decode())
for _ in range(20):  # a standby directs the client to the leader
    connection = http.client.HTTPSConnection('ADDRESS', 8443, timeout=10, context=context)
    sock = socket.create_connection(('ADDRESS', 8443), 10)
    connection.sock = context.wrap_socket(sock, server_hostname='gangctl.gangctl-system.svc')
    headers = {'Upgrade': 'websocket', 'Connection': 'Upgrade', 'Sec-WebSocket-Version': '13',
               'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ=='}
    if sys.argv[1]:
        headers['Authorization'] = 'Bearer ' + sys.argv[1]
    connection.request('GET', '/v1/connect', headers=headers)
    answer = connection.getresponse()
    if answer.getheader('Gang-Leader') is None:
        break
text = '' if answer.status == 101 else answer.read().decode()
print(answer.status, text)
"""


def test_the_hub_accepts_only_the_token_of_a_member(
    kubectl: Kubectl, namespace: str, gang: Gang, connect: Callable[[str], tuple[int, str]]
) -> None:
    uid = gang.uids()["worker-0"]
    kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(stranger("stranger", {})))
    other = json.loads(kubectl("get", "pod", "stranger", "-n", namespace, "-o", "json"))["metadata"]["uid"]
    mine = bound_to("mine-worker-0-0", uid)
    answers = {
        "no token": connect("")[0],
        "garbage": connect("garbage")[0],
        "another audience": connect(token(kubectl, namespace, "--audience=vault", *mine))[0],
        "bound to nothing": connect(token(kubectl, namespace, f"--audience={AUDIENCE}"))[0],
        "a pod of no gang": connect(token(kubectl, namespace, f"--audience={AUDIENCE}", *bound_to("stranger", other)))[
            0
        ],
    }
    assert {what: code for what, code in answers.items() if code not in {401, 403, 503}} == {}
    assert connect(token(kubectl, namespace, f"--audience={AUDIENCE}", *mine))[0] == 101
    assert gang.status["attempt"] == 1


def test_the_hub_refuses_a_pod_that_only_has_the_labels_of_a_member(
    kubectl: Kubectl, namespace: str, gang: Gang, connect: Callable[[str], tuple[int, str]]
) -> None:
    labels = gang.pods()["worker-0"]["metadata"]["labels"]
    kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(stranger("liar", labels)))
    uid = json.loads(kubectl("get", "pod", "liar", "-n", namespace, "-o", "json"))["metadata"]["uid"]
    code, text = connect(token(kubectl, namespace, f"--audience={AUDIENCE}", *bound_to("liar", uid)))
    assert code in {401, 403, 503}, text
    assert gang.status["attempt"] == 1


@pytest.mark.nightly
def test_the_hub_refuses_the_token_of_a_deleted_pod(
    kubectl: Kubectl, namespace: str, gang: Gang, connect: Callable[[str], tuple[int, str]]
) -> None:
    uid = gang.uids()["worker-1"]
    old = token(kubectl, namespace, f"--audience={AUDIENCE}", *bound_to("mine-worker-1-0", uid))
    kubectl("delete", "pod", "mine-worker-1-0", "-n", namespace)
    gang.runs(2)
    assert connect(old)[0] in {401, 403, 503}


@pytest.mark.nightly
async def test_a_flood_of_garbage_connections_disturbs_no_gang(
    local_controllers: LocalControllers, api_proxy: ApiProxy, submit: Submit, shared_dir: Path
) -> None:
    first = await local_controllers.start("first", api_proxy.url)
    gang = await asyncio.to_thread(submit, sleepers("calm", replicas=3, directory=str(shared_dir)))
    await asyncio.to_thread(gang.runs, 1)
    uids = await asyncio.to_thread(gang.uids)
    flood = await asyncio.create_subprocess_exec(
        *local_controllers.enter,
        "python3",
        "-c",
        FLOODING,
        local_controllers.address,
        str(FIRST_PORT),
        str(FLOOD),
        stdout=asyncio.subprocess.PIPE,
    )
    assert flood.stdout is not None
    assert (await flood.stdout.readline()).strip() == b"flooding"
    await asyncio.to_thread(lambda: process_faults.kill(process_faults.worker(uids["worker-1"])))
    status = await asyncio.to_thread(gang.runs, 2)
    assert status["restarts"]["counted"] == 1
    times = status["incidents"][0]["milliseconds"]
    assert sum(times.get(phase, 0) for phase in ("stop", "barrier", "start")) < 5000
    assert await asyncio.to_thread(gang.uids) == uids
    flood.kill()
    await flood.wait()
    assert first.process.returncode is None


FLOODING = """
import random, selectors, socket, sys
address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
held = []
def one():
    try:
        found = socket.create_connection((address, port), 5)
        found.sendall(random.choice([b'', b'GET / HTTP/1.1\\r\\n', bytes(random.randrange(256) for _ in range(200))]))
        held.append(found)
    except OSError:
        pass
for _ in range(count // 4):
    one()
print('flooding', flush=True)
while True:
    one()
    if len(held) > count:
        held.pop(0).close()
"""


def stranger(name: str, labels: dict[str, str]) -> dict[str, Any]:
    """A pod that is no member, with the same service account."""
    return {**POD, "metadata": {"name": name, "labels": labels}, "spec": {"containers": [PAUSE]}}
