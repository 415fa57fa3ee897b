"""Running a program in a container: the subresource ``exec`` of a pod, by WebSocket.

The program is read from stdin, as it is too long for a URL. Its length is told first, so no end of stdin is needed,
which only the newer protocol can tell.
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
RIGHTS: Final = "get and create pods/exec"
_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2
_STATUS: Final = 3


@dataclass(frozen=True, slots=True)
class Execution:
    """What came of it."""

    out: str
    err: str
    code: int | None
    """Its exit code; None if the container ended first, or the program couldn't be started."""
    why: str = ""
    """What the API server says where there is no exit code."""


async def run_python(
    client: Client, namespace: str, pod: str, container: str, program: str, seconds: float
) -> Execution:
    """Run a program by the container's ``python3``, for at most so many seconds.

    Raises:
        Terminal: there is no such pod, or this user may not do it; the text names the rights.
        Retryable: the network failed, or it took too long.
    """
    content = program.encode()
    start = f"import sys;exec(compile(sys.stdin.buffer.read({len(content)}),'gangctl','exec'))"
    streams = [("container", container), ("stdin", "true"), ("stdout", "true"), ("stderr", "true")]
    query = [("command", word) for word in ("python3", "-IS", "-c", start)] + streams
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/exec"
    try:
        async with asyncio.timeout(seconds), client.socket(path, query=query, protocols=PROTOCOLS) as socket:
            await socket.send_bytes(bytes([_STDIN]) + content)
            return await _heard(socket)
    except TimeoutError:
        raise Retryable(f"python3 in container {container} of pod {pod} didn't end within {seconds:g} s") from None
    except NotFound:
        raise
    except Rejected as error:
        raise Rejected(f"{error}; it needs the rights to {RIGHTS} in namespace {namespace}", error.message) from None


async def _heard(socket: aiohttp.ClientWebSocketResponse) -> Execution:
    heard: dict[int, bytearray] = {_STDOUT: bytearray(), _STDERR: bytearray(), _STATUS: bytearray()}
    async for message in socket:
        if message.type is aiohttp.WSMsgType.BINARY and message.data and message.data[0] in heard:
            heard[message.data[0]] += message.data[1:]
    out, err = (heard[channel].decode(errors="replace") for channel in (_STDOUT, _STDERR))
    code, why = _ended(bytes(heard[_STATUS]))
    return Execution(out, err, code, why)


def _ended(status: bytes) -> tuple[int | None, str]:
    """The exit code that a Status tells of, or its message."""
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
    return (int(code), "") if code.isdecimal() else (None, str(found.get("message") or "it wasn't said why"))
