"""Requests: a restart that a user asks for, and the restore point that it names.

The rule: each value of ``restartToken`` counts once. ``restartFrom`` counts for the token that it names and for the one
attempt that the token leads to; the status keeps it until that attempt has started. A request that is left in the spec
must not be repeated by a later restart.
"""

from __future__ import annotations

from gangctl.api.changes import changed
from gangctl.api.checkpoint_status import RequestedStep
from gangctl.api.gangjob import Spec
from gangctl.api.status import Status


def is_new(spec: Spec, status: Status) -> bool:
    """Whether a user asks for a restart that has not been taken yet."""
    return spec.restart_token != status.observed_restart_token


def taken(spec: Spec, status: Status) -> Status:
    """The status that has taken the request, if there is a new one."""
    if not is_new(spec, status):
        return status
    asked, token = spec.restart_from, spec.restart_token
    wanted = None
    if asked.type != "Newest" and asked.restart_token == token:
        wanted = RequestedStep(step=asked.step)
    return changed(status, observed_restart_token=token, restart_from=wanted)


def described(status: Status) -> str:
    """What was asked for: `` from step 300``; empty if it is the newest."""
    asked = status.restart_from
    if asked is None:
        return ""
    return " from the beginning" if asked.step is None else f" from step {asked.step}"
