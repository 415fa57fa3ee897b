"""Every snippet of the docs works: Python is executed, manifests are checked, commands are parsed by gangctl itself.

Of frameworks that are not installed here (torch, Lightning, transformers, Orbax), and of what a snippet leaves to its
reader (``load``, ``train``, ``model``), there are stand-ins that take every call. All runs in this one process.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import os
import pkgutil
import re
import shlex
import sys
import time
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import Any, Final
from unittest.mock import MagicMock

import pytest
import yaml

import gangclient
from gangctl.cli.main import main, parsed_command

ROOT: Final = Path(__file__).parents[1]
BASE: Final = yaml.safe_load("""
apiVersion: gangctl.io/v1alpha1
kind: GangJob
metadata: {name: snippet}
spec:
  roles:
  - name: worker
    replicas: 2
    template: {spec: {containers: [{name: trainer, image: python, command: [python, train.py]}]}}
""")
"""What a fragment of a manifest is put into."""
TIER: Final = {"name": "shared", "scope": "Shared"}
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK: Final = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
IMPORT: Final = re.compile(r"import |from \S+ import ")
COMMAND: Final = re.compile(r"(?:\$ )?(gangctl|kubectl gang) .*")
FRAMEWORKS: Final = (
    "torch",
    "torch.distributed",
    "torch.distributed.checkpoint",
    "torch.distributed.distributed_c10d",
    "torch.distributed.checkpoint.state_dict",
    "lightning",
    "lightning.pytorch",
    "transformers",
)
ADAPTERS: Final = [one.name for one in pkgutil.iter_modules(gangclient.__path__) if not one.name.startswith("_")]
MISSING: Final = [name for name in FRAMEWORKS if importlib.util.find_spec(name.partition(".")[0]) is None]
READERS: Final = {
    "STEPS": 4,
    "steps": 4,
    "first": 1,
    "last": 4,
    "step": 3,
    "own": 0.5,
    "state": {},
    "os": os,
    "time": time,
}
"""What a snippet takes as given and computes with. Everything else may be anything."""
RESTORES: Final[tuple[dict[str, str], ...]] = (
    {},
    {"GANG_RESTORE_STEP": "2", "GANG_RESTORE_PATH": "step-2", "GANG_RESTORE_TIER": "shared"},
)


def blocks(*languages: str) -> list[Any]:
    """The code blocks in these languages, with names for pytest."""
    return [
        pytest.param(dedent(body), id=f"{page.relative_to(ROOT)}-{number}")
        for page in PAGES
        for number, (_, language, body) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")))
        if language in languages
    ]


def python_blocks() -> list[Any]:
    """The blocks of Python, each with what the blocks before it on its page import."""
    made, imports, page = list[Any](), "", ""
    for one in blocks("python"):
        before, page = page, one.id.rpartition("-")[0]
        imports = imports if page == before else ""
        made.append(pytest.param(imports, *one.values, id=one.id))
        imports += "".join(f"{line}\n" for line in one.values[0].splitlines() if IMPORT.match(line))
    return made


def framework(name: str) -> MagicMock:
    """A stand-in for a framework. Its classes can be derived from."""
    made = MagicMock(__version__="99", __name__=name, __spec__=MagicMock())
    made.Callback = made.TrainerCallback = object
    made.get_state_dict.return_value = ({}, {})
    return made


def free_names(tree: ast.Module) -> set[str]:
    """The names that a snippet uses and never binds."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)} | set(dir(builtins))
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom():
                bound.update((one.asname or one.name).partition(".")[0] for one in node.names)
            case ast.FunctionDef():
                bound.update((node.name, *(one.arg for one in node.args.args)))
            case ast.ExceptHandler(name=str(name)):
                bound.add(name)
    return {node.id for node in names} - bound


@pytest.mark.parametrize("restore", RESTORES, ids=["fresh", "restored"])
@pytest.mark.parametrize(("imports", "snippet"), python_blocks())
def test_a_python_snippet_runs(
    imports: str, snippet: str, restore: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {**restore, "GANG_TERMINATION_LOG": str(tmp_path / "log")}.items():
        monkeypatch.setenv(name, value)
    for name in MISSING:
        monkeypatch.setitem(sys.modules, name, framework(name))
    for name in ADAPTERS:  # An import by another test must not stand in for one that is missing on the page.
        monkeypatch.setattr(gangclient, name, None, raising=False)
        monkeypatch.delattr(gangclient, name)
        monkeypatch.setitem(sys.modules, f"gangclient.{name}", gangclient)
        monkeypatch.delitem(sys.modules, f"gangclient.{name}")
    sys.modules["torch.distributed.distributed_c10d"].rendezvous.return_value = iter([(None, 0, 1)])
    monkeypatch.setattr("jax.distributed.initialize", MagicMock())  # It waits for the other processes.
    if snippet.startswith("except"):
        snippet = f"try:\n    raise gangclient.Restart(stop)\n{snippet}"
    snippet = re.sub(r"\breturn$", "raise SystemExit", snippet, flags=re.MULTILINE)
    tree = ast.parse(snippet)
    names = {**dict.fromkeys(free_names(tree), MagicMock()), "gang": gangclient.connect(), **READERS}
    names.pop("gangclient", None)
    exec(imports, names)
    with suppress(SystemExit, gangclient.Restart):
        exec(compile(tree, "snippet", "exec"), names)


def manifests() -> list[Any]:
    """The manifests of gangs, complete or not."""
    return [
        pytest.param(found, id=f"{one.id}-{number}")
        for one in blocks("yaml")
        for number, found in enumerate(yaml.safe_load_all(one.values[0]))
        if found.get("kind", "GangJob") == "GangJob" and "nodeSignals" not in found
    ]


@pytest.mark.parametrize("fragment", manifests())
def test_a_manifest_passes_gangctl_check(
    fragment: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    match fragment:
        case {"source": source}:
            spec: dict[str, Any] = {"checkpoint": {"tiers": [{**TIER, "source": source}]}}
        case {"command": command}:
            spec = {"roles": [{"template": {"spec": {"containers": [{"command": command}]}}}]}
        case {"template": _}:
            spec = {"roles": [fragment]}
        case {"podFailurePolicy": _}:
            spec = fragment
        case _:
            spec = fragment.get("spec", {})
    whole = merged(BASE, {**fragment, "spec": spec} if "kind" in fragment else {"spec": spec})
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(whole))
    assert main(["check", "job.yaml"]) in {0, 1}, capsys.readouterr().err


def merged(base: Any, other: Any) -> Any:
    """The base with what the other says, item by item; `...` says nothing."""
    match base, other:
        case _, "...":
            return base
        case dict(), dict():
            return {key: merged(base.get(key), other.get(key, base.get(key))) for key in {**base, **other}}
        case [first, *rest], [other_first, *others]:
            return [merged(first, other_first), *(merged(first, one) for one in others), *(rest if not others else [])]
        case _:
            return other


def commands() -> list[str]:
    """The command lines of gangctl."""
    text = "\n".join(one.values[0] for one in blocks("", "console", "sh")).replace("\\\n", " ")
    lines = (line.partition("  #")[0].strip() for line in text.splitlines())
    found = (part.strip() for line in lines if COMMAND.fullmatch(line) for part in re.split(r"[;|>] ", line))
    return sorted({part.removeprefix("$ ") for part in found if COMMAND.fullmatch(part)})


@pytest.mark.parametrize("line", commands())
def test_a_command_line_is_one_that_gangctl_understands(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        parsed_command(shlex.split(re.sub("^(kubectl gang|gangctl) ", "", line)))
    except SystemExit as ended:
        raise AssertionError(capsys.readouterr().err) from ended
