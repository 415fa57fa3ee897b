"""Incidents as Jaeger gives them back: who failed, what was decided, and what each second was spent on.

The fixture injects faults into several gangs at once. The tests read the traces of all of them.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.nodes import Node
from e2e.clusters import NODES, Cluster
from e2e.gangs import EXIT_CODE, IMPORT_SECONDS, LOAD_SECONDS, REASON, STEP_SECONDS, Gang
from e2e.installation import NAMESPACE, Installed
from e2e.jaeger import ROOT, Jaeger
from e2e.traced_gangs import BEYOND, CLOSE, EXACT, SAVED, TracedGang, assert_sound, traced, training


@pytest.fixture(scope="module")
def third_node(cluster: Cluster, gangctl_installed: Installed) -> Iterator[Node]:  # noqa: ARG001 - it must not run on this node
    """A node to lose; the controllers run on the others."""
    lab = cluster.lab
    if lab is None:
        pytest.skip("faults of nodes need a cluster of our own: run without KUBECONFIG")
    node = lab.add_node(3)
    lab.load(lab.images.sidecar(), lab.images.examples(), nodes=[node])
    lab.wait_ready(3)
    yield node
    lab.heal(NODES)


@pytest.fixture(scope="module")
def traced_gangs(cluster: Cluster, jaeger: Jaeger, third_node: Node) -> Iterator[dict[str, TracedGang]]:
    """Gangs with one fault or two each, after their restarts."""
    rule = {"name": "asked-to-leave", "action": "Ignore", "onExitCodes": {"operator": "In", "values": [EXIT_CODE]}}
    with ExitStack() as until_the_end:
        namespace = until_the_end.enter_context(cluster.namespace("traces"))
        folder = Path(until_the_end.enter_context(tempfile.TemporaryDirectory(prefix="gangctl-e2e-shared-")))
        folder.chmod(0o777)
        folders = {name: folder / name for name in ("killed", "coded", "requested", "twice", "lost")}
        for one in folders.values():
            one.mkdir()
        documents = {name: traced(name, one, jaeger) for name, one in folders.items() if name != "lost"}
        for made in documents.values():
            made["spec"]["roles"][0]["template"]["spec"]["affinity"] = elsewhere(third_node.name)
        documents["coded"]["spec"]["podFailurePolicy"] = {"rules": [rule]}
        twice = documents["twice"]["spec"]["roles"][0]["template"]["spec"]["containers"][0]
        for variable in twice["env"]:
            if variable["name"] == "LOAD_SECONDS":
                variable["value"] = "10"  # The second fault comes before the first step, however busy the machine is.
        spread = {"placement": {"strategy": "Spread", "mode": "Preferred"}}
        documents["lost"] = traced("lost", folders["lost"], jaeger, 3, **spread)
        gangs = [Gang(cluster.kubectl, namespace, name).apply(made) for name, made in documents.items()]
        # The pod of a node without power is deleted only by force. The others still write to the folder until they end.
        delete = ("delete", "pods", "-n", namespace)
        until_the_end.callback(cluster.kubectl, *delete, "--all", "--timeout=60s")
        lost = f"--field-selector=spec.nodeName={third_node.name}"
        until_the_end.callback(cluster.kubectl, *delete, lost, "--force", "--grace-period=0")
        until_the_end.callback(cluster.kubectl, "delete", "gj", "--all", "-n", namespace, "--timeout=60s")
        found = {gang.name: training(gang, folders[gang.name]) for gang in gangs}
        found["lost"].fault = time.time()
        third_node.machine.kill()
        found["killed"].kill("worker-1")
        found["coded"].signal("worker-1", signal.SIGUSR1)
        found["requested"].signal("worker-1", signal.SIGUSR2)
        found["twice"].kill("worker-0")
        found["twice"].started(2)
        found["twice"].kill("worker-1")
        attempts = {"killed": 2, "coded": 2, "requested": 2, "twice": 3, "lost": 2}
        for name, attempt in attempts.items():
            found[name].gang.runs(attempt, 180)
        for name, attempt in attempts.items():
            found[name].until_timed(attempt)
        yield found


def elsewhere(node: str) -> dict[str, Any]:
    """Affinity to any node but this one."""
    away = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [away]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_a_killed_worker_makes_one_trace_whose_times_agree_with_those_that_the_test_measured(
    traced_gangs: dict[str, TracedGang], jaeger: Jaeger
) -> None:
    found = traced_gangs["killed"]
    incident = found.incident(2)
    trace = jaeger.whole(incident["traceID"])
    assert_sound(trace, incident)
    root = trace.only(ROOT)
    assert root.begin == pytest.approx(found.fault, abs=CLOSE), trace
    assert trace.only("start").end == pytest.approx(found.started(2), abs=CLOSE)
    assert root.end == pytest.approx(found.first_step(2), abs=CLOSE), trace
    expected = {
        "gang.name": "killed",
        "gang.namespace": found.gang.namespace,
        "gang.uid": found.gang.read()["metadata"]["uid"],
        "gang.attempt.from": 1,
        "gang.attempt.to": 2,
        "gang.cause.reason": incident["cause"]["reason"],
        "gang.cause.member": "worker-1",
        "gang.cause.rank": 1,
        "gang.cause.signal": "SIGKILL",
        "gang.level": "Process",
        "gang.outcome": "Restarted",
        "gang.charged": True,
        "gang.planned": False,
        "gang.restored_step": incident["restoredStep"],
        "gang.lost_steps": incident["lostSteps"],
    }
    assert expected.items() <= root.tags.items(), trace
    assert incident["restoredStep"] == SAVED
    assert BEYOND <= incident["lostSteps"] <= found.last_step(1) - SAVED
    spent = incident["lostSteps"] * STEP_SECONDS
    assert spent * 0.8 < root.tags["gang.lost_seconds"] < spent + CLOSE, trace
    failed = [span for span in trace.spans if span.tags.get("gang.part") == "Cause"]
    assert {span.tags["gang.member"] for span in failed} == {"worker-1"}, trace
    assert {span.tags["k8s.node.name"] for span in failed} == {found.nodes["worker-1"]}, trace
    assert {span.tags["k8s.pod.name"] for span in failed} == {"killed-worker-1-0"}, trace
    assert jaeger.of_service("gangctl", **{"gang.uid": root.tags["gang.uid"]}) == [trace.trace_id]
    assert root.follows == ()


def test_the_first_step_span_covers_the_start_of_the_framework_and_holds_what_the_framework_reported(
    traced_gangs: dict[str, TracedGang], jaeger: Jaeger
) -> None:
    found = traced_gangs["killed"]
    trace = jaeger.whole(found.incident(2)["traceID"])
    first_step, started = trace.only("first_step"), found.started(2)
    assert first_step.end - started > IMPORT_SECONDS + LOAD_SECONDS + STEP_SECONDS - EXACT, trace
    assert first_step.seconds == pytest.approx(found.first_step(2) - started, abs=CLOSE), trace
    loads, steps = trace.named("member.checkpoint_load"), trace.named("member.first_step")
    assert loads, trace
    assert steps, trace
    for span in loads:
        assert LOAD_SECONDS - EXACT <= span.seconds < LOAD_SECONDS + CLOSE, trace
    for span in steps:
        assert STEP_SECONDS - EXACT <= span.seconds < STEP_SECONDS + CLOSE, trace
    assert {span.tags["gang.part"] for span in (*loads, *steps)} <= {"Slowest", "Cause"}


def test_the_trace_of_an_exit_code_names_its_rule_and_is_not_charged(
    traced_gangs: dict[str, TracedGang], jaeger: Jaeger
) -> None:
    found = traced_gangs["coded"]
    incident = found.incident(2)
    trace = jaeger.whole(incident["traceID"])
    assert_sound(trace, incident)
    expected = {
        "gang.cause.reason": "ExitCode",
        "gang.cause.exit_code": EXIT_CODE,
        "gang.cause.rule": "asked-to-leave",
        "gang.charged": False,
    }
    assert expected.items() <= trace.only(ROOT).tags.items(), trace
    assert trace.only(ROOT).begin == pytest.approx(found.fault, abs=CLOSE)


def test_the_trace_of_a_lost_node_shows_the_replacement_and_names_both_nodes(
    traced_gangs: dict[str, TracedGang], jaeger: Jaeger
) -> None:
    found = traced_gangs["lost"]
    incident = found.incident(2)
    trace = jaeger.whole(incident["traceID"])
    assert_sound(trace, incident)
    lost = next(member for member, node in found.nodes.items() if node == "node-3")
    root, replace = trace.only(ROOT), trace.only("replace")
    assert root.tags["gang.cause.reason"] == "NodeLost"
    assert root.tags["gang.cause.member"] == lost
    assert root.tags["gang.level"] == "Pod"
    assert root.begin > found.fault
    assert root.tags["gang.cause.node"] == "node-3"
    replaced = trace.only("member.replace")
    now = found.gang.pods()[lost]
    assert now["spec"]["nodeName"] != "node-3"
    created = datetime.fromisoformat(now["metadata"]["creationTimestamp"]).timestamp()
    assert root.begin - 1 < created < replace.end, "in whole seconds; perhaps while the others still stop"
    uids = found.gang.uids()
    assert {member for member in uids if uids[member] != found.uids[member]} == {lost}, "the others waited in place"
    assert replaced.parent == replace.span_id
    expected = {
        "gang.member": lost,
        "gang.incarnation": 1,
        "gang.part": "Cause",
        "k8s.pod.name": now["metadata"]["name"],
        "k8s.node.name": now["spec"]["nodeName"],
    }
    assert expected.items() <= replaced.tags.items(), trace


def test_two_faults_in_a_row_make_two_linked_traces(traced_gangs: dict[str, TracedGang], jaeger: Jaeger) -> None:
    found = traced_gangs["twice"]
    first, second = (found.incident(attempt) for attempt in (2, 3))
    before, after = (jaeger.whole(one["traceID"]) for one in (first, second))
    assert before.trace_id != after.trace_id
    assert_sound(after, second)
    assert_sound(before, first)
    assert after.only(ROOT).follows == (before.trace_id,)
    assert before.only(ROOT).follows == ()
    assert second["linkedTraceID"] == before.trace_id
    assert before.only("first_step").tags["otel.status_code"] == "ERROR"
    assert before.only(ROOT).end <= after.only(ROOT).begin + EXACT
    assert after.only(ROOT).begin == pytest.approx(found.fault, abs=CLOSE)


def test_the_trace_of_a_requested_restart_has_the_words_of_the_framework(
    traced_gangs: dict[str, TracedGang], jaeger: Jaeger
) -> None:
    incident = traced_gangs["requested"].incident(2)
    trace = jaeger.whole(incident["traceID"])
    assert_sound(trace, incident)
    root = trace.only(ROOT)
    assert root.tags["gang.cause.reason"] == "Requested"
    assert root.tags["gang.cause.member"] == "worker-1"
    assert REASON in root.tags["gang.cause.message"]
    assert trace.named("member.checkpoint_load"), trace
    assert trace.named("member.first_step"), trace


def test_a_span_of_a_worker_joins_the_trace(traced_gangs: dict[str, TracedGang], jaeger: Jaeger) -> None:
    trace = jaeger.whole(traced_gangs["killed"].incident(2)["traceID"])
    own = [span for span in trace.spans if span.service == "trainer"]
    root, phase = trace.only(ROOT), trace.only("first_step")
    assert {span.tags["rank"] for span in own} == {0, 1}
    for span in own:
        assert (span.name, span.parent) == ("trainer.load", root.span_id)
        assert phase.begin - CLOSE <= span.begin <= span.end <= phase.end + CLOSE
        assert span.seconds == pytest.approx(LOAD_SECONDS, abs=CLOSE)


def test_the_incident_the_event_the_conditions_and_the_log_have_the_id_of_the_trace(
    traced_gangs: dict[str, TracedGang], cluster: Cluster
) -> None:
    gang = traced_gangs["killed"].gang
    status = gang.status
    trace = status["incidents"][0]["traceID"]
    assert re.fullmatch("[0-9a-f]{32}", trace)
    found = json.loads(cluster.kubectl("get", "events.events.k8s.io", "-n", gang.namespace, "-o", "json"))["items"]
    ours = [one for one in found if one["regarding"]["name"] == "killed" and one["regarding"]["kind"] == "GangJob"]
    assert any(trace in json.dumps([one.get("note"), one["metadata"].get("annotations")]) for one in ours), ours
    assert any(trace in one["message"] for one in status["conditions"]), status["conditions"]
    words = ("logs", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=gangctl", "--tail=-1")
    lines = [json.loads(line) for line in cluster.kubectl(*words).splitlines() if trace in line]
    assert {(one["gang"], one["attempt"]) for one in lines} == {("killed", 2)}, lines
    assert all(one["because"] for one in lines)


def test_gangctl_trace_draws_the_same_tree_as_jaeger(
    traced_gangs: dict[str, TracedGang], cluster: Cluster, jaeger: Jaeger
) -> None:
    def run(*words: str) -> str:
        command = [sys.executable, "-m", "gangctl", "trace", *words, "-n", traced_gangs["killed"].gang.namespace]
        done = subprocess.run(command, env=cluster.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    for name, attempt in (("killed", 2), ("lost", 2), ("twice", 3)):
        trace = jaeger.whole(traced_gangs[name].incident(attempt)["traceID"])
        sent = [span for span in trace.spans if span.service == "gangctl"]
        shown = json.loads(run(name, f"--incident={attempt}", "-o", "json", "--ui-url", jaeger.url))
        assert shown["incident"]["url"] == f"{jaeger.url}/trace/{trace.trace_id}"
        assert shown["incident"]["complete"] is True
        assert {(one["name"], one["spanID"], one.get("parentSpanID", "")) for one in shown["spans"]} == {
            (span.name, span.span_id, span.parent) for span in sent
        }
        seconds = {span.span_id: span.seconds for span in sent}
        for one in shown["spans"]:
            assert seconds[one["spanID"]] == pytest.approx(one["milliseconds"] / 1000, abs=EXACT)
        drawn = run(name, f"--incident={attempt}", "--ui-url", jaeger.url)
        assert shown["incident"]["url"] in drawn
        tree = drawn[drawn.index("SPAN") :].splitlines()[1:]
        assert [next(word for word in line.split() if word[0].isalpha()) for line in tree] == [
            one["name"] for one in shown["spans"]
        ], drawn


def test_gangctl_timeline_draws_the_incidents_of_a_gang_on_a_cluster(
    traced_gangs: dict[str, TracedGang], cluster: Cluster
) -> None:
    def run(*words: str) -> str:
        command = [sys.executable, "-m", "gangctl", "timeline", *words, "-n", traced_gangs["twice"].gang.namespace]
        done = subprocess.run(command, env=cluster.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = json.loads(run("twice", "-o", "json"))
    stored = traced_gangs["twice"].gang.status["incidents"]
    assert [one["attempt"] for one in shown["incidents"]] == [one["attempt"] for one in reversed(stored)]
    whole = shown["rows"][0]["bars"]
    assert (whole[0]["kind"], whole[-1]["attempt"]) == ("waiting", stored[0]["attempt"])
    assert all(first["end"] == second["begin"] for first, second in pairwise(whole))
    drawn = run("twice")
    assert f"{stored[0]['cause']['member']} " in drawn
    assert "✗" in drawn
    assert run("twice", "--html", "-").startswith("<!doctype html>")
