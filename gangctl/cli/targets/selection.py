"""Select the target of a command: a cluster or a state directory of this machine.

The first of these that applies is used: the flags; a cluster, if called as ``kubectl gang``; the state directory of
$GANGCTL_STATE_DIR; the state directory in the working directory; a cluster, if one is configured; this machine.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from gangctl.api.gangjob import GangJob
from gangctl.cli.arguments import namespaced_name
from gangctl.cli.command_name import is_plugin
from gangctl.cli.errors import UserError, hint
from gangctl.cli.local import gangs as local_gangs
from gangctl.cli.targets.local import LocalTarget
from gangctl.cli.targets.port import DEFAULT_LEASE, Target
from gangctl.cluster.kube.credentials import kubeconfigs
from gangctl.cluster.local.layout import DEFAULT_STATE_DIRECTORY

if TYPE_CHECKING:
    from gangctl.cli.targets.kube import ClusterTarget


def configure(parser: argparse.ArgumentParser, *, everywhere: bool = False) -> None:
    """Add the flags that select a target. ``everywhere``: with --all-namespaces."""
    group = configure_cluster(
        parser,
        f"Default: ${local_gangs.STATE_VARIABLE}, then {DEFAULT_STATE_DIRECTORY} in the working directory, then the "
        "cluster of\n$KUBECONFIG, ~/.kube/config or the service account. kubectl gang always uses a cluster.",
    )
    if everywhere:
        group.add_argument("-A", "--all-namespaces", action="store_true", help="all namespaces of the cluster")
    group.add_argument("--state-dir", metavar="DIR", type=Path, help="state directory with gangs of this machine")


def configure_cluster(
    parser: argparse.ArgumentParser,
    default: str = "Default: the cluster of $KUBECONFIG, ~/.kube/config or the service account.",
) -> argparse._ArgumentGroup:
    """Add the flags that select a cluster. ``default``: the target without them, in words."""
    group = parser.add_argument_group("target", default)
    group.add_argument("-n", "--namespace", metavar="NS", help="namespace on the cluster (default: the context's)")
    group.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")
    group.add_argument("--kubeconfig", metavar="FILE", type=Path, help="kubeconfig of the cluster")
    return group


@contextmanager
def open_target(arguments: argparse.Namespace) -> Iterator[Target]:
    """Open the target; it is closed at the end. A name such as jobset/llama becomes that of its gang.

    Raises:
        UserError: the command line contradicts itself, or there is no such namespace, context or kubeconfig.
        ClusterError: the cluster's configuration can't be used.
    """
    state = state_directory(arguments)
    if state is not None:
        yield LocalTarget(local_gangs.absolute(state))
        return
    with open_cluster(arguments) as one:
        given: str | None = getattr(arguments, "name", None)
        if given is not None and "/" in given and given.partition("/")[0].isalpha():
            arguments.name = one.gang_of(given)
        yield one


@contextmanager
def open_cluster(arguments: argparse.Namespace) -> Iterator[ClusterTarget]:
    """Open the cluster, for verbs that look at nodes; it is closed at the end.

    Raises:
        UserError: --state-dir is given, or there is no such context.
        ClusterError: the cluster's configuration can't be used.
    """
    if getattr(arguments, "state_dir", None) is not None:
        raise UserError("--state-dir selects this machine, which has no nodes: leave it out")
    _check_context(arguments)
    # imported only here, because local gangs do not need it
    from gangctl.cli.targets.kube import ClusterTarget  # noqa: PLC0415

    everywhere = getattr(arguments, "all_namespaces", False)
    with ClusterTarget.open_cluster(
        arguments.kubeconfig, arguments.context, arguments.namespace, everywhere=everywhere
    ) as one:
        yield one


def configure_name(parser: argparse.ArgumentParser) -> None:
    """Add the name of a gang, which isn't needed where there is one only."""
    parser.add_argument(
        "name", metavar="GANG", nargs="?", help="name of the gang, or jobset/NAME (default: the only gang)"
    )


def name_of(target: Target, arguments: argparse.Namespace) -> str:
    """The gang that is named, or the only one."""
    given: str | None = arguments.name
    names = [given] if given else target.names()
    if len(names) == 1:
        return names[0]
    there = f"there is no gang in {target.location}; {target.start_hint}"
    raise UserError(f"name one of the gangs: {', '.join(sorted(names))}" if names else there)


def removed_at(target: Target, job: GangJob) -> float | None:
    """When a gang was removed and its processes had ended, in seconds since the epoch; None if it wasn't."""
    return target.surroundings(job).interrupted_at if target.is_removed(job.metadata.name) else None


def configure_controller(parser: argparse.ArgumentParser, meaning: str) -> None:
    """Add --controller, for verbs that read what a controller stores in its namespace."""
    parser.add_argument(
        "--controller",
        metavar="NAMESPACE/NAME",
        type=namespaced_name,
        default=DEFAULT_LEASE,
        help=f"{meaning} (default: %(default)s)",
    )


def configure_group(parser: argparse.ArgumentParser) -> None:
    """Add --group, for verbs that show the gangs of a replica group together."""
    parser.add_argument("--group", metavar="NAME", help="the gangs of this replica group (spec.replicaGroup)")


def names_of(target: Target, arguments: argparse.Namespace) -> list[str]:
    """The gangs of the replica group that --group names, by their index; without it, the gang of :func:`name_of`."""
    group: str | None = arguments.group
    if group is None:
        return [name_of(target, arguments)]
    if arguments.name:
        raise UserError("a gang and --group exclude each other: leave out one of them")
    linked = [(one["spec"].get("replicaGroup", {}), one["metadata"]["name"]) for one in target.documents(None)]
    found = sorted((link.get("index", 0), name) for link, name in linked if link.get("name") == group)
    if not found:
        known = sorted({link["name"] for link, _ in linked if link})
        there = hint(group, known, "no gang has spec.replicaGroup")
        raise UserError(f"there is no replica group {group!r} in {target.location}: {there}")
    return [name for _, name in found]


def state_directory(arguments: argparse.Namespace) -> Path | None:
    """The state directory that is selected; None if a cluster is."""
    given: Path | None = arguments.state_dir
    flag = next((flag for flag, value in _cluster_flags(arguments).items() if value), "")
    if flag and getattr(arguments, "all_namespaces", False) and arguments.namespace:
        raise UserError("--namespace and --all-namespaces exclude each other: leave out one of them")
    if given is not None:
        if flag or is_plugin():
            raise UserError(
                f"--state-dir selects this machine, but {flag or 'kubectl gang'} selects a cluster: use only one"
            )
        return given
    if flag or is_plugin():
        return None
    if os.environ.get(local_gangs.STATE_VARIABLE) or DEFAULT_STATE_DIRECTORY.is_dir() or not _is_configured():
        return local_gangs.default_state_directory()
    return None


def _cluster_flags(arguments: argparse.Namespace) -> dict[str, object]:
    return {
        "--namespace": arguments.namespace,
        "--context": arguments.context,
        "--kubeconfig": arguments.kubeconfig,
        "--all-namespaces": getattr(arguments, "all_namespaces", False),
    }


def _is_configured() -> bool:
    return any(path.exists() for path in kubeconfigs(None)) or "KUBERNETES_SERVICE_HOST" in os.environ


def _check_context(arguments: argparse.Namespace) -> None:
    """Reject an unknown context, with the names of those there are."""
    name: str | None = arguments.context
    if name is None:
        return
    paths = kubeconfigs(arguments.kubeconfig)
    names = sorted({context for path in paths for context in _contexts(path)})
    if names and name not in names:
        raise UserError(f"there is no context {name!r} in {', '.join(map(str, paths))}: {hint(name, names)}")


def _contexts(path: Path) -> list[str]:
    """Names of the contexts in a kubeconfig; empty if it can't be read, which is reported when it is used."""
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return []
    contexts = content.get("contexts") if isinstance(content, dict) else None
    return [str(one["name"]) for one in contexts or () if isinstance(one, dict) and "name" in one]
