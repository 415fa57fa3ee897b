"""Which registered checkpoints exist, told a second time, as plainly as it goes: the core must agree in any world."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from gangctl.api.gangjob import GangJob
from gangctl.api.model import changed
from gangctl.api.status import HeldRank, LineageEntry, RecordedStep, Replaced
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Heard, Observed, Pod
from gangctl.core.policy import checkpoints
from gangsidecar.wire import Checkpoint, Dropped, Phase, Report
from tests.core.world import MANIFEST, START
from tests.effort import examples

STATES = examples(300)
TEMPLATE = MANIFEST["spec"]["roles"][0]["template"]
SPEC: dict[str, Any] = {
    "roles": [
        {"name": "worker", "replicas": 2, "spares": 1, "template": TEMPLATE},
        {"name": "actor", "processesPerPod": 2, "launch": "PerProcess", "template": TEMPLATE},
    ],
    "checkpoint": {
        "tiers": [
            {"name": "store", "scope": "Shared", "source": {"type": "API"}},
            {"name": "ram", "scope": "Member", "source": {"type": "API"}},
            {"name": "near", "scope": "Peers", "source": {"type": "API"}},
            {"name": "live", "scope": "Process", "source": {"type": "API"}},
        ]
    },
}
JOB = GangJob.model_validate({**MANIFEST, "spec": SPEC})
SHARED, MEMBER, PEERS, PROCESS = JOB.spec.checkpoint.tiers if JOB.spec.checkpoint is not None else ()
RANKS = {"worker-0": (0,), "worker-1": (1,), "actor-0": (0, 1)}
"""Two process groups: each counts its ranks from 0."""
GROUPS = (("worker-0", "worker-1"), ("actor-0",))
STEPS, ATTEMPTS = (1, 2, 3), (1, 2, 3)
_entries = st.lists(
    st.builds(LineageEntry, attempt=st.sampled_from((2, 3, 4)), step=st.none() | st.sampled_from(STEPS)), max_size=2
)


@st.composite
def gangs(draw: DrawFn) -> Gang:
    """Two attempts or three have saved, mostly everything; pods were replaced, ranks moved, steps dropped."""
    replaced = draw(st.sampled_from([(), ("worker-1",), ("worker-2",)]))
    moved = draw(st.booleans())
    recorded = st.builds(
        RecordedStep, tier=st.just("store"), step=st.sampled_from(STEPS), attempt=st.sampled_from(ATTEMPTS)
    )
    status = changed(
        JOB.status,
        started_attempt=draw(st.sampled_from((2, 3))),
        lineage=tuple(draw(_entries)),
        recorded_steps=tuple(draw(st.lists(recorded, max_size=2))),
        replaced=tuple(Replaced(member=name, incarnation=1, attempt=3, time=START) for name in replaced),
        ranks=(HeldRank(place="worker-1", member="worker-2"),) if moved else (),
    )
    pods, heard = [], []
    for member, incarnation in product(("worker-0", "worker-1", "worker-2", "actor-0"), (0, 1)):
        uid = f"{member}.{incarnation}"
        if incarnation <= (member in replaced):
            pods.append(Pod(f"g-{uid}", uid, member, incarnation))
            heard.append(Heard(draw(_reports(member, incarnation, uid)), START))
    return Gang(START, changed(JOB, status=status), Observed(pods=tuple(pods), heard=tuple(heard)))


@st.composite
def _reports(draw: DrawFn, member: str, incarnation: int, uid: str) -> Report:
    own = RANKS.get(member, (1,))
    attempt = draw(st.sampled_from(ATTEMPTS))
    told: list[Checkpoint] = []
    gone: list[Dropped] = []
    parts = [*product(("store", "ram", "live"), STEPS, own), *product(("near",), STEPS, (0, 1))]
    for tier, step, rank in parts:
        what = draw(st.sampled_from("ssssssod-"))
        saved = attempt if what == "s" else draw(st.sampled_from(ATTEMPTS))
        if what in "so":
            told.append(Checkpoint(tier, step, rank, saved, earlier_boot=what == "o" and step == 1))
        elif what == "d":
            gone.append(Dropped(tier, step, rank, saved))
    where = JOB.metadata.uid, member, incarnation, uid, f"session-{uid}"
    return Report(*where, 1, 3, Phase.READY, checkpoints=tuple(told), dropped=tuple(gone))


def _undone(gang: Gang, step: int, attempt: int) -> bool:
    """Whether a later attempt has gone back to before this step."""
    return any(entry.attempt > attempt and (entry.step is None or entry.step < step) for entry in gang.status.lineage)


def _counts(gang: Gang, report: Report, place: str, attempt: int) -> bool:
    """Whether the pod counts for what it did for the place in this attempt."""
    held = {one.place: one.member for one in gang.status.ranks}.get(place, place)
    current = {one.member: one.incarnation for one in gang.status.replaced}.get(held, 0)
    newest = report.incarnation == current
    return report.member == held and (newest or attempt == gang.status.started_attempt)


def shared_steps(gang: Gang) -> set[int]:
    """Every rank of every group has the step, or the status remembers it and no rank has dropped it since."""
    reports = [heard.report for heard in gang.observed.heard]
    found = {
        step
        for step in STEPS
        if all(
            any(
                (one.tier, one.step, one.rank) == ("store", step, rank)
                and _counts(gang, report, place, one.attempt)
                and not _undone(gang, step, one.attempt)
                for report in reports
                for one in report.checkpoints
            )
            for place, ranks in RANKS.items()
            for rank in ranks
        )
    }
    for entry in gang.status.recorded_steps:
        erased = any(
            (one.tier, one.step) == ("store", entry.step)
            and one.rank in ranks
            and one.attempt >= entry.attempt
            and _counts(gang, report, place, one.attempt)
            for report in reports
            for one in report.dropped
            for place, ranks in RANKS.items()
        )
        if not erased and not _undone(gang, entry.step, entry.attempt):
            found.add(entry.step)
    return found


def _registered(gang: Gang) -> dict[str, tuple[Checkpoint, ...]]:
    """Place -> what the member that runs it has registered in its current pod."""
    held = {one.place: one.member for one in gang.status.ranks}
    current = {one.member: one.incarnation for one in gang.status.replaced}
    pods = {(heard.report.member, heard.report.incarnation): heard.report for heard in gang.observed.heard}
    holders = {place: held.get(place, place) for place in RANKS}
    return {place: pods[name, current.get(name, 0)].checkpoints for place, name in holders.items()}


def member_steps(gang: Gang) -> set[int]:
    """Every member that runs a place has the step for all of its ranks, in its current pod, since the last boot."""
    registered = _registered(gang)
    return {
        step
        for step in STEPS
        if all(
            any(
                (one.tier, one.step, one.rank) == ("ram", step, rank)
                and not one.earlier_boot
                and not _undone(gang, step, one.attempt)
                for one in registered[place]
            )
            for place, ranks in RANKS.items()
            for rank in ranks
        )
    }


def peers_steps(gang: Gang) -> set[int]:
    """Some member that runs a place of the group has the step for the rank, in its current pod, since the last boot."""
    registered = _registered(gang)
    found = set(STEPS)
    for group in GROUPS:
        there = [one for place in group for one in registered[place] if one.tier == "near"]
        good = {
            (one.step, one.rank) for one in there if not one.earlier_boot and not _undone(gang, one.step, one.attempt)
        }
        found &= {step for step in STEPS if all((step, rank) in good for place in group for rank in RANKS[place])}
    return found


def process_steps(gang: Gang) -> set[int]:
    """In each group, some member that runs a place has registered the step in the attempt that ran last."""
    registered = _registered(gang)
    found = set(STEPS)
    for group in GROUPS:
        found &= {
            one.step
            for place in group
            for one in registered[place]
            if one.tier == "live"
            and one.attempt >= gang.status.started_attempt
            and not one.earlier_boot
            and not _undone(gang, one.step, one.attempt)
        }
    return found


def _sums(numbers: list[int]) -> list[int]:
    """Each step beyond the one before: what a lineage cannot shorten."""
    return list(accumulate(numbers))


@STATES
@given(gangs())
def test_the_core_agrees_on_which_registered_steps_exist(gang: Gang) -> None:
    assert {one.step for one in checkpoints.of_all_ranks(gang, SHARED)} == shared_steps(gang)
    assert {one.step for one in checkpoints.of_every_member(gang, MEMBER, gang.holders)} == member_steps(gang)
    assert {one.step for one in checkpoints.of_every_member(gang, PEERS, gang.holders)} == peers_steps(gang)
    assert {one.step for one in checkpoints.of_every_member(gang, PROCESS, gang.holders)} == process_steps(gang)


@STATES
@given(
    st.lists(st.none() | st.integers(0, 50), max_size=60)
    | st.lists(st.integers(1, 2), min_size=33, max_size=45).map(_sums)
)
def test_a_lineage_is_bounded_and_never_lets_exist_what_a_restart_has_undone(restarts: Sequence[int | None]) -> None:
    told, line = list(enumerate(restarts, 2)), JOB.status.lineage
    for attempt, step in told:
        line = checkpoints.extended_lineage(line, attempt, step)
    assert len(line) <= checkpoints.LINEAGE_KEPT
    assert [one.attempt for one in line] == sorted({one.attempt for one in line})
    depths = [-1 if one.step is None else one.step for one in line]
    assert depths == sorted(set(depths))
    for step, attempt in product(range(52), range(1, 62)):
        undone = any(at > attempt and (to is None or to < step) for at, to in told)
        if checkpoints.step_exists(line, step, attempt):
            assert not undone
        elif len(line) < checkpoints.LINEAGE_KEPT:
            assert undone
