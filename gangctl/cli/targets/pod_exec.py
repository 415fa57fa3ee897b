"""Runs a Python program in a container, through the pod's ``exec`` subresource over WebSocket.

The program is sent to stdin, because it is too long for a URL. Its length is part of the command, so that the end of
stdin need not be signalled: only the newer protocol can do that.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from gangctl.cluster.errors import Retryable
from gangctl.cluster.kube.client import Client, NotFound, Rejected

PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
PERMISSIONS: Final = "get and create pods/exec"
_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2
_STATUS: Final = 3


@dataclass(frozen=True, slots=True)
class Execution:
    """The result of a program."""

    out: str
    err: str
    code: int | None
    """Exit code; None if the container ended first or the program could not be started."""
    why: str = ""
    """Message of the API server if there is no exit code."""


async def run_python(
    client: Client, namespace: str, pod: str, container: str, program: str, seconds: float
) -> Execution:
    """Run a program with the container's ``python3``, with a timeout in seconds.

    Raises:
        Terminal: there is no such pod, or the user lacks permissions, which the message names.
        Retryable: the network failed, or the program took too long.
    """
    content = program.encode()
    start = f"import sys;exec(compile(sys.stdin.buffer.read({len(content)}),'gangctl','exec'))"
    streams = [("container", container), ("stdin", "true"), ("stdout", "true"), ("stderr", "true")]
    query = [("command", word) for word in ("python3", "-IS", "-c", start)] + streams
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/exec"
    try:
        async with asyncio.timeout(seconds), client.socket(path, query=query, protocols=PROTOCOLS) as socket:
            await socket.send_bytes(bytes([_STDIN]) + content)
            return await _received(socket)
    except TimeoutError:
        raise Retryable(f"python3 in container {container} of pod {pod} did not end within {seconds:g} s") from None
    except NotFound:
        raise
    except Rejected as error:
        raise Rejected(
            f"{error}; this command needs the permissions {PERMISSIONS} in namespace {namespace}", error.message
        ) from None


async def _received(socket: aiohttp.ClientWebSocketResponse) -> Execution:
    received: dict[int, bytearray] = {_STDOUT: bytearray(), _STDERR: bytearray(), _STATUS: bytearray()}
    async for message in socket:
        if message.type is aiohttp.WSMsgType.BINARY and message.data and message.data[0] in received:
            received[message.data[0]] += message.data[1:]
    out, err = (received[channel].decode(errors="replace") for channel in (_STDOUT, _STDERR))
    code, why = _exit_code(bytes(received[_STATUS]))
    return Execution(out, err, code, why)


def _exit_code(status: bytes) -> tuple[int | None, str]:
    """The exit code in a Status, or its message."""
    try:
        found: Any = json.loads(status)
    except ValueError:
        return None, "the connection ended first"
    if not isinstance(found, dict):
        return None, "the connection ended first"
    if found.get("status") == "Success":
        return 0, ""
    causes = (found.get("details") or {}).get("causes") or ()
    code = next((str(one.get("message")) for one in causes if one.get("reason") == "ExitCode"), "")
    return (int(code), "") if code.isdecimal() else (None, str(found.get("message") or "the API server gave no reason"))
