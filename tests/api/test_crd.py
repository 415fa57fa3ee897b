"""The CRD keeps Kubernetes' rules for structural schemas, and ours: bounds, descriptions and defaults everywhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import cel
import jsonschema
import pytest
import yaml

from gangctl.api.crd import PRINTER_COLUMNS, crd, crd_yaml
from tests.api.apiserver import RULES, default_errors, nodes, schema

FILE = Path(__file__).parents[2] / "crds" / "gangctl.io_gangjobs.yaml"
NODES = dict(nodes(schema()))
KEYWORDS = {
    "type", "format", "title", "description", "default", "nullable", "enum", "pattern", "properties", "required",
    "items", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", RULES,
}  # fmt: skip
"""Without $ref, oneOf, anyOf, allOf, not, additionalProperties, uniqueItems and whatever else isn't structural."""


def test_the_file_in_crds_is_up_to_date() -> None:
    assert FILE.read_text(encoding="utf-8") == crd_yaml(), "python -m gangctl.api.crd > crds/gangctl.io_gangjobs.yaml"


def test_the_chart_holds_a_copy_that_can_be_packaged() -> None:
    copy = FILE.parents[1] / "charts" / "gangctl" / "files" / "crd.yaml"
    assert copy.read_bytes() == FILE.read_bytes(), "make generate"
    assert not copy.is_symlink()


def test_the_check_detects_a_stale_file(tmp_path: Path) -> None:
    stale = tmp_path / "crd.yaml"
    stale.write_text("kind: CustomResourceDefinition\n", encoding="utf-8")
    command = [sys.executable, "-m", "gangctl.api.crd", "--check"]
    assert subprocess.run([*command, str(FILE)], check=False, cwd=FILE.parents[1]).returncode == 0
    told = subprocess.run([*command, str(stale)], check=False, cwd=FILE.parents[1], capture_output=True, text=True)
    assert told.returncode == 1
    assert "stale" in told.stderr


def test_the_text_is_plain_yaml_of_the_crd() -> None:
    assert yaml.safe_load(crd_yaml()) == crd()


def test_every_node_has_one_type_and_only_structural_keywords() -> None:
    for path, node in NODES.items():
        assert node["type"] in {"object", "array", "string", "integer", "number", "boolean"}, path
        assert set(node) <= KEYWORDS, path
        assert ("properties" in node) <= (node["type"] == "object"), path
        assert ("items" in node) == (node["type"] == "array"), path


def test_an_object_without_properties_keeps_unknown_fields() -> None:
    for path, node in NODES.items():
        if node["type"] == "object" and "properties" not in node:
            assert path == "metadata" or node["x-kubernetes-preserve-unknown-fields"] is True, path


def test_required_fields_exist() -> None:
    for path, node in NODES.items():
        assert set(node.get("required", ())) <= set(node.get("properties", ())), path


def test_the_schema_has_no_rules_about_metadata() -> None:
    assert NODES["metadata"] == {"type": "object"}


def test_every_list_has_a_list_type_and_maps_have_required_keys() -> None:
    kinds: dict[str, list[str]] = {"map": [], "set": [], "atomic": []}
    for path, node in NODES.items():
        if node["type"] == "array":
            kinds[node["x-kubernetes-list-type"]].append(path)
            for key in node.get("x-kubernetes-list-map-keys", ()):
                assert key in node["items"]["required"], path
    assert kinds["map"] == ["spec.roles", "spec.recovery.checks", "spec.checkpoint.tiers", "status.conditions"]
    assert kinds["set"] == ["spec.podFailurePolicy.rules[].onExitCodes.values"]


@pytest.mark.parametrize("part", ["spec", "status"])
def test_every_list_and_string_has_a_bound(part: str) -> None:
    for path, node in NODES.items():
        if path.startswith(part):
            assert node["type"] != "array" or "maxItems" in node, path
            bounded = {"maxLength", "enum"} & set(node) or node.get("format") == "date-time"
            assert node["type"] != "string" or bounded, path


def test_every_integer_has_a_format_that_holds_its_bounds() -> None:
    for path, node in NODES.items():
        if node["type"] == "integer":
            assert node["format"] in {"int32", "int64"}, path
            assert node["format"] == "int64" or node.get("maximum", 2**31 - 1) < 2**31, path


def test_every_field_has_a_description_that_is_sentences() -> None:
    for path, node in NODES.items():
        for name, field in node.get("properties", {}).items():
            if (path, name) != ("", "metadata"):
                assert field["description"].endswith("."), f"{path}.{name}"
                assert field["description"][0].isupper() or field["description"].startswith("gangctl"), f"{path}.{name}"


def test_every_duration_has_its_unit() -> None:
    for path, node in NODES.items():
        if path.endswith("Seconds"):
            assert re.search(r"\b[Ss]econds\b", node["description"]), path


def test_every_default_is_valid_and_part_of_the_description() -> None:
    for path, node in NODES.items():
        if "default" in node:
            jsonschema.validate(node["default"], node)
            assert node["type"] == "object" or "Default: " in node["description"], path


def test_every_default_keeps_the_rules_before_the_defaults_of_its_fields_are_added() -> None:
    assert default_errors() == []


def test_every_optional_field_of_the_spec_has_a_default_or_describes_its_absence() -> None:
    for path, node in NODES.items():
        if not path.startswith("spec") or "template" in path:
            continue
        for name, field in node.get("properties", {}).items():
            text = field["description"]
            said = "If absent" in text or "Only with " in text or "Not yet supported" in text
            matcher = path.endswith("rules[]") and name.startswith("on")
            assert name in node.get("required", ()) or "default" in field or said or matcher, f"{path}.{name}"


def test_a_default_is_reached_from_an_empty_spec() -> None:
    def unreached(node: dict[str, Any], path: str, *, reached: bool) -> list[str]:
        missed = [] if reached or "default" not in node else [path]
        for name, field in node.get("properties", {}).items():
            below = reached and ("default" in field or field["type"] != "object")
            missed += unreached(field, f"{path}.{name}", reached=below)
        return missed

    spec = NODES["spec"]
    # What is absent on purpose, has no defaults to be reached from: a group, a checkpoint, a matcher of a rule, a
    # deadline that follows the steps.
    of_a_budget = [f"spec.replicaGroup.budget.{name}" for name in ("type", "maxRestarts", "windowSeconds")]
    of_a_group = [f"spec.rolling.{name}" for name in ("maxUnavailable", "minReadySeconds", "progressDeadlineSeconds")]
    of_checkpoints = [f"spec.checkpoint.{name}" for name in ("fallbackAfter", "restore", "restore.trust")]
    absent = ["spec.replicaGroup.index", *of_a_budget, *of_a_group, *of_checkpoints, "spec.progress.adaptive.factor"]
    assert unreached(spec, "spec", reached=True) == absent


def test_nothing_below_a_template_has_a_default() -> None:
    assert not [path for path, node in NODES.items() if ".template" in path and "default" in node]


def test_the_status_has_no_defaults() -> None:
    assert not [path for path, node in NODES.items() if path.startswith("status") and "default" in node]


def test_every_rule_is_cel_with_a_message_and_points_to_a_field() -> None:
    for path, node in NODES.items():
        for rule in node.get(RULES, ()):
            cel.compile(rule["rule"])
            assert rule["message"], path
            assert "\n" not in rule["message"], path
            if "fieldPath" in rule:
                assert f"{path}{rule['fieldPath']}" in NODES, rule


def test_columns_are_those_of_the_design() -> None:
    (version,) = crd()["spec"]["versions"]
    columns = version["additionalPrinterColumns"]
    narrow = [one["name"] for one in columns if not one.get("priority")]
    wide = [one["name"] for one in columns if one.get("priority")]
    assert narrow == ["PHASE", "READY", "ATTEMPT", "RESTARTS", "STEP", "AGE"]
    assert wide == ["REASON", "RESTORE"]


def test_columns_show_fields_that_exist() -> None:
    for name, kind, path, _, _ in PRINTER_COLUMNS:
        if not path.startswith(".metadata"):
            node = NODES[path.removeprefix(".").replace("[0]", "[]")]
            assert node["type"] == kind, name


def test_the_status_is_a_subresource_and_there_is_no_scale() -> None:
    (version,) = crd()["spec"]["versions"]
    assert version["subresources"] == {"status": {}}
    assert crd()["spec"]["names"]["shortNames"] == ["gj"]
    assert crd()["spec"]["scope"] == "Namespaced"
