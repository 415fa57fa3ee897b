"""What holds for whatever was stored and whatever is seen: decide and directive are total, pure and calm."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase, Status
from gangctl.core.lifecycle.decide import decide
from gangctl.core.lifecycle.directive import Directives, directives
from gangctl.core.policy.pods import CreatePod
from gangsidecar.wire import Verb
from tests.core.arbitrary import jobs, worlds
from tests.core.edges import is_allowed
from tests.core.world import START
from tests.effort import examples

TERMINAL = {GangPhase.SUCCEEDED, GangPhase.FAILED}
WRITES = 8
"""More writes than these in a row, though nothing happens, would be a loop."""
CALM = examples(60)


def stored(job: GangJob, **update: object) -> GangJob:
    """The job as it is read again after a write."""
    written = job.model_copy(update=update)
    return GangJob.model_validate_json(written.model_dump_json(by_alias=True, exclude_none=True))


@CALM
@given(st.data())
def test_decide_raises_nothing_and_gives_the_same_plan_twice(data: st.DataObject) -> None:
    job = data.draw(jobs())
    observed = data.draw(worlds(job))
    plan = decide(START, job, observed)
    assert plan == decide(START, job, observed)
    assert plan.because
    assert plan.requeue_after is None or plan.requeue_after > 0
    if plan.status is not None:
        assert stored(job, status=plan.status).status == plan.status, "it is read back as another status"


@CALM
@given(st.data())
def test_the_attempt_never_goes_down_and_an_end_is_never_left(data: st.DataObject) -> None:
    job = data.draw(jobs())
    after = decide(START, job, data.draw(worlds(job))).status
    if after is not None:
        assert job.status.attempt <= after.attempt <= job.status.attempt + 1
        assert job.status.phase not in TERMINAL or after.phase is job.status.phase
        assert is_allowed(job.status, after), "no row of the lifecycle's table leads there"


@CALM
@given(st.data())
def test_decide_stops_writing_when_nothing_happens(data: st.DataObject) -> None:
    job = data.draw(jobs())
    observed = data.draw(worlds(job))
    reasons = []
    for _ in range(WRITES):
        plan = decide(START, job, observed)
        reasons.append(plan.because)
        if plan.status is None:
            return
        job = stored(job, status=plan.status)
    raise AssertionError(reasons)


@CALM
@given(st.data())
def test_decide_creates_no_pod_twice_and_none_for_a_gang_that_has_ended(data: st.DataObject) -> None:
    job = data.draw(jobs())
    observed = data.draw(worlds(job))
    plan = decide(START, job, observed)
    made = [(action.member, action.incarnation) for action in plan.actions if isinstance(action, CreatePod)]
    assert len(made) == len(set(made))
    assert not set(made) & {(pod.member, pod.incarnation) for pod in observed.pods}
    if (plan.status or job.status).phase in TERMINAL | {GangPhase.SUSPENDED, GangPhase.HELD}:
        assert not made


@CALM
@given(st.data())
def test_a_directive_carries_the_attempt_and_the_phase_that_are_stored(data: st.DataObject) -> None:
    job = data.draw(jobs())
    world = data.draw(worlds(job))
    tell = directives(lambda _gang: world.pods, job, None)
    for heard in world.heard:
        said = tell(heard.report)
        if said is None:
            continue
        assert (said.attempt, said.pod) == (job.status.attempt, heard.report.pod)
        assert said.verb is not Verb.RUN or job.status.phase is GangPhase.RUNNING
        assert (said.verb is Verb.RUN) is (said.run is not None)
        assert said.run is None or said.run.session == heard.report.session


_OF_DIRECTIVES = frozenset({"phase", "attempt", "message", "fencing", "replaced", "base_incarnation", "started_roles"})
"""What a directive tells of a status while an attempt runs."""


@CALM
@given(st.data())
def test_directives_that_stay_the_same_object_are_those_of_the_new_status(data: st.DataObject) -> None:
    job, other = data.draw(jobs()), data.draw(jobs())
    job = job.model_copy(update={"status": job.status.model_copy(update={"phase": GangPhase.RUNNING})})
    kept = data.draw(st.frozensets(st.sampled_from(sorted(_OF_DIRECTIVES)))) | {"phase", "attempt"}
    news = {name: getattr(other.status, name) for name in Status.model_fields if name not in kept}
    observed = data.draw(worlds(job))
    after = stored(job, status=job.status.model_copy(update=news))
    before = directives(lambda _gang: observed.pods, job, None)
    found, anew = directives(lambda _gang: (), after, before), Directives(after, before.begun)
    for heard in observed.heard:
        assert found(heard.report) == anew(heard.report)
    assert found is before or not kept >= _OF_DIRECTIVES, "only what is news for people has changed"
