"""A forked worker is compared with a plain start of the same interpreter, for each Python that this machine has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pythons import FIRST_MINOR, LAST_MINOR, every
from tests.sidecar.supervisor.warm import Warm
from tests.wait import SECONDS

TELLS = """\
import os, sys
out = os.open(os.environ["DIR"] + "/out-" + os.environ["NAME"], os.O_WRONLY | os.O_CREAT, 0o600)
os.dup2(out, 1), os.dup2(out, 2), os.close(out)
import atexit, faulthandler, gc, inspect, json, pickle, random, resource, signal, threading, decimal, preloaded
parking = os.environ.pop("GANG_PARKING", "-1:").partition(":")[0]  # Each process of a worker has its own.
class Point: pass
atexit.register(print, "the end")
print(json.dumps({
    "argv": sys.argv, "original": getattr(sys, "orig_argv", []), "path": sys.path, "flags": list(sys.flags),
    "options": [sys.warnoptions, sys._xoptions], "environment": dict(os.environ), "hash": hash("gang"),
    "main": [__name__, __file__, str(__spec__), type(__loader__).__name__, __doc__, __package__, sorted(globals())],
    "is main": sys.modules["__main__"].__dict__ is globals(), "held": decimal is sys.modules["decimal"],
    "source": inspect.getsource(Point), "pickled": type(pickle.loads(pickle.dumps(Point()))).__module__,
    "ours": sorted(name for name in sys.modules if "gang" in name),
    "meta": [type(one).__name__ for one in sys.meta_path],
    "handlers": [str(signal.getsignal(one)) for one in sorted(signal.valid_signals())],
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "timer": signal.getitimer(signal.ITIMER_REAL),
    "threads": [os.listdir("/proc/self/task") == [str(os.getpid())], threading.active_count(),
                threading.current_thread() is threading.main_thread(), threading.current_thread().name],
    "files": sorted({one for one in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + one)} - {parking}),
    "stdio": [[one.encoding, one.errors, one.line_buffering, one.mode, one.isatty()]
              for one in (sys.stdin, sys.stdout, sys.stderr)],
    "stdin": [os.readlink("/proc/self/fd/0"), sys.stdin.read()], "cwd": os.getcwd(), "umask": os.umask(0o22),
    "session": os.getpid() == os.getsid(0) == os.getpgrp(), "nice": os.nice(0), "cores": len(os.sched_getaffinity(0)),
    "limits": [resource.getrlimit(one) for one in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_AS)],
    "at import": [preloaded.main is sys.modules["__main__"], preloaded.argv], "ids": [os.getuid(), os.getgid()],
    "hooks": [sys.excepthook is sys.__excepthook__, sys.getrecursionlimit(), gc.isenabled(), gc.get_threshold(),
              faulthandler.is_enabled(), sys.dont_write_bytecode, hasattr(sys, "tracebacklimit")],
}, sort_keys=True), flush=True)
"""
ENDS = {
    "its last line": "",
    "a code": "sys.exit(7)",
    "a text": "sys.exit('no')",
    "an exception": "def f(): raise ValueError('no')\ntry: f()\nexcept ValueError as error: raise KeyError from error",
    "an abrupt end": "os._exit(4)",
    "a thread that goes on": "threading.Timer(0.05, lambda: print('late')).start()",
    "an uncaught signal": "os.kill(os.getpid(), signal.SIGTERM)",
    "a fault": "faulthandler.disable(); os.kill(os.getpid(), signal.SIGSEGV)",
    "an interrupt": "os.kill(os.getpid(), signal.SIGINT)\nimport time; time.sleep(9)",
    "a broken pipe": "ends = os.pipe(); os.close(ends[0]); os.write(ends[1], b'x')",
}
FLAGS = ("-u", "-O", "-X", "faulthandler", "-W", "error::UserWarning")


@pytest.mark.parametrize(
    "minor",
    [
        pytest.param(minor, marks=[] if minor in {FIRST_MINOR, sys.version_info.minor} else pytest.mark.nightly)
        for minor in range(FIRST_MINOR, LAST_MINOR + 1)
    ],
    ids="3.{}".format,
)
def test_a_forked_worker_is_as_python_itself_starts_it(warm: Warm, minor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    python = every().get(minor)
    if python is None:
        pytest.skip(f"this machine has no Python 3.{minor}")
    monkeypatch.setenv("PYTHONHASHSEED", "3")
    monkeypatch.setenv("PYTHONPATH", str(warm.installed))
    warm.install("preloaded", "import __main__ as main, sys\nargv = list(sys.argv)")
    command = (python, *FLAGS, str(warm.script), "--lr", "1")
    warm.script.write_text("")
    warm.start(*command, preload="decimal,inspect,json,pickle,random,threading,email.parser,preloaded")
    warm.ready()
    for number, (name, code) in enumerate(ENDS.items()):
        warm.script.write_text(TELLS + code)
        warm.order({"NAME": f"forked-{number}"})
        assert (warm.told.forked, warm.told.executed) == (1, 0), warm.told.obstacle
        end = warm.member.sidecar.until(lambda told: any(one.attempt == warm.attempt for one in told.ends)).ends[-1]
        forked, said = told(warm.member.folder / f"out-forked-{number}")
        environment = {**forked["environment"], "NAME": f"plain-{number}"}
        words = ["env", "--default-signal", *command]
        done = subprocess.run(
            words, env=environment, stdin=subprocess.DEVNULL, start_new_session=True, check=False, timeout=SECONDS
        )
        plain, expected = told(warm.member.folder / f"out-plain-{number}")
        assert (end.exit_code, end.signal) == ends(done.returncode), name
        assert said == expected, name
        for each in (plain, forked):
            assert each["environment"].pop("NAME")
        assert forked == plain, name


def told(path: Path) -> tuple[dict[str, Any], str]:
    """The report of a script, and what it has printed after that."""
    report, _, rest = path.read_text().partition("\n")
    return json.loads(report), rest


def ends(returncode: int) -> tuple[int | None, int | None]:
    """The exit code and the signal."""
    return (returncode, None) if returncode >= 0 else (None, -returncode)
