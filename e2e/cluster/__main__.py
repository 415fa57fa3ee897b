"""A real Kubernetes cluster on one machine, from the command line (needs root).

python -m e2e.cluster [--dir DIR] VERB ...

up [--nodes 2]           start it; prints the kubeconfig
add 3                    add a node, or start a killed one again
kill 2                   cut the node's power: every process on it ends at once
freeze 2, thaw 2         stop all processes of the node, and continue them
cut 2, plug 2            take the node's network away, and give it back; its processes go on
stop kube-apiserver      or etcd, kube-scheduler ...; start starts it again
load [--torch]           build the images from the working tree, import them on all nodes, print their names
run 1 crictl ps          run a command on a node (0: the control plane)
down                     end the cluster and remove all of it
build                    build the programs only
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from e2e.cluster import control_plane, programs, toolchain
from e2e.cluster.lab import Lab
from e2e.cluster.progress import announce

ON_A_NODE = ("add", "kill", "freeze", "thaw", "cut", "plug")


def main() -> None:
    """Run the command line."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()) / "gangctl-e2e")
    verbs = flags.add_subparsers(dest="verb", required=True, metavar="VERB")
    verbs.add_parser("up").add_argument("--nodes", type=int, default=2)
    for verb in ON_A_NODE:
        verbs.add_parser(verb).add_argument("node", type=int)
    for verb in ("stop", "start"):
        verbs.add_parser(verb).add_argument("program", choices=control_plane.PROGRAMS)
    verbs.add_parser("load").add_argument("--torch", action="store_true")
    run = verbs.add_parser("run")
    run.add_argument("node", type=int)
    run.add_argument("command", nargs=argparse.REMAINDER)
    for verb in ("down", "build"):
        verbs.add_parser(verb)
    try:
        _do(flags.parse_args())
    except (toolchain.Missing, RuntimeError, TimeoutError) as error:
        sys.exit(f"e2e: {error}")


def _do(options: argparse.Namespace) -> None:
    match options.verb:
        case "build":
            announce(str(programs.ready()))
        case "up":
            print(Lab.up(options.dir, options.nodes).kubeconfig)
        case "down":
            Lab(options.dir).down()
        case "load":
            _load(Lab(options.dir), torch=options.torch)
        case "stop":
            Lab(options.dir).control_plane.stop(options.program)
        case "start":
            Lab(options.dir).control_plane.start(options.program)
        case "run":
            lab = Lab(options.dir)
            machine = lab.node(options.node).machine if options.node else lab.control_plane.machine
            sys.exit(subprocess.run(machine.inside(*options.command), env=machine.env, check=False).returncode)
        case _:
            _node(Lab(options.dir), options.verb, options.node)


def _node(lab: Lab, verb: str, index: int) -> None:
    node = lab.node(index)
    match verb:
        case "add":
            lab.add_node(index)
            lab.wait_ready(index)
        case "kill":
            node.machine.kill()
        case "freeze":
            node.machine.freeze()
        case "thaw":
            node.machine.thaw()
        case "cut":
            node.cut_off()
        case _:
            node.plug_in()


def _load(lab: Lab, *, torch: bool) -> None:
    images = lab.images
    made = [images.controller(), images.sidecar(), images.examples(), *([images.examples_torch()] if torch else [])]
    lab.load(*made)
    for image in made:
        print(image.name)


if __name__ == "__main__":
    main()
