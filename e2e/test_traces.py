"""Incidents as Jaeger gives them back: who failed, what was decided, and what each second was spent on.

Faults are done to several gangs at once, and the traces of all of them are read when the last one is whole.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from e2e import process_faults
from e2e.api_proxy import ApiProxy
from e2e.cluster.nodes import Node
from e2e.clusters import NODES, Cluster
from e2e.controllers import LocalControllers
from e2e.failpoints import WRITE_1, WRITE_2, Failpoint
from e2e.gangs import EXIT_CODE, IMPORT_SECONDS, LOAD_SECONDS, REASON, STEP_SECONDS, Gang, trainers
from e2e.installation import NAMESPACE, Installed
from e2e.jaeger import ROOT, Jaeger, Trace
from e2e.wait import until, until_async

Submit = Callable[[dict[str, Any]], Gang]
FOLDED_SECONDS = 90.0
"""The end of a restart is written down with the next summary, every 30 s; then its trace is sent."""
CLOSE = 0.75
"""Seconds by which what is seen from outside may differ, while this machine is busy with everything else."""
SAVED, LOST = 2, 3
"""The step that trainers save, and how many they make beyond it at least before their fault."""
EXACT = 0.0021
"""Seconds: durations are in milliseconds in the status."""
PHASES = {
    "detect": "detect",
    "stop": "stop",
    "replace": "replace",
    "barrier": "barrier",
    "start": "start",
    "first_step": "firstStep",
}
MEMBERS = {
    "member.stop": "stop",
    "member.replace": "replace",
    "member.start": "start",
    "member.checkpoint_load": "first_step",
    "member.first_step": "first_step",
}


@dataclass
class Story:
    """A gang with what was done to it and when, seconds since the epoch."""

    gang: Gang
    folder: Path
    uids: dict[str, str]
    nodes: dict[str, str]
    fault: float = 0.0

    def noted(self, member: str) -> list[dict[str, Any]]:
        """What a member's workers have noted."""
        file = self.folder / member
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def said(self, member: str, what: str, attempt: int) -> float | None:
        """When a worker first said something, by its own clock, which is the machine's."""
        return next(
            (one["time"] for one in self.noted(member) if (one["what"], one["attempt"]) == (what, attempt)), None
        )

    def steps(self, member: str, attempt: int) -> int:
        """The last step it has made."""
        return max((one["step"] for one in self.noted(member) if one["attempt"] == attempt), default=0)

    def until_said(self, member: str, what: str, attempt: int) -> float:
        return until(f"{member} says {what}", lambda: self.said(member, what, attempt), 60)

    def kill(self, member: str) -> None:
        process = process_faults.worker(self.uids[member])
        self.fault = time.time()
        process.send(signal.SIGKILL)

    def signal(self, member: str, number: signal.Signals) -> None:
        process = process_faults.worker(self.uids[member])
        self.fault = time.time()
        process.send(number)

    def incident(self, attempt: int) -> dict[str, Any]:
        return next(one for one in self.gang.status["incidents"] if one["attempt"] == attempt)

    def first_step(self, attempt: int) -> float:
        """When the last of its members had made a step: until then somebody is waited for."""
        return max(self.until_said(member, "step", attempt) for member in self.uids)

    def started(self, attempt: int) -> float:
        """When the last of its workers ran."""
        return max(self.until_said(member, "started", attempt) for member in self.uids)


def document(name: str, folder: Path, jaeger: Jaeger, replicas: int = 2, **spec: Any) -> dict[str, Any]:
    made = trainers(name, replicas=replicas, directory=folder, traces=jaeger.endpoint, **spec)
    made["spec"]["recovery"] |= {"replaceAfter": 100, "lostPodGraceSeconds": 1}
    return made


def begun(gang: Gang, folder: Path) -> Story:
    """Wait until the gang trains, has saved a checkpoint, and has made some steps since."""
    gang.runs(1)
    nodes = {member: pod["spec"]["nodeName"] for member, pod in gang.pods().items()}
    story = Story(gang, folder, gang.uids(), nodes)
    until("steps beyond the checkpoint", lambda: story.steps("worker-0", 1) >= SAVED + LOST)
    return story


def folded(gang: Gang, attempt: int) -> None:
    """Wait until the status has all of the incident's times."""

    def holds(status: dict[str, Any]) -> bool:
        newest = status["incidents"][0]
        return newest["attempt"] == attempt and "firstStep" in newest["milliseconds"]

    gang.until(f"the first step of attempt {attempt} is in the status", holds, FOLDED_SECONDS)


@pytest.fixture(scope="module")
def third_node(cluster: Cluster, gangctl_installed: Installed) -> Iterator[Node]:  # noqa: ARG001 - it is below them
    """A node to lose; the controllers are on the others."""
    lab = cluster.lab
    if lab is None:
        pytest.skip("faults of nodes need a cluster of our own: run without KUBECONFIG")
    node = lab.add_node(3)
    lab.load(lab.images.sidecar(), lab.images.examples(), nodes=[node])
    lab.wait_ready(3)
    yield node
    lab.heal(NODES)


@pytest.fixture(scope="module")
def stories(cluster: Cluster, jaeger: Jaeger, third_node: Node) -> Iterator[dict[str, Story]]:
    """All faults but that of the controller, done and over."""
    rule = {"name": "asked-to-leave", "action": "Ignore", "onExitCodes": {"operator": "In", "values": [EXIT_CODE]}}
    with ExitStack() as until_the_end:
        namespace = until_the_end.enter_context(cluster.namespace("traces"))
        folder = Path(until_the_end.enter_context(tempfile.TemporaryDirectory(prefix="gangctl-e2e-shared-")))
        folder.chmod(0o777)
        folders = {name: folder / name for name in ("killed", "coded", "requested", "twice", "lost")}
        for one in folders.values():
            one.mkdir()
        documents = {name: document(name, one, jaeger) for name, one in folders.items() if name != "lost"}
        for made in documents.values():
            made["spec"]["roles"][0]["template"]["spec"]["affinity"] = elsewhere(third_node.name)
        documents["coded"]["spec"]["podFailurePolicy"] = {"rules": [rule]}
        spread = {"placement": {"strategy": "Spread", "mode": "Preferred"}}
        documents["lost"] = document("lost", folders["lost"], jaeger, 3, **spread)
        gangs = [Gang(cluster.kubectl, namespace, name).apply(made) for name, made in documents.items()]
        # The pod of a node without power ends only by force.
        force = ("--force", "--grace-period=0")
        until_the_end.callback(cluster.kubectl, "delete", "pods", "--all", "-n", namespace, *force)
        until_the_end.callback(cluster.kubectl, "delete", "gj", "--all", "-n", namespace, "--timeout=60s")
        found = {gang.name: begun(gang, folders[gang.name]) for gang in gangs}
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
            folded(found[name].gang, attempt)
        yield found


def elsewhere(node: str) -> dict[str, Any]:
    """Affinity to any node but this one."""
    away = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [away]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def is_sound(trace: Trace, incident: dict[str, Any], first_step: str = "first_step") -> None:
    """What holds of every trace: one tree, phases one after the other as the status has them, children inside."""
    shown = str(trace)
    assert trace.doubles == (), shown
    root = trace.root
    assert root is not None
    assert (root.parent, root.service, root.span_id) == ("", "gangctl", trace.trace_id[:16]), shown
    ours = {span.span_id: span for span in trace.spans if span.service == "gangctl"}
    for span in ours.values():
        if span is root:
            continue
        parent = ours[span.parent]
        assert parent.begin - EXACT <= span.begin <= span.end <= parent.end + EXACT, f"{span} in {parent}"
        assert span.name in (PHASES if parent is root else MEMBERS), shown
        assert parent is root or MEMBERS[span.name] == parent.name, shown
    phases = [span for name in PHASES for span in trace.named(name)]
    assert len(phases) == len({span.name for span in phases}), shown
    for before, after in pairwise(phases):
        assert after.begin == pytest.approx(before.end, abs=EXACT), shown
    assert phases[0].begin == pytest.approx(root.begin, abs=EXACT), shown
    assert sum(span.seconds for span in phases) == pytest.approx(root.seconds, abs=EXACT * len(phases)), shown
    for span in phases:
        told = incident["milliseconds"].get(PHASES[span.name])
        assert told is None or span.seconds == pytest.approx(told / 1000, abs=EXACT), shown
    assert first_step in {span.name for span in phases}, shown


def test_a_killed_worker_is_one_trace_with_the_times_that_were_seen_from_outside(
    stories: dict[str, Story], jaeger: Jaeger
) -> None:
    story = stories["killed"]
    incident = story.incident(2)
    trace = jaeger.whole(incident["traceID"])
    is_sound(trace, incident)
    root = trace.only(ROOT)
    assert root.begin == pytest.approx(story.fault, abs=CLOSE), trace
    assert trace.only("start").end == pytest.approx(story.started(2), abs=CLOSE)
    assert root.end == pytest.approx(story.first_step(2), abs=CLOSE), trace
    expected = {
        "gang.name": "killed",
        "gang.namespace": story.gang.namespace,
        "gang.uid": story.gang.read()["metadata"]["uid"],
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
    assert LOST <= incident["lostSteps"] <= story.steps("worker-1", 1) - SAVED
    spent = incident["lostSteps"] * STEP_SECONDS
    assert spent * 0.8 < root.tags["gang.lost_seconds"] < spent + 1.5, trace
    failed = [span for span in trace.spans if span.tags.get("gang.part") == "Cause"]
    assert {span.tags["gang.member"] for span in failed} == {"worker-1"}, trace
    assert {span.tags["k8s.node.name"] for span in failed} == {story.nodes["worker-1"]}, trace
    assert {span.tags["k8s.pod.name"] for span in failed} == {"killed-worker-1-0"}, trace
    assert jaeger.of_service("gangctl", **{"gang.uid": root.tags["gang.uid"]}) == [trace.trace_id]
    assert root.follows == ()


def test_the_start_up_of_the_framework_is_the_first_step_and_below_it_what_the_framework_has_said(
    stories: dict[str, Story], jaeger: Jaeger
) -> None:
    story = stories["killed"]
    trace = jaeger.whole(story.incident(2)["traceID"])
    took = trace.only("first_step").seconds
    assert took > IMPORT_SECONDS + LOAD_SECONDS + STEP_SECONDS - EXACT
    assert took == pytest.approx(story.first_step(2) - story.started(2), abs=CLOSE), trace
    loads, steps = trace.named("member.checkpoint_load"), trace.named("member.first_step")
    assert loads, trace
    assert steps, trace
    for span in loads:
        assert span.seconds == pytest.approx(LOAD_SECONDS, abs=0.05), trace
    for span in steps:
        assert span.seconds == pytest.approx(STEP_SECONDS, abs=0.05), trace
    assert {span.tags["gang.part"] for span in (*loads, *steps)} <= {"Slowest", "Cause"}


def test_an_exit_code_names_its_rule_and_costs_nothing(stories: dict[str, Story], jaeger: Jaeger) -> None:
    story = stories["coded"]
    incident = story.incident(2)
    trace = jaeger.whole(incident["traceID"])
    is_sound(trace, incident)
    expected = {
        "gang.cause.reason": "ExitCode",
        "gang.cause.exit_code": EXIT_CODE,
        "gang.cause.rule": "asked-to-leave",
        "gang.charged": False,
    }
    assert expected.items() <= trace.only(ROOT).tags.items(), trace
    assert trace.only(ROOT).begin == pytest.approx(story.fault, abs=CLOSE)


def test_a_lost_node_is_a_long_replacement_with_both_nodes(stories: dict[str, Story], jaeger: Jaeger) -> None:
    story = stories["lost"]
    incident = story.incident(2)
    trace = jaeger.whole(incident["traceID"])
    is_sound(trace, incident)
    lost = next(member for member, node in story.nodes.items() if node == "node-3")
    root, replace = trace.only(ROOT), trace.only("replace")
    assert root.tags["gang.cause.reason"] == "NodeLost"
    assert root.tags["gang.cause.member"] == lost
    assert root.tags["gang.level"] == "Pod"
    assert root.begin > story.fault
    others = [
        span for span in trace.under(root) if span.name in PHASES and span not in (replace, trace.only("first_step"))
    ]
    assert replace.seconds > sum(span.seconds for span in others), trace
    assert root.tags["gang.cause.node"] == "node-3"
    replaced = trace.only("member.replace")
    now = story.gang.pods()[lost]
    assert now["spec"]["nodeName"] != "node-3"
    assert replaced.parent == replace.span_id
    expected = {
        "gang.member": lost,
        "gang.incarnation": 1,
        "gang.part": "Cause",
        "k8s.pod.name": now["metadata"]["name"],
        "k8s.node.name": now["spec"]["nodeName"],
    }
    assert expected.items() <= replaced.tags.items(), trace


def test_two_faults_in_a_row_are_two_linked_traces(stories: dict[str, Story], jaeger: Jaeger) -> None:
    story = stories["twice"]
    first, second = (story.incident(attempt) for attempt in (2, 3))
    before, after = (jaeger.whole(one["traceID"]) for one in (first, second))
    assert before.trace_id != after.trace_id
    is_sound(after, second)
    is_sound(before, first)
    assert after.only(ROOT).follows == (before.trace_id,)
    assert before.only(ROOT).follows == ()
    assert second["linkedTraceID"] == before.trace_id
    assert before.only("first_step").tags["otel.status_code"] == "ERROR"
    assert before.only(ROOT).end <= after.only(ROOT).begin + EXACT
    assert after.only(ROOT).begin == pytest.approx(story.fault, abs=CLOSE)


def test_a_request_of_the_framework_has_its_words(stories: dict[str, Story], jaeger: Jaeger) -> None:
    incident = stories["requested"].incident(2)
    trace = jaeger.whole(incident["traceID"])
    is_sound(trace, incident)
    root = trace.only(ROOT)
    assert root.tags["gang.cause.reason"] == "Requested"
    assert root.tags["gang.cause.member"] == "worker-1"
    assert REASON in root.tags["gang.cause.message"]
    assert trace.named("member.checkpoint_load"), trace
    assert trace.named("member.first_step"), trace


def test_a_span_of_the_worker_s_own_joins_the_trace(stories: dict[str, Story], jaeger: Jaeger) -> None:
    trace = jaeger.whole(stories["killed"].incident(2)["traceID"])
    theirs = [span for span in trace.spans if span.service == "trainer"]
    root, phase = trace.only(ROOT), trace.only("first_step")
    assert {span.tags["rank"] for span in theirs} == {0, 1}
    for span in theirs:
        assert (span.name, span.parent) == ("trainer.load", root.span_id)
        assert phase.begin - CLOSE <= span.begin <= span.end <= phase.end + CLOSE
        assert span.seconds == pytest.approx(LOAD_SECONDS, abs=CLOSE)


def test_the_trace_s_id_stands_in_the_incident_the_event_the_conditions_and_the_log(
    stories: dict[str, Story], cluster: Cluster
) -> None:
    gang = stories["killed"].gang
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


def test_gangctl_trace_draws_the_tree_that_jaeger_has(
    stories: dict[str, Story], cluster: Cluster, jaeger: Jaeger
) -> None:
    def run(*words: str) -> str:
        command = [sys.executable, "-m", "gangctl", "trace", *words, "-n", stories["killed"].gang.namespace]
        done = subprocess.run(command, env=cluster.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    for name, attempt in (("killed", 2), ("lost", 2), ("twice", 3)):
        trace = jaeger.whole(stories[name].incident(attempt)["traceID"])
        sent = [span for span in trace.spans if span.service == "gangctl"]
        told = json.loads(run(name, f"--incident={attempt}", "-o", "json", "--ui-url", jaeger.url))
        assert told["url"] == f"{jaeger.url}/trace/{trace.trace_id}"
        assert told["complete"] is True
        assert {(one["name"], one["spanID"], one.get("parentSpanID", "")) for one in told["spans"]} == {
            (span.name, span.span_id, span.parent) for span in sent
        }
        seconds = {span.span_id: span.seconds for span in sent}
        for one in told["spans"]:
            assert seconds[one["spanID"]] == pytest.approx(one["milliseconds"] / 1000, abs=EXACT)
        drawn = run(name, f"--incident={attempt}", "--ui-url", jaeger.url)
        assert told["url"] in drawn
        tree = drawn[drawn.index("SPAN") :].splitlines()[1:]
        assert [next(word for word in line.split() if word[0].isalpha()) for line in tree] == [
            one["name"] for one in told["spans"]
        ], drawn


async def test_a_controller_killed_in_mid_restart_leaves_one_whole_trace(
    local_controllers: LocalControllers, api_proxy: ApiProxy, jaeger: Jaeger, submit: Submit, shared_dir: Path
) -> None:
    first = await local_controllers.start("first", api_proxy.url, OTEL_EXPORTER_OTLP_ENDPOINT=jaeger.endpoint)
    gang = await asyncio.to_thread(submit, document("mid", shared_dir, jaeger))
    story = await asyncio.to_thread(begun, gang, shared_dir)
    failpoint = Failpoint(lambda: first, WRITE_1, after=True)
    api_proxy.faults.append(failpoint)
    await asyncio.to_thread(story.kill, "worker-1")
    began = story.fault
    await until_async("the first controller was killed", lambda: failpoint.done)
    second = await local_controllers.start("second", api_proxy.url, OTEL_EXPORTER_OTLP_ENDPOINT=jaeger.endpoint)
    await asyncio.to_thread(gang.runs, 2)
    await asyncio.to_thread(story.first_step, 2)
    again = Failpoint(lambda: second, WRITE_2, after=True, attempt=3)
    api_proxy.faults.append(again)
    await asyncio.to_thread(story.kill, "worker-1")
    await until_async("the second controller was killed", lambda: again.done)
    await local_controllers.start("third", api_proxy.url, OTEL_EXPORTER_OTLP_ENDPOINT=jaeger.endpoint)
    await asyncio.to_thread(gang.runs, 3)
    await asyncio.to_thread(folded, gang, 3)
    for attempt, fault in ((3, story.fault), (2, began)):
        incident = await asyncio.to_thread(story.incident, attempt)
        trace = await asyncio.to_thread(jaeger.whole, incident["traceID"])
        is_sound(trace, incident)
        assert trace.only(ROOT).begin == pytest.approx(fault, abs=CLOSE), trace
        assert trace.only(ROOT).end == pytest.approx(story.first_step(attempt), abs=CLOSE), trace
