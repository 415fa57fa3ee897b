"""What keeps a worker from being forked: it is executed then, and the report says why. The worker never notices."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from gangsidecar.supervisor import processes, warm_start
from gangsidecar.wire import Progress
from tests.sidecar.supervisor.supervised import is_alive, state, text, wait_for
from tests.sidecar.supervisor.warm import Warm, executed, is_gone, reporting, template_ends

pytestmark = pytest.mark.usefixtures("greeting")

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
            "the template can't be understood: ",
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


def used_device(warm: Warm, device: str, files: list[str]) -> None:
    """As torch.cuda tells: https://github.com/pytorch/pytorch/blob/v2.6.0/torch/cuda/__init__.py."""
    package = warm.installed / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(f"from . import {device}")
    (package / f"{device}.py").write_text(
        "import os\nlisted, used_by = os.listdir, os.getpid()\n"
        f"os.listdir = lambda at='.': {files} if at == '/dev' else listed(at)\n"
        "def _is_in_bad_fork(): return os.getpid() != used_by"
    )
    warm.start(sys.executable, str(warm.script), preload="decimal,torch")
    warm.ready()


@pytest.mark.parametrize("device", ["cuda", "xpu"])
def test_a_device_that_was_used_before_the_fork_is_not_used_after_it(warm: Warm, device: str) -> None:
    used_device(warm, device, ["null", "nvidia0"])
    said = f"a preloaded module has used {device.upper()} (torch.{device} is in a bad fork)"
    assert executed(warm) == said


def test_to_ask_for_a_gpu_where_there_is_none_is_not_to_use_it(warm: Warm) -> None:
    used_device(warm, "cuda", ["null", "nvme0"])
    warm.run()
    assert warm.told.forked == 1


def test_the_template_ends_with_the_supervisor(warm: Warm) -> None:
    warm.start(sys.executable, str(warm.script), preload="decimal")
    template = warm.ready()
    warm.run()
    warm.member.finish(warm.attempt)
    wait_for(partial(is_gone, template))
    assert processes.find_marked(warm.member.pod) == []


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
        wait_for(lambda: len(processes.children(warm.member.pid)) == 1)  # A half-made fork ends by itself.
        warm.member.sidecar.send(Progress(warm.attempt, 1, 0))
        wait_for(partial(is_replaced, warm, template))


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


def test_a_command_that_is_not_python_with_a_script_is_executed(warm: Warm) -> None:
    words = (sys.executable, "-c", "import sys; exec(open(sys.argv[1]).read())", str(warm.script))
    warm.start(*words, preload="decimal")
    warm.run()
    assert warm.report()[0] == "hello"
    assert (warm.told.forked, warm.told.executed, warm.told.obstacle) == (0, 1, warm_start.NO_PYTHON)


def test_a_python_that_reads_no_hook_says_what_to_do(warm: Warm) -> None:
    warm.start(sys.executable, "-I", str(warm.script))
    assert executed(warm) == warm_start.NO_HOOK


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


@pytest.mark.parametrize("answered", [False, True])
def test_the_child_of_a_supervisor_that_was_killed_runs_nothing(warm: Warm, *, answered: bool) -> None:
    warm.start(sys.executable, str(warm.script), preload="decimal")
    template = warm.ready()
    os.kill(template, signal.SIGSTOP)
    ready, before = warm.member.hold(1), files(warm.member.pid)
    warm.member.sidecar.send(warm.member.order(ready, {"GANG_ATTEMPT": "1"}))
    # Of the link's two ends it has one left, and waits: it has sent the other, and with it what it asks for.
    wait_for(lambda: files(warm.member.pid) == before + 1 and state(warm.member.pid) == "S")
    if answered:
        os.kill(warm.member.pid, signal.SIGSTOP)
        os.kill(template, signal.SIGCONT)
        wait_for(lambda: sum(map(_waits_for_a_word, processes.children(warm.member.pid))) == 2 or _reports(warm))
    os.kill(warm.member.pid, signal.SIGKILL)  # It has asked for the fork; else the template answers only now.
    os.kill(template, signal.SIGCONT)
    wait_for(lambda: not is_alive(template))
    wait_for(lambda: processes.find_marked(warm.member.pod) == [])
    assert _reports(warm) == []


def _waits_for_a_word(pid: int) -> bool:
    """Whether the process is blocked on a socket of this machine: a template, and a child that it has forked."""
    return text(Path(f"/proc/{pid}/wchan")).startswith("unix_stream")


def _reports(warm: Warm) -> list[Path]:
    return list(warm.member.folder.glob("report-*"))


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


def test_no_process_descriptor_or_file_is_left_after_many_forks(warm: Warm) -> None:
    warm.start(sys.executable, str(warm.script), preload="decimal")
    template = warm.ready()
    warm.run()
    before = files(warm.member.pid), files(template)
    for _ in range(20):
        warm.run()
        assert warm.told.forked == 1
    # The template closes its end of a fork's link, and reaps what is between, once the child has answered.
    wait_for(lambda: files(warm.member.pid) <= before[0] and files(template) <= before[1])
    wait_for(lambda: len(processes.children(warm.member.pid)) == 2 and processes.children(template) == [])
