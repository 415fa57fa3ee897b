"""There is one list of an incident's phases: no other file of the product names most of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import get_args

from pydantic.alias_generators import to_snake

from gangctl.api.incident import PhaseMilliseconds, What
from gangctl.story.phases import LOOKS, OF_FIRST_STEP, PHASES, Activity
from gangsidecar.wire import Milestone

ROOT = Path(__file__).parents[2]
MOST = 3
"""Phases that a file may name as texts."""
NAMING = {"gangctl/story/phases.py", "gangctl/core/record/timings.py", "gangctl/api/incident.py"}
"""The list; the file that measures each phase; and the status, whose names are compared with the list below."""
NAMES = {name for phase in PHASES for name in (phase, phase.replace("_", "-"), phase.replace("_", " "))}


def test_no_other_file_lists_the_phases() -> None:
    listed = subprocess.run(["git", "ls-files", "gangctl"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = {}
    for path in listed.split():
        if path.endswith((".py", ".js", ".css")) and path not in NAMING and (ROOT / path).exists():
            text = (ROOT / path).read_text(encoding="utf-8").lower()
            quoted = set(re.findall(r"[\"'.`]([a-z][a-z _-]+)[\"' {`]", text))
            found[path] = sorted(quoted & NAMES)
    assert {path: names for path, names in found.items() if len(names) > MOST} == {}


def test_every_activity_has_a_look_and_every_stored_duration_a_phase() -> None:
    assert set(LOOKS) == set(Activity)
    assert [Activity(name) for name in PhaseMilliseconds.model_fields] == [
        phase for phase in PHASES if phase not in {Activity.EVIDENCE, *OF_FIRST_STEP}
    ]


def test_the_status_and_the_supervisor_have_the_names_of_the_list() -> None:
    of_gang_alone = {Activity.DETECT, Activity.BACK_OFF, Activity.BARRIER, Activity.EVIDENCE, Activity.CHECK}
    assert [to_snake(name) for name in get_args(What)] == [one for one in PHASES if one not in of_gang_alone]
    assert [to_snake(one) for one in Milestone] == list(OF_FIRST_STEP)
