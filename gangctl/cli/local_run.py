"""One `gangctl run` from the stored gang to its end: a controller, a picture, and what signals do."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from typing import Any, Final, TextIO

from gangctl.api.status import GangPhase
from gangctl.cli.controller_process import ControllerFailedError, ControllerProcess
from gangctl.cli.display import Display
from gangctl.cli.errors import ExitCode
from gangctl.cli.gang_view import GangView, view_gang
from gangctl.cli.output import print_err
from gangctl.cli.submission import forget
from gangctl.cli.worker_output import WorkerOutput
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.local.gang_store import FINISHED, GangStore
from gangctl.cluster.local.layout import StateDirectory
from gangctl.cluster.local.teardown import teardown

REDRAW_SECONDS: Final = 0.2
ENDING_SECONDS: Final = 30.0
"""Beyond the stop grace, for pods of a gang that has ended to end by themselves."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LEFT: Final = frozenset({GangPhase.HELD, GangPhase.SUSPENDED})


class LocalRun:
    """Watches one gang until it has ended or the user has had enough."""

    def __init__(
        self,
        state: StateDirectory,
        store: GangStore,
        display: Display,
        stream: TextIO,
        *,
        logs: bool,
        keep: bool,
    ) -> None:
        """``stream``: where the display writes; ``logs``: show workers' output; ``keep``: Ctrl-C leaves it running."""
        self._state = state
        self._stream = stream
        self._store = store
        self._display = display
        self._followed = WorkerOutput(store.folder) if logs else None
        self._keep = keep
        self._interrupted = asyncio.Event()
        self._again = asyncio.Event()
        self._why = ""
        self._wrong = ""
        """What was wrong with the stored gang at the last look."""
        self._deaf = False
        """Nobody sees what is reported any more."""
        self._last: GangView | None = None
        self._members: dict[str, dict[str, Any]] = {}
        """The newest that was seen of each member: pods that have ended are forgotten by the cluster."""

    async def run(self) -> int:
        """Until the end; gives the exit code.

        Raises:
            ClusterError: the stored gang can't be read, or its processes can't be ended.
        """
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                loop.add_signal_handler(number, self._signalled, number)
        async with asyncio.TaskGroup() as tasks:
            keeper = tasks.create_task(_kept(ControllerProcess(self._state, self._note)))
            watcher = tasks.create_task(self._watch())
            await asyncio.wait((keeper, watcher), return_when=asyncio.FIRST_COMPLETED)
            gave_up = keeper.result() if keeper.done() else ""
            keeper.cancel()
            watcher.cancel()
        return await self._end(gave_up)

    def document(self) -> dict[str, Any]:
        """The final status as it was stored, and every member with its process ids."""
        status = (
            {}
            if self._last is None
            else self._last.job.status.model_dump(mode="json", by_alias=True, exclude_none=True)
        )
        return {"status": status, "members": list(self._members.values())}

    def close(self) -> None:
        """Leave the terminal as it was."""
        with suppress(OSError):
            self._display.close()

    async def _watch(self) -> None:
        """Show the gang until it has ended, with every process of it, or nobody wants it any more."""
        while not self._interrupted.is_set() and not await self._has_ended():
            with suppress(TimeoutError):
                async with asyncio.timeout(REDRAW_SECONDS):
                    await self._interrupted.wait()

    async def _has_ended(self) -> bool:
        now = time.time()
        try:
            found = await asyncio.to_thread(view_gang, self._state, self._store, now)
        except ClusterError as error:
            # A file that was damaged may be restored; one that is gone won't come back.
            if self._wrong != str(error):
                self._wrong = str(error)
                self._note(self._wrong)
            return self._store.stamp() is None
        self._seen(found)
        self._show(found, now)
        status = found.job.status
        if status.phase not in FINISHED:
            return False
        overdue = now > status.phase_time + found.job.spec.recovery.stop_grace_period_seconds + ENDING_SECONDS
        return overdue or all(pod.terminated for pod in found.pods if pod.gang == found.job.metadata.uid)

    async def _end(self, gave_up: str) -> int:
        try:
            job = await asyncio.to_thread(self._store.read)
        except ClusterError:
            await self._end_processes(0)
            raise
        name, phase, grace = job.metadata.name, job.status.phase, job.spec.recovery.stop_grace_period_seconds
        if phase in FINISHED:
            await self._end_processes(0)
            await self._last_look()
            self._note(f"{name} has {phase.lower()}: {job.status.message}")
            return ExitCode.OK if phase is GangPhase.SUCCEEDED else ExitCode.FAILED
        if gave_up:
            self._note(f"{gave_up}; every process of {name} is ended (up to {grace} s)")
            await self._end_processes(grace)
            await self._last_look()
            return ExitCode.FAILED
        code = ExitCode.HELD if phase in _LEFT else ExitCode.INTERRUPTED
        if self._keep:
            self._note(f"{self._why}: the controller has ended, {name} goes on without it (--keep)")
            return code
        self._note(f"{self._why}: ending every process of {name} (up to {grace} s; once more: at once)")
        await self._end_processes(grace)
        await self._last_look()
        if phase not in _LEFT:
            await asyncio.to_thread(forget, self._store)
        what = f"it stays {phase.lower()}" if phase in _LEFT else "it is forgotten"
        self._note(f"no process of {name} is left; {what}; logs are in {self._store.folder.pods}")
        return code

    async def _end_processes(self, grace: float) -> None:
        """Polite at first; a second signal makes it immediate."""
        name = self._store.folder.path.name
        polite = asyncio.ensure_future(teardown(self._state, name, grace))
        again = asyncio.ensure_future(self._again.wait())
        try:
            await asyncio.wait((polite, again), return_when=asyncio.FIRST_COMPLETED)
            if not polite.done():
                self._note("killing what is left")
                polite.cancel()
                await asyncio.wait((polite,))
                await teardown(self._state, name, 0)
            elif not polite.cancelled():
                polite.result()
        finally:
            again.cancel()

    async def _last_look(self) -> None:
        """What came of it, for the document and as the last picture."""
        now = time.time()
        found = await asyncio.to_thread(view_gang, self._state, self._store, now)
        self._seen(found)
        self._show(found, now)

    def _signalled(self, number: signal.Signals) -> None:
        if self._interrupted.is_set():
            self._again.set()
        self._interrupt({signal.SIGINT: "Ctrl-C", signal.SIGHUP: "the terminal is gone"}.get(number, number.name))

    def _interrupt(self, why: str) -> None:
        self._why = self._why or why
        self._interrupted.set()

    def _seen(self, found: GangView) -> None:
        self._last = found
        for entry in found.processes():
            known = self._members.get(entry["member"], {})
            self._members[entry["member"]] = entry if "supervisor" in entry else {**known, **entry}

    def _show(self, found: GangView, now: float) -> None:
        if self._deaf:
            return
        try:
            self._display.update(found, now)
            for member, line in () if self._followed is None else self._followed.lines():
                self._display.output(member, line)
        except OSError:
            self._unheard()

    def _note(self, text: str) -> None:
        if self._deaf:
            print_err(text)
            return
        try:
            self._display.note(text)
        except OSError:
            self._unheard()

    def _unheard(self) -> None:
        """The terminal is closed, or nobody reads the pipe: as if the user had pressed Ctrl-C."""
        self._deaf = True
        # What Python flushes at its exit must not fail once again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        self._interrupt("nobody reads what is shown")


async def _kept(controller: ControllerProcess) -> str:
    try:
        await controller.run()
    except ControllerFailedError as error:
        return str(error)
    return ""
