"""``gangctl doctor``: the chain of a device pod, of a node, or the pools of the fleet."""

import argparse
import sys
from functools import partial
from typing import Any, Final

from gangctl.annexes.doctor import text
from gangctl.annexes.doctor.links import Link, LinkState, worst
from gangctl.annexes.doctor.reader import survey
from gangctl.annexes.doctor.survey import FleetSurvey, NodeSurvey, PodSurvey, Pool, Survey
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.printers.output import as_json, as_yaml, console, print_out
from gangctl.cli.targets import selection

_EPILOG: Final = """\
examples:
  gangctl doctor                       all nodes with devices: which differ from their pool, what has failed
  gangctl doctor node-7                one node, link by link
  gangctl doctor demo-worker-3-0       one pod of the namespace, then its node; node/NAME and pod/NAME are exact
  gangctl doctor pod/demo-worker-3-0 --exec
                                       also look for device files inside the container, with its python3
  gangctl doctor node-7 -o wide        also say why a link is absent
  gangctl doctor -o json               for programs

A link is ok; FAILED, with what to do; absent, if the cluster does not have it: a cluster without NVIDIA's GPU operator
has no validator; or unknown, if you may not look at it: the right is named, and the rest is answered.

What is known of NVIDIA, AMD, Intel, AWS Neuron and Google TPU, each with its source, is in
gangctl/annexes/doctor/vendors.yaml. Other extended resources have the links that any device plugin has.

Permissions on a cluster: get and list nodes, list pods, daemonsets and runtimeclasses in all namespaces; for a pod, get
pods in its namespace; with --exec, get and create pods/exec.

exit codes: 0 nothing failed (a link may be unknown), 1 a link failed or a node differs from its pool, 2 bad input, or
the nodes can't be listed
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument(
        "subject", metavar="NODE|POD", nargs="?", default="", help="a node or a pod (default: all nodes)"
    )
    parser.add_argument(
        "--exec",
        dest="execute",
        action="store_true",
        help="run a program in the pod's container, which looks at devices",
    )
    parser.add_argument(
        "-o", "--output", choices=["wide", "json", "yaml"], help="wide: also absent links; json, yaml: for programs"
    )
    selection.configure_cluster(parser)


def run(arguments: argparse.Namespace) -> int:
    """Look, and show the links."""
    if arguments.execute and not arguments.subject:
        raise UserError("--exec looks into the container of a pod: name the pod")
    with selection.open_cluster(arguments) as target:
        found = target.ask(partial(survey, subject=arguments.subject, execute=arguments.execute))
    if arguments.execute and not isinstance(found, PodSurvey):
        raise UserError(f"{arguments.subject} is a node: --exec looks into the container of a pod")
    if arguments.output in {"json", "yaml"}:
        document = _document(found)
        print_out(as_json(document) if arguments.output == "json" else as_yaml(document))
    else:
        text.print_survey(console(sys.stdout), found, wide=arguments.output == "wide")
    return ExitCode.FAILED if worst_state(found) is LinkState.FAILED else ExitCode.OK


def worst_state(found: Survey) -> LinkState:
    """The worst state: Failed if a link has failed, or a node differs from its pool."""
    match found:
        case FleetSurvey():
            failed = any(pool.failed for pool in found.pools)
            return LinkState.FAILED if failed else LinkState.UNKNOWN if found.unread else LinkState.OK
        case PodSurvey(node=NodeSurvey() as node):
            return worst((*found.links, *node.links))
        case _:
            return worst(found.links)


def _document(found: Survey) -> dict[str, Any]:
    """The document for programs: names are stable; a text that is empty is absent."""
    made: dict[str, Any]
    match found:
        case FleetSurvey():
            made = {"kind": "Fleet", "state": str(worst_state(found)), "pools": [_pool(one) for one in found.pools]}
            made["nodesWithoutDevices"] = found.without_devices
            made["missingRights"] = [one.right for one in found.unread]
        case NodeSurvey():
            made = {"kind": "Node", "name": found.name, "state": str(worst_state(found)), "links": _links(found.links)}
        case PodSurvey(pod=pod, node=node):
            made = {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "state": str(worst_state(found))}
            made["links"] = _links(found.links)
            if node is not None:
                made["node"] = _document(node)
    return made


def _pool(pool: Pool) -> dict[str, Any]:
    return {
        "name": pool.name,
        "nodes": list(pool.nodes),
        "resources": list(pool.resources),
        "differences": [
            {"what": one.what, "values": [{"value": value, "nodes": list(nodes)} for value, nodes in one.values]}
            for one in pool.differences
        ],
        "findings": [{"node": one.node, **_link(one.link)} for one in pool.findings],
    }


def _links(links: tuple[Link, ...]) -> list[dict[str, str]]:
    return [_link(one) for one in links]


def _link(link: Link) -> dict[str, str]:
    fields = {"about": link.about, "resource": link.resource, "seen": link.seen, "todo": link.todo}
    return {"link": str(link.name), "state": str(link.state), **{key: text for key, text in fields.items() if text}}
