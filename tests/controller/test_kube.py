"""The whole controller, mostly in this process, with a fake API server for what a real one doesn't do when asked."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from gangctl.cluster import clock
from gangctl.cluster.kube import contact
from gangctl.controller import flags
from gangctl.controller.kube import main
from tests.cluster.kube.fakeapi import serving, status
from tests.cluster.kube.objects import gang
from tests.controller.replicas import LEASE, QUICK, about, holder, replica, until_answered
from tests.ports import free_port
from tests.wait import until_async

MEMBERS = 4
SIDECAR = ("--sidecar-image", "registry.example/gangctl/sidecar:1")


async def test_two_replicas_are_ready_and_the_standby_names_the_leader() -> None:
    async with serving() as (api, _), replica(api, "first") as first:
        await first.until_it_leads()
        async with replica(api, "second") as second:
            await second.until_ready()
            await until_answered("the standby names the leader", second.answer, (503, first.options.address).__eq__)
            assert await first.ready() == (200, "ok\n")


async def test_a_leader_that_ends_hands_over_at_once() -> None:
    async with serving() as (api, _), replica(api, "second") as second, replica(api, "first") as first:
        await until_async("a replica holds the Lease", lambda: holder(api))
        one, other = (first, second) if holder(api) == "first" else (second, first)
        await other.until_ready()
        one.ended.set()
        await other.until_it_leads()
        assert holder(api) == other.name


async def test_the_lease_of_the_last_replica_is_released_at_the_end() -> None:
    async with serving() as (api, _):
        async with replica(api, "only") as only:
            await only.until_it_leads()
            assert holder(api) == "only"
        assert holder(api) == ""


async def test_two_controllers_that_share_no_lease_create_each_pod_once_and_write_no_status_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both lead: each of them tells the pods of its own hub, again and again, and that is all."""
    monkeypatch.setattr(contact, "CHECK_SECONDS", 0.2)
    async with serving() as (api, _), replica(api, "one") as one, replica(api, "other", "--name", "other") as other:
        await one.until_it_leads()
        await other.until_it_leads()
        await api.put("gangjobs", gang())
        await until_async("each pod learns of a hub many times", lambda: api.count("PATCH", "pods") > 20 * MEMBERS)
        assert sum(plural == "pods" for plural, _, _ in api.objects) == MEMBERS
        assert api.count("DELETE", "pods") == 0
        assert api.objects["gangjobs", "default", "g"]["status"]["attempt"] == 1
        assert api.count("PUT", "gangjobs") < 20


@pytest.mark.parametrize(
    ("plural", "answer", "said"),
    [
        (
            "gangjobs",
            lambda: web.Response(status=404, text="404 page not found"),
            "install the CRD gangjobs.gangctl.io",
        ),
        (
            "gangjobs",
            lambda: status(403, "Forbidden", 'User "x" cannot list resource "gangjobs" in API group "gangctl.io"'),
            'cannot list resource "gangjobs"',
        ),
        (
            "secrets",
            lambda: status(403, "Forbidden", 'User "x" cannot get resource "secrets"'),
            "is missing: the API server refused GET /api/v1/namespaces/default/secrets/gangctl-tls",
        ),
        (
            "leases",
            lambda: status(403, "Forbidden", 'User "x" cannot get resource "leases"'),
            "the Lease: the API server refused GET /apis/coordination.k8s.io/v1/namespaces/default/leases/gangctl",
        ),
        ("", lambda: status(503, "ServiceUnavailable", "etcd is away"), "etcd is away"),
    ],
    ids=["no CRD", "no right on gangs", "no right on its Secret", "no right on its Lease", "no API server"],
)
async def test_the_controller_waits_for_what_is_missing_and_readyz_names_it(
    plural: str, answer: Callable[[], web.StreamResponse], said: str
) -> None:
    async with serving() as (api, _):
        api.faults = [about(plural, answer)]
        async with replica(api, "early") as early:
            await early.until_ready(said)
            assert holder(api) == ""
            api.faults = []
            await early.until_ready()
            await early.until_it_leads()


async def test_a_leader_without_an_api_server_stops_leading_until_the_server_is_back() -> None:
    async with serving() as (api, _), replica(api, "only", *QUICK) as only:
        await only.until_it_leads()
        api.faults = [about("leases", lambda: status(503, "ServiceUnavailable", "etcd is away"))]
        await until_answered("it does not lead", only.answer, (503, None).__eq__)
        assert "the Lease: " in (await only.ready())[1]
        api.faults = []
        await only.until_it_leads()
        assert await only.ready() == (200, "ok\n")


async def test_sigterm_ends_the_process_with_0_and_releases_the_lease(tmp_path: Path) -> None:
    async with serving() as (api, _):
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text(
            json.dumps(
                {
                    "clusters": [{"name": "c", "cluster": {"server": api.url}}],
                    "users": [{"name": "u", "user": {}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )
        words = ("--kubeconfig", str(kubeconfig), "--namespace", "default", "--pod-name", "whole", *SIDECAR, *LEASE)
        ports = [word for name in ("hub", "health", "metrics") for word in (f"--{name}-port", str(free_port()))]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gangctl.controller.kube", *words, *ports, "--log-format", "json"),
            stderr=asyncio.subprocess.PIPE,
        )
        await until_async("the process holds the Lease", lambda: holder(api) == "whole")
        process.send_signal(signal.SIGTERM)
        _, log = await process.communicate()
        assert process.returncode == 0
        assert holder(api) == ""
        said = [json.loads(line)["message"] for line in log.splitlines()]
        assert "the controller ends; gangs keep running" in said
        assert "the Lease is released" in said


def test_a_missing_kubeconfig_is_logged_as_a_sentence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert main(["--namespace", "n", *SIDECAR, "--kubeconfig", str(tmp_path / "none")]) == 1
    assert (
        f"the controller cannot run: no cluster is configured: there is no kubeconfig at {tmp_path / 'none'}"
        in caplog.text
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--namespace (or POD_NAMESPACE) is required"),
        (("--namespace", "n"), "--sidecar-image (or GANGCTL_SIDECAR_IMAGE) is required"),
        (("--namespace", "n", *SIDECAR, "--renew-deadline", "20"), "--renew-deadline < --lease-duration"),
        (("--namespace", "n", *SIDECAR, "--retry-period", "9"), "a leader retries a few times"),
        (("--namespace", "n", *SIDECAR, "--lease-duration", "15.5"), "is not a whole number of seconds"),
        (("--namespace", "n", *SIDECAR, "--url", "http://x/"), "is not wss://HOST:PORT/v1/connect"),
        (("--namespace", "n", "--sidecar-resources", "{cpu}"), "is not JSON"),
        (("--namespace", "n", "--sidecar-resources", '{"cpu": 1}'), "the resources of a container"),
        (("--namespace", "n", "--hub-port", "70000"), "is not a port"),
        (("--namespace", "n", "--watch-namespaces", "a,B"), "'B' is not the name of a namespace"),
        (("--namespace", "n", "--sidecar-security-context", "[]"), "is not a JSON object"),
        (("--namespace", "n", "--metrics-secure", "yes"), "'yes' is neither true nor false"),
    ],
)
def test_a_wrong_flag_is_refused_with_what_is_expected(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {})
    with pytest.raises(SystemExit) as ended:
        flags.parse(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_the_environment_sets_the_defaults_of_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {
        "POD_NAMESPACE": "gangctl-system",
        "POD_NAME": "gangctl-7d9",
        "POD_IP": "fd00::7",
        "GANGCTL_NAME": "gc",
        "GANGCTL_SIDECAR_IMAGE": "registry.example/gangctl/sidecar:1",
    }
    environment["GANGCTL_SIDECAR_RESOURCES"] = '{"requests": {"cpu": "10m"}}'
    environment["GANGCTL_SIDECAR_SECURITY_CONTEXT"] = '{"runAsUser": 1000}'
    environment |= {"GANGCTL_WATCH_NAMESPACES": "a, b,a", "GANGCTL_SIDECAR_PULL_SECRETS": "one,two"}
    environment |= {"GANGCTL_SELECTOR": "team in (a, b),!mine"}
    environment |= {"GANGCTL_TLS_SECRET": "hub", "GANGCTL_METRICS_SECURE": "false"}
    monkeypatch.setattr(os, "environ", environment)
    found = flags.parse(["--name", "other"])
    assert found.settings.watch_namespaces == ("a", "b")
    assert found.settings.selector == "team in (a, b),!mine"
    assert found.settings.sidecar_security_context == {"runAsUser": 1000}
    assert found.settings.sidecar_pull_secrets == ("one", "two")
    assert (found.settings.tls_secret, found.metrics_secure) == ("hub", False)
    assert (found.settings.namespace, found.settings.name) == ("gangctl-system", "other")
    assert found.settings.url == "wss://other.gangctl-system.svc:8443/v1/connect"
    assert found.settings.server_name == "other.gangctl-system.svc"
    assert found.settings.sidecar_resources == {"requests": {"cpu": "10m"}}
    assert found.address == "wss://[fd00::7]:8443/v1/connect"
    assert found.identity.startswith("gangctl-7d9_")
    assert found.identity != flags.parse([]).identity


async def test_a_leader_answers_sidecars_only_by_the_clock_of_its_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their reports come while it still lists what the last leader wrote."""
    monkeypatch.setattr(clock._TERM, "offset", clock._TERM.offset + 3600)  # noqa: SLF001 - the wall clock was set back

    async def listing(request: web.Request) -> web.StreamResponse | None:
        is_away = holder(api) and "/gangjobs" in request.path
        return status(503, "ServiceUnavailable", "etcd is away") if is_away else None

    async with serving() as (api, _):
        api.faults.append(listing)
        async with replica(api, "only") as only:
            await only.until_it_leads()
            assert clock.now() == pytest.approx(time.time(), abs=600)
