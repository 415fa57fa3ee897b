"""Installs gangctl on the cluster by its chart, with images from the working tree."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.progress import timed
from e2e.clusters import Cluster

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "gangctl"
CRDS = ROOT / "crds"
RELEASE = "gangctl"
NAMESPACE = "gangctl-system"


@dataclass(frozen=True)
class Installed:
    """The names of what was installed: images, namespace, release."""

    controller: str
    sidecar: str
    examples: str
    namespace: str = NAMESPACE
    release: str = RELEASE


def install(cluster: Cluster, collector: str = "") -> Installed:
    """Install or upgrade, and wait until it is available. ``collector``: where it sends traces; empty: nowhere.

    Raises:
        RuntimeError: Helm failed; the message is its error output.
    """
    with timed("building and loading images"):
        installed = Installed(*(cluster.image(name) for name in ("controller", "sidecar", "examples")))
    helm(
        cluster,
        *("upgrade", "--install", RELEASE, str(CHART), "--namespace", NAMESPACE, "--create-namespace"),
        *("--take-ownership", "--force-conflicts"),  # a test may have applied the CRD by itself
        *image_values("image", installed.controller),
        *image_values("sidecar.image", installed.sidecar),
        *("--set-string", f"tracing.endpoint={collector}"),
        *("--wait", "--timeout=120s"),
    )
    return installed


def enable(cluster: Cluster, part: str, *more: str, wanted: bool = True) -> None:
    """Turn a part of the release on or off: kueue, jobsets, deviceGuard. ``more``: other values."""
    helm(
        cluster,
        *("upgrade", RELEASE, str(CHART), "--namespace", NAMESPACE, "--reuse-values"),
        *("--set", ",".join((f"{part}.enabled={str(wanted).lower()}", *more)), "--wait", "--timeout=120s"),
    )


def scale(cluster: Cluster, replicas: int) -> None:
    """Set the number of controllers, and wait until they lead or are gone."""
    words = ("-n", NAMESPACE, "deployment", RELEASE)
    cluster.kubectl("scale", *words, f"--replicas={replicas}")
    if replicas:
        cluster.kubectl("rollout", "status", *words, "--timeout=120s")
    else:
        pods = ("-n", NAMESPACE, "pod", "-l", "app.kubernetes.io/component=controller")
        cluster.kubectl("wait", "--for=delete", *pods, "--timeout=60s")


def uninstall(cluster: Cluster) -> None:
    """Remove the release; the CRD stays, as always with Helm."""
    helm(cluster, "uninstall", RELEASE, "--namespace", NAMESPACE, "--wait", "--timeout=120s")


def helm(cluster: Cluster, *words: str) -> str:
    """Run Helm; what it prints.

    Raises:
        RuntimeError: Helm failed; the message is its error output.
    """
    done = cluster.run("helm", *words)
    if done.returncode != 0:
        raise RuntimeError(f"helm {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def image_values(value: str, name: str) -> list[str]:
    """Helm's flags for an image."""
    repository, _, tag = name.rpartition(":")
    return ["--set-string", f"{value}.repository={repository}", "--set-string", f"{value}.tag={tag}"]
