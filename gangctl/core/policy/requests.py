"""Requests: a restart that a user asks for, and the restore point that it names.

The rule: each change of ``restartToken`` is a restart. ``restartFrom`` counts for the token that it names, the first
time that this token comes, and for the one attempt that the token leads to; the status keeps it until that attempt has
started. A request that is left in the spec must not be repeated by a later restart, nor by a token that comes back, as
when a manifest is applied again: it would throw away training unasked.
"""

from __future__ import annotations

from typing import Final

from gangctl.api.changes import changed
from gangctl.api.checkpoint_status import RequestedStep
from gangctl.api.gangjob import Spec
from gangctl.api.status import Status
from gangctl.words.decisions import from_newest_step, from_step

REMEMBERED: Final = 16
"""So many tokens whose ``restartFrom`` was taken."""


def is_new(spec: Spec, status: Status) -> bool:
    """Whether a user asks for a restart that has not been taken yet."""
    return spec.restart_token != status.observed_restart_token


def taken(spec: Spec, status: Status) -> Status:
    """The status that has taken the request, if there is a new one."""
    if not is_new(spec, status):
        return status
    token, known, wanted = spec.restart_token, status.restart_from_tokens, None
    if _names_this(spec) and token not in known:
        wanted, known = RequestedStep(step=spec.restart_from.step), (*known, token)[-REMEMBERED:]
    return changed(status, observed_restart_token=token, restart_from=wanted, restart_from_tokens=known)


def described(spec: Spec, before: Status, after: Status) -> str:
    """Return what was asked for, as ``from step 300``, or why that isn't done; empty if it is the newest."""
    if after.restart_from is not None:
        return from_step(after.restart_from.step)
    if not is_new(spec, before) or not _names_this(spec):
        return ""
    return from_newest_step(from_step(spec.restart_from.step))


def _names_this(spec: Spec) -> bool:
    asked = spec.restart_from
    return asked.type != "Newest" and asked.restart_token == spec.restart_token
