"""Calls to the sidecar: HTTP and JSON on a unix socket."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from contextlib import suppress
from typing import Any, Dict, Optional, Tuple

PATIENCE = 2.0
"""Seconds that one request may take."""
PAUSE = 0.1
"""Seconds between two tries."""
FLUSH = 0.2
"""Seconds that what is not sent yet may delay the end of the process."""
BROKEN = (OSError, http.client.HTTPException, ValueError, KeyError)
"""No answer, or one that makes no sense."""
_SOCKET_PATH = 107
"""Bytes that the path of a unix socket may have on Linux."""
Body = Dict[str, Any]


class GangError(RuntimeError):
    """A call was refused; ``reason`` is one CamelCase word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class AwayError(GangError):
    """There was no answer in time: the sidecar is away or frozen, or has no supervisor."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: Optional[float]) -> None:
        super().__init__("gang", timeout=timeout)
        self._path = path

    def hang_up(self) -> None:
        """Close it, also where a process that was forked meanwhile has it open."""
        self.shut_down()
        self.close()

    def shut_down(self) -> None:
        """End it; any thread may, and the one that reads finds its end."""
        sock = self.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def connect(self) -> None:
        """Connect; a path that is too long for a socket is reached through its open folder."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        if len(os.fsencode(self._path)) <= _SOCKET_PATH:
            self.sock.connect(self._path)
            return
        folder, name = os.path.split(self._path)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.sock.connect(f"/proc/self/fd/{opened}/{name}")
        finally:
            os.close(opened)


def call(socket_path: str, timeout: float, method: str, path: str, body: Optional[Body]) -> Tuple[int, Body]:
    """Make one request; returns the status and the answer.

    Raises:
        OSError, http.client.HTTPException, ValueError: there was no answer that makes sense.
    """
    connection = UnixConnection(socket_path, timeout)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
    finally:
        connection.close()
    if not isinstance(answer, dict):
        raise ValueError(f"the answer to {method} {path} is no object")  # noqa: TRY004 - it is what was received
    return response.status, answer


def post(socket_path: str, path: str, body: Body) -> Body:
    """Post it; returns the answer.

    Raises:
        OSError, http.client.HTTPException: there was no answer.
        ValueError: it was refused, or the answer makes no sense.
    """
    status, answer = call(socket_path, PATIENCE, "POST", path, body)
    if status >= http.client.BAD_REQUEST and "warning" not in answer:
        raise ValueError(answer)
    return answer


def ask(socket_path: str, timeout: float, method: str, path: str, body: Optional[Body]) -> Body:
    """Make one request; returns the answer, if it is final.

    Raises:
        AwayError: there is no final answer within ``timeout`` seconds.
        GangError: the sidecar refused.
    """
    try:
        status, answer = call(socket_path, timeout, method, path, body)
    except (OSError, http.client.HTTPException, ValueError) as error:
        found = f"the sidecar doesn't answer at {socket_path}: {error or type(error).__name__}"
        raise AwayError("SidecarAway", found) from None
    if status < http.client.BAD_REQUEST:
        return answer
    problem = answer.get("error", {})
    kind = AwayError if status == http.client.SERVICE_UNAVAILABLE else GangError
    raise kind(problem.get("reason", "Refused"), problem.get("message", f"status {status}"))


def ask_until(socket_path: str, deadline: float, method: str, path: str, body: Optional[Body]) -> Body:
    """Repeat a request until the sidecar's answer is final, for at most ``deadline`` seconds.

    Raises:
        AwayError: there was no final answer in time.
        GangError: the sidecar refused.
    """
    end = time.monotonic() + deadline
    while True:
        try:
            return ask(socket_path, max(0.01, min(end - time.monotonic(), PATIENCE)), method, path, body)
        except AwayError:
            left = end - time.monotonic()
            if left <= 0:
                raise
        time.sleep(min(PAUSE, left))
