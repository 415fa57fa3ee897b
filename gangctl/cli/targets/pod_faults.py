"""InjectedFault to processes of a pod on a cluster: a small program is run in the member's own container."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from gangctl.cli.errors import UserError
from gangctl.cli.targets.pod_exec import Execution, run_python
from gangctl.cli.targets.port import InjectedFault
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.pod.sidecar_injection import SIDECAR
from gangctl.cluster.kube.watch.projections import KubePod
from gangctl.cluster.local.pod_processes import PodProcess

INJECTION_SECONDS: Final = 30.0
_KILLED: Final = 137
_SOURCES: Final = (
    ("gangctl.cluster", "errors"),
    ("gangctl.cluster.local", "ptrace"),
    ("gangctl.cli.targets", "fault_program"),
)
_START: Final = """\
import sys, types
for name, text in {sources!r}.items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
sys.exit(module.main({arguments!r}))
"""
"""Modules by name with their text, in the order of their imports; the last one has the work to do."""


async def inject(client: Client, pod: KubePod, worker: str, fault: InjectedFault) -> list[str]:
    """Do it; says what was done to which process. ``worker``: name of the worker's container.

    Raises:
        UserError: it can't be done from inside; the text says why and what can be done.
        ClusterError: the program couldn't be run there.
    """
    container = SIDECAR if fault.process is PodProcess.SIDECAR else worker
    done = await run_python(client, pod.namespace, pod.pod.name, container, program_for(fault), INJECTION_SECONDS)
    who = f"{pod.pod.member} (pod {pod.pod.name})"
    said = [f"{who}: {line}" for line in done.out.splitlines()]
    if done.code == 0 or (_ends_us_too(fault) and done.code in {_KILLED, None} and said):
        return said
    raise UserError(f"{who}: {_reason(done, container)}")


def program_for(fault: InjectedFault) -> str:
    """What is run in the container: a program that needs nothing but Python's standard library."""
    name, number = fault.signal or ("", 0)
    arguments = {
        "process": str(fault.process),
        "rank": fault.rank,
        "signal": name,
        "number": int(number),
        "exit_code": fault.exit_code,
        "tree": fault.tree,
    }
    sources = {
        f"{package}.{module}": files(package).joinpath(f"{module}.py").read_text() for package, module in _SOURCES
    }
    return _START.format(sources=sources, arguments=arguments)


def _ends_us_too(fault: InjectedFault) -> bool:
    """Whether the container may end with the process, and what was run in it as well."""
    return fault.process is not PodProcess.WORKER


def _reason(done: Execution, container: str) -> str:
    said = done.err.strip() or done.why
    return said or f"python3 in container {container} ended with {done.code}, and said nothing"
