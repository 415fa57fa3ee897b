"""Driving a universe: at random by a seed, with faults at given places, and then fairly until it is settled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from gangctl.api.recovery import RestartFrom
from gangctl.api.status import GangPhase
from gangctl.core.facts.fitness import SETTLING_SECONDS
from gangctl.core.facts.gang import holders, incarnation
from gangctl.core.policy.admission import CHECK_MARGIN_SECONDS
from gangctl.core.policy.recovery import LONGEST_SECONDS
from gangsidecar.wire import Progress
from tests.simulation import controller, invariants, moves, power, queues
from tests.simulation.engine import plain
from tests.simulation.faults import FAULTS, heal
from tests.simulation.moves import Kind, Move
from tests.simulation.policies import redrawn
from tests.simulation.setups import setups
from tests.simulation.universe import Universe, new_universe
from tests.simulation.violations import require

MOVES_TO_SETTLE = 6_000
MOVES_A_SECOND = 10
"""So many more for each second that passes: a gang that waits for a checkpoint looks again every two seconds."""
MOVES_TO_RUN = 120
SECONDS_TO_SETTLE = 12 * 3600
"""And the times of its policies on top."""
STALE_MS = 10_000
"""What a controller reads and hears is at most this old: watches and connections without news are closed."""
TURNS = 8
"""So many turns of a check at most, those with pods that are replaced meanwhile included."""
OVER, GOES_ON = 0.3, 0.5
"""How often nothing more goes wrong with a gang that has ended, and how often a user frees one that is held."""

LEADERLESS, QUARTER = "no controller leads, or one does again", "a quarter of an hour passes"
FINALES = (
    (),
    ("all workers finish",),
    ("a worker finishes", "a finished pod is deleted", "minutes pass", "the controller crashes", "all workers finish"),
    ("train", "a worker exits with a fatal code"),
    (LEADERLESS, "all workers finish", QUARTER, QUARTER, QUARTER, LEADERLESS),
)
"""How a life that has come to rest ends: it goes on, it succeeds, all at once, one by one or while no controller
leads, or a rule fails it."""


@dataclass(frozen=True)
class Injection:
    """After so many moves this goes wrong, with that target."""

    after: int
    what: str
    target: int = 0
    rested: bool = False
    """Before that, the gang has the time to run again."""


@dataclass
class Run:
    """One simulated life of a gang."""

    universe: Universe
    moves: int = 0
    trace: list[str] = field(default_factory=list)


def simulate(
    setup: str,
    seed: int,
    injections: Sequence[Injection],
    *,
    disorder: int = 3,
    warm: bool = False,
    policies: int | None = None,
) -> Run:
    """Faults among moves in a random order, then none, until the gang is settled.

    ``warm``: the first fault finds the gang running, with checkpoints.
    ``disorder``: how far a scheduler may look for a move that isn't the next; 0 = everything happens in its order.
    ``policies``: the seed of the gang's policies; None = its own.

    Raises:
        ViolationError: an invariant doesn't hold; it has the run's trace as notes.
    """
    gang = setups()[setup]
    run = Run(new_universe(gang if policies is None else redrawn(gang, policies), plain()))
    try:
        if warm:
            settle(run)
            FAULTS["train"](run.universe, 4)
        _disturb(run, Random(seed), injections, disorder)
        run.trace.append("no more faults")
        heal(run.universe)
        settle(run)
        if run.universe.status.phase is GangPhase.RUNNING:
            _end(run, FINALES[seed % len(FINALES)])
    except Exception as error:
        life = f"setup {setup}, seed {seed}, disorder {disorder}, warm {warm}, policies {policies}"
        error.add_note(f"{life}, injections {list(injections)}")
        error.add_note("\n".join(run.trace[-400:]))
        raise
    return run


def _end(run: Run, finale: Sequence[str]) -> None:
    for what in finale:
        run.trace.append(f"-- {what}")
        FAULTS[what](run.universe, 0)
        settle(run)


def _disturb(run: Run, random: Random, injections: Sequence[Injection], disorder: int) -> None:
    u = run.universe
    for one in injections:
        if u.status.phase in invariants.TERMINAL and random.random() < OVER:
            return
        if (u.status.phase is GangPhase.HELD or u.status.given_back) and random.random() < GOES_ON:
            FAULTS["the user asks for a restart"](u, 0)
        rest = MOVES_TO_RUN if one.rested else 0
        while rest and u.status.phase not in {GangPhase.RUNNING, *invariants.TERMINAL}:
            _one(run, random, disorder)
            rest -= 1
        for _ in range(one.after):
            _one(run, random, disorder)
        power.struck(u, one.what)
        FAULTS[one.what](u, one.target)
        invariants.one_attempt(u)
        run.moves += 1
        run.trace.append(f"-- {one.what} ({one.target})")


def _one(run: Run, random: Random, disorder: int) -> None:
    u = run.universe
    controller.lose_leases(u)
    stale = next(
        (number for number, leader in u.leaders.items() if u.now - min(leader.synced) > STALE_MS and not leader.frozen),
        None,
    )
    if stale is not None:
        _perform(run, Move(Kind.SYNC, stale))
        return
    overdue = next(
        (uid for uid, box in u.boxes.items() if box.up and u.now - box.up[0].sent > STALE_MS and not box.broken), None
    )
    if overdue is not None:
        _perform(run, Move(Kind.UP, overdue))
        return
    enabled = list(moves.moves(u))
    if not enabled or (disorder and random.random() < 0.02):
        due = moves.next_time(u)
        step = random.choice((50, 400, 2_500))
        moves.advance(u, u.now + step if due is None or random.random() < 0.3 else min(due, u.now + 60_000))
        run.moves += 1
        return
    at = random.randrange(min(len(enabled), 1 + disorder * disorder)) if disorder else 0
    _perform(run, enabled[at])


def _perform(run: Run, move: Move) -> None:
    u = run.universe
    status = u.status
    run.trace.append(f"{u.now:>9} {move.kind.name.lower()} {move.who} {move.which or ''}")
    moves.perform(u, move)
    run.moves += 1
    if u.status is not status:
        run.trace.append(f"{'':9} = attempt {u.status.attempt} {u.status.phase}: {u.status.message}")


def longest_seconds(u: Universe) -> float:
    """How long an attempt gathers at most, by the gang's spec: each wait of the barrier, and what is granted before."""
    spec = u.spec.recovery
    grace = max(spec.stop_grace_period_seconds, spec.planned_stop_grace_period_seconds)
    lost = max(spec.lost_pod_grace_seconds, spec.isolation_timeout_seconds or 0)
    granted = grace + lost + spec.evidence_window_seconds + spec.coalesce_seconds + LONGEST_SECONDS + SETTLING_SECONDS
    granted += sum(TURNS * (one.timeout_seconds + CHECK_MARGIN_SECONDS) for one in spec.checks)
    starts = spec.pod_start_timeout_seconds + spec.replacement_timeout_seconds
    return 3 * (spec.barrier_timeout_seconds + granted + starts)


def _granted_seconds(u: Universe) -> float:
    """How long a gang may be in phases that aren't to gather an attempt."""
    recovery, progress = u.spec.recovery, u.spec.progress
    hangs = (
        progress.timeout_seconds,
        *(progress.timeout_of(phase) for phase in ("Startup", "Checkpoint", "Evaluation")),
    )
    waits = (recovery.hold_timeout_seconds, recovery.scheduling_timeout_seconds, recovery.grow_after_seconds)
    return longest_seconds(u) + sum(one or 0 for one in (*hangs, *waits, recovery.shrink_after_seconds))


def settle(run: Run) -> None:
    """6: without faults, the gang comes to rest within a bounded number of moves and a bounded time.

    No attempt gathers for longer than the spec allows.
    """
    u = run.universe
    start, moved = u.now, run.moves
    began, attempt = start, u.status.attempt
    known = len(u.spec.restart_token)
    while True:
        asked = u.spec.restart_token[known:]
        if attempt != u.status.attempt or u.status.phase not in {GangPhase.PENDING, GangPhase.GATHERING}:
            began, attempt = u.now, u.status.attempt
        require(u.now <= began + longest_seconds(u) * 1000, 6, f"attempt {attempt} gathers for too long: {_rest(u)}")
        for move in moves.moves(u):
            _perform(run, move)
            break
        else:
            if is_settled(u):
                return
            waits = u.status.phase is GangPhase.HELD or u.status.given_back
            if waits and " go on" not in asked:
                u.change_spec(restart_token=f"{u.spec.restart_token} go on")
                run.trace.append("-- the user goes on")
                continue
            if u.status.phase is GangPhase.HELD:  # Held again: from zero it never goes silently.
                require(asked.count("from zero") < _starts_from_zero(u), 11, f"no way leads out: {u.status.message}")
                token = f"{u.spec.restart_token}, go on from zero"
                u.change_spec(restart_token=token, restart_from=RestartFrom(type="Beginning", restart_token=token))
                run.trace.append("-- the user goes on from the beginning")
                continue
            poisoned = [
                (uid, proc) for uid, box in u.boxes.items() if box.poisoned for proc in moves.main_processes(box)
            ]
            if poisoned:
                uid, proc = poisoned[0]
                u.feed(uid, Progress(proc.attempt, u.boxes[uid].step, 0, "Startup"))
                u.end_process(uid, proc, 1, None)
                run.trace.append(f"-- {poisoned[0][0]} can't load its checkpoint")
                continue
            due = moves.next_time(u)
            require(due is not None, 6, f"nothing will ever happen, and the gang is {_rest(u)}")
            assert due is not None
            moves.advance(u, due)
        enough = MOVES_TO_SETTLE + MOVES_A_SECOND * (u.now - start) / 1000
        require(run.moves - moved < enough, 6, f"after {int(enough)} moves without a fault the gang is {_rest(u)}")
        longest = SECONDS_TO_SETTLE + _granted_seconds(u)
        require(u.now < start + longest * 1000, 6, f"after {longest} s without a fault the gang is {_rest(u)}")


def _starts_from_zero(u: Universe) -> int:
    """So often may a user have to ask: what ends an attempt before its first step is verified holds the gang again."""
    checkpoint = u.spec.checkpoint
    return 4 if checkpoint is not None and checkpoint.restore.trust == "Verified" else 1


def is_settled(u: Universe) -> bool:
    """Whether the gang has ended, or runs with every worker of the attempt there or finished."""
    if u.status.phase in invariants.TERMINAL:
        return queues.is_at_rest(u) and not any(box.procs for box in u.boxes.values())
    if u.status.phase is not GangPhase.RUNNING:
        return False
    attempt = u.status.attempt
    for member in holders(u.spec, u.status).values():
        role = u.members[member].role
        count = role.processes_per_pod if role.launch == "PerProcess" else 1
        done = {rank for at, name, rank in u.ghost.finished if (at, name) == (attempt, member)}
        if len(done) == count:
            continue  # It needs no pod any more.
        box = next(
            (
                box
                for box in u.boxes.values()
                if box.member == member and box.incarnation == incarnation(u.status, member) and not box.exited
            ),
            None,
        )
        if box is None or box.machine is None or box.poisoned:
            return False
        runs = {proc.local_rank for proc in moves.main_processes(box) if proc.attempt == attempt}
        if len(runs | done) != count:
            return False
    return True


def _rest(u: Universe) -> str:
    return f"{u.status.phase or 'New'} (attempt {u.status.attempt}, {u.status.message})"
