"""A gang of any image: none of them has what the supervisor could use, and its restarts stay in the pods."""

from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.clusters import Cluster
from e2e.conftest import uncaptured
from e2e.gangs import Gang, gang
from e2e.images.build import Images
from gangsidecar.wire import Directive, Phase, Process, Run, Verb
from tests.sidecar.supervisor.supervised import Sidecar
from tests.wait import SECONDS

ROOT = Path(__file__).parents[1]
LOCKED = {
    "runAsNonRoot": True,
    "runAsUser": 12345,
    "runAsGroup": 54321,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
MACHINES = {"x86_64": 62, "aarch64": 183}
"""As in the header of an ELF file."""

OF_WORKERS = ("caches", "warm_start_pythons", "warm_start_imports")
"""Tests of what happens in the worker's own Python, which is the same whatever has started it."""

# --- pods


@pytest.mark.parametrize(
    ("image", "context"),
    [
        pytest.param("scratch", LOCKED, id="scratch-locked"),
        pytest.param("musl", {}, id="musl", marks=pytest.mark.nightly),
        pytest.param("musl", LOCKED, id="musl-locked", marks=pytest.mark.nightly),
        pytest.param("no-python", {}, id="no-python", marks=pytest.mark.nightly),
        pytest.param("old-python", {"runAsUser": 12345}, id="old-python", marks=pytest.mark.nightly),
    ],
)
def test_a_gang_restarts_in_place_whatever_its_image_lacks(
    submit: Callable[[dict[str, Any]], Gang],
    cluster: Cluster,
    request: pytest.FixtureRequest,
    shared_dir: Path,
    image: str,
    context: dict[str, Any],
) -> None:
    with uncaptured(request.config):
        name = cluster.image(image)
    container = {"name": "main", "image": name, "command": ["/worker"], "securityContext": context}
    succeeds_in_two_attempts(submit(gang("bare", container, replicas=2, directory=str(shared_dir))))


def test_the_first_example_runs_with_busybox(
    submit: Callable[[dict[str, Any]], Gang], cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    document = yaml.safe_load((ROOT / "examples/hello.yaml").read_text(encoding="utf-8"))
    container = document["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    assert container["image"] == "busybox"
    with uncaptured(request.config):
        container["image"] = cluster.image("busybox")
    succeeds_in_two_attempts(submit(document))


def succeeds_in_two_attempts(one: Gang) -> None:
    """Worker-1 fails in attempt 1. Containers end only with the gang, and each has printed both attempts."""
    status = one.ends()
    assert status["attempt"] == 2
    for pod in one.pods().values():
        assert [each["restartCount"] for each in pod["status"]["containerStatuses"]] == [0]
    for rank in range(2):
        said = re.findall(r"^rank .*$", one.log(f"worker-{rank}"), re.MULTILINE)
        assert said == [f"rank {rank} of 2, attempt {attempt}" for attempt in (1, 2)]


# --- the executable alone


@pytest.fixture(scope="module")
def images(request: pytest.FixtureRequest) -> Images:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a root folder needs root, as does making one")
    with uncaptured(request.config):
        made = Images()
        made.supervisor.executable()
        made.bare.workers()
    return made


@pytest.fixture(params=["static", "musl"])
def root(images: Images, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A root that has a worker and the supervisor. It is read-only but for the folder of the socket."""
    made = tmp_path / "root"
    shutil.copytree(images.bare.workers() / request.param, made)
    for folder in ("proc", "dev", "tmp", "run/gang"):
        (made / folder).mkdir(parents=True)
    shutil.copy(images.supervisor.executable(), made / "run/gang/supervisor")
    (made / "run/gang").chmod(0o777)
    return made


ENTER = """
mount --bind "$ROOT" "$ROOT"
mount -o remount,bind,ro "$ROOT"
mount --bind "$GANG" "$ROOT/run/gang"
mount -t tmpfs -o noexec,nosuid,nodev tmpfs "$ROOT/tmp"
mount -t tmpfs -o mode=755 tmpfs "$ROOT/dev"
mknod -m 666 "$ROOT/dev/null" c 1 3
mount -t proc proc "$ROOT/proc"
exec chroot --userspec=12345:54321 "$ROOT" "$@"
"""


def test_the_supervisor_needs_nothing_of_its_root(root: Path, tmp_path: Path) -> None:
    """Read-only, with no user database, no shell, no C library of its own, a /tmp that executes nothing."""
    sidecar = Sidecar(root / "run/gang/supervisor.sock")
    (root / "run/gang/supervisor.sock").chmod(0o777)
    settings = {
        "GANG_SUPERVISOR_SOCKET": "/run/gang/supervisor.sock",
        "GANG_STATE": "/run/gang/state",
        "GANG_UID": "g1",
        "GANG_MEMBER": "worker-0",
        "GANG_POD_UID": "p1",
        "GANG_POD_IP": "10.0.0.1",
        "LD_PRELOAD": "/lib/nothing.so",
    }
    enter = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--propagation",
        "private",
        "sh",
        "-ec",
        ENTER,
        "-",
    ]
    with (tmp_path / "out").open("wb") as out, (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*enter, "/run/gang/supervisor", "run", "--", "/worker"],
            env={"PATH": os.environ["PATH"], "ROOT": str(root), "GANG": str(root / "run/gang"), **settings},
            stdout=out,
            stderr=log,
        )
    try:
        sidecar.accept()
        for attempt in (1, 2):
            order = Directive(gang="g1", pod="p1", attempt=attempt, verb=Verb.HOLD, grace_ms=1000)
            sidecar.send(order)
            ready = sidecar.until(lambda told: told.phase is Phase.READY and told.attempt == order.attempt)  # noqa: B023
            variables = (("RANK", "1"), ("WORLD_SIZE", "2"), ("GANG_ATTEMPT", str(attempt)))
            run = Run(ready.session, (Process(local_rank=0, rank=1, env=variables),))
            sidecar.send(Directive(gang="g1", pod="p1", attempt=attempt, verb=Verb.RUN, grace_ms=1000, run=run))
            ended = sidecar.until(lambda told: any(end.attempt == order.attempt for end in told.ends))  # noqa: B023
            (end,) = (end for end in ended.ends if end.attempt == attempt)
            assert (end.exit_code, end.signal) == (2 - attempt, None)
        sidecar.send(Directive(gang="g1", pod="p1", attempt=2, verb=Verb.FINISH, grace_ms=1000))
        sidecar.until(lambda told: told.phase is Phase.DONE)
        assert process.wait(SECONDS) == 0
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        sidecar.close()
    assert (tmp_path / "out").read_text() == "rank 1 of 2, attempt 1\nrank 1 of 2, attempt 2\n"
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.nightly
def test_the_executable_is_static_on_both_architectures(images: Images, request: pytest.FixtureRequest) -> None:
    with uncaptured(request.config):
        other = images.supervisor.arm64()
    for path, machine in ((images.supervisor.executable(), os.uname().machine), (other, "aarch64")):
        data = path.read_bytes()
        assert data[:6] == b"\x7fELF\x02\x01"
        assert struct.unpack_from("<H", data, 18)[0] == MACHINES[machine]
        at, size, count = (*struct.unpack_from("<Q", data, 32), *struct.unpack_from("<HH", data, 54))
        kinds = {struct.unpack_from("<I", data, at + number * size)[0] for number in range(count)}
        assert not kinds & {2, 3}, "it names no interpreter, and no library"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "left_out",
    [
        pytest.param(("stacks*", *OF_WORKERS), id="supervisor"),
        pytest.param(("stacks*",), id="all", marks=pytest.mark.nightly),
    ],
)
def test_the_executable_passes_the_supervisors_own_tests(images: Images, left_out: tuple[str, ...]) -> None:
    """All but those of another patience. They wait for most of their time, so several run at once."""
    options = "-q -p no:cacheprovider --timeout=120 -n4 --dist=worksteal"
    command = [sys.executable, "-m", "pytest", *options.split(), "-m", "not nightly", "tests/sidecar/supervisor"]
    command += [f"--ignore-glob=*/test_{one}.py" for one in left_out]
    environment = {**os.environ, "GANGCTL_TEST_SUPERVISOR": str(images.supervisor.executable())}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
