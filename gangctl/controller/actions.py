"""The requests of one gang, made beside its decisions: a slow request for one pod delays no decision.

The rule: an action starts only while the newest plan wants it, and after the status that gives its reason is stored.
They start in the plan's order, kind by kind; of a kind, one at a time for one pod, and ``MAX_ACTIONS`` for a gang. The
gang itself is deleted last of all. All gangs share slots, fairly by namespace (``cluster/fair_slots.py``); pods of a
gang that has not started yet come after all else.

An action that failed is tried again after a while, if it is still wanted. So is a creation that was done and is wanted
again, since it was in vain: something undoes it, or nothing shows it yet. Another controller that deletes new pods must
not make this one create as many.

An action must not start late: which one is next is decided when there is room for it, not before. One that is under way
when the status moves on does no harm, since a pod is created by the name of its incarnation, and deleted by its UID.

What workers at fault printed is read in the same way, and neither a restart nor a pod ever waits for it. A query of the
newest plan is made once, what can't be read counts as nothing, and an answer to an older query is dropped.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase, Status
from gangctl.cluster.errors import ClusterError, Retryable
from gangctl.cluster.fair_slots import FairSlots
from gangctl.cluster.port import Cluster
from gangctl.core.facts.printed import OutputRead, Printed, ReadOutput
from gangctl.core.lifecycle.events import failure_event, undone_event
from gangctl.core.lifecycle.plan import DeleteGang, Event
from gangctl.core.policy.admission import GIVES_BACK, TellQueue
from gangctl.core.policy.pods import CreatePod, DeletePod
from gangctl.telemetry import logs
from gangctl.telemetry.port import TelemetryFanout

log = logging.getLogger(__name__)

FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 60.0
REMEMBERED_SECONDS: Final = 600.0
"""What is wanted again so long after it was done has lasted for long enough."""


class _Tried(NamedTuple):
    times: int
    """In a row."""
    due: float
    """When it may be tried again."""
    done: bool = False


class Backoff:
    """The failed actions of one gang, and those that were done. Times are seconds on the caller's clock."""

    def __init__(self) -> None:
        self._tried: dict[Hashable, _Tried] = {}

    def is_due(self, action: Hashable, now: float) -> bool:
        """Return whether it may be tried now."""
        return action not in self._tried or now >= self._tried[action].due

    def note_failure(self, action: Hashable, now: float, at_least: float = 0.0) -> int:
        """Note a failure; return how many there were in a row. ``at_least``: seconds in which it is not tried again."""
        return self._again(action, now, at_least, done=False)

    def note_success(self, action: Hashable, now: float) -> int:
        """Note a success; return how many there were in a row, each soon after the one before."""
        return self._again(action, now, 0.0, done=True)

    def keep(self, actions: set[Hashable], now: float) -> None:
        """Forget the failures of all other actions, and what was done long ago: only these are still wanted."""
        self._tried = {
            action: tried
            for action, tried in self._tried.items()
            if (now < tried.due + REMEMBERED_SECONDS if tried.done else action in actions)
        }

    def forget_action(self, action: Hashable) -> None:
        """Forget the action, which has succeeded and may be repeated at once."""
        self._tried.pop(action, None)

    def next_in(self, now: float, waits: Callable[[Hashable], bool]) -> float | None:
        """Seconds until the next action is due; None if there is none. ``waits``: whether an action waits to be due."""
        return min((max(0.0, tried.due - now) for action, tried in self._tried.items() if waits(action)), default=None)

    def _again(self, action: Hashable, now: float, at_least: float, *, done: bool) -> int:
        before = self._tried.get(action)
        times = 1 if before is None or before.done is not done else before.times + 1
        pause = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(times - 1, 16))
        self._tried[action] = _Tried(times, now + max(pause, at_least), done)
        return times


MAX_ACTIONS: Final = 32
"""Requests of one kind for one gang at once."""
SLOTS: Final = 128
"""Requests for all gangs at once: at most half of them for one namespace, and a quarter for one gang."""
KINDS: Final = (TellQueue, CreatePod, DeletePod, DeleteGang)

ClusterAction = TellQueue | CreatePod | DeletePod | DeleteGang


class Actions:
    """What is to be done for one gang, and what is under way."""

    def __init__(
        self,
        cluster: Cluster,
        telemetry: TelemetryFanout,
        tasks: asyncio.TaskGroup,
        slots: FairSlots,
        done: Callable[[], None],
    ) -> None:
        """Give the actions what they need.

        Args:
            cluster: carries them out.
            telemetry: takes how long each took.
            tasks: runs them; when it is cancelled, because this process leads no more, so are they.
            slots: shared by all gangs.
            done: called after each action, since there may be something new to decide.
        """
        self._cluster = cluster
        self._telemetry = telemetry
        self._tasks = tasks
        self._slots = slots
        self._done = done
        self._backoff = Backoff()
        self._job: GangJob | None = None
        self._requested: set[ClusterAction] = set()
        self._waiting: dict[type, deque[ClusterAction]] = {kind: deque() for kind in KINDS}
        self._under_way: set[Hashable] = set()
        self._workers = dict.fromkeys(KINDS, 0)

    @property
    def due_in(self) -> float | None:
        """Seconds until the next action that backs off may be tried again; None if there is none.

        One that is under way, or that waits for a slot, asks for no round: its end does.
        """
        begun = {action for waiting in self._waiting.values() for action in waiting}
        return self._backoff.next_in(
            time.monotonic(),
            lambda action: action in self._requested and action not in begun and _target(action) not in self._under_way,
        )

    def keep(self, requested: Iterable[ClusterAction]) -> None:
        """Forget what waits and isn't wanted by the newest plan, whose status is not stored yet."""
        kept = self._requested = set(requested)
        self._backoff.keep({*kept}, time.monotonic())
        for kind, waiting in self._waiting.items():
            self._waiting[kind] = deque(action for action in waiting if action in kept)

    def want(self, job: GangJob, requested: Iterable[ClusterAction]) -> None:
        """Carry these out, and nothing else. ``job``: the stored object from which they follow."""
        self._job = job
        actions, now = tuple(requested), time.monotonic()
        self.keep(actions)
        for kind in KINDS:
            self._waiting[kind] = deque(
                action
                for action in actions
                if type(action) is kind and _target(action) not in self._under_way and self._backoff.is_due(action, now)
            )
            for _ in range(min(MAX_ACTIONS, len(self._waiting[kind])) - self._workers[kind]):
                self._workers[kind] += 1
                self._tasks.create_task(self._work(kind), name=f"actions of gang {job.metadata.name}")

    def stop(self) -> None:
        """The gang is gone: what has not started does not start."""
        self.keep(())

    async def _work(self, kind: type) -> None:
        """Carry out what waits of this kind, one after the other."""
        try:
            while self._waiting[kind]:
                async with self._slot(kind):
                    action = self._next(kind)
                    if action is None:
                        return
                    await self._carry_out(action)
        finally:
            self._workers[kind] -= 1

    def _slot(self, kind: type) -> AbstractAsyncContextManager[None]:
        job = self._job
        assert job is not None
        first_start = kind is CreatePod and is_first_start(job.status)
        return self._slots.slot(job.metadata.namespace, job.metadata.uid, first_start=first_start)

    def _next(self, kind: type) -> ClusterAction | None:
        """Take what starts now; None if nothing of this kind does. A newer plan may want something else by now."""
        if not self._waiting[kind]:
            return None
        if kind is DeleteGang and (self._under_way or any(self._waiting[one] for one in KINDS if one is not kind)):
            return None  # The next plan asks for it again.
        first = self._waiting[kind][0]
        if isinstance(first, TellQueue) and first.verb in GIVES_BACK and self._is_creating():
            return None  # The next plan knows the pod.
        return self._waiting[kind].popleft()

    def _is_creating(self) -> bool:
        return any(isinstance(one, tuple) and one[0] is CreatePod for one in self._under_way)

    async def _carry_out(self, action: ClusterAction) -> None:
        job, name, target, began = self._job, type(action).__name__, _target(action), time.monotonic()
        assert job is not None
        logs.set_gang(job)
        self._under_way.add(target)
        try:
            match action:
                case TellQueue():
                    await self._cluster.tell_queue(job, action)
                case CreatePod():
                    await self._cluster.create_pod(job, action)
                case DeletePod():
                    await self._cluster.delete_pod(job, action)
                case DeleteGang():
                    await self._cluster.delete_gang(job)
        except ClusterError as error:
            log.warning("%s failed and will be retried: %s", name, error)
            failures = self._failed(action, began, error.after if isinstance(error, Retryable) else 0.0)
            await self._tell(job, failure_event(job, action, failures, str(error)))
        except Exception:
            log.exception("%s crashed, which is a bug; it will be retried", name)
            self._failed(action, began)
        else:
            if isinstance(action, CreatePod):
                await self._tell(job, undone_event(job, action, self._backoff.note_success(action, time.monotonic())))
            else:
                self._backoff.forget_action(action)
            took = time.monotonic() - began
            self._telemetry.report(lambda one: one.action_finished(name, took, done=True))
        finally:
            self._under_way.discard(target)
            self._done()

    def _failed(self, action: ClusterAction, began: float, at_least: float = 0.0) -> int:
        """Note the failure; returns how many there were in a row."""
        now, name = time.monotonic(), type(action).__name__
        self._telemetry.report(lambda one: one.action_finished(name, now - began, done=False))
        return self._backoff.note_failure(action, now, at_least)

    async def _tell(self, job: GangJob, event: Event | None) -> None:
        if event is None:
            return
        try:
            await self._cluster.emit(job, event)
        except ClusterError as error:
            log.warning("an event is lost: %s", error)


def is_first_start(status: Status) -> bool:
    """Return whether the gang waits for its pods, and its attempt belongs to no incident."""
    newest = next(iter(status.incidents), None)
    return status.phase is GangPhase.PENDING and (newest is None or newest.attempt != status.attempt)


def _target(action: ClusterAction) -> Hashable:
    """Return what the action is done to: the same for two that differ in how it is done."""
    match action:
        case TellQueue():
            return TellQueue
        case CreatePod():
            return CreatePod, action.member, action.incarnation
        case DeletePod():
            return DeletePod, action.uid
        case DeleteGang():
            return DeleteGang


LOGS_AT_ONCE: Final = 8


class OutputReader:
    """The newest query and answer of each gang."""

    def __init__(self, cluster: Cluster, wake: Callable[[str], None]) -> None:
        """``wake``: called with a gang's UID when there is an answer that says something."""
        self._cluster = cluster
        self._wake = wake
        self._slots = asyncio.Semaphore(LOGS_AT_ONCE)
        self._queries: dict[str, ReadOutput] = {}
        self._answers: dict[str, OutputRead] = {}

    def want(self, tasks: asyncio.TaskGroup, job: GangJob, queries: Iterable[ReadOutput]) -> None:
        """Make the query of a plan, unless it was made. ``job``: the stored object from which it follows."""
        uid = job.metadata.uid
        for query in queries:
            if self._queries.get(uid) != query:
                self._queries[uid] = query
                tasks.create_task(self._read(job, query), name=f"output of gang {job.metadata.name}")

    def answer(self, uid: str) -> OutputRead | None:
        """The newest answer for a gang."""
        return self._answers.get(uid)

    def forget(self, uid: str) -> None:
        """The gang is gone."""
        self._queries.pop(uid, None)
        self._answers.pop(uid, None)

    async def _read(self, job: GangJob, query: ReadOutput) -> None:
        uid, printed = job.metadata.uid, Printed()
        logs.set_gang(job)
        async with self._slots:
            if self._queries.get(uid) != query:
                return
            try:
                printed = await self._cluster.printed(job, query)
            except ClusterError as error:
                log.warning(
                    "what %s printed last can't be read, and the incident does without: %s", query.member, error
                )
            except Exception:
                log.exception("reading what %s printed last crashed, which is a bug", query.member)
        if self._queries.get(uid) == query:
            self._answers[uid] = OutputRead(query, printed)
            if printed.lines:
                self._wake(uid)
