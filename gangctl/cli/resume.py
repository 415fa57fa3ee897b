"""``gangctl resume``: a suspended gang goes on."""

from __future__ import annotations

import argparse

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.cli import spec_patch


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.description = """\
Let a suspended gang go on: new pods, a new attempt from the restore point, not charged. It waits until the old pods
are gone."""
    parser.epilog = f"""\
example:
  gangctl resume demo --wait 60

{spec_patch.EXIT_CODES}"""
    spec_patch.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Take suspend back."""

    def arrived(job: GangJob) -> bool:
        return not job.spec.suspend and job.status.phase is GangPhase.RUNNING

    return spec_patch.change(arguments, "it is to go on", {"suspend": False}, arrived)
