"""Members by name, rank and role."""

from __future__ import annotations

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.cli.arguments import member_of_rank
from gangctl.cli.errors import UserError


def job(**status: object) -> GangJob:
    def role(name: str, **more: object) -> dict[str, object]:
        container = {"name": "main", "command": ["true"]}
        return {"name": name, "template": {"spec": {"containers": [container]}}, **more}

    roles = [
        role("worker", replicas=2, spares=1, processesPerPod=4, launch="PerProcess"),
        role("rollout", replicas=1, processesPerPod=2, launch="PerProcess"),
        role("evaluator", replicas=1, processGroup=""),
    ]
    return GangJob.model_validate(
        {
            "apiVersion": "gangctl.io/v1alpha1",
            "kind": "GangJob",
            "metadata": {"name": "g"},
            "spec": {"roles": roles},
            "status": status,
        }
    )


def test_its_own_member_or_a_spare_has_a_rank() -> None:
    assert member_of_rank(job(), 5, None) == "worker-1"
    taken = job(ranks=[{"place": "worker-1", "member": "worker-2"}])
    assert member_of_rank(taken, 5, None) == "worker-2"


def test_a_rank_that_two_groups_have_needs_a_role() -> None:
    with pytest.raises(UserError, match=r"rank 1 exists in several process groups: select one with --role"):
        member_of_rank(job(), 1, None)
    assert member_of_rank(job(), 1, "rollout") == "rollout-0"


def test_a_rank_that_is_not_there_is_answered_with_those_that_are() -> None:
    both = r"there are 0 to 7 \(process group worker\), 0 to 1 \(process group rollout\)"
    with pytest.raises(UserError, match=f"no rank 8: {both}"):
        member_of_rank(job(), 8, None)
    with pytest.raises(UserError, match="its roles have no ranks"):
        member_of_rank(job(), 0, "evaluator")
    with pytest.raises(UserError, match="no role 'workr', only worker, rollout, evaluator"):
        member_of_rank(job(), 0, "workr")
