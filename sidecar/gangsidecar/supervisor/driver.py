"""The driver of the machine: it turns what happens into events and carries out the effects.

What happens is a line of the sidecar, a signal, the end of a child, or a time. It must never decide anything:
:mod:`gangsidecar.supervisor.machine` does. One thread.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, get_args

from gangsidecar import wire
from gangsidecar.common import log, now_ms
from gangsidecar.supervisor import lookups, machine, persistence, processes
from gangsidecar.supervisor.checks import Checks
from gangsidecar.supervisor.connections import SidecarConnection
from gangsidecar.supervisor.event_loop import READ, WRITE, EventLoop, ForkedHelpers
from gangsidecar.supervisor.lookups import PortSearch, Scans
from gangsidecar.supervisor.persistence import Persistence
from gangsidecar.supervisor.settings import SupervisorSettings
from gangsidecar.supervisor.workers import Workers

if TYPE_CHECKING:
    import socket

KEEP_ALIVE_MS = 5_000
LAST_REPORT_MS = 1_000
"""The time that the end waits for a sidecar that is away or doesn't read."""
LAST_OUTPUT_MS = 4_000
"""And how much longer for what the worker has written, if the reader of the log is slow."""
RESTORE_LOOK_MS = 2_000
LOOK_AGAIN_MS = 50
"""A folder that another host has just written may take a moment to appear here."""
FIRST_KILL_AGAIN_MS, LAST_KILL_AGAIN_MS = 5, 1_000
"""SIGKILL is repeated after waits that double from the first to the last."""
STACKS_MARGIN_MS = 200
"""So long before its time a helper that takes stacks ends by itself, unless the kernel holds it up."""
FIRST_LOOK_AGAIN_MS = 2
LAST_LOOK_AGAIN_MS = 64
"""A process that has parked may have children that still end: waits between two looks, which double as well."""

_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
_CAUGHT = (*wire.STOP_SIGNALS.values(), signal.SIGCHLD, *_FORWARDED)
_RECEIVED = {wire.Directive, wire.Ping, wire.Scan, wire.Check, wire.Imports, *get_args(wire.FrameworkMessage)}


class Driver:
    """Drives one machine from its start to Quit."""

    def __init__(self, settings: SupervisorSettings) -> None:
        self._settings = settings
        self._loop = EventLoop()
        self._channel = SidecarConnection(settings.socket)
        self._connection: socket.socket | None = None  # The channel's connection that is being watched.
        self._connect_at = -1
        self._state = self._begin()
        self._pending: deque[machine.Input] = deque()
        self._draining = False
        self._helpers = ForkedHelpers(self._loop)
        self._workers = Workers(self._loop, settings, self._helpers.pids, self._feed)
        self._checks = Checks(self._loop, settings)
        self._ports = PortSearch(self._loop, settings.identity.pod, self._feed)
        self._scans = Scans(self._helpers, settings.identity.pod, self._send)
        self._seq = 0
        self._news = True
        self._offered: tuple[socket.socket | None, str] = None, ""  # The newest offer, and where it was sent.
        self._unsaved = bool(self._state.history.ends)
        self._keeper = Persistence(settings.state, settings.termination_log)
        self._end_by: int | None = None
        self._kill_again_ms = FIRST_KILL_AGAIN_MS

    def run(self) -> int:
        """Supervise until the machine's Quit; returns the exit code."""
        self._loop.catch(_CAUGHT, self._on_signal)
        self._workers.begin()
        self._connect()
        self._keep_alive()
        self._send_news()
        while not self._is_over():
            due = machine.deadline(self._state)
            self._loop.turn(due if self._end_by is None else self._next_look())
            due = machine.deadline(self._state)
            self._feed(*([machine.Tick()] if due is not None and due <= now_ms() else []))
            self._send_news()
        self._workers.end()
        log("info", "the supervisor ends", session=self._state.session)
        return 0

    def _begin(self) -> machine.State:
        identity = self._settings.identity
        wrong = processes.adopt_orphans()
        if wrong:
            log("warning", "orphaned descendants of a worker can't be adopted and may be missed", reason=wrong)
        if os.getpid() != 1:
            processes.kill_marked(identity.pod)
        now = now_ms()
        kept, wrong = persistence.load_state(self._settings.state, identity.gang, identity.pod, now)
        if wrong:
            log("warning", "the earlier session's state file is not usable", file=self._settings.state, reason=wrong)
        session = os.urandom(8).hex()
        log("info", "a session begins", session=session, member=identity.member, incarnation=identity.incarnation)
        before = kept.ends, kept.checkpoints, kept.dropped
        return machine.start_session(identity, session, now, *before, ran=kept.ran, orphan_ms=self._settings.orphan_ms)

    # Events in, effects out.

    def _feed(self, *events: machine.Input) -> None:
        """Step through these events, and through those that their effects cause. Children are reaped before each.

        So the machine learns of an end that came before a stop before it learns of the stop: the end is natural.
        """
        self._pending.extend(events)
        if self._draining:
            return
        self._draining = True
        self._reap()
        while self._pending:
            event = self._pending.popleft()
            if not isinstance(event, (machine.Exited, machine.CheckEnded)):
                self._reap()
            self._step(event)
        self._draining = False

    def _step(self, event: machine.Input) -> None:
        before = self._state
        self._state, effects = machine.step(before, now_ms(), event)
        old, new = before.directive, self._state.directive
        if before.phase is not self._state.phase or (old and old.order) != (new and new.order):
            attempt, reason = (new.attempt, new.reason) if new else (0, "")
            log("info", self._state.phase.value, attempt=attempt, on=type(event).__name__, reason=reason)
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: machine.Effect) -> None:
        if isinstance(effect, machine.Spawn):
            self._ports.end()
            self._pending.extend(self._workers.start(effect))
        elif isinstance(effect, machine.Signal):
            spared = self._helpers.pids | self._workers.pids_of(set(effect.spared)) | self._workers.stand_ins
            processes.signal_all(effect.signum, processes.descendants(os.getpid(), spared))
        elif isinstance(effect, machine.SignalOne):
            self._workers.signal(effect.signum, effect.local_rank)
        elif isinstance(effect, machine.Refuse):
            self._workers.refuse(effect.local_rank, effect.why)
        elif isinstance(effect, machine.TakeStacks):
            self._take_stacks(effect)
        elif isinstance(effect, machine.Park):
            self._workers.park(effect)
            self._look_again(FIRST_LOOK_AGAIN_MS)
        elif isinstance(effect, machine.Kill):
            self._workers.kill(effect.local_rank)
        elif isinstance(effect, machine.KillTree):
            self._kill_again_ms = FIRST_KILL_AGAIN_MS
            self._kill()
        elif isinstance(effect, machine.FindPorts):
            self._ports.begin(effect.attempt, effect.base, effect.count)
        elif isinstance(effect, machine.RunCheck):
            failed = self._checks.start(effect.check)
            self._pending.extend(() if failed is None else (failed,))
        elif isinstance(effect, machine.LookForRestore):
            self._look(effect, now_ms() + RESTORE_LOOK_MS)
        elif isinstance(effect, machine.Send):
            self._news = True
        elif isinstance(effect, machine.Save):
            self._unsaved = True
        else:
            self._end_by = now_ms() + LAST_REPORT_MS

    # The worker.

    def _kill(self) -> None:
        """SIGKILL what is left, and again, as a process may fork between the look and the signal."""
        stop = self._state.stop
        if stop is None or stop.killed_at is None:
            return
        processes.kill_tree(self._helpers.pids, self._parked)
        self._loop.at(now_ms() + self._kill_again_ms, self._kill)
        self._kill_again_ms = min(2 * self._kill_again_ms, LAST_KILL_AGAIN_MS)

    def _take_stacks(self, effect: machine.TakeStacks) -> None:
        without = self._helpers.pids | self._parked | self._workers.stand_ins
        work = partial(_stacks, os.getpid(), without, effect.by_ms - STACKS_MARGIN_MS, effect.first)
        self._helpers.start(work, effect.by_ms, lambda text, _: self._feed(machine.StacksTaken(effect.attempt, text)))

    def _reap(self) -> None:
        for pid, status in processes.reap():
            self._helpers.pids.discard(pid)
            checked = self._checks.note_end(pid, status)
            if checked is not None:
                log("info", "a check ended", turn=checked.turn, exit_code=checked.exit_code, signal=checked.signal)
                self._step(checked)
                continue
            exited = self._workers.note_end(pid, status, by_itself=self._state.stop is None)
            if exited is not None:
                log("info", "a process of the worker ended", pid=pid, exit_code=exited.exit_code, signal=exited.signal)
                self._step(exited)
        if self._state.alive and processes.only_children(self._helpers.pids, self._parked):
            self._workers.progress.worker_gone()
            self._step(machine.TreeGone())

    @property
    def _parked(self) -> set[int]:
        return self._workers.pids_of({local_rank for local_rank, _ in self._state.parked})

    def _look_again(self, after_ms: int) -> None:
        """Look whether the children of parked processes are gone: no signal says so."""
        if self._state.stop is None:
            return
        self._feed()
        self._loop.at(now_ms() + after_ms, partial(self._look_again, min(2 * after_ms, LAST_LOOK_AGAIN_MS)))

    def _on_signal(self, signum: int) -> None:
        if signum in wire.STOP_SIGNALS.values():
            log("info", "the pod is to end", signal=signum)
            self._feed(machine.Terminate())
        elif signum in _FORWARDED:
            processes.send(set(self._workers.pids) - self._parked, signum)

    def _look(self, effect: machine.LookForRestore, give_up: int, before: str = lookups.UNKNOWN) -> None:
        """Look for the restore point, and a few times again before it counts as missing. ``before``: the last."""
        if not self._state.looking:
            return

        def take(answer: str, is_late: bool) -> None:  # noqa: FBT001 - the signature of start
            if answer == lookups.THERE and not is_late:
                self._feed(machine.RestoreSeen(effect.attempt))
            elif is_late or not answer or now_ms() >= give_up:
                newest = before if is_late or not answer else answer
                self._feed(machine.RestoreMissing(effect.attempt, in_folder=newest == lookups.MISSING))
            else:
                self._loop.at(now_ms() + LOOK_AGAIN_MS, partial(self._look, effect, give_up, answer))

        self._helpers.start(lambda: [lookups.look(effect.restore.path)], give_up, take)

    # The sidecar.

    def _connect(self) -> None:
        self._news = self._channel.connect(now_ms()) or self._news
        self._watch()

    def _watch(self) -> None:
        """Watch the connection for what is due next, or connect again when that is due."""
        current = self._channel.socket
        if self._connection is not None and current is not self._connection:
            self._loop.forget(self._connection)
        if current is not None:
            self._loop.watch(current, READ | WRITE if self._channel.waiting else READ, self._ready)
        elif self._channel.retry_at != self._connect_at:
            self._connect_at = self._channel.retry_at
            self._loop.at(self._connect_at, self._connect)
        self._connection = current

    def _ready(self, mask: int) -> None:
        if mask & WRITE:
            self._channel.flush(now_ms())
        if mask & READ:
            for line in self._channel.lines(now_ms()):
                if not self._receive(line):
                    break
        self._watch()

    def _receive(self, line: bytes) -> bool:
        """Take one message; False = it closed the connection."""
        try:
            message = wire.decode(line)
        except wire.WireError as error:
            self._channel.close(now_ms(), f"malformed: {error}")
            return False
        if type(message) not in _RECEIVED:
            self._channel.close(now_ms(), f"a {type(message).__name__} is not for a supervisor")
            return False
        self._channel.understood()
        if isinstance(message, wire.Scan):
            self._scans.take(message)
        elif isinstance(message, wire.Imports):
            self._workers.know(message)
        else:
            if isinstance(message, wire.Progress):
                self._workers.progressed(message)
            self._feed(message)
        return True

    def _keep_alive(self) -> None:
        self._news = True
        self._loop.at(now_ms() + KEEP_ALIVE_MS, self._keep_alive)

    def _send_news(self) -> None:
        """Once a turn: send the report, if it has changed and the last one was taken; then write the state file."""
        now = now_ms()
        if (
            self._news
            and self._connection is not None
            and not (self._channel.waiting or self._workers.progress.is_searching)
        ):
            self._seq += 1
            self._news = False
            self._send(wire.encode(machine.report(self._state, now, self._seq)))
        offer = self._connection, self._workers.offer
        if all(offer) and offer != self._offered and not self._channel.waiting:
            self._offered = offer
            self._send(offer[1])
        if self._unsaved:
            self._unsaved = False
            report = machine.report(self._state, now, self._seq)
            report = replace(report, checkpoints=machine.lasting_checkpoints(self._state))
            self._keeper.keep(report, now, self._state.ran_in_pod, last=self._end_by is not None)

    def _send(self, text: str) -> None:
        self._channel.send(text, now_ms())
        self._watch()

    def _next_look(self) -> int | None:
        """When the end is due, whatever happens."""
        end = self._end_by
        return end + LAST_OUTPUT_MS if end is not None and now_ms() >= end else end

    def _is_over(self) -> bool:
        """After Quit: the last report was taken and the last output written, or the time for it is over."""
        if self._end_by is None:
            return False
        taken = self._connection is not None and not self._news and not self._channel.waiting
        if taken and not self._workers.progress.is_copying:
            return True
        return now_ms() >= self._end_by + (LAST_OUTPUT_MS if self._workers.progress.is_copying else 0)


def _stacks(of: int, without: set[int], until_ms: int, first: int | None) -> Iterator[str]:
    from gangsidecar.supervisor import stacks  # noqa: PLC0415 - memory: only a helper needs it, and few do

    return stacks.take(of, without, until_ms, first)
