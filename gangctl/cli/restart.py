"""``gangctl restart``: one new attempt, because somebody asks for it."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.cli import spec_patch


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.description = """\
Start a new attempt of a gang: every worker stops (with time for a last checkpoint) and starts again from the restore
point, inside the pods that are there. It isn't charged to the budget. It is also the way on for a gang that is held.
It sets spec.restartToken to a new value."""
    parser.epilog = f"""\
examples:
  gangctl restart demo
  gangctl restart demo --wait 60

{spec_patch.EXIT_CODES}"""
    spec_patch.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Change the restart token."""
    token = datetime.now(UTC).isoformat()

    def arrived(job: GangJob) -> bool:
        return job.status.observed_restart_token == token and job.status.phase is GangPhase.RUNNING

    return spec_patch.change(arguments, "a new attempt is asked for", {"restart_token": token}, arrived)
