"""What our distributions have in common: the licence, and one version, which is typed once in the file VERSION.

`make generate` writes the version where a format can read no file.
"""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import gangctl

ROOT = Path(__file__).parents[1]
VERSION = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
PROJECTS = sorted([ROOT / "pyproject.toml", *ROOT.glob("[!.]*/**/pyproject.toml")])


def _project(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", PROJECTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_distribution_reads_its_version_from_the_file(path: Path) -> None:
    project = _project(path)
    assert project["project"]["dynamic"] == ["version"]
    assert (path.parent / project["tool"]["hatch"]["version"]["path"]).resolve() == ROOT / "VERSION"
    assert importlib.metadata.version(project["project"]["name"]) == VERSION


@pytest.mark.parametrize("path", PROJECTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_distribution_brings_the_licence(path: Path) -> None:
    assert _project(path)["project"]["license-files"] == ["LICENSE"]
    assert (path.parent / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_distributions_pin_each_other_to_one_version() -> None:
    ours = {_project(path)["project"]["name"] for path in PROJECTS}
    needed = [need for path in PROJECTS for need in _project(path)["project"].get("dependencies", [])]
    pins = [need for need in needed if re.split(r"[^a-z0-9-]", need)[0] in ours]
    assert pins
    assert {need.partition("==")[2] for need in pins} == {VERSION}, "make generate"


def test_the_chart_has_the_version_of_the_controller() -> None:
    chart = yaml.safe_load((ROOT / "charts/gangctl/Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION), "make generate"


def test_the_program_knows_its_version() -> None:
    assert gangctl.__version__ == VERSION
