"""When a template is made, and what it preloads. All of it is about time and memory: a start never depends on it.

The rule: a template is made where it takes time from no start and from no training step. With named modules that is
when the supervisor begins, since the pod waits for its peers then. What the worker imports (``Auto``) is known
after its first step; the template then imports slowly, beside the training. It goes when the container's memory is
short, and when it has hindered a fork in a way that would come again, no other is made. But what was learnt before the
module that is to blame can be preloaded still: the modules are in the order in which their imports were done.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from gangsidecar import wire
from gangsidecar.common.clock import now_ms
from gangsidecar.start.entry import ENTER
from gangsidecar.supervisor import kernel, memory, parking
from gangsidecar.supervisor.event_loop import EventLoop
from gangsidecar.supervisor.python_command import parse
from gangsidecar.supervisor.template import IMPORTING, Template

if TYPE_CHECKING:
    import socket

ARCHIVE = (
    os.path.join(os.path.dirname(os.path.abspath(sys.executable)), wire.SUPERVISOR_ARCHIVE)
    if kernel.IS_STATIC
    else os.path.dirname(os.path.dirname(os.path.abspath(wire.__path__[0])))
)
"""Where the user's interpreter finds the template: the archive beside the static executable, or else the file (in a
checkout the folder) from which this program runs."""
AUTO = "Auto"
"""Preload what the worker has imported by its first step."""
PACE = 0.1
"""The share of one core that imports may take beside a worker that trains."""
WITHOUT_STEPS_MS = 60_000
"""A worker that reports no step is taken to have imported what it needs after this long."""
READY_MS = 900_000
"""A template that still imports after this long is given up."""
LOOK_MS = 5_000
"""How often the memory that is left is looked at."""
ROOM_BYTES = 512 << 20
"""A template of a large framework takes less than this; a container that has not so much left gets none."""
SHORT_BYTES = 128 << 20
"""A container that has less than this left gets the template's memory back."""
TEMPLATES = 20
"""After so many templates of one supervisor there is no further one: something that repeats itself ends them."""
FIRST_START = "the first start imports everything itself; the template is made after its first step"
NO_PYTHON = "the command does not run a script or a module with Python (python SCRIPT, python -m MODULE)"
OTHER_PYTHON = "the interpreter or its flags differ from those of the template"
TOO_SLOW = "the template was not ready in time"


class WarmSettings(NamedTuple):
    """What the pod sets for warm starts."""

    preload: str
    """``Auto``, or names of modules separated by commas."""
    command: Sequence[str]
    """The worker's command, before ``$(VAR)`` is expanded."""
    environment: dict[str, str]
    """The worker's environment without that of an attempt."""
    imports: str
    """The file to which the worker's imports are appended."""


class WarmStart:
    """Starts the processes of a worker: as forks of a template if there is one that can be forked."""

    def __init__(self, loop: EventLoop, settings: WarmSettings, helpers: set[int]) -> None:
        """``helpers``: the pids that belong to no worker; the template's is kept there."""
        self._loop = loop
        self._settings = settings
        self._helpers = helpers
        self._template: Template | None = None
        self._interpreter: list[str] = []
        self._made = 0
        """How many templates were made."""
        self._trained = 0
        """The newest attempt that has made a step."""
        self._asked: set[str] = set()
        """What the template was asked to import."""
        self._blamed: set[str] = set()
        """Modules that a template can't import, of those that the worker imports."""
        self._no_template = FIRST_START
        self.told = wire.WarmStart(0, 0, 0)
        """How the newest attempt was started."""

    def begin(self) -> None:
        """The supervisor has begun: nothing trains here yet."""
        self._preload(pace=1.0)
        self._look()

    def new_attempt(self, attempt: int) -> None:
        """The processes that are started next are of a new attempt."""
        template = self._template
        self.told = wire.WarmStart(attempt, 0, 0)
        if template is not None:
            not_imported = "" if self._settings.preload == AUTO else template.not_imported
            self.told = replace(self.told, template_bytes=template.bytes, not_imported=not_imported)
        self._loop.at(now_ms() + WITHOUT_STEPS_MS, partial(self._trains, attempt))
        if template is not None and template.obstacle == IMPORTING and template.pace > PACE:
            template.end(TOO_SLOW)  # It would take the time from the start. Another is made after the first step.

    def spawn(
        self, command: Sequence[str], environment: dict[str, str], output: tuple[int, int] = (1, 2)
    ) -> tuple[int, socket.socket]:
        """Start one process; returns its pid and our end of its channel. ``output``: its standard output and error.

        Raises:
            OSError, ValueError: it could not be executed.
        """
        python, template = parse(command), self._template
        if python is None or template is None:
            obstacle = self._no_template if python is not None else NO_PYTHON
        elif python.interpreter != self._interpreter:
            obstacle = OTHER_PYTHON
        else:
            forked = template.fork(python.target, environment, output)
            if forked is not None:
                self._count(forked=1)
                return forked
            obstacle = template.obstacle
        self._count(obstacle=obstacle)
        if python is not None and self._learns:
            command = [*python.interpreter, "-c", ENTER, ARCHIVE, "run", self._settings.imports, *python.target]
        return parking.spawn(command, environment, output)

    def progressed(self, progress: wire.Progress) -> None:
        """The worker has reported: after its first step it has imported what it needs."""
        if progress.first_step is not None or progress.phase == "Step":
            template = self._template
            if template is not None and self._settings.preload == AUTO and template.blamed not in {"", *self._blamed}:
                self._blamed.add(template.blamed)
                self._trained = 0
            self._trains(progress.attempt)

    def ended(self, pid: int) -> bool:
        """A child that is no process of a worker has ended; returns whether it is the template, not ended by us."""
        template = self._template
        if template is None or template.pid != pid:
            return False
        template.reaped()
        return template.ended_itself

    def end(self) -> None:
        """The supervisor ends."""
        if self._template is not None:
            self._template.end("the supervisor ends")

    @property
    def _learns(self) -> bool:
        """Whether what the worker imports is of interest."""
        is_of_use = self._template is None or not self._template.is_useless
        return self._settings.preload == AUTO and is_of_use and os.path.exists(ARCHIVE)

    def _count(self, forked: int = 0, obstacle: str = "") -> None:
        told = self.told
        executed = told.executed + 1 - forked
        self.told = replace(told, forked=told.forked + forked, executed=executed, obstacle=obstacle or told.obstacle)

    def _trains(self, attempt: int) -> None:
        if attempt == self.told.attempt != self._trained:
            self._trained = attempt
            self._preload(pace=PACE)

    def _look(self) -> None:
        """Give the template's memory back before the container's limit is reached."""
        template, left = self._template, memory.left()
        if template is not None and left is not None and left < SHORT_BYTES:
            template.end(f"the container's memory limit left only {left >> 20} MiB, so the template has gone")
        self._loop.at(now_ms() + LOOK_MS, self._look)

    def _preload(self, pace: float) -> None:
        """Have a template import what it lacks, making one if there is none."""
        template = self._template
        if template is not None and template.is_over:
            is_useless = template.is_useless and template.blamed not in self._blamed
            if is_useless or self._made >= TEMPLATES:
                return
            self._template = template = None
            self._asked.clear()
        wanted = [name for name in self._wanted() if name not in self._asked]
        if not wanted or (template is not None and template.obstacle == IMPORTING):
            return
        if template is None:
            template = self._template = self._make()
        if template is not None:
            self._asked.update(wanted)
            template.preload(wanted, pace)
            self._loop.at(now_ms() + READY_MS, partial(_expect_ready, template))

    def _make(self) -> Template | None:
        """Start a template, or say why there is none."""
        given = self._settings
        python, left = parse(given.command), memory.left()
        if python is None:
            return None
        if left is not None and left < ROOM_BYTES:
            self._no_template = (
                f"the container's memory limit leaves {left >> 20} MiB, and a template may take {ROOM_BYTES >> 20} MiB"
            )
            return None
        self._interpreter = python.interpreter
        imports = given.imports if given.preload == AUTO else ""
        program = [*python.interpreter, "-c", ENTER, ARCHIVE, "template", imports]
        try:
            template = Template(self._loop, program, python.target, given.environment)
        except (OSError, ValueError) as error:
            self._no_template = f"the template can't be started: {error}"
            return None
        self._made += 1
        self._helpers.add(template.pid)
        return template

    def _wanted(self) -> list[str]:
        if self._settings.preload != AUTO:
            return [name for name in self._settings.preload.split(",") if name]
        try:
            with open(self._settings.imports, encoding="ascii", errors="replace") as file:
                learnt = dict.fromkeys(line.rstrip("\n") for line in file)
                return list(takewhile(lambda name: name not in self._blamed, learnt))
        except OSError:
            return []


def _expect_ready(template: Template) -> None:
    if template.obstacle == IMPORTING and now_ms() >= template.asked_at + READY_MS:
        template.end(TOO_SLOW, for_good=True)
