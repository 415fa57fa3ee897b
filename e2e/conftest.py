"""Fixtures of tests on a cluster: the cluster, gangctl on it, a namespace for each test, faults that are undone."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e import clusters, controllers, installation
from e2e.accelerators import plugged_in
from e2e.api_proxy import ApiProxy, proxy
from e2e.artifacts import keep
from e2e.cluster import addresses
from e2e.cluster.device_plugin import Devices
from e2e.cluster.lab import Lab
from e2e.cluster.programs import SHIFTED
from e2e.cluster.toolchain import Missing
from e2e.clusters import NODES, Cluster
from e2e.gangs import Gang
from e2e.installation import Installed
from e2e.jaeger import Jaeger
from e2e.jobsets import jobset, trainer
from e2e.queues import coscheduling, kueue
from e2e.queues.crashes import Crashes

CLUSTER = pytest.StashKey[Cluster]()
ON_DEMAND = {
    "kueue_installed": kueue.NAME,
    "_scheduler": coscheduling.NAME,
    "jobset_running": jobset.NAME,
    "trainer_running": trainer.NAME,
    "kueue_running": kueue.NAME,
}
"""Fixture -> the program that it runs."""
IMAGES = {"torch": "examples-torch", "frameworks": "examples-frameworks"}
"""Fixture -> the image that it loads."""


def pytest_configure() -> None:
    """Let SIGTERM end a run as Ctrl-C does, with everything taken down."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_xdist_auto_num_workers() -> int:
    """With ``-n auto``: two clusters of our own side by side. A cluster that is there already can't be shared."""
    return 0 if clusters.is_there() else 2


def pytest_unconfigure(config: pytest.Config) -> None:
    """Take down the clusters of shards that were ended before they could do it: by Ctrl-C, or by SIGTERM."""
    if config.option.numprocesses:
        clusters.sweep_killed()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the selected tests need before the first one begins: a first build takes longer than its timeout."""
    fixtures = {name for item in session.items if isinstance(item, pytest.Function) for name in item.fixturenames}
    if "cluster" in fixtures and not session.config.option.collectonly:
        with uncaptured(session.config):
            try:
                needed = [name for fixture, name in ON_DEMAND.items() if fixture in fixtures]
                images = [name for fixture, name in IMAGES.items() if fixture in fixtures]
                clock = SHIFTED if "shifted_node" in fixtures else ""
                clusters.build(images=images, on_demand=needed, clock=clock)
            except Missing as error:
                pytest.exit(f"e2e: {error}", returncode=2)


@contextmanager
def uncaptured(config: pytest.Config) -> Iterator[None]:
    """Show the progress of long work, instead of capturing it as output of a test."""
    capturing = config.pluginmanager.getplugin("capturemanager")
    if capturing is None:
        yield
        return
    with capturing.global_and_fixture_disabled():
        yield


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster of KUBECONFIG, else one of our own."""
    with ExitStack() as until_the_end:
        with uncaptured(request.config):
            try:
                one = until_the_end.enter_context(clusters.open_cluster())
            except Missing as error:
                pytest.exit(f"e2e: {error}", returncode=2)
        request.config.stash[CLUSTER] = one
        yield one


@pytest.fixture(scope="session")
def kubectl(cluster: Cluster) -> Callable[..., str]:
    """``kubectl("get", "pods", stdin="")`` returns what it prints, and raises RuntimeError with its error output."""
    return cluster.kubectl


@pytest.fixture(scope="session")
def helm(cluster: Cluster) -> Callable[..., str]:
    """``helm("list")`` does the same for Helm."""

    def run(*words: str) -> str:
        return installation.helm(cluster, *words)

    return run


@pytest.fixture(scope="session")
def gangctl_installed(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Installed]:
    """Gangctl, installed by its chart and available. In a cluster of our own it sends traces to a Jaeger."""
    collector = "" if cluster.lab is None else Jaeger(cluster.lab).start().endpoint
    with uncaptured(request.config):
        installed = installation.install(cluster, collector)
    yield installed
    if cluster.lab is None:
        installation.uninstall(cluster)


@pytest.fixture
def idle(cluster: Cluster, gangctl_installed: Installed) -> Iterator[Installed]:
    """The installed release without replicas, so that other releases may manage the gangs of its namespaces."""
    words = ("-n", installation.NAMESPACE, "deployment", installation.RELEASE)
    cluster.kubectl("scale", *words, "--replicas=0")
    pods = ("-n", installation.NAMESPACE, "pod", "-l", "app.kubernetes.io/component=controller")
    cluster.kubectl("wait", "--for=delete", *pods, "--timeout=60s")
    yield gangctl_installed
    cluster.kubectl("scale", *words, "--replicas=2")
    cluster.kubectl("rollout", "status", *words, "--timeout=120s")


@pytest.fixture(scope="session")
def jaeger(cluster: Cluster, gangctl_installed: Installed) -> Jaeger:  # noqa: ARG001 - gangctl sends traces to it
    """The Jaeger with the traces of the installed gangctl."""
    if cluster.lab is None:
        pytest.skip("a Jaeger that pods can reach needs a cluster of our own: run without KUBECONFIG")
    return Jaeger(cluster.lab)


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for this test; it is deleted afterwards."""
    with cluster.namespace(request.node.name) as name:
        yield name


@pytest.fixture
def lab(cluster: Cluster, namespace: str) -> Iterator[Lab]:  # noqa: ARG001 - faults are undone before it is deleted
    """The machinery below the cluster, for faults of nodes and of the control plane. They are undone afterwards."""
    if cluster.lab is None:
        pytest.skip("faults of nodes need a cluster of our own: run without KUBECONFIG")
    yield cluster.lab
    cluster.lab.heal(NODES)


@pytest.fixture
def third_node(lab: Any) -> Any:
    """A new node, for faults."""
    return _added(lab, 0)


@pytest.fixture(params=[3600, -3600], ids=["ahead", "behind"])
def shifted_node(lab: Any, request: pytest.FixtureRequest) -> Any:
    """A new node whose clock is an hour ahead, or behind."""
    return _added(lab, request.param)


def _added(lab: Any, ahead: int) -> Any:
    node = lab.add_node(3, ahead)
    lab.load(lab.images.controller(), lab.images.sidecar(), lab.images.examples(), nodes=[node])
    lab.wait_ready(3)
    return node


@pytest.fixture
def plugged(lab: Lab, cluster: Cluster) -> Iterator[dict[str, Devices]]:
    """Both nodes with devices of a fake plugin: the name of each, and where to set its health."""
    with plugged_in(lab, cluster) as found:
        yield found


@pytest.fixture
def shared_dir(cluster: Cluster, namespace: str) -> Iterator[Path]:  # noqa: ARG001 - pods that use it end first
    """A directory that all pods can mount and the test can read: a hostPath of the host."""
    if cluster.lab is None:
        pytest.skip("a directory that the test shares with all pods needs a cluster of our own")
    # Pods may still write into it while it is removed; one on a dead node stays in the cluster until the node is gone.
    with tempfile.TemporaryDirectory(prefix="gangctl-e2e-shared-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


@pytest.fixture(scope="session")
def torch(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """The image with PyTorch, loaded on all nodes."""
    with uncaptured(request.config):
        return cluster.image("examples-torch")


@pytest.fixture
def submit(
    shared_dir: Path,  # noqa: ARG001 - it must outlive the gang
    gangctl_installed: Installed,  # noqa: ARG001 - a controller must look after the gang
    cluster: Cluster,
    namespace: str,
) -> Iterator[Callable[[dict[str, Any]], Gang]]:
    """``submit(document)`` applies a GangJob in the test's namespace; it is deleted afterwards."""
    submitted: list[Gang] = []

    def do(document: dict[str, Any]) -> Gang:
        gang = Gang(cluster.kubectl, namespace, document["metadata"]["name"])
        submitted.append(gang)
        return gang.apply(document)

    yield do
    for gang in submitted:
        cluster.kubectl("delete", "gj", gang.name, "-n", namespace, "--ignore-not-found", "--timeout=60s")


@pytest.fixture
def machine_address(lab: Lab) -> str:
    """The address at which programs on the control plane reach this process."""
    return addresses.around(lab.control_plane.number)


@pytest.fixture
def api_server(lab: Lab) -> tuple[str, str]:
    """URL of the API server for this process, and the file with its CA."""
    return f"https://{addresses.entrance(lab.control_plane.number)}:6443", str(lab.control_plane.pki.folder / "ca.crt")


@pytest.fixture
async def api_proxy(api_server: tuple[str, str], machine_address: str) -> AsyncIterator[ApiProxy]:
    """A proxy in front of the API server, for faults."""
    async with proxy(*api_server, machine_address) as found:
        yield found


@pytest.fixture
async def local_controllers(
    lab: Lab, cluster: Cluster, gangctl_installed: Installed, tmp_path: Path
) -> AsyncIterator[controllers.LocalControllers]:
    """Controllers as local processes, in place of the Deployment."""
    enter = ("nsenter", f"--net=/proc/{lab.control_plane.machine.first.pid}/ns/net", "--")
    async with controllers.local_controllers(
        cluster.kubectl, addresses.CONTROL, enter, tmp_path, gangctl_installed.sidecar
    ) as found:
        yield found


@pytest.fixture
def crashes(local_controllers: controllers.LocalControllers, api_proxy: ApiProxy, lab: Lab) -> Crashes:
    """Kills gangctl or Kueue at a request of gangctl's."""
    return Crashes(local_controllers, api_proxy, lab, {"GANGCTL_KUEUE": "true", "GANGCTL_JOBSETS": "true"})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Save the artifacts of a failed test before its fixtures are torn down, and report the folder."""
    report = yield
    one = item.config.stash.get(CLUSTER, None)
    if report.failed and report.when != "teardown" and one is not None:
        report.sections.append(("artifacts", str(keep(one, item.name))))
    return report
