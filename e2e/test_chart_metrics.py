"""What the chart renders for Prometheus and Grafana. The tests need Helm, but no cluster."""

from __future__ import annotations

import json

import pytest
import yaml

from e2e.chart import CHART, FULL, NAMESPACE, Helm, helm_program

TLS = {
    "serverName": f"gangctl.{NAMESPACE}.svc",
    "ca": {"secret": {"name": "gangctl-tls", "key": "ca.crt"}},
}


@pytest.fixture(scope="module")
def helm() -> Helm:
    return Helm(helm_program())


def test_objects_of_the_prometheus_operator_are_rendered_only_on_request(helm: Helm) -> None:
    kinds = {one["kind"] for one in helm.rendered().objects}
    assert not {"ServiceMonitor", "PodMonitor", "PrometheusRule", "ConfigMap"} & kinds


def test_annotations_lead_to_metrics_only_where_a_scrape_without_a_token_gets_them(helm: Helm) -> None:
    assert "annotations" not in helm.rendered().pod["metadata"]
    plain = helm.rendered({"metrics": {"secure": False, "port": 9100}})
    assert plain.pod["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "9100",
        "prometheus.io/path": "/metrics",
    }
    assert {"--metrics-secure=false", "--metrics-port=9100"} < set(plain.controller["args"])
    overridden = helm.rendered({"metrics": {"secure": False}, "podAnnotations": {"prometheus.io/scrape": "false"}})
    assert overridden.pod["metadata"]["annotations"]["prometheus.io/scrape"] == "false"
    off = helm.rendered({"metrics": {"secure": False, "annotations": False}})
    assert "annotations" not in off.pod["metadata"]
    for monitor in ("serviceMonitor", "podMonitor"):
        twice = {"metrics": {"secure": False, monitor: {"enabled": True}}}
        assert "annotations" not in helm.rendered(twice).pod["metadata"]


def test_the_service_monitor_selects_every_replica_and_keeps_the_namespace_label_of_a_gang(helm: Helm) -> None:
    rendered = helm.rendered(FULL)
    monitor = rendered.one("ServiceMonitor")
    selected = monitor["spec"]["selector"]["matchLabels"]
    (service,) = [one for one in rendered.all("Service") if selected.items() <= one["metadata"]["labels"].items()]
    assert service["metadata"]["name"] == "gangctl-metrics"
    assert service["spec"]["publishNotReadyAddresses"] is True
    (port,) = service["spec"]["ports"]
    names = {one["name"] for one in rendered.controller["ports"]}
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["port"], port["targetPort"] in names) == (port["name"], True)
    assert (endpoint["path"], endpoint["interval"], endpoint["honorLabels"]) == ("/metrics", "15s", True)
    assert monitor["metadata"]["labels"]["release"] == "monitoring"
    assert (endpoint["scheme"], endpoint["bearerTokenFile"]) == (
        "https",
        "/var/run/secrets/kubernetes.io/serviceaccount/token",
    )
    assert endpoint["tlsConfig"] == TLS | {"ca": {"secret": {"name": "from-cert-manager", "key": "ca.crt"}}}
    assert port["port"] == 9100
    plain = helm.rendered({"metrics": {"secure": False, "serviceMonitor": {"enabled": True}}})
    (endpoint,) = plain.one("ServiceMonitor")["spec"]["endpoints"]
    assert not {"scheme", "bearerTokenFile", "tlsConfig"} & set(endpoint)


def test_the_pod_monitor_shows_a_token_of_a_secret(helm: Helm) -> None:
    asked = {"metrics": {"podMonitor": {"enabled": True, "tokenSecret": {"name": "scraper"}}}}
    rendered = helm.rendered(asked)
    monitor = rendered.one("PodMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= rendered.pod["metadata"]["labels"].items()
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["authorization"] == {"credentials": {"name": "scraper", "key": "token"}}
    assert (endpoint["port"], endpoint["scheme"], endpoint["tlsConfig"]) == ("metrics", "https", TLS)
    refused = helm.template({"metrics": {"podMonitor": {"enabled": True}}})
    assert refused.code != 0
    assert "metrics.podMonitor.tokenSecret.name is empty" in refused.err
    plain = helm.rendered({"metrics": {"secure": False, "podMonitor": {"enabled": True}}})
    (endpoint,) = plain.one("PodMonitor")["spec"]["podMetricsEndpoints"]
    assert not {"scheme", "authorization", "tlsConfig"} & set(endpoint)


def test_rules_and_dashboard_are_rendered_as_in_their_files(helm: Helm) -> None:
    rendered = helm.rendered(FULL)
    rules = yaml.safe_load((CHART / "files" / "rules.yaml").read_text(encoding="utf-8"))
    assert rendered.one("PrometheusRule")["spec"] == rules
    config = rendered.one("ConfigMap")
    dashboard = (CHART / "files" / "dashboard.json").read_text(encoding="utf-8")
    assert json.loads(config["data"]["gangctl.json"]) == json.loads(dashboard)
    assert config["metadata"]["labels"]["grafana_dashboard"] == "yes"
    assert config["metadata"]["annotations"] == {"folder": "training"}
