"""The state of a supervisor, and the report with all of it for the controller."""

from __future__ import annotations

from dataclasses import replace

from gangsidecar import wire
from gangsidecar.supervisor.machine import history as histories
from gangsidecar.supervisor.machine.events import Effects, PodIdentity
from gangsidecar.supervisor.machine.history import History
from gangsidecar.wire import Phase
from gangsidecar.wire.frozen import frozen

GRACE_MS = 15_000
"""From SIGTERM to SIGKILL where no directive has arrived yet."""


@frozen
class Stop:
    """A stop in progress, which began at ``since``. SIGKILL is due at ``kill_at``, was sent at ``killed_at``."""

    since: int
    kill_at: int
    killed_at: int | None = None
    signal_at: int | None = None
    """When SIGTERM is due; None = it was sent, or nothing is left that gets it."""
    parking: tuple[int, ...] = ()
    """The local ranks that were asked to park. They get no SIGTERM."""
    taking: bool = False
    """The stacks of the worker are being taken: it knows nothing of the stop yet. ``signal_at`` is when that ends."""
    stacks: str = ""
    """Those that were taken meanwhile."""
    leftover: bool = False
    """Each spawned process has parked or ended: only what they left behind holds Ready up."""
    of_parked: bool = False
    """No worker is being stopped: processes that were parked are being ended."""


@frozen
class Checking:
    """A check that runs, or whose processes are being ended."""

    check: wire.Check
    since: int
    outcome: wire.Checked | None = None
    """How it ended; absent while it runs, and where it was ended for another reason than its time."""
    then: wire.Check | None = None
    """The one that was asked for meanwhile."""


@frozen
class State:
    """Everything that a supervisor knows. Hashable; only :func:`start_session` and :func:`step` make one."""

    identity: PodIdentity
    session: str
    orphan_ms: int
    pinged_at: int
    """When the last ping of a controller arrived; at first, when the session began."""
    leased_at: int
    """When the newest report was sent that a controller has heard; at first, when the session began."""
    gone_at: int
    """When the last process of a worker was gone; at first, when the session began."""
    phase: Phase
    phase_since: int
    history: History
    directive: wire.Directive | None = None
    """The newest that was accepted."""
    ran: int = 0
    """The attempt of the newest Spawn of this session."""
    ran_in_pod: int = 0
    """The newest attempt that was spawned in the pod, in this session or, as far as that was kept, an earlier one."""
    process_tier: str = ""
    """The tier of what the processes of the newest Spawn have in memory."""
    alive: bool = False
    """From Spawn, or RunCheck, to TreeGone."""
    mains: tuple[tuple[int, int | None], ...] = ()
    """(local rank, rank) of the spawned processes that have not ended."""
    parkable: tuple[int, ...] = ()
    """The local ranks whose process can park."""
    parked: tuple[tuple[int, int | None], ...] = ()
    """(local rank, rank) of the processes that have parked; ``mains`` does not have them."""
    parked_at: int = 0
    """When the newest of them did."""
    readers: int = 0
    """The number of readers that act on a stop of the attempt that ran last before its signal."""
    stop: Stop | None = None
    stop_ms: int | None = None
    """The duration of the last stop."""
    killed_ms: int | None = None
    """The time from its beginning to SIGKILL; absent if the worker ended within its grace, or had none."""
    terminated_at: int | None = None
    """When SIGTERM arrived: the pod is to end."""
    looking: bool = False
    """Between LookForRestore and its answer."""
    check: Checking | None = None
    """The one that is alive: no worker is."""
    checks: tuple[wire.Checked, ...] = ()
    """Those that have ended in the attempt of the directive."""
    warm_start: wire.WarmStart | None = None
    """The way in which the newest worker was started."""
    stacks: wire.Stacks | None = None
    """Those of the worker that was stopped last."""
    log_matches: tuple[wire.LogMatch, ...] = ()
    """The first match of each pattern in the output of the newest worker."""
    missing_step: int | None = None
    missing_attempt: int = 0
    missing_folder: bool = False
    ports: tuple[int, ...] = ()
    progress_sent_at: int | None = None
    """When progress last caused a report."""
    progress_held: bool = False
    """There is newer progress, which waits for its time."""


Result = tuple[State, Effects]


def start_session(
    identity: PodIdentity,
    session: str,
    now_ms: int,
    ends: tuple[wire.End, ...] = (),
    checkpoints: tuple[wire.Checkpoint, ...] = (),
    dropped: tuple[wire.Dropped, ...] = (),
    *,
    ran: int = 0,
    orphan_ms: int = 600_000,
) -> State:
    """Return the state of a new session, which has this random id, with what earlier sessions of the pod left.

    The ages of ``ends`` are as of ``now_ms``; ``ran`` is the newest attempt whose worker they had started. The session
    ends after ``orphan_ms`` without a controller and without a live worker.
    """
    history = History()
    for end in ends:
        history = histories.add_end(history, now_ms - end.age_ms, end)
    for checkpoint in checkpoints:
        history = histories.add_checkpoint(history, checkpoint)
    for one in dropped:
        history = histories.drop_checkpoint(history, one)
    return State(
        identity=identity,
        session=session,
        orphan_ms=orphan_ms,
        pinged_at=now_ms,
        leased_at=now_ms,
        gone_at=now_ms,
        phase=Phase.IDLE,
        phase_since=now_ms,
        history=history,
        ran_in_pod=ran,
    )


def report(state: State, now_ms: int, seq: int) -> wire.Report:
    """The whole state, as the controller gets it."""
    return wire.Report(
        gang=state.identity.gang,
        member=state.identity.member,
        incarnation=state.identity.incarnation,
        pod=state.identity.pod,
        session=state.session,
        seq=seq,
        attempt=0 if state.directive is None else state.directive.attempt,
        phase=state.phase,
        terminating=state.terminated_at is not None,
        ends=histories.ends(state.history, now_ms),
        checkpoints=tuple(one for one in state.history.checkpoints if _is_there(state, one)),
        dropped=state.history.dropped,
        missing_step=state.missing_step,
        missing_attempt=state.missing_attempt,
        missing_folder=state.missing_folder,
        progress=histories.progress(state.history, now_ms),
        request=histories.request(state.history, now_ms),
        address=state.identity.address,
        ports=state.ports,
        phase_age_ms=max(0, now_ms - state.phase_since),
        stop_ms=state.stop_ms,
        killed_ms=state.killed_ms,
        reached=histories.reached_milestones(state.history, now_ms),
        fencing=0 if state.directive is None else state.directive.fencing,
        sent_ms=now_ms,
        warm_start=state.warm_start,
        stacks=state.stacks,
        log_matches=state.log_matches,
        ran=state.ran,
        corruption=histories.corruption(state.history, now_ms),
        verified=state.history.verified,
        checks=state.checks,
    )


def lasting_checkpoints(state: State) -> tuple[wire.Checkpoint, ...]:
    """What is registered and outlives the container."""
    return tuple(one for one in state.history.checkpoints if one.tier != state.process_tier)


def _is_there(state: State, one: wire.Checkpoint) -> bool:
    """Whether it is still there: in the tier of processes if its rank's lives, which is any one without a rank."""
    return one.tier != state.process_tier or any(rank in {one.rank, None} for _, rank in (*state.mains, *state.parked))


def enter(state: State, now_ms: int, phase: Phase) -> State:
    """The state in this phase; the age of the phase starts only when it changes."""
    return state if state.phase is phase else replace(state, phase=phase, phase_since=now_ms)


def lease_ends(state: State, isolation_ms: int | None) -> int | None:
    """Return when no worker may run any more unless a controller gets a newer report; None = never."""
    return None if isolation_ms is None else state.leased_at + isolation_ms
