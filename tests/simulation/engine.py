"""The real core and the real machine, behind three functions that the search can remember the answers of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gangctl.api.gangjob import GangJob, Spec
from gangctl.api.incident import PhaseMilliseconds
from gangctl.api.status import Condition, ConditionType, RoleStatus, Status
from gangctl.core.facts.world import Observed
from gangctl.core.lifecycle.decide import decide
from gangctl.core.lifecycle.plan import Plan
from gangctl.core.policy.brake import apply_brake
from gangsidecar.supervisor import machine
from tests.simulation import signals
from tests.simulation.values import Leader, seconds


@dataclass(frozen=True, slots=True)
class Engine:
    """How the world runs the code under test."""

    step: Callable[[machine.State, int, machine.Input], machine.Result]
    decide: Callable[[int, Leader, Callable[[Spec, int, Status], GangJob]], Plan]
    keep: Callable[[Any], Any]
    """One object for all that are equal."""
    stored: Callable[[Status], Status]
    """What is kept of a status that is written."""
    searching: bool = False
    """Every interleaving is looked at: what only delays or repeats is left out."""


def observed(leader: Leader) -> Observed:
    """What a controller process sees."""
    since = seconds(leader.since)
    lost = {node: max(since, seconds(at)) for node, at in leader.lost}
    return Observed(
        leader.pods,
        leader.heard,
        lost,
        signals.states(leader),
        frozenset(one.signal.node for one in leader.signals),
        leader.scanned,
        leader.scanned_at,
        max(since, leader.lost_links.counts_since),
        leader.refused,
        queue=leader.queue,
        watching_since=since,
        relayed_since=leader.lost_links.counts_since,
    )


def _decide(now: int, leader: Leader, job: Callable[[Spec, int, Status], GangJob]) -> Plan:
    at = seconds(now)
    seen = apply_brake(observed(leader), leader.brake.brake, at)
    return decide(at, job(leader.spec, leader.generation, leader.status), seen)


def plain() -> Engine:
    """For the simulation: nothing is remembered."""
    return Engine(machine.step, _decide, lambda value: value, lambda status: status)


class Interning:
    """One object for all that are equal, so that a world's state can be told by the identities of its parts."""

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}
        self._known: set[int] = set()

    def keep(self, value: Any) -> Any:
        """The one object that equals ``value``."""
        if id(value) in self._known:
            return value
        kept = self._kept.setdefault((type(value), value), value)
        self._known.add(id(kept))
        return kept


def remembering() -> Engine:
    """For the search: each question is asked once."""
    interning = Interning()
    keep = interning.keep
    steps: dict[tuple[int, int, int], machine.Result] = {}
    plans: dict[tuple[Any, ...], Plan] = {}
    statuses: dict[int, Status] = {}

    def step(state: machine.State, now: int, event: machine.Input) -> machine.Result:
        state, event = keep(state), keep(event)
        key = (id(state), now, id(event))
        result = steps.get(key)
        if result is None:
            after, effects = machine.step(state, now, event)
            result = steps[key] = (keep(after), effects)
        return result

    def plan(now: int, leader: Leader, job: Callable[[Spec, int, Status], GangJob]) -> Plan:
        key = (
            now,
            leader.spec.suspend,
            leader.spec.restart_token,
            leader.generation,
            id(keep(leader.status)),
            id(keep(leader.pods)),
            leader.lost,
            id(keep(leader.heard)),
            id(keep(leader.scanned)),
            leader.scanned_at,
            leader.since,
            leader.lost_links,
            leader.refused,
            leader.queue,
        )
        found = plans.get(key)
        if found is None:
            found = plans[key] = keep(_decide(now, leader, job))
        return found

    def stored(status: Status) -> Status:
        found = statuses.get(id(status))
        if found is None:
            found = keep(for_machines(status))
            keep(status)
            statuses[id(status)] = found
        return found

    return Engine(step, plan, keep, stored, searching=True)


REFUSED = Condition(type=ConditionType.ACCEPTED, status="False", reason="", last_transition_time=0.0)


def for_machines(status: Status) -> Status:
    """A status without what is in it for people only: worlds that differ in nothing else are one."""
    incidents = tuple(
        incident.model_copy(
            update={
                "milliseconds": PhaseMilliseconds(),
                "members": (),
                "cause": incident.cause.model_copy(update={"message": "", "said": None}),
            }
        )
        for incident in status.incidents
    )
    roles = tuple(RoleStatus(name=role.name, desired=role.desired) for role in status.roles)
    # A leader that doesn't know yet whether the cluster takes the gang's pods goes by what is stored of it.
    refused = any(each.type == ConditionType.ACCEPTED and each.status == "False" for each in status.conditions)
    update = {"message": "", "said": None, "warning": None, "refusal": None, "ready": "", "roles": roles}
    return status.model_copy(update={**update, "conditions": (REFUSED,) if refused else (), "incidents": incidents})
