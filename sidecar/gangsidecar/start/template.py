"""The template: a process that has imported what the worker will import, and forks when the supervisor asks.

It isn't a worker: it has no attempt and no rank, runs no file of the user, and opens no port and no device. A child
runs nothing of the user's before the supervisor has said that it knows it. By then the child is like a process that was
just started: session, input, environment, random states, threads. What the standard library does itself after a fork is
left to it (``random``, ``ssl``, ``threading``, ``logging``).

Both sides send lines of JSON. The supervisor asks, and the template or its child answers::

    {"preload": [name, ...], "beside": true}             {"failed": [name and error, ...], "imported": [name, ...],
                                                          "obstacle": "", "by": "",
                                                          "interpreter": what makes others like it,
                                                          "executable": its path}
    {"fork": {name: value, ...}, "command": [word, ...]} {"pid": 4321, "obstacle": "", "by": ""}
    {"go": true}

With the request for a fork comes a file: the socket on which the child answers, and on which it waits to go on. If
there are two more, they become its standard output and standard error. An obstacle is answered on the socket, without a
pid. Where the child runs the program of another process, the request has ``"for": {"pid": 4320, "words": [word, ...],
"numbers": [0, 1, 2], "blocked": [], "unbuffered": false}``, and with it come that process's open files; an answer with
``"only": true`` says that other forks have no such obstacle. ``beside`` is true while a worker trains: imports must not
take processors from it.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import resource
import signal
import socket
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from types import ModuleType
from typing import Any, NamedTuple

from gangsidecar.start import CHANGED, OWN, obstacles, recorder
from gangsidecar.start.entry import Target
from gangsidecar.start.hook.gang_handover import interpreter
from gangsidecar.start.link import PARKING, address, receive, send
from gangsidecar.start.unsafe_modules import why_unsafe

GPU_FILES = ("nvidia", "nvhost", "nvgpu", "nvmap", "dxg", "kfd")
"""How the device files begin without which there is no GPU."""

STORE_USER = "torch.distributed"
"""Without it there is no store at MASTER_PORT."""
FIRST_RANK_SECONDS = 0.3
"""A rank that waits for longer loses no less than by its own next try."""
AGENT_SECONDS = 1.0
"""As long as torchrun itself waits before it tries again."""
TORCHRUN_PORT = "29500"
"""Its default."""
AGAIN_SECONDS = 0.01
PACE = 0.1
"""The share of the time that imports may take while other tasks wait."""
WAITING = 0.05
"""Tasks that wait for less than this share of the time don't notice it."""
LOOK_SECONDS = 0.02
"""Imports take this much of a processor between two looks."""
PRESSURES = ("/sys/fs/cgroup/cpu.pressure", "/proc/pressure/cpu")
_MARKS = (OWN, CHANGED)
_KNOWN = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


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
        self._own: set[str] = set()  # Modules of which the program has its own.
        self.words: list[str] = []
        """In a child that runs the program of another process: that process's command line."""

    def serve(self) -> list[str]:
        """Returns the command in a child that may run. In the template it never returns."""
        while True:
            text, files = receive(self._connection)
            if not text:
                os._exit(0)  # What the modules have registered for the end of a worker is not for a template.
            message = json.loads(text)
            if "preload" in message:
                self._preload(message["preload"], beside=message["beside"])
                continue
            link, given = socket.socket(fileno=files[0]), files[1:]
            environment = coerced(self._environment, {**self._by_python, **message["fork"]})
            other = Other(**message["for"]) if "for" in message else None
            if self._has_forked(message["command"], environment, link, files, other):
                self._become_a_start(environment, link, given, other)
                return list(message["command"])
            link.close()
            for file in given:
                os.close(file)

    def _preload(self, names: Sequence[str], *, beside: bool) -> None:
        self._own.update(name[1:] for name in names if name[0] == OWN)
        refuser = _Refuser(self._connection, self._own)
        finders: list[Any] = [refuser, *([Pacer()] if beside else [])]
        sys.meta_path[:0] = finders
        found = by = ""
        for name in names:
            if name[0] == CHANGED and name[1:] not in self._by_python:
                obstacles.changed_by_program(name[1:], late=bool(self._versions))
            if name[0] in _MARKS or name in sys.modules or name in self._failed:
                continue
            if why := why_unsafe(name):
                self._failed[name] = f"{name} ({why})"
                break  # What was imported after it may import it, too.
            obstacles.importing(name)
            refuser.importing = name
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
        if not found and (by := next(filter(sys.modules.__contains__, sorted(self._own)), "")):
            found = f"the template has imported {by}, and the program has its own: {obstacles.ADVICE}"
        if not found:
            by, found = obstacles.misread()
        obstacles.importing("")
        sys.meta_path[:] = [one for one in sys.meta_path if one not in finders]
        flush()
        gc.collect()
        gc.freeze()  # Else the child's first collection writes to every page, and the pages are no longer shared.
        self._versions = obstacles.versions(sorted(sys.modules))
        send(
            self._connection,
            failed=list(self._failed.values())[:10],
            imported=[name for name in names if name[0] in _MARKS or name in sys.modules],
            obstacle=found or obstacles.shares_memory(self._before),
            by=by,
            interpreter=interpreter(),
            executable=sys.executable,
        )

    def _has_forked(
        self,
        command: list[str],
        environment: dict[str, str],
        link: socket.socket,
        files: list[int],
        other: Other | None,
    ) -> bool:
        """Fork, if nothing stands against it; True in the child. ``files``: those that came with the request."""
        by, read = obstacles.stale(self._environment, environment)
        found = (f"{read}: {obstacles.ADVICE}" if read else "") or (
            obstacles.left_open(self._before, files)
            or obstacles.shares_memory(self._before)
            or obstacles.changed(self._versions)
        )
        try:
            folder = "" if other is None else other.folder
            only = "" if found else obstacles.shadowed(Target.of(command, folder).first_in_path, self._loaded)
            if other is not None and not (found or only):
                only = obstacles.differs(other.pid, self._environment, environment) or other.clashes(files)
        except OSError as error:  # The other process has ended meanwhile.
            only = f"the process that asked can't be read: {error}"
        if only:
            send(link, obstacle=only, by="", only=other is not None)
            return False
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

    def _become_a_start(
        self, environment: dict[str, str], link: socket.socket, given: list[int], other: Other | None
    ) -> None:
        """In the child, whose own child goes on as one of the supervisor, if the supervisor says so."""
        try:
            between = os.getpid()
            if os.fork():
                os._exit(0)
            while os.getppid() == between:
                time.sleep(0.0001)  # Until the supervisor is the parent.
            self._connection.close()
            if other is not None:
                link = other.take_files(link, given)
                other.take_streams()
                other.take_state()
                self.words = other.words
            obstacle = become_a_start(self._environment, environment, given if other is None else None)
            send(link, pid=os.getpid(), obstacle=obstacle)
            is_wanted = bool(receive(link)[0])
            if is_wanted and other is None:
                os.environ[PARKING] = address(link)
                link.detach()  # It stays open: on it the worker parks.
            else:
                link.close()
            recorder.begin()
        except BaseException as error:  # noqa: BLE001 - no error of ours may be taken for the worker's
            try:
                what = f"the fork failed: {type(error).__name__}: {error}"
                send(link, obstacle=what[:200], only=other is not None)
            finally:
                os._exit(0)
        if not is_wanted:
            os._exit(0)  # The supervisor has refused this child, or has gone.
        # From here on the process is the worker: what interrupts it is the worker's end, and no success.
        if other is not None:
            wait_for_first_agent(self.words, environment)
        wait_for_first_rank(environment)


class Other(NamedTuple):
    """A process whose program a child of this one is to run, as that process would."""

    pid: int
    words: list[str]
    """Its command line."""
    numbers: list[int]
    """The numbers of its open files."""
    blocked: list[int]
    """The signals that it was started with as blocked."""
    unbuffered: bool
    """It was started with ``-u`` or PYTHONUNBUFFERED."""

    @property
    def folder(self) -> str:
        """Its working directory."""
        return os.readlink(f"/proc/{self.pid}/cwd")

    def clashes(self, ours: Sequence[int]) -> str:
        """Name a file of a preloaded module that has the number of a file of the program; empty if there is none."""
        own = set(map(int, os.listdir("/proc/self/fd"))) - {0, 1, 2, *ours}
        found = sorted(own.intersection(self.numbers))
        path = next((path for path in map(_path_of, found) if path and not path.startswith(("socket:", "/proc/"))), "")
        return f"a preloaded module has opened {path} with the number of a file of the program" if path else ""

    def take_files(self, link: socket.socket, files: Sequence[int]) -> socket.socket:
        """In the child: give these files its numbers; returns the link, which has moved."""
        above = max([*self.numbers, 2]) + 1
        moved = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, above) for file in (link.fileno(), *files)]
        for number in {0, 1, 2, link.detach(), *files} - {*self.numbers}:
            os.close(number)
        for number, file in zip(self.numbers, moved[1:]):
            os.dup2(file, number)
            os.close(file)
        return socket.socket(fileno=moved[0])

    def take_streams(self) -> None:
        """In the child, which has its files: print as it does."""
        for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
            stream: Any = getattr(sys, name)
            if number not in self.numbers:
                setattr(sys, name, None)
            elif number and stream is not None:
                by_line = name == "stderr" or self.unbuffered or stream.isatty()
                stream.reconfigure(line_buffering=by_line, write_through=self.unbuffered)

    def take_state(self) -> None:
        """In the child: take what else it has inherited. OSError: something can't be had."""
        os.chdir(f"/proc/{self.pid}/cwd")
        multiprocessing: Any = sys.modules.get("multiprocessing.process")
        if multiprocessing is not None:
            multiprocessing.ORIGINAL_DIR = os.getcwd()  # Its children begin there.
        with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as file:
            status = {line.partition(":")[0]: line.partition(":")[2].strip() for line in file}
        os.umask(int(status["Umask"], 8))
        for signum in _signals(status["SigIgn"]):
            signal.signal(signum, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.blocked)
        before = resource.getrlimit(resource.RLIMIT_STACK)
        for name in (name for name in dir(resource) if name.startswith("RLIMIT_")):
            limit = getattr(resource, name)
            resource.setrlimit(limit, resource.prlimit(self.pid, limit))
        stack = resource.getrlimit(resource.RLIMIT_STACK)
        if stack != before and stack[0] != resource.RLIM_INFINITY:
            _set_thread_stacks(stack[0])
        os.sched_setaffinity(0, os.sched_getaffinity(self.pid))
        nice = os.getpriority(os.PRIO_PROCESS, self.pid)
        if nice != os.getpriority(os.PRIO_PROCESS, 0):
            os.setpriority(os.PRIO_PROCESS, 0, nice)
        with open(f"/proc/{self.pid}/oom_score_adj", encoding="ascii") as file:
            score = file.read()
        with open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:
            if file.read() != score:
                file.write(score)
        os.getppid = self._parent_seen_by(os.getpid(), os.getppid)

    def _parent_seen_by(self, child: int, real: Callable[[], int]) -> Callable[[], int]:
        """Return ``os.getppid`` of this child: programs end when their launcher is no longer their parent."""

        def getppid() -> int:
            if os.getpid() == child:
                try:
                    with open(f"/proc/{self.pid}/stat", encoding="utf-8", errors="replace") as file:
                        return int(file.read().rpartition(")")[2].split()[1])
                except OSError:
                    pass  # The stand-in has ended.
            return real()

        return getppid


def _signals(mask: str) -> list[int]:
    return [signum for signum in range(1, signal.NSIG) if int(mask, 16) >> (signum - 1) & 1 and signum in _KNOWN]


def _path_of(file: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{file}")
    except OSError:
        return ""


class _Refuser:
    """Ends the template before a module that is preloaded imports one that must not be."""

    def __init__(self, connection: socket.socket, own: AbstractSet[str]) -> None:
        """``own``: modules of which the program has its own."""
        self._connection = connection
        self._own = own
        self.importing = ""

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None) -> Any:
        """Find nothing, or never return."""
        if why := "the program has its own" if name in self._own else why_unsafe(name):
            obstacle = f"importing {self.importing} imports {name} ({why}): {obstacles.ADVICE}"
            send(self._connection, failed=[], obstacle=obstacle, by=self.importing, interpreter="")
            os._exit(0)


class Pacer:
    """Slows imports down while tasks wait for a processor.

    Before each module it looks how long tasks have waited since the last. If that was noticeable, or can't be known, it
    sleeps until imports have had :data:`PACE` of the time.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._at, self._used, self._waited = time.monotonic(), time.process_time(), waited()

    def find_spec(self, _name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None) -> Any:
        """Find nothing."""
        passed, used, now = time.monotonic() - self._at, time.process_time() - self._used, waited()
        if used < LOOK_SECONDS:
            return
        if now is None or self._waited is None or now - self._waited > WAITING * passed:
            time.sleep(used * (1 / PACE - 1))
        self._begin()


def waited() -> float | None:
    """Return the seconds in which tasks have waited for a processor so far; None if the kernel doesn't count them.

    A container's own group also counts what its limit makes it wait. Source: Documentation/accounting/psi.rst.
    """
    for path in PRESSURES:
        try:
            with open(path, encoding="ascii") as file:
                return int(file.readline().rpartition("total=")[2]) / 1e6
        except (OSError, ValueError):
            continue
    return None


def coerced(template: Mapping[str, str], environment: dict[str, str]) -> dict[str, str]:
    """Return the environment with the locale that a start of Python would set (PEP 538), if the template has it.

    What that start executes has it, too: the ranks of a launcher have it, and the launcher hasn't.
    """
    name = "LC_CTYPE"
    is_c = not environment.get("LC_ALL") and environment.get("LANG", "") in {"", "C", "POSIX"}
    if name in environment or not is_c or template.get(name) not in {"C.UTF-8", "C.utf8", "UTF-8"}:
        return environment
    return {**environment, name: template[name]}


def set_by_python() -> dict[str, str]:
    """Variables that the interpreter has set before any code of ours: each start of it has them.

    Where the locale is C, Python sets LC_CTYPE (PEP 538); a ``sitecustomize`` may set others.
    """
    with open("/proc/self/environ", "rb") as file:
        given = {os.fsdecode(one.partition(b"=")[0]) for one in file.read().split(b"\0")}
    return {name: value for name, value in os.environ.items() if name not in given}


def become_a_start(template: Mapping[str, str], environment: Mapping[str, str], output: Sequence[int] | None) -> str:
    """Make the child, in which this is called, like a start with this environment and output.

    Return why it can't be; empty if it is. ``template``: the environment with which the template began. ``output``:
    None if the child has its files already.
    """
    os.setsid()
    if output is not None:
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
    _keep_directories()
    _seed()
    _set_threads(environment)
    return _poisoned()


def _keep_directories() -> None:
    """Leave temporary directories, which imports have made, to the template: this child would remove them at its end.

    PyTorch imports a module from one (torch/distributed/nn/jit/instantiator.py).
    """
    directory: Any = getattr(sys.modules.get("tempfile"), "TemporaryDirectory", None)
    for finalizer in list(getattr(weakref.finalize, "_registry", ())) if directory is not None else []:
        found = finalizer.peek()
        if found is not None and getattr(found[1], "__func__", None) is directory._cleanup.__func__:  # noqa: SLF001
            finalizer.detach()


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
    """CUDA can't be used by the child of a process that has used it; nor can Intel's and other devices.

    A process that has asked for a GPU, as ``accelerate launch`` does, counts as one: also where there is none.
    """
    for name in ("torch.cuda", "torch.xpu", "torch.mtia", "torch_npu.npu"):
        device: Any = sys.modules.get(name)
        if device is None or (name == "torch.cuda" and not _has_gpu()):
            continue
        if getattr(device, "_is_in_bad_fork", bool)():
            what = name.partition(".")[2].upper()
            return f"a preloaded module has used {what} ({name} is in a bad fork)"
    return ""


def _has_gpu() -> bool:
    """Whether PyTorch could use one as ``torch.cuda``: of NVIDIA, also on a Tegra or below Windows, or of AMD."""
    return any(name.startswith(GPU_FILES) for name in os.listdir("/dev"))


def _set_threads(environment: Mapping[str, str]) -> None:
    """Let libraries that were loaded with one thread, or for all processors, use as many as in a start."""
    cores = len(os.sched_getaffinity(0))
    threads = _number(environment, "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS") or cores
    for path in _loaded("openblas"):
        _set_openblas_threads(path, threads)
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "get_num_threads"):
        now = torch.get_num_threads()
        omp = _number(environment, "OMP_NUM_THREADS", "MKL_NUM_THREADS") or min(now, cores)
        if now != omp:
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


def _set_thread_stacks(size: int) -> None:
    """Give threads as large stacks as in a start: the C library reads the limit as it is loaded."""
    import ctypes  # noqa: PLC0415 - only for those who change the limit

    library, attributes = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    library.pthread_attr_init(attributes)
    library.pthread_attr_setstacksize(attributes, ctypes.c_size_t(size))
    library.pthread_setattr_default_np(attributes)


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


def wait_for_first_agent(words: Sequence[str], environment: Mapping[str, str]) -> None:
    """Return when torchrun can reach the one of the first pod: a try of its own that fails costs it a second.

    ``words``: the command line, of any program. What torchrun imports is imported before that.
    """
    program = next((at for at, word in enumerate(words[1:], 1) if not word.startswith("-")), 0)
    if words[program].rpartition("/")[2] not in {"torchrun", "torch.distributed.run"} or STORE_USER not in sys.modules:
        return
    found = {name[4:]: value for name, value in environment.items() if name.startswith("PET_")}
    found.update(_flags(words, program))
    rank, address, port = (found.get(name, "") for name in ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT"))
    if rank in {"", "0"} or not address or "RDZV_ENDPOINT" in found:
        return
    with suppress(Exception):  # Torchrun itself says what is wrong with it.
        importlib.import_module("torch.distributed.launcher.api")
    wait_for_listener(address, port or TORCHRUN_PORT, AGENT_SECONDS)


def _flags(words: Sequence[str], program: int) -> dict[str, str]:
    """Torchrun's own options, named as its variables: those before the script."""
    found = {}
    for word, following in zip(words[program + 1 :], [*words[program + 2 :], ""]):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            found[name[2:].replace("-", "_").upper()] = value if equals else following
        elif word.endswith(".py"):
            break
    return found


def wait_for_listener(address: str, port: str, seconds: float) -> None:
    """Return when this port is listened on, or has not been for so long since the name was resolved."""
    try:
        found = socket.getaddrinfo(address, int(port), type=socket.SOCK_STREAM)  # As who asks does next.
    except (OSError, ValueError, OverflowError):
        return
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for family, kind, _, _, place in found:
            with socket.socket(family, kind) as one:
                one.settimeout(max(0.001, end - time.monotonic()))
                if not one.connect_ex(place):
                    return
        time.sleep(AGAIN_SECONDS)
