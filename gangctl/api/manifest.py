"""Loads a manifest: YAML text to a GangJob, or to all problems in it, in terms of the YAML.

The rules are the API server's: types are not converted (``replicas: "4"`` is no number), unknown fields are rejected,
and null is not a value, because a field that is off is absent.
"""

import copy
import json
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gangctl.api.crd import KINDS_KEY, ONLY, REFUSED_KEY, Schema, gangjob_schema
from gangctl.api.gangjob import GangJob
from gangctl.api.model import CONSTRAINT_ERROR, SUBMITTED, Constraint
from gangctl.api.names import KIND
from gangctl.api.overrides import Override, apply_overrides
from gangctl.api.pod_fields import UnknownField, flat, unknown_fields
from gangctl.api.problems import ManifestError, Problem, allowed_values, path_of, shorten_value
from gangctl.api.stored import is_foreign, kind_advice
from gangctl.api.yaml_documents import Location, UnreadableError, YamlDocument, read, unpacked

__all__ = ["ManifestError", "Problem", "load_gangjob", "load_gangjobs"]


def load_gangjob(text: str, filename: str, overrides: Sequence[Override] = ()) -> GangJob:
    """The only GangJob in ``text``; all else is as for :func:`load_gangjobs`."""
    first, *more = _gangjobs(text, filename)
    if more:
        problems = [
            Problem("kind", f"{KIND} number {number}", f"one {KIND} in a file", line=one.lines.get(("kind",)))
            for number, one in enumerate(more, 2)
        ]
        raise ManifestError(filename, problems)
    return _load(first, filename, overrides)


def load_gangjobs(text: str, filename: str, overrides: Sequence[Override] = ()) -> tuple[GangJob, ...]:
    """All GangJobs in ``text``, at least one; documents of other kinds are ignored.

    A status in them is ignored, as the API server does.

    Args:
        text: YAML or JSON.
        filename: Used only in messages.
        overrides: Fields to set in each, in this order, before anything is checked.

    Raises:
        ManifestError: with all problems, not only the first.
    """
    documents = _gangjobs(text, filename)
    jobs: dict[str, GangJob] = {}
    for one in documents:
        job = _load(one, filename, overrides)
        if job.metadata.name in jobs:
            path = ("metadata", "name")
            problem = Problem(
                path_of(path), job.metadata.name, "another name for each GangJob", line=one.lines.get(path)
            )
            raise ManifestError(filename, [problem])
        jobs[job.metadata.name] = job
    return tuple(jobs.values())


def _load(document: YamlDocument, filename: str, overrides: Sequence[Override]) -> GangJob:
    if is_foreign(document.value):
        kind = shorten_value(document.value["kind"])
        line = document.lines.get(("kind",))
        raise ManifestError(filename, [Problem("kind", kind, KIND, kind_advice([document.value], filename), line)])
    if overrides:
        document, problems = apply_overrides(document, overrides)
        if problems:
            raise ManifestError(filename, problems)
    checked = _Check(document)
    job = checked.gangjob()
    if job is None:
        raise ManifestError(filename, checked.problems)
    return job


def _gangjobs(text: str, filename: str) -> tuple[YamlDocument, ...]:
    """The documents that are GangJobs; a document that is alone need not look like one."""
    try:
        documents = unpacked(read(text))
    except UnreadableError as error:
        raise ManifestError(filename, [Problem("", why=str(error), line=error.line)]) from None
    if len(documents) == 1:
        return documents
    gangs = tuple(one for one in documents if isinstance(one.value, dict) and one.value.get("kind") == KIND)
    if not gangs:
        found = f"{len(documents)} documents, none of them a {KIND}" if documents else "no document"
        others = [one.value for one in documents]
        why = kind_advice(others, filename) if any(map(is_foreign, others)) else ""
        raise ManifestError(filename, [Problem("", found, f"one {KIND}", why)])
    return gangs


class _Check:
    """Validates one document and collects its problems, at most one for each place and reason."""

    def __init__(self, document: YamlDocument) -> None:
        self._document = document
        self._problems: dict[tuple[Location, str], Problem] = {}
        self._wrong: set[Location] = set()
        for flaw in document.flaws:
            self._add(flaw.location, flaw.found, flaw.expected)

    @property
    def problems(self) -> Iterable[Problem]:
        return self._problems.values()

    def gangjob(self) -> GangJob | None:
        """The GangJob, or None if there are problems."""
        value = copy.deepcopy(self._document.value)
        if not isinstance(value, dict):
            self._add((), shorten_value(value), "a map with apiVersion, kind, metadata and spec")
            return None
        value.pop("status", None)
        if isinstance(value.get("metadata"), dict):  # kubectl writes creationTimestamp: null
            value["metadata"] = {name: one for name, one in value["metadata"].items() if one is not None}
        for location in list(_nulls(value.get("spec"), ("spec",))):
            self._add(location, "null", "a value, or no field: a field that is off is absent")
        job = self._validated(value)
        if job is None:
            # without the invalid fields, the rules between the other fields can be checked
            for location in self._wrong:
                _remove(value, location)
            self._validated(value, only_rules=True)
        for one in _unknown_fields(self._document.value):
            if one.meant:
                self._add(one.location, "an unknown field", why=f"did you mean {one.meant}?")
        return None if self._problems else job

    def _validated(self, value: Any, *, only_rules: bool = False) -> GangJob | None:
        try:
            return GangJob.model_validate_json(
                json.dumps(value), strict=True, context=SUBMITTED, by_alias=True, by_name=False
            )
        except ValidationError as error:
            for one in error.errors(include_url=False):
                self._translate(one, only_rules=only_rules)
            return None

    def _translate(self, error: ErrorDetails, *, only_rules: bool) -> None:
        location, node, parent = _located(error["loc"])
        if error["type"] == CONSTRAINT_ERROR:
            for constraint in error["ctx"]["broken"]:
                self._add_rule(location, constraint)
        elif only_rules:
            return
        elif error["type"] in {"union_tag_invalid", "union_tag_not_found"}:
            location = (*location, node[KINDS_KEY])
            self._add_value(location, node["properties"][node[KINDS_KEY]])
        elif error["type"] == "missing":
            self._add(location, "nothing", allowed_values(node))
        elif error["type"] == "extra_forbidden":
            self._add_unknown(location, node, parent)
        elif error["type"] != "too_short" or self._length(location) < node["minItems"]:  # only valid items were counted
            self._add_value(location, node)

    def _add_rule(self, location: Location, constraint: Constraint) -> None:
        reads = [(*location, *(part for part in name.split(".") if part)) for name in constraint.fields]
        beyond = [one for one in reads if one != location]
        if any(wrong[: len(one)] == one or one[: len(wrong)] == wrong for one in beyond for wrong in self._wrong):
            return  # a field that it reads is invalid already: a second message would only confuse
        self._add(reads[0], self._shown_scalar(reads[0]), why=constraint.message, wrong=False)

    def _add_value(self, location: Location, node: Schema) -> None:
        found, value = self._found(location)
        why = ""
        if isinstance(value, str) and "enum" in node:
            near = get_close_matches(value, [str(one) for one in node["enum"]], 1)
            why = node.get(REFUSED_KEY, {}).get(value) or (f"did you mean {near[0]}?" if near else "")
        self._add(location, found, allowed_values(node), why)

    def _add_unknown(self, location: Location, node: Schema, parent: Schema) -> None:
        name = str(location[-1])
        known = list(parent.get("properties", {}))
        if name in known:
            self._add(location, "a field of another kind", why=node[ONLY].belongs)
        else:
            near = get_close_matches(name, known, 1, cutoff=0.5) or [one for one in known if flat(one) == flat(name)]
            why = f"did you mean {near[0]}?" if near else f"the fields here are {', '.join(sorted(known))}"
            self._add(location, "an unknown field", why=why)

    def _add(self, location: Location, found: str, expected: str = "", why: str = "", *, wrong: bool = True) -> None:
        if location in self._wrong:
            return
        if wrong:
            self._wrong.add(location)
        problem = Problem(path_of(location), found, expected, why, self._line(location))
        self._problems.setdefault((location, why), problem)

    def _found(self, location: Location) -> tuple[str, Any]:
        value = self._document.value
        for part in location:
            if not _has(value, part):
                return "nothing", None
            value = value[part]
        return shorten_value(value), value

    def _length(self, location: Location) -> int:
        _, value = self._found(location)
        return len(value) if isinstance(value, list) else 0

    def _shown_scalar(self, location: Location) -> str:
        found, value = self._found(location)
        return "" if value is None or isinstance(value, dict | list) else found

    def _line(self, location: Location) -> int | None:
        for length in range(len(location), -1, -1):
            if location[:length] in self._document.lines:
                return self._document.lines[location[:length]]
        return None


def _located(loc: tuple[str | int, ...]) -> tuple[Location, Schema, Schema]:
    """The location in the manifest of pydantic's location, its schema, and the schema of its parent.

    Pydantic's location has the kind of a union; a manifest doesn't.
    """
    node = parent = gangjob_schema()
    location: Location = ()
    inside_kind = False
    for part in loc:
        if KINDS_KEY in node and not inside_kind:
            inside_kind = True
            continue
        inside_kind = False
        location, parent = (*location, part), node
        node = node.get("items", {}) if isinstance(part, int) else node.get("properties", {}).get(part, {})
    return location, node, parent


def _unknown_fields(value: Any) -> Iterator[UnknownField]:
    """The problems of all pod templates, as far as they are where they belong."""
    spec = value.get("spec")
    roles = spec.get("roles") if isinstance(spec, dict) else None
    for at, role in enumerate(roles if isinstance(roles, list) else ()):
        if isinstance(role, dict):
            yield from unknown_fields(role.get("template"), ("spec", "roles", at, "template"))


def _nulls(value: Any, at: Location) -> Iterator[Location]:
    """Locations of null in the spec, except in pod templates, where Kubernetes allows it."""
    match value:
        case None:
            yield at
        case dict() if at[-1] != "template":
            for name, one in value.items():
                yield from _nulls(one, (*at, name))
        case list():
            for index, one in enumerate(value):
                yield from _nulls(one, (*at, index))


def _remove(value: Any, location: Location) -> None:
    """Remove the value at the location, or the list that it is an item of."""
    while location and isinstance(location[-1], int):
        location = location[:-1]
    for part in location[:-1]:
        if not _has(value, part):
            return
        value = value[part]
    if location and isinstance(value, dict):
        value.pop(location[-1], None)


def _has(value: Any, part: str | int) -> bool:
    match value:
        case dict():
            return part in value
        case list():
            return part in range(len(value))
        case _:
            return False
