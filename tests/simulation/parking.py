"""Processes that park, in the fake kernel. How it really is is in ``Box.parked``; the machine is told what they say.

A process parks at any moment after it was told to, twice, too late, never, or for another stop; it dies while it is
parked. One that says the right word is taken at it: what goes on training then harms only itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gangctl.api.recovery import ApiProgress, LogProgress
from gangsidecar.supervisor import machine
from gangsidecar.supervisor.machine.stop import PARKED_MS
from gangsidecar.wire import Phase
from tests.simulation import kept as keeping
from tests.simulation.values import CHILD, Box, Fault, Proc
from tests.simulation.violations import require

if TYPE_CHECKING:
    from tests.simulation.universe import Universe

SIGKILL: Final = 9
SCRIPTS_PARK: Final = "scripts can restart inside their processes, or can do so no more"


def parks(proc: Proc) -> bool:
    """Whether this process would park now."""
    return proc.asked and not proc.stubborn and not proc.stuck


def kept(u: Universe, uid: str) -> None:
    """Invariant 1: processes are parked only as long as a Run may come: not in a pod that ends or is done."""
    box = u.boxes[uid]
    state = box.machine
    if state is None or not state.parked:
        return
    require(state.phase is not Phase.DONE, 1, f"{uid} is done and has parked processes {state.parked}")
    late = u.now - box.parked_at > PARKED_MS and not state.looking
    require(not late, 1, f"{uid} has parked processes without a Run since {box.parked_at}")
    ends = state.terminated_at is not None and not state.alive
    require(not ends, 1, f"{uid} was told to end and keeps parked processes {state.parked}")
    inside = {proc.local_rank for proc in box.parked}
    outside = [local_rank for local_rank, _ in state.parked if local_rank not in inside]
    require(not outside, 1, f"{uid} takes processes {outside} for parked that are not")


def asked(box: Box, effect: machine.Park) -> tuple[Proc, ...]:
    """The processes of a box, after some were told to park."""
    return tuple(
        replace(proc, asked=True) if proc.local_rank in effect.local_ranks and proc.attempt == effect.attempt else proc
        for proc in box.procs
    )


def signalled(box: Box, effect: machine.Signal) -> tuple[Proc, ...]:
    """The processes of a box, after a signal. What a spared process has started gets none either."""
    spared = {*effect.spared, *((CHILD,) if 0 in effect.spared else ())}
    return tuple(proc if proc.local_rank in spared else replace(proc, termed=True) for proc in box.procs)


def park(u: Universe, uid: str, proc: Proc) -> None:
    """The process leaves what it trained, and says so. Some end what they have started, others leave it behind."""
    holding = keeping.offered(u, uid, proc)
    box = u.boxes[uid]
    procs = tuple(one for one in box.procs if one != proc)
    if proc.attempt % 2:
        procs = tuple(one for one in procs if one.local_rank != CHILD or one.stuck)
    u.boxes[uid] = box._replace(procs=procs, parked=(*box.parked, holding), parked_at=u.now)
    u.feed(uid, machine.Parked(proc.local_rank, proc.attempt))
    state = u.boxes[uid].machine
    if state is None or all(local_rank != proc.local_rank for local_rank, _ in state.parked):
        u.power["a word of a process that has not parked was not believed"] += 1
        return  # It is killed in time: it came too late, or was never asked.
    _look(u, uid)


def _look(u: Universe, uid: str) -> None:
    """The supervisor looks what is left."""
    box = u.boxes[uid]
    if box.machine is not None and not box.procs and _believed(box) == box.parked:
        u.feed(uid, machine.TreeGone())


def _believed(box: Box) -> tuple[Proc, ...]:
    """The parked processes that the machine takes for parked."""
    known = () if box.machine is None else {local_rank for local_rank, _ in box.machine.parked}
    return tuple(proc for proc in box.parked if proc.local_rank in known)


def ended(u: Universe, uid: str, local_rank: int) -> list[machine.Input]:
    """A parked process is gone, and the supervisor reaps it."""
    box = u.boxes[uid]
    u.boxes[uid] = box._replace(parked=tuple(one for one in box.parked if one.local_rank != local_rank))
    return [machine.Exited(local_rank, signal=SIGKILL)]


def killed(u: Universe, uid: str) -> list[machine.Input]:
    """SIGKILL to all but those that the machine takes for parked."""
    events: list[machine.Input] = []
    box = u.boxes[uid]
    spared = _believed(box)
    if spared and box.procs:
        u.power["what parked processes had left behind was killed"] += 1
    for proc in box.parked:
        if proc not in spared:
            u.power["a parked process was ended"] += 1
            events += ended(u, uid, proc.local_rank)
    running = [proc for proc in box.procs if not proc.stuck]
    for proc in running:
        events += u.died(uid, proc, None, SIGKILL)
    return events if running or u.boxes[uid].procs else [*events, machine.TreeGone()]


def goes_on(u: Universe, uid: str, effect: machine.Spawn) -> None:
    """The parked processes that a Run asks for are those of the new attempt from now on."""
    u.power["a process went on in the next attempt"] += len(effect.parked)
    u.boxes[uid] = u.boxes[uid]._replace(parked=())


def _toggle(u: Universe, _target: int) -> None:
    """The scripts that run say so at once."""
    u.parks = not u.parks
    for uid, box in list(u.boxes.items()):
        for proc in box.procs if box.machine is not None else ():
            if proc.local_rank != CHILD:
                u.feed(uid, machine.Parkable(proc.local_rank, can=u.parks))


def _search(u: Universe, _target: int) -> None:
    """The user changes the source of progress between the API and the output."""
    is_api = isinstance(u.spec.progress.source, ApiProgress)
    source = LogProgress(type="Log", pattern="step (?P<step>[0-9]+)") if is_api else ApiProgress(type="API")
    u.change_spec(progress=u.spec.progress.model_copy(update={"source": source}))


def _say(u: Universe, target: int) -> None:
    """A process says that it has parked, for some stop, whether it was told to or not."""
    found = [(uid, proc) for uid, box in u.boxes.items() for proc in box.procs if proc.local_rank != CHILD]
    if not found:
        return
    uid, proc = found[target % len(found)]
    attempt = proc.attempt + (target // len(found)) % 3 - 1
    if proc.asked and attempt == proc.attempt:
        park(u, uid, proc)
    else:
        u.power["a word of a process that has not parked was not believed"] += 1
        u.feed(uid, machine.Parked(proc.local_rank, attempt))


def _repeat(u: Universe, target: int) -> None:
    """A process that has parked says so again, or for another stop."""
    found = [(uid, proc) for uid, box in u.boxes.items() for proc in box.parked]
    if found:
        uid, proc = found[target % len(found)]
        u.feed(uid, machine.Parked(proc.local_rank, proc.attempt + target % 3))


def _die(u: Universe, target: int) -> None:
    """A process ends while it is parked, or closes its channel."""
    found = [(uid, proc) for uid, box in u.boxes.items() for proc in box.parked if box.machine is not None]
    if not found:
        return
    uid, proc = found[target % len(found)]
    if proc not in _believed(u.boxes[uid]):
        return
    if target % 2:
        u.feed(uid, machine.Parkable(proc.local_rank, can=False))
        return
    for event in ended(u, uid, proc.local_rank):
        u.feed(uid, event)
    if u.boxes[uid].machine is not None:
        _look(u, uid)


FAULTS: Final[dict[str, Fault]] = {
    SCRIPTS_PARK: _toggle,
    "progress is read from the output, or no longer": _search,
    "a process says that it has parked": _say,
    "a parked process says so again": _repeat,
    "a parked process dies": _die,
}
