"""Find what keeps a template from being forked: each would make the child differ from a process that was just started.

A thread that the child does not have may hold a lock that is never released; a device's driver, a connection and a
shared mapping belong to one process. A module that reads, at import, a variable that differs between attempts or
processes, such as RANK, keeps what would be wrong in every fork. So while the template imports, ``os.environ`` notes
each name that is read; what C code reads, and copies of the whole environment, are not seen.

The answer is a sentence that names what was found, and says what to do.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from importlib.machinery import all_suffixes
from typing import Any, Dict, NamedTuple, Set, Tuple

from gangsidecar.start.link import ONLY_TEMPLATE, READ_EARLY, depends_on_folder

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"

NO_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts/", "/dev/console")
"""Character devices that may be shared. All others are taken for what a process must have opened itself."""
ENDS_SECONDS = 0.1
"""The kernel still lists a thread for a moment after it was joined."""
ADVICE = "start it with Exec, or name the modules without this one in preload"


Version = Tuple[str, int, int]
"""File, time of change in ns, and size."""
_Environ: Any = type(os.environ)
_reads: Dict[str, str] = {}
"""Variable -> the module whose import has read it first."""
_importing = ""
_changed: Set[str] = set()
"""Variables that the program changes before it imports what is imported next."""
_misread: Dict[str, str] = {}
"""Such a variable -> the module whose import has read it."""
_copied = ""
"""The variable that a copy of the environment reads next."""


class Surroundings(NamedTuple):
    """The surroundings of a start, taken before anything was preloaded."""

    folder: str
    umask: int
    files: AbstractSet[int]
    shared: int
    """The number of mappings that are shared and can be written."""

    @classmethod
    def now(cls) -> Surroundings:
        """Those of this process."""
        return cls(os.getcwd(), _umask(), {number for number, _ in _files()}, _shared_mappings())


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def left_open(before: Surroundings, ours: Sequence[int] = (), by: str = "a preloaded module") -> str:
    """Name the first thing that a child can't share or does not have; empty if there is none.

    ``ours``: files that the template itself has opened since ``before``; ``by``: what has caused it.
    """
    expected = {*before.files, *ours}
    found = (
        _thread()
        or _child()
        or next(filter(None, (_file(number, path) for number, path in _files() if number not in expected)), "")
        or _changed_surroundings(before)
    )
    return f"{by} {found}: {ADVICE}" if found else ""


def shares_memory(before: Surroundings) -> str:
    """Say that a module has mapped memory that all children would write to; empty if none has."""
    found = _shared_mappings() > before.shared
    return f"a preloaded module has mapped memory that processes share: {ADVICE}" if found else ""


_SAME = (
    *("exe", "cgroup", "personality", "attr/current"),
    *(f"ns/{name}" for name in ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")),
)
"""Files of a process in /proc: what they are, or say, is inherited, and can't be given to a child."""
_STATUS = ("Uid:", "Gid:", "Groups:", "NoNewPrivs:", "Seccomp:", "Cap", "TracerPid:")
_BUFFERS = "PYTHONUNBUFFERED"


def differs(pid: int, template: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Say how another process differs from this one in what a child of this one can't become; empty if it doesn't."""
    for name in {*template, *environment} - {_BUFFERS, *ONLY_TEMPLATE}:
        if READ_EARLY.fullmatch(name) and template.get(name) != environment.get(name):
            return f"{name} is not what the template began with"
    own, other = _inherited(os.getpid()), _inherited(pid)
    for name, value in own.items():
        if other[name] != value:
            return f"{name} is not that of the template ({other[name]!r}, {value!r})"
    began, starts = _shown("/proc/self/cwd"), _shown(f"/proc/{pid}/cwd")
    if depends_on_folder(environment) and began != starts:
        return f"PYTHONPATH has an empty or relative entry, and the template began in {began}, not in {starts}"
    return "it has children" if _has_children(pid) else ""


def _inherited(pid: int) -> Dict[str, str]:
    found = {name: _shown(f"/proc/{pid}/{name}") for name in _SAME}
    status = _shown(f"/proc/{pid}/status").splitlines()
    found.update((line.partition(":")[0], line.rstrip()) for line in status if line.startswith(_STATUS))
    root = os.stat(f"/proc/{pid}/root")
    found["root"] = f"{root.st_dev}:{root.st_ino}"
    found["scheduler"] = str(os.sched_getscheduler(pid))
    found["memory policy"] = " ".join(_shown(f"/proc/{pid}/numa_maps").partition("\n")[0].split()[1:2])
    return found


def _shown(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        pass
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _has_children(pid: int) -> bool:
    """Return whether it has other children than filters, as of bash's ``> >(tee log)``: no program knows of those."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return not all(_is_filter(int(child), pid) for child in file.read().split())
    except OSError:
        return False


def _is_filter(child: int, pid: int) -> bool:
    """Return whether it reads what the process prints, or writes what that reads."""
    reads, prints, errors = (_pipe(pid, number) for number in range(3))
    return _pipe(child, 0) in {prints, errors} - {""} or _pipe(child, 1) in {reads} - {""}


def _pipe(pid: int, number: int) -> str:
    try:
        found = os.readlink(f"/proc/{pid}/fd/{number}")
    except OSError:
        return ""
    return found if found.startswith("pipe:") else ""


def _thread() -> str:
    threads, end = os.listdir("/proc/self/task"), time.monotonic() + ENDS_SECONDS
    while len(threads) > 1 and threading.active_count() == 1 and time.monotonic() < end:
        time.sleep(0.001)
        threads = os.listdir("/proc/self/task")
    if len(threads) == 1:
        return ""
    named = [one.name for one in threading.enumerate() if one is not threading.current_thread()]
    others = [_comm(thread) for thread in threads if int(thread) != os.getpid()]
    what = f"Python thread {named[0]!r}" if named else f"thread {others[0] if others else '?'!r} of a library"
    return f"has started a thread ({what})"


def _comm(thread: str) -> str:
    try:
        with open(f"/proc/self/task/{thread}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "?"


def _child() -> str:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return ""
    return "has started a process"


def _files() -> list[tuple[int, str]]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append((int(name), os.readlink(f"/proc/self/fd/{name}")))
        except OSError:
            continue  # The one with which the folder was listed.
    return found


def _file(number: int, path: str) -> str:
    """Ordinary files and /dev/null may stay open: a child reads on from where the template was."""
    try:
        mode = os.fstat(number).st_mode
    except OSError:
        return ""
    if stat.S_ISCHR(mode):
        return "" if path.startswith(NO_DEVICES) else f"has opened the device {path}"
    return "" if stat.S_ISREG(mode) else f"has opened a connection or a pipe ({path})"


def _shared_mappings() -> int:
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        return sum(line.split(None, 2)[1] in {"rw-s", "rwxs", "-w-s"} for line in file)


def _changed_surroundings(before: Surroundings) -> str:
    if os.getcwd() != before.folder:
        return f"has changed the working directory to {os.getcwd()}"
    return "" if _umask() == before.umask else f"has set the umask to {_umask():04o}"


def versions(names: Sequence[str]) -> dict[str, Version]:
    """The version of each of these modules that is a file."""
    found = {}
    for name in names:
        version = _version(_file_of(name))
        if version is not None:
            found[name] = version
    return found


def _file_of(name: str) -> str:
    try:
        path = getattr(sys.modules[name], "__file__", None)
    except Exception:  # noqa: BLE001 - an object in sys.modules may be anything, and raise anything
        return ""
    return path if isinstance(path, str) else ""


def _version(path: str) -> Version | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return path, status.st_mtime_ns, status.st_size


def changed(modules: dict[str, Version]) -> str:
    """Name the first of these modules whose file is no longer what it was; empty if there is none."""
    for name, version in modules.items():
        if _version(version[0]) != version:
            return f"the file of the preloaded module {name} has changed: {version[0]}"
    return ""


def shadowed(folder: str, loaded: AbstractSet[str]) -> str:
    """Name the first preloaded module in place of which a start would import a file of the user; empty if none.

    ``folder`` comes first in the worker's ``sys.path``; no start looks there for what Python itself has ``loaded``.
    """
    try:
        entries = os.listdir(folder) if folder else []
    except OSError:
        return ""  # An archive: what is in it is seldom named as an installed module.
    preloaded = {name for name in sys.modules if "." not in name and name not in loaded}
    for entry in entries:
        name, dot, suffix = entry.partition(".")
        path = os.path.join(folder, entry)
        if name not in preloaded or not (dot + suffix in all_suffixes() or os.path.isfile(f"{path}/__init__.py")):
            continue
        if not _file_of(name).startswith(os.path.join(folder, "")):
            return f"{path} hides the installed module {name}, which was preloaded: rename it, or start with Exec"
    return ""


class _Watched(_Environ):  # type: ignore[misc]
    """``os.environ`` while modules are imported. It answers as before."""

    def __getitem__(self, key: str) -> str:
        if isinstance(key, str):  # subprocess also asks for b"PATH", which is an error.
            _reads.setdefault(key, _importing)
            if key in _changed and key != _copied:
                _misread.setdefault(key, _importing)
        value: str = super().__getitem__(key)
        return value

    def __iter__(self) -> Iterator[str]:
        global _copied  # noqa: PLW0603 - as above
        for key in super().__iter__():
            _copied = key
            yield key
        _copied = ""


def changed_by_program(name: str, *, late: bool) -> None:
    """Note that the program changes this variable now; ``late``: or before something that was imported already."""
    _changed.add(name)
    if late and name in _reads:
        _misread.setdefault(name, _reads[name])


def misread() -> Tuple[str, str]:
    """Return the first module that has read a variable as the program did not leave it, and a sentence about it."""
    for name, module in _misread.items():
        return module, f"importing {module} reads {name}, which the program changes before: {ADVICE}"
    return "", ""


def importing(module: str) -> None:
    """Note what this module reads; empty: the imports are over."""
    global _importing  # noqa: PLW0603 - there is one environment
    _importing = module
    os.environ.__class__ = _Watched if module else _Environ


def stale(template: Mapping[str, str], environment: Mapping[str, str]) -> Tuple[str, str]:
    """Return the first module that has read another value than a start would have found, and a sentence about it.

    A launcher's imports may set what its ranks then find: as in the template, where the same import has set it. That
    PyTorch's default is set changes nothing.
    """
    for name, module in _reads.items():
        found = {template.get(name), os.environ.get(name)}
        if name in ONLY_TEMPLATE or environment.get(name) in found:
            continue
        if name != CACHE_VARIABLE or not {environment.get(name), *found} <= {None, _torchs_cache()}:
            return module, f"importing {module} reads {name}, which differs between attempts or processes"
    return "", ""


def _torchs_cache() -> str:
    """As torch/_inductor/runtime/cache_dir_utils.py names it; PyTorch 2.15 tells its children."""
    import getpass  # noqa: PLC0415 - a fork must have no module that its program has not: PyTorch has all three
    import re  # noqa: PLC0415
    import tempfile  # noqa: PLC0415

    try:
        user = getpass.getuser()
    except (KeyError, ImportError, OSError):
        user = f"uid_{os.getuid()}"
    return os.path.join(tempfile.gettempdir(), "torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user))
