"""The roles' hash changes when the roles do, and only then."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from gangctl.api.roles import roles_hash
from tests.api.manifests import loaded, manifest, role, with_container, with_role


def _hash(made: dict[str, Any]) -> str:
    return roles_hash(loaded(made).spec.roles)


def test_the_hash_is_the_same_in_another_process() -> None:
    code = (
        "from tests.api.manifests import MINIMAL, loaded; from gangctl.api.roles import roles_hash;"
        "print(roles_hash(loaded(MINIMAL).spec.roles))"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert told.stdout.strip() == _hash(manifest())


def test_a_default_that_is_written_is_no_change() -> None:
    assert _hash(with_role(spares=0, launch="Command")) == _hash(manifest())


def test_the_order_of_keys_in_a_template_is_no_change() -> None:
    one, other = with_container(env=[], args=["a"]), with_container(args=["a"], env=[])
    assert _hash(one) == _hash(other)


def test_the_rest_of_the_spec_is_no_change() -> None:
    assert _hash(manifest(suspend=True, restartToken="x")) == _hash(manifest())


@pytest.mark.parametrize(
    "made",
    [with_role(replicas=5), with_role(spares=1), with_container(image="y"), with_container(command=["x"])],
    ids=["replicas", "spares", "an undeclared field", "a declared field"],
)
def test_a_change_of_the_roles_changes_the_hash(made: dict[str, Any]) -> None:
    assert _hash(made) != _hash(manifest())


def test_another_order_of_the_roles_is_a_change() -> None:
    assert _hash(manifest(roles=[role("a"), role("b")])) != _hash(manifest(roles=[role("b"), role("a")]))
