"""What goes wrong with checkpoints: parts that are torn, deleted or not there, and nodes that forget their memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gangctl.api.status import GangPhase
from gangsidecar.wire import Checkpoint
from tests.simulation import disks, kubelets, sidecars, training
from tests.simulation.faults_in_pods import box_of

if TYPE_CHECKING:
    from tests.simulation.universe import Universe
    from tests.simulation.values import Fault


def _train(u: Universe, target: int) -> None:
    for _ in range((1 + target % 5) * len(u.places)):
        _train_one(u, target)


def _train_one(u: Universe, target: int) -> None:
    """One rank is ahead: its part of the step is there alone."""
    found = training.can_train(u)
    if found:
        training.train(u, *found[target % len(found)])


def _keep_alone(u: Universe, target: int) -> None:
    """The ranks make a step, and no copy of it reaches a peer."""
    for uid, proc in training.can_train(u)[: 1 + target % 4]:
        step = training.make_step(u, uid, proc)
        for part in training.parts(u, uid, step, proc.attempt):
            training.begin(u, uid, part)
            training.complete(u, uid, part)
        training.note_whole(u, step)


def _tear(u: Universe, target: int) -> None:
    """One rank has begun to write its next step, or writes its newest one again."""
    found = training.can_train(u)
    if not found:
        return
    uid, proc = found[target % len(found)]
    step = u.boxes[uid].step if target % 2 else training.make_step(u, uid, proc)
    for part in training.parts(u, uid, step, proc.attempt):
        if not (disks.is_directory(part.tier) and target % 2):
            training.begin(u, uid, part)


def _drop(u: Universe, target: int) -> None:
    """One rank, or each, deletes its part of the newest registered step: the disk is full."""
    found = training.can_train(u)
    for uid, proc in found if target % 2 else found[:1]:
        for part in training.parts(u, uid, 0, proc.attempt):
            if not disks.is_directory(part.tier):
                for step in training.kept(u, uid, part.tier, part.rank)[-1:]:
                    training.drop(u, uid, part._replace(step=step))


def _poison(u: Universe, target: int) -> None:
    """The newest step was saved with a state that can't be loaded."""
    steps = [one.step for one in u.disk.files if one.line]
    if steps and target % 3 == 0:
        files = tuple(replace(one, sick=True) if one.step == max(steps) else one for one in u.disk.files)
        u.disk = replace(u.disk, files=files)


def _prune(u: Universe, _target: int) -> None:
    """The newest step of a directory is deleted, but not while a restore point is being chosen."""
    if len(u.disk.markers) > 1 and u.status.phase is GangPhase.RUNNING and training.can_train(u):
        newest = u.disk.markers[-1]
        u.disk = u.disk.without_steps(newest.tier, [newest.step])


def _blind(u: Universe, target: int) -> None:
    box = box_of(u, target)
    if box is not None:
        u.boxes[box.pod] = box._replace(blind=True)


def _unmount(u: Universe, target: int) -> None:
    """The shared directory isn't there: in one pod, or in all that there are and will be."""
    chosen = [box_of(u, target)] if target % 2 else list(u.boxes.values())
    u.mounts_fail = u.mounts_fail or not target % 2
    for box in chosen:
        if box is not None:
            u.boxes[box.pod] = u.boxes[box.pod]._replace(unmounted=True)


def _mount(u: Universe, _target: int) -> None:
    u.mounts_fail = False
    for uid, box in list(u.boxes.items()):
        u.boxes[uid] = box._replace(unmounted=False)


def _misspell(u: Universe, target: int) -> None:
    """A framework registers a checkpoint in a tier that the job doesn't have."""
    found = training.can_train(u)
    if found:
        uid, proc = found[target % len(found)]
        for _, rank in training.ranks_of(u, u.boxes[uid]):
            u.feed(uid, Checkpoint("shraed", 1 + target, rank, proc.attempt))


def _reboot(u: Universe, target: int) -> None:
    """The node starts again with the same pod: its memory is empty, the files on its disk are there."""
    box = box_of(u, target)
    if box is None or box.node in u.lost or box.machine is None:
        return
    sidecars.cut(u, box.pod)
    u.disk = u.disk.without_memory(box.pod)
    u.boxes[box.pod] = u.boxes[box.pod]._replace(procs=(), boots=box.boots + 1, newest=None)
    kubelets.crash_supervisor(u, box.pod)


DISK_FAULTS: dict[str, Fault] = {
    "train": _train,
    "one rank trains": _train_one,
    "copies are on their way": _keep_alone,
    "a rank tears its checkpoint": _tear,
    "a checkpoint is dropped": _drop,
    "the newest step is poisoned": _poison,
    "the newest step is deleted": _prune,
    "a member doesn't see new files": _blind,
    "the directory is not mounted": _unmount,
    "the directory is mounted again": _mount,
    "a tier is misspelt": _misspell,
    "a node reboots": _reboot,
}
