"""Upgrade and rollback: of the controller while gangs run, and of the CRD, in both directions.

An older controller reads what a newer release has stored without the fields that it doesn't know. A status that it must
not write says so, and the gang is left alone until a release reads it again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e import installation, process_faults
from e2e.clusters import Cluster
from e2e.gangs import Gang, Kubectl, has_stepped, sleepers
from e2e.installation import CHART, NAMESPACE, RELEASE, Installed
from gangctl.api.status import REVISION
from tests.wait import until

Submit = Callable[[dict[str, Any]], Gang]
CRD = "crd/gangjobs.gangctl.io"
NEW = "fromTheFuture"
MEMBERS = 6


@pytest.fixture
def newer_crd(kubectl: Kubectl, gangctl_installed: Installed) -> Iterator[None]:  # noqa: ARG001 - it brings the CRD
    """The CRD of a newer release, with one more field in the spec and in the status."""
    old = json.loads(kubectl("get", CRD, "-o", "json"))
    new = deepcopy(old)
    for part in ("spec", "status"):
        schema = new["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part]
        schema["properties"][NEW] = {"type": "string"}
    replace(kubectl, new)
    yield
    replace(kubectl, old)


def replace(kubectl: Kubectl, crd: dict[str, Any]) -> None:
    """Replace the CRD, and wait until the API server serves it."""
    crd["metadata"].pop("resourceVersion", None)
    kubectl("replace", "-f", "-", stdin=json.dumps(crd))
    wanted = NEW in json.dumps(crd)

    def is_served() -> bool:
        return (NEW in kubectl("explain", "gangjobs.spec")) is wanted

    until("the API server serves this CRD", is_served)


def patch_status(gang: Gang, **fields: Any) -> None:
    """Write the status as a newer controller would."""
    words = ("patch", "gj", gang.name, "-n", gang.namespace, "--subresource=status", "--type=merge")
    gang.kubectl(*words, "-p", json.dumps({"status": fields}))


def test_a_controller_is_upgraded_and_rolled_back_while_gangs_train(
    cluster: Cluster, submit: Submit, gangctl_installed: Installed, shared_dir: Path
) -> None:
    gang = submit(sleepers("upgraded", replicas=MEMBERS, directory=str(shared_dir), steps=True))
    gang.runs(1)
    starts, uids = gang.container_starts(), gang.uids()
    words = ("--namespace", gangctl_installed.namespace, "--wait", "--timeout=120s")
    upgraded = ("upgrade", RELEASE, str(CHART), "--reset-then-reuse-values", "--set", "logLevel=debug", *words)
    for name, change in (("upgrade", upgraded), ("rollback", ("rollback", RELEASE, *words))):
        began = time.monotonic()
        installation.helm(cluster, *change)
        rolled = time.monotonic() - began
        attempt: int = gang.status["attempt"]
        until("it has stepped", partial(has_stepped, shared_dir, attempt))
        process_faults.kill(process_faults.worker(uids[f"worker-{attempt}"]))
        gang.runs(attempt + 1)
        done = time.monotonic() - began
        print(f"{name}: all replicas are new after {rolled:.1f} s, and a fault then is mended after {done:.1f} s")
        assert (gang.container_starts(), gang.uids()) == (starts, uids), "no container and no pod was replaced"
    assert gang.status["attempt"] == 3, "the two faults, and nothing else"


@pytest.mark.nightly
@pytest.mark.usefixtures("newer_crd")
def test_what_a_newer_release_has_stored_is_read_without_what_is_new(submit: Submit, shared_dir: Path) -> None:
    document = sleepers("newer", replicas=2, directory=str(shared_dir), steps=True)
    document["spec"][NEW] = "yes"
    gang = submit(document)
    gang.runs(1)
    uids = gang.uids()
    until("it has stepped", lambda: has_stepped(shared_dir, 1))
    patch_status(gang, **{NEW: "told"})
    process_faults.kill(process_faults.worker(uids["worker-1"]))
    gang.runs(2)
    assert gang.uids() == uids
    assert gang.read()["spec"][NEW] == "yes", "only the status is written"
    assert NEW not in gang.status, "no release keeps what it doesn't maintain"
    logs = gang.kubectl("logs", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=controller", "--tail=-1")
    assert f"spec.{NEW}" in logs


@pytest.mark.nightly
def test_a_gang_that_an_older_controller_must_not_write_is_left_alone_until_one_can_read_it(
    submit: Submit, kubectl: Kubectl, shared_dir: Path
) -> None:
    gang = submit(sleepers("unreadable", replicas=2, directory=str(shared_dir), steps=True))
    gang.runs(1)
    uids, starts = gang.uids(), gang.container_starts()
    until("it has stepped", lambda: has_stepped(shared_dir, 1))
    patch_status(gang, readableFrom=REVISION + 1)
    words = ("events", "--for", f"gangjob/{gang.name}", "-n", gang.namespace)
    until("an Event says so", lambda: "Unreadable" in kubectl(*words))
    process_faults.kill(process_faults.worker(uids["worker-1"]))
    until("the supervisor waits for a directive", lambda: not process_faults.workers(uids["worker-1"]))
    assert (gang.status["attempt"], gang.container_starts()) == (1, starts)
    patch_status(gang, readableFrom=REVISION)
    gang.runs(2)
    assert (gang.uids(), gang.container_starts()) == (uids, starts)
