"""Whatever a scenario file could say, in any order: what must hold after each decision."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gangctl.api.gangjob import Windowed
from gangctl.api.status import GangPhase, Status
from gangctl.core.facts.gang import holders
from gangctl.core.policy.recovery import ledger_in_window
from tests.core.scenario import sentence
from tests.core.then import decide
from tests.core.world import World
from tests.effort import examples

TERMINAL = {GangPhase.SUCCEEDED, GangPhase.FAILED}
JOB = """
roles: [{name: worker, replicas: 2, spares: 1}]
podFailurePolicy:
  rules:
  - {name: fatal, action: FailJob, onExitCodes: {operator: In, values: [2]}}
  - {name: asked, action: Ignore, onExitCodes: {operator: In, values: [75]}}
checkpoint:
  fallbackAfter: 1
  tiers:
  - {name: shared, scope: Shared, source: {type: Directory, directory: /c, layout: TorchDCP}}
  - {name: ram, scope: Member, source: {type: API}}
recovery: {budget: {type: Windowed, maxRestarts: 2, windowSeconds: 300}, barrierTimeoutSeconds: 100, onExhausted: Hold,
           schedulingTimeoutSeconds: 1000, onReplacementTimeout: Suspend, replacementTimeoutSeconds: 300}
"""
OF_ONE = [
    "{} starts",
    "{} is Ready",
    "{} runs",
    "{} ends with 0",
    "{} ends with 2, 30 ms ago",
    "{} ends with 3, 20 ms ago",
    "{} ends with 75",
    "{} ends with SIGTERM, after a stop",
    "{} reports step 150",
    "{} completes checkpoint 300 of tier ram",
    "{} asks for a restart because NaN, on another node",
    "{} can't see the restore point",
    "{} reports that its pod is terminating",
    "{} is Stuck",
    "{} loses its connection",
    "{} connects again",
    "the container of {} starts again",
    "the pod of {} vanishes",
    "the pod of {} is being deleted",
    "the pod of {} has ended",
    "the pod of {} will be disrupted: PreemptionByScheduler",
    "the node of {} is lost",
    "the node of {} is back",
    "device gpu-0 of {} is Unhealthy",
    "the container of {} starts again, unseen",
    "the cluster shows that the container of {} ended 2 s ago: OOMKilled",
    "the pod of {} can't start: Unschedulable",
    "the pod of {} is removed",
]
OF_ALL = [
    "every pod starts",
    "everyone is Ready",
    "everyone runs",
    "everyone connects again",
    "a scan finds shared 100 200",
    "a scan finds nothing",
    "a new controller starts",
    "suspend becomes true",
    "suspend becomes false",
    "restartToken becomes again",
    "the cluster refuses the pods: exceeded quota",
    "the cluster takes the pods",
    "1 s pass",
    "40 s pass",
    "400 s pass",
    "the clock is set back by 50 s",
]
GO_ON = (
    "suspend becomes false",
    "the cluster takes the pods",
    "every pod starts",
    "everyone connects again",
    "everyone is Ready",
    "a scan finds shared 100 200",
    "everyone runs",
)
"""What leads to an attempt that runs, unless something is in the way."""

members = st.sampled_from(["worker-0", "worker-1", "worker-2", "worker-1.0"])
sentences = st.builds(str.format, st.sampled_from(OF_ONE), members) | st.sampled_from(OF_ALL)
lines = st.just(GO_ON) | sentences.map(lambda one: (one,))


@examples(150)
@given(st.lists(lines, min_size=3, max_size=30))
def test_any_walk_keeps_the_budget_the_attempt_and_the_end(walk: list[tuple[str, ...]]) -> None:
    world = World()
    world.submit(JOB)
    for line in ["decide", *(line for some in walk for line in some)]:
        before = world.job.status
        try:
            sentence(world, line)
        except (KeyError, ValueError):
            continue  # Whom it speaks of isn't there.
        decide(world)
        check(world, before, world.job.status)


def check(world: World, before: Status, after: Status) -> None:
    """What one look at the world may not have done."""
    assert after.attempt >= before.attempt
    assert before.phase not in TERMINAL or after.phase is before.phase
    limits = world.job.spec.recovery.budget
    assert isinstance(limits, Windowed)
    if after.phase is GangPhase.RUNNING:
        counted = ledger_in_window(world.job.spec, after.ledger, world.now)
        assert sum(one.charged for one in counted) <= limits.max_restarts
    attempts = Counter(entry.attempt for entry in after.ledger)
    assert not attempts or max(attempts.values()) == 1, "an attempt is in the ledger twice"
    assert after.restarts.counted + after.restarts.uncounted <= max(0, after.attempt - 1)
    held = holders(world.job.spec, after)
    assert len(set(held.values())) == len(held), "a member holds two places"
    assert all((one.milliseconds.detect or 0) >= 0 and (one.lost_steps or 0) >= 0 for one in after.incidents)
