"""The images hold what was tested: their requirements follow pyproject.toml and requirements.txt."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PINNED = re.compile(r"^([a-z0-9-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)


def _pins(path: Path) -> dict[str, tuple[str, str]]:
    """Package -> version and hashes."""
    return {name: (version, hashes) for name, version, hashes in PINNED.findall(path.read_text(encoding="utf-8"))}


def _dependencies(project: Path) -> set[str]:
    listed = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"]
    return {re.split(r"[^a-z0-9-]", name)[0] for name in listed} - {"gangclient", "gangsidecar"}


@pytest.mark.parametrize(
    ("image", "projects"),
    [("controller", ["pyproject.toml", "sidecar/pyproject.toml"]), ("sidecar", ["sidecar/pyproject.toml"])],
    ids=["controller", "sidecar"],
)
def test_an_image_gets_the_dependencies_of_its_projects(image: str, projects: list[str]) -> None:
    wanted = {name for project in projects for name in _dependencies(ROOT / project)}
    lines = (ROOT / f"containers/requirements-{image}.in").read_text(encoding="utf-8").splitlines()
    assert {line for line in lines if line[0] not in "#-"} == wanted
    assert _pins(ROOT / f"containers/requirements-{image}.txt").keys() >= wanted


@pytest.mark.parametrize("name", ["controller", "sidecar", "build"])
def test_an_image_is_made_of_the_versions_that_were_tested(name: str) -> None:
    pins = _pins(ROOT / f"containers/requirements-{name}.txt")
    assert pins
    assert pins.items() <= _pins(ROOT / "requirements.txt").items(), "compile it again: see the .in file beside it"


@pytest.mark.parametrize(
    "good", ["", "mirror.example:5000/team/", "registry.example/a-b/c_d", "localhost:5000", "[::1]:5000/a"]
)
def test_the_chart_takes_a_registry(good: str) -> None:
    assert re.search(_registry(), good)


@pytest.mark.parametrize(
    "bad", ["https://mirror.example", "oci://mirror.example/team", "a b", "mirror.example/a@sha256:1"]
)
def test_the_chart_takes_no_url_as_a_registry(bad: str) -> None:
    assert not re.search(_registry(), bad)


def _registry() -> str:
    schema = json.loads((ROOT / "charts/gangctl/values.schema.json").read_text(encoding="utf-8"))
    return str(schema["properties"]["global"]["properties"]["imageRegistry"]["pattern"])
