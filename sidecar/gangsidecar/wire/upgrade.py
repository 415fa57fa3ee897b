"""What both sides know of the WebSocket upgrade, and what a controller of an older release takes.

Controller and sidecar may be of different releases: a field that came later has a default and a revision, and the
sidecar leaves out what its controller doesn't know yet.
"""

from __future__ import annotations

from dataclasses import replace

from gangsidecar.wire.messages import Report

CONNECT_PATH = "/v1/connect"
"""Where a controller accepts sidecars."""
LEADER_HEADER = "Gang-Leader"
"""Header of a standby's refusal (503): the URL of the leader."""
REVISION = 2
"""2 of version 1: with ``Report.loaded`` and ``Progress.first_ms``."""
REVISION_HEADER = "Gang-Wire-Revision"
"""The controller's revision, in its answer to the upgrade. A controller that doesn't send it has revision 1."""


def in_revision(report: Report, revision: int) -> Report:
    """The same report without what a controller of that revision would refuse."""
    progress = report.progress
    if revision >= REVISION or (report.loaded is None and (progress is None or progress.first_ms is None)):
        return report
    return replace(report, loaded=None, progress=None if progress is None else replace(progress, first_ms=None))
