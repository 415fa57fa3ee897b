"""A manifest is as good for ``gangctl`` as for an API server."""

from __future__ import annotations

import copy

import pytest
import yaml

from gangctl.api.names import SIGNALS
from tests.api.apiserver import RULES, cel_errors, change_errors, defaulted, list_errors, nodes, schema, schema_errors
from tests.api.bad_manifest import Bad, Check
from tests.api.cases import BAD, GOOD
from tests.api.manifests import FULL, MINIMAL, loaded, manifest, refusal, role, with_role


@pytest.mark.parametrize("name", GOOD)
def test_a_good_manifest_is_accepted_by_python_schema_and_cel(name: str) -> None:
    made = GOOD[name]
    assert refusal(made) == ""
    assert schema_errors(made) == []
    assert list_errors(made) == []
    assert cel_errors(made) == []


def test_the_manifest_with_every_field_is_accepted_by_all() -> None:
    made = yaml.safe_load(FULL)
    assert refusal(FULL) == ""
    assert schema_errors(made) == []
    assert cel_errors(made) == []


@pytest.mark.parametrize("bad", BAD, ids=[bad.name for bad in BAD])
def test_a_bad_manifest_is_rejected_with_the_path(bad: Bad) -> None:
    said = refusal(bad.manifest)
    assert any(line.startswith(f"demo.yaml:1: {bad.path}:") and bad.says in line for line in said.splitlines()), said


@pytest.mark.parametrize("bad", BAD, ids=[bad.name for bad in BAD])
def test_the_api_server_rejects_a_bad_manifest_if_its_rules_can(bad: Bad) -> None:
    match bad.found_by:
        case Check.SCHEMA:
            assert schema_errors(bad.manifest)
        case Check.CEL:
            assert schema_errors(bad.manifest) == []
            assert any(bad.cel in message for message in cel_errors(bad.manifest))
        case Check.LIST_MAP:
            assert schema_errors(bad.manifest) == []
            assert list_errors(bad.manifest)
        case Check.GANGCTL:
            assert schema_errors(bad.manifest) == []
            assert list_errors(bad.manifest) == []
            assert cel_errors(bad.manifest) == []


def test_every_cel_rule_is_broken_by_a_case() -> None:
    broken = {message for bad in BAD if bad.found_by is Check.CEL for message in cel_errors(bad.manifest)}
    rules = [rule for _, node in nodes(schema()) for rule in node.get(RULES, ())]
    # Which field belongs to which kind is made by one loop, and needs no case for each.
    made = {one["message"] for one in rules if " belongs to " in one["message"]}
    made |= {one["message"] for one in rules if one["message"].startswith(("type ", "strategy "))}
    of_changes = {one["message"] for one in rules if "oldSelf" in one["rule"]}
    assert {one["message"] for one in rules} - made - of_changes == broken - made


def test_roles_change_only_while_the_gang_is_suspended() -> None:
    suspended = with_role(replicas=2)
    suspended["spec"]["suspend"] = True
    assert change_errors(MINIMAL, MINIMAL) == []
    assert change_errors(MINIMAL, manifest(restartToken="x")) == []
    assert change_errors(MINIMAL, with_role(replicas=2)) != []
    assert change_errors(MINIMAL, suspended) == []
    assert change_errors(suspended, with_role(replicas=3)) == []


def test_gang_scheduling_never_changes() -> None:
    suspended, grouped = manifest(suspend=True), manifest(suspend=True, gangScheduling={"type": "PodGroup"})
    assert change_errors(grouped, manifest(gangScheduling={"type": "PodGroup"})) == []
    assert any("gangScheduling can't be changed" in message for message in change_errors(suspended, grouped))
    assert any("gangScheduling can't be changed" in message for message in change_errors(grouped, suspended))


def test_the_order_of_roles_counts_as_a_change() -> None:
    one, other = role("a"), role("b")
    assert change_errors(manifest(roles=[one, other]), manifest(roles=[other, one])) != []


def test_a_manifest_with_the_servers_defaults_means_the_same() -> None:
    for made in GOOD.values():
        assert loaded(defaulted(copy.deepcopy(made), schema())).spec == loaded(made).spec


def test_signals_are_those_of_linux() -> None:
    assert SIGNALS["SIGKILL"] == 9
    assert SIGNALS["SIGSYS"] == 31
    assert sorted(SIGNALS.values()) == list(range(1, 32))
