"""`gangctl why`: a real gang on this machine, and gangs of a cluster against a fake API server for missing rights."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gangctl.cli.main import main
from tests.cli.here import Here, manifest
from tests.cli.kube import Shell, job, on, shell
from tests.cli.test_trace_verb import stored
from tests.cli.tracecases import NASTY, cause, hostile, incident
from tests.cli.tracecases import job as stored_job
from tests.cluster.kube.fakeapi import status
from tests.explain.why.clusters import GPU, raw_pod
from tests.wait import until

GOLDEN = Path(__file__).parent / "golden_why"
SAID = f"0/2 nodes are available: 2 Insufficient {GPU}."


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Shell]:
    async with shell(tmp_path) as one:
        yield one


def node(name: str, gpus: int = 8, **spec: Any) -> dict[str, Any]:
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(gpus)}
    return {"metadata": {"name": name}, "spec": spec, "status": {"allocatable": allocatable}}


def waiting(member: str, gpus: int = 4, **spec: Any) -> dict[str, Any]:
    """A pod of gang demo that has no node."""
    role, index = member.split("-")
    labels = {"gang": "demo", "uid": "uid-demo", "role": role, "index": index, "incarnation": "0"}
    metadata = {
        "name": f"demo-{member}-0",
        "namespace": "research",
        "uid": f"pod-{member}",
        "creationTimestamp": "2026-01-31T12:00:00Z",
        "labels": {f"gangctl.io/{key}": value for key, value in labels.items()},
    }
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": SAID}
    return raw_pod("", gpus, metadata=metadata, status={"conditions": [scheduled]}, **spec)


async def fragmented(one: Shell) -> None:
    """Two nodes with two GPUs free each, and a pod that needs four."""
    await one.api.put("gangjobs", job(phase="Pending", phaseTime="2026-01-31T12:00:00.000000Z", ready="0/2"))
    for name in ("node-a", "node-b"):
        await one.api.put("nodes", node(name))
        await one.api.put("pods", raw_pod(f"bert-{name[-1]}", 4, on=name))
    await one.api.put("pods", raw_pod("notebook", 2, on="node-a"))
    await one.api.put("pods", raw_pod("eval", 2, on="node-b"))
    await one.api.put("pods", waiting("worker-0"))


async def forbidden(_: web.Request) -> web.Response:
    return status(403, "Forbidden", 'nodes is forbidden: User "me" cannot list resource "nodes"')


async def test_a_pod_that_no_one_node_has_room_for_is_told_with_figures_of_each_node(cluster: Shell) -> None:
    await fragmented(cluster)
    await cluster.api.put("nodes", node("cpu-1", 0))
    await cluster.api.put("nodes", node("cpu-2", 0))
    done = await cluster.gangctl("why", "demo", COLUMNS="150")
    assert (done.code, done.err) == (0, "")
    assert "demo: Pending for" in done.out
    assert "enough in total, not on one node" in done.out
    assert f"- node-a: needs 4 {GPU}, 2 free of 8 (lab/bert-a (4), lab/notebook (2))" in done.out
    assert f"- node-b: needs 4 {GPU}, 2 free of 8 (lab/bert-b (4), lab/eval (2))" in done.out
    assert f"as the scheduler counts: 0/4 nodes are available: 4 Insufficient {GPU}" in done.out
    assert f"- cpu-1, cpu-2: no {GPU} is allocatable" in done.out
    told = json.loads((await cluster.gangctl("why", "demo", "-o", "json")).out)
    finding = told["findings"][0]
    assert finding["kind"] == "Fragmented"
    assert finding["rooms"] == [{"resource": GPU, "needs": "4", "free": "4", "most": "2", "of": "16", "largest": "8"}]
    free = {one["node"]: one["free"] for one in finding["nodes"]}
    assert free == {"cpu-1": "0", "cpu-2": "0", "node-a": "2", "node-b": "2"}


async def test_the_text_reads_well_at_80_and_at_50_columns(cluster: Shell, request: pytest.FixtureRequest) -> None:
    await fragmented(cluster)
    await cluster.api.put("nodes", node("node-c", 2))
    for columns in (80, 50):
        done = await cluster.gangctl("why", "demo", COLUMNS=str(columns))
        lines = done.out.splitlines()
        assert max(map(len, lines)) <= columns
        lines[0] = lines[0].split(" for ")[0] + ", attempt 1, ready 0/2"
        text = "\n".join(line.split(" (for ")[0] for line in lines) + "\n"
        file = GOLDEN / f"fragmented-{columns}.txt"
        if request.config.getoption("--regenerate"):
            file.write_text(text)
        assert text == file.read_text()


async def claiming(one: Shell) -> None:
    """A pod with a claim, and a node with two devices: one is tainted by its driver, the other by a rule."""
    await one.api.put("gangjobs", job(phase="Pending", phaseTime="2026-01-31T12:00:00.000000Z", ready="0/1"))
    await one.api.put("nodes", node("node-a"))
    await one.api.put("pods", waiting("worker-0", 0, resourceClaims=[{"name": "gpu"}]))
    sick = {"key": "sick", "value": "ecc", "effect": "NoSchedule"}
    devices = [{"name": "gpu-0", "taints": [sick]}, {"name": "gpu-1"}, {"name": "gpu-2"}]
    spec = {"driver": "d", "nodeName": "node-a", "pool": {"name": "node-a"}, "devices": devices}
    await one.api.put("resourceslices", {"metadata": {"name": "s"}, "spec": spec})
    chosen = {"pool": "node-a", "device": "gpu-1"}
    rule = {"deviceSelector": chosen, "taint": {"key": "out", "effect": "NoExecute"}}
    await one.api.put("devicetaintrules", {"metadata": {"name": "r"}, "spec": rule})


async def test_tainted_devices_are_named_for_a_pod_that_waits_for_a_device(cluster: Shell) -> None:
    await claiming(cluster)
    done = await cluster.gangctl("why", "demo", COLUMNS="200")
    assert (done.code, done.err) == (0, "")
    tainted = "d/node-a/gpu-0 (sick=ecc:NoSchedule), d/node-a/gpu-1 (out:NoExecute)"
    assert f"tainted devices, which a claim gets only with a toleration: {tainted}\n" in done.out
    assert "not looked at: resourceClaims of the pods" in done.out


async def test_without_the_right_to_list_devices_the_right_is_named(cluster: Shell) -> None:
    await claiming(cluster)
    cluster.api.faults.append(on("/resourceslices", forbidden))
    done = await cluster.gangctl("why", "demo", COLUMNS="200")
    assert done.code == 0
    assert "- no right to list resourceslices.resource.k8s.io in the whole cluster: not known which" in done.out
    assert "tainted" not in done.out.replace("which devices are tainted", "")


async def test_without_the_right_to_list_nodes_the_right_is_named_and_the_rest_is_answered(cluster: Shell) -> None:
    await fragmented(cluster)
    cluster.api.faults.append(on("/api/v1/nodes", forbidden))
    cluster.api.faults.append(on("/api/v1/pods", forbidden))
    await cluster.api.put("gangjobs", job(phase="Pending", incidents=[incident()]))
    done = await cluster.gangctl("why", "demo", COLUMNS="300")
    assert (done.code, done.err) == (0, "")
    assert f"worker-0 has no node: {SAID}" in done.out
    assert "- no right to list nodes in the whole cluster: not known which nodes have room" in done.out
    assert "- no right to list pods in the whole cluster" in done.out
    assert "--clusterrole=gangctl-explainer" in done.out
    assert "cause: worker-1 (rank 1): ended by SIGKILL in attempt 1" in done.out
    told = json.loads((await cluster.gangctl("why", "demo", "-o", "json")).out)
    assert [(one["verb"], one["resource"]) for one in told["missingRights"]] == [("list", "nodes"), ("list", "pods")]


async def test_without_the_right_to_list_pods_the_status_is_still_told(cluster: Shell) -> None:
    await fragmented(cluster)
    cluster.api.faults.append(on("/namespaces/research/pods", forbidden))
    done = await cluster.gangctl("why", "demo", COLUMNS="300")
    assert done.code == 0
    assert "no right to list pods in namespace research" in done.out
    assert "kubectl create rolebinding NAME -n research --clusterrole=view" in done.out
    assert "have no pod yet" not in done.out


async def test_nodes_are_not_read_for_a_gang_that_runs(cluster: Shell) -> None:
    await cluster.api.put("gangjobs", job())
    done = await cluster.gangctl("why", "demo")
    assert (done.code, cluster.api.count("GET", "nodes")) == (0, 0)
    assert "It runs, and has had no incident." in done.out


async def test_checks_before_the_first_attempt_are_told(cluster: Shell) -> None:
    failed = {"member": "worker-1", "detail": "read error"}
    found = {"name": "disk", "result": "Failed", "members": 2, "failures": 1, "failed": [failed]}
    timed = {**found, "time": "2026-01-31T12:00:00Z", "milliseconds": 1500}
    await cluster.api.put("gangjobs", job(checks={"attempt": 1, "results": [timed]}))
    told = "check disk failed in 1 of 2, 1.50 s; worker-1: read error"
    assert told in (await cluster.gangctl("why", "demo")).out
    assert told in (await cluster.gangctl("status", "demo")).out
    assert json.loads((await cluster.gangctl("why", "demo", "-o", "json")).out)["checks"] == [told]


async def test_kubectl_s_plugin_names_itself_in_what_to_do(cluster: Shell) -> None:
    suspended = job(phase="Suspended")
    suspended["spec"]["suspend"] = True
    await cluster.api.put("gangjobs", suspended)
    assert "do: kubectl gang resume demo goes on" in (await cluster.gangctl("why", "demo", plugin=True)).out


async def test_volumes_of_pods_that_wait_are_read_with_their_class(cluster: Shell) -> None:
    await cluster.api.put("gangjobs", job(phase="Pending"))
    await cluster.api.put("nodes", node("node-a"))
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("data", "gone")]
    await cluster.api.put("pods", waiting("worker-0", volumes=volumes))
    claim = {"metadata": {"name": "data", "namespace": "research"}, "spec": {"storageClassName": "slow"}}
    await cluster.api.put("persistentvolumeclaims", claim)
    await cluster.api.put("storageclasses", {"metadata": {"name": "slow"}, "volumeBindingMode": "Immediate"})
    out = (await cluster.gangctl("why", "demo", COLUMNS="300")).out
    assert "pod has unbound immediate PersistentVolumeClaims" in out
    assert "create or correct the claim" in out


async def test_a_warning_about_a_pod_that_does_not_start_is_quoted(cluster: Shell) -> None:
    await cluster.api.put("gangjobs", job(phase="Pending"))
    placed = waiting("worker-0")
    placed["spec"]["nodeName"] = "node-a"
    placed["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
    await cluster.api.put("pods", placed)
    event = {
        "metadata": {"name": "e", "namespace": "research"},
        "involvedObject": {"uid": "pod-worker-0"},
        "type": "Warning",
        "reason": "FailedMount",
        "message": "no such volume\x1b[2J",
        "lastTimestamp": "2026-01-31T12:00:00Z",
    }
    await cluster.api.put("events", event)
    out = (await cluster.gangctl("why", "demo", COLUMNS="300")).out
    assert "worker-0 can't start on node-a: FailedMount: no such volume\\x1b[2J" in out


async def test_fields_of_a_newer_release_are_named_and_a_status_that_cannot_be_read_says_what_it_says(
    cluster: Shell,
) -> None:
    newer = job()
    newer["status"]["unheardOf"] = 1
    await cluster.api.put("gangjobs", newer)
    out = (await cluster.gangctl("why", "demo", COLUMNS="300")).out
    assert "another release wrote fields that this one can't read, and leaves out: status.unheardOf" in out
    await cluster.api.put("gangjobs", job("future", readableFrom=99, message="it waits\x1b[2J"))
    done = await cluster.gangctl("why", "future")
    assert (done.code, done.out) == (2, "")
    assert "its status is of a newer release (readableFrom 99" in done.err
    assert "its status says: phase Running, attempt 1, message it waits\\x1b[2J" in done.err


async def test_an_unknown_gang_is_answered_as_other_verbs_do(cluster: Shell) -> None:
    await cluster.api.put("gangjobs", job())
    done = await cluster.gangctl("why", "dmeo")
    assert (done.code, done.out) == (2, "")
    assert "did you mean demo?" in done.err


async def test_names_with_markup_and_control_characters_are_escaped(cluster: Shell) -> None:
    await fragmented(cluster)
    await cluster.api.put("nodes", node(NASTY, taints=[{"key": NASTY, "value": "", "effect": "NoSchedule"}]))
    await cluster.api.put("pods", raw_pod(NASTY, 1, on="node-a"))
    for words in ([], ["-o", "json"], ["-o", "yaml"]):
        done = await cluster.gangctl("why", "demo", *words)
        assert done.code == 0
        assert not set(done.out) & set("\x1b\r\u202e\x9b")
    assert "[red]x[/red]\\x1b[2J" in (await cluster.gangctl("why", "demo", COLUMNS="300")).out


def test_a_status_with_hostile_names_is_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "demo", *stored(tmp_path, hostile())]) == 0
    out = capsys.readouterr().out
    assert not set(out) & set("\x1b\r\u202e\x9b")
    assert "[red]x[/red]\\x1b[2J" in out


def test_a_real_gang_tells_why_it_restarted_and_that_it_is_held(folder: Here) -> None:
    script = 'if [ "$RANK" = 1 ]; then echo dead >&2; exit 7; fi; exec sleep 1000000'
    recovery = {"budget": {"maxRestarts": 1}, "onExhausted": "Hold"}
    folder.write(manifest(["sh", "-c", script], recovery=recovery))
    folder.run()
    record = folder.state.gang("g").path / "gangjob.json"
    until("the gang is held", lambda: record.exists() and folder.job.status.phase == "Held")
    out = " ".join(folder.gangctl("why", "g").stdout.split())
    assert "g: Held for" in out
    assert "1. held: " in out
    assert "do: look at the pods (gangctl logs g worker-1); then gangctl restart g goes on" in out
    assert "cause: worker-1 (rank 1): exit code 7" in out
    assert "same member: worker-1, 2 of 2" in out
    told = json.loads(folder.gangctl("why", "g", "-o", "json").stdout)
    assert (told["phase"], told["findings"][0]["kind"], told["restarts"]["last"]["incident"]["outcome"]) == (
        "Held",
        "Held",
        "Held",
    )
    assert {one["action"] for one in told["restarts"]["last"]["alternatives"]} >= {"Ignore", "FailJob"}


@pytest.mark.nightly
def test_a_real_gang_that_runs_says_so_and_a_suspended_one_how_it_goes_on(folder: Here) -> None:
    folder.write(manifest())
    folder.run()
    folder.runs_attempt(1)
    until("the controller hears of it", folder.is_seen_running)
    out = folder.gangctl("why", "g").stdout
    assert "g: Running for" in out
    assert "It runs, and has had no incident." in out
    folder.gangctl("suspend", "g", "--wait", "20")
    out = folder.gangctl("why", "g").stdout
    assert "1. spec.suspend is true" in out
    assert "do: gangctl resume g goes on" in out


@pytest.mark.nightly
def test_a_real_gang_that_waits_names_the_member_whose_worker_does_not_stop(folder: Here) -> None:
    stubborn = 'trap "" TERM; exec sleep 1000000'
    script = f'if [ "$RANK" = 2 ]; then {stubborn}; fi; exec sleep 1000000'
    folder.write(manifest(["sh", "-c", script], recovery={"plannedStopGracePeriodSeconds": 20}))
    folder.run()
    until("it runs", folder.is_seen_running)
    folder.gangctl("restart", "g")
    told: dict[str, Any] = {}

    def stops() -> bool:
        told.update(json.loads(folder.gangctl("why", "g", "-o", "json").stdout))
        return any(one["kind"] == "Stopping" for one in told["findings"])

    until("it says who stops", stops)
    finding = next(one for one in told["findings"] if one["kind"] == "Stopping")
    assert finding["members"] == ["worker-2"]


def test_a_wait_for_evidence_is_no_barrier_and_a_restart_without_a_step_has_come_to_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = {"stop": 100, "barrier": 4900}
    gang = stored_job(
        incident(3, outcome="Failed", milliseconds=ended, restoredStep=None, lostSteps=None, lostSeconds=None),
        incident(2, milliseconds={"stop": 100, "start": 50}, lostSteps=0, lostStepsAtMost=9, lostSeconds=0.0),
        phase="Failed",
    )
    options = stored(tmp_path, gang)
    assert main(["why", "demo", *options]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "took: 5.00 s (stop 100 ms, evidence 4.90 s)" in out
    assert "cost: the gang failed" in out
    assert "level: Process, because that is the default of Signal" in out
    assert main(["trace", "demo", *options]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "4.90 s" in out.partition("evidence")[2]
    assert "barrier" not in out
    assert main(["trace", "demo", "--incident", "2", *options]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "0 to 9 steps were lost: not every step was reported." in out
    assert main(["status", "demo", *options]) == 0
    table = capsys.readouterr().out.partition("(phases in seconds)")[2].splitlines()
    head, failed = re.split(r"\s{2,}", table[1]), re.split(r"\s{2,}", table[2])
    assert dict(zip(head, failed, strict=False))["EVIDENCE"] == "4.900"
    assert dict(zip(head, failed, strict=False))["BARRIER"] == "-"


def test_restarts_that_a_user_asked_for_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"time": time.time() - 60, "cause": cause(reason="RestartRequested", message="restartToken was changed")}
    options = stored(tmp_path, stored_job(incident(3, **asked), incident(2, **asked)))
    assert main(["why", "demo", *options]) == 0
    out = capsys.readouterr().out
    assert "The last 12 hours: 2 restarts" in out
    assert "in common" not in out


def test_the_cost_of_a_night_names_first_steps_only_where_they_came(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    when, without = {"time": time.time() - 60}, {"milliseconds": {"stop": 100, "start": 50}, "members": []}
    for found, told in (
        ((incident(3, **when), incident(2, **when)), "cost: 4.92 s from fault to first step, 10 steps lost, 2.50 s of"),
        ((incident(3, **when), incident(2, **when, **without)), "in restarts, of which 1 of 2 came to a first step"),
        ((incident(3, **when, **without), incident(2, **when, **without)), "300 ms in restarts, of which none came to"),
        (
            (incident(3, **when, lostStepsAtMost=9), incident(2, **when, lostSteps=None, lostSeconds=None)),
            "from fault to first step, 5 to 9 steps lost as far as known, at least 1.25 s of training",
        ),
    ):
        folder = tmp_path / str(hash(told))
        assert main(["why", "demo", *stored(folder, stored_job(*found))]) == 0
        assert told in " ".join(capsys.readouterr().out.split())
