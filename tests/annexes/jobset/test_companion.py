"""JobSets in a whole controller on a fake API server: refusals, conflicts, what an earlier JobSet left."""

from __future__ import annotations

import asyncio
import json
import logging
from copy import deepcopy
from typing import Any

import pytest
from aiohttp import web

from gangctl.annexes.jobset import companion, names, translation
from gangctl.annexes.jobset.translation import Stage
from tests.annexes.jobset.jobsets import jobset, replicated
from tests.cluster.kube.fakeapi import FakeApi, Fault, status
from tests.controller.replicas import about, replica
from tests.wait import until_async

ON = ("--jobsets", "true")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(companion, "FIRST_RETRY_SECONDS", 0.02)
    monkeypatch.setattr(companion, "LONGEST_RETRY_SECONDS", 0.1)


def created(name: str = "llama", **spec: Any) -> dict[str, Any]:
    """A JobSet in namespace default."""
    made = jobset(replicated("workers", 2), **spec)
    made["metadata"] |= {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return made


def of_a_user(name: str) -> dict[str, Any]:
    """A GangJob that no JobSet owns."""
    return {
        "apiVersion": "gangctl.io/v1alpha1",
        "kind": "GangJob",
        "metadata": {"name": name, "namespace": "default", "uid": "theirs"},
        "spec": {"roles": [{"name": "a", "template": {"spec": {"containers": [{"name": "m", "command": ["x"]}]}}}]},
    }


def gang(api: FakeApi, name: str = "llama") -> dict[str, Any] | None:
    return api.objects.get(("gangjobs", "default", name))


def conditions(api: FakeApi, name: str = "llama") -> dict[str, tuple[str, str, str]]:
    found = api.objects["jobsets", "default", name].get("status", {}).get("conditions", [])
    return {one["type"]: (one["status"], one["reason"], one["message"]) for one in found}


def pods(api: FakeApi) -> list[dict[str, Any]]:
    return [one for (plural, _, _), one in sorted(api.objects.items()) if plural == "pods"]


def writes(api: FakeApi) -> list[str]:
    """What was written, beside the Lease and what the house writes of gangs and Events."""
    paths = [path for method, path, query in api.requests if method != "GET" and "dryRun" not in query]
    return [one for one in paths if "/jobsets/" in one or "/services" in one or one.endswith("/gangjobs/llama")]


def times(number: int, part: str, answer: web.Response, method: str = "PATCH") -> Fault:
    """A fault of the first so many requests with this method and part of the path."""
    left = [number]

    async def fault(request: web.Request) -> web.StreamResponse | None:
        if request.method != method or part not in request.path or not left[0]:
            return None
        left[0] -= 1
        return web.Response(status=answer.status, body=answer.body, content_type="application/json")

    return fault


async def test_a_jobset_gets_its_gang_and_service_once_whatever_fails_before(api: FakeApi) -> None:
    await api.put("jobsets", created())
    api.faults.append(times(2, "/services", status(500, "InternalError", "etcd is slow"), "POST"))
    api.faults.append(times(3, "/gangjobs/llama", status(503, "ServiceUnavailable", "try again")))
    api.faults.append(times(1, "/jobsets/llama/status", status(409, "Conflict", "it has been modified")))
    async with replica(api, "a", *ON):
        await until_async("it has a status", lambda: "status" in api.objects["jobsets", "default", "llama"])
        await until_async("the house has seen the gang", lambda: (gang(api) or {}).get("status", {}).get("phase"))
    made = gang(api)
    assert made is not None
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-llama"
    assert api.objects["services", "default", "llama"]["spec"]["clusterIP"] == "None"
    assert conditions(api) == {}
    assert api.objects["jobsets", "default", "llama"]["status"]["replicatedJobsStatus"][0]["name"] == "workers"


async def test_a_new_leader_applies_nothing_that_is_applied(api: FakeApi) -> None:
    await api.put("jobsets", created())
    async with replica(api, "a", *ON):
        await until_async("it has a status", lambda: "status" in api.objects["jobsets", "default", "llama"])
    before = len([one for one in writes(api) if one.endswith("gangjobs/llama")])
    await api.put("jobsets", created("later"))
    async with replica(api, "b", *ON):
        await until_async("the next one has its gang", lambda: gang(api, "later"))
    assert len([one for one in writes(api) if one.endswith("gangjobs/llama")]) == before == 1


CLAIMED = [
    {"templates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]},
    {"templates": [{"metadata": {"name": "kept"}, "spec": {}}], "retentionPolicy": {"whenDeleted": "Retain"}},
]
CLAIM, SERVICE = ("persistentvolumeclaims", "default", "data-llama"), ("services", "default", "llama")


@pytest.mark.parametrize("kept", [CLAIM, SERVICE], ids=lambda key: key[0])
async def test_a_service_or_claim_that_is_deleted_is_made_again_and_nothing_else_is(
    api: FakeApi, kept: tuple[str, str, str]
) -> None:
    await api.put("jobsets", created(volumeClaimPolicies=CLAIMED))
    async with replica(api, "a", *ON):
        await until_async("the house has seen the gang", lambda: (gang(api) or {}).get("status", {}).get("phase"))
        await api.remove(*kept)
        await until_async("it is there again", lambda: kept in api.objects)
    await api.remove(*kept)
    async with replica(api, "b", *ON):
        await until_async("the next leader makes it too", lambda: kept in api.objects)
    assert len([one for one in writes(api) if one.endswith("gangjobs/llama")]) == 1


async def test_a_suspended_jobset_has_its_service_and_its_claims_of_which_it_owns_those_that_go_with_it(
    api: FakeApi,
) -> None:
    await api.put("jobsets", created(volumeClaimPolicies=CLAIMED, suspend=True))
    async with replica(api, "a", *ON):
        await until_async("it is suspended", lambda: "Suspended" in conditions(api))
    assert SERVICE in api.objects
    owners = {
        key[2]: one["metadata"].get("ownerReferences", []) for key, one in api.objects.items() if key[0] == CLAIM[0]
    }
    assert {name: [one["uid"] for one in found] for name, found in owners.items()} == {
        "data-llama": ["uid-llama"],
        "kept-llama": [],
    }


async def test_what_others_manage_is_never_written(api: FakeApi) -> None:
    await api.put("jobsets", created("other", managedBy="example.com/other"))
    plain = created("plain")
    del plain["spec"]["managedBy"]
    await api.put("jobsets", plain)
    await api.put("jobsets", created())
    async with replica(api, "a", *ON):
        await until_async("ours has a status", lambda: "status" in api.objects["jobsets", "default", "llama"])
    assert {one for one in writes(api) if "other" in one or "plain" in one} == set()
    assert {name for plural, _, name in api.objects if plural == "gangjobs"} == {"llama"}


async def test_a_gang_of_a_user_with_the_same_name_is_left_alone(api: FakeApi) -> None:
    await api.put("gangjobs", of_a_user("llama"))
    await api.put("jobsets", created())
    async with replica(api, "a", *ON):
        await until_async("the JobSet says so", lambda: conditions(api))
        assert "a GangJob llama exists that doesn't belong to the JobSet" in conditions(api)["Accepted"][2]
        await api.remove("gangjobs", "default", "llama")
        await until_async("it has its own", lambda: gang(api) is not None)
        await until_async("and says so", lambda: conditions(api)["Accepted"][0] == "True")
    assert (gang(api) or {})["spec"]["roles"][0]["name"] == "workers"


async def test_a_gang_of_a_user_is_recognized_however_deeply_it_is_nested(api: FakeApi) -> None:
    depth = 5_000
    deep = '{"metadata": {"name": "llama"}, "spec": {"a": ' + "[" * depth + "]" * depth + "}}"

    async def answer(request: web.Request) -> web.StreamResponse | None:
        is_gang = request.method == "GET" and request.path.endswith("/gangjobs/llama")
        return web.Response(text=deep, content_type="application/json") if is_gang else None

    api.faults.append(answer)
    await api.put("jobsets", created())
    async with replica(api, "a", *ON):
        await until_async("the JobSet says so", lambda: conditions(api))
    assert "a GangJob llama exists that doesn't belong to the JobSet" in conditions(api)["Accepted"][2]


async def test_what_an_earlier_jobset_of_the_name_left_is_waited_for(api: FakeApi) -> None:
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "llama", "uid": "gone"}
    left = {"metadata": {"name": "llama", "namespace": "default", "ownerReferences": [owner | {"controller": True}]}}
    await api.put("services", json.loads(json.dumps(left)))
    await api.put("jobsets", created())
    async with replica(api, "a", *ON):
        await until_async("it was tried twice", lambda: api.count("GET", "services/llama") > 1)
        assert gang(api) is None
        await until_async("the JobSet says so", lambda: conditions(api))
        assert conditions(api)["Accepted"][0] == "False"
        assert "services/llama of an earlier JobSet hasn't been deleted yet" in conditions(api)["Accepted"][2]
        await api.remove("services", "default", "llama")
        await until_async("it has its gang", lambda: gang(api) is not None)
        await until_async("and says so", lambda: conditions(api)["Accepted"][0] == "True")
    owners = api.objects["services", "default", "llama"]["metadata"]["ownerReferences"]
    assert [one["uid"] for one in owners] == ["uid-llama"]


async def test_a_bug_with_a_jobset_is_in_its_status(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> tuple[Stage, ...]:
        raise IndexError("list index out of range")

    await api.put("jobsets", created())
    with monkeypatch.context() as patch:
        patch.setattr(translation, "stages", broken)
        async with replica(api, "a", *ON):
            await until_async("it says so", lambda: conditions(api))
    kind, reason, message = conditions(api)["Accepted"]
    assert (kind, reason) == ("False", "ActionFails")
    assert "gangctl has a bug with this JobSet: IndexError('list index out of range')" in message


async def test_two_jobsets_of_one_subdomain_share_the_service_of_the_first(api: FakeApi) -> None:
    network = {"enableDNSHostnames": True, "subdomain": "shared"}
    await api.put("jobsets", created("one", network=network))
    async with replica(api, "a", *ON):
        await until_async("the first has its gang", lambda: gang(api, "one"))
        await api.put("jobsets", created("two", network=network))
        await until_async("the second has its gang", lambda: gang(api, "two"))
    owners = api.objects["services", "default", "shared"]["metadata"]["ownerReferences"]
    assert [one["uid"] for one in owners] == ["uid-one"]


async def test_a_stage_whose_gang_has_the_name_of_another_jobset_says_so(api: FakeApi) -> None:
    await api.put("jobsets", created("llama-s0"))
    staged = created()
    after = replicated("workers", dependsOn=[{"name": "init", "status": "Complete"}])
    staged["spec"]["replicatedJobs"] = [replicated("init", 1), after]
    async with replica(api, "a", *ON):
        await until_async("the other has its gang", lambda: gang(api, "llama-s0"))
        await api.put("jobsets", staged)
        await until_async("it says so", lambda: conditions(api))
    assert conditions(api)["Accepted"][0] == "False"
    assert "a GangJob llama-s0 exists that doesn't belong to the JobSet" in conditions(api)["Accepted"][2]


async def test_what_the_api_server_rejects_is_said_in_terms_of_the_jobset(api: FakeApi) -> None:
    text = 'GangJob.gangctl.io "llama" is invalid: spec.roles[0].template.spec.containers: the worker needs a command'
    api.faults.append(times(1, "/gangjobs/llama", status(422, "Invalid", text)))
    await api.put("jobsets", created())
    async with replica(api, "a", *ON):
        await until_async("it says so", lambda: conditions(api))
        await until_async("a later try is taken", lambda: gang(api) is not None)
        await until_async("and said", lambda: conditions(api)["Accepted"][0] == "True")
    events = [one for (plural, *_), one in api.objects.items() if plural == "events"]
    notes = [one["note"] for one in events if one["regarding"]["kind"] == "JobSet"]
    assert any("spec.replicatedJobs[0].template.spec.template.spec.containers: the worker" in one for one in notes)


def suspended(api: FakeApi) -> bool | None:
    found = gang(api)
    return None if found is None else found["spec"].get("suspend", False)


async def test_a_gang_that_is_deleted_alone_is_made_again(api: FakeApi) -> None:
    await api.put("jobsets", created())
    async with replica(api, "a", *ON):
        await until_async("it has its gang", lambda: gang(api))
        await api.remove("gangjobs", "default", "llama")
        await until_async("it has one again", lambda: gang(api))


@pytest.mark.parametrize("text", ["recovery: x", "podFailurePolicy: 5", "roles: [{name: [a]}]", "a: &a [*a]", "x: ["])
async def test_a_suspension_is_passed_on_whatever_the_annotation_says(api: FakeApi, text: str) -> None:
    await api.put("jobsets", created())
    async with replica(api, "a", *ON):
        await until_async("it has its gang", lambda: suspended(api) is False)
        changed = created(suspend=True)
        changed["metadata"] |= {"annotations": {"gangctl.io/spec": text}, "generation": 2}
        await api.put("jobsets", {**api.objects["jobsets", "default", "llama"], **changed})
        await until_async("the gang is suspended", lambda: suspended(api))
        await until_async("it says why", lambda: conditions(api).get("Accepted", ("",))[0] == "False")
    assert "Failed" not in conditions(api)


async def test_other_pods_than_those_that_run_are_asked_for_by_way_of_a_suspension(api: FakeApi) -> None:
    """A queue may take its quota back and give other nodes before the first change is seen."""
    await api.put("jobsets", created())
    seen: list[bool] = []

    async def refuse(request: web.Request) -> web.StreamResponse | None:
        if request.method == "PATCH" and request.path.endswith("/gangjobs/llama"):
            wanted = (await request.json())["spec"]
            seen.append(bool(wanted.get("suspend")))
            if "roles" in wanted and gang(api) is not None and not suspended(api):
                return status(422, "Invalid", "spec: roles can be changed only while suspend is true")
        return None

    async with replica(api, "a", *ON):
        await until_async("it has its gang", lambda: suspended(api) is False)
        api.faults.append(refuse)
        changed = created()
        changed["metadata"]["generation"] = 2
        pod = changed["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        pod["nodeSelector"] = {"pool": "b"}
        await api.put("jobsets", {**api.objects["jobsets", "default", "llama"], **changed})
        await until_async("it has the other nodes", lambda: "pool" in json.dumps(gang(api)))
        await until_async("and goes on", lambda: suspended(api) is False)
    assert seen == [True, False]


@pytest.mark.parametrize("number", range(1, 6))
async def test_a_new_leader_completes_a_suspension_and_a_resumption_from_each_write_of_the_last(
    api: FakeApi, number: int
) -> None:
    await api.put("jobsets", created())
    left, died = iter(range(number - 1)), asyncio.Event()

    async def refuse(request: web.Request) -> web.StreamResponse | None:
        is_ours = request.path.endswith(("/gangjobs/llama", "/jobsets/llama/status"))
        if request.method != "PATCH" or not is_ours or next(left, None) is not None:
            return None
        died.set()
        return status(503, "ServiceUnavailable", "the leader is about to die")

    async def asked(generation: int, **spec: Any) -> None:
        changed = created(**spec)
        changed["metadata"]["generation"] = generation
        pod = changed["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        pod["nodeSelector"] = {"pool": "b"}
        await api.put("jobsets", {**api.objects["jobsets", "default", "llama"], **changed})
        wanted = bool(spec)
        await until_async("the gang follows", lambda: suspended(api) is wanted and "pool" in json.dumps(gang(api)))
        await until_async("the status says so", lambda: conditions(api).get("Suspended", ("",))[0] == str(wanted))

    async def preempted_and_admitted() -> None:
        await asked(2, suspend=True)
        await asked(3)

    async with asyncio.TaskGroup() as tasks:
        async with replica(api, "a", *ON):
            await until_async("it has its gang", lambda: suspended(api) is False)
            await until_async("it has a status", lambda: "status" in api.objects["jobsets", "default", "llama"])
            api.faults.append(refuse)
            followed = tasks.create_task(preempted_and_admitted())
            await died.wait()
        api.faults.remove(refuse)
        async with replica(api, "b", *ON):
            await followed


async def test_another_release_changes_no_pods_of_a_jobset_that_runs_until_it_is_suspended(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.put("jobsets", created())
    async with replica(api, "a", *ON):
        await until_async("it has a status", lambda: "status" in api.objects["jobsets", "default", "llama"])
    roles = deepcopy((gang(api) or {})["spec"]["roles"])
    monkeypatch.setattr(names, "RESTART_ATTEMPT", "jobset.sigs.k8s.io/new")

    async def changed(generation: int, **spec: Any) -> None:
        found = created(**spec)
        found["metadata"] |= {"labels": {"is": "new"}, "generation": generation}
        await api.put("jobsets", {**api.objects["jobsets", "default", "llama"], **found})

    async with replica(api, "b", *ON):
        await changed(2)
        await until_async("the gang has its label", lambda: (gang(api) or {})["metadata"]["labels"].get("is"))
        assert ((gang(api) or {})["spec"]["roles"], suspended(api)) == (roles, False)
        await changed(3, suspend=True)
        await until_async("it is suspended", lambda: suspended(api))
        await until_async("its next pods are of this release", lambda: names.RESTART_ATTEMPT in json.dumps(gang(api)))


async def test_a_jobset_whose_label_moves_it_to_another_controller_is_followed_by_that(api: FakeApi) -> None:
    def of(team: str, **spec: Any) -> dict[str, Any]:
        made = created(**spec)
        made["metadata"] |= {"labels": {"team": team}, "generation": 1 + len(spec)}
        return {**api.objects.get(("jobsets", "default", "llama"), {}), **made}

    await api.put("jobsets", of("red"))
    async with (
        replica(api, "a", *ON, "--name", "red", "--selector", "team=red"),
        replica(api, "b", *ON, "--name", "blue", "--selector", "team=blue"),
    ):
        await until_async("it has its gang", lambda: suspended(api) is False)
        await api.put("jobsets", of("blue"))
        await until_async("the gang moves too", lambda: (gang(api) or {})["metadata"]["labels"]["team"] == "blue")
        await api.put("jobsets", of("blue", suspend=True))
        await until_async("the gang follows", lambda: suspended(api))


async def test_a_replaced_pod_is_taken_out_of_the_service_however_often_that_fails_before(api: FakeApi) -> None:
    await api.put("jobsets", created())
    api.faults.append(times(3, "/pods/", status(503, "ServiceUnavailable", "try again")))
    async with replica(api, "a", *ON):
        await until_async("it has its pods", lambda: len(pods(api)) == 2)
        old = pods(api)[0]
        new = json.loads(json.dumps(old).replace(f'"{old["metadata"]["name"]}"', '"llama-workers-0-1"'))
        new["metadata"]["uid"] = "new"
        new["metadata"]["labels"]["gangctl.io/incarnation"] = "1"
        await api.put("pods", new)
        await until_async("it has lost its label", lambda: names.JOBSET_NAME not in pods(api)[0]["metadata"]["labels"])
    assert names.JOBSET_NAME in pods(api)[1]["metadata"]["labels"]


async def test_a_finished_jobset_whose_deletion_is_forbidden_is_deleted_later(api: FakeApi) -> None:
    made = created(ttlSecondsAfterFinished=0)
    ended = {"type": "Completed", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    api.faults.append(times(1, "/jobsets/llama", status(403, "Forbidden", "not now"), "DELETE"))
    await api.put("jobsets", {**made, "status": {"conditions": [ended], "terminalState": "Completed"}})
    async with replica(api, "a", *ON):
        await until_async("it is gone", lambda: ("jobsets", "default", "llama") not in api.objects)


async def test_a_jobset_that_can_never_run_has_failed_and_one_of_a_million_pods_is_as_cheap(api: FakeApi) -> None:
    huge = created()
    huge["spec"]["replicatedJobs"][0]["replicas"] = 2**30
    await api.put("jobsets", huge)
    async with replica(api, "a", *ON):
        await until_async("it has failed", lambda: "Failed" in conditions(api))
    assert "2147483648 pods; a gang has at most 8 roles and 10000 pods" in conditions(api)["Failed"][2]
    assert api.objects["jobsets", "default", "llama"]["status"]["terminalState"] == "Failed"


async def test_a_cluster_without_jobsets_runs_its_gangs_until_it_has_some(
    api: FakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    absent = about("jobsets", lambda: status(404, "NotFound", "the server could not find the requested resource"))
    api.faults.append(absent)
    await api.put("gangjobs", of_a_user("theirs"))
    with caplog.at_level(logging.INFO):
        async with replica(api, "a", *ON) as made:
            await until_async("the log says so", lambda: companion.NO_CRD in caplog.text)
            await until_async("gangs run", lambda: (gang(api, "theirs") or {}).get("status", {}).get("phase"))
            await made.until_ready()
            api.faults.remove(absent)
            await api.put("jobsets", created())
            await until_async("the JobSet has its gang", lambda: gang(api))
