"""Start the processes of a worker or let them go on, and know which child is which.

The file ``workers.json``, beside the state file, says the same to those who look from outside (``gangctl inject``): a
process that was forked shows the environment and the command of its template.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gangsidecar import wire
from gangsidecar.common import log, now_ms
from gangsidecar.start.link import WARM_STARTS
from gangsidecar.supervisor import connections, launch, machine, persistence, processes
from gangsidecar.supervisor.event_loop import EventLoop
from gangsidecar.supervisor.machine.stop import why_anew
from gangsidecar.supervisor.progress_watch import Notice, ProgressWatch
from gangsidecar.supervisor.settings import SupervisorSettings

if TYPE_CHECKING:
    from gangsidecar.supervisor.import_lists import ImportLists
    from gangsidecar.supervisor.warm_start import WarmStart

HOSTFILE = "hostfile"
"""Beside the socket: address and slots of the attempt's members, as mpirun takes them."""
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
"""Set where steps are read from the output: else Python keeps it back until it is some kilobytes."""
TERMINATION_LOG_VARIABLE = "GANG_TERMINATION_LOG"
"""The file in which a worker may write why it fails, as in /dev/termination-log in any container."""
IMPORTS = "imports"
"""Beside the state file: what the worker has imported, a module a line."""
KNOWN_IMPORTS = "known-imports"
"""Beside the state file: the same for the next session, of a template that has imported it."""
GONE = "its process had ended, or had not parked in time"
REFUSAL = (
    "its command has a variable of the attempt, such as $(RANK), and a process that goes on keeps its command line; "
    "read the variable from the environment in train"
)


class Workers:
    """Starts the worker's processes, as forks of a template where the pod asks for that."""

    def __init__(
        self, loop: EventLoop, settings: SupervisorSettings, helpers: set[int], feed: Callable[[machine.Input], None]
    ) -> None:
        """``helpers``: the pids that belong to no worker. ``feed`` takes what processes say about parking."""
        self._loop = loop
        self._feed = feed
        self._parking: dict[int, connections.ParkingChannel] = {}
        self._takes_part = False  # A process of the worker has said that it can park.
        self._refused = ""  # Why a process of the newest attempt was refused.
        self._settings = settings
        self._folder = os.path.dirname(settings.state)
        given = dict(os.environ)
        self._environment = {
            **given,
            **launch.cache_variables(settings.caches, settings.compilers, given),
            TERMINATION_LOG_VARIABLE: settings.termination_log,
        }
        """The environment of each process of each attempt."""
        self._hook, listens_at = settings.hook if settings.preload else "", self._warm_socket()
        if self._hook:
            self._environment[WARM_STARTS] = listens_at
        self._plain = self._environment_of(self._environment, wire.Process(0, ()))
        """The environment of a process without what differs between attempts and processes."""
        self._plain_command = launch.expand_command(settings.command, self._plain)
        self._mains: dict[int, launch.MainProcess] = {}
        self._message = ""  # The termination message as it was read last.
        self._unmeasured = 0  # The attempt that has made no step yet; else 0.
        self._local_ranks: set[bytes] = set()  # As our own processes have them in their environment.
        self._is_python = False  # Our own processes can be forks.
        self.progress = ProgressWatch(loop, helpers, self._read)
        self._lists: ImportLists | None = None
        self._warm = self._warm_start(helpers, listens_at) if settings.preload else None

    def begin(self) -> None:
        """The supervisor has begun: nothing trains yet."""
        self._publish({})
        if self._warm is not None:
            self._warm.begin()

    @property
    def pids(self) -> Iterable[int]:
        """The processes that were started and have not ended."""
        return self._mains

    def start(self, effect: machine.Spawn) -> list[machine.Input]:
        """Start the processes; returns what the machine is to learn."""
        settings = self._settings
        hostfile = os.path.join(self._folder, HOSTFILE)
        try:
            launch.write_hosts(hostfile, effect.run.hosts)
        except OSError as error:
            log("warning", "the host file can't be written", file=hostfile, reason=error)
        self._forget_what_was_said()
        self._unmeasured = effect.attempt
        given = (variable for process in effect.run.processes for variable in process.env)
        self._local_ranks = {f"{name}={value}".encode() for name, value in given if name == "LOCAL_RANK"}
        if self._warm is not None:
            self._warm.handovers.asked.clear()
            self._warm.new_attempt(effect.attempt)
        self.progress.begin(effect.attempt, effect.run)
        events: list[machine.Input] = []
        ranks: dict[int, int | None] = {}
        base = {**(UNBUFFERED if self.progress.is_searched else {}), **self._environment}
        for process in effect.run.processes:
            env = self._environment_of(base, process)
            try:
                is_parked = process.local_rank in effect.parked
                pid = self._go_on(effect.attempt, process, env) if is_parked else self._start(process, env)
            except (OSError, ValueError) as error:
                failed = launch.not_executed(settings.command[0], process.local_rank, error)
                log("error", "the worker could not be executed", attempt=effect.attempt, reason=failed.message)
                events.append(failed)
                continue
            ranks[pid] = process.rank
        self.progress.all_started()
        self._publish(ranks)
        return [*events, machine.Started(self._warm_report(effect))]

    def _start(self, process: wire.Process, env: dict[str, str]) -> int:
        """Start a process; return its pid. OSError, ValueError: it could not be executed."""
        command = launch.expand_command(self._settings.command, env)
        refusal = "" if command == self._plain_command else REFUSAL
        main = launch.main_process(env, process.local_rank)
        output = self.progress.output()
        pid, ours = (connections.spawn_parkable if self._warm is None else self._warm.spawn)(command, env, output)
        self._mains[pid] = main
        self._parking[pid] = connections.ParkingChannel(self._loop, ours, pid, process, refusal, self._feed)
        return pid

    def _go_on(self, attempt: int, process: wire.Process, env: dict[str, str]) -> int:
        """Let a parked process go on; returns its pid. One that can't is killed: it ends in the new attempt."""
        pid = self._pid_of(process.local_rank)
        self._mains[pid] = launch.main_process(env, process.local_rank)
        if not self._parking[pid].go_on(attempt, process, env):
            log("error", "a process that had parked can't go on and is killed", pid=pid, attempt=attempt)
            processes.send([pid], signal.SIGKILL)
        return pid

    def _warm_report(self, effect: machine.Spawn) -> wire.WarmStart | None:
        """Return how the processes of a Run were started."""
        self._takes_part = self._takes_part or any(one.has_asked for one in self._parking.values())
        on = len(effect.parked)
        anew, self._refused = self._refused or why_anew(effect.run) or GONE, ""
        if self._warm is not None:
            self._warm.report = replace(self._warm.report, went_on=on)
            return self._warm.report
        executed = len(effect.run.processes) - on
        obstacle = anew if executed else ""
        return wire.WarmStart(effect.attempt, 0, executed, obstacle, went_on=on) if self._takes_part else None

    def _pid_of(self, local_rank: int) -> int:
        """Return the process that was started last with this local rank; it must not have ended."""
        return next(pid for pid, main in reversed(list(self._mains.items())) if main.local_rank == local_rank)

    def park(self, park: machine.Park) -> None:
        """Tell these processes to park. One that was stopped (SIGSTOP) can only do so when it runs."""
        for local_rank in park.local_ranks:
            pid = self._pid_of(local_rank)
            self._parking[pid].stop(park)
            processes.send([pid, *processes.descendants(pid, set())], signal.SIGCONT)

    def refuse(self, local_rank: int, why: str) -> None:
        """Tell this process that it is started anew after a stop."""
        self._refused = why
        self._parking[self._pid_of(local_rank)].refuse(why)

    def signal(self, signum: int, local_rank: int) -> None:
        """Signal this process and what is below it."""
        pid = self._pid_of(local_rank)
        below = [pid, *processes.descendants(pid, set())] if self._warm is None else self._warm.handovers.below(pid)
        processes.signal_all(signum, below)

    @property
    def stand_ins(self) -> set[int]:
        """The processes that stand in for a fork, which does what they would."""
        return set() if self._warm is None else self._warm.handovers.stand_ins

    def kill(self, local_rank: int) -> None:
        """SIGKILL one process; its end is reported like any other."""
        processes.send([self._pid_of(local_rank)], signal.SIGKILL)

    def pids_of(self, local_ranks: set[int]) -> set[int]:
        return {pid for pid, main in self._mains.items() if main.local_rank in local_ranks}

    def note_end(self, pid: int, status: int, *, by_itself: bool = True) -> machine.Exited | None:
        """Note that a child was reaped; return how it ended if it is a process of the worker."""
        started = self._mains.pop(pid, None)
        if started is not None:
            parked = self._parking.pop(pid)
            parked.close()
            self._takes_part = self._takes_part or parked.has_asked
            exited = launch.exit_of(started, status)
            if by_itself:
                self.progress.process_ended()
                exited = self._with_its_words(exited)
            return exited
        is_ours = self.progress.reaped(pid, status) or (self._warm is not None and self._warm.ended(pid, status))
        if is_ours and os.WIFSIGNALED(status):
            self._mains = {pid: launch.without_one_oom_kill(main) for pid, main in self._mains.items()}
        return None

    def _with_its_words(self, exited: machine.Exited) -> machine.Exited:
        """Return the end with the process's termination message, if it failed and nothing else says why.

        A shell that could not execute a command has its own meaning.
        """
        before, self._message = self._message, persistence.read_message(self._settings.termination_log)
        is_explained = exited.message or exited.exit_code in {0, launch.NOT_EXECUTABLE, launch.NOT_FOUND}
        return exited if is_explained or self._message == before else replace(exited, message=self._message)

    def _forget_what_was_said(self) -> None:
        path, self._message = self._settings.termination_log, ""
        try:
            persistence.forget_message(path)
        except OSError as error:
            log("warning", "what earlier attempts wrote as termination message stays", file=path, reason=error)
            self._message = persistence.read_message(path)

    def progressed(self, progress: wire.Progress) -> None:
        """The worker has reported progress: what is done here is done after its first step."""
        if progress.first_step is None and progress.phase != "Step":
            return
        if progress.attempt == self._unmeasured:
            self._unmeasured = 0
            for milestone, at, took in self._milestones():
                self._feed(wire.Reached(progress.attempt, milestone, max(0, now_ms() - at), took))
        if self._warm is not None:
            self._warm.stepped(progress.attempt)

    def know(self, imports: wire.Imports) -> None:
        """A peer's worker imports this."""
        if self._warm is not None:
            self._warm.know(imports)

    @property
    def offer(self) -> str:
        """What the worker imports, as a line for the controller; empty if that isn't known, or peers need not know."""
        return "" if self._lists is None else self._lists.offer

    def _milestones(self) -> Iterator[tuple[wire.Milestone, int, int | None]]:
        """When the last rank was started and had imported what it needs, and how long that took, as far as it is known.

        What executes another program, as a shell does, keeps the time of its start: only an interpreter that asks for
        a fork says when it began.
        """
        if self._warm is None:
            below = {one for pid in self._mains for one in processes.descendants(pid, set())}
            ranks = processes.ranks({pid: processes.begun_at(pid) for pid in below}, self._local_ranks)
            took: dict[int, int] = {}
        else:
            asked = self._warm.handovers.asked
            is_fork = self._is_python and not any(pid in asked for pid in self._mains)
            ranks = processes.ranks(asked, self._local_ranks if is_fork else ())
            took = {pid: ms for pid in ranks if (ms := self._warm.import_ms(pid)) is not None}
        if ranks:
            yield wire.Milestone.LAUNCH, max(ranks.values()), None
        if took:
            last = max(took, key=lambda pid: ranks[pid] + took[pid])
            yield wire.Milestone.IMPORTS, ranks[last] + took[last], took[last]

    def _read(self, found: Notice) -> None:
        if isinstance(found, wire.Progress):
            self.progressed(found)
        self._feed(found)

    def end(self) -> None:
        """The supervisor ends."""
        self.progress.worker_gone()
        if self._warm is not None:
            self._warm.end()

    def _publish(self, ranks: dict[int, int | None]) -> None:
        path = os.path.join(self._folder, wire.WORKERS_FILE)
        try:
            with open(path + ".tmp", "w", encoding="ascii") as file:
                json.dump(ranks, file)
            os.replace(path + ".tmp", path)
        except OSError as error:
            log("warning", "the list of the worker's processes can't be written", file=path, reason=error)

    def _environment_of(self, base: dict[str, str], process: wire.Process) -> dict[str, str]:
        return launch.worker_env(base, process, self._settings.identity.pod, self._settings.client, self._hook)

    def _warm_socket(self) -> str:
        """Return the socket at which interpreters ask. Its path has at most 107 bytes."""
        path = os.path.join(self._folder, "warm-starts")
        return path if len(os.fsencode(path)) < 100 else self._settings.socket + "-warm"  # noqa: PLR2004

    def _warm_start(self, helpers: set[int], listens_at: str) -> WarmStart:
        from gangsidecar.supervisor.import_lists import ImportLists  # noqa: PLC0415 - memory: few pods need it
        from gangsidecar.supervisor.warm_start import WarmSettings, WarmStart  # noqa: PLC0415
        from gangsidecar.wire.python_command import parse_python  # noqa: PLC0415

        who = self._settings.identity
        self._lists = ImportLists(os.path.join(self._folder, KNOWN_IMPORTS), who.gang, who.member, who.pod)
        self._is_python = parse_python(self._settings.command) is not None
        settings = WarmSettings(
            preload=self._settings.preload,
            command=self._settings.command,
            environment=self._plain,
            imports=os.path.join(self._folder, IMPORTS),
            socket=listens_at,
            lists=self._lists,
        )
        return WarmStart(self._loop, settings, helpers, lambda report: self._feed(machine.WarmStarted(report)))
