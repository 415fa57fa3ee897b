"""One local pod: does for the two processes of a pod what the kubelet does for its containers.

A sidecar that ended is restarted at once. A supervisor that exited with 0 has ended its pod; any other end counts as a
container restart and starts a new session. A process that keeps dying soon after its start is restarted with growing
back-off. ``run`` may be cancelled at any time: the processes keep running, and the next controller adopts them.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Unpack

from gangctl.api.model import changed
from gangctl.cluster import clock
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.local import pod_record, process
from gangctl.cluster.local.layout import PodFolder
from gangctl.cluster.local.pod_record import PodRecord, projection
from gangctl.cluster.local.process import LocalProcess
from gangctl.cluster.local.programs import Programs
from gangctl.cluster.local.termination import end_sidecar, end_supervisor, kill_tree
from gangctl.cluster.sightings import first_seen

log = logging.getLogger(__name__)

LINGER_SECONDS: Final = 2.0
"""How long a deleted pod is shown as terminated, so that the controller sees how it ended."""
QUICK_SECONDS: Final = 10.0
FREE_RESTARTS: Final = 3
MOST_BACK_OFF_SECONDS: Final = 30.0
MESSAGE_BYTES: Final = 4096
"""As much of a termination message as a kubelet reads."""


class LocalPod:
    """A pod and its processes. ``notify`` is called after each change."""

    def __init__(
        self,
        folder: PodFolder,
        stored: PodRecord,
        programs: Programs,
        notify: Callable[[], None],
        found: tuple[LocalProcess | None, LocalProcess | None] = (None, None),
    ) -> None:
        """``found``: its running sidecar and supervisor, if an earlier controller started the pod."""
        self.record = stored
        self.shown = first_seen(projection(stored), clock.now())
        """The pod as the core sees it."""
        self._folder = folder
        self._programs = programs
        self._notify = notify
        self._sidecar, self._supervisor = found
        self._deleting = asyncio.Event()
        self._writing = asyncio.Lock()
        if stored.deleting:
            self._deleting.set()

    async def delete(self, grace_seconds: int | None) -> None:
        """Start to terminate the pod. This is idempotent."""
        if self.record.deleting:
            return
        grace = self.record.grace_seconds if grace_seconds is None else grace_seconds
        await self._store(durable=True, deleting=True, grace_seconds=grace)
        self._deleting.set()

    async def abandon(self) -> None:
        """Terminate the pod because its gang is gone, even if this can't be stored."""
        await self._record(deleting=True)
        self._deleting.set()

    async def run(self) -> None:
        """Keep the pod running until it is deleted and gone."""
        if not self.record.terminated:
            async with asyncio.TaskGroup() as tasks:
                sidecar = tasks.create_task(self._run_sidecar())
                reason = await self._run_supervisor()
                sidecar.cancel()
            await end_sidecar(self._sidecar)
            await asyncio.to_thread(pod_record.remove_what_lived, self.record)
            message = await asyncio.to_thread(self._termination_message)
            await self._record(
                durable=True, terminated=True, started=None, ended=clock.now(), message=message, reason=reason
            )
        await self._deleting.wait()
        await asyncio.sleep(LINGER_SECONDS)
        await asyncio.to_thread(self._remove_files)

    async def _run_supervisor(self) -> str:
        """Keep the supervisor running until the pod ends; return the reason."""
        if self._supervisor is not None and self.record.supervisor != self._supervisor:
            await self._record(supervisor=self._supervisor, started=self.record.started or clock.now())
        quick = 0
        while not self._deleting.is_set():
            if self._supervisor is None:
                await self._start_supervisor()
            began = time.monotonic()
            code = await self._end_of_supervisor()
            if self._deleting.is_set():
                break
            log.info(
                "pod %s: the supervisor ended with %s", self.record.name, "an unknown code" if code is None else code
            )
            if code == 0:
                await kill_tree(self.record.uid, None)
                return "Completed"
            self._supervisor = None
            message = await asyncio.to_thread(self._termination_message)
            await self._record(started=None, ended=clock.now(), message=message)
            quick = quick + 1 if time.monotonic() - began < QUICK_SECONDS else 0
            with suppress(TimeoutError):
                async with asyncio.timeout(back_off(quick)):
                    await self._deleting.wait()
        await end_supervisor(self.record.uid, self._supervisor, self.record.grace_seconds)
        return "Deleted"

    async def _start_supervisor(self) -> None:
        again = self.record.supervisor is not None
        try:
            started = await asyncio.to_thread(self._programs.start_supervisor, self.record, self._folder)
        except OSError as error:
            await self._record(reason=f"the supervisor can't be started: {error}")
            return
        self._supervisor = started
        restarts = self.record.restarts + again
        await self._record(supervisor=started, started=clock.now(), restarts=restarts, reason="")

    async def _end_of_supervisor(self) -> int | None:
        """Wait until the supervisor ends or the pod is deleted; return the exit code, if it is known."""
        if self._supervisor is None:
            return None
        async with asyncio.TaskGroup() as tasks:
            ended = tasks.create_task(process.wait_for_end(self._supervisor))
            deleting = tasks.create_task(self._deleting.wait())
            await asyncio.wait((ended, deleting), return_when=asyncio.FIRST_COMPLETED)
            deleting.cancel()
            if not ended.done():
                ended.cancel()
                return None
        return ended.result()

    async def _run_sidecar(self) -> None:
        quick = 0
        while True:
            if self._sidecar is None:
                await self._start_sidecar()
            if self._sidecar is not None and self.record.sidecar != self._sidecar:
                await self._record(sidecar=self._sidecar)
            began = time.monotonic()
            if self._sidecar is not None:
                await process.wait_for_end(self._sidecar)
                log.info("pod %s: the sidecar ended and is restarted", self.record.name)
            self._sidecar = None
            quick = quick + 1 if time.monotonic() - began < QUICK_SECONDS else 0
            await asyncio.sleep(back_off(quick))

    async def _start_sidecar(self) -> None:
        starting = asyncio.ensure_future(asyncio.to_thread(self._programs.start_sidecar, self.record, self._folder))
        try:
            self._sidecar = await asyncio.shield(starting)
        except OSError as error:
            log.warning("pod %s: the sidecar can't be started: %s", self.record.name, error)
        except asyncio.CancelledError:
            # the pod is ending: remember the sidecar that was started, so that it is ended as well
            with suppress(OSError):
                self._sidecar = await starting
            raise

    async def _record(self, *, durable: bool = False, **changes: Unpack[pod_record.RecordChanges]) -> None:
        """Store what has happened. If that fails, keep it in memory only."""
        try:
            await self._store(durable=durable, **changes)
        except ClusterError as error:
            log.warning("pod %s: %s", self.record.name, error)
            self._set_record(changed(self.record, **changes))

    async def _store(self, *, durable: bool, **changes: Unpack[pod_record.RecordChanges]) -> None:
        async with self._writing:
            record = changed(self.record, **changes)
            await asyncio.to_thread(pod_record.save_pod, self._folder, record, durable=durable)
            self._set_record(record)

    def _set_record(self, record: PodRecord) -> None:
        self.record = record
        self.shown = first_seen(projection(record), clock.now())
        self._notify()

    def _termination_message(self) -> str:
        """What the supervisor left; empty if it left nothing."""
        try:
            with self._folder.termination_log.open("rb") as file:
                return file.read(MESSAGE_BYTES).decode(errors="replace")
        except OSError:
            return ""

    def _remove_files(self) -> None:
        for path in (
            self._folder.termination_log,
            self._folder.token,
            self._folder.state_file,
            self._folder.workers,
            self._folder.program,
            self._folder.record,
        ):
            _remove(path)


def back_off(quick: int) -> float:
    """Back-off in seconds after this number of consecutive quick deaths."""
    return 0.0 if quick <= FREE_RESTARTS else min(MOST_BACK_OFF_SECONDS, float(2 ** (quick - FREE_RESTARTS)))


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s can't be removed: %s", path, error.strerror)
