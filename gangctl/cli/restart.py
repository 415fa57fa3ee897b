"""``gangctl restart``: one new attempt on request."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.cli import spec_patch


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.description = """\
Start a new attempt of a gang: every worker stops, with time for a last checkpoint, and restarts from the restore point
inside its pod. The budget is not charged. This also releases a gang that is held. It sets spec.restartToken."""
    parser.epilog = f"""\
examples:
  gangctl restart demo
  gangctl restart demo --wait 60

{spec_patch.EXIT_CODES}"""
    spec_patch.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Set a new restart token."""
    token = datetime.now(UTC).isoformat()

    def arrived(job: GangJob) -> bool:
        return job.status.observed_restart_token == token and job.status.phase is GangPhase.RUNNING

    return spec_patch.change(arguments, "a new attempt is requested", {"restart_token": token}, arrived)
