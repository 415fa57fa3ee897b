"""Names say what they were made of, and fit."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangctl.api.names import (
    LABEL_ROLE,
    MAX_INCARNATION,
    MAX_MEMBERS,
    MAX_POD_NAME,
    PodName,
    gang_selector,
    longest_pod_name,
    member_name,
    parse_member_name,
    parse_pod_name,
    pod_labels,
    pod_name,
)
from tests.api.manifests import refusal, with_role

gangs = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?", fullmatch=True)
roles = st.from_regex(r"[a-z][a-z0-9]{0,14}", fullmatch=True)
indexes = st.integers(0, MAX_MEMBERS - 1)
incarnations = st.integers(0, MAX_INCARNATION)


@given(roles, indexes)
def test_a_members_name_is_read_as_it_was_written(role: str, index: int) -> None:
    assert parse_member_name(member_name(role, index)) == (role, index)


@given(gangs, roles, indexes, incarnations)
def test_a_pods_name_is_read_as_it_was_written(gang: str, role: str, index: int, incarnation: int) -> None:
    member = member_name(role, index)
    assert parse_pod_name(pod_name(gang, member, incarnation)) == PodName(gang, member, incarnation)


@given(gangs, roles, st.integers(1, 9_000), st.integers(0, 1_000))
def test_a_gang_that_is_accepted_never_has_a_pods_name_that_is_too_long(
    gang: str, role: str, replicas: int, spares: int
) -> None:
    made = with_role(name=role, replicas=replicas, spares=spares)
    made["metadata"]["name"] = gang
    last = pod_name(gang, member_name(role, replicas + spares - 1), MAX_INCARNATION)
    assert longest_pod_name(gang, role, replicas + spares) == len(last)
    assert (refusal(made) == "") == (len(last) <= MAX_POD_NAME)


@given(roles, indexes, incarnations)
def test_labels_are_valid_in_kubernetes(role: str, index: int, incarnation: int) -> None:
    uid = "6a3f0a52-7a33-4c7e-9c59-2f2f7a0a9a11"
    labels = pod_labels("a" * 42, uid, member_name(role, index), incarnation)
    assert labels[LABEL_ROLE] == role
    for key, value in labels.items():
        assert re.fullmatch(r"gangctl\.io/[a-z]+", key)
        assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", value)
    assert gang_selector(uid).items() <= labels.items()


@pytest.mark.parametrize("name", ["", "worker", "worker-", "worker-01", "Worker-1", "a-b-1", "worker-1 ", "worker--1"])
def test_an_invalid_name_of_a_member_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="no name of a member"):
        parse_member_name(name)


@pytest.mark.parametrize("name", ["", "worker-0", "worker-0-0", "-worker-0-0", "gang-worker-0-00", "gang-worker-x-0"])
def test_an_invalid_name_of_a_pod_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="no name of a gang's pod"):
        parse_pod_name(name)
