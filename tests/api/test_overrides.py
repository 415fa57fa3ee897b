"""`--set PATH=VALUE`: fields of a manifest that are set before it is checked, typed by the schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gangctl.api.gangjob import GangJob, Launch, Windowed
from gangctl.api.manifest import ManifestError, load_gangjob
from gangctl.api.overrides import parse_override
from tests.api.manifests import MINIMAL

CONTAINER = "spec.roles[0].template.spec.containers[0]"


def with_set(*sources: str, manifest: dict[str, Any] = MINIMAL) -> GangJob:
    return load_gangjob(json.dumps(manifest), "demo.yaml", [parse_override(one) for one in sources])


def test_the_schema_gives_the_type_of_a_value() -> None:
    job = with_set(
        "spec.roles[0].replicas=8", "spec.suspend=true", "metadata.name=8", "spec.roles[0].launch=PerProcess"
    )
    assert (job.spec.roles[0].replicas, job.spec.suspend, job.metadata.name) == (8, True, "8")
    assert job.spec.roles[0].launch is Launch.PER_PROCESS


def test_what_is_absent_on_the_way_is_made() -> None:
    job = with_set("spec.recovery.budget.maxRestarts=3", f"{CONTAINER}.env[0].name=A", f"{CONTAINER}.env[0].value=b=c")
    assert job.spec.recovery.budget == Windowed(max_restarts=3)
    assert (job.spec.roles[0].worker.model_extra or {})["env"] == [{"name": "A", "value": "b=c"}]


def test_a_list_and_a_map_are_given_in_yaml() -> None:
    tier = "{name: a, scope: Shared, source: {type: Directory, directory: /x, layout: Orbax}}"
    job = with_set(f"{CONTAINER}.command=[sh, -c, exit]", f"spec.checkpoint.tiers=[{tier}]")
    assert job.spec.roles[0].worker.command == ("sh", "-c", "exit")
    assert job.spec.checkpoint is not None
    assert job.spec.checkpoint.tiers[0].name == "a"


def test_in_a_template_a_value_is_what_it_is_in_yaml() -> None:
    job = with_set("spec.roles[0].template.spec.hostNetwork=true", 'metadata.labels."a.b/c"=x')
    assert (job.spec.roles[0].template.spec.model_extra or {})["hostNetwork"] is True
    assert (job.metadata.model_extra or {})["labels"] == {"a.b/c": "x"}


def test_the_later_of_two_wins_and_the_given_document_is_unchanged() -> None:
    assert with_set("spec.roles[0].replicas=8", "spec.roles[0].replicas=2").spec.roles[0].replicas == 2
    assert MINIMAL["spec"]["roles"][0]["replicas"] == 4


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "spec.roles[0].replica=2",
            "spec.roles[0].replica: found an unknown field: did you mean replicas?",
        ),
        ("spec.roles[0].replicas=x", 'spec.roles[0].replicas: found "x", expected an integer from 1 to 10000'),
        ("spec.suspend=yes", 'spec.suspend: found "yes", expected true or false'),
        ("spec.roles.replicas=2", "it is a list: give an index, such as [0].replicas"),
        ("spec.roles[3].replicas=2", "the list has 1: 0 to 0, and 1 adds one"),
        ("spec.recovery[0]=2", "the field is no list"),
        ("spec.roles[0].name.x=1", "the field has no fields of its own"),
        ("spec.recovery=1", "expected a map in YAML, such as {name: value}"),
        (f"{CONTAINER}.command=sh", "in YAML, such as [a, b]"),
        (f"{CONTAINER}.args=[", "expected a value in YAML"),
        (f"{CONTAINER}.image[0]=x", 'found "x", expected a list'),
        ("status.attempt=2", "expected a path below metadata or spec"),
        ("kind=Job", "expected a path below metadata or spec"),
    ],
)
def test_a_path_or_value_that_the_schema_does_not_have_is_refused(source: str, said: str) -> None:
    with pytest.raises(ManifestError) as raised:
        with_set(source)
    assert said in str(raised.value)
    assert str(raised.value).startswith("demo.yaml: --set ")


def test_a_value_of_the_right_type_is_checked_like_one_in_the_file() -> None:
    with pytest.raises(
        ManifestError, match=r"spec\.roles\[0\]\.replicas: found 0, expected an integer from 1 to 10000"
    ):
        with_set("spec.roles[0].replicas=0")


def test_an_override_repairs_a_manifest() -> None:
    broken = json.loads(json.dumps(MINIMAL))
    broken["spec"]["roles"][0]["replicas"] = "four"
    assert with_set("spec.roles[0].replicas=4", manifest=broken).spec.roles[0].replicas == 4


@pytest.mark.parametrize(
    "source", ["", "x", "=2", "spec..roles=1", "[0]=1", "spec.roles[x]=1", "spec roles", "a" * 20_000]
)
def test_what_is_no_path_and_value_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match=r"PATH=VALUE|characters"):
        parse_override(source)
