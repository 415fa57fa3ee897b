"""The supervisor as a static executable: it has every module that it imports. `e2e/test_any_image.py` runs it."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from encodings.aliases import aliases
from pathlib import Path

import pytest

from gangsidecar import install
from tests.pythons import every
from tests.sidecar.supervisor.frozen import OF_ARCHIVES, only, refusing
from tests.wait import SECONDS

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "sidecar" / "static"
LIST = STATIC / "modules.txt"
ENTRY = "gangsidecar.supervisor.__main__"
BUILT_IN = "_gangsys"
OLDEST = 13
"""The minor version of the Python that is linked."""
ALL_OF_THEM = """
import sys
sys.path.insert(0, sys.argv[1])
import importlib
for name in sys.argv[2].split(","):
    importlib.import_module(name)
"""


def listed() -> tuple[set[str], set[str]]:
    """What the supervisor imports, and what is imported late, as the file says."""
    first, late = (
        {line for line in part.splitlines() if line and not line.startswith("#")}
        for part in LIST.read_text(encoding="ascii").split("\n\n")
    )
    return first, late


def sources() -> dict[str, ast.Module]:
    """Module -> its tree, of all that the archive has."""
    names = {path: path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in install.sources()}
    return {names[path]: ast.parse(source) for path, source in install.sources().items()}


def imports(tree: ast.AST, *, functions: bool) -> Iterator[str]:
    """Modules that this imports, but not for the types alone; with what is imported in functions, or without."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if node.module.startswith("gangsidecar"))
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        elif functions or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from imports(node, functions=functions)


def supervisors() -> tuple[set[str], set[str]]:
    """The modules that a supervisor imports: ours, and the standard library's.

    It imports some of ``start`` for their constants; their functions run in the worker's interpreter.
    """
    trees = sources()
    waiting, ours, library = [ENTRY], set[str](), set[str]()
    while waiting:
        name = waiting.pop()
        if name in ours or name not in trees:
            continue
        ours.add(name)
        waiting.append(name.rpartition(".")[0])
        found = set(imports(trees[name], functions=not name.startswith("gangsidecar.start.")))
        waiting += [one for one in found if one.startswith("gangsidecar")]
        library |= {one for one in found if not one.startswith("gangsidecar")}
    return ours, library


def test_the_list_has_exactly_what_the_supervisor_imports() -> None:
    """A module that is missing would be missed only when a supervisor runs into it, in a pod."""
    _, library = supervisors()
    first, late = listed()
    assert library - OF_ARCHIVES - {BUILT_IN} == first
    assert not first & late


def codecs(tree: ast.AST) -> Iterator[str]:
    """The modules of the codecs that this asks for by name. No import names them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            named = [one.value for one in node.keywords if one.arg == "encoding"]
            named += node.args[:1] if getattr(node.func, "attr", "") in {"encode", "decode"} else []
            for name in named:
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    plain = name.value.lower().replace("-", "_")
                    yield f"encodings.{aliases.get(plain, plain)}"


def asked_for() -> set[str]:
    """The modules of the codecs that the supervisor asks for."""
    ours, trees = supervisors()[0], sources()
    return {codec for name in ours if not name.startswith("gangsidecar.start.") for codec in codecs(trees[name])}


def test_the_list_has_each_codec_that_the_supervisor_asks_for() -> None:
    assert asked_for() <= listed()[1]


def test_a_codec_that_is_not_in_the_list_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = install.sources()
    source = b"def left(one):\n    return one.encode('unicode_escape')\n"
    monkeypatch.setattr(install, "sources", lambda: {**before, "gangsidecar/supervisor/kernel.py": source})
    assert asked_for() - listed()[1] == {"encodings.unicode_escape"}


def test_a_module_that_is_not_in_the_list_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = install.sources()
    changed = {**before, "gangsidecar/supervisor/kernel.py": b"def left():\n    import decimal\n    return decimal\n"}
    monkeypatch.setattr(install, "sources", lambda: changed)
    assert "decimal" in supervisors()[1]


def test_every_module_of_the_supervisor_but_those_of_start_is_reached() -> None:
    ours, _ = supervisors()
    missed = {name for name in sources() if name not in ours}
    assert {name for name in missed if not name.startswith("gangsidecar.start")} == set()


def python_3_13() -> str:
    found = every().get(OLDEST)
    if found is None:
        pytest.skip(f"this machine has no Python 3.{OLDEST}")
    return found


def test_what_is_frozen_is_enough_to_import_the_supervisor(tmp_path: Path) -> None:
    """As freeze.py finds it: the listed modules and what importing these imports."""
    python = python_3_13()
    (tmp_path / "config.c").write_text("".join(f'{{"{name}", PyInit_{name}}},' for name in sorted(extensions(python))))
    subprocess.run(
        [python, "-IS", "-B", str(STATIC / "freeze.py"), "config.c"], cwd=tmp_path, check=True, timeout=SECONDS
    )
    table = [
        line.split('"')[1] for line in (tmp_path / "frozen.h").read_text().splitlines() if line.startswith('    {"')
    ]
    linked = [line[len("MODULE(") : -1] for line in (tmp_path / "inittab.h").read_text().splitlines()]
    names = {*table, *linked, "marshal", "sys", "builtins", "_imp", "_warnings", "_string"}
    ours = sorted(name for name in supervisors()[0] if name != "gangsidecar")
    code = only(names, (3, OLDEST)) + ALL_OF_THEM
    command = [python, "-IS", "-B", "-c", code, str(ROOT / "sidecar"), ",".join(ours)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert {name for name in table if name.startswith("gangsidecar")} >= {*ours}


@pytest.mark.parametrize("late", ["import decimal", "import _strptime", "'\\t'.encode('unicode_' + 'escape')"])
def test_a_supervisor_of_the_tests_finds_nothing_that_its_executable_lacks(late: str) -> None:
    done = subprocess.run([sys.executable, "-IS", "-c", refusing() + late], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "not frozen: " in done.stderr or "unknown encoding: unicode_escape" in done.stderr


def test_a_module_in_c_that_libpython_lacks_ends_the_build(tmp_path: Path) -> None:
    (tmp_path / "config.c").write_text('{"posix", PyInit_posix},')
    command = [python_3_13(), "-IS", "-B", str(STATIC / "freeze.py"), "config.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 1
    assert "this libpython has no " in done.stderr
    assert "_socket" in done.stderr


def extensions(python: str) -> set[str]:
    """The names of the modules in C that this interpreter can import."""
    code = "import sys, os; print(*sys.builtin_module_names, *(name.split('.')[0] for folder in sys.path[1:] if "
    code += "os.path.isdir(folder) for name in os.listdir(folder) if name.endswith('.so')))"
    return set(subprocess.run([python, "-IS", "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_the_executable_is_built_and_runs_in_an_empty_root(tmp_path: Path) -> None:
    """Needs Debian's packages; the end-to-end tests build it in a root folder that has them."""
    if shutil.which("gcc") is None or not [
        *Path("/usr/lib/python3.13").glob("config-3.13-*-linux-gnu/libpython3.13.a")
    ]:
        pytest.skip("no gcc or no libpython3.13-dev of Debian; `make e2e` builds the executable in Debian")
    for name in ("once", "again"):
        subprocess.run([STATIC / "build.sh", tmp_path / name], check=True, capture_output=True, timeout=110)
    assert (tmp_path / "once").read_bytes() == (tmp_path / "again").read_bytes()
    enter = ["chroot", str(tmp_path)] if os.geteuid() == 0 else []
    command = [*enter, "/once" if enter else str(tmp_path / "once"), "--help"]
    assert "supervise the worker" in subprocess.run(command, check=True, capture_output=True, text=True, env={}).stdout
