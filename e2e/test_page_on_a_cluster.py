"""`gangctl ui` on a real cluster: through the real API server to the leader's pod, for those who may see the page."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

import pytest

from e2e.clusters import Cluster
from e2e.gangs import Gang, Kubectl, sleepers
from tests.wait import until

Submit = Callable[[dict[str, Any]], Gang]
SECONDS = 10


@pytest.fixture
def viewer(kubectl: Kubectl, namespace: str) -> Iterator[str]:
    """A service account that may list the gangs of its namespace, and may not see the page yet."""
    kubectl("create", "serviceaccount", "viewer", "-n", namespace)
    account = f"--serviceaccount={namespace}:viewer"
    kubectl("create", "rolebinding", "viewer", "-n", namespace, "--clusterrole=gangctl-viewer", account)
    yield f"{namespace}/viewer"
    kubectl("delete", "clusterrolebinding", namespace, "--ignore-not-found")


def shown(browser: OpenerDirector, url: str) -> tuple[str, dict[str, Any]]:
    """The first document of a stream, with its kind."""
    with browser.open(url, timeout=SECONDS) as stream:
        kind = ""
        for line in stream:
            name, _, value = line.decode().strip().partition(": ")
            if name == "event":
                kind = value
            elif name == "data" and kind != "time":
                return kind, json.loads(value)
    return "", {}


def test_those_who_may_get_it_see_the_page_of_the_leader_and_of_the_next_leader(
    submit: Submit, shared_dir: Path, cluster: Cluster, kubectl: Kubectl, namespace: str, viewer: str
) -> None:
    one = submit(sleepers("shown", replicas=2, directory=str(shared_dir)))
    one.runs(1)

    def gangctl(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gangctl", *words, "-n", namespace]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=shared_dir, env=cluster.env, stdout=pipe, stderr=pipe, text=True)

    _, error = gangctl("ui").communicate(timeout=60)
    assert "--service-account" in error, "the tests' kubeconfig has a certificate"
    refused = gangctl("ui", "--service-account", viewer)
    _, error = refused.communicate(timeout=60)
    name = f"system:serviceaccount:{namespace}:viewer"
    assert (refused.returncode, f"user {name} may not get /ui" in error) == (2, True), error

    role = "--clusterrole=gangctl-page-reader"
    kubectl("create", "clusterrolebinding", namespace, role, f"--serviceaccount={namespace}:viewer")
    with gangctl("ui", "shown", "--service-account", viewer) as child:
        try:
            assert child.stdout is not None
            address, _, gang = child.stdout.readline().strip().partition("#")
            assert gang == f"/{namespace}/shown"
            browser = build_opener(HTTPCookieProcessor())
            with browser.open(address, timeout=SECONDS) as page:
                assert isinstance(page, HTTPResponse)
                assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")
                assert b"<title>gangctl</title>" in page.read()
                stream = page.url + f"gangs/{namespace}/shown"

            def runs() -> dict[str, Any] | None:
                try:
                    kind, document = shown(browser, stream)
                except (URLError, TimeoutError, ConnectionError):
                    return None
                return document if kind == "gang" and document["ready"] == "2/2" else None

            found = until("the page shows the gang", runs, every=0.5)
            assert {cell["state"] for cell in found["cells"]} == {"Running"}
            _, listed = shown(browser, page.url + "gangs")
            assert ({row["namespace"] for row in listed["rows"]}, listed["isPartial"]) == ({namespace}, True)
            with pytest.raises(HTTPError, match="403"):
                browser.open(page.url + "gangs/kube-system/any", timeout=SECONDS)
            killed = gangctl("inject", "shown", "--kill-controller")
            assert "deleting the leading pod" in killed.communicate(timeout=60)[0]
            until("the page of the next leader shows it", runs, every=0.5)
        finally:
            child.terminate()
