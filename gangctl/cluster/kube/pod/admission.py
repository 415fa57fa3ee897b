"""Whether the cluster takes a gang's pods: asked by a dry run of one pod a role, and learnt when a pod is refused.

It is asked when the gang is first looked at and whenever its roles change, in the background, a few at a time. What
was refused is asked again from time to time, since quotas and policies change without the gang. A pod that was refused
for real counts as refused until it is taken, or, if the gang has no pods at all, until a dry run succeeds.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.names import parse_member_name
from gangctl.api.roles_hash import roles_hash
from gangctl.cluster.errors import ClusterError

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 60.0
"""After how long a refusal is asked about again."""
RETRY_SECONDS: Final = 5.0
"""After how long a question that wasn't answered is asked again."""
AT_ONCE: Final = 4
"""So many dry runs run at once, of all gangs together."""

Ask = Callable[[GangJob, str], Awaitable[str]]
"""Ask about the pods of a role, by its name: why they are refused, in a sentence; empty = they are taken.

Raises:
    ClusterError: that can't be said now.
"""


@dataclass(slots=True)
class _Record:
    job: GangJob
    roles: str
    """Their hash."""
    due: float = -math.inf
    """When it is asked next, on the monotonic clock."""
    answers: dict[str, str] | None = None
    """Why the dry run of a pod was refused, by role; None = not asked yet."""
    pods: dict[str, str] = field(default_factory=dict)
    """Why a pod was refused for real, by member."""

    @property
    def refusals(self) -> tuple[str, ...] | None:
        """One sentence a role: its members are alike."""
        found = dict(self.answers or {})
        for member, words in self.pods.items():
            found.setdefault(parse_member_name(member)[0], words)
        return tuple(found.values()) or (None if self.answers is None else ())


class PodAdmission:
    """What is known of it, for all gangs."""

    def __init__(self, ask: Ask, has_pods: Callable[[str], bool], changed: Callable[[str], None]) -> None:
        """``has_pods``: whether a gang has any; ``changed``: called with the UID of a gang whose answer is another."""
        self._ask = ask
        self._has_pods = has_pods
        self._changed = changed
        self._records: dict[str, _Record] = {}
        self._news = asyncio.Event()
        self._free = asyncio.Semaphore(AT_ONCE)

    def refusals(self, job: GangJob) -> tuple[str, ...] | None:
        """Why the gang's pods are refused; empty = they are taken; None = not known yet, it is being asked."""
        return self._record(job).refusals

    def refused(self, job: GangJob, member: str, words: str) -> None:
        """A pod was refused for real, in these words; nothing if nobody wants to know of its gang any more."""
        if job.metadata.uid not in self._records:
            return
        record = self._record(job)
        if record.pods.get(member) != words:
            record.pods[member] = words
            self._changed(job.metadata.uid)
        record.due = min(record.due, time.monotonic() + AGAIN_SECONDS)
        self._news.set()

    def taken(self, uid: str, member: str) -> None:
        """A pod was taken."""
        record = self._records.get(uid)
        if record is not None and record.pods.pop(member, None) is not None:
            self._changed(uid)

    def forget(self, uid: str) -> None:
        """The gang is gone."""
        self._records.pop(uid, None)

    def forget_all(self) -> None:
        """This process leads no more: nothing is asked until somebody wants to know again."""
        self._records.clear()

    async def run(self) -> None:
        """Ask what is to be asked until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._news.clear()
                now = time.monotonic()
                for uid, record in self._records.items():
                    if record.due <= now:
                        record.due = math.inf
                        tasks.create_task(self._look(uid, record), name=f"dry run {record.job.metadata.name}")
                due = min((record.due for record in self._records.values()), default=math.inf)
                try:
                    async with asyncio.timeout(None if due == math.inf else due - now):
                        await self._news.wait()
                except TimeoutError:
                    continue

    def _record(self, job: GangJob) -> _Record:
        uid = job.metadata.uid
        record = self._records.get(uid)
        if record is None:
            record = self._records[uid] = _Record(job, roles_hash(job.spec.roles))
            self._news.set()
        elif record.job.metadata.generation != job.metadata.generation:
            roles = roles_hash(job.spec.roles)
            if roles != record.roles:
                record = self._records[uid] = _Record(job, roles)
                self._news.set()
        record.job = job
        return record

    async def _look(self, uid: str, record: _Record) -> None:
        before = record.refusals
        try:
            found = {role.name: await self._asked(record.job, role.name) for role in record.job.spec.roles}
        except ClusterError as error:
            log.warning("gang %s: whether its pods are taken isn't known yet: %s", record.job.metadata.name, error)
            record.due = time.monotonic() + RETRY_SECONDS
            self._news.set()
            return
        except Exception:
            # A template that nobody thought of must not end the controller, nor stop the others.
            log.exception("gang %s: a dry run has crashed, which is a bug", record.job.metadata.name)
            return
        record.answers = {role: words for role, words in found.items() if words}
        if not record.answers and not self._has_pods(uid):
            record.pods.clear()
        if record.refusals:
            record.due = time.monotonic() + AGAIN_SECONDS
            self._news.set()
        if record.refusals != before and self._records.get(uid) is record:
            self._changed(uid)

    async def _asked(self, job: GangJob, role: str) -> str:
        async with self._free:
            return await self._ask(job, role)
