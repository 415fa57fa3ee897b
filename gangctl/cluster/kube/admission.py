"""Find out whether the API server admits a gang's pods: by a dry run for each role, and by real rejections.

The rule: the dry runs are made in the background, a few at a time and fairly by namespace, when the gang is first read
and whenever its roles change. A rejection is checked again from time to time, since quotas and policies change without
the gang. A real pod that was rejected counts as rejected until it is admitted or, if the gang has no pods at all, until
a dry run succeeds.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.names import parse_member_name
from gangctl.api.roles import roles_hash
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.fair_slots import FairSlots

log = logging.getLogger(__name__)

RECHECK_SECONDS: Final = 60.0
"""Time after which a rejection is checked again."""
RETRY_SECONDS: Final = 5.0
"""Time after which a dry run without an answer is repeated."""
CONCURRENCY: Final = 8
"""Maximum number of dry runs at once, of all gangs together; half of them for one namespace."""

DryRun = Callable[[GangJob, str], Awaitable[str]]
"""A dry run of a role, by its name: why its pods are rejected, in a sentence; empty = they are admitted.

Raises:
    ClusterError: that isn't known now.
"""


@dataclass(slots=True)
class _GangAdmission:
    job: GangJob
    roles: str
    """Hash of the roles."""
    due: float = -math.inf
    """When the next dry run is due, on the monotonic clock."""
    answers: dict[str, str] | None = None
    """Why a dry run was rejected, by role; None = no answer yet."""
    pods: dict[str, str] = field(default_factory=dict)
    """Why a real pod was rejected, by member."""

    @property
    def rejections(self) -> tuple[str, ...] | None:
        """One sentence for each role: its members are alike."""
        found = dict(self.answers or {})
        for member, words in self.pods.items():
            found.setdefault(parse_member_name(member)[0], words)
        return tuple(found.values()) or (None if self.answers is None else ())


class PodAdmission:
    """What is known about all gangs."""

    def __init__(self, dry_run: DryRun, has_pods: Callable[[str], bool], changed: Callable[[str], None]) -> None:
        """``has_pods``: whether a gang has any; ``changed``: called with the UID of a gang whose answer changed."""
        self._dry_run = dry_run
        self._has_pods = has_pods
        self._changed = changed
        self._gangs: dict[str, _GangAdmission] = {}
        self._due = asyncio.Event()
        self._slots = FairSlots(CONCURRENCY)

    def rejections(self, job: GangJob) -> tuple[str, ...] | None:
        """Return why the gang's pods are rejected; empty = they are admitted; None = a dry run is still under way."""
        return self._gang(job).rejections

    def note_rejection(self, job: GangJob, member: str, words: str) -> None:
        """Note that a real pod was rejected, in these words; no effect if the gang was forgotten."""
        if job.metadata.uid not in self._gangs:
            return
        gang = self._gang(job)
        if gang.pods.get(member) != words:
            gang.pods[member] = words
            self._changed(job.metadata.uid)
        gang.due = min(gang.due, time.monotonic() + RECHECK_SECONDS)
        self._due.set()

    def note_admission(self, uid: str, member: str) -> None:
        gang = self._gangs.get(uid)
        if gang is not None and gang.pods.pop(member, None) is not None:
            self._changed(uid)

    def forget(self, uid: str) -> None:
        self._gangs.pop(uid, None)

    def forget_all(self) -> None:
        """Forget all gangs, since this process no longer leads: no dry runs until a gang is read again."""
        self._gangs.clear()

    async def run(self) -> None:
        """Make the dry runs that are due until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._due.clear()
                now = time.monotonic()
                for uid, gang in self._gangs.items():
                    if gang.due <= now:
                        gang.due = math.inf
                        tasks.create_task(self._check(uid, gang), name=f"dry run {gang.job.metadata.name}")
                due = min((gang.due for gang in self._gangs.values()), default=math.inf)
                try:
                    async with asyncio.timeout(None if due == math.inf else due - now):
                        await self._due.wait()
                except TimeoutError:
                    continue

    def _gang(self, job: GangJob) -> _GangAdmission:
        uid = job.metadata.uid
        gang = self._gangs.get(uid)
        if gang is None:
            gang = self._gangs[uid] = _GangAdmission(job, roles_hash(job.spec.roles))
            self._due.set()
        elif gang.job.metadata.generation != job.metadata.generation:
            roles = roles_hash(job.spec.roles)
            if roles != gang.roles:
                gang = self._gangs[uid] = _GangAdmission(job, roles)
                self._due.set()
        gang.job = job
        return gang

    async def _check(self, uid: str, gang: _GangAdmission) -> None:
        before = gang.rejections
        try:
            found = {role.name: await self._answer(gang.job, role.name) for role in gang.job.spec.roles}
        except ClusterError as error:
            log.warning("gang %s: the dry run of its pods could not be made: %s", gang.job.metadata.name, error)
            gang.due = time.monotonic() + RETRY_SECONDS
            self._due.set()
            return
        except Exception:
            # An unforeseen template must not end the controller or stop other dry runs.
            log.exception("gang %s: a dry run crashed, which is a bug", gang.job.metadata.name)
            return
        gang.answers = {role: words for role, words in found.items() if words}
        if not gang.answers and not self._has_pods(uid):
            gang.pods.clear()
        if gang.rejections:
            gang.due = time.monotonic() + RECHECK_SECONDS
            self._due.set()
        if gang.rejections != before and self._gangs.get(uid) is gang:
            self._changed(uid)

    async def _answer(self, job: GangJob, role: str) -> str:
        async with self._slots.slot(job.metadata.namespace, job.metadata.uid):
            return await self._dry_run(job, role)
