"""``jax.distributed.initialize()`` without arguments, with the real JAX, where gangctl says who a process is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.wait import SECONDS

CLIENT = Path(__file__).parents[2] / "client"
SAYS = (
    "import gangclient.jax, jax, json, logging; logging.disable()\n"
    "jax.distributed.initialize()\n"
    "print(json.dumps([jax.process_index(), jax.process_count(), jax.config._read('jax_cuda_visible_devices')]))\n"
)


def started(environment: dict[str, str], script: str = SAYS) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GANG_", "JAX_"))}
    given = {**kept, "PYTHONPATH": str(CLIENT), "JAX_PLATFORMS": "cpu", **environment}
    return subprocess.Popen([sys.executable, "-c", script], env=given, stdout=-1, stderr=-1, text=True)


def gang(rank: int, port: int, **more: str) -> dict[str, str]:
    told = {"GANG_SOCKET": "/nowhere", "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}", "JAX_NUM_PROCESSES": "2"}
    return {**told, "JAX_PROCESS_ID": str(rank), "LOCAL_RANK": str(rank), **more}


@pytest.mark.parametrize(("per_pod", "devices"), [("1", ["all", "all"]), ("2", ["0", "1"])])
def test_each_process_finds_its_place(per_pod: str, devices: list[str]) -> None:
    port = free_port()
    both = [started(gang(rank, port, LOCAL_WORLD_SIZE=per_pod, KUBERNETES_SERVICE_HOST="10.0.0.1")) for rank in (1, 0)]
    said = [one.communicate(timeout=SECONDS) for one in both][::-1]
    assert [json.loads(out.splitlines()[-1]) for out, _ in said] == [[0, 2, devices[0]], [1, 2, devices[1]]], said


def test_a_script_that_passes_its_place_leaves_a_lost_peer_too() -> None:
    port = free_port()
    script = (
        "import gangclient.jax, jax\n"
        "from gangclient import Client\n"
        "Client.on_stop = lambda _, callback: print('on stop:', callback.__name__, flush=True)\n"
        f"jax.distributed.initialize('127.0.0.1:{port}', 1, 0)\n"
    )
    said, wrong = started(gang(0, port), script).communicate(timeout=SECONDS)
    assert said.splitlines().count("on stop: leave_at_once") == 1, wrong


def test_outside_of_gangctl_the_import_changes_nothing() -> None:
    script = SAYS.replace("jax.distributed.initialize()", "jax.distributed.initialize('127.0.0.1:1')")
    _, wrong = started({}, script).communicate(timeout=SECONDS)
    assert "Number of processes must be defined." in wrong
