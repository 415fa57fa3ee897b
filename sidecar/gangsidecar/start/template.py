"""The template: a process that has imported what the worker will import, and forks when the supervisor asks.

It isn't a worker: it has no attempt and no rank, runs no file of the user, and opens no port and no device. A child
runs nothing of the user's before the supervisor has said that it knows it. By then the child is like a process that was
just started: session, input, environment, random states, threads. What the standard library does itself after a fork is
left to it (``random``, ``ssl``, ``threading``, ``logging``).

Both sides send lines of JSON. The supervisor asks, and the template or its child answers::

    {"preload": [name, ...], "pace": 0.1}                {"failed": [name and error, ...], "obstacle": "", "by": ""}
    {"fork": {name: value, ...}, "command": [word, ...]} {"pid": 4321, "obstacle": "", "by": ""}
    {"go": true}

With the request for a fork comes a file: the socket on which the child answers, and on which it waits to go on. If
there are two more, they become its standard output and standard error. An obstacle is answered on the socket, without a
pid. ``pace`` is the share of the time that imports may take: while the worker trains, they must not take a core from
it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import ModuleType
from typing import Any

from gangsidecar.start import obstacles
from gangsidecar.start.entry import Target
from gangsidecar.start.link import PARKING, address, receive, send

STORE_USER = "torch.distributed"
"""Without it there is no store at MASTER_PORT."""
FIRST_RANK_SECONDS = 0.3
"""A rank that waits for longer loses no less than by its own next try."""
AGAIN_SECONDS = 0.01


class Template:
    """Serves one supervisor until it closes the connection."""

    def __init__(self, descriptor: int, loaded: AbstractSet[str]) -> None:
        """``loaded``: the modules that Python itself had loaded."""
        self._connection = socket.socket(fileno=descriptor)
        self._loaded = loaded
        self._before = obstacles.Surroundings.now()
        self._environment = dict(os.environ)
        self._by_python = set_by_python()
        self._pid = os.getpid()
        self._versions: dict[str, obstacles.Version] = {}
        self._failed: dict[str, str] = {}

    def serve(self) -> list[str]:
        """Returns the command in a child that may run. In the template it never returns."""
        while True:
            text, files = receive(self._connection)
            if not text:
                os._exit(0)  # What the modules have registered for the end of a worker is not for a template.
            message = json.loads(text)
            if "preload" in message:
                self._preload(message["preload"], message["pace"])
                continue
            link, output = socket.socket(fileno=files[0]), files[1:]
            environment = {**self._by_python, **message["fork"]}
            if self._has_forked(message["command"], environment, link, files):
                self._become_a_start(environment, link, output)
                return list(message["command"])
            link.close()
            for file in output:
                os.close(file)

    def _preload(self, names: Sequence[str], pace: float) -> None:
        pacer = _Pacer(pace)
        sys.meta_path.insert(0, pacer)
        found = by = ""
        for name in names:
            if name in sys.modules or name in self._failed:
                continue
            obstacles.importing(name)
            try:
                importlib.import_module(name)
            except BaseException as error:  # noqa: BLE001 - a module may even call sys.exit
                self._failed[name] = f"{name} ({type(error).__name__}: {error})"[:100]
            if os.getpid() != self._pid:
                os._exit(0)  # The module has forked, and this is its child.
            found = obstacles.left_open(self._before, by=f"importing {name}")
            if found:
                by = name
                break
        obstacles.importing("")
        sys.meta_path[:] = [one for one in sys.meta_path if one is not pacer]
        flush()
        gc.collect()
        gc.freeze()  # Else the child's first collection writes to every page, and the pages are no longer shared.
        self._versions = obstacles.versions(sorted(sys.modules))
        send(
            self._connection,
            failed=list(self._failed.values())[:10],
            obstacle=found or obstacles.shares_memory(self._before),
            by=by,
        )

    def _has_forked(
        self, command: list[str], environment: dict[str, str], link: socket.socket, files: list[int]
    ) -> bool:
        """Fork, if nothing stands against it; True in the child. ``files``: those that came with the request."""
        by, read = obstacles.stale(self._environment, environment)
        found = (f"{read}: {obstacles.ADVICE}" if read else "") or (
            obstacles.left_open(self._before, files)
            or obstacles.shares_memory(self._before)
            or obstacles.changed(self._versions)
            or obstacles.shadowed(Target.of(command).first_in_path, self._loaded)
        )
        try:
            if not found:
                flush()
                between = os.fork()
                if not between:
                    return True
                os.waitpid(between, 0)
        except ChildProcessError:
            return False  # A module ignores SIGCHLD: the kernel has reaped it.
        except OSError as error:
            found = f"the template can't fork: {error}"
        if found:
            send(link, obstacle=found, by=by)
        return False

    def _become_a_start(self, environment: dict[str, str], link: socket.socket, output: list[int]) -> None:
        """In the child, whose own child goes on as one of the supervisor, if the supervisor says so."""
        try:
            between = os.getpid()
            if os.fork():
                os._exit(0)
            while os.getppid() == between:
                time.sleep(0.0001)  # Until the supervisor is the parent.
            self._connection.close()
            obstacle = become_a_start(self._environment, environment, output)
            send(link, pid=os.getpid(), obstacle=obstacle)
            if receive(link)[0]:
                os.environ[PARKING] = address(link)
                link.detach()  # It stays open: on it the worker parks.
                wait_for_first_rank(environment)
                return
        except BaseException as error:  # noqa: BLE001 - no error of ours may be taken for the worker's
            try:
                send(link, obstacle=f"the fork failed: {type(error).__name__}: {error}"[:200])
            finally:
                os._exit(0)
        os._exit(0)  # The supervisor has refused this child, or has gone.


class _Pacer:
    """Slows imports down: before each module it waits as long as the time that was used demands."""

    def __init__(self, pace: float) -> None:
        self._rest = 1 / pace - 1
        self._used = time.process_time()

    def find_spec(self, _name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None) -> Any:
        """Find nothing."""
        used = time.process_time()
        time.sleep(self._rest * (used - self._used))
        self._used = used


def set_by_python() -> dict[str, str]:
    """Variables that the interpreter has set before any code of ours: each start of it has them.

    Where the locale is C, Python sets LC_CTYPE (PEP 538); a ``sitecustomize`` may set others.
    """
    with open("/proc/self/environ", "rb") as file:
        given = {os.fsdecode(one.partition(b"=")[0]) for one in file.read().split(b"\0")}
    return {name: value for name, value in os.environ.items() if name not in given}


def become_a_start(template: Mapping[str, str], environment: Mapping[str, str], output: Sequence[int]) -> str:
    """Make the child, in which this is called, like a start with this environment and output.

    Return why it can't be; empty if it is. ``template``: the environment with which the template began.
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
    threads = _number(environment, "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS") or cores
    for path in _loaded("openblas"):
        _set_openblas_threads(path, threads)
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


def wait_for_first_rank(environment: Mapping[str, str]) -> None:
    """Return when MASTER_PORT is listened on, or has not been for a while. It takes a connection to see that."""
    rank, address, port = (environment.get(name, "") for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"))
    if STORE_USER not in sys.modules or rank in {"", "0"} or not address or not port.isdigit():
        return
    wait_for_listener(address, port, FIRST_RANK_SECONDS)


def wait_for_listener(address: str, port: str, seconds: float) -> None:
    """Return when a port of this numeric address is listened on, or has not been for so long."""
    end = time.monotonic() + seconds
    try:
        found = socket.getaddrinfo(address, int(port), type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, OverflowError):
        return  # A name: it may take long to resolve.
    family, kind, _, _, place = found[0]
    while time.monotonic() < end:
        with socket.socket(family, kind) as one:
            one.settimeout(max(0.001, end - time.monotonic()))
            if not one.connect_ex(place):
                return
        time.sleep(AGAIN_SECONDS)
