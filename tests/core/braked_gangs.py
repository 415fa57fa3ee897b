"""Several gangs of one controller, with the brake that their counts lead to. Time is virtual."""

from __future__ import annotations

from dataclasses import dataclass, field

from gangctl.api.gangjob import Metadata
from gangctl.core.facts.gang import Gang
from gangctl.core.policy.brake import BrakeState, census, struck, update_brake
from tests.core.scenario import sentence
from tests.core.world import World

TICK_SECONDS = 5.0


@dataclass
class Gangs:
    """Worlds at one time. What is decided is done at once."""

    worlds: list[World]
    brake: BrakeState = field(default_factory=BrakeState)

    @classmethod
    def running(cls, gangs: int, spec: str = "") -> Gangs:
        """Gangs that all run."""
        all_of_them = cls([World() for _ in range(gangs)])
        for world in all_of_them.worlds:
            world.submit(spec)
        all_of_them.do("the gang runs")
        return all_of_them

    def do(self, *lines: str, worlds: list[World] | None = None) -> None:
        """Let it happen in all of them, or in some."""
        for world in self.worlds if worlds is None else worlds:
            for line in lines:
                sentence(world, line)

    def passes(self, seconds: float) -> None:
        """Let time pass; every gang is counted and decided about again and again."""
        for _ in range(int(seconds / TICK_SECONDS)):
            for world in self.worlds:
                world.now += TICK_SECONDS
            self.count()
            self.decide()

    def count(self) -> None:
        """Count all gangs."""
        gangs = [Gang(world.now, world.job, world.really_observed()) for world in self.worlds]
        self.brake = update_brake(self.brake, gangs[0].now, [census(gang) for gang in gangs])
        for world in self.worlds:
            world.brake = self.brake.of(world.job.metadata.namespace)

    def decide(self) -> None:
        """Decide about each gang until it writes nothing more."""
        for number, world in enumerate(self.worlds):
            while True:
                before = world.job.status
                plan = world.decide()
                self.brake = struck(self.brake, world.now, self._metadata(number), before, world.job.status)
                self.count()
                if plan.status is None:
                    break

    def _metadata(self, number: int) -> Metadata:
        return Metadata(name="g", uid=str(number), namespace=self.worlds[number].job.metadata.namespace)

    def move(self, namespace: str, worlds: list[World]) -> None:
        """They are in another namespace."""
        for world in worlds:
            metadata = Metadata(**dict(world.job.metadata) | {"namespace": namespace})
            world.job = world.job.model_copy(update={"metadata": metadata})

    @property
    def is_on(self) -> bool:
        """Whether silence counts for nothing."""
        return self.brake.brake.since is not None

    def attempts(self) -> list[int]:
        """Return the attempt of each gang."""
        return [world.job.status.attempt for world in self.worlds]

    def incarnations(self) -> set[int]:
        """Return which incarnations of pods were ever created."""
        return {pod.incarnation for world in self.worlds for pod in world.pods.values()}
