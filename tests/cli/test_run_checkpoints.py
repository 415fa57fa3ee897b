"""`gangctl run` and `gangctl restart` with checkpoints in a directory: which step each attempt is given."""

from __future__ import annotations

import os
import signal

import pytest

from tests.cli.here import Here, manifest
from tests.wait import until

SCRIPT = """
echo "${GANG_RESTORE_STEP:-0}" >> "$GANG_MEMBER.steps"
echo "$GANG_ATTEMPT" >> "$GANG_MEMBER.attempts"
exec sleep 1000000
"""
"""It writes down what it is to load."""
SAVES = """
echo "$GANG_ATTEMPT" >> "$GANG_MEMBER.attempts"
step=$((${GANG_RESTORE_STEP:-0} + 1))
if [ $step -le 3 ]; then mkdir -p "checkpoints/step-$step" && touch "checkpoints/step-$step/.metadata"; fi
exec sleep 1000000
"""
"""It reports no step and saves one in each attempt, up to the third."""


def save(folder: Here, *steps: int) -> None:
    """The framework has completed these steps."""
    for step in steps:
        saved = folder.path / "checkpoints" / f"step-{step}"
        saved.mkdir(parents=True)
        (saved / "complete").write_text("")


def restored(folder: Here) -> list[int]:
    """The step that each attempt was given; 0 for the beginning. It is the same for every member."""
    first, *others = [
        [int(line) for line in path.read_text().split()] for path in sorted(folder.path.glob("worker-*.steps"))
    ]
    assert others == [first]
    return first


def restart(folder: Here, attempt: int, *arguments: str) -> None:
    """Restart the gang, and wait until that attempt runs."""
    ended = folder.gangctl("restart", "g", *arguments)
    assert ended.returncode == 0, ended.stderr
    folder.runs_attempt(attempt, members=2)


def test_a_restart_is_from_the_newest_step_unless_this_one_asks_for_another(folder: Here) -> None:
    save(folder, 100)
    source = {
        "type": "Directory",
        "directory": str(folder.path / "checkpoints"),
        "layout": "Pattern",
        "pattern": "step-{step}",
        "complete": "complete",
    }
    tiers = [{"name": "disk", "scope": "Shared", "source": source}]
    folder.write(manifest(("sh", "-c", SCRIPT), replicas=2, checkpoint={"tiers": tiers}))
    folder.run()
    folder.runs_attempt(1, members=2)
    save(folder, 200)
    restart(folder, 2)
    restart(folder, 3, "--from-beginning")
    save(folder, 50)
    restart(folder, 4)
    restart(folder, 5, "--from-step", "200")
    save(folder, 250)
    folder.gangctl("inject", "g", "worker-1", "--exit-code", "9")
    folder.runs_attempt(6, members=2)
    assert restored(folder) == [100, 200, 0, 50, 200, 250]
    assert folder.job.spec.restart_from.step == 200, "the request stays in the spec"


@pytest.mark.nightly
def test_a_script_that_reports_no_step_restarts_at_once_as_long_as_it_saves(folder: Here) -> None:
    source = {"type": "Directory", "directory": str(folder.path / "checkpoints"), "layout": "TorchDCP"}
    tiers = [{"name": "disk", "scope": "Shared", "source": source}]
    folder.write(manifest(("sh", "-c", SAVES), replicas=1, checkpoint={"tiers": tiers}, recovery={"replaceAfter": 100}))
    run = folder.run()
    for attempt in (1, 2, 3, 4):
        folder.runs_attempt(attempt, members=1)
        saved = folder.path / f"checkpoints/step-{min(attempt, 3)}/.metadata"
        until(f"attempt {attempt} has saved", saved.exists)
        os.kill(folder.workers()["worker-0"].pid, signal.SIGKILL)
    folder.runs_attempt(5, members=1)
    status = folder.job.status
    assert [one.restored_step for one in status.incidents] == [3, 3, 2, 1]
    assert [one.back_off_time for one in status.incidents[1:]] == [None] * 3, "each attempt before had saved a step"
    assert status.restarts.without_step == 2, "the fourth attempt saved none"
    assert "made no step" not in run.said
