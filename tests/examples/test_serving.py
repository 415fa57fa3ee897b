"""examples/serving: two replicas, each a gang of two ranks, with real processes and sockets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.examples.gang import EXAMPLES
from tests.ports import free_port
from tests.wait import SECONDS, until

NAMES = ("a", "b")


class Replica:
    """One replica under `gangctl run`, with a port and a state directory of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        document = yaml.safe_load((EXAMPLES / f"serving/replica-{name}.yaml").read_text())
        self.port = free_port()
        self.gang = document["metadata"]["name"]
        self.state = folder / name
        (container,) = document["spec"]["roles"][0]["template"]["spec"]["containers"]
        container["env"] = [{"name": "PORT", "value": str(self.port)}]
        file = folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(document))
        self.running = subprocess.Popen(
            [sys.executable, "-m", "gangctl", "run", str(file), "--plain", "--state-dir", str(self.state)]
        )

    def gangctl(self, *words: str) -> None:
        subprocess.run([sys.executable, "-m", "gangctl", *words, "--state-dir", str(self.state)], check=True)

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Status and body; status 0 if the port is closed or closes before it answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=SECONDS) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except (OSError, json.JSONDecodeError):
            return 0, {}

    def serves(self) -> bool:
        return self.get("/healthz")[0] == 200

    def starts(self) -> int:
        """How often rank 0 has begun to serve."""
        log = self.state / f"gangs/{self.gang}/pods/{self.gang}-front-0-0/worker.log"
        return log.read_text().count("rank 0 serves on port") if log.exists() else 0

    def close(self) -> None:
        if self.running.poll() is None:
            self.running.send_signal(signal.SIGINT)
            self.running.wait(30)


def answers_until_back(hit: Replica, other: Replica) -> set[int]:
    """The statuses of the other replica's answers, asked until this one serves again."""
    answers = set()

    def is_back() -> bool:
        answers.add(other.get("/?x=1,2,3,4")[0])
        serves = hit.serves()  # asks as a probe does: rank 0 ends if rank 1 doesn't answer
        return serves and hit.starts() >= 2

    until("the replica is back", is_back)
    return answers


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[list[Replica]]:
    started = [Replica(name, tmp_path) for name in NAMES]
    yield started
    for one in started:
        one.close()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "words",
    [
        "back-0 --signal SIGKILL",
        "front-0 --signal SIGKILL",
        "back-0 --signal SIGSTOP",
    ],
)
def test_a_replica_serves_again_after_a_fault_while_the_other_serves_on(replicas: list[Replica], words: str) -> None:
    hit, other = replicas
    until("both replicas serve", lambda: hit.serves() and other.serves())
    assert hit.get("/?x=1,2,3,4") == (200, {"y": 30.0, "parts": [5.0, 25.0], "gang": "model-a"})
    assert hit.get("/?x=1,2")[0] == 400
    hit.gangctl("inject", hit.gang, *words.split())
    assert answers_until_back(hit, other) == {200}
    assert other.starts() == 1
    assert hit.running.poll() is None


@pytest.mark.nightly
def test_one_of_two_replicas_always_serves_when_they_are_restarted_in_turn(replicas: list[Replica]) -> None:
    first, second = replicas
    until("both replicas serve", lambda: first.serves() and second.serves())
    for hit, other in ((first, second), (second, first)):
        hit.gangctl("restart", hit.gang)
        assert answers_until_back(hit, other) == {200}
    assert [first.starts(), second.starts()] == [2, 2]


def test_rank_0_does_not_open_its_port_while_rank_1_is_away() -> None:
    port, master = free_port(), free_port()
    env = {**os.environ, "RANK": "0", "PORT": str(port), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(master)}
    command = [sys.executable, str(EXAMPLES / "serving/server.py")]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as rank0:
        try:
            until("rank 0 waits for rank 1", lambda: _listens(master))
            assert not _listens(port)
        finally:
            rank0.kill()


def _listens(port: int) -> bool:
    """Whether a process of this machine listens on the port; it isn't asked, since it would take that for rank 1."""
    wanted = f"0100007F:{port:04X}"
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(row.split()[1] in (wanted, f"00000000:{port:04X}") and row.split()[3] == "0A" for row in rows)
