"""The chart gives the controller exactly the rights that it uses."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.chart import NAMESPACE, Helm, Object, Rendered, helm_program
from e2e.rights import granted

EVERYWHERE = ""

GANGS = {
    "gangctl.io/gangjobs": "get list watch delete",
    "gangctl.io/gangjobs/status": "update",
    "gangctl.io/gangjobs/finalizers": "update",
    "/pods": "get list watch create delete",
    "/pods/log": "get",
    "/pods/status": "patch",
    "events.k8s.io/events": "create patch",
    "policy/poddisruptionbudgets": "get create patch",
    "scheduling.k8s.io/podgroups": "get create deletecollection",
}
CLUSTER = {
    "/nodes": "list watch",
    "authentication.k8s.io/tokenreviews": "create",
    "authorization.k8s.io/subjectaccessreviews": "create",
    "/openid/v1/jwks": "get",
    "/.well-known/openid-configuration": "get",
}
KUEUE = {"kueue.x-k8s.io/workloads": "get list watch create delete", "kueue.x-k8s.io/workloads/status": "patch"}
KUEUE_CLUSTER = {
    "kueue.x-k8s.io/resourceflavors": "list watch",
    "kueue.x-k8s.io/workloadpriorityclasses": "get",
    "scheduling.k8s.io/priorityclasses": "get",
}
NODE_EVENTS = {"events.k8s.io/events": "create patch"}
"""The API server takes Events about what is in no namespace in ``default``."""
OWN = {
    "coordination.k8s.io/leases": "create",
    "coordination.k8s.io/leases gangctl": "get update",
    "/secrets": "create",
    "/secrets gangctl-tls": "get update",
    "/services gangctl": "get",
}


@pytest.fixture(scope="module")
def helm() -> Helm:
    return Helm(helm_program())


def test_the_controller_has_exactly_these_rights(helm: Helm) -> None:
    assert _rights(helm.rendered()) == {EVERYWHERE: _listed(GANGS | CLUSTER), NAMESPACE: _listed(OWN)}


def test_the_controller_has_rights_on_kueues_objects_only_if_it_is_to_use_them(helm: Helm) -> None:
    rights = _rights(helm.rendered({"kueue": {"enabled": True}, "watchNamespaces": ["research"]}))
    assert rights == {
        EVERYWHERE: _listed(CLUSTER | KUEUE_CLUSTER),
        "research": _listed(GANGS | KUEUE),
        "default": _listed(NODE_EVENTS),
        NAMESPACE: _listed(OWN),
    }


def test_the_controller_may_evict_pods_only_with_the_device_guard(helm: Helm) -> None:
    rights = _rights(helm.rendered({"deviceGuard": {"enabled": True}, "watchNamespaces": ["inference"]}))
    assert rights == {
        EVERYWHERE: _listed(CLUSTER),
        "inference": _listed(GANGS | {"/pods/eviction": "create"}),
        "default": _listed(NODE_EVENTS),
        NAMESPACE: _listed(OWN),
    }


def test_the_controller_may_write_one_config_map_only_with_node_records(helm: Helm) -> None:
    rights = _rights(helm.rendered({"nodeRecords": {"enabled": True}}))
    more = {"/configmaps": "create", "/configmaps gangctl-node-records": "get update"}
    assert rights == {EVERYWHERE: _listed(GANGS | CLUSTER), NAMESPACE: _listed(OWN | more)}


def test_the_controller_may_tell_of_suspected_nodes_only_if_it_is_to(helm: Helm) -> None:
    told = {"condition": True, "maintenanceRequests": True}
    assert _rights(helm.rendered({"nodeRecords": told}))[EVERYWHERE] == _listed(GANGS | CLUSTER), "there are no records"
    rights = _rights(helm.rendered({"nodeRecords": {"enabled": True, **told}}))[EVERYWHERE]
    more = {"/nodes/status": "patch", "nvsentinel.dgxc.nvidia.com/maintenancerequests": "list create delete"}
    assert rights == _listed(GANGS | CLUSTER | more)


def test_the_controller_may_read_claims_and_taints_only_if_it_is_to(helm: Helm) -> None:
    rights = _rights(helm.rendered({"deviceTaints": {"enabled": True}, "watchNamespaces": ["research"]}))
    more = {"resource.k8s.io/resourceslices": "list watch", "resource.k8s.io/devicetaintrules": "list watch"}
    assert rights[EVERYWHERE] == _listed(CLUSTER | more)
    assert rights["research"] == _listed(GANGS | {"resource.k8s.io/resourceclaims": "list watch"})


def test_the_controller_may_read_logs_only_if_it_is_to_tell_what_workers_printed(helm: Helm) -> None:
    rights = _rights(helm.rendered({"workerOutput": {"enabled": False}}))
    assert rights[EVERYWHERE] == _listed(GANGS | CLUSTER) - {"/pods/log get"}


def test_the_controller_reviews_the_access_of_scrapers_and_viewers_only_if_it_asks_for_a_token(helm: Helm) -> None:
    assert _rights(helm.rendered({"metrics": {"secure": False}}))[EVERYWHERE] == _listed(GANGS | CLUSTER), "viewers"
    rights = _rights(helm.rendered({"metrics": {"secure": False}, "page": {"enabled": False}}))
    assert rights[EVERYWHERE] == _listed(GANGS | CLUSTER) - {"authorization.k8s.io/subjectaccessreviews create"}


def test_with_watched_namespaces_the_controller_may_write_nothing_elsewhere_but_events_on_nodes(helm: Helm) -> None:
    assert _rights(helm.rendered({"watchNamespaces": ["research", "training"]})) == {
        EVERYWHERE: _listed(CLUSTER),
        "research": _listed(GANGS),
        "training": _listed(GANGS),
        "default": _listed(NODE_EVENTS),
        NAMESPACE: _listed(OWN),
    }


def test_the_controller_may_only_read_a_secret_that_a_user_fills(helm: Helm) -> None:
    rights = _rights(helm.rendered({"hub": {"tls": {"secretName": "hub"}}}))
    assert {one for one in rights[NAMESPACE] if one.startswith("/secrets")} == {"/secrets hub get"}
    assert rights[NAMESPACE] - {"/secrets hub get"} < _listed(OWN)


def test_with_its_own_namespace_watched_the_controller_has_two_separate_roles(helm: Helm) -> None:
    assert _rights(helm.rendered({"watchNamespaces": [NAMESPACE]})) == {
        EVERYWHERE: _listed(CLUSTER),
        "default": _listed(NODE_EVENTS),
        NAMESPACE: _listed(GANGS) | _listed(OWN),
    }


def test_a_controller_that_watches_the_namespace_of_such_events_has_one_role_there(helm: Helm) -> None:
    rights = _rights(helm.rendered({"watchNamespaces": ["default"]}))
    assert rights == {EVERYWHERE: _listed(CLUSTER), "default": _listed(GANGS), NAMESPACE: _listed(OWN)}


@pytest.mark.parametrize("watched", [[], ["research", "training"], [NAMESPACE]])
def test_no_right_leads_to_more_rights(helm: Helm, watched: list[str]) -> None:
    rendered = helm.rendered({"watchNamespaces": watched})
    for role in (*rendered.all("ClusterRole"), *rendered.all("Role")):
        for rule in role["rules"]:
            assert not [value for values in rule.values() for value in values if "*" in value]
            assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])
            assert not {"pods/exec", "pods/attach", "pods/ephemeralcontainers", "serviceaccounts/token"} & _resources(
                rule
            )
            assert "secrets" not in _resources(rule) or role["kind"] == "Role"
            assert not ("secrets" in _resources(rule) and {"list", "watch"} & set(rule["verbs"]))
            assert not ("pods" in _resources(rule) and {"patch", "update"} & set(rule["verbs"]))


def test_roles_for_users_aggregate_to_the_cluster_s_own_roles(helm: Helm) -> None:
    rendered = helm.rendered()
    people = {one["metadata"]["name"]: one for one in rendered.all("ClusterRole") if ":" not in one["metadata"]["name"]}
    assert {name: _aggregated(one) for name, one in people.items()} == {
        "gangctl-editor": {"admin", "edit"},
        "gangctl-viewer": {"view"},
        "gangctl-explainer": set(),
        "gangctl-metrics-reader": set(),
        "gangctl-page-reader": set(),
    }
    rights = {name: {right for rule in one["rules"] for right in granted(rule)} for name, one in people.items()}
    assert rights["gangctl-metrics-reader"] == {"/metrics get"}
    assert rights["gangctl-explainer"] == _listed(
        {
            "gangctl.io/gangjobs": "get list",
            "/nodes": "list",
            "/pods": "list",
            "/events": "list",
            "/persistentvolumeclaims": "get",
            "/persistentvolumes": "get",
            "storage.k8s.io/storageclasses": "get",
            "resource.k8s.io/resourceslices": "list",
            "resource.k8s.io/devicetaintrules": "list",
        }
    )
    assert rights["gangctl-page-reader"] == {"/ui get"}
    assert rights["gangctl-viewer"] == _listed(
        {"gangctl.io/gangjobs": "get list watch", "gangctl.io/gangjobs/status": "get list watch"}
    )
    assert rights["gangctl-editor"] == _listed(
        {
            "gangctl.io/gangjobs": "get list watch create update patch delete deletecollection",
            "gangctl.io/gangjobs/status": "get list watch",
        }
    )


def test_the_chart_creates_no_rights_when_they_come_from_elsewhere(helm: Helm) -> None:
    rendered = helm.rendered({"rbac": {"create": False}, "serviceAccount": {"create": False, "name": "theirs"}})
    kinds = {one["kind"] for one in rendered.objects}
    assert not kinds & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ServiceAccount"}
    assert rendered.pod["spec"]["serviceAccountName"] == "theirs"
    one_a_cluster = helm.rendered({"rbac": {"aggregatedRoles": False}})
    assert [one["metadata"]["name"] for one in one_a_cluster.all("ClusterRole")] == [f"gangctl:{NAMESPACE}"]


def test_only_the_controller_gets_a_token(helm: Helm) -> None:
    rendered = helm.rendered()
    assert rendered.one("ServiceAccount")["automountServiceAccountToken"] is False
    assert rendered.pod["spec"]["automountServiceAccountToken"] is True


def _rights(rendered: Rendered) -> dict[str, set[str]]:
    """Namespace, or everywhere -> the rights of the controller's service account by its bindings."""
    account = rendered.pod["spec"]["serviceAccountName"]
    rights: dict[str, set[str]] = {}
    for binding in (*rendered.all("ClusterRoleBinding"), *rendered.all("RoleBinding")):
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]
        namespace = binding["metadata"].get("namespace", EVERYWHERE)
        (role,) = (
            one
            for one in rendered.all(binding["roleRef"]["kind"])
            if one["metadata"]["name"] == binding["roleRef"]["name"]
            and one["metadata"].get("namespace", EVERYWHERE) == namespace
        )
        rights.setdefault(namespace, set()).update(right for rule in role["rules"] for right in granted(rule))
    return rights


def _listed(rights: dict[str, str]) -> set[str]:
    return {f"{what} {verb}" for what, verbs in rights.items() for verb in verbs.split()}


def _resources(rule: Object) -> set[Any]:
    return set(rule.get("resources", []))


def _aggregated(role: Object) -> set[str]:
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    return {key.removeprefix(prefix) for key, value in role["metadata"]["labels"].items() if key.startswith(prefix)}
