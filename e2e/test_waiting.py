"""A gang that waits says for whom, and why: what its sidecar can't do is in the status of the pod."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster import addresses
from e2e.gangs import Gang, sleepers

pytestmark = pytest.mark.nightly

NODE = 2
HUB = ("FORWARD", "-s", addresses.pods(NODE), "-p", "tcp", "--dport", "8443", "-j", "REJECT")
"""What a firewall of the node does to its pods' connections to the controller, which may be on the same node."""


def test_a_member_that_reaches_no_controller_is_named_with_the_reason(
    submit: Callable[[dict[str, Any]], Gang], lab: Any, shared_dir: Path
) -> None:
    node = lab.node(NODE)
    manifest = sleepers("parted", replicas=1, directory=str(shared_dir))
    far = {**deepcopy(manifest["spec"]["roles"][0]), "name": "far"}
    far["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node.name}
    near = manifest["spec"]["roles"][0]["template"]["spec"]
    near["nodeSelector"] = {"kubernetes.io/hostname": lab.node(1).name}
    manifest["spec"]["roles"].append(far)
    node.machine.net("iptables", "-I", *HUB)
    try:
        one = submit(manifest)
        message = one.until(
            "the status names the member and the reason",
            lambda status: status["message"] if "got no connection" in status.get("message", "") else None,
            30,
        )
        assert message.startswith("attempt 1 waits for far-0 to be ready; it got no connection to the controller until")
        assert "Cannot connect to host" in message
        sidecar = next(
            each for each in one.pods()["far-0"]["status"]["initContainerStatuses"] if each["name"] == "gangctl"
        )
        assert sidecar["restartCount"] <= 2, "what is to be said is said once"
    finally:
        node.machine.net("iptables", "-D", *HUB)
    one.runs(1)
