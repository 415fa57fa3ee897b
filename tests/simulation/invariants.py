"""What must always hold: the invariants of docs/correctness.md, asserted where they could break.

They look at how it really was (the fake kernel's processes, every status that was stored), not at what the code under
test believes. A pod counts as lost only after the whole grace: before that, two attempts at once are a violation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gangctl.api.gangjob import Roles, Windowed
from gangctl.api.reasons import Reason
from gangctl.api.roles import layout
from gangctl.api.status import GangPhase, Spent, Status
from gangctl.core.facts.evidence import TIE_SECONDS
from gangctl.core.facts.gang import holders, incarnation, started_processes
from gangctl.core.lifecycle.table import TRANSITIONS, Advance
from gangctl.core.policy.cause import NAMED
from gangctl.core.policy.pods import DeletePod
from gangctl.core.record.conditions import total
from gangctl.core.record.timings import MAX_LISTED
from gangsidecar.supervisor import machine
from gangsidecar.wire import Directive, End, Phase, Verb
from tests.core.edges import is_allowed
from tests.core.storing import stored_again
from tests.simulation import queues, restored, sizes, truth
from tests.simulation.setups import FATAL_CODE
from tests.simulation.values import Box, Leader, seconds
from tests.simulation.violations import require

if TYPE_CHECKING:
    from tests.simulation.universe import Universe

TERMINAL = frozenset({GangPhase.SUCCEEDED, GangPhase.FAILED})
_PHASES = {
    Verb.HOLD: {GangPhase.PENDING, GangPhase.GATHERING, GangPhase.HELD, GangPhase.RUNNING},
    Verb.RUN: {GangPhase.RUNNING},
    Verb.FINISH: set(GangPhase),
}


class Change(NamedTuple):
    """A change of the phase or of the attempt."""

    source: GangPhase
    target: GangPhase
    raises: bool
    """The attempt goes up."""

    @classmethod
    def of(cls, old: Status, new: Status) -> Change | None:
        """Return what changes between two statuses that are stored one after the other."""
        same = (old.phase, old.attempt) == (new.phase, new.attempt)
        return None if same else cls(old.phase, new.phase, new.attempt != old.attempt)

    def __str__(self) -> str:
        """Return it in words."""
        attempt = "the next" if self.raises else "the same"
        return f"from {self.source or 'New'} to {self.target} of {attempt} attempt"


CHANGES = frozenset(
    Change(source, row.target, row.attempt is Advance.NEXT)
    for row in TRANSITIONS
    for source in row.sources
    if source is not row.target or row.attempt is Advance.NEXT
)
"""Every change that the lifecycle's table allows. A row from a phase to itself of the same attempt changes neither."""


def one_attempt(u: Universe) -> None:
    """1: no two workers of different attempts run at once among members that are not lost; no rank runs twice."""
    running: dict[int, str] = {}
    ranks: dict[tuple[str, int], str] = {}
    for uid, box in u.boxes.items():
        if not box.procs or is_lost(u, uid):
            continue
        for proc in box.procs:
            if proc.stuck and u.ghost.isolated and (not box.is_heard or uid in u.ghost.unbound):
                continue  # No timer can bind what SIGKILL doesn't end.
            running[proc.attempt] = uid
            if proc.rank is not None:
                key = (u.group_of(box.member), proc.rank)
                require(ranks.setdefault(key, uid) == uid, 1, f"rank {key} runs in {ranks[key]} and in {uid}")
    require(len(running) <= 1, 1, f"workers of attempts {running} run at once")


def stops_in_time(u: Universe) -> None:
    """1: the status knows how long each supervisor lets its worker run and stop when no controller reaches it."""
    told = u.status.fencing
    for uid, box in u.boxes.items():
        directive = None if box.machine is None else box.machine.directive
        if told is None or told.longest_isolation_seconds is None or directive is None or is_lost(u, uid):
            continue
        if any(not proc.stuck for proc in box.procs):
            isolation, longest = directive.isolation_ms, told.longest_isolation_seconds * 1000
            require(isolation is not None and isolation <= longest, 1, f"{uid} may run for {isolation} ms: {told}")
            grace = told.longest_stop_grace_seconds * 1000
            require(directive.grace_ms <= grace, 1, f"{uid} may stop for {directive.grace_ms} ms: {told}")


def is_lost(u: Universe, uid: str) -> bool:
    """Lost = vanished, or deleted on a node that doesn't answer, for as long as the grace, and silent then."""
    since, grace = dict(u.ghost.gone_since).get(uid), u.ghost.grace
    if since is None or grace is None or u.now - since < grace * 1000:
        return False
    box = u.boxes.get(uid)
    return box is None or not box.is_heard or uid in u.ghost.lost


def told(u: Universe, leader: Leader, said: Directive) -> None:
    """2: no directive carries an attempt or a phase that is not in a stored status."""
    phases = {phase for attempt, phase in u.ghost.stored if attempt == said.attempt}
    require(phases & {str(phase) for phase in _PHASES[said.verb]}, 2, f"{said.verb} of {said.attempt} was never stored")
    require(leader.version <= u.version, 2, "it was told before it was stored")
    known = leader.status.fencing
    if known is not None and known.longest_isolation_seconds is not None and said.verb is not Verb.FINISH:
        isolation, longest = said.isolation_ms, known.longest_isolation_seconds * 1000
        require(isolation is not None and isolation <= longest, 1, f"{isolation} ms of isolation are told: {known}")
        require(
            said.grace_ms <= known.longest_stop_grace_seconds * 1000, 1, f"{said.grace_ms} ms are told to stop: {known}"
        )


def runs_in_one_pod(u: Universe, box: Box, said: Directive) -> None:
    """1: what is told to run in an attempt is one pod of each member, also where another one is lost."""
    others = [
        one for one in u.boxes.values() if one.member == box.member and one.pod != box.pod and one.told is not None
    ]
    for other in others if said.verb is Verb.RUN else ():
        is_told = other.told is not None and (other.told.verb, other.told.attempt) == (Verb.RUN, said.attempt)
        require(not is_told, 1, f"{box.pod} and {other.pod} are told to run attempt {said.attempt}")


def stepped(before: machine.State, after: machine.State) -> None:
    """2: a supervisor never goes back."""
    old, new = before.directive, after.directive
    if old is not new and old is not None:
        require(
            new is not None and new.order >= old.order,
            2,
            "a supervisor went back to an older directive",
        )


def said_ready(box: Box, after: machine.State) -> None:
    """1: Ready is said only when no process of any worker is left, but those that have parked for this very stop."""
    if after.phase in {Phase.READY, Phase.IDLE, Phase.DONE}:
        require(not box.procs, 1, f"{box.pod} says {after.phase.value} and has processes {box.procs}")
        known = {local_rank for local_rank, _ in after.parked}
        wrong = [proc for proc in box.parked if proc.local_rank not in known or proc.attempt != after.ran]
        require(not wrong, 1, f"{box.pod} says {after.phase.value} and has {wrong}, which it doesn't know as parked")


def spawned(u: Universe, box: Box, effect: machine.Spawn) -> None:
    """1: a worker starts at most once for each (pod, attempt), by a Run that names the session that said Ready."""
    state = box.machine
    assert state is not None
    key = (state.session, effect.attempt)
    require(effect.run.session == state.session, 1, f"{state.session} obeyed a Run for {effect.run.session}")
    require(key in u.ghost.ready, 1, f"{state.session} starts attempt {effect.attempt} and never said Ready for it")
    require(key not in u.ghost.spawned, 1, f"{state.session} started attempt {effect.attempt} twice")
    require(effect.attempt > box.ran, 1, f"{box.pod} starts attempt {effect.attempt} again, after {box.ran}")
    require(not box.procs, 1, f"{box.pod} starts a worker beside {box.procs}")
    stopped = [proc.local_rank for proc in box.parked if proc.attempt == box.ran]
    require(set(effect.parked) <= set(stopped), 1, f"{box.pod} lets {effect.parked} go on, and {stopped} have parked")
    searched = effect.run.source is not None and bool(effect.run.source.pattern)
    require(not (searched and box.parked), 1, f"{box.pod} searches the output of an older attempt of {box.parked}")
    require(state.terminated_at is None, 1, f"{box.pod} starts a worker though it was told to end")
    _in_order(u, box, effect.attempt)
    sizes.spawned(u, box, effect)


def _in_order(u: Universe, box: Box, attempt: int) -> None:
    """17: no member of a role runs in an attempt before each place of the roles that it waits for has run in it."""
    newest, held = u.ghost.ran
    ran = {session.partition("/")[0].rstrip("'").rpartition(".")[0] for session, at in u.ghost.spawned if at == attempt}
    places = dict(held) if newest == attempt else {}
    own = next((u.places[place].role for place, holder in places.items() if holder == box.member), None)
    wanted = set() if own is None else {one.name for one in own.depends_on}
    late = [holder for place, holder in places.items() if u.places[place].role.name in wanted and holder not in ran]
    require(not late, 17, f"{box.pod} starts in attempt {attempt} before {late}")


def made(u: Universe, member: str, number: int) -> None:
    """3: at most one pod per (member, incarnation)."""
    same = [pod.uid for pod in u.pods.values() if (pod.member, pod.incarnation) == (member, number)]
    require(len(same) == 1, 3, f"{same} are pods of {member}.{number}")


def deleted(u: Universe, action: DeletePod) -> None:
    """3: a pod is deleted only when a durable status says why."""
    pod = u.pods[action.uid]
    over = u.status.phase in {*TERMINAL, GangPhase.SUSPENDED}
    require(
        over or pod.incarnation < incarnation(u.status, pod.member), 3, f"{pod.name} is deleted; no status says why"
    )


def stored(u: Universe, leader: Leader, old: Status, new: Status) -> None:
    """2, 3, 4 and 5: what a status may become."""
    require(new.attempt >= old.attempt, 2, f"the attempt went from {old.attempt} back to {new.attempt}")
    require(new.attempt <= old.attempt + 1, 2, f"attempt {new.attempt} follows attempt {old.attempt}")
    require(is_allowed(old, new), 2, f"no transition leads from {old.phase} to {new.phase}")
    require(old.phase not in TERMINAL or new.phase is old.phase, 5, f"{old.phase} was left for {new.phase}")
    change = Change.of(old, new)
    require(change is None or change in CHANGES, 8, f"no row of the lifecycle's table leads {change}")
    if old.phase is GangPhase.RUNNING and new.phase in {GangPhase.GATHERING, GangPhase.PENDING}:
        require(new.attempt == old.attempt + 1, 2, "a fault did not open a new attempt")
        if not u.engine.searching and leader.number == u.newest_leader:
            match new.incidents[0].cause.reason if new.incidents else "":
                case Reason.GROWING:
                    why = sizes.why_grows(u, leader, old)
                case Reason.QUOTA_RECLAIMED:
                    why = queues.takes_back(leader)
                case _:
                    why = truth.fault(u, leader, old)
            require(why, 9, f"a healthy gang is restarted: {new.message}")
    if new.phase is GangPhase.RUNNING and old.phase is not GangPhase.RUNNING:
        require(new.attempt == old.attempt, 2, "an attempt starts for which no members gathered")
        require(not truth.is_complete(u), 10, f"every process finished attempt {u.ghost.ran[0]}, and it starts again")
        _barrier(u, new)
    for name in u.members:
        require(incarnation(new, name) >= incarnation(old, name), 3, f"{name} goes back to an older incarnation")
    _replaced(u, leader, old, new)
    if new.phase is GangPhase.SUCCEEDED and old.phase is not GangPhase.SUCCEEDED:
        _success(u, old)
    if new.phase is GangPhase.FAILED and old.phase is not GangPhase.FAILED:
        _failure(u, leader, old, new)
    restored.stored(u, leader, old, new)
    _budget(u, leader, old, new)
    _accounted(old, new)
    require(not truth.is_blamed_wrongly(u, old, new), 13, f"{new.incidents[:1]}: its worker ended within the grace")
    # Two controllers that act at once, one of them stale, may have clocks that differ: that costs only patience.
    one_clock = u.phase_skew == leader.skew or u.phase_at <= leader.began
    if new.barrier_timeouts > old.barrier_timeouts and one_clock:
        listened = (u.now - max(u.phase_at, leader.began)) / 1000
        timeout = u.spec.recovery.barrier_timeout_seconds
        require(listened >= timeout, 5, f"the barrier's deadline passed after {listened} s with a leader")
    if new.given_back and not old.given_back and not u.skew:
        listened, timeout = u.wall - seconds(leader.since), u.spec.recovery.replacement_timeout_seconds
        require(listened >= timeout, 5, f"the replacement timeout passed after {listened} s with a leader")


def _replaced(u: Universe, leader: Leader, old: Status, new: Status) -> None:
    """9: no healthy pod is replaced, and none for silence alone."""
    if u.engine.searching or leader.number != u.newest_leader or new.base_incarnation > old.base_incarnation:
        return
    for name in layout(leader.spec.roles).members:
        if incarnation(new, name) > incarnation(old, name):
            gives = any(one.member == name and one.without_quota for one in new.replaced)
            why = gives or truth.unfit(u, leader, old, new, name)
            require(why, 9, f"the healthy pod of {name} is replaced: {new.message}")


def storable(status: Status) -> None:
    """12: a status can be stored, and is read as it was written: whether a lost answer was a yes is told by that."""
    try:
        stored_again(status)
    except ValueError as error:
        require(False, 12, str(error))  # noqa: FBT003 - it doesn't hold


def _accounted(old: Status, new: Status) -> None:
    buckets = [(name, getattr(old.spent, name), getattr(new.spent, name)) for name in Spent.model_fields]
    require(all(after >= before for _, before, after in buckets), 7, f"time that was spent is not any more: {buckets}")
    if old.accounted_time:
        passed, added = new.accounted_time - old.accounted_time, total(new.spent) - total(old.spent)
        require(passed >= 0 and abs(passed - added) < 0.01, 7, f"{added} s are accounted for {passed} s")
    for one in new.incidents[:1]:
        require(min((part.milliseconds for part in one.members), default=0) >= 0, 7, f"negative: {one.members}")
        require(len(one.members) <= MAX_LISTED, 7, f"{len(one.members)} members in an incident")


def _barrier(u: Universe, new: Status) -> None:
    held = holders(u.spec, new)
    require(len(set(held.values())) == len(held), 1, f"a member holds two places: {held}")
    for member in held.values():
        uid = f"{member}.{incarnation(new, member)}"
        said = any(
            attempt == new.attempt and session.partition("/")[0].rstrip("'") == uid
            for session, attempt in u.ghost.ready
        )
        require(said, 1, f"attempt {new.attempt} starts though {member} did not say Ready")


def _success(u: Universe, old: Status) -> None:
    """3: a gang that succeeded did so by exits with 0 before any stop."""
    attempt = old.attempt if old.phase is GangPhase.RUNNING else old.started_attempt
    policy = u.spec.success_policy
    held = holders(u.spec, old)
    for name, member in u.places.items():
        if isinstance(policy, Roles) and member.role.name not in policy.roles:
            continue
        for local_rank in range(started_processes(member.role)):
            done = (attempt, held[name], local_rank) in u.ghost.finished
            require(
                done, 3, f"the gang succeeded though {name} (process {local_rank}) did not finish attempt {attempt}"
            )


def _failure(u: Universe, leader: Leader, old: Status, new: Status) -> None:
    """3: an echo never ends the job: FailJob needs the earliest end of all that the controller knows."""
    attempt = old.attempt - 1
    if not new.incidents or new.incidents[0].outcome != "Failed" or not new.incidents[0].settled:
        return
    if new.conditions and all(one.reason != Reason.FAILED_BY_RULE for one in new.conditions):
        return
    if not new.conditions:  # The search stores no conditions; other causes leave no rule behind.
        return
    held = set(holders(u.spec, old).values())
    ends: list[tuple[float, str, End]] = [
        (heard.at - end.age_ms / 1000, heard.report.member, end)
        for heard in leader.heard
        if heard.report.member in held and heard.report.incarnation == incarnation(old, heard.report.member)
        for end in heard.report.ends
        if end.attempt == attempt and not end.stopped and end.exit_code != 0
    ]
    fatal = [at for at, _, end in ends if end.exit_code == FATAL_CODE]
    if not fatal:  # The pod that told it is gone; the status has kept it.
        require(old.incidents[0].cause.exit_code == FATAL_CODE, 3, "a FailJob rule ended the job and no end matches it")
        return
    if u.skew:
        return  # The clock was set, so that the controller can't tell what came first.
    others = [(at, member) for at, member, end in ends if end.exit_code != FATAL_CODE]
    require(all(at >= min(fatal) - 0.1 for at, _ in others), 3, f"an echo ended the job: {ends}")
    tied = {member for at, member, _ in ends if abs(at - min(fatal)) < TIE_SECONDS / 2}
    before = old.incidents[1].cause.tied if len(old.incidents) > 1 else ()
    again = len(before) < NAMED and tied <= set(before)
    require(again or not tied & {member for _, member in others}, 3, f"tied ends that do not match end the job: {ends}")


def _budget(u: Universe, leader: Leader, old: Status, new: Status) -> None:
    """5: nothing is charged beyond the budget that the leader knows, and an attempt is charged at most once."""
    charged = [entry for entry in new.ledger if entry.charged]
    attempts = [entry.attempt for entry in new.ledger]
    require(len(attempts) == len(set(attempts)), 5, f"an attempt is in the ledger twice: {attempts}")
    budget = leader.spec.recovery.budget
    known = {entry.attempt for entry in old.ledger if entry.charged}  # Their times change with the leader's clock.
    charges = any(entry.attempt not in known for entry in charged)
    if isinstance(budget, Windowed) and new.phase is GangPhase.RUNNING and charges:
        since = seconds(u.clock(leader)) - budget.window_seconds
        used = sum(entry.time > since for entry in charged)
        require(used <= budget.max_restarts, 5, f"{used} restarts are charged of {budget.max_restarts}")
    total = new.restarts.counted + new.restarts.uncounted
    require(total <= max(0, new.attempt - 1), 5, f"{total} restarts are counted in {new.attempt} attempts")
