"""The supervisor's side of a template: it starts one, has it preload modules, and forks workers from it.

The rule: nothing here is ever needed. When there is no template, when it is busy, says no or does not answer in time,
the worker is executed, and ``obstacle`` says why. A template must never be taken for a worker: the caller keeps its pid
among those that are left alone when a worker's tree is killed.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Sequence
from typing import Any

from gangsidecar.common.clock import now_ms
from gangsidecar.common.log import log
from gangsidecar.start.child import ONLY_TEMPLATE
from gangsidecar.start.link import receive, send, send_with
from gangsidecar.supervisor import memory, processes
from gangsidecar.supervisor.event_loop import READ, EventLoop

IMPORTING = "the template is still importing"
LONGEST = 500
"""Characters of what a template says: what a module or a thread is called may have any length."""
ANSWER_SECONDS = 2.0
"""A child that has not answered by then is given up, and so is the template. The first fork of a large template takes
half a second on a busy machine, and the imports that an exec costs instead take several."""


class Template:
    """One process that has imported what the worker imports."""

    def __init__(
        self, loop: EventLoop, program: Sequence[str], target: Sequence[str], environment: dict[str, str]
    ) -> None:
        """Start it.

        Args:
            loop: calls back when it answers.
            program: the command up to the descriptor of its socket.
            target: what it will run in its children. It is only there to be seen in lists of processes.
            environment: that of its children without what differs between them.

        Raises:
            OSError: it can't be started.
        """
        self._loop = loop
        self._connection, its_end = socket.socketpair()
        self._connection.settimeout(ANSWER_SECONDS)  # The supervisor must never wait for it.
        with its_end:
            its_end.set_inheritable(True)
            try:
                self.pid = processes.spawn([*program, str(its_end.fileno()), *target], {**environment, **ONLY_TEMPLATE})
            except OSError:
                self._connection.close()
                raise
        self.pace = 1.0
        """The share of the time that its imports may take."""
        self.asked_at = 0
        """When it was last asked to import."""
        self.is_over = False
        self.ended_itself = False
        """It ended, and this supervisor has not killed it."""
        self._is_reaped = False
        self.is_useless = False
        """Another template would come to the same end."""
        self.obstacle = IMPORTING
        """Why it can't fork now; empty if it can."""
        self.blamed = ""
        """The module whose import was the obstacle."""
        self.not_imported = ""
        """Modules that could not be imported, with their errors."""
        self.bytes = 0
        """Memory that it alone uses."""
        loop.watch(self._connection, READ, self._read)

    def preload(self, modules: Sequence[str], pace: float) -> None:
        """Have it import these. ``pace``: the share of the time that this may take, from 0 to 1."""
        self.pace, self.obstacle, self.asked_at = pace, IMPORTING, now_ms()
        try:
            send(self._connection, preload=list(modules), pace=pace)
        except OSError as error:
            self.end(f"the template is gone: {error}")

    def fork(
        self, command: Sequence[str], environment: dict[str, str], output: tuple[int, int]
    ) -> tuple[int, socket.socket] | None:
        """Fork a worker; returns its pid and our end of its channel, or None with an ``obstacle``: then execute it.

        When this returns, the child is a child of this process and may run.
        """
        if self.obstacle:
            return None
        link, its_end = socket.socketpair()
        link.settimeout(ANSWER_SECONDS)
        try:
            with its_end:
                files = [its_end.fileno(), *(() if output == (1, 2) else output)]
                send_with(self._connection, files, fork=environment, command=list(command))
            answer = _parsed(receive(link)[0])
            self.blamed = str(answer.get("by", ""))
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
        return None

    def end(self, why: str, *, for_good: bool = False) -> None:
        """Kill it. The caller reaps it. ``for_good``: another would come to the same end."""
        if self.is_over:
            return
        self.is_over, self.is_useless, self.obstacle, self.bytes = True, for_good, why[:LONGEST], 0
        log("info", "the template ends", pid=self.pid, reason=why)
        self._loop.forget(self._connection)
        self._connection.close()
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
        except (OSError, ValueError, KeyError) as error:
            self.end(f"the template can't be understood: {error!r}", for_good=True)
            return
        if not text:
            self._gone()
        elif obstacle:
            self.blamed = str(answer.get("by", ""))
            self.end(obstacle, for_good=True)
        else:
            self.obstacle, self.bytes = "", memory.own(self.pid)
            self.not_imported = ", ".join(map(str, answer.get("failed", ())))[:LONGEST]
            size = self.bytes >> 20
            log("info", "the template is ready", pid=self.pid, mebibytes=size, not_imported=self.not_imported)


def _parsed(text: str) -> dict[str, Any]:
    """What the template says; nothing if it is gone.

    Raises:
        ValueError: it can't be understood.
    """
    answer = json.loads(text or "{}")
    if not isinstance(answer, dict):
        raise ValueError(f"a {type(answer).__name__}")  # noqa: TRY004 - as for all that is malformed
    return answer
