"""Decide when a template is made and what it preloads, and fork from it what starts in a worker.

The worker's command is forked itself if it is Python. Below any other command (a shell, a launcher), each Python that
starts may hand its program over to a fork (:mod:`gangsidecar.supervisor.handover`).

All of it is about time and memory. The rule: nothing here is ever needed. When there is no template, when it is busy,
says no or does not answer in time, the worker is executed, and ``obstacle`` says why. A template must never be taken
for a worker: its pid is among those that are left alone when a worker's tree is killed.

A template is made where it takes time from no start and from no training step. With named modules that is when the
supervisor begins, since the pod waits for its peers then. What the worker imports (``Auto``) is known after its first
step; the template then imports beside the training, slowly while tasks wait for a processor. It goes when the
container's memory is short, and when it has hindered a fork in a way that would come again, no other is made. But what
was learnt before the module that is to blame can be preloaded still: the modules are in the order in which their
imports were done. A fork that makes no first step in time counts against all forks (:mod:`.fork_trust`).

What an earlier session of the pod has learnt, or a peer (``import_lists.py``), is imported before the first start. If
that comes meanwhile, the worker is executed, but its interpreters wait for the template before they read their program:
it imports what they would, and has begun earlier.

What is learnt is the imports of the interpreters that still run when the template is made: those of ``pip install``
aren't among them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, takewhile
from typing import Any, NamedTuple

from gangsidecar import wire
from gangsidecar.common import log, now_ms
from gangsidecar.start import OWN
from gangsidecar.start.entry import ENTER
from gangsidecar.start.link import ONLY_TEMPLATE, READ_EARLY, WARM_STARTS, depends_on_folder, receive, send, send_with
from gangsidecar.supervisor import connections, kernel, processes
from gangsidecar.supervisor.event_loop import READ, EventLoop
from gangsidecar.supervisor.fork_trust import ForkTrust
from gangsidecar.supervisor.handover import EXECUTE, Handovers, Starting
from gangsidecar.supervisor.import_lists import ImportLists, Known, is_entry, merged, same
from gangsidecar.supervisor.launch import ARCHIVE
from gangsidecar.supervisor.persistence import remove
from gangsidecar.wire.python_command import PythonCommand, ignores_hooks, parse_python

AUTO = "Auto"
"""Preload what the worker has imported by its first step."""
WITHOUT_STEPS_MS = 60_000
"""A worker that reports no step is taken to have imported what it needs after this long."""
READY_MS = 900_000
"""A template that still imports after this long is given up."""
WAIT_MS = 60_000
"""So long after a start, interpreters wait for a template that imports what they would."""
LOOK_MS = 5_000
"""The time between two looks at the memory that is left."""
ROOM_BYTES = 512 << 20
"""A template of a large framework takes less than this; a container that has not so much left gets none."""
SHORT_BYTES = 128 << 20
"""A container that has less than this left gets the template's memory back."""
TEMPLATES = 20
"""After so many templates of one supervisor there is no further one: something that repeats itself ends them."""
MOST_RECORDED = 64
"""So many interpreters record their imports at a time."""
RECORD_BYTES = 8 << 20
"""So much of a record is read: an interpreter of ours writes less (``start/recorder.py``), the worker anything."""
FIRST_START = "the first start imports everything itself; the template is made after its first step"
NO_PYTHON = "nothing has run a script or a module with Python yet (python SCRIPT, python -m MODULE)"
NO_HOOK = "with -I, -E or -S Python doesn't ask for a fork, and what it imports isn't known: name modules in preload"
NO_PATH = (
    "below the command, a Python has an environment without gangctl's: keep what PYTHONPATH had "
    "(export PYTHONPATH=FOLDER:$PYTHONPATH), and don't clear the environment (env -i, sudo)"
)
NOT_ASKED = "a Python below the command didn't ask for a fork: it is another user's, or had more than 250 open files"
OTHER_PYTHON = "the interpreter or its flags differ from those of the template"
TOO_SLOW = "the template was not ready in time"
NOT_YET = "before the command has begun, not all can be imported that it has imported elsewhere"
IMPORTING = "the template is still importing"
LONGEST = 500
"""Characters of what a template says: what a module or a thread is called may have any length."""
ANSWER_SECONDS = 2.0
"""A child that has not answered by then is given up, and so is the template. The first fork of a large template takes
half a second on a busy machine, and the imports that an exec costs instead take several."""
_UNBUFFERED = re.compile("-[^WX-]*u")


Forked = tuple[int, socket.socket]
"""A process's pid, and our end of its channel."""


class WarmSettings(NamedTuple):
    """The pod's settings for warm starts."""

    preload: str
    """``Auto``, or names of modules separated by commas."""
    command: Sequence[str]
    """The worker's command, before ``$(VAR)`` is expanded."""
    environment: dict[str, str]
    """The worker's environment without that of an attempt."""
    imports: str
    """The file to which forks append their imports; executed interpreters have one each, with a pid added."""
    socket: str
    """The path at which interpreters ask."""
    lists: ImportLists


class _Executed(NamedTuple):
    """An interpreter that was executed. With ``Auto``, it records its imports."""

    python: PythonCommand
    folder: str
    environment: dict[str, str]
    interpreter: str


class WarmStart:
    """Starts the processes of a worker: as forks of a template if there is one that can be forked."""

    def __init__(
        self, loop: EventLoop, settings: WarmSettings, helpers: set[int], news: Callable[[wire.WarmStart], None]
    ) -> None:
        """``helpers``: the pids that belong to no worker; the template's is kept there. ``news``: of the report."""
        self._news = news
        self._loop = loop
        self._settings = settings
        self._helpers = helpers
        self._template: Template | None = None
        self._made = 0  # How many templates were made.
        self._trained = 0  # The newest attempt that has made a step.
        self._wished: set[str] = set()  # The modules that the template was asked to import.
        self._list: wire.Imports | None = None  # What was known before the first start.
        self._known: Known | None = None  # The same, or what was learnt since.
        self._wait_until = 0  # Interpreters wait for the template until then.
        self._blamed: set[str] = set()  # Modules that a template can't import, of those that the worker imports.
        self._no_template = FIRST_START
        self._of_attempts: set[str] = set()  # Variables that differ between attempts or processes.
        self._own: set[str] = set()  # Modules of the programs' own, each after OWN.
        self._of_ranks: set[str] = set()  # The same below a launcher.
        self._counted: set[int] = set()  # Processes of the newest attempt that count as executed.
        self._executed: dict[int, _Executed] = {}  # By pid, in the order of their starts.
        self._forks: list[int] = []  # Of the newest attempt.
        self._others = 0  # Processes that aren't Python; they don't count once a Python has started below one.
        self._trust = ForkTrust()
        self.report = wire.WarmStart(0, 0, 0)  # How the newest attempt was started.
        self.handovers = Handovers(loop, settings.socket, self._answer)

    def begin(self) -> None:
        """The supervisor has begun: nothing trains here yet."""
        kept = self._settings.lists.load() if self._settings.preload == AUTO else None
        if kept is not None:
            self.know(kept)
        self._preload(beside=False)
        self._look()

    def know(self, imports: wire.Imports) -> None:
        """Make a template of what the worker imported before, here or in a peer, unless there was a start already.

        What was learnt here counts, before what any peer has learnt.
        """
        given, before = self._settings, self._list
        if given.preload != AUTO or self.report.attempt or self._made >= TEMPLATES:
            return
        if before is not None and (before.pod == given.lists.pod or same(before, imports)):
            return
        commands = parse_python(imports.command), parse_python(given.command)
        known = given.lists.read(imports, *commands, given.environment)
        if known is None:
            return
        if self._template is not None:
            self._template.end("a newer list of what the worker imports has come")
            self._template = None
            self._wished.clear()
        self._list, self._known = imports, known
        self._preload(beside=imports.beside)

    def new_attempt(self, attempt: int) -> None:
        """The processes that are started next are of a new attempt."""
        template = self._template
        self._counted.clear()
        self._forks.clear()
        self._others = 0
        self._forget_ended()
        self._trust.begin(now_ms())
        self.report = wire.WarmStart(attempt, 0, 0, NO_PYTHON)
        if template is not None:
            not_imported = "" if self._settings.preload == AUTO else template.not_imported
            self.report = replace(self.report, template_bytes=template.bytes, not_imported=not_imported)
        self._loop.at(now_ms() + WITHOUT_STEPS_MS, partial(self._trains, attempt))
        if self._trust.limit is not None:
            self._loop.at(now_ms() + self._trust.limit, partial(self._expect_step, attempt))
        self._wait_until = now_ms() + WAIT_MS
        self._loop.at(self._wait_until, self.handovers.answer_again)
        if template is not None and template.obstacle == IMPORTING and not template.beside and self._list is None:
            template.end(TOO_SLOW)  # It would take the time from the start. Another is made after the first step.

    def spawn(
        self, command: Sequence[str], environment: dict[str, str], output: tuple[int, int] = (1, 2)
    ) -> tuple[int, socket.socket]:
        """Start one process with this output and error; return its pid and our end of its channel.

        OSError, ValueError: it could not be executed.
        """
        plain, python, template = self._settings.environment, parse_python(command), self._template
        self._of_attempts.update(name for name, value in environment.items() if plain.get(name) != value)
        if python is None:
            self._others += 1
            self._count(executed=1, obstacle=NO_PYTHON)
            return connections.spawn_parkable(command, environment, output)
        if template is None and ignores_hooks(python):
            forked: Forked | str = NO_HOOK
        else:
            # Its forks begin in its folder, which must be ours.
            is_alike = (
                template is not None
                and python.interpreter == template.words
                and template.folder in {"", processes.folder(os.getpid())}
            )
            forked = self._forked(python, environment, output, is_alike=is_alike)
        if isinstance(forked, str):
            started = connections.spawn_parkable(command, environment, output)
            self._count_executed(started[0], forked)
            return started
        self._count_forked(forked[0])
        return forked

    def _forked(
        self,
        python: PythonCommand,
        environment: dict[str, str],
        output: tuple[int, int] = (1, 2),
        starting: Starting | None = None,
        *,
        is_alike: bool,
    ) -> Forked | str:
        """Fork a process, or return why not. ``is_alike``: the template runs the same interpreter."""
        template = self._template
        if self._trust.objection:
            return self._trust.objection
        if template is None:
            return self._no_template
        if not is_alike:
            return template.obstacle or OTHER_PYTHON
        return template.fork(python.target, environment, output, starting)

    def _answer(self, starting: Starting) -> bytes | int | None:
        answer = self._decided(starting)
        # Not at once: what is fed reaps children, and a fork that has ended already isn't known yet.
        self._loop.at(now_ms(), lambda: self._news(self.report))
        return answer

    def _decided(self, starting: Starting) -> bytes | int | None:
        """Fork the program of an interpreter that asks, or have it run its program itself; None: it waits."""
        python, template = parse_python(starting.words), self._template
        if python is None:
            return EXECUTE
        if self._is_worth_waiting(starting):
            return None
        if self._others:
            self._count(executed=-self._others)
            self._others = 0
        is_alike = template is not None and template.interpreter == starting.interpreter
        forked = self._forked(python, starting.environment, starting=starting, is_alike=is_alike)
        if not isinstance(forked, str):
            forked[1].close()
            self._count_forked(forked[0], executed=-1 if starting.pid in self._counted else 0)
            return forked[0]
        self._count_executed(starting.pid, forked)
        if len(self._executed) >= MOST_RECORDED:
            self._forget_ended()
        if self._made >= TEMPLATES or len(self._executed) >= MOST_RECORDED:
            return EXECUTE
        self._executed[starting.pid] = _Executed(python, starting.folder, starting.environment, starting.interpreter)
        if self._settings.preload != AUTO or not os.path.exists(ARCHIVE):
            return EXECUTE
        return b"\0".join([b"record", *map(os.fsencode, (ARCHIVE, self._imports(starting.pid)))])

    def stepped(self, attempt: int) -> None:
        """The worker has made a step: it has imported what it needs."""
        self._judge_forks(attempt)
        template = self._template
        if template is not None and self._settings.preload == AUTO and template.blamed not in {"", *self._blamed}:
            self._blamed.add(template.blamed)
            self._trained = 0
        self._trains(attempt)

    def _judge_forks(self, attempt: int) -> None:
        report = self.report
        if attempt != report.attempt:
            return
        self._trust.stepped(now_ms(), is_executed=report.executed > 0 and not report.forked and not report.went_on)
        if self._trust.is_lost and self._template is not None:
            self._template.end(self._trust.objection, for_good=True)
        if report.late_after_seconds:
            self._tell_late(0)

    def _expect_step(self, attempt: int) -> None:
        alive = any(processes.is_below(pid, os.getpid()) for pid in self._forks)
        if attempt == self.report.attempt and alive and self._trust.is_late(now_ms()):
            log("warning", "forks made no first step in time; the next attempt is executed", attempt=attempt)
            self._tell_late((self._trust.limit or 0) // 1000)

    def _tell_late(self, seconds: int) -> None:
        self.report = replace(self.report, late_after_seconds=seconds)
        self._news(self.report)

    def import_ms(self, pid: int) -> int | None:
        """Return how long an interpreter that was executed has spent on imports; None if that isn't known."""
        recorded = _lines(self._imports(pid)) if pid in self._executed else []
        return next((int(line) for line in reversed(recorded) if line.isdigit()), None)

    def ended(self, pid: int, status: int) -> bool:
        """A child that isn't a worker's process has ended; return whether it is the template, not ended by us."""
        template = self._template
        if self.handovers.ended(pid, status) or template is None or template.pid != pid:
            return False
        template.reaped()
        return template.ended_itself

    def end(self) -> None:
        """The supervisor ends."""
        self.handovers.close()
        if self._template is not None:
            self._template.end("the supervisor ends")

    def _count(self, forked: int = 0, executed: int = 0, obstacle: str = "") -> None:
        report = self.report
        before = "" if report.obstacle == NO_PYTHON else report.obstacle
        self.report = replace(
            report,
            forked=report.forked + forked,
            executed=report.executed + executed,
            obstacle=(obstacle or before) if report.executed + executed else "",
            template_bytes=self._template.bytes if forked and self._template is not None else report.template_bytes,
        )

    def _is_worth_waiting(self, starting: Starting) -> bool:
        """Return whether the template imports what this interpreter would, and at full speed."""
        template, known = self._template, self._list
        return (
            template is not None
            and known is not None
            and template.obstacle == IMPORTING
            and not (template.beside or self._trust.objection)
            and repr(known.command[0]) in starting.interpreter
            and now_ms() < self._wait_until
        )

    def _count_forked(self, pid: int, executed: int = 0) -> None:
        self._forks.append(pid)
        self._count(forked=1, executed=executed)

    def _count_executed(self, pid: int, obstacle: str) -> None:
        if pid not in self._counted:
            self._counted.add(pid)
            self._count(executed=1, obstacle=obstacle)

    def _imports(self, pid: int) -> str:
        return f"{self._settings.imports}-{pid}"

    def _forget_ended(self) -> None:
        for pid in set(self._executed) - set(self._living()):
            del self._executed[pid]
            remove(self._imports(pid))

    def _living(self) -> list[int]:
        """Return the interpreters that were executed and have not ended, the newest last."""
        return [pid for pid in self._executed if processes.is_below(pid, os.getpid())]

    def _alike(self) -> list[int]:
        """Return those of the newest one's kind."""
        living = self._living()
        return [pid for pid in living if self._executed[pid].interpreter == self._executed[living[-1]].interpreter]

    def _trains(self, attempt: int) -> None:
        if attempt == self.report.attempt != self._trained:
            self._trained = attempt
            if not (self.report.forked or self._living()) and (why := self._why_none_asked()):
                self.report = replace(self.report, obstacle=why)
                self._news(self.report)
            self._preload(beside=True)
            self._has_learnt()

    def _why_none_asked(self) -> str:
        """Say why the first Python that hasn't asked, and runs a program, hasn't; empty if there is none."""
        hook = self._settings.environment.get("PYTHONPATH", "").partition(os.pathsep)[0]
        for pid in processes.descendants(os.getpid(), self._helpers):
            python = parse_python(processes.words(pid))
            if python is None or pid in self.handovers.asked:
                continue
            if ignores_hooks(python):
                return NO_HOOK
            variables = dict(one.partition(b"=")[::2] for one in processes.environment(pid))
            if os.fsencode(hook) in variables.get(b"PYTHONPATH", b"").split(b":") and WARM_STARTS.encode() in variables:
                return NOT_ASKED
            return NO_PATH
        return ""

    @property
    def _is_borrowing(self) -> bool:
        """Return whether a template is made of what was known before the first start."""
        return self._known is not None and not self._trained

    def _template_changed(self) -> None:
        template = self._template
        if self._is_borrowing and template is not None and template.is_over:
            self._known, template.is_useless = None, False  # What is learnt here may be imported all the same.
        self.handovers.answer_again()
        self._has_learnt()

    def _has_learnt(self) -> None:
        """Keep what is imported, and offer it to others, if the worker trains and a template has imported it."""
        template, given = self._template, self._settings
        is_proven = self._trained == self.report.attempt > 0
        if template is None or template.obstacle or given.preload != AUTO or not is_proven:
            return
        self._known = Known(template.python, template.environment, template.imported, template.folder)
        given.lists.keep(self._known, template.executable, given.environment)

    def _look(self) -> None:
        """Give the template's memory back before the container's limit is reached."""
        template, left = self._template, kernel.memory_left()
        if template is not None and left is not None and left < SHORT_BYTES:
            template.end(f"the container's memory limit left only {left >> 20} MiB, so the template has gone")
        self._loop.at(now_ms() + LOOK_MS, self._look)

    def _preload(self, *, beside: bool) -> None:
        """Have a template import what it lacks, making one if there is none."""
        template = self._template
        if template is not None and template.is_over:
            is_useless = template.is_useless and template.blamed not in self._blamed
            if is_useless or self._made >= TEMPLATES:
                return
            self._template = template = None
            self._wished.clear()
        names = [name for name in self._modules() if name not in self._wished]
        if not names or (template is not None and template.obstacle == IMPORTING):
            return
        if template is None:
            template = self._template = self._make()
        if template is not None:
            self._wished.update(names)
            template.needs_all = self._is_borrowing
            template.preload(names, beside=beside)
            self._loop.at(now_ms() + READY_MS, partial(_expect_ready, template))

    def _make(self) -> Template | None:
        """Start a template for the kind of interpreter that was executed last, or say why there is none."""
        given, alike = self._settings, self._alike()
        last = self._executed[alike[-1]] if alike else self._known
        python = last.python if last is not None else parse_python(given.command)
        left = kernel.memory_left()
        if python is None:
            return None
        if left is not None and left < ROOM_BYTES:
            self._no_template = (
                f"the container's memory limit leaves {left >> 20} MiB, and a template may take {ROOM_BYTES >> 20} MiB"
            )
            return None
        environment = given.environment if last is None else self._common_environment(last)
        environment = {name: value for name, value in environment.items() if name not in self._of_attempts}
        environment.update((name, given.environment[name]) for name in self._of_attempts & given.environment.keys())
        environment.pop(WARM_STARTS, None)
        try:
            imports = given.imports if given.preload == AUTO else ""
            folder = "" if last is None else last.folder
            if not (os.path.isdir(folder) or depends_on_folder(environment)):
                folder = ""
            template = Template(self._loop, python, folder, imports, environment, self._template_changed)
        except (OSError, ValueError) as error:
            self._no_template = f"the template can't be started: {error}"
            return None
        self._made += 1
        self._helpers.add(template.pid)
        return template

    def _common_environment(self, last: _Executed | Known) -> dict[str, str]:
        """Return what all interpreters of its kind have alike: a launcher gives its ranks variables of their own.

        A module that looks at all variables must see none of a rank, also once only ranks are executed. What is read
        before any module is the last one's.
        """
        for pid in self._alike():
            self._of_ranks.update(dict(self._executed[pid].environment.items() ^ last.environment.items()))
        return {
            name: value
            for name, value in last.environment.items()
            if name not in self._of_ranks or READ_EARLY.fullmatch(name)
        }

    def _modules(self) -> list[str]:
        if self._settings.preload != AUTO:
            return [name for name in self._settings.preload.split(",") if name]
        alike = self._alike()
        lists = [self._known.modules] if self._known and not alike else []
        paths = [] if self._is_borrowing else [*map(self._imports, alike), self._settings.imports]
        recorded = merged([*lists, *([*filter(is_entry, _lines(path))] for path in paths)])
        # Programs that have ended will start again, too.
        ended = chain.from_iterable(_lines(self._imports(pid)) for pid in self._executed.keys() - alike)
        self._own.update(name for name in (*recorded, *filter(is_entry, ended)) if name[0] == OWN)
        modules = (name for name in recorded if name[0] != OWN)
        return [*sorted(self._own), *takewhile(lambda name: name not in self._blamed, modules)]


def _lines(path: str) -> list[str]:
    """Return what interpreters have recorded in a file."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(RECORD_BYTES).splitlines()
    except OSError:
        return []


def _expect_ready(template: Template) -> None:
    if template.obstacle == IMPORTING and now_ms() >= template.asked_at + READY_MS:
        template.end(TOO_SLOW, for_good=True)


class Template:
    """One process that has imported what the worker imports."""

    def __init__(
        self,
        loop: EventLoop,
        python: PythonCommand,
        folder: str,
        imports: str,
        environment: dict[str, str],
        changed: Callable[[], None],
    ) -> None:
        """Start it in this folder (empty: in ours), or raise OSError.

        ``imports``: the file to which its forks append theirs; empty: nowhere.
        ``changed`` is called soon after it is ready, and after its end.
        """
        self._loop = loop
        self._changed = changed
        self.python = python
        self.folder = folder
        self.environment = environment
        self.words = python.interpreter
        self.executable = ""
        self.interpreter = ""  # What others of its kind say of themselves; empty until it is ready.
        self._connection, its_end = socket.socketpair()
        self._connection.settimeout(ANSWER_SECONDS)  # The supervisor must never wait for it.
        with its_end:
            its_end.set_inheritable(True)
            try:
                program = [*python.interpreter, "-c", ENTER, ARCHIVE, imports, str(its_end.fileno()), *python.target]
                self.pid = processes.spawn_in(folder or ".", program, {**environment, **ONLY_TEMPLATE})
            except OSError:
                self._connection.close()
                raise
        self.beside = False  # It imports beside a worker that trains.
        self.asked_at = 0  # When it was last asked to import.
        self.is_over = False
        self.ended_itself = False  # It ended, and this supervisor has not killed it.
        self._is_reaped = False
        self.is_useless = False  # Another template would come to the same end.
        self.obstacle = IMPORTING  # Why it can't fork now; empty if it can.
        self.blamed = ""  # The module whose import was the obstacle.
        self.imported: list[str] = []  # Of the modules that it was asked for, in order.
        self.not_imported = ""  # Modules that could not be imported, with their errors.
        self.needs_all = False  # It can't be forked if there are such.
        self.bytes = 0  # Memory that it alone uses.
        loop.watch(self._connection, READ, self._read)

    def preload(self, modules: Sequence[str], *, beside: bool) -> None:
        """Have it import these. ``beside``: a worker trains meanwhile."""
        self.beside, self.obstacle, self.asked_at = beside, IMPORTING, now_ms()
        try:
            send(self._connection, preload=list(modules), beside=beside)
        except OSError as error:
            self.end(f"the template is gone: {error}")

    def fork(
        self,
        command: Sequence[str],
        environment: dict[str, str],
        output: tuple[int, int] = (1, 2),
        starting: Starting | None = None,
    ) -> Forked | str:
        """Fork a process, or return why not: then execute it.

        When this returns, the child is a child of this process and may run. ``starting``: the interpreter in whose
        place it runs.
        """
        if self.obstacle:
            return self.obstacle
        link, its_end = socket.socketpair()
        link.settimeout(ANSWER_SECONDS)
        try:
            with its_end:
                files, more = [] if output == (1, 2) else list(output), {}
                if starting is not None:
                    files, more = starting.files, {"for": _other(starting)}
                send_with(self._connection, [its_end.fileno(), *files], fork=environment, command=list(command), **more)
            answer = _parsed(receive(link)[0])
            self.blamed = str(answer.get("by", ""))
            if answer.get("only") is True:
                link.close()
                return str(answer.get("obstacle"))[:LONGEST]
            pid = int(answer.get("pid", 0))
            wrong = str(answer.get("obstacle", "the template did not fork"))
            if not wrong and processes.parent(pid) != os.getpid():
                wrong = "this supervisor can't adopt what the template forks"
            if not wrong:
                link.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
                send(link, go=True)
                return pid, link
        except (OSError, ValueError, TypeError) as error:
            wrong = f"the template did not answer within {ANSWER_SECONDS} s: {error or type(error).__name__}"
        link.close()
        # A child whose link is closed without a command ends by itself.
        self.end(wrong, for_good=bool(self.blamed))
        return self.obstacle

    def end(self, why: str, *, for_good: bool = False) -> None:
        """Kill it. The caller reaps it. ``for_good``: another would come to the same end."""
        if self.is_over:
            return
        self.is_over, self.is_useless, self.obstacle, self.bytes = True, for_good, why[:LONGEST], 0
        log("info", "the template ends", pid=self.pid, reason=why)
        self._loop.forget(self._connection)
        self._connection.close()
        self._loop.at(now_ms(), self._changed)
        if not self._is_reaped:  # Else the pid may belong to another process by now.
            processes.send([self.pid], signal.SIGKILL)

    def reaped(self) -> None:
        """It has ended, and its pid is free."""
        self._is_reaped = True
        self._gone()

    def _gone(self) -> None:
        importing = self.obstacle == IMPORTING
        self.ended_itself = self.ended_itself or not self.is_over
        self.end("the template was killed, or a preloaded module has ended it", for_good=importing)

    def _read(self, _mask: int) -> None:
        try:
            text, _ = receive(self._connection)
            answer = _parsed(text)
            obstacle = str(answer["obstacle"]) if text else ""
            self.not_imported = ", ".join(map(str, answer.get("failed", ())))[:LONGEST]
            if self.needs_all and self.not_imported and not obstacle:
                obstacle = f"{NOT_YET}: {self.not_imported}"
        except (OSError, ValueError, KeyError) as error:
            self.end(f"the template can't be understood: {error!r}", for_good=True)
            return
        if not text:
            self._gone()
        elif obstacle:
            self.blamed = str(answer.get("by", ""))
            self.end(obstacle, for_good=True)
        else:
            self.obstacle, self.bytes = "", kernel.memory_of(self.pid)
            self.interpreter = str(answer.get("interpreter", ""))
            self.executable = str(answer.get("executable", ""))
            self._loop.at(now_ms(), self._changed)
            self.imported += map(str, answer.get("imported", ()))
            size = self.bytes >> 20
            log("info", "the template is ready", pid=self.pid, mebibytes=size, not_imported=self.not_imported)


def _other(starting: Starting) -> dict[str, Any]:
    """Return what a fork must know of the interpreter in whose place it runs."""
    python = parse_python(starting.words)
    flags = python.interpreter[1:] if python is not None else []
    return {
        "pid": starting.pid,
        "words": starting.words,
        "numbers": starting.numbers,
        "blocked": starting.blocked,
        "unbuffered": any(map(_UNBUFFERED.match, flags)) or bool(starting.environment.get("PYTHONUNBUFFERED")),
    }


def _parsed(text: str) -> dict[str, Any]:
    """Read what the template says; nothing if it is gone. ValueError: it can't be understood."""
    answer = json.loads(text or "{}")
    if not isinstance(answer, dict):
        raise ValueError(f"a {type(answer).__name__}")  # noqa: TRY004 - as for all that is malformed
    return answer
