"""What keeps a worker from being forked: it is executed then, and the report says why. The worker never notices."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gangsidecar.supervisor import processes, warm_start
from gangsidecar.wire import Progress
from tests.pythons import FIRST_MINOR, every
from tests.sidecar.supervisor.supervised import is_alive, wait_for
from tests.sidecar.supervisor.warm import Warm, reporting

SAYS_HELLO = reporting("import sys", '["hello", "decimal" in sys.modules]')

HALF_A_LINE = """
import os, stat
for one in range(3, 30):
    try:
        is_socket = stat.S_ISSOCK(os.fstat(one).st_mode)
    except OSError:
        continue
    if is_socket:
        os.write(one, b"{")
        os.kill(os.getpid(), 19)
"""
"""A module that writes to the supervisor, and then stops."""


@pytest.fixture(autouse=True)
def installed(warm: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages that the tests install are found, as those in site-packages are."""
    monkeypatch.setenv("PYTHONPATH", str(warm.installed))
    warm.script.write_text(SAYS_HELLO)


def executed(warm: Warm, *, attempts: int = 1) -> str:
    """Run attempts, which are executed; returns why."""
    for _ in range(attempts):
        warm.run()
        assert warm.report()[0] == "hello"
        assert (warm.told.forked, warm.told.executed) == (0, 1)
    return warm.told.obstacle


def template_ends(warm: Warm) -> None:
    wait_for(lambda: "the template ends" in warm.member.log)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import threading, time; threading.Thread(target=time.sleep, args=(99,), name='poll', daemon=True).start()",
         "importing bad has started a thread (Python thread 'poll'): start it with Exec, or name the modules"),
        ("import subprocess; child = subprocess.Popen(['sleep', '100'])", "importing bad has started a process"),
        ("import os\nif os.fork() == 0: pass", "importing bad has started a process"),
        ("import socket; one = socket.socket()", "importing bad has opened a connection or a pipe (socket:["),
        ("import os; ends = os.pipe()", "importing bad has opened a connection or a pipe (pipe:["),
        ("import select; one = select.epoll()", "importing bad has opened a connection or a pipe (anon_inode:"),
        ("import mmap; one = mmap.mmap(-1, 4096)", "a preloaded module has mapped memory that processes share"),
        ("one = open('/dev/full', 'wb')", "importing bad has opened the device /dev/full: start it with Exec"),
        ("import os; os.chdir('/')", "importing bad has changed the working directory to /"),
        ("import os; os.umask(0o77)", "importing bad has set the umask to 0077"),
        (
            "import os\nfor one in range(3, 9):\n try: os.write(one, b'[1]\\n')\n except OSError: pass",
            "the template can't be understood: ValueError('a list')",
        ),
        (
            HALF_A_LINE,
            "the template can't be understood: TimeoutError('timed out')",
        ),
        ("import os; os._exit(3)", "the template was killed, or a preloaded module has ended it"),
        ("import os; os.kill(os.getpid(), 9)", "the template was killed, or a preloaded module has ended it"),
    ],
)  # fmt: skip
def test_an_import_that_can_not_be_forked_is_named(warm: Warm, code: str, said: str) -> None:
    warm.install("bad", code)
    warm.start(sys.executable, str(warm.script), preload="decimal,bad,email")
    template_ends(warm)
    assert executed(warm).startswith(said)
    warm.member.sidecar.send(Progress(warm.attempt, 1, 0))
    assert executed(warm).startswith(said)
    assert warm.member.log.count("the template ends") == 1, "another template would come to the same end"
    assert "the template is ready" not in warm.member.log


@pytest.mark.parametrize(
    "code",
    [
        "raise ImportError('no GPU here')",
        "import sys; sys.exit('usage')",
        "raise KeyboardInterrupt",
        "print('hello from a module')",
        "import sys; print(sys.stdin.read(), input)",
        "import signal; signal.signal(signal.SIGTERM, lambda *_: None); signal.signal(signal.SIGCHLD, signal.SIG_DFL)",
        "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        "import sys; sys.modules['__main__'] = None",
        "import os; os.environ.get('NO_SUCH'), os.environ['PATH'], 'HOME' in os.environ, dict(os.environ)",
        "import sys; sys.meta_path[:] = list(sys.meta_path)",
        "import sys; sys.stdout = None",
        "import sys\nclass Odd:\n def __getattr__(self, name): raise KeyError(name)\nsys.modules[__name__] = Odd()",
    ],
)
def test_what_a_module_does_at_import_does_not_reach_the_start(warm: Warm, code: str) -> None:
    warm.install("odd", code)
    warm.start(sys.executable, str(warm.script), preload="decimal,odd")
    warm.ready()
    warm.run()
    assert warm.report() == ["hello", True]
    assert warm.told.forked == 1


def test_what_c_has_printed_at_import_is_printed_once(warm: Warm, capfd: pytest.CaptureFixture[str]) -> None:
    warm.install("prints", "import ctypes; ctypes.CDLL(None).printf(b'from C')")
    warm.script.write_text("pass")
    warm.start(sys.executable, str(warm.script), preload="decimal,prints")
    warm.ready()
    warm.order()
    assert warm.member.ended().ends[-1].exit_code == 0
    assert warm.told.forked == 1
    assert capfd.readouterr().out.count("from C") == 1


@pytest.mark.parametrize("device", ["cuda", "xpu"])
def test_a_device_that_was_used_before_the_fork_is_not_used_after_it(warm: Warm, device: str) -> None:
    """As torch.cuda tells: https://github.com/pytorch/pytorch/blob/v2.6.0/torch/cuda/__init__.py."""
    package = warm.installed / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(f"from . import {device}")
    used = "import os\nused_by = os.getpid()\ndef _is_in_bad_fork(): return os.getpid() != used_by"
    (package / f"{device}.py").write_text(used)
    warm.start(sys.executable, str(warm.script), preload="decimal,torch")
    warm.ready()
    said = f"a preloaded module has used {device.upper()} (torch.{device} is in a bad fork)"
    assert executed(warm) == said


@pytest.mark.parametrize(
    "reads", ["os.environ['RANK']", "os.environ.get('RANK', '0')", "os.getenv('RANK')", "'RANK' in os.environ"]
)
def test_a_module_that_reads_the_rank_at_import_is_not_forked(warm: Warm, reads: str) -> None:
    warm.install("before", "")
    warm.install("logs", f"import os\nrank = {reads}")
    code = 'import sys; had = [name in sys.modules for name in ("before", "logs")]; import before, logs'
    warm.script.write_text(reporting(code, '["hello", logs.rank, *had]').replace('"GANG_ATTEMPT"', '"RANK"'))
    warm.start(sys.executable, str(warm.script))
    paths = [warm.member.folder / f"report-{rank}" for rank in range(2)]
    ranks = [True, True] if " in " in reads else ["0", "1"]

    def start(*, before: bool) -> None:
        for path in paths:
            path.unlink(missing_ok=True)
        warm.order({}, {})
        for path, rank in zip(paths, ranks, strict=True):
            assert wait_for(partial(told, path)) == ["hello", rank, before, False]

    start(before=False)
    warm.steps()
    start(before=False)
    assert warm.told.executed == 2
    assert warm.told.obstacle.startswith("importing logs reads RANK, which differs between attempts or processes: ")
    warm.member.sidecar.send(Progress(warm.attempt, 1, 0))
    wait_for(lambda: warm.member.log.count("the template is ready") == 2)
    start(before=True)
    assert warm.told.forked == 2, "without logs, which each process imports itself"


def told(path: Path) -> Any:
    """What a script has reported; nothing before that."""
    return json.loads(path.read_text() or "null") if path.exists() else None


def test_a_module_that_reads_a_variable_of_the_container_is_forked(warm: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAVOUR", "sweet")
    warm.install("flavoured", "import os\nflavour = os.environ['FLAVOUR'], os.environ.get('NO_SUCH')")
    warm.script.write_text(reporting("import flavoured", "flavoured.flavour"))
    warm.start(sys.executable, str(warm.script), preload="flavoured")
    warm.ready()
    warm.run()
    assert (warm.told.forked, warm.report()) == (1, ["sweet", None])


@pytest.mark.parametrize("preload", ["Auto", "decimal"])
def test_an_interpreter_that_is_too_old_runs_its_script_all_the_same(warm: Warm, preload: str) -> None:
    python = too_old()
    warm.script.write_text(
        'import json, os, sys; json.dump(["hello", sys.argv[1:], sys.flags.optimize], '
        'open(os.environ["DIR"] + "/report-" + os.environ["GANG_ATTEMPT"], "w"))'
    )
    warm.start(python, "-O", str(warm.script), "a", preload=preload)
    if preload != "Auto":
        template_ends(warm)
        assert "a template needs Python 3.8 or newer" in warm.member.log
    for _ in range(2):
        warm.run()
        assert warm.report() == ["hello", ["a"], 1]
        assert (warm.told.forked, warm.told.executed) == (0, 1)
        warm.member.sidecar.send(Progress(warm.attempt, 1, 0))


def too_old() -> str:
    """An interpreter before 3.8."""
    found = [path for minor, path in every().items() if minor < FIRST_MINOR]
    return found[0] if found else pytest.skip("this machine has no Python before 3.8")


def test_a_module_that_can_not_be_imported_is_told_with_the_start(warm: Warm) -> None:
    warm.start(sys.executable, str(warm.script), preload="decimal,no_such_module")
    warm.ready()
    warm.run()
    assert warm.told.forked == 1
    assert warm.told.not_imported == "no_such_module (ModuleNotFoundError: No module named 'no_such_module')"


@pytest.mark.parametrize(("signum", "oom"), [(signal.SIGKILL, False), (signal.SIGUSR1, True)])
def test_a_template_that_the_kernel_killed_is_not_taken_for_a_worker(
    warm: Warm, small_group: Path, signum: int, *, oom: bool
) -> None:
    (small_group / "memory.limit_in_bytes").write_text(str(400 << 20))
    takes = "import signal; signal.signal(signal.SIGUSR1, lambda *_: bytes(bytearray(range(256)) * (600 << 12)))"
    warm.install("greedy", takes)
    warm.start(sys.executable, str(warm.script), preload="greedy")
    template = warm.ready()
    worker = warm.run()
    assert warm.report()[0] == "hello"
    assert warm.told.forked == 1
    for pid in (warm.member.pid, template, worker):
        (small_group / "cgroup.procs").write_text(str(pid))
    os.kill(template, signal.SIGUSR1)
    template_ends(warm)
    assert "the template was killed" in warm.member.log
    assert is_alive(worker)
    os.kill(worker, signum)
    end = warm.member.ended().ends[-1]
    assert (end.signal, end.oom) == (signal.SIGKILL, oom)


def test_the_template_ends_with_the_supervisor(warm: Warm) -> None:
    warm.start(sys.executable, str(warm.script), preload="decimal")
    template = warm.ready()
    warm.run()
    warm.member.finish(warm.attempt)
    wait_for(partial(is_gone, template))
    assert processes.marked(warm.member.pod) == []


def test_a_template_that_was_killed_is_made_again_after_the_next_first_step(warm: Warm) -> None:
    warm.start(sys.executable, str(warm.script), preload="decimal")
    first = warm.ready()
    os.kill(first, signal.SIGKILL)
    template_ends(warm)
    assert executed(warm) == "the template was killed, or a preloaded module has ended it"
    warm.member.sidecar.send(Progress(warm.attempt, 1, 0))
    wait_for(lambda: warm.template != first)
    warm.run()
    assert warm.told.forked == 1


def test_a_template_that_does_not_answer_is_given_up(warm: Warm) -> None:
    warm.start(sys.executable, str(warm.script), preload="decimal")
    os.kill(warm.ready(), signal.SIGSTOP)
    assert executed(warm).startswith("the template did not answer within 2.0 s")
    assert not is_alive(warm.template)


def test_a_template_that_is_killed_as_it_forks_costs_an_exec(warm: Warm) -> None:
    warm.start(sys.executable, str(warm.script), preload="decimal")
    template = warm.ready()
    os.kill(template, signal.SIGSTOP)
    killer = os.fork()
    if killer == 0:  # While the supervisor waits for the answer.
        try:
            wait_for((warm.member.folder / "killed").exists)
        finally:
            os.kill(template, signal.SIGKILL)
            os._exit(0)
    (warm.member.folder / "killed").write_text("")
    assert executed(warm).startswith("the template ")
    os.waitpid(killer, 0)


def test_a_template_may_be_killed_at_any_moment_of_a_fork(warm: Warm) -> None:
    warm.start(sys.executable, str(warm.script), preload="decimal")
    for milliseconds in (0, 1, 2, 4, 6, 9, 13, 20):
        template = warm.ready()
        ready = warm.member.hold(warm.attempt + 1)
        killer = subprocess.Popen(["sh", "-c", f"sleep {milliseconds / 1000}; kill -9 {template}"])
        warm.attempt += 1
        warm.member.run(ready, {"GANG_ATTEMPT": str(warm.attempt)})
        assert warm.report()[0] == "hello"
        assert warm.told.forked + warm.told.executed == 1
        assert killer.wait() == 0
        wait_for(partial(is_gone, template))
        assert len(wait_for(lambda: processes.children(warm.member.pid))) == 1
        warm.member.sidecar.send(Progress(warm.attempt, 1, 0))
        wait_for(partial(is_replaced, warm, template))


def is_gone(pid: int) -> bool:
    return not is_alive(pid)


def is_replaced(warm: Warm, template: int) -> bool:
    return warm.template != template


def test_a_template_that_still_imports_is_not_waited_for(warm: Warm) -> None:
    warm.install("slow", f"import os, time\nwhile not os.path.exists({str(warm.script)!r} + '.go'): time.sleep(0.01)")
    warm.start(sys.executable, str(warm.script), preload="decimal,slow")
    assert executed(warm) == warm_start.TOO_SLOW
    warm.script.with_suffix(".py.go").write_text("")
    warm.steps()
    warm.run()
    assert warm.told.forked == 1, "it was made again after the first step"


@pytest.mark.parametrize(
    "command",
    [
        ("sh", "-c", 'exec "$0" "$1"', sys.executable, "SCRIPT"),
        (sys.executable, "-c", "import sys; exec(open(sys.argv[1]).read())", "SCRIPT"),
        ("env", sys.executable, "SCRIPT"),
        ("./train.sh", "SCRIPT"),
    ],
)
def test_a_command_that_is_not_python_with_a_script_is_executed(warm: Warm, command: tuple[str, ...]) -> None:
    shebang = warm.script.parent / "train.sh"
    shebang.write_text(f'#!/bin/sh\nexec {sys.executable} "$1"\n')
    shebang.chmod(0o755)
    words = [{"SCRIPT": str(warm.script), "./train.sh": str(shebang)}.get(word, word) for word in command]
    warm.start(*words, preload="decimal")
    assert executed(warm) == warm_start.NO_PYTHON


def test_a_script_beside_which_a_file_hides_a_preloaded_module_is_executed(warm: Warm) -> None:
    warm.install("shared", "value = 'installed'")
    own = warm.script.parent / "shared.py"
    own.write_text("value = 'mine'")
    warm.script.write_text(reporting("import shared", '["hello", shared.value]'))
    warm.start(sys.executable, str(warm.script), preload="decimal,shared")
    warm.ready()
    assert executed(warm).startswith(f"{own} hides the installed module shared")
    assert warm.report() == ["hello", "mine"]


def test_a_package_that_has_changed_is_imported_anew(warm: Warm) -> None:
    path = warm.install("versioned", "value = 1")
    warm.script.write_text(reporting("import versioned", '["hello", versioned.value]'))
    warm.start(sys.executable, str(warm.script), preload="versioned")
    warm.ready()
    path.write_text("value = 22")
    assert executed(warm) == f"the file of the preloaded module versioned has changed: {path}"
    assert warm.report() == ["hello", 22]
    warm.steps()
    wait_for(lambda: warm.member.log.count("the template is ready") == 2)
    warm.run()
    assert warm.told.forked == 1
    assert warm.report() == ["hello", 22]


def test_the_child_of_a_supervisor_that_was_killed_runs_nothing(warm: Warm) -> None:
    warm.start(sys.executable, str(warm.script), preload="decimal")
    template = warm.ready()
    os.kill(template, signal.SIGSTOP)
    ready, before = warm.member.hold(1), files(warm.member.pid)
    warm.member.sidecar.send(warm.member.order(ready, {"GANG_ATTEMPT": "1"}))
    wait_for(lambda: files(warm.member.pid) > before)
    os.kill(warm.member.pid, signal.SIGKILL)  # It has asked for the fork; the template answers only now.
    os.kill(template, signal.SIGCONT)
    wait_for(lambda: not is_alive(template))
    wait_for(lambda: processes.marked(warm.member.pod) == [])
    assert not list(warm.member.folder.glob("report-*"))


def test_the_next_session_ends_what_a_killed_one_has_forked(warm: Warm) -> None:
    warm.start(sys.executable, str(warm.script), preload="decimal")
    template, worker = warm.ready(), warm.run()
    assert warm.told.forked == 1
    os.kill(template, signal.SIGSTOP)  # It can't end by itself.
    os.kill(warm.member.pid, signal.SIGKILL)
    warm.member.wait()
    assert is_alive(worker)
    warm.start(sys.executable, str(warm.script), preload="decimal")
    assert not is_alive(worker)
    assert not is_alive(template)


def files(pid: int) -> int:
    """How many files a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_a_container_with_little_memory_gets_no_template(warm: Warm, small_group: Path) -> None:
    warm.start(sys.executable, str(warm.script))
    (small_group / "cgroup.procs").write_text(str(warm.member.pid))
    warm.run()
    warm.report()
    warm.member.sidecar.send(Progress(warm.attempt, 1, 0))
    assert re.fullmatch(r"the container's memory limit leaves \d+ MiB, and a template may take 512 MiB", executed(warm))


def test_a_container_that_gets_short_of_memory_gives_its_template_up(warm: Warm, small_group: Path) -> None:
    warm.start(sys.executable, str(warm.script), preload="decimal")
    template = warm.ready()
    (small_group / "cgroup.procs").write_text(str(warm.member.pid))
    wait_for(partial(is_gone, template))
    assert executed(warm).startswith("the container's memory limit left only ")


def test_no_process_descriptor_or_file_is_left_after_many_forks(warm: Warm) -> None:
    warm.start(sys.executable, str(warm.script), preload="decimal")
    template = warm.ready()
    warm.run()
    before = files(warm.member.pid), files(template)
    for _ in range(20):
        warm.run()
        assert warm.told.forked == 1
    assert (files(warm.member.pid), files(template)) == before
    assert len(processes.children(warm.member.pid)) == 2
    assert processes.children(template) == []
