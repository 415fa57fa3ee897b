"""``gangctl restart``: one new attempt on request."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from gangctl.api.changes import SpecChanges
from gangctl.api.gangjob import GangJob
from gangctl.api.restart import RestartFrom
from gangctl.api.status import GangPhase
from gangctl.cli import argument_types, spec_patch


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.description = """\
Start a new attempt of a gang: every worker stops, with time for a last checkpoint, and restarts from the restore point
inside its pod. The budget is not charged. This also releases a gang that is held. It sets spec.restartToken, and
spec.restartFrom for this one restart."""
    parser.epilog = f"""\
examples:
  gangctl restart demo
  gangctl restart demo --wait 60
  gangctl restart demo --from-step 1200
  gangctl restart demo --from-beginning

{spec_patch.EXIT_CODES}"""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--from-step",
        metavar="N",
        type=argument_types.step,
        help="start from checkpoint step N; newer ones are not used any more (default: the newest that all ranks have)",
    )
    where.add_argument(
        "--from-beginning",
        action="store_true",
        help="start without a checkpoint; those that exist now are not used any more",
    )
    spec_patch.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Set a new restart token."""
    token = datetime.now(UTC).isoformat()

    def arrived(job: GangJob) -> bool:
        return job.status.observed_restart_token == token and job.status.phase is GangPhase.RUNNING

    spec: SpecChanges = {"restart_token": token}
    where = ""
    if arguments.from_beginning:
        spec["restart_from"] = RestartFrom(type="Beginning", restart_token=token)
        where = " from the beginning"
    elif arguments.from_step is not None:
        spec["restart_from"] = RestartFrom(type="Step", step=arguments.from_step, restart_token=token)
        where = f" from step {arguments.from_step}"
    return spec_patch.change(arguments, f"a new attempt{where} is requested", spec, arrived)
