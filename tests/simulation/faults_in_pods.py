"""What goes wrong in pods: workers, supervisors, sidecars, and their connections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gangctl.api.roles import number_places
from gangsidecar.wire import Corruption, Level, Request, Verified, Watching
from tests.simulation import disks, kubelets, moves, parking, sidecars, truth
from tests.simulation.setups import FATAL_CODE
from tests.simulation.universe import SIGKILL, Universe
from tests.simulation.values import CHILD, Box, Fault, Proc


def box_of(u: Universe, target: int) -> Box | None:
    """The pod that a fault is aimed at."""
    boxes = [box for box in u.boxes.values() if not box.exited]
    return boxes[target % len(boxes)] if boxes else None


def _with_worker(u: Universe, target: int) -> tuple[Box, Proc] | None:
    found = [(box, proc) for box in u.boxes.values() for proc in moves.main_processes(box) if not proc.stuck]
    return found[target % len(found)] if found else None


def _ends(code: int | None, signum: int | None = None, *, oom: bool = False) -> Fault:
    def fault(u: Universe, target: int) -> None:
        found = _with_worker(u, target)
        if found is not None:
            box, proc = found
            u.end_process(box.pod, proc, code, signum, oom=oom)
            daemon = next((one for one in u.boxes[box.pod].procs if one.local_rank == CHILD), None)
            if daemon is not None and target % 2:
                u.end_process(box.pod, daemon, 0, None)

    return fault


def _all_finish(u: Universe, _target: int) -> None:
    for uid, box in list(u.boxes.items()):
        for proc in box.procs if box.machine is not None else ():
            if not proc.stuck and not proc.termed:
                u.end_process(uid, proc, 0, None)


def _all_end(u: Universe, target: int) -> None:
    """Every worker ends at one moment: alike, or all but the last two with a code that ends the job."""
    boxes = sorted(u.boxes.items())
    running = [(uid, proc) for uid, box in boxes for proc in moves.main_processes(box) if not proc.stuck]
    for at, (uid, proc) in enumerate(running):
        fatal = target % 2 == 0 and at < len(running) - 2
        u.end_process(uid, proc, FATAL_CODE if fatal else 1, None)


def _change(change: Callable[[Proc], Proc]) -> Fault:
    def fault(u: Universe, target: int) -> None:
        found = _with_worker(u, target)
        if found is not None:
            box, proc = found
            changed = tuple(change(one) if one == proc else one for one in box.procs)
            u.boxes[box.pod] = box._replace(procs=changed)

    return fault


def _disable(u: Universe, target: int) -> None:
    """The next start of its worker fails."""
    box = box_of(u, target)
    if box is not None:
        u.boxes[box.pod] = box._replace(unable=True)


def _request(u: Universe, target: int) -> None:
    found = _with_worker(u, target)
    if found is not None:
        box, proc = found
        level = list(Level)[target % 3]
        u.feed(box.pod, Request(proc.attempt, 0, "asked", proc.rank, level, exclude_node=target % 5 == 0))


def _corrupt(u: Universe, target: int) -> None:
    """A rank finds that it computes wrongly, or that another of its process group does, since some steps."""
    found = _with_worker(u, target)
    if found is None:
        return
    box, proc = found
    held, numbering = dict(u.ghost.ran[1]), number_places(u.roles)
    peers = [place for place in numbering.groups.get(u.group_of(box.member), []) if place in held]
    rank, accused = proc.rank or 0, box.member
    if target % 4 == 0 and peers and u.ghost.ran[0] == proc.attempt:
        place = peers[target // 4 % len(peers)]
        rank, accused = numbering.ranks[place][0], held[place]
    u.feed(box.pod, Corruption(proc.attempt, 0, max(1, box.step - target % 3), "wrong", rank))
    u.ghost = u.ghost._replace(accused=u.ghost.accused | {(proc.attempt, accused)})


def _verify(u: Universe, target: int) -> None:
    """A rank verifies the checkpoint of a step that it has made, or of the one before."""
    found = _with_worker(u, target)
    if found is None or found[0].step <= target % 2:
        return
    box, proc = found
    step = box.step - target % 2
    u.feed(box.pod, Verified(proc.attempt, step))
    u.ghost = u.ghost._replace(verified=u.ghost.verified | {disks.cut(box.line, step)})


def _watch(u: Universe, target: int) -> None:
    """It wants to hear of its stop before the signal, or no more."""
    found = _with_worker(u, target)
    if found is not None:
        box, proc = found
        u.feed(box.pod, Watching(proc.attempt, target % 3))


def _crash_supervisor(u: Universe, target: int) -> None:
    box = box_of(u, target)
    if box is not None and box.machine is not None:
        kubelets.crash_supervisor(u, box.pod)


def _end_for_good(u: Universe, target: int) -> None:
    """Where containers are started again at all. On one machine there are none."""
    box = box_of(u, target)
    if box is not None and box.machine is not None and u.setup.restarts_containers and not u.setup.local:
        kubelets.end_for_good(u, box.pod)


def _cut(u: Universe, target: int) -> None:
    box = box_of(u, target)
    if box is not None:
        sidecars.cut(u, box.pod)


def _crash_sidecar(u: Universe, target: int) -> None:
    """It forgets what it heard; the supervisor tells it its whole state again."""
    box = box_of(u, target)
    if box is not None:
        sidecars.cut(u, box.pod)
        box = u.boxes[box.pod]
        u.boxes[box.pod] = box._replace(newest=None)
        if box.machine is not None:
            sidecars.report(u, box.pod)


def partition(u: Universe, target: int) -> None:
    """Nothing reaches the member any more, and it reaches nothing."""
    box = box_of(u, target)
    if box is not None:
        sidecars.cut(u, box.pod)
        u.boxes[box.pod] = u.boxes[box.pod]._replace(cut_off=True)
        truth.forget(u, box.pod)


def _reconnect(u: Universe, target: int) -> None:
    apart = [box for box in u.boxes.values() if not box.is_reached]
    if apart:
        box = apart[target % len(apart)]
        if box.node in u.lost and not box.is_reached:
            u.ghost = u.ghost._replace(excused=u.status.attempt)
        sidecars.reach(u, box.pod)


def _lose_message(u: Universe, target: int) -> None:
    """On a connection that loses a message nothing else can be relied on: it ends, sooner or later."""
    box = box_of(u, target)
    if box is not None and box.link is not None and (box.up or box.down):
        if box.down and (target % 2 or not box.up):
            u.boxes[box.pod] = box._replace(down=box.down[1:], broken=True)
        else:
            u.boxes[box.pod] = box._replace(up=box.up[1:], broken=True)


def _repeat_message(u: Universe, target: int) -> None:
    box = box_of(u, target)
    if box is not None and box.down and target % 2:
        u.boxes[box.pod] = box._replace(down=(*box.down, box.down[target % len(box.down)]))
    elif box is not None and box.up:
        u.boxes[box.pod] = box._replace(up=(*box.up, box.up[target % len(box.up)]))


def _half_open(*, mute: bool) -> Fault:
    """The network carries only one way."""

    def fault(u: Universe, target: int) -> None:
        box = box_of(u, target)
        if box is not None and box.is_reached:
            u.boxes[box.pod] = box._replace(
                broken=box.broken or (not mute and box.link is not None), mute=mute, deaf=not mute
            )
            truth.forget(u, box.pod)

    return fault


def _cut_all_off(u: Universe, _target: int) -> None:
    """A network policy, DNS or the controller's certificate: no member reaches a controller, until that is mended."""
    u.unreachable = not u.unreachable
    for uid in list(u.boxes) if u.unreachable else ():
        sidecars.cut(u, uid)


IN_PODS: dict[str, Fault] = {
    **parking.FAULTS,
    "a worker is killed": _ends(None, SIGKILL),
    "a worker exits with 1": _ends(1),
    "a worker exits with a fatal code": _ends(FATAL_CODE),
    "a worker runs out of memory": _ends(None, SIGKILL, oom=True),
    "all workers end at once": _all_end,
    "a worker finishes": _ends(0),
    "all workers finish": _all_finish,
    "a worker ignores SIGTERM": _change(lambda one: replace(one, stubborn=True)),
    "a process is stuck": _change(lambda one: replace(one, stuck=True, stubborn=True)),
    "a worker can't be started": _disable,
    "a framework asks for a restart": _request,
    "a framework finds corruption": _corrupt,
    "a framework verifies a checkpoint": _verify,
    "a framework watches for its stop": _watch,
    "a supervisor crashes": _crash_supervisor,
    "a container can't be started again": _end_for_good,
    "a sidecar crashes": _crash_sidecar,
    "a connection ends": _cut,
    "a member is cut off": partition,
    "a member isn't heard": _half_open(mute=True),
    "a member doesn't hear": _half_open(mute=False),
    "a member is reached again": _reconnect,
    "no member reaches a controller, or all do again": _cut_all_off,
    "a message is lost": _lose_message,
    "a message comes twice": _repeat_message,
}
