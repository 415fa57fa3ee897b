"""Restart back-off: restarts in a row without a step wait, so that what is missing has the time to come back.

    n       = restarts since the last step, the coming one included
    wait(n) = 0 s for n = 1; then 1, 2, 4 ... 60 s, each up to a fifth shorter (jitter)
    until   = begin of the incident + wait(n)

A step is one beyond the restore point; where a gang has never reported one, a checkpoint beyond it, or an attempt of
``STEADY_SECONDS``, counts as one. So such a gang waits only when the checkpoints are listed that the attempt may have
left (``restore.py``). Disruptions neither wait nor count, whatever a rule says of them. A restart by hand never waits,
ends the wait, and begins the row anew.

The first restart must be immediate, always. A wait must not delay the stop of a worker, the replacement of a pod, or
the end of a job: it comes when the attempt could start. It must not be told that no step was made where it is only
known that none was reported. Where the clock of a new leader is behind, it begins again with its term.
"""

from __future__ import annotations

import hashlib
from typing import Final

from gangctl.api.gangjob import Action
from gangctl.api.incident import Cause
from gangctl.api.reasons import Reason
from gangctl.core.facts.gang import Gang
from gangctl.core.policy import granted
from gangctl.core.policy.ladder import has_progressed
from gangctl.core.policy.rules import default_action
from gangctl.words.message import Message
from gangctl.words.waits import restarts_without_step

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 60.0
JITTER: Final = 0.2
"""So that many gangs that fail for one reason don't all come back at once."""
STEADY_SECONDS: Final = 600.0
"""An attempt that ran for so long did not fail at its start; the kubelet's CrashLoopBackOff has the same limit."""


def waits_until(gang: Gang, cause: Cause) -> float | None:
    """Until when the open incident's attempt waits though it could start; None if it doesn't wait (any more)."""
    incident = gang.status.incidents[0]
    if not counts(cause) or granted.is_over(gang):
        return None
    seconds = wait_seconds(in_a_row(gang, cause), f"{gang.job.metadata.uid}/{incident.attempt}")
    until = round(incident.time + seconds, 6)
    return until if gang.now < until else None


def described(gang: Gang, restarts: int) -> Message:
    """Return why so many restarts in a row make the next one wait, in words that say no more than what is known."""
    return restarts_without_step(restarts, has_progressed(gang) is not None, gang.spec.checkpoint is not None)


def in_a_row(gang: Gang, cause: Cause, *, progressed: bool | None = None) -> int:
    """Restarts since the last step, one for this cause included, as they are stored once it has taken place.

    ``progressed``: whether the failed attempt made a step, where more is known than what was reported.
    """
    if cause.reason == Reason.RESTART_REQUESTED:
        return 0
    before = 0 if progressed or _made_step(gang) else gang.status.restarts.without_step
    return before + counts(cause)


def counts(cause: Cause) -> bool:
    """Whether the cause is a failure of the job: neither a disruption nor a request of the user."""
    return default_action(cause.reason) is not Action.IGNORE


def wait_seconds(restarts: int, seed: str) -> float:
    """How long the last of so many restarts in a row waits, counted from its fault."""
    if restarts <= 1:
        return 0.0
    longest = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(restarts - 2, 16))
    part = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4]) / 2**32
    return round(longest * (1 - JITTER * part), 3)


def _made_step(gang: Gang) -> bool:
    """Whether the failed attempt made a step, as far as that is known."""
    progressed = has_progressed(gang)
    return _ran_for(gang) >= STEADY_SECONDS if progressed is None else progressed


def _ran_for(gang: Gang) -> float:
    """For how long the attempt ran that the open incident ended."""
    last, *earlier = gang.status.incidents
    led_to_it = bool(earlier) and earlier[0].attempt == last.attempt - 1
    began = earlier[0].settled_time if led_to_it else gang.status.start_time
    return 0.0 if began is None else last.time - began
