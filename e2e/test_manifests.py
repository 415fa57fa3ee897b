"""The API for users: a wrong manifest is refused with its field, or explained by a condition, and kubectl works."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.pod_fields import fields_table
from e2e.gangs import Gang, sleepers
from gangctl.api import pod_fields
from gangctl.api.pod_fields import release
from tests.api.bad_manifest import Bad, Check
from tests.api.cases import BAD, GOOD

Submit = Callable[[dict[str, Any]], Gang]
pytestmark = pytest.mark.usefixtures("gangctl_installed")
SEEN = [bad for bad in BAD if bad.found_by is not Check.GANGCTL]


def dry_run(kubectl: Any, manifest: dict[str, Any]) -> str:
    """The API server's error for a manifest, in a dry run; empty if it accepts it."""
    try:
        kubectl("create", "-n", "default", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(manifest))
    except Exception as error:  # noqa: BLE001 - however the fixture reports that kubectl failed
        return str(error)
    return ""


@pytest.mark.parametrize("bad", SEEN, ids=lambda bad: bad.name.replace(" ", "-"))
def test_the_api_server_refuses_a_wrong_manifest_and_names_the_field(kubectl: Any, bad: Bad) -> None:
    error = dry_run(kubectl, bad.manifest)
    assert error, "it was accepted"
    field = re.sub(r"\[\w+\]", "", bad.path).split(".")[-1]
    assert field in error
    assert bad.cel in error


@pytest.mark.parametrize("name", GOOD, ids=lambda name: name.replace(" ", "-"))
def test_the_api_server_accepts_a_good_manifest(kubectl: Any, name: str) -> None:
    assert dry_run(kubectl, GOOD[name]) == ""


def test_the_fields_of_templates_are_those_of_the_api_server(kubectl: Any) -> None:
    version = json.loads(kubectl("version", "-o", "json"))["serverVersion"]
    if f"{version['major']}.{version['minor']}" != release():
        pytest.skip(f"the table is of Kubernetes {release()}")
    table = fields_table(json.loads(kubectl("get", "--raw", "/openapi/v3/api/v1")), release())
    assert Path(pod_fields.__file__).with_name("pod_fields.json").read_text("utf-8") == table, "make pod-fields"


@pytest.mark.nightly
def test_a_condition_explains_in_the_api_servers_words_what_the_schema_cannot_check(
    submit: Submit, shared_dir: Path
) -> None:
    document = sleepers("typo", replicas=2, directory=str(shared_dir))
    container = document["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"nvidia.com/gpu": "a few"}}
    gang = submit(document)

    def refused(status: dict[str, Any]) -> str | None:
        found = {one["type"]: one for one in status.get("conditions", [])}
        accepted = found.get("Accepted", {})
        return str(accepted["message"]) if accepted.get("status") == "False" else None

    message = gang.until("it isn't accepted", refused)
    assert "quantities must match" in message
    assert gang.pods() == {}
    # The message names this way out.
    gang.patch(suspend=True)
    gang.until("it is suspended", lambda status: status.get("phase") == "Suspended")
    container["resources"] = {}
    gang.apply(document | {"spec": document["spec"] | {"suspend": True}})
    gang.patch(suspend=False)
    gang.until("it runs", lambda status: status.get("phase") == "Running", 120)


@pytest.mark.nightly
def test_roles_change_only_while_suspended(submit: Submit, shared_dir: Path) -> None:
    document = sleepers("fixed", replicas=2, directory=str(shared_dir))
    gang = submit(document)
    gang.runs(1)
    document["spec"]["roles"][0]["replicas"] = 3
    with pytest.raises(Exception, match="suspend"):
        gang.apply(document)
    gang.patch(suspend=True)
    gang.until("its pods are gone", lambda status: status["phase"] == "Suspended" and not gang.pods())
    gang.apply(document | {"spec": document["spec"] | {"suspend": True}})
    gang.patch(suspend=False)
    gang.until("it runs with three", lambda status: (status.get("phase"), status.get("ready")) == ("Running", "3/3"))


@pytest.mark.nightly
def test_a_gang_without_a_node_is_pending_and_not_at_fault(submit: Submit, shared_dir: Path) -> None:
    document = sleepers("queued", replicas=2, directory=str(shared_dir), recovery={"podStartTimeoutSeconds": 5})
    document["spec"]["roles"][0]["template"]["spec"]["nodeSelector"] = {"no": "such-node"}
    gang = submit(document)
    message = gang.until(
        "its message has the reason",
        lambda status: status["message"] if "node" in status.get("message", "") else None,
        60,
    )
    status = gang.status
    assert (status["phase"], status["attempt"]) == ("Pending", 1)
    assert status.get("incidents", []) == []
    assert message


@pytest.mark.nightly
def test_kubectl_explains_lists_and_waits(submit: Submit, shared_dir: Path) -> None:
    document = sleepers("brief", replicas=2, directory=str(shared_dir))
    document["spec"]["roles"][0]["template"]["spec"]["containers"][0]["command"] = ["true"]
    gang = submit(document)
    gang.kubectl("wait", "--for=condition=Succeeded", "gj/brief", "-n", gang.namespace, "--timeout=90s")
    gang.kubectl("wait", "--for=condition=Finished", "gj/brief", "-n", gang.namespace, "--timeout=1s")
    listed = gang.kubectl("get", "gj", "-n", gang.namespace).splitlines()
    assert listed[0].split() == ["NAME", "PHASE", "READY", "ATTEMPT", "RESTARTS", "STEP", "AGE"]
    assert listed[1].split()[:2] == ["brief", "Succeeded"]
    wide = gang.kubectl("get", "gj", "-n", gang.namespace, "-o", "wide").splitlines()[0]
    assert "REASON" in wide
    assert "SIGKILL" in gang.kubectl("explain", "gj.spec.recovery.stopGracePeriodSeconds")
    events = json.loads(gang.kubectl("get", "events", "-n", gang.namespace, "-o", "json"))["items"]
    assert any(event["involvedObject"]["kind"] == "GangJob" for event in events)
