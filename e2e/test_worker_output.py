"""The worker's own words on a cluster: from its log and its termination message, told in conditions and Events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.api_proxy import ApiProxy
from e2e.controllers import LocalControllers
from e2e.gangs import Gang, Kubectl, gang
from tests.wait import until

pytestmark = pytest.mark.nightly

Submit = Callable[[dict[str, Any]], Gang]
ERROR = "RuntimeError: no dataset at /data"
WROTE = "mount the dataset"
FAILS = f"""
import os, time
if os.environ["RANK"] == "1":
    open("/dev/termination-log", "w").write("{WROTE}")
    raise RuntimeError("no dataset at /data")
time.sleep(1e6)
"""


def failing(name: str, directory: Path, *, restarts: int) -> dict[str, Any]:
    """A gang whose worker-1 raises an error."""
    container = {"name": "main", "image": "gangctl/examples:e2e", "command": ["python3", "-c", FAILS]}
    budget = {"maxRestarts": restarts}
    return gang(name, container, replicas=2, directory=str(directory), recovery={"budget": budget, "replaceAfter": 100})


def test_the_sentence_of_a_worker_that_fails_is_in_the_condition_and_in_events(
    submit: Submit, shared_dir: Path, kubectl: Kubectl, namespace: str
) -> None:
    failed = submit(failing("words", shared_dir, restarts=1)).ends("Failed")
    quoted = f'worker-1 (rank 1): exit code 1: {WROTE}, printed "{ERROR}"'
    assert [quoted in one["message"] for one in failed["conditions"] if one["type"] == "Failed"] == [True]
    last = failed["incidents"][0]
    assert (last["cause"]["printed"], last["output"]["member"]) == (ERROR, "worker-1")
    assert last["output"]["text"].splitlines()[0] == "Traceback (most recent call last):"

    def quoting() -> set[str]:
        found = json.loads(kubectl("get", "events.events.k8s.io", "-n", namespace, "-o", "json"))["items"]
        return {one["reason"] for one in found if quoted in one["note"]}

    until("the end is told", lambda: "BudgetExhausted" in quoting())
    until("the restart is told", lambda: quoting() & {"Restarted", "WorkerOutput"})


async def test_nothing_is_read_or_told_where_that_is_off(
    local_controllers: LocalControllers, api_proxy: ApiProxy, submit: Submit, shared_dir: Path
) -> None:
    await local_controllers.start("silent", api_proxy.url, GANGCTL_WORKER_OUTPUT="false")
    one = await asyncio.to_thread(submit, failing("silent", shared_dir, restarts=0))
    status = await asyncio.to_thread(one.ends, "Failed")
    assert status["message"].startswith(f"worker-1 (rank 1): exit code 1: {WROTE}; the budget is used up")
    assert [(one["cause"]["printed"], one.get("output")) for one in status["incidents"]] == [("", None)]
    assert [call.path for call in api_proxy.calls if call.path.endswith("/log")] == []
