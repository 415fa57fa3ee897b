"""What goes wrong: every fault that the simulation knows, each aimed at one member. Without a target it is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gangctl.core.facts.world import Device
from gangsidecar.wire import Level, Request
from tests.simulation import controller, disk_faults, kubelets, moves, sidecars
from tests.simulation.setups import FATAL_CODE
from tests.simulation.universe import SIGKILL, Universe
from tests.simulation.values import CHILD, Box, Leader, Proc

Fault = Callable[[Universe, int], None]


def _box(u: Universe, target: int) -> Box | None:
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


def _change(**update: bool) -> Fault:
    def fault(u: Universe, target: int) -> None:
        found = _with_worker(u, target)
        if found is not None:
            box, proc = found
            changed = tuple(replace(one, **update) if one == proc else one for one in box.procs)
            u.boxes[box.pod] = replace(box, procs=changed)

    return fault


def _request(u: Universe, target: int) -> None:
    found = _with_worker(u, target)
    if found is not None:
        box, proc = found
        level = list(Level)[target % 3]
        u.feed(box.pod, Request(proc.attempt, 0, "asked", proc.rank, level, exclude_node=target % 5 == 0))


def _crash_supervisor(u: Universe, target: int) -> None:
    box = _box(u, target)
    if box is not None and box.machine is not None:
        kubelets.crash_supervisor(u, box.pod)


def _cut(u: Universe, target: int) -> None:
    box = _box(u, target)
    if box is not None:
        sidecars.cut(u, box.pod)


def _crash_sidecar(u: Universe, target: int) -> None:
    """It forgets what it heard; the supervisor tells it its whole state again."""
    box = _box(u, target)
    if box is not None:
        sidecars.cut(u, box.pod)
        box = u.boxes[box.pod]
        u.boxes[box.pod] = replace(box, newest=None)
        if box.machine is not None:
            sidecars.report(u, box.pod)


def _partition(u: Universe, target: int) -> None:
    box = _box(u, target)
    if box is not None:
        sidecars.cut(u, box.pod)
        u.boxes[box.pod] = replace(u.boxes[box.pod], cut_off=True)


def _reconnect(u: Universe, target: int) -> None:
    box = _box(u, target)
    if box is not None and box.node not in u.lost:
        u.boxes[box.pod] = replace(box, cut_off=False)


def _lose_node(u: Universe, target: int) -> None:
    box = _box(u, target)
    if box is not None and len(u.lost) < 2:
        u.lost |= {box.node}
        _partition(u, target)
        if box.pod in u.pods:
            u.note_lost(box.pod)


def _node_back(u: Universe, target: int) -> None:
    if u.lost:
        node = sorted(u.lost)[target % len(u.lost)]
        u.node_is_back(node)
        for uid, box in list(u.boxes.items()):
            if box.node == node:
                u.boxes[uid] = replace(box, cut_off=False)


def _delete_pod(u: Universe, target: int) -> None:
    if u.pods:
        uid = sorted(u.pods)[target % len(u.pods)]
        if not u.pods[uid].deleting:
            u.delete_pod(uid)


def _evict_pod(u: Universe, target: int) -> None:
    if u.pods:
        uid = sorted(u.pods)[target % len(u.pods)]
        condition = ("DisruptionTarget", "True", "EvictionByEvictionAPI")
        u.pods[uid] = replace(u.pods[uid], conditions=(condition,))
        _delete_pod(u, target)


def _forget_pod(u: Universe, target: int) -> None:
    """Deleted by force: the API forgets it at once, and what runs in it runs on until the kubelet notices."""
    if u.pods:
        u.remove_pod(sorted(u.pods)[target % len(u.pods)])


def _spoil_device(u: Universe, target: int) -> None:
    if u.pods:
        uid = sorted(u.pods)[target % len(u.pods)]
        u.pods[uid] = replace(u.pods[uid], devices=(Device("nvidia.com/gpu", "gpu-0", "Unhealthy"),))


def _toggle(name: str) -> Fault:
    def fault(u: Universe, _target: int) -> None:
        setattr(u, name, not getattr(u, name))

    return fault


def _leader(u: Universe, target: int) -> Leader | None:
    return sorted(u.leaders.values(), key=lambda one: one.number)[target % len(u.leaders)] if u.leaders else None


def _crash_leader(u: Universe, target: int) -> None:
    leader = _leader(u, target)
    if leader is not None:
        controller.end(u, leader.number)


def _usurp(u: Universe, target: int) -> None:
    """A second one leads; the first is frozen, or acts on what it knew until it notices."""
    leader = _leader(u, -1)
    if leader is not None and len(u.leaders) < 2:
        u.leaders[leader.number] = replace(leader, frozen=target % 2 == 0)
        controller.begin(u)


def _thaw(u: Universe, target: int) -> None:
    leader = _leader(u, target)
    if leader is not None and leader.frozen:
        controller.thaw(u, leader.number)
    elif leader is not None and len(u.leaders) > 1:
        u.leaders[leader.number] = replace(leader, frozen=True)


def _write(outcome: controller.Write) -> Fault:
    def fault(u: Universe, _target: int) -> None:
        for number, leader in u.leaders.items():
            if leader.plan is not None:
                controller.write(u, number, outcome)
                return

    return fault


def _lose_message(u: Universe, target: int) -> None:
    """On a connection that loses a message nothing else can be relied on: it ends, sooner or later."""
    box = _box(u, target)
    if box is not None and box.link is not None and (box.up or box.down):
        if box.down and (target % 2 or not box.up):
            u.boxes[box.pod] = replace(box, down=box.down[1:], broken=True)
        else:
            u.boxes[box.pod] = replace(box, up=box.up[1:], broken=True)


def _repeat_message(u: Universe, target: int) -> None:
    box = _box(u, target)
    if box is not None and box.down and target % 2:
        u.boxes[box.pod] = replace(box, down=(*box.down, box.down[target % len(box.down)]))
    elif box is not None and box.up:
        u.boxes[box.pod] = replace(box, up=(*box.up, box.up[target % len(box.up)]))


def _suspend(u: Universe, _target: int) -> None:
    u.change_spec(suspend=not u.spec.suspend)


def _restart(u: Universe, _target: int) -> None:
    u.change_spec(restart_token=u.spec.restart_token + "x")


def _time(ms: int) -> Fault:
    def fault(u: Universe, target: int) -> None:
        moves.advance(u, u.now + ms * (1 + target % 4))

    return fault


def _set_clock_back(u: Universe, target: int) -> None:
    u.skew -= 1 + 15_000 * (target % 8)
    for number, leader in u.leaders.items():
        u.leaders[number] = replace(leader, dirty=True)


FAULTS: dict[str, Fault] = {
    **disk_faults.DISK_FAULTS,
    "a worker is killed": _ends(None, SIGKILL),
    "a worker exits with 1": _ends(1),
    "a worker exits with a fatal code": _ends(FATAL_CODE),
    "a worker runs out of memory": _ends(None, SIGKILL, oom=True),
    "a worker finishes": _ends(0),
    "all workers finish": _all_finish,
    "a worker ignores SIGTERM": _change(stubborn=True),
    "a process is stuck": _change(stuck=True, stubborn=True),
    "a framework asks for a restart": _request,
    "a supervisor crashes": _crash_supervisor,
    "a sidecar crashes": _crash_sidecar,
    "a connection ends": _cut,
    "a member is cut off": _partition,
    "a member is reached again": _reconnect,
    "a node is lost": _lose_node,
    "a node comes back": _node_back,
    "a pod is deleted": _delete_pod,
    "a pod is evicted": _evict_pod,
    "a pod is deleted by force": _forget_pod,
    "a device is unhealthy": _spoil_device,
    "pods can or can't be created": _toggle("creation_fails"),
    "pods can or can't be started": _toggle("starts_fail"),
    "the controller crashes": _crash_leader,
    "another controller leads": _usurp,
    "a controller freezes or thaws": _thaw,
    "a status write conflicts": _write(controller.Write.CONFLICT),
    "a status write times out, stored": _write(controller.Write.TIMEOUT_STORED),
    "a status write times out, lost": _write(controller.Write.TIMEOUT_LOST),
    "a message is lost": _lose_message,
    "a message comes twice": _repeat_message,
    "the user suspends or resumes": _suspend,
    "the user asks for a restart": _restart,
    "the clocks are set back": _set_clock_back,
    "a second passes": _time(700),
    "half a minute passes": _time(9_000),
    "minutes pass": _time(70_000),
}


NOT_MENDED = frozenset(
    {
        "one rank trains",
        "a rank tears its checkpoint",
        "a checkpoint is dropped",
        "the directory is not mounted",
        "a tier is misspelt",
        "a node reboots",
    }
)
"""What breaks an invariant for a reason that is known and not mended yet. It is empty one day, and goes then."""
DRAWN = tuple(name for name in FAULTS if name not in NOT_MENDED)
"""What lives are drawn from."""


def heal(u: Universe) -> None:
    """No more faults: networks work, what is stuck goes, one controller leads, the user wants the gang to run."""
    for number in [number for number in u.leaders if number != u.newest_leader]:
        controller.end(u, number)
    for number in u.leaders:
        controller.thaw(u, number)
    u.creation_fails = u.starts_fail = u.mounts_fail = False
    for node in u.lost:
        u.node_is_back(node)
    for uid in list(u.boxes):
        box = u.boxes[uid]
        u.boxes[uid] = replace(box, cut_off=False, blind=False, unmounted=False)
        stuck = [proc for proc in box.procs if proc.stuck]
        freed = tuple(replace(proc, stuck=False) for proc in box.procs)
        u.boxes[uid] = replace(u.boxes[uid], procs=freed)
        for proc in stuck:
            moves.kill_process(u, uid, replace(proc, stuck=False))
    if u.spec.suspend:
        u.change_spec(suspend=False)
