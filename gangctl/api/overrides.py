"""Sets fields of a manifest before it is checked: ``spec.roles[0].replicas=2``, as ``--set`` has it.

The rule: the schema gives the type, so ``name=8`` is text and ``replicas=8`` a number. Where the schema is open, as in
pod templates, a value is what it is in YAML. A path that the schema doesn't have must not be set.
"""

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from gangctl.api.crd import Schema, gangjob_schema
from gangctl.api.problems import Problem, allowed_values, path_of, shorten_value
from gangctl.api.yaml_documents import Location, UnreadableError, YamlDocument, read

MAX_TEXT: Final = 16_384
"""Characters of the longest override."""
_PART: Final = re.compile(r"(?:^|\.)([A-Za-z_][^.\[\]=]*)|(?:^|\.)\"([^\"]+)\"|\[([0-9]{1,5})\]")
_OPEN: Final = "x-kubernetes-preserve-unknown-fields"
_WRITABLE: Final = ("metadata", "spec")


@dataclass(frozen=True, slots=True)
class Override:
    """One field and the text of its value."""

    location: Location
    text: str


def parse_override(source: str) -> Override:
    """Parse ``PATH=VALUE``; a key with dots stands in quotes, as in ``metadata.labels."a.b/c"=x``.

    Raises:
        ValueError: it isn't of this form; the message is for users.
    """
    if len(source) > MAX_TEXT:
        raise ValueError(f"it has more than {MAX_TEXT} characters")
    parts: list[str | int] = []
    at = 0
    while at < len(source) and source[at] != "=":
        match = _PART.match(source, at)
        if match is None or (at == 0 and match[3]):
            raise ValueError(f"{source[:80]!r}: give PATH=VALUE, such as spec.roles[0].replicas=2")
        parts.append(int(match[3]) if match[3] else match[1] or match[2])
        at = match.end()
    if at == len(source) or not parts:
        raise ValueError(f"{source[:80]!r} has no value: give PATH=VALUE, such as spec.roles[0].replicas=2")
    return Override(tuple(parts), source[at + 1 :])


def apply_overrides(document: YamlDocument, overrides: Sequence[Override]) -> tuple[YamlDocument, list[Problem]]:
    """Set these fields in the document; also returns what is wrong with them. Later ones win."""
    value, problems = copy.deepcopy(document.value), []
    lines = dict(document.lines)
    for one in overrides:
        problem = _set(value, one)
        if problem is None:
            lines = {at: line for at, line in lines.items() if at[: len(one.location)] != one.location}
        else:
            problems.append(problem)
    flaws = [flaw for flaw in document.flaws if not any(_covers(one.location, flaw.location) for one in overrides)]
    return YamlDocument(value, lines, flaws), problems


def _covers(outer: Location, inner: Location) -> bool:
    return inner[: len(outer)] == outer


def _set(root: Any, override: Override) -> Problem | None:
    node: Schema | None = gangjob_schema()
    value, location = root, override.location
    if location[0] not in _WRITABLE:
        return _problem(location[:1], "a field that can't be set", f"a path below {' or '.join(_WRITABLE)}")
    for depth, part in enumerate(location):
        here = location[: depth + 1]
        below = _below(node, part)
        if isinstance(below, str):
            return _problem(here, "an unknown field" if isinstance(part, str) else "an index", why=below)
        if isinstance(part, int) != isinstance(value, list):
            what = shorten_value(value)
            return _problem(location[:depth], what, "a list" if isinstance(part, int) else "a map")
        if isinstance(part, int) and part > len(value):
            there = f"the list has {len(value)}: {f'0 to {len(value) - 1}, and ' if value else ''}{len(value)} adds one"
            return _problem(here, "an index beyond the end", why=there)
        node = below
        if depth == len(location) - 1:
            break
        if isinstance(part, int) and part == len(value):
            value.append({})
        elif isinstance(part, str) and value.get(part) is None:
            value[part] = [] if isinstance(location[depth + 1], int) else {}
        value = value[part]
    made = _typed(override.text, node)
    if isinstance(made, _Wrong):
        return _problem(location, shorten_value(override.text), made.expected)
    last = location[-1]
    if isinstance(last, int) and last == len(value):
        value.append(made)
    else:
        value[last] = made
    return None


def _below(node: Schema | None, part: str | int) -> Schema | str | None:
    """The schema of a part, None where the schema is open, or why there is no such part."""
    if node is None:
        return None
    if isinstance(part, int):
        if node.get("type") == "array":
            items: Schema = node["items"]
            return items
        return None if _OPEN in node and not node.get("properties") else "the field is no list"
    properties = node.get("properties", {})
    if part in properties:
        found: Schema = properties[part]
        return found
    if _OPEN in node:
        return None
    if node.get("type") == "array":
        return f"it is a list: give an index, such as [0].{part}"
    if not properties:
        return "the field has no fields of its own"
    near = get_close_matches(part, properties, 1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"the fields here are {', '.join(sorted(properties))}"


@dataclass(frozen=True, slots=True)
class _Wrong:
    expected: str


def _typed(text: str, node: Schema | None) -> Any:
    """The value of the text by the type that the schema gives."""
    match None if node is None else node.get("type"):
        case "string":
            return text
        case "integer":
            assert node is not None
            return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else _Wrong(allowed_values(node))
        case "boolean":
            return {"true": True, "false": False}.get(text, _Wrong("true or false"))
        case _:
            return _yaml(text, node)


def _yaml(text: str, node: Schema | None) -> Any:
    expected = "a value in YAML" if node is None else f"{allowed_values(node)} in YAML, such as {_example(node)}"
    try:
        documents = read(text)
    except UnreadableError:
        return _Wrong(expected)
    if len(documents) != 1 or documents[0].flaws:
        return "" if node is None and not text else _Wrong(expected)
    value = documents[0].value
    wanted = {"array": list, "object": dict}.get("" if node is None else str(node.get("type")))
    return value if wanted is None or isinstance(value, wanted) else _Wrong(expected)


def _example(node: Schema) -> str:
    return "[a, b]" if node.get("type") == "array" else "{name: value}"


def _problem(location: Location, found: str, expected: str = "", why: str = "") -> Problem:
    return Problem(f"--set {path_of(location)}", found, expected, why)
