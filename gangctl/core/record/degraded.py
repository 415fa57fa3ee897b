"""What a user should look at though the gang runs: a hang that is only observed, an ignored restore point, bad flags.

The rule: it appears once, as the condition Degraded and a warning, and goes when it is over. Nothing must be restarted
because of it.
"""

from __future__ import annotations

from itertools import pairwise

from gangctl.api.escaping import escaped
from gangctl.api.gangjob import Launch, Role
from gangctl.api.reasons import Reason
from gangctl.core.facts.evidence import Fault
from gangctl.core.facts.gang import Gang
from gangctl.core.policy.cause import describe
from gangctl.core.record.conditions import Warned


def degraded(gang: Gang, hung: Fault | None) -> Warned | None:
    """The first thing to look at; None if there is nothing."""
    if hung is not None:
        return Reason.HANG, f"{describe(hung)}; onHang is Observe, so nothing is restarted"
    return _ignored(gang) or _flags(gang)


def _ignored(gang: Gang) -> Warned | None:
    """A first step that isn't the restore point's: the framework loaded something else."""
    if gang.spec.checkpoint is None:
        return None
    point = gang.status.restore_point
    step = 0 if point is None else point.step
    for holder in gang.holders.values():
        report = gang.report(holder)
        progress = None if report is None else report.progress
        if progress is None or progress.attempt != gang.status.attempt or progress.first_step is None:
            continue
        if progress.first_step not in {step, step + 1}:
            told = "to begin" if point is None else f"to restore step {step}"
            text = f"{holder} was told {told}, and the first step it reported is {progress.first_step}"
            return Reason.RESTORE_POINT_IGNORED, f"{text}: let it load GANG_RESTORE_STEP, not what it finds"
    return None


def _flags(gang: Gang) -> Warned | None:
    """Torchrun's flags in the command beat the environment."""
    for role in gang.spec.roles:
        if role.launch is Launch.TORCHRUN:
            bad = _bad_flag(role)
            if bad:
                text = f"the command of role {role.name} has {escaped(bad)}, which beats the environment"
                return Reason.LAUNCHER_FLAGS, f"{text}: torchrun would restart by itself; remove the flag"
    return None


def _bad_flag(role: Role) -> str:
    arguments = (role.worker.model_extra or {}).get("args") or ()
    words = " ".join([*role.worker.command, *map(str, arguments)]).replace("=", " ").split()
    for name, value in pairwise(words):
        flag = name.replace("_", "-")
        if (flag == "--max-restarts" and value != "0") or (flag == "--nnodes" and ":" in value):
            return f"{name} {value}"
    return ""
