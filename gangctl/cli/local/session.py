"""Run gangs to their end for `gangctl run`: run a controller, update the displays and handle signals."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from gangctl.api.gangjob import GangJob
from gangctl.api.model import changed
from gangctl.api.names import pod_name
from gangctl.api.status import ENDED, GangPhase
from gangctl.cli.errors import ExitCode
from gangctl.cli.gang_view import GangView, as_stopped, view_gang
from gangctl.cli.local.controller_process import ControllerFailedError, ControllerProcess
from gangctl.cli.local.gangs import remove_gang
from gangctl.cli.printers.displays import Display
from gangctl.cli.printers.output import print_err
from gangctl.cluster.errors import ClusterError, Retryable, Terminal
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import GangFolder, StateDirectory, pods_by_member
from gangctl.cluster.local.log_files import LineReader
from gangctl.cluster.local.pod_record import PodRecord
from gangctl.cluster.local.termination import teardown
from gangctl.core.facts.printed import TRACEBACK
from gangctl.core.policy.recovery import failed_alike
from gangctl.story.words import FAILED_ALIKE

if TYPE_CHECKING:
    from gangctl.cli.page import PageProxy

REDRAW_SECONDS: Final = 0.2
ENDING_SECONDS: Final = 30.0
"""Time beyond the stop grace period for the pods of a gang that has ended to end by themselves."""
LAST_BYTES: Final = 1 << 16
LAST_LINES: Final = 20
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_gangs(state: StateDirectory, page: PageProxy | None, runs: Sequence[LocalRun]) -> int:
    """Run until all gangs have ended or the user interrupts, and return the exit code: the highest of all gangs."""
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            loop.add_signal_handler(number, _signal, runs, number)
    async with nullcontext() if page is None else page.serving(), asyncio.TaskGroup() as tasks:
        controller = tasks.create_task(_run_controller(ControllerProcess(state, runs[0].note)))
        watcher = tasks.create_task(_watch(runs))
        await asyncio.wait((controller, watcher), return_when=asyncio.FIRST_COMPLETED)
        failure = controller.result() if controller.done() else ""
        controller.cancel()
        watcher.cancel()
    ends: list[int | BaseException] = []
    for one in runs:  # An error of one must not leave the others running.
        ends += await asyncio.gather(one.end(failure), return_exceptions=True)
    for error in ends:
        if isinstance(error, BaseException):
            raise error
    return max(code for code in ends if isinstance(code, int))


async def _watch(runs: Sequence[LocalRun]) -> None:
    going = list(runs)

    async def follow(one: LocalRun) -> None:
        await one.watch()
        going.remove(one)
        if going:
            await one.leave()

    await asyncio.gather(*map(follow, runs))


def _signal(runs: Sequence[LocalRun], number: signal.Signals) -> None:
    for one in runs:
        one.signalled(number)


class LocalRun:
    """Watches one gang until it has ended or the user interrupts."""

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
        """Prepare the run.

        Args:
            state: where the gang is stored.
            store: the gang.
            display: shows it.
            stream: where the display writes.
            logs: show workers' output.
            keep: Ctrl-C leaves the gang running.
        """
        self._state = state
        self._stream = stream
        self._store = store
        self._display = display
        self._worker_output = LogFollower(store.folder) if logs else None
        self._keep = keep
        self._interrupted = asyncio.Event()
        self._kill_now = asyncio.Event()
        self._why = ""
        self._error = ""
        """Error of the last read of the stored gang; empty if there was none."""
        self._has_left = False
        """It was removed because it failed alike, while other gangs went on."""
        self._is_output_gone = False
        """The terminal or the reader of the pipe is gone: nothing can be displayed."""
        self._last: GangView | None = None
        self._pods: tuple[PodRecord, ...] = ()
        """Its pods when it last had some: their records may be removed while they run."""
        self._members: dict[str, dict[str, Any]] = {}
        """Newest entry of each member, because records of ended pods are removed."""

    def document(self) -> dict[str, Any]:
        """The final status, and all members with their process IDs."""
        status = {} if self._last is None else self._last.status()
        return {"status": status, "members": list(self._members.values())}

    def close(self) -> None:
        """Restore the terminal."""
        with suppress(OSError):
            self._display.close()

    async def watch(self) -> None:
        """Update the display until the gang and its processes have ended, or the user interrupts."""
        while not self._interrupted.is_set() and not await self._has_ended():
            with suppress(TimeoutError):
                async with asyncio.timeout(REDRAW_SECONDS):
                    await self._interrupted.wait()

    async def _has_ended(self) -> bool:
        now = time.time()
        try:
            found = await asyncio.to_thread(view_gang, self._state, self._store, now)
        except ClusterError as error:
            # a damaged file may be restored; a removed one stays removed
            if self._store.stamp() is None:
                return True
            if self._error != str(error):
                self._error = str(error)
                self.note(self._error)
            return False
        self._remember(found)
        self._show(found, now)
        status = found.job.status
        if status.phase not in ENDED:
            return failed_alike(found.job)
        overdue = now > status.phase_time + found.job.spec.recovery.stop_grace_period_seconds + ENDING_SECONDS
        return overdue or all(pod.terminated for pod in found.pods if pod.gang == found.job.metadata.uid)

    async def leave(self) -> None:
        """End the gang if it fails alike, and say that it has failed, while other gangs of the run go on."""
        job = None if self._last is None else self._last.job
        if job is None or self._interrupted.is_set():
            return
        name = job.metadata.name
        if job.status.phase is GangPhase.FAILED:
            self.note(f"{name} has failed, and the other gangs go on: gangctl why {name} shows why")
        elif job.status.phase not in ENDED and failed_alike(job):
            self._has_left = True
            self._print_last_lines(job)
            await asyncio.to_thread(remove_gang, self._store)  # The controller ends its processes.
            self.note(
                f"{FAILED_ALIKE}: {name} ends, and the other gangs go on; correct the script, then gangctl rerun "
                f"{name} runs it again; gangctl logs {name} has its logs"
            )

    async def end(self, failure: str) -> int:
        """End what is left of the gang, and return the exit code. ``failure``: why the controller has ended."""
        if self._store.stamp() is None:
            with suppress(ClusterError):  # its files go at this moment
                await self._end_processes(0)
            why = f"has failed: {FAILED_ALIKE}" if self._has_left else "was deleted"
            if self._last is not None:
                self._last = as_stopped(self._last, f"it {why}")
            self.note(f"{self._store.folder.path.name} {why}")
            return ExitCode.FAILED
        try:
            job = await asyncio.to_thread(self._store.read)
        except ClusterError:
            await self._end_processes(0)
            raise
        name, phase = job.metadata.name, job.status.phase
        if phase in ENDED:
            await self._end_processes(0)
            await self._last_look()
            self.note(f"{name} has {phase.lower()}: {job.status.message}")
            return ExitCode.OK if phase is GangPhase.SUCCEEDED else ExitCode.FAILED
        if failure:
            await self._stop(job, failure)
            return ExitCode.FAILED
        if not self._interrupted.is_set() and failed_alike(job):
            self._print_last_lines(job)
            await self._stop(job, FAILED_ALIKE)
            await asyncio.to_thread(remove_gang, self._store)
            self.note(f"correct the script, then gangctl rerun {name} runs it again; gangctl logs {name} has its logs")
            return ExitCode.FAILED
        stays = phase in {GangPhase.HELD, GangPhase.SUSPENDED}
        code = ExitCode.HELD if stays else ExitCode.INTERRUPTED
        if self._keep:
            self.note(f"{self._why}: the controller has ended, {name} continues without it (--keep)")
            return code
        await self._stop(job, self._why, "; interrupt again to kill them at once", is_stopped=not stays)
        if not stays:
            await asyncio.to_thread(remove_gang, self._store)
        what = f"the gang stays {phase.lower()}" if stays else f"gangctl rerun {name} runs it again"
        self.note(f"no process of {name} is left; {what}; gangctl logs {name} has its logs")
        return code

    async def _stop(self, job: GangJob, why: str, how: str = "", *, is_stopped: bool = True) -> None:
        """End the processes of a gang that has not ended, and say why before and after.

        Args:
            job: the gang.
            why: what was seen.
            how: added to the grace period, for the user.
            is_stopped: the status doesn't say that nothing runs.
        """
        grace = job.spec.recovery.stop_grace_period_seconds
        self.note(f"{why}: ending every process of {job.metadata.name} (up to {grace} s{how})")
        await self._end_processes(grace)
        await self._last_look(f"{why}: every process was ended" if is_stopped else "")

    async def _end_processes(self, grace: float) -> None:
        """End the processes gracefully; a second signal kills them at once. That they have ended need not be stored."""
        name = self._store.folder.path.name
        graceful = asyncio.ensure_future(teardown(self._state, name, grace, self._pods))
        kill_now = asyncio.ensure_future(self._kill_now.wait())
        try:
            await asyncio.wait((graceful, kill_now), return_when=asyncio.FIRST_COMPLETED)
            if not graceful.done():
                self.note("killing what is left")
                graceful.cancel()
                await asyncio.wait((graceful,))
                await teardown(self._state, name, 0, self._pods)
            elif not graceful.cancelled():
                graceful.result()
        except Retryable as error:
            self.note(f"{error}; every process has ended all the same")
        finally:
            kill_now.cancel()
            self._show_output(to_end=True)

    async def _last_look(self, stopped: str = "") -> None:
        """View the gang once more, for the document and the final display. ``stopped``: why it doesn't run any more.

        Its progress is the last that is known: the controller stores it only now and then.
        """
        now = time.time()
        found = await asyncio.to_thread(view_gang, self._state, self._store, now)
        found = as_stopped(found, stopped) if stopped else found
        seen = [one.snapshot.status.progress for one in (found, self._last) if one is not None]
        last = max((one for one in seen if one is not None), key=lambda one: (one.attempt, one.step), default=None)
        status = changed(found.snapshot.status, progress=last)
        found = replace(found, snapshot=changed(found.snapshot, status=status))
        self._remember(found)
        self._show(found, now)

    def _print_last_lines(self, job: GangJob) -> None:
        """Print what the worker at fault printed at its end, with the whole traceback if there is one."""
        cause, output = job.status.incidents[0].cause, job.status.incidents[0].output
        log = self._store.folder.pod(pod_name(job.metadata.name, cause.member, cause.incarnation)).worker_log
        try:
            text = log.read_bytes()[-LAST_BYTES:].decode(errors="replace")
        except OSError:
            text = "" if output is None else output.text
        start = text.rfind(TRACEBACK)
        self.note(f"what {cause.member} printed last:")
        with suppress(OSError):
            for line in text[start:].splitlines() if start >= 0 else text.splitlines()[-LAST_LINES:]:
                self._display.output(cause.member, line)

    def signalled(self, number: signal.Signals) -> None:
        """Stop watching; at the second signal, kill what is left."""
        if self._interrupted.is_set():
            self._kill_now.set()
        self._interrupt({signal.SIGINT: "Ctrl-C", signal.SIGHUP: "the terminal is gone"}.get(number, number.name))

    def _interrupt(self, why: str) -> None:
        self._why = self._why or why
        self._interrupted.set()

    def _remember(self, found: GangView) -> None:
        self._last = found
        self._pods = found.pods or self._pods
        for entry in found.processes():
            before = self._members.get(entry["member"], {})
            self._members[entry["member"]] = entry if "supervisor" in entry else {**before, **entry}

    def _show(self, found: GangView, now: float) -> None:
        if self._is_output_gone:
            return
        try:
            self._display.update(found, now)
        except OSError:
            self._output_is_gone()
        self._show_output()

    def _show_output(self, *, to_end: bool = False) -> None:
        if self._is_output_gone or self._worker_output is None:
            return
        try:
            for member, line in self._worker_output.lines(to_end=to_end):
                self._display.output(member, line)
        except OSError:
            self._output_is_gone()

    def note(self, text: str) -> None:
        if self._is_output_gone:
            print_err(text)
            return
        try:
            self._display.note(text)
        except OSError:
            self._output_is_gone()

    def _output_is_gone(self) -> None:
        """Handle a closed terminal or pipe like Ctrl-C."""
        self._is_output_gone = True
        # Python's flush at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        self._interrupt("the reader of the output is gone")


async def _run_controller(process: ControllerProcess) -> str:
    try:
        await process.run()
    except ControllerFailedError as error:
        return str(error)
    return ""


READ_BYTES: Final = 1 << 16
"""Maximum to read from one log at a time: a worker that floods its log must not block the display."""
LONGEST_LINE: Final = 4096


@dataclass
class LogFollower:
    """Follows all logs of a gang, from their end at the time of creation."""

    folder: GangFolder
    _readers: dict[Path, LineReader] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._readers = {log: LineReader(log, from_end=True) for _, log in self._logs()}

    def lines(self, *, to_end: bool = False) -> Iterator[tuple[str, str]]:
        """New lines, as (member, line); with ``to_end`` all that are left, also one without a newline."""
        for member, log in self._logs():
            reader = self._readers.setdefault(log, LineReader(log))
            with suppress(Terminal):
                for line in reader.new(None if to_end else READ_BYTES):
                    yield member, line.decode(errors="replace")
            for line in reader.rest(0 if to_end else LONGEST_LINE):
                yield member, line.decode(errors="replace")

    def _logs(self) -> list[tuple[str, Path]]:
        found = pods_by_member(self.folder.pods)
        return [(member, pod.worker_log) for member, pods in found.items() for pod in pods]
