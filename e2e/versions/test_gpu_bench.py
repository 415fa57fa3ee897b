"""bench/gpu.py with the newest PyTorch and without a GPU: on this machine, without a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from e2e.versions.test_versions import python

ROOT = Path(__file__).parents[2]


def test_each_way_to_restart_is_measured_by_phase() -> None:
    options = ["--device", "cpu", "--size", "tiny", "--restarts", "1", "--python", str(python("newest")), "-o", "json"]
    command = [sys.executable, "-m", "bench.gpu", *options]
    figures = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    assert {row["way"]: row["process"] for row in figures["rows"]} == {
        "first start, cold": "executed",
        "Exec": "executed",
        "Fork": "forked",
        "In process": "kept",
    }
    for row in figures["rows"]:
        *phases, total, _ = row["seconds"].values()
        assert min(phases) >= 0
        assert abs(sum(phases) - total) < 0.01
    assert figures["forks"][0]["error"] == ""
    assert [(one["name"], one["codes"]) for one in figures["checks"]] == [
        ("MatMul", [0]),
        ("DeviceCopy", [3]),
        ("AllReduce", [0, 0]),
    ]
    assert figures["memory"]["weights"] > figures["memory"]["context"]
