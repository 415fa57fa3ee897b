"""There is one list of an incident's phases: no other file of the product names most of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from gangctl.api.incident import PhaseMilliseconds
from gangctl.story.phases import LOOKS, PHASES, Activity

ROOT = Path(__file__).parents[2]
MOST = 3
"""Phases that a file may name as texts."""
MEASURING = "gangctl/core/record/timings.py"
"""The file that measures each phase has its name."""
NAMES = {name for phase in PHASES for name in (phase, phase.replace("_", "-"), phase.replace("_", " "))}


def test_no_other_file_lists_the_phases() -> None:
    listed = subprocess.run(["git", "ls-files", "gangctl"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = {}
    for path in listed.split():
        if (
            path.endswith((".py", ".js", ".css"))
            and path not in {"gangctl/story/phases.py", MEASURING}
            and (ROOT / path).exists()
        ):
            text = (ROOT / path).read_text(encoding="utf-8").lower()
            quoted = set(re.findall(r"[\"'.`]([a-z][a-z _-]+)[\"' {`]", text))
            found[path] = sorted(quoted & NAMES)
    assert {path: names for path, names in found.items() if len(names) > MOST} == {}


def test_every_activity_has_a_look_and_every_stored_duration_a_phase() -> None:
    assert set(LOOKS) == set(Activity)
    assert [Activity(name) for name in PhaseMilliseconds.model_fields] == [
        phase for phase in PHASES if phase not in {Activity.EVIDENCE, Activity.CHECKPOINT_LOAD}
    ]
