"""The chart's values: each one has its effect and its documentation, a wrong one is refused. No cluster is needed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from e2e.chart import CHART, FULL, REPOSITORY, Helm, Object, helm_program
from gangctl.kubernetes.signals import rows_with


@pytest.fixture(scope="module")
def helm() -> Helm:
    return Helm(helm_program())


def test_every_value_is_rendered_in_its_place(helm: Helm) -> None:
    rendered = helm.rendered(FULL)
    spec, metadata, controller = rendered.pod["spec"], rendered.pod["metadata"], rendered.controller
    assert rendered.one("Deployment")["spec"]["replicas"] == 3
    assert controller["image"] == "registry.example/gang/controller:1.2.3"
    assert controller["imagePullPolicy"] == "Always"
    assert controller["resources"]["limits"] == {"memory": "2Gi"}
    assert {"--log-format=text", "--log-level=debug"} < set(controller["args"])
    assert {"--lease-duration=60", "--renew-deadline=40", "--retry-period=5"} < set(controller["args"])
    environment = rendered.environment
    assert environment["GANGCTL_SIDECAR_IMAGE"] == "registry.example/gang/sidecar@sha256:" + "a" * 64
    assert environment["GANGCTL_SIDECAR_IMAGE_PULL_POLICY"] == "Never"
    assert json.loads(environment["GANGCTL_SIDECAR_RESOURCES"]) == FULL["sidecar"]["resources"]
    assert json.loads(environment["GANGCTL_SIDECAR_SECURITY_CONTEXT"]) == {"runAsUser": 1000}
    assert environment["GANGCTL_SIDECAR_PULL_SECRETS"] == "one,two"
    assert environment["GANGCTL_TLS_SECRET"] == "from-cert-manager"
    assert (environment["GANGCTL_DEVICE_GUARD"], environment["GANGCTL_KUEUE"]) == ("true", "true")
    assert (environment["GANGCTL_NODE_CONDITION"], environment["GANGCTL_MAINTENANCE_REQUESTS"]) == ("1", "1")
    assert environment["GANGCTL_WORKER_OUTPUT"] == "false"
    assert rows_with(json.loads(environment["GANGCTL_NODE_SIGNALS"]))[-1].name == "lamp"
    assert controller["args"][-1] == "--lease-duration=61"
    assert FULL["extraVolumes"][0] in spec["volumes"]
    assert FULL["extraVolumeMounts"][0] in controller["volumeMounts"]
    assert environment["GANGCTL_AUDIENCE"] == "example.org"
    assert environment["HTTPS_PROXY"] == "http://proxy:3128"
    same = (
        "imagePullSecrets",
        "tolerations",
        "affinity",
        "topologySpreadConstraints",
        "priorityClassName",
        "dnsConfig",
    )
    assert {key: spec[key] for key in same} == {key: FULL[key] for key in same}
    assert spec["terminationGracePeriodSeconds"] == 60
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "system"}
    assert spec["serviceAccountName"] == "restarter"
    assert rendered.one("ServiceAccount")["metadata"]["annotations"] == {"a": "b"}
    assert metadata["annotations"] == {"e": "f"}
    assert metadata["labels"]["team"] == "research"
    assert metadata["labels"]["app.kubernetes.io/name"] == "gangctl"  # else no selector would match
    assert environment["OTEL_EXPORTER_OTLP_ENDPOINT"] == "https://collector.example:4318/otlp"
    assert environment["OTEL_EXPORTER_OTLP_HEADERS"] == "collector/otlp"
    assert (environment["OTEL_TRACES_SAMPLER"], environment["OTEL_TRACES_SAMPLER_ARG"]) == ("traceidratio", "0.25")
    service = next(one for one in rendered.all("Service") if one["metadata"]["name"] == "gangctl")
    assert (service["spec"]["type"], service["metadata"]["annotations"]) == ("LoadBalancer", {"c": "d"})
    families = service["spec"]["ipFamilyPolicy"], service["spec"]["ipFamilies"]
    assert families == ("PreferDualStack", ["IPv4"])
    assert service["spec"]["ports"][0]["appProtocol"] == "kubernetes.io/wss"  # what a mesh must not take for plain HTTP


def test_extra_env_replaces_a_variable_of_the_chart(helm: Helm) -> None:
    own = [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://mine:4318"}]
    rendered = helm.rendered({"tracing": {"endpoint": "http://ours:4318", "sampler": "always_on"}, "extraEnv": own})
    found = [(one["name"], one.get("value")) for one in rendered.controller["env"] if one["name"].startswith("OTEL_")]
    assert found == [("OTEL_TRACES_SAMPLER", "always_on"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://mine:4318")]


def test_the_controller_starts_without_the_secret_for_headers(helm: Helm) -> None:
    rendered = helm.rendered({"tracing": {"endpoint": "http://c:4318", "headersSecret": {"name": "otlp"}}})
    (one,) = (one for one in rendered.controller["env"] if one["name"] == "OTEL_EXPORTER_OTLP_HEADERS")
    assert one["valueFrom"]["secretKeyRef"] == {"name": "otlp", "key": "headers", "optional": True}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tracing": {"samplerArg": "1.5"}}, "/tracing/samplerArg"),
        ({"replicas": 3}, "'replicas'"),
        ({"hub": {"prot": 1}}, "/hub"),
        ({"sidecar": {"image": {"name": "x"}}}, "/sidecar/image"),
        ({"replicaCount": "two"}, "/replicaCount"),
        ({"replicaCount": -1}, "/replicaCount"),
        ({"image": "gangctl"}, "/image"),
        ({"image": {"tag": 1.0}}, "/image/tag"),
        ({"image": {"tag": "a b"}}, "/image/tag"),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"sidecar": {"resources": {"requests": {"cpu": "much"}}}}, "/sidecar/resources/requests/cpu"),
        ({"sidecar": {"resources": {"request": {}}}}, "/sidecar/resources"),
        ({"imagePullSecrets": ["pull"]}, "/imagePullSecrets/0"),
        ({"logFormat": "xml"}, "/logFormat"),
        ({"logLevel": "loud"}, "/logLevel"),
        ({"hub": {"port": 443}}, "/hub/port"),
        ({"hub": {"port": 8080}}, "hub.port 8080 is also the port of the probes: choose another one"),
        ({"metrics": {"port": 8080}}, "metrics.port 8080 is also the port of the probes"),
        ({"page": {"port": 8080}}, "page.port 8080 is also the port of the probes"),
        ({"metrics": {"port": 8443}}, "metrics.port 8443 is also hub.port"),
        ({"hub": {"port": 8445}}, "page.port 8445 is also hub.port"),
        ({"page": {"port": 8444}}, "page.port 8444 is also metrics.port"),
        ({"page": {"port": 80}}, "/page/port"),
        ({"tracing": {"uiUrl": "https://jaeger.example/?q=1"}}, "/tracing/uiUrl"),
        ({"hub": {"service": {"type": "ExternalName"}}}, "/hub/service/type"),
        ({"hub": {"service": {"ipFamilyPolicy": "DualStack"}}}, "/hub/service/ipFamilyPolicy"),
        ({"hub": {"service": {"ipFamilies": ["IPv6", "IPv6"]}}}, "/hub/service/ipFamilies"),
        (
            {"hub": {"service": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6", "IPv4"]}}},
            "/hub/service/ipFamilies",
        ),
        ({"watchNamespaces": "a"}, "/watchNamespaces"),
        ({"watchNamespaces": ["a,b"]}, "/watchNamespaces/0"),
        ({"watchNamespaces": ["a", "a"]}, "/watchNamespaces"),
        ({"watchNamespaces": [""]}, "/watchNamespaces/0"),
        ({"extraArgs": ["-v"]}, "/extraArgs/0"),
        ({"nodeSignals": None}, "'nodeSignals'"),
        ({"nodeSignals": [{"name": "x", "taint": {"key": "a"}, "answer": "Run"}]}, "/nodeSignals/0/answer"),
        ({"nodeSignals": [{"name": "x", "answer": "Note"}]}, "/nodeSignals/0"),
        ({"nodeSignals": [{"name": "x", "label": {"key": "a"}, "answer": "Note"}]}, "/nodeSignals/0/label"),
        ({"hub": {"tls": {"secretName": "a b"}}}, "/hub/tls/secretName"),
        ({"networkPolicy": {"egress": True}}, "/networkPolicy/egress"),
        ({"fullnameOverride": "Gang"}, "/fullnameOverride"),
        ({"podLabels": {"a": True}}, "/podLabels/a"),
        ({"extraEnv": {"A": "b"}}, "/extraEnv"),
        ({"extraEnv": [{"value": "b"}]}, "/extraEnv/0"),
        ({"leaderElection": {"leaseDurationSeconds": "15s"}}, "/leaderElection/leaseDurationSeconds"),
        ({"leaderElection": {"leaseDurationSeconds": 10}}, "leaderElection.leaseDurationSeconds"),
        ({"leaderElection": {"retryPeriodSeconds": 6}}, "leaderElection.renewDeadlineSeconds must be at least 2 *"),
        ({"autoscaling": {"enabled": True}}, "autoscaling.enabled needs relays.enabled"),
        ({"relays": {"enabled": True}, "autoscaling": {"enabled": True, "maxReplicas": 2}}, "autoscaling.maxReplicas"),
        ({"hub": {"service": {"trafficDistribution": "PreferNear"}}}, "/hub/service/trafficDistribution"),
        ({"hub": None}, "'hub'"),
        ({"metrics": {"enabled": True}}, "/metrics"),
        ({"metrics": {"serviceMonitor": {"interval": 30}}}, "/metrics/serviceMonitor/interval"),
        ({"tracing": {"endpoint": "collector:4318"}}, "/tracing/endpoint"),
        ({"tracing": {"sampler": "sometimes"}}, "/tracing/sampler"),
        ({"tracing": {"samplerArg": "2"}}, "/tracing/samplerArg"),
    ],
    ids=str,
)
def test_the_chart_refuses_a_wrong_value_and_names_it(helm: Helm, values: dict[str, Any], message: str) -> None:
    refused = helm.template(values)
    assert refused.code != 0
    assert message in refused.err


def test_a_page_that_is_off_takes_no_port(helm: Helm) -> None:
    rendered = helm.rendered({"page": {"enabled": False, "port": 8443}})
    assert "page" not in {one["name"] for one in rendered.controller["ports"]}


def test_the_reference_lists_every_value_with_its_default() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    rows = re.findall(
        r"^\| `([^`]+)` \| `([^`]*)` \|",
        (REPOSITORY / "docs/reference/chart.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert dict(rows) == dict(_leaves(schema, schema, values, ""))


def _leaves(root: Object, schema: Object, value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The path of each value that the schema does not divide further, and its default as JSON."""
    if "$ref" in schema:
        schema = root["definitions"][schema["$ref"].rpartition("/")[2]]
    if "properties" not in schema or value == {}:
        yield path, json.dumps(value)
        return
    assert set(schema["properties"]) == set(value), path or "values.yaml and its schema"
    for key, below in value.items():
        yield from _leaves(root, schema["properties"][key], below, f"{path}.{key}" if path else key)
