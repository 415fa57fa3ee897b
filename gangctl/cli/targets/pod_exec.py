"""Run Python programs in containers of a cluster, among them the one that injects a fault.

A program runs through the pod's ``exec`` subresource over WebSocket. It is sent to stdin, because it is too long for a
URL. Its length is part of the command, so that the end of stdin need not be signalled: only the newer protocol can do
that.
"""

import asyncio
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import aiohttp

from gangctl.api.names import SIDECAR
from gangctl.cli.errors import UserError
from gangctl.cli.targets.port import InjectedFault
from gangctl.cluster.errors import Retryable
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client, NotFound, Rejected
from gangctl.cluster.kube.injection import STATE_DIRECTORY
from gangctl.cluster.kube.projections import KubePod
from gangctl.cluster.local.pod_record import PodProcess
from gangsidecar.wire import SUPERVISOR_PROGRAM, WORKERS_FILE

_PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
PERMISSIONS: Final = "get and create pods/exec"
_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2
_STATUS: Final = 3
_AGENT_MODULE: Final = "gangsidecar.agent"
_INJECTION_SECONDS: Final = 30.0
_KILLED: Final = 137
"""The program may be killed after it injected the fault: with its container, or by the supervisor, which kills every
process in the container for the restart. So it prints each fault just before it injects it."""
_SOURCES: Final = (
    ("gangctl.cluster", "errors"),
    ("gangctl.cluster.local", "ptrace"),
    ("gangctl.cluster.local", "worker_ranks"),
    ("gangctl.cli.targets", "fault_program"),
)
_START: Final = """\
import sys, types
for name, text in {sources!r}.items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
sys.exit(module.main({arguments!r}))
"""
"""Loads modules from their source text, in the order of their imports, and runs main() of the last one."""


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
    path = f"{paths.pod(namespace, pod)}/exec"
    try:
        async with asyncio.timeout(seconds), client.socket(path, query=query, protocols=_PROTOCOLS) as socket:
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


async def inject_in_pod(client: Client, pod: KubePod, worker: str, fault: InjectedFault) -> list[str]:
    """Inject the fault; return what was done to which process. ``worker``: name of the worker container.

    Raises:
        UserError: it is impossible from inside the container; the message says why and what to do.
        ClusterError: the program could not run in the container.
    """
    container = SIDECAR if fault.process is PodProcess.SIDECAR else worker
    done = await run_python(
        client, pod.namespace, pod.pod.name, container, fault_source(fault, STATE_DIRECTORY), _INJECTION_SECONDS
    )
    subject = f"{pod.pod.member} (pod {pod.pod.name})"
    lines = [f"{subject}: {line}" for line in done.out.splitlines()]
    if done.code == 0 or (done.code in {_KILLED, None} and lines):
        return lines
    raise UserError(f"{subject}: {_failure_text(done, container)}")


def fault_source(fault: InjectedFault, directory: str) -> str:
    """The program that runs in the container; it needs only Python's standard library.

    ``directory``: that of the supervisor's state file.
    """
    name, number = fault.signal or ("", 0)
    arguments = {
        "process": str(fault.process),
        "programs": [_AGENT_MODULE] if fault.process is PodProcess.SIDECAR else [SUPERVISOR_PROGRAM],
        "rank": fault.rank,
        "signal": name,
        "number": int(number),
        "exit_code": fault.exit_code,
        "tree": fault.tree,
        "workers": f"{directory}/{WORKERS_FILE}",
    }
    sources = {
        f"{package}.{module}": files(package).joinpath(f"{module}.py").read_text() for package, module in _SOURCES
    }
    return _START.format(sources=sources, arguments=arguments)


def _failure_text(done: Execution, container: str) -> str:
    text = done.err.strip() or done.why
    if "python3" in text and ("not found" in text or "no such file" in text):
        return (
            f"container {container} has no python3, and inject runs a program with it ({text}). Kill a process from "
            "its node instead, or delete the pod: kubectl delete pod"
        )
    return text or f"python3 in container {container} exited with {done.code} and printed nothing"
