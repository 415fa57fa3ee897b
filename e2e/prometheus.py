"""Debian's Prometheus and promtool as local processes, unpacked and not installed; they end with the test."""

from __future__ import annotations

import base64
import http.client
import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from e2e.cluster import addresses, toolchain
from e2e.cluster.lab import Lab
from e2e.clusters import Cluster
from e2e.installation import NAMESPACE
from tests.wait import until

REPOSITORY = Path(__file__).parents[1]
RULES: Final = REPOSITORY / "charts" / "gangctl" / "files" / "rules.yaml"
PORT: Final = 19090
"""Of the one in a cluster."""
SCRAPE_SECONDS: Final = 1


def program(name: str) -> Path:
    """Prometheus or promtool.

    Raises:
        Missing: this machine cannot fetch the Debian package.
    """
    return toolchain.unpacked("prometheus") / "usr" / "bin" / name


def promtool(*words: str | Path, stdin: str = "") -> tuple[int, str]:
    """Run promtool; its exit code, and all that it prints."""
    done = subprocess.run([program("promtool"), *words], input=stdin, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@dataclass(frozen=True)
class Access:
    """How a Prometheus gets metrics over HTTPS."""

    token: str
    ca: str
    """PEM."""
    server_name: str


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    host: str
    port: int

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The labels and the value of each series, now."""
        found = self._get("query", query=expression)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def value(self, expression: str) -> float | None:
        """The value of the only series; None if there is not exactly one."""
        found = self.query(expression)
        return found[0][1] if len(found) == 1 else None

    def over(
        self, expression: str, begin: float, end: float, step: float
    ) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """The labels of each series, and its times and values from one time to another, ``step`` seconds apart."""
        found = self._get("query_range", query=expression, start=str(begin), end=str(end), step=str(step))["result"]
        return [(one["metric"], [(float(at), float(value)) for at, value in one["values"]]) for one in found]

    def exemplars(self, expression: str, since: float, until_: float) -> list[dict[str, Any]]:
        """The exemplars of the series, with the labels of their series."""
        found = self._get("query_exemplars", query=expression, start=str(since), end=str(until_))
        return [one | {"series": series["seriesLabels"]} for series in found for one in series["exemplars"]]

    def scraped(self) -> dict[str, str]:
        """Address of each target -> its last error; empty if there was none."""
        targets = self._get("targets", state="active")["activeTargets"]
        return {
            target["labels"]["instance"]: target["lastError"] for target in targets if target["health"] != "unknown"
        }

    def rules(self) -> dict[str, str]:
        """Name of each alert -> its health, such as ok."""
        groups = self._get("rules", type="alert")["groups"]
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    def _get(self, what: str, **asked: str) -> Any:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=10)
        try:
            connection.request("GET", f"/api/v1/{what}?{urlencode(asked)}")
            answer = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        assert answer["status"] == "success", answer
        return answer["data"]

    def answers(self) -> bool:
        """Whether it answers queries."""
        try:
            self._get("query", query="1")
        except (OSError, http.client.HTTPException, ValueError):
            return False
        return True


@contextmanager
def prometheus(
    folder: Path,
    targets: Sequence[str],
    port: int,
    host: str = "127.0.0.1",
    enter: Sequence[str] = (),
    access: Access | None = None,
) -> Iterator[Prometheus]:
    """A Prometheus that scrapes these addresses every second, stores exemplars, and evaluates the chart's alerts.

    Args:
        folder: for its data, configuration and log.
        targets: ``host:port`` of each.
        port: the port that it listens on.
        host: the address at which this process reaches it.
        enter: the prefix of a command that makes it run where the targets are.
        access: how it gets metrics over HTTPS; None = plain HTTP.

    Raises:
        TimeoutError: it does not answer; its log is in the folder.
    """
    scrape: dict[str, Any] = {
        "job_name": "gangctl",
        "honor_labels": True,
        "static_configs": [{"targets": list(targets)}],
    }
    if access is not None:
        (folder / "token").write_text(access.token, encoding="utf-8")
        (folder / "ca.crt").write_text(access.ca, encoding="utf-8")
        scrape |= {
            "scheme": "https",
            "authorization": {"credentials_file": str(folder / "token")},
            "tls_config": {"ca_file": str(folder / "ca.crt"), "server_name": access.server_name},
        }
    config = {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [scrape],
    }
    file = folder / "prometheus.yaml"
    file.write_text(json.dumps(config), encoding="utf-8")
    words = (
        *(*enter, str(program("prometheus")), f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"),
        *(f"--web.listen-address=0.0.0.0:{port}", "--enable-feature=exemplar-storage", "--log.level=warn"),
    )
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        found = Prometheus(host, port)
        until("Prometheus", found.answers)
        yield found
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def prometheus_on(cluster: Cluster, lab: Lab, namespace: str, folder: Path) -> Iterator[Prometheus]:
    """A Prometheus that scrapes all controllers of a cluster, in a network that reaches pods.

    It shows the token of a service account that may read metrics, and trusts the CA of the hub's Secret.

    Args:
        cluster: with gangctl installed.
        lab: the machinery below the cluster.
        namespace: whose service account it has.
        folder: for its data, configuration and log.
    """
    words = ("get", "pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=controller", "-o", "json")
    pods = [one for one in json.loads(cluster.kubectl(*words))["items"] if "deletionTimestamp" not in one["metadata"]]
    ports = {port["name"]: port["containerPort"] for port in pods[0]["spec"]["containers"][0]["ports"]}
    targets = [f"{pod['status']['podIP']}:{ports['metrics']}" for pod in pods]
    secret = json.loads(cluster.kubectl("get", "secret", "gangctl-tls", "-n", NAMESPACE, "-o", "json"))
    ca = base64.b64decode(secret["data"]["ca.crt"]).decode()
    token = cluster.kubectl("create", "token", "default", "-n", namespace, "--duration=1h").strip()
    binding = ("clusterrolebinding", namespace)
    cluster.kubectl(
        *("create", *binding, "--clusterrole=gangctl-metrics-reader", f"--serviceaccount={namespace}:default")
    )
    enter = ("nsenter", f"--net=/proc/{lab.control_plane.machine.first.pid}/ns/net", "--")
    access = Access(token, ca, f"gangctl.{NAMESPACE}.svc")
    try:
        with prometheus(folder, targets, PORT, addresses.entrance(lab.control_plane.number), enter, access) as found:
            yield found
    finally:
        cluster.kubectl("delete", *binding)
