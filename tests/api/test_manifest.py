"""What a manifest says wrongly is said back with its line, its path, what was found and what is allowed."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gangctl.api.gangjob import DirectorySource, Roles
from gangctl.api.manifest import ManifestError, load_gangjob
from gangctl.api.yaml_documents import MAX_VALUES, read
from tests.api.manifests import FULL, MINIMAL, loaded, manifest, refusal, with_container, with_role
from tests.effort import examples

TEXT = yaml.safe_dump(MINIMAL, sort_keys=False)
MANY = """\
apiVersion: gangctl.io/v1alpha1
kind: GangJob
metadata: {name: demo}
spec:
  suspend: null
  recovery:
    holdTimeoutSeconds: 0
    isolationTimeoutSeconds: 3
  roles:
  - name: worker
    replicas: four
    replica: 3
    template:
      spec:
        restartPolicy: Always
        containers:
        - name: w
          livenessProbe: {}
  podFailurePolicy:
    rules:
    - {action: Count}
    - {onExitCodes: {operator: In, values: [3, 2]}}
"""


def test_the_manifest_with_every_field_is_read_as_written() -> None:
    job = load_gangjob(FULL, "demo.yaml")
    assert job.metadata.name == "llama"
    assert job.spec.roles[0].worker.name == "trainer"
    assert job.spec.roles[1].group == ""
    assert isinstance(job.spec.success_policy, Roles)
    assert job.spec.pod_failure_policy.rules[0].on_exit_codes is not None
    assert job.spec.checkpoint is not None
    assert isinstance(job.spec.checkpoint.tiers[1].source, DirectorySource)
    assert job.spec.checkpoint.tiers[1].source.pattern == "step-{step}"


def test_a_template_keeps_unknown_kubernetes_fields() -> None:
    template = load_gangjob(FULL, "demo.yaml").spec.roles[0].template.model_dump(by_alias=True)
    assert template["metadata"] == {"labels": {"app": "llama"}}
    assert template["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert template["spec"]["volumes"] == [{"name": "scratch", "emptyDir": None}]
    assert template["spec"]["containers"][1]["resources"] == {"limits": {"nvidia.com/gpu": 8}}


def test_json_is_a_manifest_too() -> None:
    assert loaded(MINIMAL) == load_gangjob(TEXT, "demo.yaml")


def test_all_problems_are_reported_at_once_with_their_lines() -> None:
    assert [(one.line, one.path) for one in _error(MANY).problems] == [
        (5, "spec.suspend"),
        (7, "spec.recovery.holdTimeoutSeconds"),
        (8, "spec.recovery.isolationTimeoutSeconds"),
        (11, "spec.roles[0].replicas"),
        (12, "spec.roles[0].replica"),
        (15, "spec.roles[0].template.spec.restartPolicy"),
        (16, "spec.roles[0].template.spec.containers"),
        (16, "spec.roles[0].template.spec.containers"),
        (21, "spec.podFailurePolicy.rules[0]"),
        (22, "spec.podFailurePolicy.rules[1].action"),
        (22, "spec.podFailurePolicy.rules[1].onExitCodes.values"),
    ]


def test_a_problem_is_one_line_with_what_was_found_and_what_is_allowed() -> None:
    said = refusal(TEXT.replace("replicas: 4", "replicas: four"))
    assert said == 'demo.yaml:8: spec.roles[0].replicas: found "four", expected an integer from 1 to 10000'


def test_nothing_of_pydantic_shows() -> None:
    said = refusal(MANY)
    assert "http" not in said
    assert "pydantic" not in said
    assert "Input should be" not in said


def test_the_kind_of_a_union_is_no_part_of_a_path() -> None:
    said = refusal(manifest(successPolicy={"type": "Roles", "roles": ["A"]}))
    assert "spec.successPolicy.roles[0]: " in said
    assert "Roles.roles" not in said


def test_a_status_in_a_manifest_is_ignored() -> None:
    assert loaded({**MINIMAL, "status": {"attempt": "x", "what": 1}}) == loaded(MINIMAL)


def test_metadata_that_kubectl_writes_is_accepted() -> None:
    job = loaded({**MINIMAL, "metadata": {"name": "demo", "creationTimestamp": None, "managedFields": [{}]}})
    assert job.metadata.name == "demo"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "found no document"),
        ("# nothing\n---\n", "found no document"),
        ("just words", 'found "just words", expected a map'),
        ("[1]", "found a list of 1 item"),
        ("a: [", "demo.yaml:1: no YAML"),
        ("a: b: c", "no YAML"),
        ("a: \x00", "no YAML"),
        ("{1: a}", "found the key 1, expected a string as the key"),
        ("? [a]\n: b", "found the key a list or a map"),
        ("kind: a\nkind: b\n", "demo.yaml:2: kind: found the same key twice, expected each key once"),
        (TEXT.replace("image: x", "image: .inf"), "expected a finite number"),
        (TEXT.replace("image: x", "image: !!binary eA=="), "found binary data"),
        (TEXT.replace("image: x", "image: !mine x"), "the tag !mine"),
        (TEXT.replace("image: x", 'image: "\\ud800"'), "valid Unicode"),
        (TEXT.replace("image: x", "image: !!int x"), "a value that is a YAML int"),
        (TEXT + "---\n" + TEXT, "found GangJob number 2, expected one GangJob in a file"),
        ("kind: ConfigMap\n---\nkind: Service\n", "found 2 documents, none of them a GangJob"),
        ("kind: ConfigMap\n", 'kind: found "ConfigMap", expected "GangJob"'),
        ("&a [*a]", "nested deeper"),
        ("&a {<<: *a}", "nested deeper"),
        ("\n" + "[" * 5000, "demo.yaml:2: nested deeper"),
        ("\n" + "{a: " * 5000, "demo.yaml:2: nested deeper"),
        ("{<<: 1}", "to merge"),
        ("a" * (1 << 20) + "a", "more than 1048576 bytes"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_manifest_is_rejected_with_the_reason(text: str, says: str) -> None:
    assert says in refusal(text)


def test_aliases_that_make_a_small_text_huge_are_rejected() -> None:
    laughs = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))
    assert f"more than {MAX_VALUES} values" in refusal(laughs)


def test_anchors_and_merges_are_understood() -> None:
    text = TEXT.replace("image: x", "<<: {image: z, tty: true}\n          image: x")
    container = load_gangjob(text, "demo.yaml").spec.roles[0].worker.model_dump()
    assert container["image"] == "x"
    assert container["tty"] is True


def test_the_items_of_a_list_are_documents() -> None:
    wrong = {**MINIMAL, "spec": {"rolls": []}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "ConfigMap"}, MINIMAL]}
    assert load_gangjob(yaml.safe_dump(listed), "demo.yaml") == loaded(MINIMAL)
    said = str(_error("apiVersion: v1\nkind: List\nitems:\n- " + json.dumps(wrong)))
    assert "demo.yaml:4: spec.rolls: found an unknown field" in said


def test_documents_of_other_kinds_are_ignored() -> None:
    assert load_gangjob(f"kind: ConfigMap\n---\n{TEXT}---\n", "demo.yaml") == loaded(MINIMAL)


@pytest.mark.parametrize("text", ["2026-01-31", "12:30:00", "1:30", "-1:30.5", "1e1.5", "0o8", "12e4567", "tRue"])
def test_text_that_kubectl_takes_as_a_string_is_a_string(text: str) -> None:
    template = load_gangjob(TEXT.replace("image: x", f"image: {text}"), "demo.yaml").spec.roles[0].worker
    assert template.model_dump()["image"] == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("OFF", False),
        ("y", True),
        ("N", False),
        ("010", 8),
        ("0o17", 15),
        ("018", 18),
        ("1_000", 1000),
        ("0x1F", 31),
        (".5", 0.5),
        ("-.5", -0.5),
        ("5.", 5),
        ("1e3", 1000),
        ("1.5E-3", 0.0015),
    ],
)
def test_a_plain_scalar_has_the_value_that_kubectl_gives_it(text: str, value: float) -> None:
    (document,) = read(f"a: {text}")
    assert document.value == {"a": value}
    assert isinstance(document.value["a"], bool) == isinstance(value, bool)


def test_a_tagged_scalar_of_another_kind_is_a_flaw() -> None:
    (document,) = read("a: !!bool maybe")
    assert [flaw.found for flaw in document.flaws] == ["maybe"]


def test_null_in_the_spec_is_rejected_with_advice() -> None:
    said = refusal(manifest(recovery={"isolationTimeoutSeconds": None}))
    assert said == (
        "demo.yaml:1: spec.recovery.isolationTimeoutSeconds: found null, "
        "expected a value, or no field: a field that is off is absent"
    )


def test_a_wrong_field_does_not_hide_a_broken_rule_beside_it() -> None:
    said = refusal(with_role(replicas="x", workerContainer="y"))
    assert "spec.roles[0].replicas" in said
    assert "spec.roles[0].workerContainer" in said


def test_a_rule_about_an_invalid_field_is_not_reported_as_well() -> None:
    made = manifest(podFailurePolicy={"rules": [{"action": "Count", "onSignals": ["KILL"]}]})
    assert len(_error(json.dumps(made)).problems) == 1


def test_a_near_name_is_suggested() -> None:
    assert "did you mean stopGracePeriodSeconds?" in refusal(manifest(recovery={"stopGracePeriod": 3}))
    assert "did you mean livenessProbe?" not in refusal(with_container(lifecycle={}))


def test_the_fields_are_named_where_no_name_is_near() -> None:
    assert "the fields here are basePort, portCount" in refusal(manifest(network={"zzz": 1}))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
GOOD = yaml.safe_load(FULL)


def _paths(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    match value:
        case dict():
            return [at, *(path for key, one in value.items() for path in _paths(one, (*at, key)))]
        case list():
            return [at, *(path for key, one in enumerate(value) for path in _paths(one, (*at, key)))]
        case _:
            return [at]


def _with(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    if not path:
        return new
    made: Any = dict(value) if isinstance(value, dict) else list(value)
    made[path[0]] = _with(value[path[0]], path[1:], new)
    return made


@given(st.sampled_from(_paths(GOOD)), json_values)
@examples(300)
def test_any_value_anywhere_is_accepted_or_rejected_with_a_message(path: tuple[str | int, ...], value: Any) -> None:
    _taken_or_refused(json.dumps(_with(GOOD, path, value)))


@given(st.sampled_from(_paths(GOOD)), st.text(max_size=12), json_values)
@examples(200)
def test_any_field_anywhere_is_accepted_or_rejected_with_a_message(
    path: tuple[str | int, ...], name: str, value: Any
) -> None:
    holder = GOOD
    for part in path:
        holder = holder[part]
    if isinstance(holder, dict):
        _taken_or_refused(json.dumps(_with(GOOD, path, {**holder, name: value})))


@given(st.text(max_size=200))
@examples(200)
def test_any_text_is_accepted_or_rejected_with_a_message(text: str) -> None:
    _taken_or_refused(text)


@given(st.integers(0, len(FULL)), st.integers(0, 20), st.text(alphabet="{}[]:,-&*!<>|'\"\n #a1\t%@?", max_size=6))
@examples(300)
def test_any_typing_error_is_accepted_or_rejected_with_a_message(at: int, cut: int, typed: str) -> None:
    _taken_or_refused(FULL[:at] + typed + FULL[at + cut :])


def _taken_or_refused(text: str) -> None:
    said = refusal(text)
    assert (
        said.encode(errors="strict").startswith(b"demo.yaml")
        if said
        else load_gangjob(text, "demo.yaml").model_dump_json()
    )


def _error(text: str) -> ManifestError:
    with pytest.raises(ManifestError) as raised:
        load_gangjob(text, "demo.yaml")
    return raised.value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("apiVersion: batch/v1\nkind: Job\nspec: {completions: 3}\n", 'found "Job", expected GangJob: gangctl convert'),
        ("apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nspec: {}\n", 'found "MPIJob", expected GangJob: gangctl'),
        ("kind: ConfigMap\napiVersion: v1\n---\napiVersion: x/v1\nkind: JobSet\n", "none of them a GangJob"),
        ("apiVersion: v1\nkind: List\nitems: [{apiVersion: batch/v1, kind: Job}]\n", "gangctl convert demo.yaml makes"),
    ],
)  # fmt: skip
def test_what_another_tool_submits_is_one_problem_that_names_convert(text: str, said: str) -> None:
    (problem,) = _error(text).problems
    assert said in str(problem)
    assert "gangctl convert" in str(problem)
