"""One mutant, tried: its functions are put into this process, a child of one that has imported everything.

Checks that start processes, and mistakes outside functions, need files: they get a copy of the sources, made for them.
"""

from __future__ import annotations

import ast
import gc
import inspect
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from types import CodeType, FunctionType

from tests.simulation.mutant import MUTANTS
from tests.simulation.mutant_places import ROOT, Sources, node_at, places
from tests.simulation.mutant_suite import Check, Objection, checks, first_objection

COPIED = ("bench", "crds", "gangctl", "sidecar/gangsidecar", "sidecar/static", "tests", "pyproject.toml")


def tried(trees: Mapping[str, ast.Module], checks: Sequence[Check], usual: Mapping[str, float]) -> Objection:
    """Run the checks with these sources until one objects. It changes this process.

    Args:
        trees: path of a file -> what is in it instead.
        checks: in this order.
        usual: name of a check -> seconds that it takes.
    """
    is_in_place = _put_in_place(trees)
    spent = 0.0
    for needs_files, group in groupby(checks, lambda check: check.needs_files or not is_in_place):
        some = [*group]
        objection = _in_a_copy(trees, some, usual) if needs_files else first_objection(some, usual)
        spent += objection.seconds
        if objection.check:
            return Objection(objection.check, objection.said, spent)
    return Objection(seconds=spent)


@contextmanager
def copied(trees: Mapping[str, ast.Module]) -> Iterator[Path]:
    """Make a copy of what checks need, with these sources in it."""
    with tempfile.TemporaryDirectory(prefix="gangctl-mutant-") as directory:
        for part in COPIED:
            to = Path(directory, part)
            to.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / part, to)
        for path, tree in trees.items():
            Path(directory, path).write_text(ast.unparse(tree))
        yield Path(directory)


@contextmanager
def started(tree: Path, module: str, *arguments: str, told: str = "") -> Iterator[Iterator[str]]:
    """Run a module in this checkout or in a copy, and return the lines that it prints.

    Args:
        tree: the checkout or the copy.
        module: its name.
        arguments: its arguments.
        told: its standard input.

    Raises:
        CalledProcessError: it has failed.
    """
    path = os.pathsep.join(map(str, (tree, tree / "sidecar")))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(
        command, cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(told)
        process.stdin.close()
        yield iter(process.stdout)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def asked(tree: Path, mutant: str, checks: Sequence[str], usual: Mapping[str, float]) -> Objection:
    """Try a mutant in a process of its own that runs in this checkout, or in this copy.

    Args:
        tree: the checkout or the copy.
        mutant: its name; empty for none.
        checks: names of those to run, in this order.
        usual: name of a check -> seconds that it takes.
    """
    told = json.dumps({"mutant": mutant, "checks": checks, "usual": dict(usual)})
    with started(tree, "tests.simulation.mutant_trials", told=told) as lines:
        *_, last = lines
    return Objection(**json.loads(last))


def _in_a_copy(trees: Mapping[str, ast.Module], checks: Sequence[Check], usual: Mapping[str, float]) -> Objection:
    with copied(trees) as copy:
        return asked(copy, "", [check.name for check in checks], usual)


def _put_in_place(trees: Mapping[str, ast.Module]) -> bool:
    """Give the functions of this process the code that they have in these sources; False if that isn't all of it."""
    for path, tree in trees.items():
        as_it_is = ast.parse((ROOT / path).read_text())
        if _outside_functions(as_it_is) != _outside_functions(tree):
            return False
        before = {_key(code): code for code in _functions(_compiled(as_it_is, path))}
        after = {_key(code): code for code in _functions(_compiled(tree, path))}
        changed = {key for key, code in before.items() if after[key] != code}
        known = [one for one in gc.get_objects() if isinstance(one, FunctionType) and _key(one.__code__) in changed]
        if not changed or {_key(one.__code__) for one in known} != changed:
            return False
        for function in known:
            if function.__code__.co_freevars != after[_key(function.__code__)].co_freevars:
                return False
            function.__code__ = after[_key(function.__code__)]
    return True


def _outside_functions(tree: ast.Module) -> list[str]:
    nodes = [node_at(tree, position) for _, position in places(tree)]
    return [ast.dump(node) for node in nodes if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _compiled(tree: ast.Module, path: str) -> CodeType:
    return compile(tree, str(ROOT / path), "exec", dont_inherit=True)


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _functions(code: CodeType) -> Iterator[CodeType]:
    """Those of a module and of its classes, without those within other functions."""
    for one in code.co_consts:
        if isinstance(one, CodeType) and "<" not in one.co_qualname:
            yield from (one,) if one.co_flags & inspect.CO_OPTIMIZED else _functions(one)


def main() -> None:
    """Do what :func:`asked` asks for."""
    told = json.load(sys.stdin)
    known = checks()
    some = [known[name] for name in told["checks"]]
    changes = [one.changes for one in MUTANTS if one.name == told["mutant"]]
    found = tried(Sources.of_this_tree().mutated(*changes), some, told["usual"]) if changes else None
    print(json.dumps(asdict(found or first_objection(some, told["usual"]))))


if __name__ == "__main__":
    main()
