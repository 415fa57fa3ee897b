"""Times that a leader with another clock has stored: none that is to come delays anything, none cuts a wait short."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from gangctl.api.status import GangPhase
from gangctl.core.facts.gang import Gang, clamp_times
from gangctl.core.policy.pods import DeletePod
from tests.core.arbitrary import jobs, worlds
from tests.core.scenario import sentence
from tests.core.world import START, World
from tests.effort import examples

DAY = 86_400
TOLD = {"cause", "accountedTime", "firstStep", "progress", "finished", "backOffTime"}
"""An order, what goodput accounts for, what is guarded where it is read, and a time that is to come by its nature."""


def times(value: object) -> Iterator[float]:
    """Each time in what is stored, but those that are believed as they are."""
    if isinstance(value, dict):
        for key, one in value.items():
            if key not in TOLD:
                yield from times(one)
    elif isinstance(value, list):
        for one in value:
            yield from times(one)
    elif isinstance(value, str) and value[4:5] == "-" and value.endswith("Z"):
        yield datetime.fromisoformat(value).timestamp()


@examples(100)
@given(st.data())
def test_nothing_that_has_happened_is_to_come(data: st.DataObject) -> None:
    job = data.draw(jobs())
    gang = clamp_times(Gang(START, job, data.draw(worlds(job))))
    status = gang.status.model_dump(mode="json", by_alias=True, exclude_none=True)
    status["incidents"] = status.get("incidents", [])[:2]
    assert max(times(status)) <= START
    assert clamp_times(gang) is gang


def world(*lines: str, policy: str = "") -> World:
    """Two workers to whom this happens."""
    made = World()
    made.submit(policy)
    for line in ("the gang runs", "everyone runs", *lines):
        sentence(made, line)
    return made


def test_a_wait_for_evidence_begins_again_with_a_term() -> None:
    rule = "podFailurePolicy: {rules: [{name: bad, action: FailJob, onExitCodes: {operator: In, values: [2]}}]}"
    made = world("worker-0 ends with 2", "decide", "everyone is Ready", policy=rule)
    sentence(made, f"a new controller starts, whose clock is {DAY} s ahead")
    sentence(made, "worker-0 connects again")
    sentence(made, "worker-1 connects again")
    sentence(made, "decide")
    phases = [made.job.status.phase]
    sentence(made, "60 s pass")
    sentence(made, "decide")
    assert [*phases, made.job.status.phase] == [GangPhase.GATHERING, GangPhase.FAILED]


def test_pods_that_end_have_their_grace_under_a_new_leader() -> None:
    made = world("suspend becomes true", "decide")
    assert made.job.status.phase is GangPhase.SUSPENDED
    sentence(made, f"a new controller starts, whose clock is {DAY} s ahead")
    sentence(made, "worker-0 connects again")
    sentence(made, "worker-1 connects again")
    assert not [one for one in made.decide().actions if isinstance(one, DeletePod)]
