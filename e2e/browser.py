"""A headless Chromium of Debian's, driven as a user would."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.remote.webelement import WebElement

from e2e.cluster import toolchain
from e2e.cluster.toolchain import Missing
from tests.wait import until

PACKAGES: Final = ("chromium", "chromium-driver")
FLAGS: Final = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-extensions")


def install() -> None:
    """Install what is missing of Chromium.

    Raises:
        Missing: it can't be installed here.
    """
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        toolchain.require_root()
        toolchain.install_packages(*PACKAGES)
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        raise Missing("there is no chromium and chromedriver in PATH")


class Browser:
    """One window. An element is found by a CSS selector."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def command(self, name: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol, and its answer."""
        return self.driver.execute_cdp_cmd(name, parameters)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; the page's Content-Security-Policy does not bind the tools."""
        return self.command("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def all(self, selector: str) -> list[WebElement]:
        """The elements, in order."""
        return self.driver.find_elements("css selector", selector)

    def text(self, selector: str) -> str:
        """What the page shows of an element; empty while there is none."""
        found = self.evaluate(f"document.querySelector({selector!r})?.innerText")
        return str(found or "")

    def shows(self, selector: str, text: str) -> None:
        """Wait until the element shows this text."""
        until(f"{selector} shows {text!r}; it is {self.text(selector)!r}", lambda: text in self.text(selector))

    def accessible(self) -> list[tuple[str, str]]:
        """Role and name of everything that a screen reader sees, in order."""
        nodes = self.command("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored") and "role" in node
        ]

    def complaints(self) -> list[str]:
        """What the browser has logged: errors of scripts, and what the Content-Security-Policy forbade."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]


@contextmanager
def chromium(width: int = 1280, height: int = 1000) -> Iterator[Browser]:
    """A browser without a profile."""
    options = ChromeOptions()
    for flag in (*FLAGS, f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options, ChromeService(shutil.which("chromedriver")))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
