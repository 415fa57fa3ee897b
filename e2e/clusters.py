"""The cluster that tests run on: one of our own, or the one of KUBECONFIG.

GANGCTL_E2E_LOAD or GANGCTL_E2E_IMAGES sets how a cluster of KUBECONFIG gets the images: see e2e/README.md.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from e2e.cluster import programs, toolchain, versions
from e2e.cluster.lab import Lab, sweep
from e2e.cluster.processes import Process
from e2e.cluster.progress import announce, timed
from e2e.images.build import Images
from e2e.images.store import ALIAS
from e2e.watch import watch_until
from tests.wait import until

NODES = 2
TEMPORARY = Path(tempfile.gettempdir())
KEPT = TEMPORARY / "gangctl-e2e"
"""The folder in which `make e2e-up` starts a cluster that stays."""

T = TypeVar("T")


@dataclass(frozen=True)
class Cluster:
    """A cluster as its users see it; ``lab`` is the machinery below it, if it is one of our own."""

    kubeconfig: Path
    programs: Path
    lab: Lab | None

    @property
    def env(self) -> dict[str, str]:
        """The environment with which kubectl, helm and gangctl find the cluster."""
        return os.environ | {"KUBECONFIG": str(self.kubeconfig), "PATH": f"{self.programs}:{os.environ['PATH']}"}

    def kubectl(self, *words: str, stdin: str = "") -> str:
        """What kubectl prints.

        Raises:
            RuntimeError: kubectl failed; the message is its error output.
        """
        done = self.run("kubectl", *words, stdin=stdin)
        if done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def until_served(self, crd: str) -> None:
        """Wait until the kind of a new CRD is served. While the CRD has no conditions, kubectl fails."""
        wait = ("wait", "--for=condition=Established", f"crd/{crd}", "--timeout=5s")
        until("the kind is served", lambda: self.run("kubectl", *wait).returncode == 0)

    def run(self, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program that finds the cluster, and wait for its end, however it ends."""
        path = shutil.which(command[0], path=self.env["PATH"]) or command[0]
        return subprocess.run(
            [path, *command[1:]], input=stdin, env=self.env, capture_output=True, text=True, check=False
        )

    def watch(self, *words: str, holds: Callable[[dict[str, Any]], T | None], seconds: float = 60.0) -> T:
        """Watch what `kubectl get WORDS` shows until a condition holds for an object; what the condition found.

        Raises:
            TimeoutError: the condition did not hold in time.
        """
        return watch_until(self.programs / "kubectl", self.env, words, holds, seconds)

    @contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """A new namespace with this name and a random suffix; it is deleted afterwards."""
        words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        made = f"e2e-{words[:40].strip('-')}-{os.urandom(2).hex()}"
        self.kubectl("create", "namespace", made)
        # The first pods would find no service account.
        self.kubectl("wait", "--for=create", "serviceaccount/default", "-n", made, "--timeout=30s")
        try:
            yield made
        finally:
            # The deletion of a namespace waits 5 s before it deletes pods, and then for the whole grace of each.
            # The next test need not wait for their ends.
            self.kubectl("delete", "pods", "--all", "-n", made, "--grace-period=1", "--wait=false")
            self.kubectl("delete", "namespace", made, "--wait=false")

    def image(self, name: str) -> str:
        """Bring an image (controller, sidecar, examples, examples-torch) to the cluster; the name for pods."""
        if self.lab is None and (prefix := os.environ.get("GANGCTL_E2E_IMAGES")):
            return f"{prefix}/{name}:{ALIAS}"
        images = Images()
        image = images.made(name)
        if self.lab is not None:
            self.lab.load(image)
        elif command := os.environ.get("GANGCTL_E2E_LOAD"):
            with timed(f"loading {image.name}"), tempfile.TemporaryDirectory() as folder:
                archive = str(images.store.archive(image, Path(folder)))
                subprocess.run([word.replace("{}", archive) for word in shlex.split(command)], check=True)
        else:
            raise toolchain.Missing(
                "the cluster of KUBECONFIG has no way to get images: set GANGCTL_E2E_LOAD or GANGCTL_E2E_IMAGES"
            )
        return image.name


def build(*, images: Iterable[str], on_demand: Iterable[str], clock: str = "") -> None:
    """Build the programs and images that tests on a cluster need: the first time, this takes many minutes.

    Args:
        images: those that only some tests need.
        on_demand: programs that only some tests need, on a cluster of our own.
        clock: another clock that a node of our own cluster has.

    Raises:
        Missing: the machine lacks something that cannot be installed or built.
    """
    with versions.lock("build"):  # the other shard waits, and finds everything made
        foreign = bool(os.environ.get("KUBECONFIG")) and not (_home() / "lab.json").exists()
        programs.ready(programs.CLIENTS if foreign else programs.ALL)
        if foreign and "GANGCTL_E2E_IMAGES" in os.environ:
            return
        if not foreign:
            programs.ready(clock=clock)
            for name in on_demand:
                programs.on_demand(name)
        toolchain.require_root()
        toolchain.install_packages(*versions.PACKAGES)
        maker = Images()
        for name in ("controller", "sidecar", "examples", *images):
            maker.made(name)


def is_there() -> bool:
    """Return whether a cluster exists that this run would use: that of KUBECONFIG, or the one of `make e2e-up`."""
    return bool(os.environ.get("KUBECONFIG")) or _running() is not None


def _home() -> Path:
    """The folder of a cluster of our own that may run: that of KUBECONFIG, else that of `make e2e-up`."""
    given = os.environ.get("KUBECONFIG")
    return Path(given).resolve().parent if given else KEPT


def _running() -> Lab | None:
    """The cluster of our own in that folder, if it runs."""
    home = _home()
    if (home / "lab.json").exists() and (lab := Lab(home)).control_plane.machine.init is not None:
        return lab
    return None


def sweep_killed() -> None:
    """Take down the clusters of test runs that were killed."""
    sweep(TEMPORARY.glob("gangctl-e2e-*"))


@contextmanager
def open_cluster() -> Iterator[Cluster]:
    """The cluster for this run: that of KUBECONFIG, else the one of `make e2e-up`, else a new one for this run."""
    given = os.environ.get("KUBECONFIG")
    if (lab := _running()) is not None:
        announce(f"using the cluster of our own in {lab.home}")
        yield Cluster(lab.kubeconfig, programs.ready(), lab)
    elif given:
        announce(f"using the cluster of KUBECONFIG={given}: tests that break nodes are skipped")
        yield Cluster(Path(given), programs.ready(programs.CLIENTS), None)
    else:
        sweep_killed()
        lab = Lab.up(TEMPORARY / f"gangctl-e2e-{os.getpid()}", NODES, owner=Process.of(os.getpid()))
        try:
            yield Cluster(lab.kubeconfig, programs.ready(), lab)
        finally:
            lab.down()
