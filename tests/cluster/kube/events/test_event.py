from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.api.names import ANNOTATION_TRACE_ID
from gangctl.api.reasons import Reason
from gangctl.cluster.kube.events import NOTE_BYTES, event_object
from gangctl.core.facts.world import Device
from gangctl.core.lifecycle.plan import Event
from tests.cluster.kube.events.eventcases import JOB, PENDING, TRACE
from tests.core import given
from tests.core.world import World
from tests.messages import words


def built(event: Event, job: GangJob = JOB) -> dict[str, Any]:
    return event_object(job, event, pod_uid="", now=1.0, instance="test")


def test_restart_events_name_the_replaced_pod_and_the_trace() -> None:
    """With the real core: the plan that reports the old pod already has the new one."""
    here = World()
    given.runs(here)
    here.pod("worker-1", devices=(Device("example.com/gpu", "gpu-7", "Unhealthy"),))
    plan = here.decide()
    assert plan.status is not None
    assert [entry.incarnation for entry in plan.status.replaced] == [1]
    restarting = [event for event in plan.events if event.reason == Reason.RESTARTING]
    assert [str(event.pod) for event in restarting] == ["g-worker-1-0"]
    trace = here.job.status.incidents[0].trace_id
    made = built(restarting[0], here.job)
    assert made["metadata"]["annotations"] == {ANNOTATION_TRACE_ID: trace}
    assert made["note"].count(trace) == 1
    assert made["note"].endswith(f" (trace {trace})")
    assert "gpu-7" in made["note"]


def test_an_event_on_a_node_is_where_kubectl_describe_node_finds_it() -> None:
    """With the real core: the plan that settles the restart."""
    here = World()
    given.runs(here)
    here.pod("worker-1", node="node-7", devices=(Device("example.com/gpu", "gpu-7", "Unhealthy"),))
    plans = [here.decide()]
    here.pods["worker-1.0"] = replace(here.pods["worker-1.0"], terminated=True)
    del here.heard["worker-1.0"]
    given.start(here, "worker-1")
    given.ready(here, "worker-0")
    given.ready(here, "worker-1")
    plans += [here.decide(), here.decide()]
    assert here.job.status.incidents[0].settled
    (told,) = [event for plan in plans for event in plan.events if event.reason == Reason.NODE_AT_FAULT]
    made = event_object(here.job, told, pod_uid="", node_uid="n7", now=1.0, instance="test")
    assert made["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "node-7", "uid": "n7"}
    assert made["metadata"]["namespace"] == "default"
    assert made["metadata"]["name"].startswith("node-7.")
    assert made["related"] == {"apiVersion": "v1", "kind": "Pod", "name": "g-worker-1-0", "namespace": "default"}
    assert "GangJob default/g, worker-1: device gpu-7 (example.com/gpu) is unhealthy" in made["note"]
    assert built(told, here.job)["regarding"]["uid"] == "node-7", "the kubelet's way, where the node is gone"
    other = replace(told, node="node-8")
    assert built(other, here.job)["metadata"]["name"].partition(".")[2] != made["metadata"]["name"].partition(".")[2]


def test_the_note_ends_with_the_trace_id_and_the_annotation_has_it() -> None:
    for message in ("worker-0 ended with 3", f"worker-0 ended with 3 (trace {TRACE})"):
        made = built(replace(PENDING, message=words(message), trace_id=TRACE))
        assert made["note"] == f"worker-0 ended with 3 (trace {TRACE})"
        assert made["metadata"]["annotations"] == {ANNOTATION_TRACE_ID: TRACE}
    assert "annotations" not in built(PENDING)["metadata"]


@pytest.mark.parametrize("text", ["ü" * 1000, "a" * 1100, "👩‍💻" * 300, "\x1b" * 900, "a" * 980 + "漢" * 9])
def test_a_long_note_is_cut_and_keeps_its_trace_id(text: str) -> None:
    note = built(replace(PENDING, message=words(text), trace_id=TRACE))["note"]
    assert len(note.encode()) <= NOTE_BYTES
    assert note.endswith(f"… (trace {TRACE})")
    assert NOTE_BYTES - len(note.encode()) < 16


def test_a_note_escapes_control_characters() -> None:
    note = built(replace(PENDING, message=words("a\x1b[2Jb\r\nc\u202ed [red]e[/red] <b>")))["note"]
    assert note == r"a\x1b[2Jb\x0d\x0ac\u202ed [red]e[/red] <b>"


def test_the_object_name_depends_on_the_content_only() -> None:
    def name(job: GangJob = JOB, event: Event = PENDING, uid: str = "", now: float = 1.0) -> str:
        made: str = event_object(job, event, pod_uid=uid, now=now, instance="test")["metadata"]["name"]
        return made

    assert name() == name(now=99.0)
    assert re.fullmatch(r"g\.[0-9a-f]{16}", name())
    other = JOB.model_copy(update={"metadata": JOB.metadata.model_copy(update={"uid": "u-9"})})
    differing = [
        name(job=other),
        name(event=replace(PENDING, warns=True)),
        name(event=replace(PENDING, reason=Reason.GATHERING)),
        name(event=replace(PENDING, message=words("attempt 1 waits for worker-1 to be ready"))),
        name(event=replace(PENDING, pod="g-worker-0-0")),
        name(event=replace(PENDING, pod="g-worker-0-0"), uid="x"),
        name(event=replace(PENDING, trace_id=TRACE)),
    ]
    assert len({name(), *differing}) == 8


def test_the_largest_event_is_small() -> None:
    made = event_object(
        JOB,
        replace(PENDING, message=words("漢" * 2000), trace_id=TRACE, member="worker-0"),
        pod_uid="u" * 36,
        now=1.0,
        instance="test",
    )
    assert len(json.dumps(made)) < 8192
