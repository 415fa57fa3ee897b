"""What an API server does with a GangJob, as far as it can be done here: defaults, the schema, list types, CEL."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import cel
import jsonschema

from gangctl.api.crd import crd

RULES = "x-kubernetes-validations"


@cache
def schema() -> dict[str, Any]:
    """The schema as it is published."""
    made: dict[str, Any] = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return made


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every node of a schema with its path."""
    yield path, node
    for name, below in node.get("properties", {}).items():
        yield from nodes(below, f"{path}.{name}" if path else name)
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")


def defaulted(value: Any, node: dict[str, Any]) -> Any:
    """The value with the defaults of the schema, from the outside inwards. A null of a declared field is dropped."""
    match value:
        case dict():
            declared = node.get("properties", {})
            made = {name: one for name, one in value.items() if one is not None or name not in declared}
            for name, below in declared.items():
                if name not in made and "default" in below:
                    made[name] = copy.deepcopy(below["default"])
                if name in made:
                    made[name] = defaulted(made[name], below)
            return made
        case list() if "items" in node:
            return [defaulted(one, node["items"]) for one in value]
        case _:
            return value


def schema_errors(value: Any) -> list[str]:
    """What the schema alone refuses."""
    validator = jsonschema.Draft202012Validator(schema())
    return [error.message for error in validator.iter_errors(defaulted(value, schema()))]


def list_errors(value: Any) -> list[str]:
    """Lists whose items must differ and don't."""
    return list(_list_errors(defaulted(value, schema()), schema()))


def cel_errors(value: Any) -> list[str]:
    """Messages of the CEL rules that the value breaks; rules about a change are left out."""
    return list(_cel_errors(defaulted(value, schema()), schema()))


def default_errors() -> list[str]:
    """Messages of the CEL rules that a default in the schema breaks by itself, without the defaults of its fields."""
    return [
        rule["message"]
        for _, node in nodes(schema())
        if "default" in node
        for rule in node.get(RULES, ())
        if "oldSelf" not in rule["rule"] and not _holds(rule["rule"], self=node["default"])
    ]


def change_errors(old: Any, new: Any) -> list[str]:
    """Messages of the CEL rules about a change of the spec."""
    before, after = defaulted(old, schema())["spec"], defaulted(new, schema())["spec"]
    rules = [rule for rule in schema()["properties"]["spec"][RULES] if "oldSelf" in rule["rule"]]
    return [rule["message"] for rule in rules if not _holds(rule["rule"], self=after, oldSelf=before)]


def _list_errors(value: Any, node: dict[str, Any]) -> Iterator[str]:
    match value:
        case dict():
            for name, below in node.get("properties", {}).items():
                if name in value:
                    yield from _list_errors(value[name], below)
        case list():
            keys = node.get("x-kubernetes-list-map-keys")
            if node.get("x-kubernetes-list-type") in {"map", "set"}:
                known = [tuple(one[key] for key in keys) if keys else one for one in value]
                if len(set(known)) < len(known):
                    yield f"{known} are not all different"
            for one in value:
                yield from _list_errors(one, node["items"])


def _cel_errors(value: Any, node: dict[str, Any]) -> Iterator[str]:
    for rule in node.get(RULES, ()):
        if "oldSelf" not in rule["rule"] and not _holds(rule["rule"], self=value):
            yield rule["message"]
    match value:
        case dict():
            for name, below in node.get("properties", {}).items():
                if name in value:
                    yield from _cel_errors(value[name], below)
        case list() if "items" in node:
            for one in value:
                yield from _cel_errors(one, node["items"])


def _holds(rule: str, **variables: Any) -> bool:
    context = cel.Context(variables)
    # Kubernetes' list library, which plain CEL doesn't have.
    context.add_function("sum", sum)
    context.add_function("isSorted", lambda items: list(items) == sorted(items))
    return bool(cel.evaluate(rule, context))
