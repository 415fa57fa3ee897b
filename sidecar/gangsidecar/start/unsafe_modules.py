"""Modules that a template must not import, because a look at the process afterwards comes too late or shows nothing.

A name stands for the module and for all below it. The guards of ``obstacles`` find all else: threads, processes, open
devices and connections, shared memory, variables that Python code reads. What each library does at import, with the
sources, is in docs/reference/preloaded-modules.md.
"""

from __future__ import annotations

from typing import Final

UNSAFE: Final = {
    "habana_frameworks.torch": "its closed library chooses the device by the rank that it finds in the environment",
    "mpi4py.MPI": "it joins the MPI job in place of the worker's rank",
    "pycuda.autoinit": "it creates a CUDA context, which takes memory of the GPU from the worker",
    "pycuda.gl.autoinit": "it creates a CUDA context, which takes memory of the GPU from the worker",
}
"""Module -> the reason, as a clause."""


def why_unsafe(name: str) -> str:
    """Return the reason why a template must not import this module; empty if it may."""
    return next((why for unsafe, why in UNSAFE.items() if f"{name}.".startswith(f"{unsafe}.")), "")
