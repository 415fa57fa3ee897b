"""The cluster that tests run on: one of our own, or whichever KUBECONFIG leads to.

GANGCTL_E2E_LOAD and GANGCTL_E2E_IMAGES say how a cluster that isn't ours gets the images: e2e/README.md.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from e2e.cluster import programs, toolchain
from e2e.cluster.lab import Lab, sweep
from e2e.cluster.processes import Process
from e2e.cluster.progress import announce, timed
from e2e.images.build import Images
from e2e.images.store import ALIAS
from e2e.watch import watch_until

NODES = 2
TEMPORARY = Path(tempfile.gettempdir())
KEPT = TEMPORARY / "gangctl-e2e"
"""Where `make e2e-up` starts one that stays."""

T = TypeVar("T")


@dataclass(frozen=True)
class Cluster:
    """A cluster as its users see it; ``lab`` is the machinery below it if it is one of our own."""

    kubeconfig: Path
    programs: Path
    lab: Lab | None

    @property
    def env(self) -> dict[str, str]:
        """What kubectl, helm and gangctl need to find it."""
        return os.environ | {"KUBECONFIG": str(self.kubeconfig), "PATH": f"{self.programs}:{os.environ['PATH']}"}

    def kubectl(self, *words: str, stdin: str = "") -> str:
        """What kubectl prints.

        Raises:
            RuntimeError: it fails, with its own words.
        """
        done = self.run("kubectl", *words, stdin=stdin)
        if done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def run(self, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program that finds the cluster, to its end, whatever that is."""
        path = shutil.which(command[0], path=self.env["PATH"]) or command[0]
        return subprocess.run(
            [path, *command[1:]], input=stdin, env=self.env, capture_output=True, text=True, check=False
        )

    def watch(self, *words: str, holds: Callable[[dict[str, Any]], T | None], seconds: float = 60.0) -> T:
        """Watch what `kubectl get WORDS` shows until something holds of an object, and return that.

        Raises:
            TimeoutError: it doesn't in time.
        """
        return watch_until(self.programs / "kubectl", self.env, words, holds, seconds)

    @contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """A namespace whose name begins like this, gone afterwards with all that is in it."""
        words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        made = f"e2e-{words[:40].strip('-')}-{os.urandom(2).hex()}"
        self.kubectl("create", "namespace", made)
        # Pods made at once would find no service account yet.
        self.kubectl("wait", "--for=create", "serviceaccount/default", "-n", made, "--timeout=30s")
        yield made
        self.kubectl(
            "delete", "pods", "--all", "-n", made, "--timeout=120s"
        )  # its namespace takes 5 s to begin with it
        self.kubectl("delete", "namespace", made, "--wait=false")

    def image(self, name: str) -> str:
        """Bring an image there (controller, sidecar, examples, examples-torch); the name by which pods get it."""
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
            raise toolchain.Missing("GANGCTL_E2E_LOAD or GANGCTL_E2E_IMAGES must say how a cluster gets images")
        return image.name


@contextmanager
def found() -> Iterator[Cluster]:
    """The cluster for this run: what KUBECONFIG leads to, else one that is kept, else one for this run alone."""
    given = os.environ.get("KUBECONFIG", "")
    home = Path(given).resolve().parent if given else KEPT
    if (home / "lab.json").exists() and (lab := Lab(home)).control_plane.machine.init is not None:
        announce(f"using the cluster of our own in {home}")
        yield Cluster(lab.kubeconfig, programs.ready(), lab)
    elif given:
        announce(f"using the cluster of KUBECONFIG={given}: no faults of nodes there")
        yield Cluster(Path(given), programs.ready(programs.CLIENTS), None)
    else:
        sweep(TEMPORARY.glob("gangctl-e2e-*"))
        lab = Lab.up(TEMPORARY / f"gangctl-e2e-{os.getpid()}", NODES, owner=Process.of(os.getpid()))
        try:
            yield Cluster(lab.kubeconfig, programs.ready(), lab)
        finally:
            lab.down()
