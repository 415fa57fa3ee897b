"""``gangctl inject``: faults on purpose, to see what the gang does before it happens by itself."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from typing import Final

from gangctl.cli import gangs
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.output import say
from gangctl.cli.signals import exit_code, signal_number
from gangctl.cluster.errors import ClusterError, Terminal
from gangctl.cluster.local import process
from gangctl.cluster.local.inject import Target, controller_pid, pod_of, processes
from gangctl.cluster.local.layout import StateDirectory
from gangctl.cluster.local.process import Process
from gangctl.cluster.local.ptrace import exit_with
from gangctl.cluster.local.record import PodRecord

_CONTROLLER: Final = "controller"
_EPILOG: Final = """\
examples:
  gangctl inject demo worker-1 --signal SIGKILL      the worker of one member is killed
  gangctl inject demo worker-1 --exit-code 75        it exits with 75, as if it had called exit() itself
  gangctl inject demo worker-0 --rank 3 --signal BUS the process of rank 3 alone
  gangctl inject demo worker-2 --hang                it stops and says nothing (SIGSTOP to its whole tree)
  gangctl inject demo worker-2 --unhang              and goes on
  gangctl inject demo worker-1 --kill-sidecar        training goes on; the sidecar comes back by itself
  gangctl inject demo worker-1 --kill-supervisor     the container "restarts": one incident, ContainerRestarted
  gangctl inject demo --kill-controller              training goes on; gangctl run starts it again
  gangctl inject demo controller --hang              a controller that is there and doesn't answer

To lose a whole pod, kill its supervisor again and again, or take a rule with level: Pod.

exit codes: 0 done, 2 bad input or nothing there to be harmed
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("name", metavar="NAME", help="name of the gang")
    parser.add_argument("target", metavar="TARGET", nargs="?", help="a member such as worker-1, or controller")
    parser.add_argument(
        "--process",
        choices=[str(one) for one in Target],
        default=str(Target.WORKER),
        help="which process of the member (default: worker)",
    )
    parser.add_argument("--rank", metavar="R", type=int, help="only the worker's process of this rank")
    fault = parser.add_mutually_exclusive_group(required=True)
    fault.add_argument("--signal", metavar="S", type=signal_number, help="send a signal: SIGKILL, KILL or 9")
    fault.add_argument("--exit-code", metavar="N", type=exit_code, help="make it exit with N (0 to 255)")
    fault.add_argument("--hang", action="store_true", help="SIGSTOP: it is there and does nothing")
    fault.add_argument("--unhang", action="store_true", help="SIGCONT: let it go on")
    fault.add_argument("--kill-sidecar", action="store_true", help="SIGKILL to the member's sidecar")
    fault.add_argument("--kill-supervisor", action="store_true", help="SIGKILL to the member's supervisor")
    fault.add_argument("--kill-controller", action="store_true", help="SIGKILL to the controller")
    gangs.add_state_dir(parser)


def run(arguments: argparse.Namespace) -> int:
    """Do the harm, and say what was done to which process."""
    state = gangs.state_directory(arguments)
    store = gangs.find(state, arguments.name)
    target = _CONTROLLER if arguments.kill_controller and arguments.target is None else arguments.target
    if target is None:
        raise UserError("whom? name a member, as in: gangctl inject NAME worker-1 --signal SIGKILL")
    if arguments.kill_controller and target != _CONTROLLER:
        raise UserError(f"--kill-controller is done to the controller, not to {target}: leave {target} out")
    try:
        if target == _CONTROLLER:
            _harm_controller(state, arguments)
        else:
            pod = pod_of(store.folder, target)
            for text in _harm(pod, arguments):
                say(text)
    except ClusterError as error:
        raise UserError(str(error)) from None
    except PermissionError as error:
        raise UserError(f"a process of {target} can't be signalled: {error.strerror}") from None
    return ExitCode.OK


def _harm_controller(state: StateDirectory, arguments: argparse.Namespace) -> None:
    if arguments.exit_code is not None or arguments.kill_sidecar or arguments.kill_supervisor:
        raise UserError("the controller can only be signalled: --kill-controller, --hang, --unhang, --signal")
    found = process.process_of(controller_pid(state))
    name, number = _signal_of(arguments)
    if found is None or not process.send(found, number):
        raise UserError(f"no controller runs for {state.path}")
    say(f"controller: sent {name} to process {found.pid}")


def _harm(pod: PodRecord, arguments: argparse.Namespace) -> list[str]:
    kind = Target(arguments.process)
    if arguments.kill_sidecar or arguments.kill_supervisor:
        kind = Target.SIDECAR if arguments.kill_sidecar else Target.SUPERVISOR
    found = _chosen(pod, kind, arguments.rank)
    who = f"{pod.member} (pod {pod.name}): {kind}"
    if arguments.exit_code is not None:
        for one in found:
            exit_with(one.pid, arguments.exit_code)
        return [f"{who} process {one.pid} exits with {arguments.exit_code}" for one in found]
    name, number = _signal_of(arguments)
    if kind is Target.WORKER and (arguments.hang or arguments.unhang):
        # A launcher that sleeps while its child trains would be no hang.
        found = tuple(dict.fromkeys(each for one in found for each in (one, *process.descendants(one))))
    sent = [one for one in found if process.send(one, number)]
    if not sent:
        raise Terminal(f"{who}: every process was gone before {name} could be sent")
    return [f"{who} process {one.pid} was sent {name}" for one in sent]


def _chosen(pod: PodRecord, kind: Target, rank: int | None) -> tuple[Process, ...]:
    found = processes(pod, kind)
    if not found:
        raise Terminal(f"no {kind} process runs in pod {pod.name} now; gangctl status shows what the gang does")
    if rank is None:
        return found
    if kind is not Target.WORKER:
        raise UserError(f"--rank chooses a process of the worker; the {kind} has none")
    ranks = {one: _rank(one) for one in found}
    wanted = tuple(one for one, its in ranks.items() if its == rank)
    if not wanted:
        known = ", ".join(str(its) for its in sorted(its for its in ranks.values() if its is not None))
        raise UserError(f"no process of {pod.member} has rank {rank}; it has {known or 'no ranks'}")
    return wanted


def _rank(one: Process) -> int | None:
    try:
        entries = Path(f"/proc/{one.pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    value = next((entry.removeprefix(b"RANK=") for entry in entries if entry.startswith(b"RANK=")), b"")
    return int(value) if value.isdigit() else None


def _signal_of(arguments: argparse.Namespace) -> tuple[str, int]:
    if arguments.hang:
        return "SIGSTOP", signal.SIGSTOP
    if arguments.unhang:
        return "SIGCONT", signal.SIGCONT
    return arguments.signal or ("SIGKILL", signal.SIGKILL)


def _exit_code(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 255):  # noqa: PLR2004 - wait(2)
        raise argparse.ArgumentTypeError(f"{text!r} instead of a number from 0 to 255")
    return int(text)
