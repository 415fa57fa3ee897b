"""``gangctl why node/NAME``: whether gangs avoid a node, for which faults, and whether it is suspected."""

import argparse
import time
from functools import partial

from gangctl.annexes.node_records import reader, suspicion
from gangctl.annexes.node_records.nodes_verb import node_document, print_node
from gangctl.annexes.node_records.records import AVOIDED, NodeRecord, pruned
from gangctl.cli.errors import ExitCode
from gangctl.cli.printers.output import print_document, print_out
from gangctl.cli.printers.text import clean
from gangctl.cli.targets import selection


def run(arguments: argparse.Namespace) -> int:
    name = arguments.name.partition("/")[2]
    with selection.open_cluster(arguments) as target:
        found = target.ask(partial(reader.read_records, controller=arguments.controller))
        node = next((one for one in target.ask(reader.list_nodes) if one.name == name), None)
    now = time.time()
    one = reader.named(pruned(found, now), name)
    answer = {"suspected": suspicion.described(node, one, now), "next": _next(one, now), "do": _do(name, one)}
    if arguments.output:
        print_document({"kind": "NodeAnswer", "node": node_document(name, one, now), **answer}, arguments.output)
        return ExitCode.OK
    print_node(name, one, now)
    for label, text in answer.items():
        print_out(clean(f"{label:<12}{text}"))
    return ExitCode.OK


def _next(one: NodeRecord, now: float) -> str:
    score = max(one.score(now, namespace) for namespace in (None, *one.namespaces))
    if score < AVOIDED:
        return "nothing: new pods come here as to any other node"
    return f"new pods prefer other nodes until the score is below {AVOIDED:g}: faults lose half their weight in a week"


def _do(name: str, one: NodeRecord) -> str:
    if not one.namespaces:
        return "nothing"
    return f"look at its devices: gangctl doctor node/{name}; after the repair: gangctl nodes {name} --clear"
