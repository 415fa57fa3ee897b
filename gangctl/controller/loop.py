"""The loop: observe, decide, apply. Each gang has its own task, which makes one round at a time.

The rule: the status is written first. Directives, pods and events follow only from a status that is stored. Pods are
created and deleted beside the rounds (``actions.py``): a round must not wait for a pod. The loop keeps no state: after
a failure, a conflict or a crash, the next round decides again from what is stored and observed. A large gang must not
keep the event loop from all others: its round takes several turns, and a pause several times as long as its decision.
Nor must a namespace with many gangs: namespaces take turns in deciding, as they do with messages (``turns.py``).
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from tenacity import AsyncRetrying, RetryCallState, wait_random_exponential

from gangctl.api.gangjob import GangJob
from gangctl.cluster import clock
from gangctl.cluster.errors import ClusterError, Conflict, Retryable, Terminal
from gangctl.cluster.fair_slots import FairSlots
from gangctl.cluster.port import Cluster, UnreadableGang
from gangctl.controller.actions import SLOTS, Actions, OutputReader
from gangctl.controller.fleet import BrakeKeeper, Groups
from gangctl.controller.hub import Hub
from gangctl.controller.turns import Turns
from gangctl.core.facts.printed import ReadOutput
from gangctl.core.facts.world import Observed
from gangctl.core.lifecycle.events import unreadable_event
from gangctl.core.lifecycle.plan import AskScan, Event, Plan
from gangctl.core.policy.checks import AskCheck
from gangctl.telemetry import logs
from gangctl.telemetry.logs import DecisionLog
from gangctl.telemetry.port import TelemetryFanout
from gangctl.words.decisions import unstored

log = logging.getLogger(__name__)

LATER_SECONDS: Final = 1.0
"""How long a change may wait that happens all the time, while there are few gangs."""
LATER_ROUNDS: Final = 200
"""So many rounds a second at most are for such changes of all gangs."""


class Wakes:
    """The flags. Setting one many times before the next round causes one round."""

    def __init__(self) -> None:
        self._flags: dict[str, asyncio.Event] = {}
        self._new: asyncio.Queue[str] = asyncio.Queue()
        self._later: dict[str, asyncio.TimerHandle] = {}

    def wake(self, gang: str) -> None:
        """Ask for another round of this gang (a UID). A gang without a task is announced by :meth:`new`."""
        if gang not in self._flags:
            self._flags[gang] = asyncio.Event()
            self._new.put_nowait(gang)
        self._flags[gang].set()

    @property
    def known(self) -> int:
        """Number of gangs that have a task."""
        return len(self._flags)

    def wake_known(self, gang: str) -> None:
        """Ask for another round of this gang, if it has a task."""
        if gang in self._flags:
            self._flags[gang].set()

    def wake_later(self, gang: str) -> None:
        """Ask for one round in a while, unless one begins before. The more gangs there are, the later."""
        if gang not in self._later:
            seconds = max(LATER_SECONDS, self.known / LATER_ROUNDS)
            self._later[gang] = asyncio.get_running_loop().call_later(seconds, self._wake_now, gang)

    async def new(self) -> str:
        """Wait for the next gang that needs a task."""
        return await self._new.get()

    def begin(self, gang: str) -> None:
        """A round begins: a later wake-up asks for another one."""
        self._cancel(gang)
        self._flags[gang].clear()

    def is_set(self, gang: str) -> bool:
        """Return whether the gang was woken since its last round began."""
        return self._flags[gang].is_set()

    async def wait(self, gang: str, seconds: float | None) -> None:
        """Wait until the gang is woken, at most so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._flags[gang].wait()
        except TimeoutError:
            return

    def forget(self, gang: str) -> None:
        """The gang's task ends; the next wake-up announces the gang as new."""
        self._cancel(gang)
        del self._flags[gang]

    def _wake_now(self, gang: str) -> None:
        del self._later[gang]
        self.wake(gang)

    def _cancel(self, gang: str) -> None:
        timer = self._later.pop(gang, None)
        if timer is not None:
            timer.cancel()


FIRST_RETRY_SECONDS: Final = 0.01
LONGEST_RETRY_SECONDS: Final = 5.0
TERMINAL_RETRY_SECONDS: Final = 60.0
"""Where a repetition can help only once a person has changed something, such as a right."""
PAUSE_FACTOR: Final = 3.0
"""A pause is so many times as long as the decision before it: however much is new, a gang's decisions take at most a
quarter of the loop's time. The rest is for the reports that they wait for, and for other gangs."""

Decide = Callable[[float, GangJob, Observed], Plan]
"""The core: plans what to do about a gang at a time (seconds since the epoch)."""


class Loop:
    """Reconciles every gang of a cluster."""

    def __init__(self, cluster: Cluster, hub: Hub, wakes: Wakes, decide: Decide, telemetry: TelemetryFanout) -> None:
        self._cluster = cluster
        self._hub = hub
        self.wakes = wakes
        self._decide = decide
        self._telemetry = telemetry
        self.brake = BrakeKeeper(wakes.wake)
        self._turns = Turns()
        self._unreadable: dict[str, str] = {}
        """UID of a gang that this release can't read -> why."""
        self._groups = Groups(cluster, wakes.wake_known)
        self._output = OutputReader(cluster, wakes.wake_known)
        self._unstored: dict[str, str] = {}
        """UID of a gang -> why its newest status could not be stored: until then, nothing is done for it."""

    @property
    def unreadable_count(self) -> int:
        """Number of gangs that this release can't read now. Nothing is decided about them."""
        return len(self._unreadable)

    async def run(self) -> None:
        """Reconcile gangs until cancelled."""
        slots = FairSlots(SLOTS)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.brake.run(), name="brake")
            while True:
                gang = await self.wakes.new()
                wake = partial(self.wakes.wake_known, gang)
                actions = Actions(self._cluster, self._telemetry, tasks, slots, wake)
                tasks.create_task(self._reconcile(gang, actions, tasks), name=f"gang {gang}")

    async def _reconcile(self, uid: str, actions: Actions, tasks: asyncio.TaskGroup) -> None:
        """Reconcile one gang until it is gone."""
        decision_log = DecisionLog()
        while self._cluster.exists(uid):
            pause: float | None = None
            async for attempt in AsyncRetrying(
                wait=_pause,
                before_sleep=partial(self._failed, uid),
            ):
                with attempt:
                    self.wakes.begin(uid)
                    pause = await self._round(uid, actions, decision_log, tasks)
                    self._unstored.pop(uid, None)
            if self._cluster.exists(uid):  # It may have gone before this round, which was a repetition.
                await self.wakes.wait(uid, pause)
        actions.stop()
        self.brake.forget(uid)
        self._groups.forget(uid)
        self._unreadable.pop(uid, None)
        self._output.forget(uid)
        self._unstored.pop(uid, None)
        self._hub.forget(uid)
        self.wakes.forget(uid)
        self._telemetry.report(lambda one: one.gang_gone(uid))

    async def _round(
        self, uid: str, actions: Actions, decision_log: DecisionLog, tasks: asyncio.TaskGroup
    ) -> float | None:
        """Observe, decide, apply; return the seconds until the next round is due even if nothing happens.

        Raises:
            ClusterError: the status could not be written, and nothing else was done.
        """
        job = self._cluster.gang(uid)
        if job is None:  # It can't be read: nothing follows from what was stored before.
            actions.stop()
            self._hub.withhold(uid)
            self.brake.forget(uid)
            self._groups.forget(uid)
            self._telemetry.report(lambda one: one.gang_gone(uid))
            await self._report_unreadable(uid)
            return None
        self._unreadable.pop(uid, None)
        logs.set_gang(job)
        stored = job
        self._telemetry.report(lambda one: one.round_began(stored))
        found = await self._decided(uid, job.metadata.namespace)
        if found is None:
            return 0.0
        now, job, observed, plan, seconds = found
        decided = time.monotonic()
        self._telemetry.report(lambda one: one.decision_finished(seconds))
        requested = tuple(action for action in plan.actions if not isinstance(action, AskScan | AskCheck | ReadOutput))
        actions.keep(requested)
        await asyncio.sleep(0)  # A large gang must not keep the loop from all others.
        if plan.status is not None and plan.status != job.status:
            before, job = job, await self._cluster.write_status(job, plan.status)
            self.brake.status_written(now, before, job)
            took, both = time.monotonic() - decided, (before, job)
            self._telemetry.report(lambda one: one.status_written(*both, took))
            self.wakes.wake(uid)  # The new status may have consequences at once.
            logs.set_gang(job)
        decision_log.log_plan(job, plan)
        self._hub.publish(job)
        actions.want(job, requested)
        self._output.want(tasks, job, (one for one in plan.actions if isinstance(one, ReadOutput)))
        for query in plan.actions:
            if isinstance(query, AskScan | AskCheck):
                self._hub.ask(uid, query)
        for event in plan.events:
            await self._emit(job, event)
        # The plan does not know of a pod that vanished since: its report may be the last evidence of it.
        pods = {pod.uid for pod in (*observed.pods, *self._cluster.pods(uid))}
        self._hub.reports.prune(uid, pods | {entry.pod for entry in job.status.awaited})
        await asyncio.sleep(PAUSE_FACTOR * seconds)
        pauses = (plan.requeue_after, actions.due_in)
        return min((pause for pause in pauses if pause is not None), default=None)

    async def _decided(self, uid: str, namespace: str) -> tuple[float, GangJob, Observed, Plan, float] | None:
        """Observe, count the gang for the brake, and decide, in a turn of the namespace; None: it can't be read now.

        Returns when that was, what it was about, and how many seconds it took.
        """
        found: list[tuple[float, GangJob, Observed, Plan, float]] = []

        def decide() -> None:
            job = self._cluster.gang(uid)
            if job is None:
                return
            now, observed = clock.now(), self.observed(uid)
            self.brake.count(now, job, observed)
            began = time.monotonic()
            plan = self._decide(now, job, self.brake.apply_brake(now, job.metadata.namespace, observed))
            self._groups.note_decision(now, job, plan)  # In the same turn as the look at the others.
            found.append((now, job, observed, plan, time.monotonic() - began))

        await self._turns.take(namespace, decide)
        return next(iter(found), None)

    async def _report_unreadable(self, uid: str) -> None:
        """Record an Event for a gang that this release can't read, once for each reason."""
        gang = self._cluster.unreadable(uid)
        if gang is not None and self._unreadable.get(uid) != gang.why:
            self._unreadable[uid] = gang.why
            await self._emit(gang, unreadable_event(gang.why))

    async def _emit(self, gang: GangJob | UnreadableGang, event: Event) -> None:
        try:
            await self._cluster.emit(gang, event)
        except ClusterError as error:
            log.warning("an event is lost: %s", error)

    def _failed(self, uid: str, state: RetryCallState) -> None:
        error = None if state.outcome is None else state.outcome.exception()
        if isinstance(error, ClusterError) and not isinstance(error, Conflict):
            self._unstored[uid] = str(error)
        _log_failure(error)

    def observed(self, uid: str) -> Observed:
        """Return what is observed of one gang now."""
        job = self._cluster.gang(uid)
        scanned, scanned_at = self._hub.reports.scanned(uid)
        watching_since, relayed_since = self._cluster.listening_since(uid), self._hub.relayed_since(uid)
        return Observed(
            pods=self._cluster.pods(uid),
            heard=self._hub.reports.heard(uid),
            lost_nodes=self._cluster.lost_nodes(),
            nodes=self._cluster.nodes(),
            unfavoured_nodes=self._cluster.unfavoured_nodes(uid),
            scanned=scanned,
            scanned_at=scanned_at,
            output=self._output.answer(uid),
            listening_since=max(watching_since, relayed_since),
            watching_since=watching_since,
            relayed_since=relayed_since,
            refused=self._cluster.pod_rejections(uid),
            queue=self._cluster.queue(uid),
            group=() if job is None else self._groups.others(clock.now(), job),
            unstored=self._unstored.get(uid, ""),
            gangs=self.wakes.known,
        )


_exponential: Final = wait_random_exponential(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
_rarely: Final = wait_random_exponential(FIRST_RETRY_SECONDS, TERMINAL_RETRY_SECONDS)


def _pause(state: RetryCallState) -> float:
    """Seconds until a round is repeated: what the API server asks for, and a random time on top."""
    error = None if state.outcome is None else state.outcome.exception()
    if isinstance(error, Terminal):
        return _rarely(state)
    return _exponential(state) + (error.after if isinstance(error, Retryable) else 0.0)


def _log_failure(error: BaseException | None) -> None:
    match error:
        case Conflict():
            log.info("the decision is repeated: %s", error)
        case ClusterError():
            log.warning("%s", unstored(str(error)))
        case _:
            log.error("a round crashed, which is a bug; it is repeated", exc_info=error)
