"""Injects faults into processes of a pod on a cluster: runs a small program in the member's container."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from gangctl.api.names import SIDECAR
from gangctl.cli.errors import UserError
from gangctl.cli.targets.pod_exec import Execution, run_python
from gangctl.cli.targets.port import InjectedFault
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.injection import STATE_DIRECTORY
from gangctl.cluster.kube.projections import KubePod
from gangctl.cluster.local.pod_processes import PodProcess
from gangsidecar.wire import SUPERVISOR_PROGRAM, WORKERS_FILE

AGENT_MODULE: Final = "gangsidecar.agent"
INJECTION_SECONDS: Final = 30.0
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


async def inject(client: Client, pod: KubePod, worker: str, fault: InjectedFault) -> list[str]:
    """Inject the fault; return what was done to which process. ``worker``: name of the worker container.

    Raises:
        UserError: it is impossible from inside the container; the message says why and what to do.
        ClusterError: the program could not run in the container.
    """
    container = SIDECAR if fault.process is PodProcess.SIDECAR else worker
    done = await run_python(
        client, pod.namespace, pod.pod.name, container, program_for(fault, STATE_DIRECTORY), INJECTION_SECONDS
    )
    subject = f"{pod.pod.member} (pod {pod.pod.name})"
    lines = [f"{subject}: {line}" for line in done.out.splitlines()]
    if done.code == 0 or (done.code in {_KILLED, None} and lines):
        return lines
    raise UserError(f"{subject}: {_reason(done, container)}")


def program_for(fault: InjectedFault, directory: str) -> str:
    """The program that runs in the container; it needs only Python's standard library.

    ``directory``: that of the supervisor's state file.
    """
    name, number = fault.signal or ("", 0)
    arguments = {
        "process": str(fault.process),
        "programs": [AGENT_MODULE] if fault.process is PodProcess.SIDECAR else [SUPERVISOR_PROGRAM],
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


def _reason(done: Execution, container: str) -> str:
    said = done.err.strip() or done.why
    if "python3" in said and ("not found" in said or "no such file" in said):
        return (
            f"container {container} has no python3, and inject runs a program with it ({said}). Kill a process from "
            "its node instead, or delete the pod: kubectl delete pod"
        )
    return said or f"python3 in container {container} exited with {done.code} and printed nothing"
