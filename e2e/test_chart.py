"""The rendered chart is correct. The tests need Helm, but no cluster."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
import yaml

from e2e.chart import CHART, FULL, NAMESPACE, REGISTRY, RELAYED, REPOSITORY, Helm, Object, Rendered, helm_program
from gangctl.api.manifest import load_gangjob
from gangctl.api.names import GROUP

SETS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "full": FULL,
    "one replica": {"replicaCount": 1},
    "two namespaces": {"watchNamespaces": ["research", "training"], "networkPolicy": {"enabled": True}},
    "another name": {"fullnameOverride": "restarter"},
    "another part of the name": {"nameOverride": "restarter"},
    "rights from elsewhere": {"rbac": {"create": False}, "serviceAccount": {"create": False, "name": "theirs"}},
    "a subchart": {"global": {"imageRegistry": "mirror.example:5000/team/", "another": True}},
    "relays": RELAYED,
    "no budget": {"podDisruptionBudget": {"enabled": False}},
}
CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "FlowSchema"}


@pytest.fixture(scope="module")
def helm() -> Helm:
    return Helm(helm_program())


@pytest.fixture(params=list(SETS.values()), ids=list(SETS))
def rendered(helm: Helm, request: pytest.FixtureRequest) -> Rendered:
    return helm.rendered(request.param)


def test_helm_lint_accepts_the_chart(helm: Helm) -> None:
    for values in SETS.values():
        result = helm.run("lint", "--strict", CHART, values=values)
        assert result.code == 0, result.out + result.err


def test_every_object_has_its_labels_and_is_rendered_once(rendered: Rendered) -> None:
    names = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in rendered.objects]
    assert len(names) == len(set(names))
    for one in rendered.objects:
        assert ("namespace" in one["metadata"]) == (one["kind"] not in CLUSTER_WIDE), one["metadata"]["name"]
        labels = one["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/instance"] == "gangctl"
        assert all(isinstance(value, str) and len(value) <= 63 for value in labels.values())


def test_every_selector_selects_the_controllers_pods(rendered: Rendered) -> None:
    labels = rendered.pod["metadata"]["labels"]
    selectors = [
        rendered.one("Deployment")["spec"]["selector"]["matchLabels"],
        *(one["spec"]["selector"] for one in rendered.all("Service")),
    ]
    selectors += [one["spec"]["selector"]["matchLabels"] for one in rendered.all("PodDisruptionBudget")]
    selectors += [one["spec"]["podSelector"]["matchLabels"] for one in rendered.all("NetworkPolicy")]
    anti = rendered.pod["spec"]["affinity"].get("podAntiAffinity")
    if anti:
        (term,) = anti["preferredDuringSchedulingIgnoredDuringExecution"]
        selectors.append(term["podAffinityTerm"]["labelSelector"]["matchLabels"])
    for selector in selectors:
        assert selector.items() <= labels.items()
        assert len(selector) == 3


def test_the_controller_conforms_to_the_restricted_pod_security_standard(rendered: Rendered) -> None:
    # https://kubernetes.io/docs/concepts/security/pod-security-standards/
    spec, controller = rendered.pod["spec"], rendered.controller
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec)
    own = [one for one in spec["volumes"] if one not in FULL["extraVolumes"]]
    relays = "GANGCTL_RELAY_TOKEN" in {one["name"] for one in controller["env"]}
    assert [set(volume) - {"name"} for volume in own] == [{"emptyDir"}, *([{"projected"}] if relays else [])]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(spec["securityContext"])  # OpenShift assigns them
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert controller["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounts = [one for one in controller["volumeMounts"] if one not in FULL["extraVolumeMounts"]]
    token = ["/var/run/secrets/gangctl.io/relay"] if relays else []
    assert [mount["mountPath"] for mount in mounts] == ["/tmp", *token]


def test_ports_and_probes_agree(rendered: Rendered) -> None:
    ports = {port["name"]: port["containerPort"] for port in rendered.controller["ports"]}
    assert f"--hub-port={ports['hub']}" in rendered.controller["args"]
    assert f"--health-port={ports['health']}" in rendered.controller["args"]
    assert f"--metrics-port={ports['metrics']}" in rendered.controller["args"]
    assert f"--page-port={ports['page']}" in rendered.controller["args"]
    assert len(set(ports.values())) == 4
    services = {port["name"]: port for one in rendered.all("Service") for port in one["spec"]["ports"]}
    for name, port in services.items():
        assert (port["port"], port["targetPort"]) == (ports[name], name)
    assert f":{services['hub']['port']}/" in rendered.environment["GANGCTL_URL"]
    probes = {name: rendered.controller[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert probes["liveness"] == probes["startup"] == {"path": "/healthz", "port": "health"}
    assert probes["readiness"] == {"path": "/readyz", "port": "health"}


def test_the_controller_gets_all_its_settings(helm: Helm) -> None:
    rendered = helm.rendered()
    environment = rendered.environment
    assert json.loads(environment.pop("GANGCTL_SIDECAR_RESOURCES")) == {
        "requests": {"cpu": "20m", "memory": "48Mi"},
        "limits": {"memory": "128Mi"},
    }
    assert environment == {
        "POD_NAMESPACE": "metadata.namespace",
        "POD_NAME": "metadata.name",
        "POD_IP": "status.podIP",
        "GANGCTL_NAME": "gangctl",
        "GANGCTL_WATCH_NAMESPACES": "",
        "GANGCTL_SELECTOR": "",
        "GANGCTL_URL": "wss://gangctl.gangctl-system.svc:8443/v1/connect",
        "GANGCTL_AUDIENCE": "gangctl.io",
        "GANGCTL_SIDECAR_IMAGE": f"{REGISTRY}/gangctl/sidecar:{_version()}",
        "GANGCTL_SIDECAR_IMAGE_PULL_POLICY": "IfNotPresent",
        "GANGCTL_SIDECAR_SECURITY_CONTEXT": "{}",
        "GANGCTL_SIDECAR_PULL_SECRETS": "",
        "GANGCTL_TLS_SECRET": "",
        "GANGCTL_NODE_SIGNALS": "[]",
        "GANGCTL_KUEUE": "false",
        "GANGCTL_WORKER_OUTPUT": "true",
        "GANGCTL_DEVICE_GUARD": "false",
        "GANGCTL_DEVICE_TAINTS": "false",
        "GANGCTL_JOBSETS": "false",
        "GANGCTL_NODE_RECORDS": "false",
        "GANGCTL_NODE_CONDITION": "false",
        "GANGCTL_MAINTENANCE_REQUESTS": "false",
    }
    assert rendered.controller["image"] == f"{REGISTRY}/gangctl/controller:{_version()}"
    assert rendered.controller["args"] == [
        "--hub-port=8443",
        "--health-port=8080",
        "--metrics-port=8444",
        "--metrics-secure=true",
        "--page=true",
        "--page-port=8445",
        "--log-format=json",
        "--log-level=info",
        "--lease-duration=15",
        "--renew-deadline=10",
        "--retry-period=2",
    ]
    assert rendered.one("Deployment")["spec"]["replicas"] == 2


@pytest.mark.parametrize(
    ("registry", "repository", "image"),
    [
        ("mirror.example", "gangctl/controller", "mirror.example/gangctl/controller"),
        ("mirror.example:5000/team/", "gangctl/controller", "mirror.example:5000/team/gangctl/controller"),
        ("mirror.example", "another.example/x/controller", "another.example/x/controller"),
        ("", "another.example/x/controller", "another.example/x/controller"),
        ("", "localhost/controller", "localhost/controller"),
        ("", "registry:5000/controller", "registry:5000/controller"),
    ],
)
def test_an_image_comes_from_the_registry_that_its_repository_names_else_from_the_global_one(
    helm: Helm, registry: str, repository: str, image: str
) -> None:
    own = {"repository": repository}
    rendered = helm.rendered(
        {"global": {"imageRegistry": registry}, "image": own, "sidecar": {"image": {"repository": "r.example/s"}}}
    )
    assert rendered.controller["image"] == f"{image}:{_version()}"
    assert rendered.environment["GANGCTL_SIDECAR_IMAGE"] == f"r.example/s:{_version()}"


@pytest.mark.parametrize("repository", ["gangctl/controller", "controller", "gangctl.io"])
def test_the_chart_fails_without_a_registry_and_says_what_to_set(helm: Helm, repository: str) -> None:
    nowhere = {"global": {"imageRegistry": ""}}
    qualified = {"repository": "r.example/gangctl/x"}
    for value, values in (
        ("image", {"image": {"repository": repository}, "sidecar": {"image": qualified}}),
        ("sidecar.image", {"image": qualified, "sidecar": {"image": {"repository": repository}}}),
    ):
        result = helm.template(nowhere | values)
        assert result.code != 0
        assert f'{value}.repository "{repository}" names no registry' in result.err
        assert "Set global.imageRegistry" in result.err


def test_the_controller_has_every_flag_that_the_chart_sets(helm: Helm) -> None:
    command = [sys.executable, "-m", "gangctl.controller.kube", "--help"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY).stdout
    flags = {argument.partition("=")[0] for argument in helm.rendered().controller["args"]}
    assert flags <= set(re.findall(r"--[a-z-]+", printed))


@pytest.mark.parametrize(
    ("release", "values", "name"),
    [
        ("gangctl", {}, "gangctl"),
        ("blue", {}, "blue-gangctl"),
        ("my-gangctl", {}, "my-gangctl"),
        ("v1.2", {}, "v1-2-gangctl"),
        ("gangctl", {"fullnameOverride": "restarter"}, "restarter"),
        ("blue", {"nameOverride": "restarter"}, "blue-restarter"),
        ("a" * 53, {}, "a" * 52),
    ],
)
def test_service_lease_secret_and_certificate_have_the_same_name(
    helm: Helm, release: str, values: dict[str, Any], name: str
) -> None:
    rendered = helm.rendered(values, release)
    assert rendered.one("Deployment")["metadata"]["name"] == name
    assert rendered.one("Service")["metadata"]["name"] == name
    assert rendered.environment["GANGCTL_NAME"] == name
    assert rendered.environment["GANGCTL_URL"] == f"wss://{name}.{NAMESPACE}.svc:8443/v1/connect"
    named = {rule["resources"][0]: rule["resourceNames"] for rule in _own_rules(rendered) if "resourceNames" in rule}
    assert named == {"leases": [name], "secrets": [f"{name}-tls"], "services": [name]}


def test_the_chart_refuses_a_name_that_no_service_can_have_and_names_the_way_out(helm: Helm) -> None:
    result = helm.template(release="2nd")
    assert result.code != 0
    assert "fullnameOverride" in result.err


def test_more_than_one_replica_gets_a_disruption_budget(helm: Helm) -> None:
    assert helm.rendered().one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    for values in ({"replicaCount": 1}, {"replicaCount": 0}, {"podDisruptionBudget": {"enabled": False}}):
        assert not helm.rendered(values).all("PodDisruptionBudget"), values


def test_the_network_policy_lets_only_pods_of_gangs_reach_the_hub(helm: Helm) -> None:
    assert not helm.rendered().all("NetworkPolicy")
    for values, namespaces in (
        (SETS["full"], []),
        (
            SETS["two namespaces"],
            [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["research", "training"]}],
        ),
    ):
        hub, health, metrics, *page = helm.rendered(values).one("NetworkPolicy")["spec"]["ingress"]
        admitted = values["networkPolicy"].get("pageFrom")
        port = {"port": "page", "protocol": "TCP"}
        assert page == ([{"ports": [port], "from": admitted}] if admitted else []), "gangctl ui forwards a port"
        peer, *more = hub["from"]
        assert more == values["networkPolicy"].get("hubFrom", [])
        assert metrics.get("from", []) == values["networkPolicy"].get("metricsFrom", [])
        assert peer["namespaceSelector"].get("matchExpressions", []) == namespaces
        assert peer["podSelector"]["matchExpressions"] == [{"key": f"{GROUP}/gang", "operator": "Exists"}]
        assert [port["port"] for port in hub["ports"]] == ["hub"]
        assert "from" not in health
        assert [port["port"] for port in health["ports"]] == ["health"]
        assert [port["port"] for port in metrics["ports"]] == ["metrics"]


def test_the_network_policy_lets_relays_reach_the_leader(helm: Helm) -> None:
    rendered = helm.rendered(RELAYED)
    _, relays = rendered.one("NetworkPolicy")["spec"]["ingress"][0]["from"]
    assert relays == {"podSelector": rendered.one("Deployment")["spec"]["selector"]}
    given = FULL["networkPolicy"]["egress"]
    restricted = helm.rendered(RELAYED | {"networkPolicy": {"enabled": True, "egress": given}}).one("NetworkPolicy")
    assert restricted["spec"]["egress"] == [*given, {"to": [relays], "ports": [{"port": 8443, "protocol": "TCP"}]}]


def test_an_autoscaler_sets_the_number_of_relays(helm: Helm) -> None:
    rendered = helm.rendered(RELAYED)
    deployment, spec = rendered.one("Deployment"), rendered.one("HorizontalPodAutoscaler")["spec"]
    assert "replicas" not in deployment["spec"], "each upgrade would set it back"
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "gangctl"}
    assert (spec["minReplicas"], spec["maxReplicas"]) == (3, 20)
    (metric,) = spec["metrics"]
    assert metric["resource"] == {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    assert rendered.one("PodDisruptionBudget")
    assert not helm.rendered().all("HorizontalPodAutoscaler")


def test_an_upgrade_to_an_autoscaler_keeps_the_replicas_that_run(helm: Helm) -> None:
    objects = helm.rendered(RELAYED).objects
    with _api_server(objects, {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 5}}) as url:
        live = ("--is-upgrade", "--dry-run=server", "--disable-openapi-validation", f"--kube-apiserver={url}")
        result = helm.run("template", "gangctl", CHART, f"--namespace={NAMESPACE}", *live, values=RELAYED)
    assert result.code == 0, result.err
    assert Rendered(tuple(yaml.safe_load_all(result.out))).one("Deployment")["spec"]["replicas"] == 5


@contextmanager
def _api_server(objects: tuple[Object, ...], deployment: Object) -> Iterator[str]:
    """The URL of an API server that has the kinds of the objects, and this Deployment, as far as Helm asks."""
    kinds: dict[str, list[Object]] = {"v1": []}
    for one in objects:
        name, namespaced = f"{one['kind'].lower()}s", "namespace" in one["metadata"]
        kinds.setdefault(one["apiVersion"], []).append(
            {"name": name, "kind": one["kind"], "namespaced": namespaced, "verbs": ["get"]}
        )
    versions = [{"groupVersion": one, "version": one.partition("/")[2]} for one in kinds if "/" in one]
    groups = [{"name": one["groupVersion"].partition("/")[0], "versions": [one]} for one in versions]
    answers: dict[str, Object] = {
        "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
        f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/gangctl": deployment,
    }
    for version, resources in kinds.items():
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        answers[path] = {"kind": "APIResourceList", "groupVersion": version, "resources": resources}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path.partition("?")[0])
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(found or {"kind": "Status", "code": 404}).encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("relays", "given", "distribution"),
    [
        (False, "", None),
        (True, "", "PreferClose"),
        (True, "PreferSameZone", "PreferSameZone"),
        (True, "Any", None),
    ],
)
def test_sidecars_prefer_a_relay_in_their_zone(
    helm: Helm, given: str, distribution: str | None, *, relays: bool
) -> None:
    values = {"relays": {"enabled": relays}, "hub": {"service": {"trafficDistribution": given}}}
    assert helm.rendered(values).one("Service")["spec"].get("trafficDistribution") == distribution


def test_the_network_policy_restricts_egress_only_on_request(helm: Helm) -> None:
    plain = helm.rendered({"networkPolicy": {"enabled": True}}).one("NetworkPolicy")["spec"]
    assert (plain["policyTypes"], "egress" in plain) == (["Ingress"], False)
    full = helm.rendered(FULL).one("NetworkPolicy")["spec"]
    assert (full["policyTypes"], full["egress"]) == (["Ingress", "Egress"], FULL["networkPolicy"]["egress"])


def test_the_flow_schema_is_for_the_requests_for_the_lease(helm: Helm) -> None:
    assert not helm.rendered().all("FlowSchema")
    schema = helm.rendered(FULL).one("FlowSchema")
    assert schema["spec"]["priorityLevelConfiguration"] == {"name": "leader-election"}
    (rule,) = schema["spec"]["rules"]
    assert rule["subjects"] == [
        {"kind": "ServiceAccount", "serviceAccount": {"name": "restarter", "namespace": NAMESPACE}}
    ]
    (requests,) = rule["resourceRules"]
    assert (requests["resources"], requests["namespaces"]) == (["leases"], [NAMESPACE])


def test_common_labels_are_on_every_object_and_replace_none_of_the_charts_own(helm: Helm) -> None:
    rendered = helm.rendered(FULL)
    for one in (*rendered.objects, rendered.pod):
        labels = one["metadata"]["labels"]
        assert (labels["cost-center"], labels["app.kubernetes.io/name"]) == ("42", "gangctl")
    assert "cost-center" not in rendered.one("Deployment")["spec"]["selector"]["matchLabels"]


def test_the_crd_is_an_object_of_the_release_and_outlives_it(helm: Helm) -> None:
    crd = helm.rendered().one("CustomResourceDefinition")
    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    generated = yaml.safe_load((REPOSITORY / "crds" / "gangctl.io_gangjobs.yaml").read_text(encoding="utf-8"))
    assert crd["spec"] == generated["spec"]
    assert "annotations" not in helm.rendered({"crds": {"keep": False}}).one("CustomResourceDefinition")["metadata"]
    assert not helm.rendered({"crds": {"enabled": False}}).all("CustomResourceDefinition")


def test_the_notes_name_the_next_steps_and_have_a_valid_gang(helm: Helm) -> None:
    result = helm.run("install", "gangctl", CHART, f"--namespace={NAMESPACE}", "--dry-run=client", values={})
    assert result.code == 0, result.err
    notes = result.out.partition("NOTES:")[2]
    assert f"kubectl -n {NAMESPACE} rollout status deployment/gangctl" in notes
    assert f"kubectl -n {NAMESPACE} logs -l app.kubernetes.io/instance=gangctl" in notes
    manifest = re.search(r"<<'END'\n(.*?)\n *END$", notes, re.DOTALL | re.MULTILINE)
    assert manifest is not None
    assert load_gangjob(yaml.safe_dump(yaml.safe_load(manifest[1])), "NOTES.txt").metadata.name == "hello"


@pytest.mark.parametrize(
    ("selector", "labels"),
    [
        ("team=vision", {"team": "vision"}),
        ("a.b/team == x,env in (dev, test),!legacy,tier!=low,size=8", {"a.b/team": "x", "size": "8"}),
        ("!team", {}),
    ],
)
def test_the_gang_of_the_notes_has_the_labels_of_the_selector(
    helm: Helm, selector: str, labels: dict[str, str]
) -> None:
    result = helm.run("install", "gangctl", CHART, "--dry-run=client", values={"selector": selector})
    manifest = re.search(r"<<'END'\n(.*?)\n *END$", result.out, re.DOTALL | re.MULTILINE)
    assert manifest is not None, result.err
    assert yaml.safe_load(manifest[1])["metadata"].get("labels", {}) == labels
    assert f"Submit a gang with labels that {selector} selects:" in result.out


def test_the_notes_warn_of_a_single_replica(helm: Helm) -> None:
    result = helm.run(
        "install", "gangctl", CHART, "--dry-run=client", values={"replicaCount": 1, "watchNamespaces": ["lab"]}
    )
    assert "while the controller's pod is away" in result.out
    assert "kubectl -n lab get gangjobs" in result.out


def _version() -> str:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert isinstance(chart["appVersion"], str)
    return chart["appVersion"]


def _own_rules(rendered: Rendered) -> list[Object]:
    (role,) = (one for one in rendered.all("Role") if one["metadata"]["namespace"] == NAMESPACE)
    rules: list[Object] = role["rules"]
    return rules
