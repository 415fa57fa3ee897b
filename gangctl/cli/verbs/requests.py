"""``gangctl restart``, ``suspend``, ``resume``, ``stop`` and ``delete``: ask for something, and wait until it is so."""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.recovery import RestartFrom, SpecChanges
from gangctl.api.status import ENDED, GangPhase
from gangctl.cli.arguments import seconds, step
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.printers.output import print_err, print_out
from gangctl.cli.printers.text import clean
from gangctl.cli.targets import selection
from gangctl.cli.targets.port import Target

_CODES_OF_CHANGES: Final = """\
Permissions on a cluster: get and patch gangjobs; with --wait also list and watch{}.

exit codes: 0 done (with --wait: the gang reached the state), 1 it did not within --wait, 2 bad input or refused
"""
_CODES_OF_ENDS: Final = "exit codes: 0 done, 1 not within --wait (it goes on), 2 bad input or refused\n"


@dataclass(frozen=True, slots=True)
class _Change:
    """A verb that changes the spec of a gang."""

    description: str
    examples: str
    request: str
    """The request, in words for the user."""
    state: str
    """What --wait waits for, in words."""
    spec: SpecChanges
    arrived: Callable[[GangJob], bool]
    """Return whether the gang has reached the state."""
    missed: Callable[[GangJob], bool] = lambda job: job.status.phase in ENDED
    """Return whether it will not reach the state."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Describe the verb's arguments."""
        codes = _CODES_OF_CHANGES.format(", and list pods" if self.spec.get("suspend") else "")
        parser.description, parser.epilog = self.description, f"{self.examples}\n{codes}"
        parser.add_argument("name", metavar="NAME", help="name of the gang")
        parser.add_argument(
            "--wait",
            metavar="SECONDS",
            type=seconds,
            default=0.0,
            help=f"wait up to SECONDS until {self.state} (default: 0)",
        )
        selection.configure(parser)

    def run(self, arguments: argparse.Namespace) -> int:
        """Patch the spec; with --wait, wait until the gang has reached the state."""
        wait = arguments.wait
        with selection.open_target(arguments) as target:
            name = arguments.name
            before = target.read(name)
            if before.status.phase in ENDED:
                raise UserError(f"gang {name} has ended ({before.status.phase}); {target.rerun_hint(name)}")
            changed = target.change(name, self.spec)
            unchanged = changed.metadata.generation == before.metadata.generation
            print_out(f"{name}: {self.request} is requested{' (no change)' if unchanged else ''}")
            if changed.spec.suspend and "suspend" not in self.spec:
                print_out(f"{name}: it starts when the gang is resumed: gangctl resume {name}")
            target.warn_without_controller()
            if wait <= 0:
                return ExitCode.OK
            end = time.monotonic() + wait
            job = target.wait(name, lambda job: self.arrived(job) or self.missed(job), wait)
            done = self.arrived(job)
            if done and job.status.phase is GangPhase.SUSPENDED:  # The status says so before the pods have gone.
                done = target.stop(name, end - time.monotonic(), lambda _: None)
        if done:
            print_out(f"{name}: {job.status.phase}, attempt {job.status.attempt}: {clean(job.status.message)}")
            return ExitCode.OK
        waits = job.spec.suspend and "suspend" not in self.spec
        after = "" if self.missed(job) else f"after {wait:g} s "
        print_err(
            f"error: {after}gang {name} is {job.status.phase or 'New'}, attempt {job.status.attempt}: "
            f"{job.status.message or 'no message'}; "
            + (f"gangctl resume {name} starts it" if waits else f"for details, run gangctl status {name}")
        )
        return ExitCode.FAILED


class _Restart:
    """One new attempt on request."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Describe the verb's arguments."""
        where = parser.add_mutually_exclusive_group()
        where.add_argument(
            "--from-step",
            metavar="N",
            type=step,
            help="start from checkpoint step N; newer ones are not used any more (default: the newest that all ranks "
            "have)",
        )
        where.add_argument(
            "--from-beginning",
            action="store_true",
            help="start without a checkpoint; those that exist now are not used any more",
        )
        _RESTART.configure(parser)

    def run(self, arguments: argparse.Namespace) -> int:
        """Set a new restart token."""
        token = datetime.now(UTC).isoformat()
        spec: SpecChanges = {"restart_token": token}
        where = ""
        if arguments.from_beginning:
            spec["restart_from"] = RestartFrom(type="Beginning", restart_token=token)
            where = " from the beginning"
        elif arguments.from_step is not None:
            spec["restart_from"] = RestartFrom(type="Step", step=arguments.from_step, restart_token=token)
            where = f" from step {arguments.from_step}"

        def arrived(job: GangJob) -> bool:
            return job.status.observed_restart_token == token and _RESTART.arrived(job)

        def missed(job: GangJob) -> bool:
            is_held = job.status.phase is GangPhase.HELD and job.status.observed_restart_token == token
            return is_held or _RESTART.missed(job)

        request = f"a new attempt{where}"
        return replace(_RESTART, request=request, spec=spec, arrived=arrived, missed=missed).run(arguments)


_RESTART: Final = _Change(
    """\
Start a new attempt of a gang: every worker stops, with time for a last checkpoint, and restarts from the restore point
inside its pod. The budget is not charged. This also releases a gang that is held. It sets spec.restartToken, and
spec.restartFrom for this one restart.""",
    """\
examples:
  gangctl restart demo
  gangctl restart demo --wait 60
  gangctl restart demo --from-step 1200
  gangctl restart demo --from-beginning
""",
    "a new attempt",
    "the new attempt runs",
    {},
    lambda job: job.status.phase is GangPhase.RUNNING,
)


@dataclass(frozen=True, slots=True)
class _End:
    """A verb that ends the processes of a gang."""

    description: str
    examples: str
    default: str
    """The time that the verb waits without --wait, in words."""
    state: str
    end: Callable[[Target, str, float | None], bool]

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Describe the verb's arguments."""
        parser.description, parser.epilog = self.description, f"{self.examples}\n{_CODES_OF_ENDS}"
        parser.add_argument("name", metavar="NAME", help="name of the gang")
        help_of_wait = f"how long to wait for it (default: {self.default})"
        parser.add_argument("--wait", metavar="SECONDS", type=seconds, default=None, help=help_of_wait)
        selection.configure(parser)

    def run(self, arguments: argparse.Namespace) -> int:
        """End the processes, and say so if they are not ended in time."""
        with selection.open_target(arguments) as target:
            name = arguments.name
            if self.end(target, name, arguments.wait):
                return ExitCode.OK
        print_err(f"error: {name} is not {self.state} yet; it goes on: gangctl status {name} shows what is left")
        return ExitCode.FAILED


def print_done(text: str) -> None:
    """Print one line about what is done."""
    print_out(clean(text))


restart = _Restart()
suspend = _Change(
    """\
Suspend a gang: every worker stops, with recovery.plannedStopGracePeriodSeconds for a last checkpoint, and the pods are
deleted. Attempt, ledger and restore point are kept. The roles can be changed while the gang is suspended.""",
    """\
examples:
  gangctl suspend demo --wait 130
  gangctl resume demo
""",
    "suspension",
    "no pod is left",
    {"suspend": True},
    lambda job: job.status.phase is GangPhase.SUSPENDED,
)
resume = _Change(
    """\
Resume a suspended gang: new pods start a new attempt from the restore point, once the old pods are gone. The budget is
not charged.""",
    """\
example:
  gangctl resume demo --wait 60
""",
    "resume",
    "the gang runs",
    {"suspend": False},
    lambda job: not job.spec.suspend and job.status.phase is GangPhase.RUNNING,
)
stop = _End(
    """\
Stop a gang: end all its processes or pods, and wait until none is left. It does what gangctl suspend does, waits for it
and, on this machine, works without a controller (after gangctl run was killed). Workers have
recovery.plannedStopGracePeriodSeconds for a last checkpoint. The gang, its attempt and its restore point are kept.""",
    """\
examples:
  gangctl stop demo
  gangctl stop demo --wait 10           give up waiting after 10 s; the stop goes on
  gangctl resume demo                   continue; on this machine without a controller, also gangctl run FILE
  gangctl delete demo                   stop it, and remove it

On this machine, without a controller, Ctrl-C kills at once what is left, and after --wait only another gangctl stop
sends SIGKILL. Permissions on a cluster: get and patch gangjobs, list pods.
""",
    "the grace period, and half a minute",
    "stopped",
    lambda target, name, seconds: target.stop(name, seconds, print_done),
)
delete = _End(
    """\
Delete a gang. On this machine: stop it as gangctl stop does, then remove it with its logs, also without a controller.
On a cluster: delete the GangJob as kubectl delete does; its pods are deleted with it. Checkpoints are never touched.
""",
    """\
examples:
  gangctl delete demo
  gangctl delete demo -n research

Nothing is asked: use gangctl stop to keep the gang. Permissions on a cluster: get and delete gangjobs.
""",
    "the grace period and half a minute; on a cluster 60 s",
    "deleted",
    lambda target, name, seconds: target.delete(name, seconds, print_done),
)
