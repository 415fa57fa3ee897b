from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from gangctl import __version__
from gangctl.cluster.errors import Conflict, Retryable, Terminal
from gangctl.cluster.kube import client as requests
from gangctl.cluster.kube import credentials
from gangctl.cluster.kube.client import AlreadyExists, Client, Forbidden, NoAnswer, NotFound, Rejected, ResourceExpired
from gangctl.cluster.kube.credentials import Credentials, load_credentials
from tests.cluster.kube.fakeapi import FakeApi, serving, status
from tests.wait import until_async

POD = "/api/v1/namespaces/default/pods/p"


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", Rejected),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", ResourceExpired),
        (413, "RequestEntityTooLarge", Rejected),
        (422, "Invalid", Rejected),
        (429, "TooManyRequests", Retryable),
        (500, "InternalError", Retryable),
        (503, "ServiceUnavailable", Retryable),
    ],
)
async def test_each_status_code_raises_its_kind_of_error(code: int, reason: str, kind: type[Exception]) -> None:
    async with serving() as (api, client):

        async def refuse(_request: web.Request) -> web.Response:
            return status(code, reason, "pods is forbidden: exceeded quota: small")

        api.faults.append(refuse)
        with pytest.raises(kind, match="pods is forbidden: exceeded quota: small") as found:
            await client.request("GET", POD)
        assert type(found.value) is kind


@pytest.mark.parametrize(
    ("header", "seconds"), [("2", 2.0), ("9999999999", 30.0), ("", 0.0), ("-1", 0.0), ("soon", 0.0)]
)
async def test_an_overloaded_api_server_names_the_time_to_wait(header: str, seconds: float) -> None:
    async with serving() as (api, client):

        async def refuse(_request: web.Request) -> web.Response:
            answer = status(429, "TooManyRequests", "later")
            answer.headers["Retry-After"] = header
            return answer

        api.faults.append(refuse)
        with pytest.raises(Retryable) as refused:
            await client.request("GET", POD)
        assert refused.value.after == seconds


async def test_a_rejection_keeps_the_api_servers_message() -> None:
    async with serving() as (api, client):

        async def refuse(_request: web.Request) -> web.Response:
            return status(422, "Invalid", 'Pod "p" is invalid: spec.containers[0].image: Required value')

        api.faults.append(refuse)
        with pytest.raises(Rejected) as found:
            await client.request("POST", POD, body=b"{}")
    assert found.value.message == 'Pod "p" is invalid: spec.containers[0].image: Required value'


async def test_the_beginning_of_a_proxys_page_is_the_message() -> None:
    async with serving() as (api, client):

        async def proxy(_request: web.Request) -> web.Response:
            return web.Response(status=502, text="<html>\nbad   gateway</html>")

        api.faults.append(proxy)
        with pytest.raises(Retryable, match=r"failed at GET .*: <html> bad gateway</html>"):
            await client.request("GET", POD)


async def test_a_request_ends_at_its_time_limit() -> None:
    async with serving() as (api, client):
        forever = asyncio.Event()

        async def hang(_request: web.Request) -> None:
            await forever.wait()

        api.faults.append(hang)
        with pytest.raises(NoAnswer, match=r"didn't answer GET .* within 0\.1 s"):
            await client.request("GET", POD, timeout=0.1)
        forever.set()


async def test_an_unreachable_api_server_can_be_retried() -> None:
    async with serving() as (api, _):
        access = api.credentials()
    async with Client(access) as client:
        with pytest.raises(NoAnswer, match="didn't reach the API server"):
            await client.request("GET", POD)


async def test_every_request_has_a_user_agent() -> None:
    async with serving() as (api, client):
        with pytest.raises(NotFound):
            await client.request("GET", POD)
    assert api.headers[0]["User-Agent"] == f"gangctl/{__version__}"


async def test_the_guard_stops_writes_and_no_reads() -> None:
    async with serving() as (api, client):

        def closed() -> None:
            raise Retryable("this controller doesn't lead")

        client.guard = closed
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            with pytest.raises(Retryable, match="doesn't lead"):
                await client.request(method, POD, body=b"{}")
        assert api.requests == []
        with pytest.raises(NotFound):
            await client.request("GET", POD)
        with pytest.raises(NotFound):
            await client.request("DELETE", POD, body=b"{}", unguarded=True)


async def test_the_guard_stops_a_write_that_aiohttp_repeats() -> None:
    """aiohttp repeats a PUT when a kept connection turns out to be closed. By then, the process may no longer lead."""
    leading, arrived = True, 0
    connections: set[asyncio.StreamWriter] = set()

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal leading, arrived
        connections.add(writer)
        with suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n{}"):
                arrived += 1
                if arrived == 2:
                    leading = False
                    break
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        connections.discard(writer)
        writer.close()

    def guard() -> None:
        if not leading:
            raise Retryable("this controller doesn't lead")

    server = await asyncio.start_server(answer_once, "127.0.0.1", 0)
    api = FakeApi(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with server, Client(api.credentials()) as client:
        client.guard = guard
        await client.request("PUT", POD, body=b"{}")
        with pytest.raises(Retryable, match="doesn't lead"):
            await client.request("PUT", POD, body=b"{}")
        for one in connections:
            one.write_eof()  # aiohttp forgets a connection that it was not allowed to use
        await until_async("the connection is closed", lambda: not connections)
    assert arrived == 2


async def test_a_refused_token_is_renewed_once_and_the_request_repeated() -> None:
    async with serving() as (api, _):
        tokens = ["old"]

        async def renew() -> None:
            tokens.append("new")

        async def check(request: web.Request) -> web.Response:
            good = request.headers["Authorization"] == "Bearer new"
            return web.Response(text="welcome") if good else status(401, "Unauthorized", "Unauthorized")

        api.faults.append(check)
        access = Credentials(
            server=api.url, tls=None, namespace="x", authorization=lambda: f"Bearer {tokens[-1]}", renew=renew
        )
        async with Client(access) as client:
            assert await client.request("GET", POD) == b"welcome"
            tokens.append("bad")
            access.authorization = lambda: "Bearer bad"
            with pytest.raises(Terminal, match="Unauthorized"):
                await client.request("GET", POD)
    assert len(api.requests) == 4


async def test_a_line_may_be_longer_than_a_buffer() -> None:
    async with serving() as (api, client):

        async def stream(request: web.Request) -> web.StreamResponse:
            answer = web.StreamResponse()
            await answer.prepare(request)
            for part in (b'{"a":', b'"' + b"x" * 3_000_000 + b'"}\n{"b"', b":1}\n", b'{"c":2}'):
                await answer.write(part)
            return answer

        api.faults.append(stream)
        async with client.lines(POD, query={}) as lines:
            found = [json.loads(line) async for line in lines]
    assert [*map(len, found)] == [1, 1, 1]
    assert len(found[0]["a"]) == 3_000_000


async def test_a_silent_stream_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "SILENCE_SECONDS", 0.1)
    async with serving() as (_, client):

        async def read() -> None:
            async with client.lines("/api/v1/pods", query={"watch": "1", "resourceVersion": "100"}) as lines:
                async for _ in lines:
                    pass

        with pytest.raises(Retryable, match="timed out"):
            await read()


async def test_the_error_of_an_unusable_kubeconfig_names_it(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("kube")
    with pytest.raises(Terminal, match=r"there is no kubeconfig at .*none"):
        await load_credentials(folder / "none", None)
    wrong = folder / "wrong"
    wrong.write_text("contexts: []\n")
    with pytest.raises(Terminal, match=r"the kubeconfig .*wrong can't be used"):
        await load_credentials(wrong, None)
    good = folder / "good"
    good.write_text(
        "clusters: [{name: c, cluster: {server: 'http://here:1/'}}]\n"
        "users: [{name: u, user: {token: t}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u, namespace: team}}]\n"
        "current-context: x\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(good))
    found = await load_credentials(None, None)
    assert (found.server, found.namespace, found.authorization()) == ("http://here:1", "team", "Bearer t")


@pytest.mark.parametrize(
    ("server", "environment", "proxy"),
    [
        ("https://api.example:6443", {"HTTPS_PROXY": "http://proxy:1"}, "http://proxy:1"),
        ("http://api.example:6443", {"HTTPS_PROXY": "http://proxy:1"}, None),
        ("https://api.example:6443", {"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "other,.example"}, None),
        ("https://10.96.0.1:443", {"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "example, 10.0.0.0/8"}, None),
        ("https://11.96.0.1:443", {"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "10.0.0.0/8"}, "http://proxy:1"),
        ("https://[fd00::1]:443", {"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "fd00::/16"}, None),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://proxy:1"}, None),
        ("https://localhost:6443", {"HTTPS_PROXY": "http://proxy:1"}, None),
    ],
)
def test_the_proxy_is_the_one_that_kubectl_would_take(
    server: str, environment: dict[str, str], proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    access = FakeApi().credentials()
    access.server = server
    assert access.proxy_to_use() == proxy
    access.proxy = "socks5://proxy:1"
    with pytest.raises(Terminal, match=r"socks5://proxy:1 can't be used: .* http:// and https:// proxies only"):
        access.proxy_to_use()


async def test_a_netrc_file_changes_no_request(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path_factory.mktemp("home") / "netrc"
    netrc.write_text("default login anonymous password x\n")
    monkeypatch.setenv("NETRC", str(netrc))
    async with serving() as (api, _):
        access = api.credentials()
        access.authorization = lambda: "Bearer t"
        async with Client(access) as client:
            with pytest.raises(NotFound):
                await client.request("GET", POD)


def _authority() -> bytes:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubernetes")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    made = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


async def test_a_pod_uses_its_service_account_and_reads_its_token_again(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = tmp_path_factory.mktemp("account")
    monkeypatch.setattr(credentials, "ACCOUNT", account)
    monkeypatch.setenv("HOME", str(account))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(Terminal, match="is automountServiceAccountToken off"):
        await load_credentials(None, None)
    for name, text in {"token": "one\n", "namespace": "gangctl-system", "ca.crt": ""}.items():
        (account / name).write_text(text)
    with pytest.raises(Terminal, match="the pod's service account can't be used"):
        await load_credentials(None, None)
    (account / "ca.crt").write_bytes(_authority())
    found = await load_credentials(None, None)
    assert (found.server, found.namespace) == ("https://[fd00::1]:443", "gangctl-system")
    assert found.authorization() == "Bearer one"
    (account / "token").write_text("two")
    assert found.authorization() == "Bearer one"
    await found.renew()
    assert found.authorization() == "Bearer two"
