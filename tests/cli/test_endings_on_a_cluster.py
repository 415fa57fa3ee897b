"""`gangctl stop`, `delete` and `rerun` with a fake API server: what is asked of it, and what a refusal leaves."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.cli.kube import Shell, job, on, shell, with_gang
from tests.cluster.kube import fakeapi


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Shell]:
    async with shell(tmp_path) as one:
        yield one


async def test_stop_suspends_a_gang_and_waits_until_its_pods_are_gone(here: Shell) -> None:
    await with_gang(here)
    patched: list[object] = []

    async def patch(request: web.Request) -> web.Response:
        patched.append(await request.json())
        stored = await here.api.put("gangjobs", {**job(phase="Suspended", attempt=3), "spec": job()["spec"]})
        for name in ("demo-worker-0-0", "demo-worker-1-0"):
            await here.api.remove("pods", "research", name)
        return web.json_response(stored)

    here.api.faults.append(on("/gangjobs/demo", patch, "PATCH"))
    done = await here.gangctl("stop", "demo")
    assert (done.code, done.err) == (0, "")
    assert patched == [{"spec": {"suspend": True}}]
    assert (
        "demo is stopped: none of its pods is left; attempt 3 and restore point stay; gangctl resume demo" in done.out
    )


async def test_delete_deletes_the_object_and_waits_until_it_is_gone(here: Shell) -> None:
    await with_gang(here)
    done = await here.gangctl("delete", "demo")
    assert (done.code, done.out) == (0, "gangjob demo is deleted; the cluster ends and deletes its pods\n")
    assert ("gangjobs", "research", "demo") not in here.api.objects
    assert (await here.gangctl("delete", "demo")).code == 2


@pytest.mark.parametrize("verb", ["stop", "delete"])
async def test_a_short_outage_of_the_api_server_does_not_end_the_wait(here: Shell, verb: str) -> None:
    await with_gang(here)
    refusals = iter([503, 500])

    async def outage(request: web.Request) -> web.Response | None:
        del request
        asked = here.api.count("PATCH", "gangjobs") + here.api.count("DELETE", "gangjobs")
        if asked and (code := next(refusals, 0)):
            return fakeapi.status(code, "InternalError", "leader changed")
        return None

    async def suspended(request: web.Request) -> web.Response:
        del request
        for name in ("demo-worker-0-0", "demo-worker-1-0"):
            await here.api.remove("pods", "research", name)
        return web.json_response(await here.api.put("gangjobs", {**job(phase="Suspended"), "spec": job()["spec"]}))

    here.api.faults += [on("/gangjobs/demo", outage), on("/gangjobs/demo", suspended, "PATCH")]
    done = await here.gangctl(verb, "demo")
    assert (done.code, done.err) == (0, "")
    assert next(refusals, None) is None


async def test_a_gang_that_a_finalizer_keeps_is_said_to_be_there_still(here: Shell) -> None:
    await with_gang(here)

    async def kept(request: web.Request) -> web.Response:
        del request
        return web.json_response(await here.api.put("gangjobs", job()))

    here.api.faults.append(on("/gangjobs/demo", kept, "DELETE"))
    done = await here.gangctl("delete", "demo", "--wait", "1")
    assert (done.code, done.out) == (1, "")
    assert "error: demo is not deleted yet; it goes on: gangctl status demo" in done.err


async def test_rerun_creates_an_ended_gang_again_without_what_was_asked_of_it(here: Shell) -> None:
    old = job(phase="Failed", attempt=4)
    old["metadata"] |= {"labels": {"kueue.x-k8s.io/queue-name": "lab"}, "finalizers": ["x"], "managedFields": []}
    old["spec"] |= {"restartToken": "t", "restartFrom": {"type": "Beginning", "restartToken": "t"}}
    await here.api.put("gangjobs", old)
    done = await here.gangctl("rerun", "demo")
    assert (done.code, done.err) == (0, "")
    assert "gangjob demo is created again; gangctl status demo --watch follows it" in done.out
    made = here.api.objects["gangjobs", "research", "demo"]
    assert made["metadata"].keys() == {"name", "namespace", "labels", "uid", "resourceVersion"}
    assert made["metadata"]["uid"] != "uid-demo"
    assert made["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "lab"}
    assert made["spec"].keys() == {"roles"}
    assert "status" not in made


async def test_options_of_this_machine_are_refused_for_a_cluster(here: Shell) -> None:
    await here.api.put("gangjobs", job(phase="Failed"))
    done = await here.gangctl("rerun", "demo", "--logs")
    assert (done.code, here.api.count("DELETE", "gangjobs")) == (2, 0)
    assert "--logs is for gangs of this machine" in done.err


async def test_a_gang_that_runs_is_not_run_again(here: Shell) -> None:
    await with_gang(here)
    done = await here.gangctl("rerun", "demo")
    assert done.code == 2
    assert "gang demo has not ended (Running): gangctl restart demo starts a new attempt of it" in done.err
    assert here.api.count("DELETE", "gangjobs") == 0


async def test_a_manifest_that_cannot_be_created_again_is_kept_in_a_file(here: Shell, tmp_path: Path) -> None:
    await here.api.put("gangjobs", job(phase="Succeeded"))

    async def refuse(request: web.Request) -> web.Response:
        del request
        return fakeapi.status(403, "Forbidden", "you may not create gangjobs")

    here.api.faults.append(on("/gangjobs", refuse, "POST"))
    done = await here.gangctl("rerun", "demo", TMPDIR=str(tmp_path))
    assert done.code == 2
    assert "could not be created again" in done.err
    assert "you may not create gangjobs" in done.err
    kept = done.err.rpartition("kubectl create -f ")[2].strip()
    assert kept.startswith(str(tmp_path))
    assert json.loads(Path(kept).read_text())["metadata"]["name"] == "demo"  # noqa: ASYNC240 - a test may block


async def test_a_manifest_is_kept_if_the_answer_to_its_deletion_is_lost(here: Shell, tmp_path: Path) -> None:
    await here.api.put("gangjobs", job(phase="Succeeded"))

    async def lost(request: web.Request) -> web.Response:
        del request
        del here.api.objects["gangjobs", "research", "demo"]
        return fakeapi.status(504, "Timeout", "the answer is lost")

    here.api.faults.append(on("/gangjobs/demo", lost, "DELETE"))
    done = await here.gangctl("rerun", "demo", TMPDIR=str(tmp_path))
    assert done.code == 2
    assert "gangjob demo may be deleted and could not be created again" in done.err
    kept = done.err.rpartition("kubectl create -f ")[2].strip()
    assert json.loads(Path(kept).read_text())["metadata"]["name"] == "demo"  # noqa: ASYNC240 - a test may block


async def test_a_missing_right_is_told_in_the_words_of_the_api_server(here: Shell) -> None:
    await with_gang(here)

    async def refuse(request: web.Request) -> web.Response:
        del request
        return fakeapi.status(403, "Forbidden", 'cannot delete resource "gangjobs"')

    here.api.faults.append(on("/gangjobs/demo", refuse, "DELETE"))
    done = await here.gangctl("delete", "demo")
    assert done.code == 2
    assert 'cannot delete resource "gangjobs"' in done.err
    assert ("gangjobs", "research", "demo") in here.api.objects


def owned(name: str = "llama", created: str = "2026-01-01T00:00:00Z") -> dict[str, object]:
    """A gang that was made from the JobSet llama."""
    owner = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": "llama",
        "uid": "j",
        "controller": True,
    }
    made = job(name)
    made["metadata"] |= {"ownerReferences": [owner], "creationTimestamp": created}
    return made


@pytest.mark.parametrize("verb", ["stop", "delete", "suspend"])
async def test_a_gang_that_its_jobset_would_make_again_is_not_ended(here: Shell, verb: str) -> None:
    await here.api.put("gangjobs", owned())
    done = await here.gangctl(verb, "jobset/llama")
    assert done.code == 2
    assert "gang llama follows JobSet llama, which would make it again: use kubectl delete jobset llama" in done.err
    assert "if a TrainJob made it, do so with the TrainJob" in " ".join(done.err.split())
    assert not [one for one in here.api.requests if one[0] in {"PATCH", "DELETE", "POST"}]


async def test_a_jobset_is_named_as_kubectl_names_it(here: Shell) -> None:
    await here.api.put("gangjobs", job("other"))
    await here.api.put("gangjobs", owned("llama-s0"))
    await here.api.put("gangjobs", owned("llama-1f", created="2026-01-02T00:00:00Z"))
    for name in ("jobset/llama", "trainjobs/llama", "gangjob/llama-1f"):
        done = await here.gangctl("status", name)
        assert (done.code, done.err) == (0, ""), name
        assert "llama-1f" in done.out, "the newest stage"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("jobset/none", "no gang runs jobset/none in namespace research: its spec.managedBy isn't gangctl.io/"),
        ("job/none", "job is no kind that gangctl runs: name a gang, or jobset/NAME, trainjob/NAME"),
    ],
)
async def test_an_object_that_gangctl_does_not_run_is_said_to_be_none(here: Shell, name: str, error: str) -> None:
    await with_gang(here)
    done = await here.gangctl("why", name)
    assert done.code == 2
    assert error in done.err
