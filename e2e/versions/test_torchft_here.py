"""The two replica groups of the torchft example as `gangctl run` runs them on this machine, with the newest torch."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.frameworks.examples import EXAMPLES
from e2e.frameworks.test_torchft import RUNS, SECONDS, check, documents, steps, together
from e2e.versions.test_versions import CLIENT, python
from gangctl.cluster.local import process
from gangctl.cluster.local.gang_store import GangStore
from tests.cli.here import Here, here
from tests.ports import free_port


@pytest.fixture
def lighthouse() -> Iterator[str]:
    """The address of a Lighthouse."""
    port = free_port()
    words = [
        "--bind",
        f"[::]:{port}",
        "--min_replicas",
        "1",
        "--heartbeat_timeout_ms",
        "1000",
        "--join_timeout_ms",
        "1000",
    ]
    child = subprocess.Popen(
        [python("torchft"), python("torchft").with_name("torchft_lighthouse"), *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield f"http://localhost:{port}"
    child.kill()
    child.wait()


def text(lighthouse: str, folder: Path) -> str:
    """The example's gangs for this machine."""
    told = {**RUNS, "STEP_SECONDS": "0.05", "PYTHONPATH": str(CLIENT), "TORCHFT_LIGHTHOUSE": lighthouse}
    gangs = [one for one in documents({}) if one["kind"] == "GangJob"]
    for one in gangs:
        container = one["spec"]["roles"][0]["template"]["spec"]["containers"][0]
        container["command"] = [str(python("torchft")), str(EXAMPLES / "frameworks/train_torchft.py")]
        container["env"] = [each for each in container["env"] if each["name"] not in told]
        container["env"] += [{"name": name, "value": value} for name, value in told.items()]
    return yaml.safe_dump_all(gangs).replace("/checkpoints", str(folder))


def log(one: Here, gang: str) -> str:
    """What rank 0 of a gang printed."""
    return "".join(path.read_text() for path in one.state.gang(gang).pods.glob("*worker-0*/worker.log"))


def test_a_replica_goes_on_while_another_restarts(
    lighthouse: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "checkpoints"
    with here(tmp_path) as one:
        one.write(text(lighthouse, kept))
        run = one.run("--plain")
        together(lambda: log(one, "torchft-0"))
        process.signal_process(one.workers("torchft-1")["worker-1"], signal.SIGKILL)
        at = steps(log(one, "torchft-1"))[-1].number
        together(lambda: log(one, "torchft-0"), at)
        assert run.child.wait(SECONDS) == 0, run.said
        attempts = [GangStore(one.state.gang(f"torchft-{n}")).read().status.attempt for n in (0, 1)]
        assert attempts == [1, 2]
        figures = check(
            log(one, "torchft-0"), log(one, "torchft-1"), at, [kept / n / "result.json" for n in ("0", "1")]
        )
        drawn = one.gangctl("timeline", "--group", "torchft").stdout
    assert "at least one replica 100.0% of the time" in drawn
    with capsys.disabled():
        print(f"\n  {figures}\n{drawn}", end="")
