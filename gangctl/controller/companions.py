"""Companions: what annexes run in the controller's process, beside the loop of the gangs.

The rule: an annex registers its companion, and a flag turns it on. The controller knows no more of it than this
module says, and a companion decides nothing about gangs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol, cast

from gangctl.registered import find_registered

if TYPE_CHECKING:  # the command line reads registrations too, and needs none of these
    from gangctl.api.gangjob import GangJob
    from gangctl.cluster.kube.client import Client
    from gangctl.cluster.kube.events import EventRecorder
    from gangctl.cluster.kube.informers import Informers
    from gangctl.cluster.kube.reflector import WatchHealth
    from gangctl.cluster.kube.settings import KubeSettings
    from gangctl.telemetry.metrics.process import Counts


class House(NamedTuple):
    """What a companion may use of the process that it is in."""

    client: Client
    settings: KubeSettings
    recorder: EventRecorder
    informers: Informers
    """The gangs and their pods, for reading."""
    advice: list[Callable[[GangJob], Sequence[str]]]
    """A companion may add a function that names nodes which new pods of a gang rather avoid, and its spares."""
    gauges: list[Callable[[], Iterable[Counts]]]
    """A companion that leads may add a function that measures something."""
    options: Mapping[str, str]
    """The companions that are on, and what their flags say."""


class Companion(Protocol):
    """A companion in one process. It exists also while it is off, so that its counts begin at zero."""

    @property
    def health(self) -> WatchHealth:
        """Return how fresh its watch is."""

    @property
    def requests(self) -> Counts:
        """The requests that it has made since the process began."""

    async def watch(self) -> None:
        """Keep its reads fresh until cancelled, also while this process doesn't lead."""

    async def lead(self) -> NoReturn:
        """Work for one term: until cancelled."""


class MakeCompanion(Protocol):
    """The function that an annex registers."""

    def __call__(self, house: House) -> Companion:
        """Make the companion."""


class CompanionRegistration(NamedTuple):
    """A companion, by the flag that turns it on."""

    name: str
    """The flag without ``--``."""
    meaning: str
    """The help of the flag."""
    place: str
    """``module:function``."""
    choices: tuple[str, ...] = ("true", "false")
    """What the flag may say. With ``false`` it is off, as it is by default."""

    def load(self) -> MakeCompanion:
        """Import the function that makes it."""
        module, _, name = self.place.partition(":")
        return cast("MakeCompanion", getattr(import_module(module), name))


def companions() -> list[CompanionRegistration]:
    """All companions."""
    return find_registered(CompanionRegistration)
