"""What goes wrong: every fault that the simulation knows, each aimed at one member. Without a target it is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.simulation import checks, controller, kept, moves, parking, queues, relayed, sidecars
from tests.simulation.disk_faults import DISK_FAULTS
from tests.simulation.faults_in_cluster import IN_CLUSTER
from tests.simulation.faults_in_controllers import IN_CONTROLLERS
from tests.simulation.faults_in_pods import IN_PODS
from tests.simulation.signals import SIGNALS
from tests.simulation.universe import Universe
from tests.simulation.values import Fault

FAULTS: Final[dict[str, Fault]] = {
    **DISK_FAULTS,
    **IN_PODS,
    **IN_CLUSTER,
    **SIGNALS,
    **IN_CONTROLLERS,
    **queues.FAULTS,
    **checks.FAULTS,
    **relayed.FAULTS,
    **kept.FAULTS,
}
DEAD: Final = "a container can't be started again"
_ELSEWHERE = {*parking.FAULTS, *queues.FAULTS, *checks.FAULTS, *relayed.FAULTS, *kept.FAULTS}
DRAWN = tuple(name for name in FAULTS if name not in _ELSEWHERE)
"""What lives are drawn from. Without scripts that park, kept state, a queue, checks or relays, the others are none."""


def heal(u: Universe) -> None:
    """No more faults: networks work, what is stuck goes, one controller leads, the user wants the gang to run."""
    for number in [number for number in u.leaders if number != u.newest_leader]:
        controller.end(u, number)
    for number in u.leaders:
        controller.thaw(u, number)
    u.creation_fails = u.starts_fail = u.mounts_fail = u.unreachable = u.leaderless = False
    u.relays = tuple(one._replace(frozen=False) for one in u.relays)
    for node in u.lost:
        u.node_is_back(node)
    for uid in list(u.boxes):
        sidecars.reach(u, uid)
        box = u.boxes[uid]
        u.boxes[uid] = box._replace(blind=False, unmounted=False, unable=False, hangs=False)
        stuck = [proc for proc in box.procs if proc.stuck]
        freed = tuple(replace(proc, stuck=False) for proc in box.procs)
        u.boxes[uid] = u.boxes[uid]._replace(procs=freed)
        for proc in stuck:
            moves.kill_process(u, uid, replace(proc, stuck=False))
    u.signals, u.sick, u.checks_fail = frozenset(), frozenset(), False
    u.ghost = u.ghost._replace(spoiled=frozenset())  # A node that is well again passes.
    u.queue, u.scarce = replace(u.queue, known=True), False
    if u.spec.suspend:
        u.change_spec(suspend=False)
