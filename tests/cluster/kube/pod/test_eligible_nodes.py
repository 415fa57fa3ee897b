from __future__ import annotations

from typing import Any

import pytest
import yaml

from gangctl.cluster.kube.pod_builder import EligibleNodes, may_land
from gangctl.core.facts.node_affinity import Taint
from gangctl.kubernetes.objects import Node
from tests.cluster.kube.pod.podcases import job

TAINT = Taint("dedicated", "old", "NoSchedule")


def node(name: str, *, able: bool, taints: tuple[Taint, ...] = (), **labels: str) -> Node:
    return Node(uid=f"uid-{name}", name=name, ready="True", restarts_all=able, labels=labels, taints=taints)


def terms(*expressions: str, field: str = "matchExpressions") -> str:
    found = ", ".join(f"{{{field}: [{one}]}}" for one in expressions)
    required = f"requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{found}]}}"
    return f"affinity: {{nodeAffinity: {{{required}}}}}"


@pytest.mark.parametrize(
    ("spec", "lands"),
    [
        ("{}", True),
        ("nodeName: a", True),
        ("nodeName: b", False),
        ("nodeSelector: {pool: gpu}", True),
        ("nodeSelector: {pool: gpu, zone: z2}", False),
        (terms("{key: pool, operator: In, values: [gpu, cpu]}"), True),
        (terms("{key: pool, operator: In, values: [cpu]}"), False),
        (terms("{key: pool, operator: In, values: [cpu]}", "{key: pool, operator: Exists}"), True),
        (terms("{key: pool, operator: Exists}, {key: zone, operator: DoesNotExist}"), False),
        (terms("{key: pool, operator: NotIn, values: [gpu]}"), False),
        (terms("{key: other, operator: NotIn, values: [gpu]}"), True),
        (terms("{key: size, operator: Gt, values: ['7']}"), True),
        (terms("{key: size, operator: Lt, values: ['7']}"), False),
        (terms("{key: pool, operator: Gt, values: ['7']}"), True),
        (terms("{key: pool, operator: Resembles, values: ['7']}"), True),
        (terms(""), False),
        (terms("{key: metadata.name, operator: In, values: [a]}", field="matchFields"), True),
        (terms("{key: metadata.name, operator: NotIn, values: [a]}", field="matchFields"), False),
        ("affinity: 7", True),
        ("nodeSelector: [pool]", True),
    ],
)
def test_a_pod_lands_where_its_spec_allows_it(spec: str, *, lands: bool) -> None:
    assert may_land(yaml.safe_load(spec), node("a", able=False, pool="gpu", zone="z1", size="8")) is lands


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"key": "dedicated", "value": "old"}, True),
        ({"key": "dedicated", "value": "old", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "value": "old", "effect": "NoExecute"}, False),
        ({"key": "dedicated", "value": "new"}, False),
        ({"key": "gpu", "operator": "Exists"}, False),
        ({"value": "old"}, False),
    ],
)
def test_a_pod_lands_on_a_tainted_node_that_it_tolerates(toleration: dict[str, str], *, tolerated: bool) -> None:
    assert may_land({"tolerations": [toleration]}, node("a", able=False, taints=(TAINT,))) is tolerated


def test_a_taint_that_keeps_no_pod_off_matters_to_none() -> None:
    assert may_land({}, node("a", able=False, taints=(Taint("slow", "", "PreferNoSchedule"),)))


ABLE, ODD, WINDOWS = node("a", able=True), node("b", able=False), node("w", able=False, taints=(TAINT,))


@pytest.mark.parametrize(
    ("spec", "nodes", "restart_all"),
    [
        ("{}", (), False),
        ("{}", (ABLE,), True),
        ("{nodeSelector: {pool: of-tomorrow}}", (ABLE,), True),
        ("{}", (ODD,), False),
        ("{}", (ABLE, ODD), False),
        ("{}", (ABLE, WINDOWS), True),
        ("{tolerations: [{operator: Exists}]}", (ABLE, WINDOWS), False),
        ("{nodeSelector: {pool: of-tomorrow}}", (ABLE, ODD), False),
        ("{nodeName: a}", (ABLE, ODD), True),
    ],
)
def test_one_odd_node_matters_only_to_pods_that_may_land_on_it(
    spec: str, nodes: tuple[Node, ...], *, restart_all: bool
) -> None:
    fields: dict[str, Any] = yaml.safe_load(spec)
    containers = [{"name": "m", "image": "i", "command": ["w"]}]
    made = job(yaml.safe_dump([{"name": "worker", "template": {"spec": {**fields, "containers": containers}}}]))
    eligible, role = EligibleNodes(), made.spec.roles[0]
    assert eligible.restart_all(made, role, nodes) is restart_all
    assert eligible.restart_all(made, role, nodes) is restart_all
    assert eligible.restart_all(made, role, (ABLE,)), "the nodes have changed"
    eligible.forget(made.metadata.uid)
