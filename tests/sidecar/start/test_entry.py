"""A worker that may be forked later starts as Python itself starts it: the same output, errors and end."""

from __future__ import annotations

import re
import subprocess
import sys
import zipapp
from pathlib import Path

import pytest

from gangsidecar import install
from tests.pythons import oldest
from tests.wait import SECONDS

FORKED = """\
import sys
sys.path.insert(0, sys.argv[1])
from gangsidecar.start import entry
entry._hide_us()
if hasattr(sys, "orig_argv"):
    sys.orig_argv[-len(sys.argv) - 1:] = sys.argv[2:]
entry.run(entry.Target.of(sys.argv[2:]))
"""
"""What a fork does last."""
TELLS = """\
import atexit, os, sys, threading
atexit.register(print, "the end")
threading.Thread(target=lambda: (threading.main_thread().join(), print("a thread"))).start()
print(__name__, __file__, sys.argv, sys.path, __package__, __spec__ and __spec__.name, __cached__, __loader__.__class__)
print(sys.flags, sorted(globals()), getattr(sys, "orig_argv", [0])[1:], sys.modules["__main__"].__dict__ is globals())
"""
ENDS = {
    "an exception": "def f(): g()\ndef g(): raise ValueError('no')\nf()",
    "a chain of exceptions": "try: 1 / 0\nexcept ZeroDivisionError as error: raise KeyError('no') from error",
    "an exception of a hook": "import sys\nsys.excepthook = lambda kind, *_: print('my hook', kind)\nraise ValueError",
    "a syntax error": "1 +",
    "a code": "import sys; sys.exit(3)",
    "a text": "import sys; sys.exit('no')",
    "an interrupt": "import atexit; atexit.register(print, 'the end')\nraise KeyboardInterrupt",
    "a signal": "import os; os.kill(os.getpid(), 9)",
    "an abrupt end": "import os; os._exit(4)",
    "an error at the end": "import atexit; atexit.register(lambda: 1 / 0)",
    "a thread that goes on": "import threading, time\nthreading.Timer(0.1, lambda: print(1)).start()",
    "an own main module": "import sys; sys.modules['__main__'] = None; print(1)",
    "a future import": "from __future__ import annotations\ndef f(x: no): pass\nprint(f.__annotations__)",
    "an encoding": "# coding: latin-1\nprint(len('\xe9'))",
    "no future import of ours": "def f(x: int): pass\nprint(f.__annotations__)",
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "supervisor.pyz"
    install.build_archive(path)
    return path


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A folder with a script, a package, a folder and an archive that can be run."""
    (tmp_path / "train.py").write_text(TELLS)
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("print('the package')")
    (package / "__main__.py").write_text(TELLS + "from . import other")
    (package / "other.py").write_text("print(__name__)")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "__main__.py").write_text(TELLS + "import beside")
    (folder / "beside.py").write_text("print(__name__)")
    zipapp.create_archive(folder, tmp_path / "app.pyz")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link.py").symlink_to(package / "other.py")
    return tmp_path


def compare(
    python: str, archive: Path, folder: Path, flags: list[str], command: list[str], given: str = ""
) -> tuple[int, str, str]:
    """Run it in both ways, with this as its input; returns what both gave."""

    def run(*words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [python, *flags, *words],
            cwd=folder,
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        return done.returncode, done.stdout, re.sub("0x[0-9a-f]+", "0x", done.stderr)

    plain = run(*command)
    assert run("-c", FORKED, str(archive), *command) == plain
    return plain


@pytest.mark.parametrize(
    "command",
    [
        ["train.py"],
        ["./train.py", "--lr", "1"],
        ["link.py"],
        ["-m", "pkg", "-m", "x"],
        ["-m", "pkg.other"],
        ["folder", "a"],
        ["app.pyz", "a"],
        ["missing.py"],
        ["empty"],
        ["-m", "missing"],
        ["-m", "empty"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("flags", [[], ["-I"], ["-O", "-X", "utf8"]], ids=str)
def test_what_is_run_can_not_tell(archive: Path, code: Path, flags: list[str], command: list[str]) -> None:
    compare(sys.executable, archive, code, flags, command)


@pytest.mark.parametrize("name", ENDS)
def test_it_ends_as_with_python_itself(archive: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "train.py").write_text(ENDS[name], encoding="latin-1")
    compare(sys.executable, archive, tmp_path, [], ["train.py"])


@pytest.mark.parametrize("python", [sys.executable, oldest()[1]])
@pytest.mark.parametrize("end", ["", ENDS["an exception"], ENDS["a syntax error"], ENDS["a code"]])
def test_a_script_in_a_pipe_is_run_and_ends_as_with_python_itself(
    archive: Path, tmp_path: Path, python: str, end: str
) -> None:
    compare(python, archive, tmp_path, [], ["/dev/stdin", "x"], TELLS + end)


def test_the_oldest_python_of_this_machine_runs_it_too(archive: Path, code: Path) -> None:
    _, python = oldest()
    returncode, out, _ = compare(python, archive, code, [], ["train.py", "x"])
    assert (returncode, "the end" in out) == (0, True)
