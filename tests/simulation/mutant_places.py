"""Where a mutant's mistakes go: places in the sources that are found by their meaning, and not by their text.

A place is a function (``gather``, ``Hub.publish``), or a name that a module or a class assigns, in any file. What is
replaced there is an expression, some of the operands of an ``and`` or an ``or``, a keyword argument, or statements that
follow each other. Its syntax tree must be there exactly once. So a mutant does not notice how a file is formatted, what
else it holds and where it lies. ``module.name`` says which function is meant where two files have both.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from textwrap import dedent
from typing import Any

ROOT = Path(__file__).parents[2]
MUTATED = ("gangctl", "sidecar/gangsidecar", "tests/simulation/controller.py")
"""Folders and files of which mutants are made."""

Position = tuple[int, ...]
"""Of a place in its file: which item of the module's body, and of that class's body."""


class MisplacedError(Exception):
    """What a mutant replaces isn't there exactly once: the rule has changed, and the mutant must be made anew."""


@dataclass(frozen=True)
class Change:
    """In this place, this code becomes other code."""

    place: str
    old: str
    new: str


@dataclass(frozen=True)
class Slot:
    """Where something stands in a syntax tree: some items of a list, or one attribute of a node."""

    holder: ast.AST
    field: str
    first: int = 0
    count: int = -1
    """Items of the list; -1 where there is no list."""

    def put(self, nodes: list[ast.AST]) -> None:
        """Replace what stands there. A block of which nothing is left does nothing."""
        if self.count < 0:
            setattr(self.holder, self.field, nodes[0])
            return
        items = getattr(self.holder, self.field)
        items[self.first : self.first + self.count] = nodes
        if not items and self.field == "body":
            items.append(ast.Pass())


@dataclass(frozen=True, eq=False)
class Sources:
    """The product's files, by their path below the root."""

    texts: Mapping[str, str]

    @classmethod
    def of_this_tree(cls) -> Sources:
        """Those of this checkout."""
        paths = [path for name in MUTATED for path in sorted((ROOT / name).rglob("*.py")) or [ROOT / name]]
        return cls({str(path.relative_to(ROOT)): path.read_text() for path in paths})

    @cache  # noqa: B019 - there are few of these, and they live as long as the process
    def tree(self, path: str) -> ast.Module:
        """The syntax tree of a file. It is shared: do not change it."""
        return ast.parse(self.texts[path])

    @cached_property
    def places(self) -> dict[str, list[tuple[str, Position]]]:
        """Name of each place, also by ``module.name`` -> in which files, and where in them, it is."""
        found: dict[str, list[tuple[str, Position]]] = {}
        for path, text in self.texts.items():
            for name, position in places(ast.parse(text)):
                for known_as in (name, f"{Path(path).stem}.{name}"):
                    found.setdefault(known_as, []).append((path, position))
        return found

    def located(self, change: Change, changed: Mapping[str, ast.Module]) -> tuple[str, Position]:
        """Return the file and the place in it that holds what is to be changed.

        Args:
            change: what is looked for.
            changed: trees that differ from the sources, by path.

        Raises:
            MisplacedError: it is not there exactly once.
        """
        old, _ = parsed(change.old, change.new)
        found = [
            (path, position)
            for path, position in self.places.get(change.place, ())
            for _ in find(node_at(changed.get(path) or self.tree(path), position), old)
        ]
        if len(found) != 1:
            raise MisplacedError(f"{change.place} has this {len(found)} times: {change.old}")
        return found[0]

    def mutated(self, changes: tuple[Change, ...]) -> dict[str, ast.Module]:
        """Make the changes, and return the trees of the files that have got any.

        Raises:
            MisplacedError: what a change replaces is not there exactly once.
        """
        changed: dict[str, ast.Module] = {}
        for change in changes:
            path, position = self.located(change, changed)
            before = changed.get(path) or self.tree(path)
            place = deepcopy(node_at(before, position))
            old, new = parsed(change.old, change.new)
            [slot] = find(place, old)
            slot.put(_spliced(slot, new))
            changed[path] = _with_node(before, position, ast.fix_missing_locations(place))
        return changed


def places(tree: ast.AST, within: str = "", position: Position = ()) -> Iterator[tuple[str, Position]]:
    """Each function and each name that is assigned, in a module or in a class of it, and where it is."""
    for at, node in enumerate(getattr(tree, "body", ())):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield f"{within}{name}", (*position, at)
            case ast.ClassDef(name=name):
                yield from places(node, f"{within}{name}.", (*position, at))
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield f"{within}{name}", (*position, at)


def node_at(tree: ast.AST, position: Position) -> ast.AST:
    """Return the place of a tree that is there."""
    for at in position:
        tree = getattr(tree, "body")[at]  # noqa: B009 - a module or a class, as places() has found
    return tree


def _with_node(tree: Any, position: Position, node: ast.AST) -> Any:
    """A tree that has another node there."""
    if not position:
        return node
    other = copy(tree)
    other.body = [*tree.body]
    other.body[position[0]] = _with_node(tree.body[position[0]], position[1:], node)
    return other


def parsed(old: str, new: str) -> tuple[list[ast.AST], list[ast.AST]]:
    """Two pieces of code: both are one expression, or both are statements."""
    if (one := _expression(old)) and (other := _expression(new)):
        return [one], [other]
    return [*ast.parse(dedent(old)).body], [*ast.parse(dedent(new)).body]


def find(root: ast.AST, old: list[ast.AST]) -> list[Slot]:
    """Return everywhere in the tree that this stands."""
    wanted = [ast.dump(one) for one in old]
    found = []
    for holder in ast.walk(root):
        for field, value in ast.iter_fields(holder):
            if isinstance(value, list):
                found += [Slot(holder, field, at, len(old)) for at in _runs(value, old, wanted)]
            elif len(old) == 1 and type(value) is type(old[0]) and ast.dump(value) == wanted[0]:
                found.append(Slot(holder, field))
        match holder, old:
            case ast.BoolOp(op=op, values=values), [ast.BoolOp(op=same, values=operands)] if type(op) is type(same):
                wanted_operands = [ast.dump(one) for one in operands]
                runs = _runs(values, operands, wanted_operands) if len(values) > len(operands) else []
                found += [Slot(holder, "values", at, len(operands)) for at in runs]
            case ast.Call(keywords=keywords), [ast.Assign(targets=[ast.Name(id=name)], value=value)]:
                as_keyword = ast.keyword(name, value)
                runs = _runs(keywords, [as_keyword], [ast.dump(as_keyword)])
                found += [Slot(holder, "keywords", at, 1) for at in runs]
    return found


def _runs(items: Sequence[ast.AST], old: Sequence[ast.AST], wanted: list[str]) -> list[int]:
    """Where in the list the nodes follow each other."""
    starts = range(len(items) - len(old) + 1) if old else range(0)
    kinds = [type(one) for one in old]
    return [
        at
        for at in starts
        if [type(one) for one in items[at : at + len(old)]] == kinds
        and [ast.dump(one) for one in items[at : at + len(old)]] == wanted
    ]


def _spliced(slot: Slot, new: list[ast.AST]) -> list[ast.AST]:
    """As what the new code stands in the slot: as operands, or as a keyword argument."""
    match slot, new:
        case Slot(holder=ast.BoolOp(op=op), field="values"), [ast.BoolOp(op=same, values=operands)] if type(op) is type(
            same
        ):
            return [*operands]
        case Slot(field="keywords"), [ast.Assign(targets=[ast.Name(id=name)], value=value)]:
            return [ast.keyword(name, value)]
    return new


def _expression(code: str) -> ast.AST | None:
    try:
        return ast.parse(f"({code.strip()}\n)", mode="eval").body if code.strip() else None
    except SyntaxError:
        return None
