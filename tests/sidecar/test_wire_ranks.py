"""The rank that is behind, on the wire."""

from __future__ import annotations

from dataclasses import replace

from gangsidecar import wire

REPORT = wire.Report("u", "worker-0", 0, "p", "s", 1, 1, wire.Phase.RUNNING, progress=wire.Progress(1, 9, 100))
PROGRESS = wire.Progress(1, 9, 100, behind=wire.RankBehind(3, 5, 2_000, "Step", 77))
FOUND = replace(REPORT, progress=PROGRESS)


def test_its_age_grows() -> None:
    progress = wire.aged(FOUND, 500).progress
    assert progress is not None
    assert progress.behind == wire.RankBehind(3, 5, 2_500, "Step", 77)
