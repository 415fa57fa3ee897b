"""What a controller keeps of a stored GangJob: small, and nothing is lost."""

from __future__ import annotations

import copy
import json
import tracemalloc
from typing import Any

import pytest
from pydantic import ValidationError

from gangctl.api.roles import roles_hash
from gangctl.api.stored import Compact, read_compact, read_stored
from tests.api.test_stored import OBJECT
from tests.cluster.kube.pod.podcases import CASES, Case


def stored(case: Case) -> dict[str, Any]:
    """The gang of a case, as the API server stores it."""
    found: dict[str, Any] = case.job.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return found


def of(**template: Any) -> dict[str, Any]:
    """An object whose template has these fields, too."""
    made = copy.deepcopy(OBJECT)
    made["spec"]["roles"][0]["template"] |= template
    return made


def fat(variables: int) -> dict[str, Any]:
    """An object whose template has so many environment variables."""
    made = copy.deepcopy(OBJECT)
    env = [{"name": f"E{at}", "value": f"v{at}"} for at in range(variables)]
    made["spec"]["roles"][0]["template"]["spec"]["containers"][0]["env"] = env
    made["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(env)}
    made["metadata"]["managedFields"] = [{"fieldsV1": {f'k:{{"name":"E{at}"}}': {} for at in range(variables)}}]
    return made


def read(value: dict[str, Any]) -> Compact:
    return read_compact(json.loads(json.dumps(value)))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_templates_are_kept_as_they_were_written(case: Case) -> None:
    compact, whole = read(stored(case)).stored.job, read_stored(stored(case)).job
    for ours, theirs, text in zip(compact.spec.roles, whole.spec.roles, stored(case)["spec"]["roles"], strict=True):
        assert ours.template.written == theirs.template.written == text["template"]
        assert ours.worker.command == theirs.worker.command


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_hash_of_the_roles_is_that_of_the_whole_ones(case: Case) -> None:
    assert roles_hash(read(stored(case)).stored.job.spec.roles) == roles_hash(case.job.spec.roles)


def test_the_hash_of_large_templates_is_that_of_the_whole_ones() -> None:
    large = of(metadata={"annotations": {str(at): f"{at * 2**61 % 9973 * 7**40}" for at in range(4000)}})
    assert len(read(large).stored.job.spec.roles[0].template.kept) > 64 * 1024
    assert roles_hash(read(large).stored.job.spec.roles) == roles_hash(read_stored(large).job.spec.roles)


def test_the_caller_may_change_what_it_gets() -> None:
    template = read(OBJECT).stored.job.spec.roles[0].template
    template.written["spec"]["containers"].clear()
    assert template.written["spec"]["containers"]


def test_objects_that_differ_in_their_templates_alone_differ() -> None:
    assert read(of(metadata={"labels": {"a": "b"}})) != read(of(metadata={"labels": {"a": "c"}}))
    assert read(OBJECT) == read(OBJECT)


def test_a_megabyte_of_environment_is_kept_in_less_than_a_fifth_of_its_size() -> None:
    text = json.dumps(fat(11_000)).encode()
    assert len(text) > 1_000_000
    tracemalloc.start()
    kept = [read_compact(json.loads(text)) for _ in range(4)]
    took = tracemalloc.get_traced_memory()[0] / 4
    tracemalloc.stop()
    assert kept[0].template_bytes > 300_000
    assert took < len(text) / 5


def test_the_size_is_that_of_all_templates_together() -> None:
    size = len(json.dumps(OBJECT["spec"]["roles"][0]["template"], separators=(",", ":")))
    assert read(OBJECT).template_bytes == size
    two = copy.deepcopy(OBJECT)
    two["spec"]["roles"].append({**two["spec"]["roles"][0], "name": "other"})
    assert read(two).template_bytes == 2 * size


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"containers": [{"name": "m"}]}},
        {"spec": {"containers": [{"name": "m", "command": ["w"], "livenessProbe": {"exec": {}}}]}},
        {"spec": {"containers": [{"name": "m", "command": ["w"]}], "restartPolicy": "Always"}},
        {"spec": {"containers": ["m"]}},
        {"spec": {"containers": {}}},
        {"spec": {}},
        {"spec": []},
        {"metadata": []},
    ],
)
def test_what_is_refused_whole_is_refused_in_the_same_words(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as whole:
        read_stored(of(**change))
    with pytest.raises(ValidationError) as compact:
        read(of(**change))
    assert [one["msg"] for one in compact.value.errors()] == [one["msg"] for one in whole.value.errors()]


def test_an_unknown_field_beside_a_template_is_ignored_and_named() -> None:
    newer = copy.deepcopy(OBJECT)
    newer["spec"]["roles"][0] |= {"shape": "ring"}
    newer["spec"]["roles"][0]["template"] |= {"flavor": 1}
    found = read(newer).stored
    assert set(found.ignored) == {"spec.roles.0.shape", "spec.roles.0.template.flavor"}
    assert found.job.spec.roles[0].template.written["spec"] == OBJECT["spec"]["roles"][0]["template"]["spec"]
