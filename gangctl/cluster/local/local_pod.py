"""One local pod and who keeps it: what the kubelet does for a pod, done for two processes.

A dead sidecar is started again at once. A dead supervisor that exited with 0 has ended its pod; any other end is the
restart of a container, and makes a new session. What dies again and again soon after its start is waited for longer and
longer. The keeper may be cancelled at any moment, which leaves the processes alone; the next one adopts them.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Unpack

from gangctl.cluster.errors import ClusterError
from gangctl.cluster.local import pod_record, process
from gangctl.cluster.local.layout import PodFolder
from gangctl.cluster.local.pod_record import PodRecord, projection
from gangctl.cluster.local.process import Process
from gangctl.cluster.local.programs import Programs
from gangctl.cluster.local.termination import end_sidecar, end_supervisor, kill_tree

log = logging.getLogger(__name__)

LINGER_SECONDS: Final = 2.0
"""A deleted pod is shown terminated this long, so that the controller sees how it ended."""
QUICK_SECONDS: Final = 10.0
FREE_RESTARTS: Final = 3
LONGEST_PAUSE_SECONDS: Final = 30.0


class LocalPod:
    """A pod that is kept. ``told`` is called whenever it looks different."""

    def __init__(
        self,
        folder: PodFolder,
        stored: PodRecord,
        programs: Programs,
        told: Callable[[], None],
        found: tuple[Process | None, Process | None] = (None, None),
    ) -> None:
        """``found``: its living sidecar and supervisor, for a pod that an earlier controller has started."""
        self.record = stored
        self.shown = projection(stored)
        """The pod as decide() sees it."""
        self._folder = folder
        self._programs = programs
        self._told = told
        self._sidecar, self._supervisor = found
        self._deleting = asyncio.Event()
        self._writing = asyncio.Lock()
        if stored.deleting:
            self._deleting.set()

    async def delete(self, grace_seconds: int | None) -> None:
        """Begin to end it. Doing it twice does no harm.

        Raises:
            Retryable: that can't be stored.
        """
        if self.record.deleting:
            return
        grace = self.record.grace_seconds if grace_seconds is None else grace_seconds
        await self._store(durable=True, deleting=True, grace_seconds=grace)
        self._deleting.set()

    async def give_up(self) -> None:
        """End it whether that can be stored or not: its gang is gone."""
        await self._note(deleting=True)
        self._deleting.set()

    async def keep(self) -> None:
        """Keep it until it is deleted and gone."""
        if not self.record.terminated:
            async with asyncio.TaskGroup() as tasks:
                sidecar = tasks.create_task(self._keep_sidecar())
                reason = await self._keep_supervisor()
                sidecar.cancel()
            await end_sidecar(self._sidecar)
            await asyncio.to_thread(shutil.rmtree, self.record.sockets, ignore_errors=True)
            await self._note(durable=True, terminated=True, started=None, reason=reason)
        await self._deleting.wait()
        await asyncio.sleep(LINGER_SECONDS)
        await asyncio.to_thread(self._forget)

    async def _keep_supervisor(self) -> str:
        """Until it ends for good; why it did."""
        if self._supervisor is not None and self.record.supervisor != self._supervisor:
            await self._note(supervisor=self._supervisor, started=self.record.started or time.time())
        quick = 0
        while not self._deleting.is_set():
            if self._supervisor is None:
                await self._start_supervisor()
            began = time.monotonic()
            code = await self._end_of_supervisor()
            if self._deleting.is_set():
                break
            log.info(
                "pod %s: its supervisor ended with %s", self.record.name, "an unknown code" if code is None else code
            )
            if code == 0:
                await kill_tree(self.record.uid, None)
                return "Completed"
            self._supervisor = None
            await self._note(started=None, ended=time.time())
            quick = quick + 1 if time.monotonic() - began < QUICK_SECONDS else 0
            with suppress(TimeoutError):
                async with asyncio.timeout(pause(quick)):
                    await self._deleting.wait()
        await end_supervisor(self.record.uid, self._supervisor, self.record.grace_seconds)
        return "Deleted"

    async def _start_supervisor(self) -> None:
        again = self.record.supervisor is not None
        try:
            started = await asyncio.to_thread(self._programs.start_supervisor, self.record, self._folder)
        except OSError as error:
            await self._note(reason=f"its supervisor can't be started: {error}")
            return
        self._supervisor = started
        restarts = self.record.restarts + again
        await self._note(supervisor=started, started=time.time(), restarts=restarts, reason="")

    async def _end_of_supervisor(self) -> int | None:
        """Wait until it ends or is to end; its exit code, if it is known."""
        if self._supervisor is None:
            return None
        async with asyncio.TaskGroup() as tasks:
            ended = tasks.create_task(process.ended(self._supervisor))
            deleting = tasks.create_task(self._deleting.wait())
            await asyncio.wait((ended, deleting), return_when=asyncio.FIRST_COMPLETED)
            deleting.cancel()
            if not ended.done():
                ended.cancel()
                return None
        return ended.result()

    async def _keep_sidecar(self) -> None:
        quick = 0
        while True:
            if self._sidecar is None:
                await self._start_sidecar()
            if self._sidecar is not None and self.record.sidecar != self._sidecar:
                await self._note(sidecar=self._sidecar)
            began = time.monotonic()
            if self._sidecar is not None:
                await process.ended(self._sidecar)
                log.info("pod %s: its sidecar ended and is started again", self.record.name)
            self._sidecar = None
            quick = quick + 1 if time.monotonic() - began < QUICK_SECONDS else 0
            await asyncio.sleep(pause(quick))

    async def _start_sidecar(self) -> None:
        starting = asyncio.ensure_future(asyncio.to_thread(self._programs.start_sidecar, self.record, self._folder))
        try:
            self._sidecar = await asyncio.shield(starting)
        except OSError as error:
            log.warning("pod %s: its sidecar can't be started: %s", self.record.name, error)
        except asyncio.CancelledError:
            # The pod ends just now: who has been started is ended with it, so it must be known.
            with suppress(OSError):
                self._sidecar = await starting
            raise

    async def _note(self, *, durable: bool = False, **changes: Unpack[pod_record.RecordChanges]) -> None:
        """Store what has happened; what can't be stored is true all the same."""
        try:
            await self._store(durable=durable, **changes)
        except ClusterError as error:
            log.warning("pod %s: %s", self.record.name, error)
            self._become(pod_record.changed(self.record, **changes))

    async def _store(self, *, durable: bool, **changes: Unpack[pod_record.RecordChanges]) -> None:
        async with self._writing:
            changed = pod_record.changed(self.record, **changes)
            await asyncio.to_thread(pod_record.save, self._folder, changed, durable=durable)
            self._become(changed)

    def _become(self, changed: PodRecord) -> None:
        self.record = changed
        self.shown = projection(changed)
        self._told()

    def _forget(self) -> None:
        """The pod is no more; its logs stay."""
        for path in (self._folder.token, self._folder.state_file, self._folder.program, self._folder.record):
            _remove(path)


def pause(quick: int) -> float:
    """Seconds until the next start, after so many deaths in a row that each came soon after the start."""
    return 0.0 if quick <= FREE_RESTARTS else min(LONGEST_PAUSE_SECONDS, float(2 ** (quick - FREE_RESTARTS)))


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s can't be removed: %s", path, error.strerror)
