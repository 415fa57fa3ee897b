"""``gangctl resume``: resume a suspended gang."""

from __future__ import annotations

import argparse

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.cli import spec_patch


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.description = """\
Resume a suspended gang: new pods start a new attempt from the restore point, once the old pods are gone. The budget is
not charged."""
    parser.epilog = f"""\
example:
  gangctl resume demo --wait 60

{spec_patch.EXIT_CODES}"""
    spec_patch.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Set suspend to false."""

    def arrived(job: GangJob) -> bool:
        return not job.spec.suspend and job.status.phase is GangPhase.RUNNING

    return spec_patch.change(arguments, "resume is requested", {"suspend": False}, arrived)
