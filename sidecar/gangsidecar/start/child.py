"""Makes a forked child like a process that was just started: session, input, environment, random states, threads.

What the standard library does itself after a fork is left to it (``random``, ``ssl``, ``threading``, ``logging``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

ONE_THREAD = ("OPENBLAS_NUM_THREADS",)
"""Set to 1 for the template: OpenBLAS starts its threads as it is loaded. A child sets the number that a start has."""
ONLY_TEMPLATE = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", **dict.fromkeys(ONE_THREAD, "1")}
"""Variables of the template alone. Without the first, asking whether there is a GPU spoils CUDA for every child."""


def set_by_python() -> dict[str, str]:
    """Variables that the interpreter has set before any code of ours: each start of it has them.

    Where the locale is C, Python sets LC_CTYPE (PEP 538); a ``sitecustomize`` may set others.
    """
    with open("/proc/self/environ", "rb") as file:
        given = {os.fsdecode(one.partition(b"=")[0]) for one in file.read().split(b"\0")}
    return {name: value for name, value in os.environ.items() if name not in given}


def become_a_start(template: Mapping[str, str], environment: Mapping[str, str], output: Sequence[int]) -> str:
    """Call it in the child. Returns why the child is no good; empty if it is like a start.

    Args:
        template: the environment with which the template began.
        environment: the whole environment of this start.
        output: what becomes standard output and standard error.
    """
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    if null:
        os.close(null)
    for to, file in enumerate(output, 1):
        os.dup2(file, to)
        os.close(file)
    stdout: Any = sys.stdout
    variable = "PYTHONUNBUFFERED"
    if environment.get(variable) and not template.get(variable) and stdout is not None:
        stdout.reconfigure(line_buffering=True)  # The template has begun without the variable.
    now = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    for name in {**template, **now}:
        before, after = template.get(name), now.get(name)
        if before != after and before == environment.get(name):  # An import has changed it, as it would have here.
            os.environ[name] = after or ""
            if after is None:
                del os.environ[name]
    _seed()
    _set_threads(environment)
    return _poisoned()


def _seed() -> None:
    """Fresh random states: all children would have the template's. ``random`` does this itself."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch = sys.modules.get("torch")
    generator = getattr(torch, "default_generator", None)
    if generator is not None:
        generator.seed()


def _poisoned() -> str:
    """CUDA can't be used by the child of a process that has used it; nor can Intel's and other devices."""
    for name in ("torch.cuda", "torch.xpu", "torch.mtia"):
        device: Any = sys.modules.get(name)
        if device is not None and device._is_in_bad_fork():  # noqa: SLF001 - there is no public question
            what = name.partition(".")[2].upper()
            return f"a preloaded module has used {what} ({name} is in a bad fork)"
    return ""


def _set_threads(environment: Mapping[str, str]) -> None:
    """Let libraries that were loaded with one thread use as many as a start of theirs would."""
    cores = len(os.sched_getaffinity(0))
    wanted = _number(environment, "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS") or cores
    for path in _loaded("openblas"):
        _set_openblas_threads(path, wanted)
    torch = sys.modules.get("torch")
    omp = _number(environment, "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    if torch is not None and omp and torch.get_num_threads() != omp:
        torch.set_num_threads(omp)


def _number(environment: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        value = environment.get(name, "").partition(",")[0]
        if value.isdigit() and int(value):
            return int(value)
    return None


def _loaded(part: str) -> list[str]:
    """The shared libraries of this process that have this in their names."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        paths = {line.split(None, 5)[5].rstrip("\n") for line in file if part in line.rpartition("/")[2]}
    return sorted(path for path in paths if path.startswith("/"))


def flush() -> None:
    """Write out what imports have printed, C libraries' too: each child would write it again."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    try:
        import ctypes  # noqa: PLC0415 - some small Pythons have none

        ctypes.CDLL(None).fflush(None)
    except (ImportError, OSError, AttributeError):
        return


def _set_openblas_threads(path: str, number: int) -> None:
    """Its function has a prefix and a suffix in the builds that come with NumPy and SciPy."""
    import ctypes  # noqa: PLC0415 - only for those who have OpenBLAS

    try:
        library = ctypes.CDLL(path)
    except OSError:
        return
    for prefix in ("", "scipy_"):
        for suffix in ("", "64_", "_64_", "_"):
            function = getattr(library, f"{prefix}openblas_set_num_threads{suffix}", None)
            if function is not None:
                function(number)
                return
