"""A worker that hangs in a fork is executed the next time."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

from gangsidecar.wire import Progress
from tests.sidecar.supervisor import patient
from tests.sidecar.supervisor.conftest import built
from tests.sidecar.supervisor.supervised import EXECUTABLE, wait_for
from tests.sidecar.supervisor.test_handover import started
from tests.sidecar.supervisor.warm import is_gone

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sidecar.supervisor.warm import Warm

pytestmark = [
    pytest.mark.usefixtures("greeting"),
    pytest.mark.skipif(bool(EXECUTABLE), reason="its limits can't be changed, and are a minute"),
]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a supervisor that waits three seconds for a fork's first step, and a while for that of an executed worker."""
    limits: dict[str, dict[str, object]] = {"fork_trust.py": {"LEAST_MS": 3_000, "FACTOR": 1}}
    return built(partial(patient.build, of_files={**patient.LIMITS, **limits}), tmp_path_factory.mktemp("late"))


@pytest.mark.parametrize("is_below_a_shell", [False, True])
def test_a_worker_whose_fork_makes_no_first_step_is_executed_in_the_next_attempt(
    warm: Warm, *, is_below_a_shell: bool
) -> None:
    command = [sys.executable, str(warm.script)]
    warm.start(*(["bash", "-c", '"$@"; exit $?', "bash", *command] if is_below_a_shell else command))
    next_attempt(warm, forked=0, executed=1)
    template = warm.steps()
    next_attempt(warm, forked=1, executed=0)
    warm.member.sidecar.until(lambda report: report.warm_start is not None and report.warm_start.late_after_seconds)
    for _ in range(2):
        next_attempt(warm, forked=0, executed=1)
        assert warm.told.obstacle.startswith("a fork made no first step within ")
        warm.member.sidecar.send(Progress(warm.attempt, 1, 0, first_step=1))
    wait_for(partial(is_gone, template))


def next_attempt(warm: Warm, **numbers: int) -> None:
    """Run it until its script has begun, and so many processes have started in this way."""
    warm.run()
    assert warm.report()[0] == "hello"
    started(warm, **numbers)


def test_a_worker_that_reports_a_step_is_not_late(warm: Warm) -> None:
    warm.start(sys.executable, str(warm.script))
    next_attempt(warm, executed=1)
    warm.steps()
    for _ in range(2):
        warm.run()
        warm.member.sidecar.send(Progress(warm.attempt, 1, 0, first_step=1))
        assert warm.report()[0] == "hello"
        assert (warm.told.forked, warm.told.late_after_seconds) == (1, 0)
