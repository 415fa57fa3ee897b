"""The verbs on a cluster when something is wrong, against a fake API server (fault injection only)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.cli.kube import EXIT_3, Shell, job, on, shell, with_gang
from tests.cli.tracecases import incident
from tests.cluster.kube.fakeapi import status


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Shell]:
    async with shell(tmp_path) as one:
        yield one


async def test_a_kubeconfig_means_its_cluster_unless_this_folder_has_gangs_of_its_own(here: Shell) -> None:
    await with_gang(here)
    assert "namespace research of http://127.0.0.1" in (await here.gangctl("status")).err
    (here.path / ".gangctl").mkdir()
    assert "there are no gangs in" in (await here.gangctl("status")).out
    assert "demo" in (await here.gangctl("status", "-n", "research")).out
    assert "demo" in (await here.gangctl("status", plugin=True)).out
    there = await here.gangctl("status", GANGCTL_STATE_DIR=str(here.path / "other"))
    assert str(here.path / "other") in there.out
    assert "demo" in (await here.gangctl("status", "-n", "research", GANGCTL_STATE_DIR="other")).out


@pytest.mark.parametrize("words", ["doctor", "nodes", "placement", "why node/n1"])
async def test_a_verb_for_nodes_means_the_cluster_also_where_this_folder_has_gangs(here: Shell, words: str) -> None:
    (here.path / ".gangctl").mkdir()
    await here.gangctl(*words.split())
    assert here.api.requests


async def test_a_state_directory_has_no_nodes(here: Shell) -> None:
    done = await here.gangctl("why", "node/n1", "--state-dir", "there")
    assert "--state-dir selects this machine, which has no nodes" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-n", "a", "--state-dir", "b"], "--state-dir selects this machine, but --namespace selects a cluster"),
        (["-n", "a", "-A"], "--namespace and --all-namespaces exclude each other"),
        (["--context", "lav"], "there is no context 'lav' in {}: did you mean lab?"),
        (["--kubeconfig", "none"], "there is no kubeconfig at none"),
        (["-n", "../x"], "'../x' is not a valid name of a namespace"),
        (["demo", "-A"], "use -n NAMESPACE instead of -A"),
        (["../x"], "'../x' is not a valid name of a gang"),
    ],
)
async def test_an_invalid_target_is_an_error_in_one_line(here: Shell, arguments: list[str], said: str) -> None:
    done = await here.gangctl("status", *arguments)
    assert done.code == 2
    assert said.format(here.config) in done.err
    assert done.err.count("\n") == 1


async def test_an_invalid_kubeconfig_is_an_error(here: Shell) -> None:
    here.config.write_text("clusters: [")
    done = await here.gangctl("status")
    assert done.code == 2
    assert f"the kubeconfig {here.config} can't be used" in done.err


async def test_a_server_that_is_not_there_is_named(here: Shell) -> None:
    here.configure("http://127.0.0.1:1")
    done = await here.gangctl("status")
    assert done.code == 2
    assert "didn't reach the API server" in done.err
    assert "127.0.0.1:1" in done.err


@pytest.mark.parametrize("words", ["status demo -o json", "why demo", "stop demo", "delete demo", "nodes"])
async def test_a_proxy_s_page_in_place_of_the_api_server_s_answer_is_no_bug(here: Shell, words: str) -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<html>log in</html>", content_type="text/html")

    here.api.faults.append(page)
    done = await here.gangctl(*words.split())
    assert done.code == 2
    assert "isn't JSON" in done.err
    assert "bug" not in done.err


async def test_without_the_crd_the_error_explains_how_to_install_it(here: Shell) -> None:
    async def unknown(_: web.Request) -> web.Response:
        return status(404, "NotFound", "the server could not find the requested resource")

    here.api.faults.append(on("/gangjobs", unknown))
    for words in (["status"], ["status", "demo"], ["restart", "demo"]):
        done = await here.gangctl(*words)
        assert done.code == 2
        assert "gangctl crd | kubectl apply --server-side -f -" in done.err


async def test_a_namespace_without_gangs_points_to_all_namespaces(here: Shell) -> None:
    await here.api.put("namespaces", {"metadata": {"name": "research"}})
    done = await here.gangctl("status", plugin=True)
    assert (done.code, done.out.count("kubectl gang status -A")) == (0, 1)
    done = await here.gangctl("logs", "demo")
    assert "status -A shows those of all namespaces" in done.err
    assert "there is no namespace 'other'" in (await here.gangctl("status", "-n", "other")).err


async def test_a_name_that_is_nearly_one_gives_the_one(here: Shell) -> None:
    await with_gang(here)
    assert "did you mean demo?" in (await here.gangctl("restart", "dmeo")).err
    assert "did you mean worker-1" in (await here.gangctl("logs", "demo", "wroker-1")).err
    assert "there are worker-0 to worker-1" in (await here.gangctl("inject", "demo", "x", "--hang")).err
    assert (
        "has no rank 7: there are 0 to 1 (process group worker)"
        in (await here.gangctl("logs", "demo", "--rank", "7")).err
    )


async def test_an_error_quotes_the_api_server(here: Shell) -> None:
    await with_gang(here)

    async def no(_: web.Request) -> web.Response:
        return status(403, "Forbidden", 'gangjobs.gangctl.io "demo" is forbidden: User "me" cannot patch')

    here.api.faults.append(on("/gangjobs/demo", no, "PATCH"))
    done = await here.gangctl("suspend", "demo")
    assert (done.code, done.out) == (2, "")
    assert 'User "me" cannot patch' in done.err


async def test_what_a_newer_release_has_added_to_a_gang_does_not_hide_it(here: Shell) -> None:
    newer = job("newer")
    newer["status"]["unheardOf"] = 1
    await here.api.put("gangjobs", newer)
    assert "newer" in (await here.gangctl("status")).out
    assert json.loads((await here.gangctl("status", "newer", "-o", "json")).out)["status"]["unheardOf"] == 1


async def test_the_status_says_how_the_last_restart_started_its_workers(here: Shell) -> None:
    why = "the template was not ready in time"
    started = {"forked": 1, "executed": 1, "member": "worker-1", "obstacle": why, "templateBytes": 9}
    await here.api.put("gangjobs", job("executed", incidents=[incident()]))
    await here.api.put("gangjobs", job("forked", incidents=[incident(warmStart=started)]))
    assert "last restart" not in (await here.gangctl("status", "executed")).out
    out = (await here.gangctl("status", "forked")).out
    assert f"last restart: processes forked from a template: 1 of 2; worker-1 executed its command: {why}." in out
    told = json.loads((await here.gangctl("status", "forked", "-o", "json")).out)
    assert told["status"]["incidents"][0]["warmStart"] == started


async def test_a_gang_that_cannot_be_read_is_not_listed_but_can_be_printed(here: Shell) -> None:
    await with_gang(here)
    newer = job("newer")
    newer["status"]["attempt"] = "many"
    await here.api.put("gangjobs", newer)
    done = await here.gangctl("status")
    assert "demo" in done.out
    assert "newer" not in done.out
    assert "this release of gangctl can't read gang newer (status.attempt" in done.err
    assert "status newer -o yaml shows it" in (await here.gangctl("status", "newer")).err
    assert json.loads((await here.gangctl("status", "newer", "-o", "json")).out)["status"]["attempt"] == "many"


async def test_a_change_is_waited_for_and_a_finished_gang_is_not_changed(here: Shell) -> None:
    await with_gang(here)
    patched: asyncio.Queue[bytes] = asyncio.Queue()

    async def patch(request: web.Request) -> web.Response:
        patched.put_nowait(await request.read())
        assert request.content_type == "application/merge-patch+json"
        return web.json_response(await here.api.put("gangjobs", job()))

    here.api.faults.append(on("/gangjobs/demo", patch, "PATCH"))
    restarting = asyncio.create_task(here.gangctl("restart", "demo", "--wait", "20"))
    token = json.loads(await patched.get())["spec"]["restartToken"]
    await here.api.put("gangjobs", job(attempt=2, observedRestartToken=token, message="attempt 2 runs"))
    done = await restarting
    assert (done.code, done.out.splitlines()[-1]) == (0, "demo: Running, attempt 2: attempt 2 runs")
    for words, asked in (
        (("--from-step", "7"), {"type": "Step", "step": 7}),
        (("--from-beginning",), {"type": "Beginning", "step": None}),  # It removes the step of before.
    ):
        assert (await here.gangctl("restart", "demo", *words)).code == 0
        spec = json.loads(await patched.get())["spec"]
        assert spec["restartFrom"] == {**asked, "restartToken": spec["restartToken"]}
    assert "isn't a step: use a whole number" in (await here.gangctl("restart", "demo", "--from-step", "-1")).err
    await here.api.put("gangjobs", job(phase="Failed"))
    done = await here.gangctl("restart", "demo")
    assert (done.code, patched.empty()) == (2, True)
    assert "gang demo has ended (Failed); to run it again, gangctl rerun demo, or kubectl delete gj demo" in done.err


async def test_a_restart_of_a_suspended_gang_names_resume(here: Shell) -> None:
    stored = job(phase="Suspended", message="suspended on request")
    stored["spec"]["suspend"] = True
    await here.api.put("gangjobs", stored)

    async def patch(request: web.Request) -> web.Response:
        del request
        return web.json_response(await here.api.put("gangjobs", stored))

    here.api.faults.append(on("/gangjobs/demo", patch, "PATCH"))
    done = await here.gangctl("restart", "demo")
    assert "demo: it starts when the gang is resumed: gangctl resume demo" in done.out
    done = await here.gangctl("restart", "demo", "--wait", "0.1")
    assert (done.code, "gangctl resume demo starts it" in done.err) == (1, True)


async def test_a_restart_that_ends_in_held_is_not_waited_for_any_longer(here: Shell) -> None:
    await with_gang(here)
    await here.api.put("gangjobs", job(phase="Held", message="held: the budget is used up"))
    patched: asyncio.Queue[bytes] = asyncio.Queue()

    async def patch(request: web.Request) -> web.Response:
        patched.put_nowait(await request.read())
        return web.json_response(await here.api.put("gangjobs", job(phase="Held", message="held before")))

    here.api.faults.append(on("/gangjobs/demo", patch, "PATCH"))
    restarting = asyncio.create_task(here.gangctl("restart", "demo", "--from-step", "5", "--wait", "20"))
    token = json.loads(await patched.get())["spec"]["restartToken"]
    await here.api.put("gangjobs", job(phase="Held", observedRestartToken=token, message="step 5 is not there"))
    done = await restarting
    assert done.code == 1
    assert "error: gang demo is Held, attempt 1: step 5 is not there; for details" in done.err


@pytest.mark.parametrize(("verb", "seconds"), [("restart", "nan"), ("stop", "inf"), ("suspend", "-1")])
async def test_a_wait_without_an_end_is_refused(here: Shell, verb: str, seconds: str) -> None:
    done = await here.gangctl(verb, "demo", f"--wait={seconds}")
    assert done.code == 2
    assert f"{seconds!r} isn't a number of seconds: use 0, 30, 1.5 ..." in done.err


async def test_a_missing_permission_for_inject_is_named(here: Shell) -> None:
    await with_gang(here)

    async def no(_: web.Request) -> web.Response:
        return status(403, "Forbidden", 'pods "demo-worker-1-0" is forbidden: User "me" cannot create pods/exec')

    here.api.faults.append(on("/exec", no))
    done = await here.gangctl("inject", "demo", "worker-1", "--signal", "KILL")
    assert done.code == 2
    assert 'User "me" cannot create pods/exec' in done.err
    assert "this command needs the permissions get and create pods/exec in namespace research" in done.err


@pytest.mark.parametrize(
    ("words", "sent", "code", "said"),
    [
        (
            ["--signal", "KILL"],
            [b"\x01worker process 7 was sent SIGKILL\n", b'\x03{"status":"Success"}'],
            0,
            "process 7",
        ),
        (["--exit-code", "9"], [b"\x02not permitted\n", b"\x03" + json.dumps(EXIT_3).encode()], 2, "not permitted"),
        (["--kill-supervisor"], [b"\x01supervisor process 1 is killed\n"], 0, "process 1 is killed"),
        (["--signal", "KILL"], [b"\x01worker process 7"], 0, "worker process 7"),  # The restart ended the program.
        (["--signal", "KILL"], [], 2, "the connection ended first"),
        (["--kill-sidecar"], [b'\x03{"status":"Failure","message":"python3: not found"}'], 2, "python3: not found"),
        (
            ["--signal", "KILL"],
            [b'\x03{"status":"Failure","message":"exec: \\"python3\\": executable file not found in $PATH"}'],
            2,
            "container main has no python3",
        ),
    ],
)
async def test_the_result_of_an_injection_is_printed(
    here: Shell, words: list[str], sent: list[bytes], code: int, said: str
) -> None:
    await with_gang(here)
    containers: list[str] = []

    async def execute(request: web.Request) -> web.StreamResponse:
        containers.append(request.query["container"])
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await socket.prepare(request)
        program = await socket.receive_bytes()
        compile(program[1:], "program", "exec")
        assert request.query.getall("command")[3].find(f"read({len(program) - 1})") > 0
        for message in sent:
            await socket.send_bytes(message)
        await socket.close()
        return socket

    here.api.faults.append(on("/demo-worker-1-0/exec", execute))
    done = await here.gangctl("inject", "demo", "worker-1", *words)
    assert (done.code, said in done.out + done.err) == (code, True), done
    assert containers == ["gangctl" if "--kill-sidecar" in words else "main"]


async def test_the_leaders_pod_is_deleted_without_grace(here: Shell) -> None:
    await with_gang(here)
    lease = {
        "metadata": {"name": "gangctl", "namespace": "gangctl-system"},
        "spec": {"holderIdentity": "gangctl-5d-x_1f"},
    }
    await here.api.put("leases", lease)
    deleted: list[tuple[str, bytes]] = []

    async def delete(request: web.Request) -> web.Response:
        deleted.append((request.path, await request.read()))
        return web.json_response({})

    here.api.faults.append(on("/pods/gangctl-5d-x", delete, "DELETE"))
    done = await here.gangctl("inject", "demo", "--kill-controller")
    assert done.code == 0
    assert deleted == [("/api/v1/namespaces/gangctl-system/pods/gangctl-5d-x", b'{"gracePeriodSeconds": 0}')]
    assert (
        "only --kill-controller works for the controller"
        in (await here.gangctl("inject", "demo", "controller", "--hang")).err
    )
    other = await here.gangctl("inject", "demo", "--kill-controller", "--controller", "a/b")
    assert "there is no Lease b in namespace a" in other.err


async def test_a_change_without_a_leader_prints_a_warning(here: Shell) -> None:
    await with_gang(here)
    await here.api.put("leases", {"metadata": {"name": "gangctl", "namespace": "gangctl-system"}, "spec": {}})

    async def patch(_: web.Request) -> web.Response:
        return web.json_response(job())

    here.api.faults.append(on("/gangjobs/demo", patch, "PATCH"))
    for verb in ("restart", "why"):
        assert "no controller leads now" in (await here.gangctl(verb, "demo")).err


async def test_a_command_in_a_text_acts_on_the_cluster_and_the_namespace_that_were_selected(here: Shell) -> None:
    selected = f"-n research --context lab --kubeconfig {here.config}"
    await here.api.put("gangjobs", job(phase="Failed"))
    err = (await here.gangctl("restart", "demo", *selected.split())).err
    assert f"gangctl rerun {selected} demo, or kubectl delete {selected} gj demo and apply" in err
    err = (await here.gangctl("status", "jobset/llama", *selected.split())).err
    assert f"kubectl describe {selected} jobset llama has its conditions" in err
    assert "kubectl delete gj demo" in (await here.gangctl("restart", "demo")).err


async def test_as_a_plugin_it_calls_itself_as_the_user_does(here: Shell) -> None:
    done = await here.gangctl("status", "--help", plugin=True)
    assert done.out.startswith("usage: kubectl gang status")
    assert "kubectl gang status -A" in done.out
    assert "gangctl status" not in done.out
    assert "\n  run " not in (await here.gangctl("--help", plugin=True)).out
    assert "kubectl apply -f FILE" in (await here.gangctl("run", "x.yaml", plugin=True)).err
    await with_gang(here, phase="Held")
    assert "kubectl gang restart demo goes on" in (await here.gangctl("status", "demo", plugin=True)).out
