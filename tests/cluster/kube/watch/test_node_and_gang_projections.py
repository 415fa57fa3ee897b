from __future__ import annotations

import json

import pytest

from gangctl.cluster.kube.projections import GANGS
from tests.cluster.kube.objects import NODES, UID, gang, node


@pytest.mark.parametrize(
    ("ready", "taints", "lost"),
    [
        ("True", [], False),
        ("False", [{"key": "node.kubernetes.io/not-ready"}], False),
        ("Unknown", [{"key": "node.kubernetes.io/unreachable"}], True),
        ("True", [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}], True),
    ],
)
def test_a_node_is_lost_when_its_kubelet_is_silent_or_it_is_out_of_service(
    ready: str, taints: list[dict[str, str]], *, lost: bool
) -> None:
    found = NODES.item(json.dumps(node(ready=ready, spec={"taints": taints})).encode())
    assert found is not None
    assert found.is_lost is lost


def test_a_node_is_read_with_its_features_and_whether_it_is_schedulable() -> None:
    plain = NODES.item(json.dumps(node()).encode())
    able = NODES.item(json.dumps(node(declaredFeatures=["RestartAllContainersOnContainerExits", "X"])).encode())
    cordoned = NODES.item(json.dumps(node(spec={"unschedulable": True})).encode())
    assert plain is not None
    assert able is not None
    assert cordoned is not None
    assert (plain.restarts_all, able.restarts_all) == (False, True)
    assert (plain.is_schedulable, cordoned.is_schedulable) == (True, False)


def test_a_gang_is_read_with_its_status() -> None:
    found = GANGS.item(json.dumps(gang(status={"phase": "Running", "attempt": 3})).encode())
    assert found is not None
    assert found.job is not None
    assert (found.job.status.attempt, found.unreadable) == (3, "")


def test_an_unreadable_gang_has_a_name_and_a_reason() -> None:
    found = GANGS.item(json.dumps(gang(status={"phase": "Dancing", "invention": 3})).encode())
    assert found is not None
    assert (found.uid, found.name, found.job) == (UID, "g", None)
    assert found.unreadable.startswith("status.phase: Input should be")


@pytest.mark.parametrize("managed", [True, False])
@pytest.mark.parametrize("depth", [100, 250, 900, 1100, 9000])
def test_a_template_that_is_nested_too_deeply_blocks_no_other_gang(depth: int, *, managed: bool) -> None:
    """A user may write it: the CRD keeps what a template has, whatever it is. So do the managed fields."""
    nested = "[" * depth + "]" * depth
    deep = json.dumps(gang("deep", "uid-deep")).replace('"i"', '"i", "x": ["]", "\\""], "y": ' + nested)
    if managed:
        deep = deep.replace('"name": "deep"', f'"managedFields": [{nested}], "name": "deep"')
    head = '{"metadata": {"resourceVersion": "7", "continue": "c"}, "items": ['
    page = f"{head}{deep}, {json.dumps(gang())}]}}"
    one, event = GANGS.item(deep.encode()), GANGS.event(b'{"type": "ADDED", "object": ' + deep.encode() + b"}")
    listed = GANGS.page(page.encode())
    assert [found.uid for found in listed.items] == ["uid-deep", UID]
    assert (listed.resource_version, listed.continue_token) == ("7", "c")
    assert one == event.item == listed.items[0]
    assert one is not None
    assert (one.name, one.job is None) == ("deep", depth > 200)
    assert one.unreadable == ("spec.roles is nested deeper than 200 levels" if depth > 200 else "")
    gone = GANGS.event(b'{"type": "DELETED", "object": ' + deep.encode() + b"}")
    assert (gone.gone_uid, gone.item) == ("uid-deep", None)
