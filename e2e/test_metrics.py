"""Metrics in a real Prometheus. The tests of rules and formats need no cluster: -k "not cluster"."""

from __future__ import annotations

import asyncio
import http.client
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import process_faults
from e2e.cluster.lab import Lab
from e2e.clusters import Cluster
from e2e.dashboard import Range, filled, panels, queries, unanswered
from e2e.gangs import Gang, trainers
from e2e.installation import Installed
from e2e.jaeger import Jaeger
from e2e.prometheus import REPOSITORY, RULES, Prometheus, prometheus, prometheus_on, promtool
from gangctl.api.gangjob import GangJob
from gangctl.api.status import FirstStep, GangPhase, Spent
from gangctl.cluster.kube.reflector import WatchHealth
from gangctl.controller.endpoints import MetricsServer
from gangctl.core.policy.brake import BrakeState
from gangctl.telemetry.metrics.process import Metrics, Sources
from tests.ports import free_port
from tests.wait import until

Submit = Callable[[dict[str, Any]], Gang]
GANG = """
apiVersion: gangctl.io/v1alpha1
kind: GangJob
metadata: {name: g, namespace: research, uid: u}
spec:
  roles:
  - name: worker
    replicas: 2
    template: {spec: {containers: [{name: worker, command: [train]}]}}
"""
WITHOUT_DATA = {
    "Degraded gangs by reason: {{reason}}": "no gang is degraded",
    "Checks: {{check}} {{result}}": "the gang has no checks",
    "Faults by node: {{node}}": "a killed worker says nothing about its node",
    "Faults by node: score of {{node}}": "the records of nodes are off",
    "Device guard and node records: nodes avoided by {{by}}": "the records of nodes are off",
    "Refused connections: {{reason}}": "shows rates above zero, and nothing is refused",
}
"""Queries of the dashboard that find nothing after a worker was killed -> why."""
TRACE = "0123456789abcdef0123456789abcdef"


def later(job: GangJob, **status: Any) -> GangJob:
    """The gang with a changed status."""
    return job.model_copy(update={"status": job.status.model_validate(job.status.model_dump() | status)})


def incident(**more: Any) -> dict[str, Any]:
    """An incident that leads to attempt 2."""
    cause = {"reason": "Signal", "time": time.time()}
    known = {"attempt": 2, "time": time.time(), "cause": cause, "traceID": TRACE, "milliseconds": {"detect": 20}}
    return known | more


def measured(job: GangJob) -> Metrics:
    """The metrics of a leader that has this gang."""
    watches = tuple(WatchHealth(kind, 0, 1) for kind in ("gangjobs", "pods", "nodes"))
    sources = Sources(
        leads=lambda: True,
        connections=lambda: 2,
        refused=dict,
        pauses=dict,
        stale=dict,
        status_write_failures=dict,
        watches=lambda: watches,
        companions=list,
        events=dict,
        spans=dict,
        brake=BrakeState,
        unreadable=lambda: 0,
    )
    metrics = Metrics(sources)
    metrics.round_began(job)
    return metrics


@pytest.fixture
def running() -> GangJob:
    """A gang that trains."""
    job = GangJob.model_validate(yaml.safe_load(GANG))
    return later(
        job,
        phase=GangPhase.RUNNING,
        attempt=1,
        phase_time=time.time(),
        accounted_time=time.time(),
        first_step=FirstStep(attempt=1, step=1, time=time.time()),
    )


def get(host: str, port: int, accept: str = "") -> tuple[str, str]:
    """The content type and the text of the metrics at this address."""
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request("GET", "/metrics", headers={"Accept": accept} if accept else {})
        answer = connection.getresponse()
        return str(answer.headers["Content-Type"]), answer.read().decode()
    finally:
        connection.close()


def test_the_alert_rules_are_valid_and_pass_their_unit_tests() -> None:
    code, output = promtool("check", "rules", RULES)
    assert code == 0, output
    code, output = promtool("test", "rules", REPOSITORY / "tests" / "rules" / "alerts.yaml")
    assert code == 0, output


def test_each_alert_has_a_test_in_which_it_fires() -> None:
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]
    alerts = {rule["alert"] for rule in rules if "alert" in rule}
    tests = yaml.safe_load((REPOSITORY / "tests" / "rules" / "alerts.yaml").read_text(encoding="utf-8"))["tests"]
    fired = {one["alertname"] for test in tests for one in test["alert_rule_test"] if one["exp_alerts"]}
    assert fired == alerts


def test_every_query_of_the_dashboard_and_of_the_reference_is_promql(tmp_path: Path) -> None:
    asked = queries()
    assert len(asked) > 50
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(asked)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}), encoding="utf-8")
    code, output = promtool("check", "rules", file)
    assert code == 0, output
    assert WITHOUT_DATA.keys() <= {panel.named(target) for panel in panels() for target in panel.targets}


async def test_prometheus_has_a_restart_and_its_trace_although_the_controller_was_replaced(
    tmp_path: Path, running: GangJob
) -> None:
    port, began = free_port(), time.time()
    gathering = later(running, phase=GangPhase.GATHERING, attempt=2, incidents=[incident()])
    times = {"detect": 20, "stop": 300, "barrier": 10, "start": 40, "firstStep": 700}
    over = incident(settled=True, outcome="Restarted", lostSteps=4, lostSeconds=2.0, milliseconds=times)
    restarted = later(gathering, phase=GangPhase.RUNNING, incidents=[over], spent=Spent(training=30, recovery=1.07))

    def look(seen: Prometheus, expression: str, wanted: float) -> None:
        until(expression, lambda: seen.value(expression) == pytest.approx(wanted))

    with prometheus(tmp_path, [f"127.0.0.1:{port}"], free_port()) as seen:
        first = measured(running)
        async with MetricsServer(first.exposition, None).serve("127.0.0.1", port):
            await asyncio.to_thread(look, seen, 'gangctl_incidents_total{namespace="research"}', 0)
            first.status_written(running, gathering, 0.01)
            await asyncio.to_thread(look, seen, "gangctl_incidents_total", 1)
            await asyncio.to_thread(look, seen, 'gangctl_gangs{phase="Gathering"}', 1)
        second = measured(gathering)
        async with MetricsServer(second.exposition, None).serve("127.0.0.1", port):
            await asyncio.to_thread(look, seen, "gangctl_incidents_total", 0)
            second.status_written(gathering, restarted, 0.01)
            await asyncio.to_thread(look, seen, 'gangctl_restarts_total{reason="Signal",level="Process"}', 1)
            await asyncio.to_thread(look, seen, 'gangctl_spent_seconds_total{bucket="training"}', 30)
            assert seen.value("sum(increase(gangctl_incidents_total[5m]))") == pytest.approx(1, rel=0.5)
            total = 'gangctl_incident_phase_seconds_bucket{phase="total"}'
            exemplars = await asyncio.to_thread(seen.exemplars, total, began - 60, time.time() + 60)
            assert [(one["labels"]["trace_id"], float(one["value"])) for one in exemplars] == [(TRACE, 1.07)]
            assert seen.value('sum(gangctl_incident_phase_seconds_sum{phase="total"})') == pytest.approx(1.07)
            assert seen.value("sum(gangctl_leader)") == 1
            shown = {panel.title: panel.targets for panel in panels()}
            for title, wanted in {"Restarts by reason": 1, "Lost steps": 4, "Lost training": 2}.items():
                (target,) = shown[title]
                assert seen.value(filled(target.expression)) == wanted, f"{title} misses the first of its kind"
            assert set(seen.scraped().values()) == {""}
            await asyncio.to_thread(
                until, "all rules are evaluated", lambda: set(seen.rules().values()) == {"ok"} or None, 30
            )
            for query in queries():
                await asyncio.to_thread(seen.query, query)


async def test_promtool_accepts_the_exposed_metrics(running: GangJob) -> None:
    async with MetricsServer(measured(running).exposition, None).serve("127.0.0.1", 0) as port:
        _, text = await asyncio.to_thread(get, "127.0.0.1", port)
    code, output = await asyncio.to_thread(promtool, "check", "metrics", stdin=text)
    assert (code, output) == (0, "")


@pytest.fixture
def watched(
    lab: Lab,
    cluster: Cluster,
    gangctl_installed: Installed,  # noqa: ARG001 - its controllers are scraped
    namespace: str,
    tmp_path: Path,
) -> Iterator[Prometheus]:
    """A Prometheus that scrapes all controllers of the cluster."""
    with prometheus_on(cluster, lab, namespace, tmp_path) as found:
        yield found


def test_on_a_cluster_prometheus_counts_a_restart_once_and_links_its_trace(
    watched: Prometheus, submit: Submit, shared_dir: Path, namespace: str, jaeger: Jaeger
) -> None:
    began = time.time()
    gang = submit(trainers("counted", replicas=2, directory=shared_dir, traces=jaeger.endpoint))
    gang.runs(1)
    mine = f'namespace="{namespace}"'
    counted = f"sum(gangctl_incidents_total{{{mine}}})"
    until("the gang is seen", lambda: watched.value(counted) == 0)
    until("one leads", lambda: watched.value("sum(gangctl_leader)") == 1)
    assert watched.value("count(gangctl_leader)") == len(watched.scraped())
    until("the gang runs", lambda: watched.value(f'sum(gangctl_gangs{{{mine},phase="Running"}})') == 1)
    until("both members are connected", lambda: (watched.value("sum(gangctl_hub_connections)") or 0) >= 2)
    gang.until("a first step", lambda status: status.get("firstStep"))
    process_faults.kill(process_faults.worker(gang.uids()["worker-1"]))
    gang.runs(2)
    status = gang.until(
        "the incident is timed",
        lambda status: status if status["incidents"][0]["milliseconds"].get("firstStep") is not None else None,
    )
    trace = status["incidents"][0]["traceID"]
    labels = f'{mine},reason="Signal",level="Process",outcome="Restarted"'
    until("the restart is counted", lambda: watched.value(f"sum(gangctl_restarts_total{{{labels}}})") == 1)
    assert watched.value(counted) == 1
    assert watched.value(f"sum(gangctl_restarts_total{{{mine}}})") == 1

    def linked() -> bool:
        total = 'gangctl_incident_phase_seconds_bucket{phase="total"}'
        found = watched.exemplars(total, began, time.time() + 60)
        return trace in [one["labels"]["trace_id"] for one in found]

    until("an exemplar leads to the trace", linked)
    spent = until(
        "recovery is accounted for",
        lambda: watched.value(f'sum(gangctl_spent_seconds_total{{{mine},bucket="recovery"}})') or None,
        60,
    )
    assert spent < time.time() - began
    assert watched.value("max(gangctl_watch_broken_seconds)") == 0
    assert set(watched.scraped().values()) == {""}

    def silent() -> set[str]:
        return unanswered(watched, Range(began, time.time(), 1.0)) - WITHOUT_DATA.keys()

    with suppress(TimeoutError):
        until("every other query of the dashboard finds something", lambda: not silent(), every=2.0)
    assert silent() == set()


@pytest.mark.nightly
def test_on_a_cluster_every_series_is_documented_and_none_names_a_gang(
    watched: Prometheus, submit: Submit, shared_dir: Path, namespace: str, jaeger: Jaeger
) -> None:
    gang = submit(trainers("unnamed", replicas=2, directory=shared_dir, traces=jaeger.endpoint))
    gang.runs(1)
    until("it is seen", lambda: watched.query(f'gangctl_gangs{{namespace="{namespace}"}}') or None)
    series = watched.query('{__name__=~"gangctl_.*"}')
    pods = {pod["metadata"]["name"] for pod in gang.pods().values()}
    nodes = {pod["spec"]["nodeName"] for pod in gang.pods().values()}
    values = {value for labels, _ in series for value in labels.values()}
    assert not {"unnamed", *pods, *gang.uids().values()} & values
    named = {labels["__name__"] for labels, _ in series if nodes & set(labels.values())}
    assert named <= {"gangctl_node_faults_total"}, "a node is named only where a fault was seen on it"
    names = {labels["__name__"] for labels, _ in series}
    documented = re.findall(
        r"^\| `(gangctl_\w+)`", (REPOSITORY / "docs/reference/metrics.md").read_text(), re.MULTILINE
    )
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}
    assert bases <= set(documented)
