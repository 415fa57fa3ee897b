"""Every interleaving of a small gang with a few faults: all states are visited, and the invariants hold in each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangctl.api.model import changed
from gangctl.api.status import RoleStatus
from gangctl.core.facts import barrier
from gangctl.core.lifecycle.decide import decide
from gangctl.core.policy import pods
from tests.core.arbitrary import jobs, worlds
from tests.core.world import START
from tests.effort import examples
from tests.simulation.engine import for_machines
from tests.simulation.exhaustive import LONG, MANY, QUICK, WITH_RELAYS, Search, explore

pytestmark = pytest.mark.timeout(900)  # A minute of work; other work on the machine may multiply it.
ACTS = (pods.CreatePod, pods.DeletePod)


@pytest.mark.parametrize(
    "search",
    [*(pytest.param(one, marks=pytest.mark.nightly) for one in QUICK[:LONG]), *QUICK[LONG:], *WITH_RELAYS],
    ids=Search.name,
)
def test_the_invariants_hold_in_every_state(search: Search, capsys: pytest.CaptureFixture[str]) -> None:
    found = explore(search)
    with capsys.disabled():
        print(f"\n{search.name()}: {found.text()} ", end="")
    assert found.complete
    assert found.rests
    assert found.power["an attempt is smaller"] or not search.setup.startswith("elastic")


@pytest.mark.parametrize("search", [*MANY[:-1], pytest.param(MANY[-1], marks=pytest.mark.nightly)], ids=Search.name)
def test_the_invariants_hold_in_every_state_when_awaited_pods_are_not_named(
    search: Search, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(barrier, "MAX_AWAITED", 0)
    found = explore(search)
    with capsys.disabled():
        print(f"\n{search.name()}: {found.text()} ", end="")
    assert found.complete
    assert found.rests


@examples(200)
@given(st.data())
def test_what_the_search_strips_from_a_status_decides_nothing(data: st.DataObject) -> None:
    job = data.draw(jobs())
    observed = data.draw(worlds(job))
    counts = [RoleStatus(name=role.name, desired=data.draw(st.integers(0, 4))) for role in job.spec.roles]
    job = job.model_copy(update={"status": changed(job.status, roles=tuple(counts))})
    stripped = job.model_copy(update={"status": for_machines(job.status)})
    full, less = decide(START, job, observed), decide(START, stripped, observed)
    assert for_machines(full.status or job.status) == for_machines(less.status or stripped.status)
    assert [one for one in full.actions if isinstance(one, ACTS)] == [
        one for one in less.actions if isinstance(one, ACTS)
    ]
