"""The page in a real browser: while a gang of this machine restarts, and of ten thousand members. Without a cluster."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from selenium.webdriver.common.keys import Keys

from bench.decide import job, observed
from e2e import browser
from e2e.browser import Browser, chromium
from e2e.cluster.toolchain import Missing
from gangctl.api.model import changed
from gangctl.controller.loop import Loop
from gangctl.core.facts.world import Observed
from gangsidecar.wire import Phase
from tests.cli.here import Here, here, manifest
from tests.controller.fake_cluster import FakeCluster
from tests.controller.pages import page_of
from tests.core.test_bounds import fullest
from tests.wait import until

pytestmark = pytest.mark.nightly

TRAINER = """
import time, gangclient
gang = gangclient.connect()
for step in range(1, 100000):
    time.sleep(0.1)
    gang.progress(step, seconds=0.1)
"""
MARKUP = "<img src=x onerror=document.title='owned'>"


@pytest.fixture
def window() -> Iterator[Browser]:
    try:
        browser.install()
    except Missing as error:
        pytest.skip(str(error))
    with chromium() as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Here]:
    with here(tmp_path) as one:
        yield one


def test_the_page_follows_a_restart_without_a_reload_or_a_lost_focus(folder: Here, window: Browser) -> None:
    folder.write(manifest(["python3", "-c", TRAINER], replicas=4, progress={"source": {"type": "API"}}))
    run = folder.run("--ui", "--plain", OTEL_UI_URL="https://jaeger.example.com")
    until("the gang runs", folder.is_seen_running)
    address = until("the address is printed", lambda: next((w for w in run.said.split() if "/enter/" in w), None))
    window.driver.get(address)
    window.shows("#connection", "Live")
    window.shows("h1", "default/g")
    window.shows(".cells", "worker-3 Running")
    window.shows(".cells", "step")
    assert "enter" not in window.driver.current_url
    window.evaluate("window.same = true")
    window.driver.switch_to.active_element.send_keys(Keys.TAB)
    assert window.evaluate("document.activeElement.textContent") == "All gangs"

    os.kill(folder.workers()["worker-1"].pid, signal.SIGKILL)
    window.shows("#incidents + article", "Attempt 1 to 2")
    window.shows("article .cause", "worker-1 (rank 1): ended by SIGKILL")
    window.shows("article .legend", "first step")
    window.shows("article h3", "Attempt 1 to 2: restarted")
    window.shows(".facts", "Running for")
    window.shows("#news", "g: Running, attempt 2")
    assert window.text("tbody th") == "worker-1", "the member at fault comes first"
    widths = window.evaluate("[...document.querySelectorAll('article .phase')].map((bar) => bar.offsetWidth)")
    assert all(width >= 2 for width in widths), "a short phase is a sliver"
    until("the timeline is drawn", lambda: window.evaluate("document.querySelector('img.timeline').naturalWidth > 500"))
    link = window.evaluate("document.querySelector('article .trace a').href")
    assert link.startswith("https://jaeger.example.com/trace/")
    assert window.evaluate("window.same && document.activeElement.textContent") == "All gangs", "nothing was replaced"

    accessible = window.accessible()
    assert ("heading", "Incidents") in accessible
    assert any(role == "image" and "detect" in name and "first step" in name for role, name in accessible)
    assert {"navigation", "main", "status", "table", "columnheader", "rowheader"} <= {role for role, _ in accessible}

    window.driver.switch_to.active_element.send_keys(Keys.ENTER)
    window.shows("h1", "Gangs")
    window.shows("tbody tr", "default/g")
    assert window.evaluate("document.activeElement.localName") == "h1", "a reader begins with the new heading"
    window.driver.switch_to.active_element.send_keys(Keys.TAB, Keys.TAB)
    assert window.evaluate("document.activeElement.textContent") == "default/g"
    window.driver.switch_to.active_element.send_keys(Keys.ENTER)
    window.shows("h1", "default/g")

    origins = window.evaluate(
        "[...new Set(performance.getEntriesByType('resource').map((e) => new URL(e.name).origin))]"
    )
    assert origins == [window.evaluate("location.origin")]
    assert window.complaints() == []
    assert "The page needs" not in window.text("body")

    os.kill(run.child.pid, signal.SIGINT)
    run.wait()
    window.shows("#connection", "The controller does not answer")


def test_the_gangs_of_a_replica_group_are_shown_together_with_one_timeline(folder: Here, window: Browser) -> None:
    gangs = [
        {**manifest(replicas=1, replicaGroup={"name": "train", "index": at}), "metadata": {"name": name}}
        for at, name in enumerate(("zero", "one"))
    ]
    alone = {**manifest(replicas=1), "metadata": {"name": "alone"}}
    folder.write("---\n".join(map(yaml.safe_dump, [*gangs, alone])))
    run = folder.run("--ui", "--plain")
    until("the last gang runs", lambda: "alone: Running" in run.said)
    said = until("its address is printed", lambda: re.search(r"page: (\S+)#/default/zero", run.said))
    window.driver.get(f"{said[1]}#")
    window.shows("tr.group", "Replica group default/train: 2 of 2 running")
    rows = window.evaluate("[...document.querySelectorAll('tbody th')].map((one) => one.innerText.split(':')[0])")
    assert rows == ["default/alone", "Replica group default/train", "default/zero", "default/one"]
    window.all("tr.group a")[0].click()
    window.shows("h1", "Replica group default/train")
    until(
        "the timeline is drawn", lambda: window.evaluate("document.querySelector('img.timeline')?.naturalWidth > 500")
    )
    assert [one.text for one in window.all("tbody th")] == ["default/zero", "default/one"]
    window.all("tbody th a")[1].click()
    window.shows(".facts a", "train")
    window.all(".facts a")[0].click()
    window.shows("h1", "Replica group default/train")
    assert window.complaints() == []


async def test_the_page_says_why_it_shows_nothing_and_shows_it_once_it_can(window: Browser) -> None:
    leads, rights = False, {"default"}

    async def refusal(_authorization: str, namespace: str) -> str:
        return "" if namespace in rights else f"you may not list gangs in {namespace!r}"

    def loop(found: Loop) -> Loop | None:
        return found if leads else None

    async def shows(selector: str, text: str) -> None:
        await asyncio.to_thread(window.shows, selector, text)

    async with page_of(FakeCluster(), loop, "https://10.0.0.7:8445/ui/", refusal) as page:
        await asyncio.to_thread(window.driver.get, page.url)
        await asyncio.to_thread(
            window.shows, "#connection", "the page of the leader is https://10.0.0.7:8445/ui/. Trying"
        )
        leads = True
        await shows("#connection", "Live")
        await shows("tbody tr", "default/g")
        await shows("main p", "namespaces in which you may list GangJobs")
        await asyncio.to_thread(window.driver.get, f"{page.url}#/other/g")
        await shows("#connection", "you may not list gangs in 'other'. Trying again")
        rights.add("other")
        await shows("main p", "There is no such gang")
        await shows("#connection", "Live")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_ten_thousand_members_are_painted_and_no_text_becomes_markup(
    window: Browser, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    given = job(10_000)
    full = fullest("n" * 63, "/checkpoints")
    incidents = tuple(changed(one, cause=changed(one.cause, message=MARKUP)) for one in full.incidents)
    given = changed(given, status=changed(given.status, incidents=incidents, message=MARKUP))
    world = observed(given, Phase.RUNNING, 2)
    stopping = [
        replace(heard, report=replace(heard.report, phase=Phase.STOPPING)) if at % 3 == 0 else heard
        for at, heard in enumerate(world.heard)
    ]
    seen = replace(world, heard=tuple(stopping))

    def observe(_self: Loop, _uid: str) -> Observed:
        return seen

    async with page_of(FakeCluster({"u": given})) as page:
        monkeypatch.setattr(Loop, "observed", observe)
        await asyncio.to_thread(look, window, page.url, scheme)


def look(window: Browser, url: str, scheme: str) -> None:
    window.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    window.driver.get(f"{url}#/default/g")
    until("the members are painted", lambda: len(window.all("ul.cells li")) > 100)
    assert "6,666" in window.text(".counts") or "6666" in window.text(".counts")
    assert window.text(".because") == MARKUP
    assert [image.get_attribute("class") for image in window.all("img")] == ["timeline"]
    assert window.driver.title == "default/g - gangctl"
    assert window.complaints() == []
    back = window.evaluate("getComputedStyle(document.body).backgroundColor")
    assert back == {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}[scheme]
    window.command("Emulation.setDeviceMetricsOverride", width=320, height=800, deviceScaleFactor=1, mobile=True)
    until("nothing is wider than the window", lambda: window.evaluate("document.documentElement.scrollWidth <= 320"))
