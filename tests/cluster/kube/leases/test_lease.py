from __future__ import annotations

import json
from typing import Any

import pytest

from gangctl.cluster.errors import Retryable
from gangctl.cluster.kube.election import ADDRESS_ANNOTATION, lease_object, parse_lease


def test_a_write_keeps_foreign_fields_and_counts_new_holders_only() -> None:
    stored: dict[str, Any] = {
        "metadata": {"name": "gangctl", "resourceVersion": "7", "labels": {"team": "ml"}, "annotations": {"note": "x"}},
        "spec": {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "leaseTransitions": 3,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "strategy": "OldestEmulationVersion",
        },
    }
    over = parse_lease(json.dumps(stored).encode())
    same = lease_object(over, "a", 15, "wss://a", 1e9)
    assert same["metadata"]["labels"] == {"team": "ml"}
    assert same["metadata"]["annotations"] == {"note": "x", ADDRESS_ANNOTATION: "wss://a"}
    assert same["metadata"]["resourceVersion"] == "7", "it locks the write"
    assert same["spec"] == {
        **stored["spec"],
        "renewTime": "2001-09-09T01:46:40.000000Z",
    }
    other = lease_object(over, "b", 15, "wss://b", 1e9)["spec"]
    assert (other["leaseTransitions"], other["acquireTime"]) == (4, "2001-09-09T01:46:40.000000Z")
    assert lease_object(over, "", 1, "", 1e9)["spec"]["leaseTransitions"] == 3


def test_an_answer_that_is_no_lease_can_be_retried() -> None:
    for answer in (b"<html>a proxy's page</html>", b"[]", b"{}", b'{"metadata": null}'):
        with pytest.raises(Retryable, match="isn't a Lease"):
            parse_lease(answer)
