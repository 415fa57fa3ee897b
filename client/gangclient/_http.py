"""Calls to the sidecar: HTTP and JSON on a unix socket."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from typing import Any, Dict, Optional, Tuple

PATIENCE = 2.0
"""Seconds that one request may take."""
PAUSE = 0.1
"""Seconds between two tries."""
_SOCKET_PATH = 107
"""Bytes that the path of a unix socket may have on Linux."""
Body = Dict[str, Any]


class GangError(RuntimeError):
    """A call could not be made or was refused; ``reason`` is one CamelCase word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: Optional[float]) -> None:
        super().__init__("gang", timeout=timeout)
        self._path = path

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


def call_until(socket_path: str, deadline: float, method: str, path: str, body: Optional[Body]) -> Body:
    """Repeat a request until the sidecar's answer is final, for at most ``deadline`` seconds.

    Raises:
        GangError: the sidecar can't be reached, or it refused.
    """
    end = time.monotonic() + deadline
    while True:
        timeout = max(0.01, min(end - time.monotonic(), PATIENCE))
        try:
            status, answer = call(socket_path, timeout, method, path, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason, message = "SidecarAway", f"the sidecar doesn't answer at {socket_path}: {error or type(error)}"
        else:
            if status < http.client.BAD_REQUEST:
                return answer
            problem = answer.get("error", {})
            reason, message = problem.get("reason", "Refused"), problem.get("message", f"status {status}")
            if status != http.client.SERVICE_UNAVAILABLE:
                raise GangError(reason, message)
        left = end - time.monotonic()
        if left <= 0:
            raise GangError(reason, f"{message} (given up after {deadline:g} s)")
        time.sleep(min(PAUSE, left))
