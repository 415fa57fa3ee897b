"""A test cluster of our own in a folder: start it, add nodes, undo faults, take it down.

The folder has everything that a later command needs, so any command finds the cluster that another one started.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from e2e.cluster import addresses, control_plane, programs, toolchain, versions
from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.nodes import Node
from e2e.cluster.processes import Process
from e2e.cluster.progress import announce, timed
from e2e.images.build import Images
from e2e.images.store import Image
from tests.wait import until

CGROUPS = Path("/sys/fs/cgroup")
LONGEST_HOME = 75
"""A Unix socket has a path of at most 107 bytes; the longest one here ends in /node-20/containerd.sock.ttrpc."""


class Lab:
    """The cluster in this folder, if it is up."""

    def __init__(self, home: Path) -> None:
        self.home = home.resolve()
        self.images = Images()
        settings = self._settings()
        self.control_plane = ControlPlane(
            self.home, versions.binaries(), int(settings["number"]), [str(one) for one in settings["api_arguments"]]
        )
        self.kubelet: Mapping[str, object] = settings["kubelet"]

    @classmethod
    def up(
        cls,
        home: Path,
        nodes: int = 2,
        *,
        api_arguments: Sequence[str] = (),
        kubelet: Mapping[str, object] | None = None,
        owner: Process | None = None,
    ) -> Lab:
        """Start a cluster in an empty folder, and wait until all nodes are ready.

        Args:
            home: the folder of the cluster.
            nodes: how many nodes it has.
            api_arguments: more flags for the API server.
            kubelet: more fields for the configuration of the kubelets.
            owner: when this process has ended, the next test run takes the cluster down: see :func:`sweep`.

        Raises:
            Missing: something that the machine lacks cannot be installed or built.
            TimeoutError: a program does not start: its log is in home/log.
            RuntimeError: a cluster runs in the folder already.
        """
        toolchain.require_root()
        toolchain.install_packages(*versions.PACKAGES)
        programs.ready()
        home = home.resolve()
        if len(str(home)) > LONGEST_HOME:
            raise toolchain.Missing(f"the path {home} is too long for Unix sockets below it: set a shorter TMPDIR")
        if (home / "lab.json").exists():
            before = cls(home)
            if before.control_plane.machine.init or any(node.machine.init for node in before.nodes):
                raise RuntimeError(f"a cluster runs in {home} already: use it, or take it down first")
            before.down()  # what is left of it
        home.mkdir(parents=True, exist_ok=True)
        settings: dict[str, Any] = {
            "number": _claim_number(),
            "api_arguments": list(api_arguments),
            "kubelet": dict(kubelet or {}),
        }
        settings["owner"] = asdict(owner) if owner else None
        (home / "lab.json").write_text(json.dumps(settings))
        lab = cls(home)
        try:
            lab._begin(nodes)
        except BaseException:
            lab.halt()  # the logs stay: they show why
            raise
        return lab

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the administrator."""
        return self.control_plane.admin

    @property
    def nodes(self) -> list[Node]:
        """All nodes that were added, also killed ones."""
        found = (path.name.removeprefix("node-") for path in self.home.glob("node-*"))
        return [self.node(index) for index in sorted(int(name) for name in found if name.isdigit())]

    def node(self, index: int) -> Node:
        """The node with this index, from 1."""
        return Node(index, self.control_plane, self.kubelet)

    def add_node(self, index: int, ahead: int = 0) -> Node:
        """Boot a node: a new one, or one that was killed, which comes back as after a reboot.

        ``ahead``: by how many seconds its clock goes before; what another command starts on it has the right time.
        """
        node = Node(index, self.control_plane, self.kubelet, ahead)
        _remove_cgroups(node.containers())  # from before it was killed
        node.boot(self.images.init())
        node.up(self.images.store, [self.images.pause()])
        return node

    def wait_ready(self, *indices: int, seconds: float = 90.0) -> None:
        """Wait until these nodes are Ready."""
        names = [f"node/node-{index}" for index in indices]
        command = ["wait", "--for=condition=Ready", *names, "--timeout=2s"]
        until(
            f"{' '.join(names)} Ready",
            lambda: not self.control_plane.kubectl(*command, check=False).returncode,
            seconds,
        )

    def load(self, *images: Image, nodes: Sequence[Node] | None = None) -> None:
        """Import images on all running nodes, in parallel."""
        chosen = [node for node in nodes or self.nodes if node.machine.init]

        def one(node: Node) -> None:
            for image in images:
                node.load(self.images.store, image)

        with ThreadPoolExecutor(len(chosen) or 1) as pool:
            list(pool.map(one, chosen))

    def remove_node(self, index: int) -> None:
        """Kill a node, and delete it from the cluster."""
        node = self.node(index)
        node.machine.kill()
        self.control_plane.kubectl("delete", "node", node.name, "--ignore-not-found")
        _remove_cgroups(node.containers())
        shutil.rmtree(node.machine.here)

    def heal(self, nodes: int) -> None:
        """Undo every fault: afterwards this number of nodes, and no other, is running and Ready."""
        for program in control_plane.PROGRAMS:
            self.control_plane.start(program)
        self.control_plane.ready()
        for node in self.nodes:
            if node.index > nodes:
                self.remove_node(node.index)
            elif node.machine.init is None:
                self.add_node(node.index)
            else:
                node.machine.thaw()
                node.plug_in()
        self.wait_ready(*range(1, nodes + 1))

    def halt(self) -> None:
        """End every process; logs and keys stay in the folder."""
        number = self.control_plane.number
        if self.control_plane.machine.init or Path(f"/sys/class/net/{addresses.link_peer(number)}").exists():
            # Otherwise the machine was restarted, and another cluster may have the number now.
            subprocess.run(["ip", "link", "del", addresses.link(number)], capture_output=True, check=False)
        for machine in [*(node.machine for node in self.nodes), self.control_plane.machine]:
            machine.kill()

    def down(self) -> None:
        """End every process, and remove the folder."""
        self.halt()
        for node in self.nodes:
            _remove_cgroups(node.containers())
        shutil.rmtree(self.home)

    def _begin(self, nodes: int) -> None:
        with timed(f"starting a cluster with {nodes} nodes in {self.home}"):
            init = self.images.init()
            self.images.pause()
            self.control_plane.prepare()
            self.control_plane.boot(init)
            self.control_plane.up()
            indices = range(1, nodes + 1)
            with ThreadPoolExecutor(nodes) as pool:
                list(pool.map(self.add_node, indices))
            self.wait_ready(*indices)

    def _settings(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.home / "lab.json").read_text())
        except FileNotFoundError:
            raise RuntimeError(f"there is no cluster in {self.home}") from None
        return found


def sweep(homes: Iterable[Path]) -> None:
    """Take down the clusters of test runs that were killed."""
    with versions.lock("sweep"):
        for home in homes:
            with contextlib.suppress(OSError, ValueError):
                owner = json.loads((home / "lab.json").read_text())["owner"]
                if owner is not None and not Process(**owner).alive:
                    announce(f"taking down the cluster in {home}: its test run was killed")
                    Lab(home).down()


def _claim_number() -> int:
    """The first number that no cluster of this machine has.

    Adding its link claims it: of two test runs that start at once, only one succeeds.
    """
    for number in range(addresses.MAX_CLUSTERS):
        ends = (addresses.link(number), "type", "veth", "peer", "name", addresses.link_peer(number))
        if subprocess.run(["ip", "link", "add", *ends], capture_output=True, check=False).returncode == 0:
            return number
    raise RuntimeError("this machine has no room for another cluster: see `ip link` for the links of those it has")


def _remove_cgroups(containers: list[str]) -> None:
    """Remove the empty cgroups of containers that were killed with their node, the innermost first."""
    for above in CGROUPS.glob("*/k8s.io"):
        tops = [above / container for container in containers]
        folders = [path for top in tops for path in [top, *top.rglob("*")] if path.is_dir()]
        for folder in [*sorted(folders, reverse=True), above]:
            with contextlib.suppress(OSError):
                folder.rmdir()
