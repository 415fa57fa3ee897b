"""`gangctl run` with start Fork: the first worker of a spare that is promoted and of a new pod is a fork, too."""

from __future__ import annotations

import sys

import pytest

from tests.cli.here import Here, manifest
from tests.wait import until

LOST = 77
SCRIPT = """
import decimal, os, time
import gangclient
gang = gangclient.connect()
open(os.environ["GANG_MEMBER"] + "-" + os.environ["GANG_ATTEMPT"], "w").close()
for step in range(1, 1_000_000):
    gang.progress(step)
    time.sleep(0.1)
"""


@pytest.mark.parametrize("spares", [0, 1], ids=["a new pod", "a spare"])
def test_the_first_worker_of_a_member_that_takes_over_is_forked(folder: Here, spares: int) -> None:
    rule = {"action": "Ignore", "level": "Pod", "onExitCodes": {"operator": "In", "values": [LOST]}}
    (folder.path / "train.py").write_text(SCRIPT)
    document = manifest((sys.executable, "train.py"), replicas=2, podFailurePolicy={"rules": [rule]})
    document["spec"]["roles"][0] |= {"spares": spares, "start": {"type": "Fork"}}
    folder.write(document)
    folder.run()
    until("each member that may run, and each spare, has a template", lambda: templates(folder) == 2 + spares)

    # Which of the three run at first is a matter of who was ready.
    names = [f"worker-{number}" for number in range(2 + spares)]
    *_, lost = running = [name for name in names if (folder.path / f"{name}-1").exists()]
    takes_over = next((name for name in names if name not in running), lost)
    folder.gangctl("inject", "g", lost, "--exit-code", str(LOST))
    until(f"{takes_over} trains", (folder.path / f"{takes_over}-2").exists)
    until("the incident says how all were started", lambda: started(folder) == (2, 0, ""))


def templates(here: Here) -> int:
    """How many supervisors have a template that is ready."""
    logs = here.path.glob(".gangctl/gangs/g/**/supervisor.log")
    return sum("the template is ready" in log.read_text() for log in logs)


def started(here: Here) -> tuple[int, int, str] | None:
    incidents = here.job.status.incidents
    warm = incidents[0].warm_start if incidents else None
    return None if warm is None else (warm.forked, warm.executed, warm.obstacle)
