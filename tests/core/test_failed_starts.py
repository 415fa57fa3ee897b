"""Starts that can't work, against a plain second reckoning of when a gang ends for them."""

from __future__ import annotations

import random
from dataclasses import replace

from gangctl.api.gangjob import Windowed
from gangctl.api.incident import Cause
from gangctl.api.status import GangPhase
from gangctl.core.facts.world import StartFailure
from gangctl.core.policy.recovery import failed_alike
from tests.core.scenario import sentence
from tests.core.test_restart_backoff import seconds_until_it_runs
from tests.core.world import START, World
from tests.explain.incidents import incident, job

JOB = "recovery: {replaceAfter: 100, budget: {type: Unlimited}}\nsuccessPolicy: {type: Never}"
ROLES = "roles: [{name: worker, replicas: 2}, {name: launcher, replicas: 1}]\n"
RULE = "podFailurePolicy: {rules: [{name: known, action: Count, onExitCodes: {operator: In, values: [127]}}]}\n"
EVENTS = ("127", "127", "127", "127", "126", "1", "step and 127", "evicted", "by hand")
NEVER = StartFailure("StartError", 'exec: "train": executable file not found in $PATH', 128)
FAILURES = (
    None,
    NEVER,
    NEVER,
    StartFailure("StartError", "nvidia-container-cli: driver error", 128),
    StartFailure("ImagePullBackOff", "not found"),
    StartFailure("InvalidImageName", "couldn't parse it"),
    StartFailure("CreateContainerError", "executable file `train` not found in $PATH"),
)


def happens(world: World, event: str, step: int) -> None:
    member = f"worker-{step % 2}"
    if event == "by hand":
        sentence(world, f"restartToken becomes t{step}")
    elif event == "evicted":
        sentence(world, f"the pod of {member} is disrupted: EvictionByEvictionAPI")
    elif event == "1":
        sentence(world, f"{member} ends with 1")
    else:
        if event.startswith("step"):
            sentence(world, f"worker-0 reports step {step}")
        sentence(world, f"the supervisor of {member} can't execute the command: {event[-3:]}, train: no such file")


def ends_by_itself(world: World) -> bool:
    """Whether the gang has ended instead of waiting for its next start."""
    for _ in range(20):
        plan = world.decide()
        if world.job.status.phase is GangPhase.FAILED:
            return True
        for pod in list(world.pods.values()):
            if pod.deleting and not pod.terminated:
                sentence(world, f"the pod of {pod.uid} has ended")
            elif pod.started_at is None and not pod.terminated:
                sentence(world, f"{pod.uid} starts")
        sentence(world, "everyone is Ready")
        if plan.requeue_after is not None and world.job.status.phase is GangPhase.GATHERING:
            world.now += min(plan.requeue_after, 5)
        if world.job.status.phase is GangPhase.RUNNING:
            return False
    raise AssertionError("it neither runs nor ends")


def test_a_gang_ends_when_all_restarts_since_its_last_step_were_for_a_start_that_can_not_work() -> None:
    ends = [live(random.Random(seed)) for seed in range(40)]
    assert 10 < sum(ends) < 40


def live(draw: random.Random) -> bool:
    """One life of a gang; whether it ended."""
    world = World()
    world.submit(JOB)
    sentence(world, "the gang runs")
    failures, history = 0, list[str]()
    for step in range(1, 10):
        sentence(world, "everyone runs")
        event = draw.choice(EVENTS)
        happens(world, event, step)
        history.append(event[-3:])
        failures = 0 if event in {"by hand", "step and 127"} else failures
        failures += event not in {"by hand", "evicted"}
        row = history[-failures:] if failures else []
        expected = event not in {"by hand", "evicted"} and len(row) >= 3 and set(row) in ({"126"}, {"127"})
        assert ends_by_itself(world) is expected, history
        if expected:
            reasons = {one.reason for one in world.job.status.conditions if one.type == "Failed"}
            assert reasons == {"StartFailed"}
            assert "train: no such file; 3 starts in a row failed like this" in world.job.status.message
            return True
    return False


def test_a_rule_of_the_user_goes_before() -> None:
    world = World()
    world.submit(JOB + "\n" + RULE)
    sentence(world, "the gang runs")
    for step in range(6):
        sentence(world, "everyone runs")
        happens(world, "127", step)
        world.decide()
        seconds_until_it_runs(world)
    assert world.job.status.phase is GangPhase.RUNNING


def test_a_gang_ends_for_a_pod_only_if_its_template_never_worked() -> None:
    ends = [waits(random.Random(seed)) for seed in range(300)]
    assert 30 < sum(ends) < 270


def waits(draw: random.Random) -> bool:
    """A gang whose pods start or don't: whether it ends for that."""
    world = World()
    world.submit(ROLES + JOB)
    world.decide()
    for uid, pod in list(world.pods.items()):
        if draw.random() < 0.3:
            sentence(world, f"{pod.member} starts")
            sentence(world, f"{pod.member} is Ready")
            continue
        failure = draw.choice(FAILURES)
        reason = "" if failure is None else failure.reason
        world.pods[uid] = replace(
            pod, scheduled_at=world.now, reason=reason, start_failure=failure, restarts=draw.choice((0, 1, 2, 2))
        )
    works = {pod.member[:-2] for uid, pod in world.pods.items() if uid in world.heard}
    never = [
        pod
        for pod in world.pods.values()
        if pod.member[:-2] not in works
        and pod.start_failure is not None
        and (pod.start_failure.exit_code is None or pod.restarts == 2)
        and pod.start_failure.reason in {"InvalidImageName", "CreateContainerError", "StartError"}
        and "driver" not in pod.start_failure.message
    ]
    world.decide()
    ended = world.job.status.phase is GangPhase.FAILED
    assert ended is bool(never), world.job.status.message
    return ended


def failed(
    *, words: str = "no data", rule: str | None = None, step: int = 3, took: float = 10, budget: int = 10
) -> bool:
    """Whether three attempts failed alike. ``words``: of the second; ``step``: how many restarts came without one."""
    row = [
        incident(
            attempt,
            START + took * attempt,
            cause=Cause(reason="ExitCode", member="worker-0", exit_code=1, time=START, printed=printed, rule=rule),
        )
        for attempt, printed in ((4, "no data"), (3, words), (2, "no data"))
    ]
    restarts = {"counted": 3, "uncounted": 0, "in_window": 3, "without_step": step}
    gang = job(*row, restarts=restarts, start_time=START)
    recovery = {"budget": Windowed(type="Windowed", max_restarts=budget)}
    spec = gang.spec.model_copy(update={"recovery": gang.spec.recovery.model_copy(update=recovery)})
    return failed_alike(gang.model_copy(update={"spec": spec}))


def test_a_run_ends_for_three_attempts_that_failed_in_the_same_words_before_a_step() -> None:
    assert failed()
    assert not failed(words="out of memory")
    assert not failed(rule="known")
    assert not failed(step=2)
    assert not failed(took=100)
    assert not failed(budget=4)
