"""``gangctl inject``: inject a fault into a member or the controller, to test how the gang recovers."""

import argparse
import signal
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.cli.arguments import checked_member, exit_code, member_of_rank, namespaced_name, rank, signal_number
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.printers.output import print_out
from gangctl.cli.printers.text import clean
from gangctl.cli.targets import selection
from gangctl.cli.targets.port import DEFAULT_LEASE, InjectedFault
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.local.pod_record import PodProcess

_CONTROLLER: Final = "controller"
_EPILOG: Final = """\
examples:
  gangctl inject demo worker-1 --signal SIGKILL      kill the worker of one member
  gangctl inject demo worker-1 --exit-code 75        make it exit with 75, as if it had called exit()
  gangctl inject demo --rank 3 --signal BUS          only the process of rank 3, on whichever member
  gangctl inject demo worker-2 --hang                freeze it (SIGSTOP to its process tree)
  gangctl inject demo worker-2 --unhang              let it continue
  gangctl inject demo worker-1 --kill-sidecar        training continues; the sidecar is restarted
  gangctl inject demo worker-1 --kill-supervisor     the container restarts: an incident ContainerRestarted
  gangctl inject demo --kill-controller              training continues; another controller starts
  gangctl inject demo controller --hang              freeze the controller (only on this machine)

To lose a whole pod, use kubectl delete pod on a cluster, or a rule with level: Pod on this machine.

On a cluster, a small program runs in the member's container, with its own python3, 3.8 or newer. Permissions: get
gangjobs, list pods, get and create pods/exec; for --kill-controller get leases and delete pods in the controller's
namespace.
--exit-code, --kill-sidecar and --kill-supervisor use ptrace, which a node may forbid (kernel.yama.ptrace_scope above
0); the command then prints what it did instead, or what to do.

exit codes: 0 done, 2 bad input, no such process, or not permitted
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("name", metavar="NAME", help="name of the gang")
    parser.add_argument("member", metavar="MEMBER", nargs="?", help="a member such as worker-1, or controller")
    parser.add_argument(
        "--process",
        choices=[str(one) for one in PodProcess],
        default=str(PodProcess.WORKER),
        help="process of the member (default: worker)",
    )
    parser.add_argument("--rank", metavar="R", type=rank, help="only the worker process of this rank")
    fault = parser.add_mutually_exclusive_group(required=True)
    fault.add_argument("--signal", metavar="S", type=signal_number, help="send a signal: SIGKILL, KILL or 9")
    fault.add_argument("--exit-code", metavar="N", type=exit_code, help="make it exit with N (0 to 255)")
    fault.add_argument("--hang", action="store_true", help="freeze it with SIGSTOP")
    fault.add_argument("--unhang", action="store_true", help="let it continue with SIGCONT")
    fault.add_argument("--kill-sidecar", action="store_true", help="send SIGKILL to the member's sidecar")
    fault.add_argument("--kill-supervisor", action="store_true", help="send SIGKILL to the member's supervisor")
    fault.add_argument("--kill-controller", action="store_true", help="send SIGKILL to the controller")
    parser.add_argument(
        "--controller",
        metavar="NS/NAME",
        type=namespaced_name,
        default=DEFAULT_LEASE,
        help=f"Lease of the controller on a cluster, for --kill-controller (default: {DEFAULT_LEASE})",
    )
    selection.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Inject the fault and print what was done to which process."""
    member = arguments.member or (_CONTROLLER if arguments.kill_controller else None)
    with selection.open_target(arguments) as target:
        job = target.read(arguments.name)
        if arguments.kill_controller and member != _CONTROLLER:
            raise UserError(f"--kill-controller kills the controller, not {member}: leave out {member}")
        if member == _CONTROLLER:
            if arguments.kill_sidecar or arguments.kill_supervisor:
                raise UserError("the controller has neither a sidecar nor a supervisor: name a member")
            target.inject_controller(_fault(arguments), arguments.controller)
            return ExitCode.OK
        fault = _fault(arguments)
        if fault.rank is not None and fault.process is not PodProcess.WORKER:
            raise UserError(
                f"--rank selects a process of the worker; the {fault.process} has no rank: leave out --rank"
            )
        if member is None and fault.rank is not None:
            member = member_of_rank(job, fault.rank, None)
        if member is None:
            raise UserError("no member is named: name one, as in gangctl inject NAME worker-1 --signal SIGKILL")
        try:
            done = target.inject(job, checked_member(job, member), fault)
        except (ClusterError, UserError) as error:
            raise UserError(f"{error}{_why_no_pod(job)}") from None
        for text in done:
            print_out(clean(text))
        target.warn_without_controller()
    return ExitCode.OK


def _why_no_pod(job: GangJob) -> str:
    """Why a gang in this phase has no process to inject a fault into, and what to do; empty if it may have one."""
    name, phase = job.metadata.name, job.status.phase
    match phase:
        case GangPhase.SUSPENDED:
            return f"; the gang is {phase}, so it has no pods: gangctl resume {name} starts it again"
        case GangPhase.SUCCEEDED | GangPhase.FAILED:
            return f"; the gang has ended: it is {phase}"
        case GangPhase.HELD:
            return f"; the gang is {phase}, so no worker runs: gangctl restart {name} starts it again"
        case _:
            return ""


def _fault(arguments: argparse.Namespace) -> InjectedFault:
    process = PodProcess(arguments.process)
    if arguments.kill_sidecar or arguments.kill_supervisor:
        process = PodProcess.SIDECAR if arguments.kill_sidecar else PodProcess.SUPERVISOR
    if arguments.exit_code is not None:
        return InjectedFault(process=process, rank=arguments.rank, exit_code=arguments.exit_code)
    # Freezing a launcher while its child trains isn't a hang: freeze the whole tree.
    tree = process is PodProcess.WORKER and (arguments.hang or arguments.unhang)
    return InjectedFault(process=process, rank=arguments.rank, signal=_signal_of(arguments), tree=tree)


def _signal_of(arguments: argparse.Namespace) -> tuple[str, int]:
    if arguments.hang:
        return "SIGSTOP", signal.SIGSTOP
    if arguments.unhang:
        return "SIGCONT", signal.SIGCONT
    return arguments.signal or ("SIGKILL", signal.SIGKILL)
