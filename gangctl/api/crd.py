"""The CustomResourceDefinition and its structural schema, made from the pydantic types."""

import argparse
import copy
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from gangctl.api.gangjob import GangJob, caveats
from gangctl.api.names import GROUP, KIND, PLURAL, VERSION

# The structural schema of the GangJob, made from the pydantic types.
#
# The CRD, the reference and the errors of manifests are made from it. It follows Kubernetes' rules for structural
# schemas: each node has one type, without $ref and anyOf, and a union is one object with a discriminator as its first
# field. Keys that start with ``x-gangctl-`` are for gangctl itself and not part of the CRD.


Schema = dict[str, Any]

KINDS_KEY = "x-gangctl-kinds"
"""On a union: its discriminator."""
ONLY = "x-gangctl-only"
"""On a field of a union: its :class:`Only`."""
REFUSED_KEY = "x-gangctl-refused"
"""On a field: values that are rejected with a specific reason."""
RULES = "x-kubernetes-validations"

_TEMPLATE = "spec.roles[].template"
"""Fields below it get no defaults: a template is kept as written."""
_LIST_MAPS: Mapping[str, list[str]] = {
    "spec.roles": ["name"],
    "spec.recovery.checks": ["name"],
    "spec.checkpoint.tiers": ["name"],
    "status.conditions": ["type"],
}
_LIST_SETS = frozenset({"spec.podFailurePolicy.rules[].onExitCodes.values"})
_COPIED = ("enum", "pattern", "minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "format")
_INT32 = 2**31


class Only(NamedTuple):
    """The kinds of its union that a field belongs to."""

    field: str
    tag: str
    kinds: str
    """Such as ``Step or Listed``."""
    is_needed: bool

    @property
    def description(self) -> str:
        """What the field's description says of it."""
        return f"Only with {self.tag} {self.kinds}{', which needs it' if self.is_needed else ''}."

    @property
    def belongs(self) -> str:
        """The rule that another kind breaks with the field."""
        return f"{self.field} belongs to {self.tag} {self.kinds} only"

    @property
    def needs(self) -> str:
        """The rule that these kinds break without the field, where it is needed."""
        return f"{self.tag} {self.kinds} needs {self.field}"


@cache
def gangjob_schema() -> Schema:
    """The schema of the whole object. Callers must not change it."""
    raw = GangJob.model_json_schema(by_alias=True)
    return _Builder(raw.get("$defs", {})).node(raw, "")


class _Builder:
    """Converts pydantic's schema, with its definitions, to the structural one."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions

    def node(self, raw: Schema, path: str) -> Schema:
        """The schema of one value; ``path`` is of YAML names, with [] for the items of a list."""
        raw = self._resolved(raw)
        if "oneOf" in raw:
            node = self._union(raw, path)
        else:
            match raw.get("type"):
                case "object" if "properties" in raw:
                    node = self._object(raw, path)
                case "object":
                    node = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                case "array":
                    node = self._array(raw, path)
                case _:
                    node = self._scalar(raw)
        description = " ".join([" ".join(raw.get("description", "").split()), *caveats(path)]).strip()
        return {"description": description, **node} if description else node

    def _resolved(self, raw: Schema) -> Schema:
        """Resolve references, and remove "or null", because a field that is off is absent."""
        if "anyOf" in raw:
            (only,) = (one for one in raw["anyOf"] if one.get("type") != "null")
            raw = {**only, **{key: value for key, value in raw.items() if key not in {"anyOf", "default"}}}
        if "$ref" in raw:
            name = raw["$ref"].rsplit("/", 1)[-1]
            raw = {**self._definitions[name], **{key: value for key, value in raw.items() if key != "$ref"}}
        return raw

    def _scalar(self, raw: Schema) -> Schema:
        node: Schema = {"type": raw.get("type", "string")}
        node.update({key: raw[key] for key in _COPIED if key in raw})
        if "const" in raw:
            node["enum"] = [raw["const"]]
        if node["type"] == "integer":
            node["format"] = "int32" if node.get("maximum", _INT32) < _INT32 else "int64"
        if "x-refused" in raw:
            node[REFUSED_KEY] = dict(raw["x-refused"])
            node["enum"] = [*node["enum"], *raw["x-refused"]]
            node[RULES] = [
                {"rule": f"self != '{value}'", "message": f"{value} is refused: {reason}"}
                for value, reason in raw["x-refused"].items()
            ]
        return node

    def _array(self, raw: Schema, path: str) -> Schema:
        node: Schema = {"type": "array", "items": self.node(raw["items"], f"{path}[]")}
        node.update({key: raw[key] for key in _COPIED if key in raw})
        if path in _LIST_MAPS:
            node["x-kubernetes-list-type"] = "map"
            node["x-kubernetes-list-map-keys"] = _LIST_MAPS[path]
        else:
            node["x-kubernetes-list-type"] = "set" if path in _LIST_SETS else "atomic"
        return node

    def _object(self, raw: Schema, path: str) -> Schema:
        node: Schema = {"type": "object", "properties": {}}
        for name, field in raw["properties"].items():
            below = f"{path}.{name}" if path else name
            node["properties"][name] = self._field(field, below, required=name in raw.get("required", ()))
        if raw.get("required"):
            node["required"] = sorted(raw["required"])
        if raw.get("additionalProperties") is True:
            node["x-kubernetes-preserve-unknown-fields"] = True
        rules = [_rule(one, node["properties"]) for one in raw.get("x-constraints", ())]
        return {**node, RULES: rules} if rules else node

    def _field(self, raw: Schema, path: str, *, required: bool) -> Schema:
        node = self.node(raw, path)
        if required or not path.startswith("spec.") or path.startswith(_TEMPLATE):
            return node
        if "default" in raw and raw["default"] is not None:
            node["default"] = raw["default"]
        elif node["type"] == "object" and "default" not in node and "anyOf" not in raw:
            # The API server judges a default by the rules as it is, without the defaults of its fields.
            below = node["properties"].items() if RULES in node else ()
            node["default"] = {name: field["default"] for name, field in below if "default" in field}
        if "default" in node and node["type"] != "object":
            node["description"] = f"{node.get('description', '')} Default: {_shown(node['default'])}.".strip()
        return node

    def _union(self, raw: Schema, path: str) -> Schema:
        """One object for all kinds, with CEL rules about which fields belong to which kind."""
        kinds = list({one["$ref"]: self._resolved(one) for one in raw["oneOf"]}.values())
        (tag,) = set.intersection(
            *({key for key, value in one["properties"].items() if _is_tag(value)} for one in kinds)
        )
        values: dict[str, Schema] = {value: one for one in kinds for value in _tags(one["properties"][tag])}
        told = "; ".join(
            f"{', '.join(_tags(one['properties'][tag]))}: {' '.join(one['description'].split())[:-1]}" for one in kinds
        )
        properties: dict[str, Schema] = {tag: {"description": f"{told}.", "type": "string", "enum": list(values)}}
        default = next(
            (one["properties"][tag]["default"] for one in kinds if "default" in one["properties"][tag]), None
        )
        whole: dict[str, Any] = {}
        if default is not None:
            properties[tag]["default"] = default
            properties[tag]["description"] += f" Default: {default}."
            whole[tag] = default
        rules: list[Schema] = []
        for one in kinds:
            mine = list(_tags(one["properties"][tag]))
            is_mine = " || ".join(f"self.{tag} == '{value}'" for value in mine)
            object_ = self._object(one, path)
            for name, node in object_["properties"].items():
                if name == tag:
                    continue
                if name in properties:
                    raise ValueError(f"{path}: two kinds have a field {name}")
                shown = f" Default: {_shown(node['default'])}." if "default" in node else ""
                only = Only(name, tag, " or ".join(mine), name in one.get("required", ()))
                # The API server would add a field's default to all kinds: the whole union gets one default instead.
                value = node.pop("default", None)
                if value is not None and default in mine:
                    whole[name] = value
                text = re.sub(re.escape(shown) + "$", "", node.get("description", ""))
                properties[name] = {**node, "description": f"{text} {only.description}{shown}", ONLY: only}
                rules.append(
                    {"rule": f"!has(self.{name}) || {is_mine}", "message": only.belongs, "fieldPath": f".{name}"}
                )
                if only.is_needed:
                    rules.append(
                        {"rule": f"!({is_mine}) || has(self.{name})", "message": only.needs, "fieldPath": f".{tag}"}
                    )
            rules += [{**rule, "rule": f"!({is_mine}) || ({rule['rule']})"} for rule in object_.get(RULES, ())]
        return {
            "type": "object",
            "properties": properties,
            **({"default": whole} if whole else {"required": [tag]}),
            **({RULES: rules} if rules else {}),
            KINDS_KEY: tag,
        }


def _is_tag(field: Schema) -> bool:
    return "const" in field or "enum" in field


def _tags(field: Schema) -> Iterable[str]:
    return (field["const"],) if "const" in field else tuple(field["enum"])


def _rule(constraint: Mapping[str, Any], properties: Mapping[str, Schema]) -> Schema:
    rule: Schema = {"rule": constraint["rule"], "message": constraint["message"]}
    first = constraint["fields"][0]
    node: Schema = {"properties": properties}
    for part in first.split("."):
        if part not in node.get("properties", {}) or part == "metadata":  # of metadata the CRD declares nothing
            return rule
        node = node["properties"][part]
    return {**rule, "fieldPath": f".{first}"}


def _shown(default: Any) -> str:
    match default:
        case bool():
            return "true" if default else "false"
        case "":
            return "empty"
        case dict():
            return ", ".join(f"{key} {value}" for key, value in default.items())
        case list():
            return "[" + ", ".join(map(str, default)) + "]" if default else "empty"
        case _:
            return str(default)


# The CustomResourceDefinition, made from the types.
#
# ``python -m gangctl.api.crd`` prints it; with ``--check FILE`` it checks whether FILE is up to date.


NAME: Final = f"{PLURAL}.{GROUP}"
HEADER: Final = "# Made by `python -m gangctl.api.crd` from the types in gangctl/api. Change those.\n"

ROLES_RULE: Final = {
    # A list-map is equal in any order of its items, but the order of the roles decides who gets which rank.
    "rule": "self.suspend || oldSelf.suspend || "
    "(self.roles == oldSelf.roles && self.roles.map(r, r.name) == oldSelf.roles.map(r, r.name))",
    "message": "the roles can only be changed while the gang is suspended: set suspend to true, then change them",
    "fieldPath": ".roles",
}
GANG_SCHEDULING_RULE: Final = {
    "rule": "self.gangScheduling == oldSelf.gangScheduling",
    "message": "gangScheduling can't be changed, because pods keep their PodGroup: delete the gang and create it anew",
    "fieldPath": ".gangScheduling",
}
"""Transition rules on the spec, which a single manifest can't violate."""

PRINTER_COLUMNS: Final = (
    ("PHASE", "string", ".status.phase", "Summary of where the gang is", 0),
    ("READY", "string", ".status.ready", "Members that are ready or run, of those required", 0),
    ("ATTEMPT", "integer", ".status.attempt", "Number of the current try of the whole gang", 0),
    ("RESTARTS", "integer", ".status.restarts.counted", "Restarts that were charged to the budget", 0),
    ("STEP", "integer", ".status.progress.step", "Highest step reported in this attempt", 0),
    ("AGE", "date", ".metadata.creationTimestamp", "Time since the gang was created", 0),
    ("REASON", "string", ".status.incidents[0].cause.reason", "Cause of the last incident", 1),
    ("RESTORE", "integer", ".status.restorePoint.step", "Step that this attempt was restored from", 1),
)


def crd() -> dict[str, Any]:
    """The CustomResourceDefinition, ready to apply."""
    schema = _published(gangjob_schema())
    # the API server owns metadata, and checks version and kind before it applies this schema
    schema["properties"]["metadata"] = {"type": "object"}
    for name in ("apiVersion", "kind"):
        del schema["properties"][name]["enum"]
    schema["required"] = ["spec"]
    schema["properties"]["spec"][RULES].extend((dict(ROLES_RULE), dict(GANG_SCHEDULING_RULE)))
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["gj"],
                "categories": ["all"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(*one) for one in PRINTER_COLUMNS],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def crd_yaml() -> str:
    """Content of the file in ``crds/``."""
    return HEADER + yaml.safe_dump(crd(), sort_keys=False, width=120, allow_unicode=True)


def _column(name: str, kind: str, path: str, description: str, priority: int) -> dict[str, Any]:
    column = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return {**column, "priority": priority} if priority else column


def _published(node: Schema) -> Schema:
    """A copy without the keys for gangctl itself."""
    return {
        key: [_published(one) if isinstance(one, dict) else copy.deepcopy(one) for one in value]
        if isinstance(value, list)
        else _published(value)
        if isinstance(value, dict)
        else value
        for key, value in node.items()
        if not key.startswith("x-gangctl-")
    }


def main() -> int:
    """Print the CRD, or check a file; the exit code is 1 if the file is stale."""
    parser = argparse.ArgumentParser(prog="python -m gangctl.api.crd", description="The CRD of the GangJob.")
    parser.add_argument("--check", metavar="FILE", type=Path, help="say whether FILE is up to date")
    file = parser.parse_args().check
    if file is None:
        sys.stdout.write(crd_yaml())
    elif not file.exists() or file.read_text(encoding="utf-8") != crd_yaml():
        sys.stderr.write(f"{file} is stale: python -m gangctl.api.crd > {file}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
