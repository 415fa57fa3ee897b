"""The brake goes by a sum of all gangs that is never older than the time between two counts."""

from __future__ import annotations

from dataclasses import replace

from gangctl.api.gangjob import GangJob
from gangctl.controller.fleet import BrakeKeeper
from gangctl.core.policy.brake import MIN_SILENT, SILENT_SECONDS
from tests.core.scenario import sentence
from tests.core.world import World


def test_no_decision_rests_on_an_old_sum() -> None:
    keeper, world = BrakeKeeper(lambda _gang: None), World()
    sentence(world, "the gang runs")
    assert keeper.apply_brake(world.now, "default", world.really_observed()).brake.since is None
    silent = replace(world.really_observed(), heard=())
    for number in range(MIN_SILENT):
        metadata = {"name": "g", "namespace": f"team-{number}", "uid": f"uid-{number}"}
        job = {**world.job.model_dump(by_alias=True), "metadata": metadata}
        keeper.count(world.now, GangJob.model_validate(job), silent)
    world.now += SILENT_SECONDS
    assert keeper.apply_brake(world.now, "default", world.really_observed()).brake.since == world.now
