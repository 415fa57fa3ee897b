"""``gangctl suspend``: no pods; attempt and restore point stay."""

from __future__ import annotations

import argparse

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.cli import spec_patch


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.description = """\
Suspend a gang: every worker stops with recovery.plannedStopGracePeriodSeconds for a last checkpoint, and the pods are
deleted. Attempt, ledger and restore point stay. Roles can be changed while it is suspended."""
    parser.epilog = f"""\
examples:
  gangctl suspend demo --wait 130
  gangctl resume demo

{spec_patch.EXIT_CODES}"""
    spec_patch.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Set suspend."""

    def arrived(job: GangJob) -> bool:
        return job.status.phase is GangPhase.SUSPENDED

    return spec_patch.change(arguments, "it is to be suspended", {"suspend": True}, arrived)
