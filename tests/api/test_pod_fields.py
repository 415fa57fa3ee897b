"""Fields of pod templates: which are known, and which name is nearly one of them."""

from __future__ import annotations

from typing import Any

import pytest

from gangctl.api.pod_fields import unknown_fields
from gangctl.api.problems import path_of


def unknown(template: Any) -> dict[str, str]:
    return {path_of(one.location): one.meant for one in unknown_fields(template, ("template",))}


@pytest.mark.parametrize(
    ("container", "name", "meant"),
    [
        ({"imag": "x"}, "imag", "image"),
        ({"comand": ["x"]}, "comand", "command"),
        ({"arg": ["x"]}, "arg", "args"),
        ({"volumeMount": []}, "volumeMount", "volumeMounts"),
        ({"image-pull-policy": "Always"}, "image-pull-policy", "imagePullPolicy"),
        ({"workingdir": "/"}, "workingdir", "workingDir"),
        ({"image": "x", "imag": "y"}, "imag", ""),
        ({"gpus": 8}, "gpus", ""),
        ({"restartPolicyRul": []}, "restartPolicyRul", "restartPolicyRules"),
        ({"livenessProbes": {}, "livenessProbe": {}}, "livenessProbes", ""),
        ({"restartPolicyRulez": []}, "restartPolicyRulez", "restartPolicyRules"),
    ],
)
def test_a_misspelt_field_is_told_with_the_one_that_is_meant(container: dict[str, Any], name: str, meant: str) -> None:
    found = unknown({"spec": {"containers": [{"name": "main", **container}]}})
    assert found == {f"template.spec.containers[0].{name}": meant}


def test_every_level_is_looked_at() -> None:
    template = {
        "metadata": {"lables": {"a": "b"}, "annotations": {"any.thing/here": "x"}},
        "spec": {
            "nodeselector": {"a": "b"},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerm": []}}},
            "initContainers": [{"name": "a"}, {"name": "b", "env": [{"name": "A", "valeuFrom": {}}]}],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimt": "1Gi"}}],
        },
    }
    terms = "template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerm"
    assert unknown(template) == {
        "template.metadata.lables": "labels",
        "template.spec.nodeselector": "nodeSelector",
        terms: "nodeSelectorTerms",
        "template.spec.initContainers[1].env[0].valeuFrom": "valueFrom",
        "template.spec.volumes[0].emptyDir.sizeLimt": "sizeLimit",
    }


@pytest.mark.parametrize(
    "template",
    [
        None,
        7,
        [],
        {"spec": None},
        {"spec": {"containers": "x"}},
        {"spec": {"containers": [None, 3, []], "nodeSelector": {"imag": "x"}}},
        {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 8}, "claims": [{"name": "c"}]}}]}},
    ],
)
def test_values_of_other_types_and_maps_of_the_user_are_left_alone(template: Any) -> None:
    assert unknown(template) == {}
