"""Checks, in the fake kernel: a check is one process, which passes, fails, hangs, or can't tell, as its node is.

Invariant 16 is asserted here: a check runs alone in its pod, a member is only replaced for a check that it really did
not pass, and none is if all fail. And part of invariant 4: whom a check has found to compute wrongly, that made wrong
what comes after its node fell sick; nothing of it is restored (``restored.py``), and no check has verified it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gangctl.api.status import GangPhase, Status
from gangctl.core.facts.gang import incarnation
from gangsidecar.supervisor import machine
from gangsidecar.wire import CHECK_CORRUPT, Check
from tests.simulation import disks
from tests.simulation.disks import Line
from tests.simulation.values import Box, Fault
from tests.simulation.violations import require

if TYPE_CHECKING:
    from tests.simulation.universe import Universe

WRONG: Final = ("link", "probe")
"""The checks that find wrong results."""
SICK, ALL_FAIL, HANGS = "a node is sick", "every check fails, or none does any more", "a check hangs"


def begin(u: Universe, uid: str, check: Check) -> None:
    """16: no worker runs in the pod, and no other check."""
    box = u.boxes[uid]
    require(not box.procs, 16, f"{uid} is checked, and {box.procs} run")
    require(box.check is None, 16, f"{uid} is checked twice at once")
    u.boxes[uid] = box._replace(check=check)
    u.power["a check began"] += 1


def ends(box: Box) -> bool:
    """Whether a check can end by itself."""
    return box.check is not None and box.machine is not None and not box.hangs


def end(u: Universe, uid: str) -> None:
    """It ends by itself, as the node and the check are."""
    box = u.boxes[uid]
    check = box.check
    assert check is not None
    fails = u.checks_fail or box.node in u.sick
    code = 3 * (check.turn % 2)
    if fails:
        code = CHECK_CORRUPT if check.name in WRONG else 1
        u.ghost = u.ghost._replace(wrong=u.ghost.wrong | {(uid, check.attempt, check.turn)})
    u.boxes[uid] = box._replace(check=None)
    if fails:
        _failed(u, box, check)
    u.feed(uid, machine.CheckEnded(check.turn, code))


def killed(u: Universe, uid: str) -> None:
    """SIGKILL, at its timeout or for something else."""
    box = u.boxes[uid]
    if box.check is not None:
        state = box.machine
        is_late = state is not None and state.check is not None and state.check.outcome is not None
        u.power[f"a check was killed{' at its timeout' if is_late else ''}"] += 1
        if is_late:
            _failed(u, box, box.check)
        u.boxes[uid] = box._replace(check=None)


def spoils(u: Universe, uid: str, line: Line) -> None:
    """A step is made on a sick node."""
    if not any(pod == uid and _leads_to(first, line) for pod, first in u.ghost.spoiled):
        u.ghost = u.ghost._replace(spoiled=u.ghost.spoiled | {(uid, line)})


def _leads_to(first: Line, line: Line) -> bool:
    return disks.cut(line, disks.last_step(first)) == first


def _failed(u: Universe, box: Box, check: Check) -> None:
    u.ghost = u.ghost._replace(unchecked=u.ghost.unchecked | {(check.attempt, box.member, box.incarnation)})


def stored(u: Universe, old: Status, new: Status) -> None:
    """16: who is replaced for a check really did not pass it; no member is if all fail; no attempt starts unchecked."""
    results = () if new.checks is None else new.checks.results
    known = (
        ()
        if old.checks is None or new.checks is None or old.checks.attempt != new.checks.attempt
        else old.checks.results
    )
    for result in results[len(known) :]:
        u.power[f"{result.name} came to {result.result}"] += 1
        raised = [name for name in u.members if incarnation(new, name) > incarnation(old, name)]
        for name in raised:
            require(result.result == "Failed", 16, f"{name} is replaced though {result.name} came to {result.result}")
            key = new.attempt, name, incarnation(old, name)
            require(key in u.ghost.unchecked, 16, f"{name} is replaced for {result.name}, which it has passed")
        all_fail = result.failures == result.members > 1
        require(not (all_fail and raised), 16, f"all have failed {result.name}, and {raised} are replaced")
        if result.name in WRONG and raised:
            _distrust(u, old, new, raised)
    starts = new.phase is GangPhase.RUNNING and old.phase is not GangPhase.RUNNING
    if starts and new.checked_step != old.checked_step:
        u.power["a check verified checkpoints"] += 1
        there = {pod.uid for pod in u.pods.values() if pod.incarnation == incarnation(new, pod.member)}
        verified = disks.cut(u.ghost.trunk, new.checked_step or 0)
        wrong = [pod for pod, first in u.ghost.spoiled if pod in there and _leads_to(first, verified)]
        require(not wrong, 4, f"checks have verified {new.checked_step}, and {wrong} computed wrongly before")
    if starts and old.started_attempt < max(1, old.resumed_attempt):
        names = {one.name for one in results}
        missing = [one.name for one in u.spec.recovery.checks if one.when == "Start" and one.name not in names]
        require(not missing, 16, f"attempt {new.attempt} starts without {missing}")


def _distrust(u: Universe, old: Status, new: Status, bad: list[str]) -> None:
    """What these members have made on a sick node isn't trusted any more. One that was too slow computed nothing."""
    assert new.checks is not None
    those, turn = {(name, incarnation(old, name)) for name in bad}, new.checks.judged_turn
    boxes = [box for box in u.boxes.values() if (box.member, box.incarnation) in those]
    pods = {box.pod for box in boxes if (box.pod, new.attempt, turn) in u.ghost.wrong}
    lines = {line for pod, line in u.ghost.spoiled if pod in pods}
    u.power["a check found wrong results"] += bool(lines)
    u.ghost = u.ghost._replace(tainted=u.ghost.tainted | lines)


def _sicken(u: Universe, target: int) -> None:
    """The node of a pod that is there; new pods get other nodes."""
    nodes = [box.node for box in u.boxes.values() if not box.exited]
    if nodes:
        u.sick |= {nodes[target % len(nodes)]}


def _all_fail(u: Universe, _target: int) -> None:
    u.checks_fail = not u.checks_fail


def _hang(u: Universe, target: int) -> None:
    """The next check, or the one that runs, ends by SIGKILL alone."""
    boxes = [box for box in u.boxes.values() if not box.exited]
    if boxes:
        box = boxes[target % len(boxes)]
        u.boxes[box.pod] = box._replace(hangs=True)


FAULTS: Final[dict[str, Fault]] = {SICK: _sicken, ALL_FAIL: _all_fail, HANGS: _hang}
"""Not among those that lives of other gangs are drawn from: they have no checks."""
