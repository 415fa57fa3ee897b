"""Launchers below a shell with the newest packages: four faults, forks after each, the same result to the last bit."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.frameworks.examples import EXAMPLES
from e2e.versions.test_versions import CLIENT, python
from gangctl.api.incident import Incident
from gangsidecar.supervisor.warm_start import IMPORTING
from tests.cli.here import Here, Running, here
from tests.wait import until

pytestmark = pytest.mark.timeout(3600)
SECONDS = 900.0
"""The deadline of each part: a busy machine imports PyTorch for minutes."""
PACED = Path(__file__).with_name("paced.py")
STEPS = 400
PER_FAULT = 25
"""Steps of each rank that each attempt makes before the next fault."""
RANKS = {b"RANK", b"OMPI_COMM_WORLD_RANK", b"PMI_RANK"}
"""Variables that a rank has, and no launcher below the pod's."""


@dataclass(frozen=True)
class Launcher:
    """What starts the ranks of an example."""

    example: str
    shell: str
    """``$BIN`` has the console scripts of the packages, ``$PACED`` and ``$SCRIPT`` are the program."""
    forks: int
    """Of a restart: the launchers and the ranks."""
    replicas: int = 2
    launch: str = "PerProcess"
    ranks: int = 2
    variables: tuple[tuple[str, str], ...] = ()
    at_import: str = ""
    """The variable that the framework reads at import, and the ranks have from the launcher or the attempt."""
    executed: int = 0
    """How many processes one restart executes for that."""
    packages: str = "newest"
    """Those of the file of this name; empty: this program's own."""
    script: Path | None = None
    """Another than the example's."""


def _mpi(packages: str, mpirun: str) -> Launcher:
    shell = f'{mpirun} "$BIN/python" "$PACED" "$SCRIPT"; exit $?'
    as_root = (("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"))
    script = Path(__file__).with_name("train_mpi.py")
    return Launcher("plain", shell, 2, 1, "Command", variables=as_root, packages=packages, script=script)


LAUNCHERS = {
    "torchrun": Launcher(
        "frameworks/fsdp2", 'exec "$BIN/torchrun" "$PACED" "$SCRIPT"', 3, 1, "Torchrun", 2, (("DDP", "1"),)
    ),
    "torchrun on two nodes": Launcher(
        "frameworks/fsdp2", '"$BIN/torchrun" "$PACED" "$SCRIPT"; exit $?', 10, 2, "Torchrun", 8, (("DDP", "1"),)
    ),
    "torch.distributed.run": Launcher(
        "frameworks/fsdp2",
        'set -o pipefail; echo "from a shell"; "$BIN/python" -u -m torch.distributed.run "$PACED" "$SCRIPT" 2>&1 | cat',
        3,
        1,
        "Torchrun",
        variables=(("DDP", "1"),),
    ),
    "accelerate": Launcher(
        "frameworks/accelerate",
        '"$BIN/accelerate" launch --cpu --num_processes 1 --num_machines 1 "$PACED" "$SCRIPT"; exit $?',
        4,
    ),
    "deepspeed": Launcher(
        "frameworks/deepspeed",
        '"$BIN/deepspeed" --num_gpus 2 --no_local_rank --master_port "$MASTER_PORT" "$PACED" "$SCRIPT"; exit $?',
        4,
        1,
        "Command",
        variables=(("DS_ACCELERATOR", "cpu"),),
        at_import="CUDA_VISIBLE_DEVICES",
        executed=2,
    ),
    "trainer": Launcher("frameworks/trainer", 'export OMP_NUM_THREADS=1; "$BIN/python" "$PACED" "$SCRIPT"; exit $?', 2),
    "lightning": Launcher(
        "frameworks/lightning",
        '"$BIN/python" "$PACED" "$SCRIPT" > >(cat) 2>&1; exit $?',
        2,
        at_import="LOCAL_RANK",
        executed=2,
    ),
    "jax": Launcher(
        "demo",
        '"$BIN/python" "$PACED" "$SCRIPT" --steps "$STEPS"; exit $?',
        2,
        variables=(("JAX_PLATFORMS", "cpu"), ("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false"), ("NPROC", "1")),
        packages="",
    ),
    "mpirun of Open MPI": _mpi("openmpi", '"$BIN/mpirun" --oversubscribe -n 2'),
    "mpirun of MPICH": _mpi("mpich", '"$BIN/mpirun" -n 2'),
}


@dataclass
class Trains:
    """A gang of a launcher."""

    one: Here
    run: Running
    launcher: Launcher

    def ranks(self) -> list[int]:
        """The processes that are started as ranks: forks have stand-ins."""
        found = []
        for pid in self.one.left():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
                variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            is_python = words[:1] and Path(words[0]).name.startswith("python") and str(PACED) in words[1:3]
            if is_python and not RANKS.isdisjoint(name.partition(b"=")[0] for name in variables):
                found.append(pid)
        return found if len(found) == self.launcher.ranks else []

    def trained(self, attempt: int) -> list[int]:
        """Wait until this attempt has made so many steps; return its ranks."""
        told = self.one.path / f"attempt-{attempt}"
        until(
            f"{PER_FAULT} steps of attempt {attempt}",
            lambda: told.exists() and told.stat().st_size >= PER_FAULT * self.launcher.ranks,
            SECONDS,
        )
        return until("the ranks", self.ranks, SECONDS)

    def templates(self) -> None:
        """Wait until each member has a template: one that could not be forked is made anew."""
        logs = [pod / "supervisor.log" for pod in (self.one.path / ".gangctl/gangs/g/pods").iterdir()]

        def are_ready() -> bool:
            return all("the template is ready" in log.read_text().rpartition("the template ends")[2] for log in logs)

        until("templates", are_ready, SECONDS)
        assert all("the program has its own" not in log.read_text() for log in logs)


@contextmanager
def training(folder: Path, launcher: Launcher, start: str) -> Iterator[Trains]:
    """The example, below a shell and the launcher, as a gang on this machine."""
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir(parents=True)
    manifest = yaml.safe_load((EXAMPLES / f"{launcher.example}.yaml").read_text())
    manifest["metadata"]["name"] = "g"
    manifest["spec"].pop("progress", None)  # A rank that the test stops is no hang.
    manifest["spec"]["recovery"] = {"budget": {"type": "Unlimited"}, "replaceAfter": 100}
    for tier in manifest["spec"]["checkpoint"]["tiers"]:
        if tier["source"]["type"] == "Directory":
            tier["source"]["directory"] = str(checkpoints)
    (role,) = manifest["spec"]["roles"]
    role |= {"replicas": launcher.replicas, "launch": launcher.launch, "start": {"type": start}}
    role["processesPerPod"] = launcher.ranks // launcher.replicas
    container = role["template"]["spec"]["containers"][0]
    named = next(word for word in container["command"] if word.endswith(".py"))
    script = launcher.script or (EXAMPLES / launcher.example).with_name(Path(named).name)
    container["command"] = ["bash", "-c", launcher.shell.replace("$", "$$")]
    told = {
        "BIN": str((python(launcher.packages) if launcher.packages else Path(sys.executable)).parent),
        "PACED": str(PACED),
        "SCRIPT": str(script),
        "CHECKPOINT_DIR": str(checkpoints),
        "STEPS": str(STEPS),
        "PACE": "0.05" if start == "Fork" else "0",
        "FAULTS": str(len(FAULTS)) if start == "Fork" else "0",
        "PYTHONPATH": str(CLIENT),
        **dict(launcher.variables),
    }
    container["env"] = [{"name": name, "value": value} for name, value in told.items()]
    with here(folder) as one:
        one.write(manifest)
        yield Trains(one, one.run("--plain", "--logs"), launcher)


def killed(_: Trains, ranks: list[int]) -> None:
    """A rank ends by SIGKILL."""
    os.kill(ranks[0], signal.SIGKILL)


def exited(_: Trains, ranks: list[int]) -> None:
    """A rank ends by an exit code."""
    os.kill(ranks[-1], signal.SIGUSR1)


def planned(trains: Trains, _: list[int]) -> None:
    """A planned restart stops all by SIGTERM."""
    done = trains.one.gangctl("restart", "g")
    assert done.returncode == 0, done.stderr


def stopped(trains: Trains, ranks: list[int]) -> None:
    """The same while a rank is stopped."""
    os.kill(ranks[0], signal.SIGSTOP)
    planned(trains, ranks)


FAULTS: list[Callable[[Trains, list[int]], None]] = [killed, exited, planned, stopped]


def how(incident: Incident) -> tuple[int, int]:
    """How many processes were forked and executed."""
    warm: Any = incident.warm_start
    return warm.forked, warm.executed


@pytest.mark.parametrize("name", LAUNCHERS)
def test_each_restart_below_a_launcher_is_forked_and_changes_nothing_of_the_result(name: str, tmp_path: Path) -> None:
    launcher, results = LAUNCHERS[name], []
    with training(tmp_path / "left", launcher, "Exec") as trains:
        assert trains.run.child.wait(SECONDS) == 0, trains.run.said
        results.append(json.loads((trains.one.path / "checkpoints/result.json").read_text()))
    with training(tmp_path / "faults", launcher, "Fork") as trains:
        for attempt, fault in enumerate(FAULTS, 1):
            ranks = trains.trained(attempt)
            os.kill(ranks[0], signal.SIGSTOP)  # It makes no more steps until all members have a template.
            trains.templates()
            os.kill(ranks[0], signal.SIGCONT)
            fault(trains, ranks)
        assert trains.run.child.wait(SECONDS) == 0, trains.run.said
        incidents = list(reversed(trains.one.job.status.incidents))
        results.append(json.loads((trains.one.path / "checkpoints/result.json").read_text()))
        assert trains.one.left() == []
    assert [incident.attempt for incident in incidents] == [2, 3, 4, 5], trains.run.said
    odd = [incident for incident in incidents if how(incident) != (launcher.forks, 0)]
    # What a rank imports after its first step comes later: a template lacks it, or imports it just then.
    assert len(odd) <= 1, [one.warm_start for one in incidents]
    for incident in odd:
        assert incident.warm_start is not None
        if IMPORTING in incident.warm_start.obstacle:
            assert how(incident) == (0, launcher.forks)
            continue
        assert launcher.at_import, incident.warm_start
        assert how(incident) == (launcher.forks - launcher.executed, launcher.executed)
        assert launcher.at_import in incident.warm_start.obstacle
    assert all((incident.restored_step or 0) >= 10 for incident in incidents)
    assert results[0] == results[1]
