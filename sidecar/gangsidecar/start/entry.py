"""Run a worker in the user's own interpreter, as if that had been started with it.

It runs from the supervisor's archive::

    python [FLAGS] -c ENTER ARCHIVE IMPORTS DESCRIPTOR COMMAND ...

This starts a template. COMMAND is what follows Python's own flags: a script with its arguments, or ``-m`` and a module.
The template doesn't run it: it shows what the template is for in lists of processes. A fork gets a COMMAND of its own.
IMPORTS is the file to which a fork's imports are appended; empty: nowhere.

What CPython does itself is in Modules/main.c (``pymain_run_python``). A traceback, an exit code and an end by SIGINT
are those of a plain start.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Set as AbstractSet
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType
from typing import Any, NamedTuple

ENTER = r"""
import sys
loaded = frozenset(sys.modules)
if sys.version_info < (3, 8):
    sys.exit("a template needs Python 3.8 or newer, not " + sys.version.split()[0])
sys.path.insert(0, sys.argv[1])
from gangsidecar.start.entry import main
main(sys.argv[2:], loaded)
"""
"""The program that calls :func:`main`."""
OURS = "gangsidecar"


def main(arguments: list[str], loaded: AbstractSet[str]) -> None:
    """Serve as a template; returns in a fork, and never in the template itself.

    ``loaded``: the modules that Python itself had loaded.
    """
    _hide_us()
    from gangsidecar.start.recorder import Recorder  # noqa: PLC0415 - each of them imports this module's names
    from gangsidecar.start.template import Template  # noqa: PLC0415

    imports, descriptor, *command = arguments
    recorder = Recorder(imports) if imports else None
    sys.argv[:] = Target.of(command).argv  # As modules that look at it find it in a start.
    template = Template(int(descriptor), loaded)  # Kept, since freeing it takes a child several milliseconds.
    command = template.serve()
    if recorder is not None:
        sys.meta_path.insert(0, recorder)
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = template.words or [*sys.orig_argv[: -len(arguments) - 3], *command]
    run(Target.of(command))


def _hide_us() -> None:
    """Take from ``sys.path`` the archive, and the working directory that ``-c`` has put there."""
    sys.path_importer_cache.pop(sys.path.pop(0), None)
    if sys.path[:1] == [""]:
        del sys.path[0]


class Target(NamedTuple):
    """The program that the interpreter is to run."""

    name: str
    """A script, a folder or archive with ``__main__.py``, or (with ``is_module``) a module."""
    folder: str
    """The working directory."""
    is_module: bool
    argv: list[str]

    @classmethod
    def of(cls, command: list[str], folder: str = "") -> Target:
        """Read a script with its arguments, or ``-m`` and a module with its arguments.

        ``folder``: the working directory; empty: that of this process.
        """
        folder = folder or os.getcwd()
        if command[0] == "-m":
            return cls(command[1], folder, is_module=True, argv=["-m", *command[2:]])
        # As CPython completes it from 3.9 on (Python/fileutils.c, ``_Py_abspath``).
        name = command[0] if sys.version_info < (3, 9) else os.path.join(folder, command[0])
        return cls(name, folder, is_module=False, argv=command)

    @property
    def first_in_path(self) -> str:
        """The entry that the interpreter puts first into ``sys.path``; empty if none."""
        safe = sys.flags.isolated or getattr(sys.flags, "safe_path", False)
        if self.is_module:
            return "" if safe else self.folder
        if self.is_script:
            return "" if safe else _folder_of(self.name)
        return self.name if os.path.exists(self.name) else ""  # Also where paths are safe: CPython looks there for it.

    @property
    def is_script(self) -> bool:
        """Return whether it is a file, or a pipe, that is compiled or executed itself."""
        exists = os.path.exists(self.name) and not os.path.isdir(self.name)
        return not self.is_module and exists and not _is_archive(self.name)


def _folder_of(script: str) -> str:
    """As CPython finds it (Python/pathconfig.c, ``_PyPathConfig_ComputeSysPathArg0``): a pipe has no real path."""
    link = os.readlink(script) if os.path.islink(script) else ""
    path = os.path.join(os.path.dirname(script), link) if "/" in link else script
    real = os.path.realpath(path)
    return os.path.dirname(real if os.path.exists(real) else path)


def run(target: Target) -> None:
    """Run it as ``__main__``. Returns when its last statement is done; the interpreter then ends as it always does.

    SystemExit: it asked for that, or it failed; a failure has been printed.
    """
    module = _fresh_main()
    sys.argv[:] = target.argv
    try:
        _run(target, module)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - what nothing has caught
        _uncaught(error)


def _run(target: Target, module: ModuleType) -> None:
    first = target.first_in_path
    if first:
        sys.path.insert(0, first)
    if target.is_module:
        _run_package(target.name)
    elif target.is_script:
        _run_script(target.name, module)
    elif first:
        _run_package("__main__", alter_arguments=False)
    else:
        sys.stderr.write(f"{sys.executable}: can't open file {target.name!r}: [Errno 2] No such file or directory\n")
        raise SystemExit(2)


def _fresh_main() -> ModuleType:
    """An empty ``__main__``. Our own modules are forgotten; those that still run are kept alive by their frames.

    It stays the same object: a preloaded module may have it.
    """
    module = sys.modules.get("__main__")
    if not isinstance(module, ModuleType):
        module = sys.modules["__main__"] = ModuleType("__main__")
    module.__dict__.clear()
    module.__init__("__main__")  # type: ignore[misc]
    module.__dict__.update(__builtins__=builtins, __annotations__={})
    for name in [name for name in sys.modules if name == OURS or name.startswith(OURS + ".")]:
        del sys.modules[name]
    return module


def _is_archive(path: str) -> bool:
    """Return whether it is an archive. Only regular files are opened: a pipe can be read once."""
    from zipimport import ZipImportError, zipimporter  # noqa: PLC0415 - only if a script is run

    try:
        zipimporter(path)
    except ZipImportError:
        return False
    return True


def _run_script(path: str, module: ModuleType) -> None:
    loader = SourceFileLoader("__main__", path)
    module.__dict__.update(__file__=path, __cached__=None, __loader__=loader)
    if path.endswith(".pyc"):
        import marshal  # noqa: PLC0415 - hardly any script is compiled

        with open(path, "rb") as file:
            code = marshal.loads(file.read()[16:])  # noqa: S302 - the user's own program
    else:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102 - this is what it is for


def _run_package(name: str, *, alter_arguments: bool = True) -> None:
    import runpy  # noqa: PLC0415 - as CPython does, for ``-m`` alone

    run_as_main: Any = runpy._run_module_as_main  # type: ignore[attr-defined]  # noqa: SLF001 - what ``-m`` itself calls
    run_as_main(name, alter_arguments)


def _uncaught(error: BaseException) -> None:
    """Report it by the hook that is set now, without the frames above the user's first; then raise SystemExit."""
    traceback: TracebackType | None = error.__traceback__
    ours = {_uncaught.__code__.co_filename, "<frozen runpy>", getattr(sys.modules.get("runpy"), "__file__", None)}
    while traceback is not None and traceback.tb_frame.f_code.co_filename in ours:
        traceback = traceback.tb_next
    sys.excepthook(type(error), error.with_traceback(traceback), traceback)
    if isinstance(error, KeyboardInterrupt):
        _end_by_sigint()
    raise SystemExit(1)


def _end_by_sigint() -> None:
    """As CPython: threads and ``atexit`` first, then the default action of the signal."""
    import atexit  # noqa: PLC0415 - hardly ever needed
    import signal  # noqa: PLC0415

    threading: Any = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()  # noqa: SLF001 - what the interpreter itself calls
    atexit._run_exitfuncs()  # noqa: SLF001 - as above
    sys.stdout.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
