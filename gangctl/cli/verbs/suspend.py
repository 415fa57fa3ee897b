"""``gangctl suspend``: delete the pods; attempt and restore point are kept."""

from __future__ import annotations

import argparse

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.cli import spec_patch


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.description = """\
Suspend a gang: every worker stops, with recovery.plannedStopGracePeriodSeconds for a last checkpoint, and the pods are
deleted. Attempt, ledger and restore point are kept. The roles can be changed while the gang is suspended."""
    parser.epilog = f"""\
examples:
  gangctl suspend demo --wait 130
  gangctl resume demo

{spec_patch.EXIT_CODES}"""
    spec_patch.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Set suspend to true."""

    def arrived(job: GangJob) -> bool:
        return job.status.phase is GangPhase.SUSPENDED

    return spec_patch.change(arguments, "suspension is requested", {"suspend": True}, arrived)
