"""``gangctl why``: why a gang does not run or, if it runs or has ended, why it restarted; what to do about it.

Annexes register other names that it answers for, such as node/NAME.
"""

import argparse
import shutil
import time
from typing import Any, Final

from gangctl.api.stored import Stored, read_stored
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.printers.output import print_document, print_out
from gangctl.cli.printers.why import answer_lines
from gangctl.cli.registry import find_why
from gangctl.cli.targets import selection
from gangctl.cli.targets.port import Target
from gangctl.cluster.kube.decoding import first_error
from gangctl.explain.why.answer import Explanation, answer
from gangctl.story.document import document

COLUMNS: Final = 100
"""Width without a terminal, unless COLUMNS is set."""
_LEAST_COLUMNS: Final = 40
_EPILOG: Final = """\
examples:
  gangctl why demo                what keeps it from running, or why it restarted
  gangctl why demo -o json        the same, for programs
  gangctl why demo -n research    on a cluster
  gangctl why --group torchft     for each gang of a replica group
  gangctl why node/node-7         whether gangs avoid a node, for which faults, and whether it is suspected

example output:
  bert: Pending for 3m12s, attempt 1, ready 0/2

  Why it does not run
  1. worker-0 and worker-1 have no node: each needs 4 nvidia.com/gpu; enough in total, not on one node:
     10 nvidia.com/gpu free in total, at most 3 on one node
     next: the gang waits, without limit and without charge
     do: make room on node-a, and then again for 1 more: move lab/notebook-0 (to node-b), ...
     as the scheduler counts: 0/4 nodes are available: 4 Insufficient nvidia.com/gpu
     - node-a: needs 4 nvidia.com/gpu, 3 free of 8 (lab/bert-0 (4), lab/notebook-0 (1))
     ...

It walks the scheduler's filters node by node: cordons, taints, node selector and affinity, host ports, resources,
volumes, pod affinity. It does not look at topologySpreadConstraints, and of resourceClaims only at tainted devices, and
says so where pods have them. Figures are requests against what is allocatable, as the scheduler counts.

Permissions on a cluster: get gangjobs, list pods. For pods without a node also: list nodes and the pods of all
namespaces, get persistentvolumeclaims, persistentvolumes and storageclasses, list resourceslices and devicetaintrules
(for those with claims); for those that don't start list events.
For node/NAME: list nodes, and in the controller's namespace get the ConfigMap NAME-node-records.
The chart's ClusterRole gangctl-explainer has those on nodes. If one is missing, it is named, and the rest is answered.

exit codes: 0 answered, 2 bad input, or the gang can't be read
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.epilog = _EPILOG
    selection.configure_name(parser)
    selection.configure_group(parser)
    parser.add_argument("-o", "--output", choices=["json", "yaml"], help="print the answer for programs")
    selection.configure_controller(parser, "for node/NAME: Lease of the controller whose records are read")
    selection.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Answer for one gang, for each of a group, or for what an annex has registered."""
    other = find_why(arguments.name or "") if arguments.group is None else None
    if other is not None:
        return other.load()(arguments)
    now = time.time()
    with selection.open_target(arguments) as target:
        answers = [_answer(target, name, now) for name in selection.names_of(target, arguments)]
    if arguments.output:
        documents = [document(one) for one in answers]
        print_document(documents[0] if arguments.group is None else documents, arguments.output)
        return ExitCode.OK
    columns = max(_LEAST_COLUMNS, shutil.get_terminal_size((COLUMNS, 0)).columns)
    for at, one in enumerate(answers):
        for line in ("", *answer_lines(one, now, columns))[at == 0 :]:
            print_out(line)
    return ExitCode.OK


def _answer(target: Target, name: str, now: float) -> Explanation:
    stored = _read(name, dict(target.documents(name)[0]))
    job = target.latest(stored.job)
    around = target.surroundings(job)
    return answer(job, around, around.interrupted_at or now, stored.ignored)


def _read(name: str, document: dict[str, Any]) -> Stored:
    """The gang, and the fields that another release wrote and this one doesn't know."""
    try:
        return read_stored(document)
    except ValueError as error:
        status = document.get("status")
        said = status if isinstance(status, dict) else {}
        readable = {key: said[key] for key in ("phase", "attempt", "message") if isinstance(said.get(key), str | int)}
        words = ", ".join(f"{key} {value}" for key, value in readable.items()) or "nothing"
        raise UserError(
            f"this release of gangctl can't read gang {name} ({first_error(error)}); its status says: {words}; upgrade "
            f"gangctl to the release of the controller, or see gangctl status {name} -o yaml"
        ) from None
