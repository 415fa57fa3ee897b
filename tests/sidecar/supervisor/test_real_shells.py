"""What a Python gets below a shell, by the shell's own means: a fork has it as the program that the shell executes."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import venv
from functools import partial
from pathlib import Path

import pytest

from gangsidecar.supervisor import processes, warm_start
from gangsidecar.wire import Progress, Source
from tests.sidecar.supervisor.supervised import is_alive, text, wait_for
from tests.sidecar.supervisor.test_handover import LAUNCHER, SAYS, ended, forked, said, started, warmed, words
from tests.sidecar.supervisor.warm import WAITS, Warm, reporting

PRINTS = SAYS + f"print('step', os.environ['GANG_ATTEMPT'])\nsay()\n{WAITS}"
"""It never flushes."""
UNBUFFERED: dict[str, tuple[str, dict[str, str], Source | None]] = {
    "-u": ('"$$0" -u "$$1"', {}, None),
    "a variable of the image": ('"$$0" "$$1"', {"PYTHONUNBUFFERED": "1"}, None),
    "a variable of the shell": ('PYTHONUNBUFFERED=1 "$$0" "$$1"', {}, None),
    "steps are read from the output": ('"$$0" "$$1"', {}, Source(pattern="step (?P<step>[0-9]+)")),
}


@pytest.mark.parametrize("how", UNBUFFERED)
def test_a_line_of_a_fork_comes_when_it_is_printed(warm: Warm, how: str, tmp_path: Path) -> None:
    """A log that comes late is lost with SIGKILL, and a step that comes late is taken for a hang."""
    shell, variables, source = UNBUFFERED[how]
    member, path = warm.member, tmp_path / "output"
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    member.environment = {**plain, **variables}
    member.stdout = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    warm.script.write_text(PRINTS)
    warm.start(*words(warm, "sh", "-c", f"{shell}; true", "PYTHON", "SCRIPT"))
    for attempt in (1, 2):
        warm.attempt = attempt
        member.run(member.hold(attempt), {"GANG_ATTEMPT": str(attempt)}, source=source)
        wait_for(partial(said, warm, attempt))
        wait_for(partial(_has_line, path, f"step {attempt}"))
        if attempt == 1:
            warm.steps()
    forked(warm)
    os.close(member.stdout)


def _has_line(path: Path, line: str) -> bool:
    return line in text(path).splitlines()


UNASKED = {
    "a flag": ('"$$0" -I "$$1"', warm_start.NO_HOOK),
    "a new PYTHONPATH": ('export PYTHONPATH="$$DIR"; "$$0" "$$1"', warm_start.NO_PATH),
    "a new PYTHONPATH after another Python": (
        '"$$0" -m this >&2; export PYTHONPATH="$$DIR"; "$$0" "$$1"',
        warm_start.NO_PATH,
    ),
    "an empty environment": ('env -i DIR="$$DIR" GANG_ATTEMPT="$$GANG_ATTEMPT" "$$0" "$$1"', warm_start.NO_PATH),
    "many open files": (
        'for number in $$(seq 20 300); do eval "exec $$number</dev/null"; done; "$$0" "$$1"',
        warm_start.NOT_ASKED,
    ),
}


@pytest.mark.parametrize("kind", UNASKED)
def test_a_python_that_does_not_ask_is_named_with_its_first_step(warm: Warm, kind: str) -> None:
    shell, obstacle = UNASKED[kind]
    warm.script.write_text(SAYS + f"say()\n{WAITS}")
    warm.start(*words(warm, "bash", "-c", f"{shell}; true", "PYTHON", "SCRIPT"))
    for attempt in (1, 2):
        warm.run()
        wait_for(partial(said, warm, attempt))
        warm.member.sidecar.send(Progress(attempt, 1, 0, first_step=1, first_age_ms=0))
        told = warm.member.sidecar.until(lambda report: report.progress and report.progress.first_step == 1)
        assert told.warm_start is not None
        assert (told.warm_start.forked, told.warm_start.obstacle) == (0, obstacle)
        warm.member.sidecar.last = None


def test_named_modules_are_preloaded_below_a_shell_after_its_first_step(warm: Warm) -> None:
    """Before a Python has started, a shell doesn't say which it will be."""
    warm.script.write_text(SAYS + f"say(fractions='fractions' in sys.modules)\n{WAITS}")
    warm.start(*words(warm, "sh", "-c", '"$$0" -O "$$1"; true', "PYTHON", "SCRIPT"), preload="fractions")
    warm.run()
    wait_for(lambda: said(warm, 1, fractions=False))
    started(warm, executed=1)
    assert warm.told.obstacle == warm_start.FIRST_START
    warm.steps()
    warm.run()
    wait_for(lambda: said(warm, 2, fractions=True))
    forked(warm)


REPORTS = """\
import ctypes, decimal, os, resource, shutil, signal, stat, sys
def stack():
    attributes, size = ctypes.create_string_buffer(64), ctypes.c_size_t()
    ctypes.CDLL(None).pthread_getattr_default_np(attributes)
    ctypes.CDLL(None).pthread_attr_getstacksize(attributes, ctypes.byref(size))
    return size.value
parking = int(os.environ.pop("GANG_PARKING", "-1:").partition(":")[0])
files = {}
for number in (0, 1, 2, *range(100, 256)):
    try:
        files[number] = [stat.S_IFMT(os.fstat(number).st_mode), os.get_inheritable(number), os.isatty(number)]
    except OSError:
        pass
files.pop(parking, None)
found = {
    "files": files, "argv": sys.argv, "original": sys.orig_argv, "path": sys.path, "folder": os.getcwd(),
    "environment": {name: value for name, value in os.environ.items() if name != "GANG_ATTEMPT"},
    "limits": {one: resource.getrlimit(getattr(resource, one)) for one in dir(resource) if one.startswith("RLIMIT")},
    "stack": stack(), "umask": os.umask(0o22), "nice": os.nice(0), "cores": sorted(os.sched_getaffinity(0)),
    "signals": {number: str(signal.getsignal(number)) for number in signal.valid_signals()},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "buffered": [None if one is None else one.line_buffering or one.write_through for one in (sys.stdout, sys.stderr)],
    "screen": shutil.get_terminal_size(), "launcher": os.path.basename(os.readlink(f"/proc/{os.getppid()}/exe")),
    "read": "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read(20),
}
"""
UV = str(Path(sys.executable).with_name("uv"))
SHELLS = {
    "bash": ("bash", "-c", '"$$0" "$$1"; exit $$?'),
    "a login shell": ("bash", "-lc", 'exec "$$0" "$$1"'),
    "dash": ("dash", "-c", '"$$0" "$$1"; exit $$?'),
    "job control": ("bash", "-mc", '"$$0" "$$1"; true'),
    "in the background": ("bash", "-c", '"$$0" "$$1" & wait'),
    "a pipeline": ("bash", "-c", 'set -o pipefail; echo given | "$$0" "$$1" 2>&1 | cat'),
    "files": ("bash", "-c", '"$$0" "$$1" <"$$1" >>"$$DIR/log" 2>&1; true'),
    "a text": ("bash", "-c", '"$$0" "$$1" <<< "a text"; true'),
    "closed files": ("bash", "-c", '"$$0" "$$1" <&- >&- 2>&-; true'),
    "more files": ("bash", "-c", 'exec 100>"$$DIR/x" 110<>"$$DIR/y" 200<"$$1"; "$$0" "$$1"; true'),
    "a filter": ("bash", "-c", '"$$0" "$$1" > >(tee "$$DIR/log") 2> >(cat >&2); true'),
    "limits": ("bash", "-c", 'ulimit -n 500 -c unlimited -s 65536 -u 5000; "$$0" "$$1"; true'),
    "traps": ("bash", "-c", 'trap "" INT HUP USR1 CHLD; "$$0" "$$1"; true'),
    "a subshell": (
        "bash",
        "-c",
        '(cd /tmp; umask 007; f() { :; }; export -f f; A=$$(printf "x\\ny") "$$0" "$$1"); true',
    ),
    "nohup": ("nohup", "PYTHON", "SCRIPT"),
    "timeout": ("timeout", "1000", "PYTHON", "SCRIPT"),
    "setsid": ("setsid", "-w", "PYTHON", "SCRIPT"),
    "stdbuf": ("stdbuf", "-oL", "PYTHON", "SCRIPT"),
    "taskset": ("taskset", "-c", "0", "PYTHON", "SCRIPT"),
    "uv run": (UV, "run", "--no-project", "--offline", "--no-config", "--python", "PYTHON", "SCRIPT"),
    "a terminal": ("script", "-qefc", 'stty cols 99; "$$PYTHON" "$$SCRIPT"', "/dev/null"),
}


@pytest.mark.parametrize("kind", SHELLS)
def test_a_fork_has_what_a_real_shell_gives_the_program(warm: Warm, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = SHELLS[kind]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    monkeypatch.setenv("PYTHON", sys.executable)
    monkeypatch.setenv("SCRIPT", str(warm.script))
    warm.script.write_text(reporting(REPORTS, "found"))
    more = () if command[-1] in {"SCRIPT", "/dev/null"} else ("PYTHON", "SCRIPT")
    warm.start(*words(warm, *command, *more))
    warm.run()
    first = warm.report(1)
    warm.steps()
    warm.run()
    forked(warm)
    assert warm.report(2) == first


OMP = """\
import os
found = len(os.sched_getaffinity(0))
def get_num_threads(): return found
def set_num_threads(number): global found; found = number
"""
"""As in PyTorch, whose OpenMP looks when it is loaded."""


@pytest.mark.skipif(shutil.which("taskset") is None, reason="taskset is not installed")
@pytest.mark.parametrize("variable", ["", "OMP_NUM_THREADS=3 "])
def test_a_fork_that_is_bound_to_fewer_processors_has_as_many_threads_as_a_start(
    warm: Warm, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(warm.installed))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    warm.install("torch", OMP)
    bound = f'{variable}exec taskset -c {min(os.sched_getaffinity(0))} "$$0" "$$1"'
    shell = f'[ "$$GANG_ATTEMPT" != 2 ] || {bound}; exec "$$0" "$$1"'
    warmed(warm, reporting("import torch, colorsys", "torch.get_num_threads()"), "sh", "-c", shell, "PYTHON", "SCRIPT")
    for threads in (3 if variable else 1, len(os.sched_getaffinity(0))):
        warm.run()
        forked(warm)
        assert warm.report() == threads


def test_a_core_is_that_of_the_fork(warm: Warm) -> None:
    if not Path("/proc/sys/kernel/core_pattern").read_text().startswith("core"):
        pytest.skip("cores are no files here")
    aborts = (
        "say()\nif os.environ['GANG_ATTEMPT'] == '1':\n    time.sleep(1000)\nfound = 'of the ' + 'fork'\nos.abort()\n"
    )
    shell = 'ulimit -c unlimited; cd "$$DIR"; "$$0" "$$1"; echo $$? >"$$DIR/code-of-end"; exit 9'
    warmed(warm, SAYS + aborts, "bash", "-c", shell, "PYTHON", "SCRIPT")
    warm.order()  # It may end at once.
    forked(warm)
    assert ended(warm).exit_code == 9
    assert text(warm.member.file("code-of-end")).split() == [str(128 + signal.SIGABRT)]
    (core,) = warm.member.folder.glob("core*")
    assert b"of the fork" in core.read_bytes()


def test_a_launcher_that_kills_a_group_kills_what_the_fork_has_started(warm: Warm) -> None:
    """Torchrun ends its ranks so."""
    launcher = warm.script.with_name("launch.py")
    launcher.write_text(
        "import os, subprocess, sys, time\nfrom pathlib import Path\n"
        "rank = subprocess.Popen([sys.executable, *sys.argv[1:]], start_new_session=True)\n"
        "go = Path(os.environ['DIR']) / 'go'\n"
        "while not go.exists():\n    time.sleep(0.01)\n"
        "os.killpg(rank.pid, 9)\nrank.wait()\ntime.sleep(1000)\n"
    )
    warm.script.write_text(f"import subprocess\n{SAYS}say(child=subprocess.Popen(['sleep', '1000']).pid)\n{WAITS}")
    warm.start("sh", "-c", " ".join(["exec", sys.executable, str(launcher), str(warm.script)]))
    warm.run()
    wait_for(lambda: said(warm, 1))
    warm.steps()
    warm.run()
    forked(warm, 2)
    (line,) = wait_for(lambda: said(warm, 2))
    warm.member.file("go").touch()
    wait_for(lambda: not any(map(is_alive, (line["pid"], line["child"]))))


def test_ranks_are_forked_that_find_what_an_import_of_their_launcher_has_set(
    warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch 2.15 sets TORCHINDUCTOR_CACHE_DIR so, and torchrun imports it."""
    warm.install("sets", "import os\nos.environ['FOLDER'] = os.environ.get('FOLDER') or '/a/default'\n")
    monkeypatch.setenv("PYTHONPATH", str(warm.installed))
    launcher = warm.script.with_name("launch.py")
    launcher.write_text("import sets\n" + LAUNCHER)
    warm.script.write_text(
        f"import sets\n{SAYS}say(rank=os.environ['LOCAL_RANK'], folder=os.environ['FOLDER'])\n{WAITS}"
    )
    warm.start("bash", "-c", " ".join([sys.executable, str(launcher), str(warm.script), "; exit 9"]))
    warm.run()
    wait_for(lambda: len(said(warm, 1)) == 2)
    warm.steps()
    warm.run()
    forked(warm, 3)
    wait_for(lambda: len(said(warm, 2, folder="/a/default")) == 2)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_a_template_may_be_lost_while_it_forks_below_a_shell(warm: Warm, signum: int) -> None:
    """The interpreter that has asked runs its program itself, once."""
    warmed(warm, SAYS + f"say()\n{WAITS}", "sh", "-c", '"$$0" "$$1"; exit 9', "PYTHON", "SCRIPT")
    os.kill(warm.template, signal.SIGSTOP)
    warm.run()  # The request is with the template, which can't read it.
    if signum == signal.SIGKILL:
        os.kill(warm.template, signum)
    started(warm, executed=1)
    wait_for(lambda: said(warm, 2))
    assert len(said(warm, 2)) == 1
    warm.member.hold(3)
    wait_for(lambda: processes.children(warm.member.pid) == [])


def test_of_two_interpreters_the_last_is_forked(warm: Warm, tmp_path: Path) -> None:
    """The first, of another virtual environment, has ended before the template is made."""
    venv.create(tmp_path / "venv", symlinks=True)
    before = warm.script.with_name("prepare.py")
    before.write_text("import sys, os\nopen(os.environ['DIR'] + '/prefixes', 'a').write(sys.prefix + '\\n')\n")
    shell = f'{tmp_path}/venv/bin/python {before} && "$$0" "$$1"; exit 9'
    warmed(warm, SAYS + f"say(prefix=sys.prefix)\n{WAITS}", "bash", "-c", shell, "PYTHON", "SCRIPT")
    warm.run()
    started(warm, forked=1, executed=1)
    assert warm.told.obstacle == warm_start.OTHER_PYTHON
    wait_for(lambda: said(warm, 2, prefix=sys.prefix))
    assert text(warm.member.file("prefixes")).splitlines() == [str(tmp_path / "venv")] * 2


RUNS = """\
import subprocess, sys
enter = 'export CONDA_PREFIX="$1" PATH="$1/bin:$PATH"; shift; "$@"'
sys.exit(subprocess.run(["bash", "-c", enter, "bash", *sys.argv[1:]]).returncode)
"""


def test_below_a_launcher_in_another_environment_the_script_is_forked(warm: Warm, tmp_path: Path) -> None:
    """As ``conda run``: a Python of its own runs a shell, which enters the environment of the script."""
    venv.create(tmp_path / "base", symlinks=True)
    launcher = warm.script.with_name("run.py")
    launcher.write_text(RUNS)
    says = "say(prefix=sys.prefix, conda=os.environ['CONDA_PREFIX'])\n"
    ends = "if os.environ['GANG_ATTEMPT'] == '3':\n    os._exit(77)\n"
    warm.script.write_text(SAYS + says + ends + WAITS)
    python = Path(sys.executable)
    command = [tmp_path / "base/bin/python", launcher, python.parents[1], python.name, warm.script]
    warm.start(*map(str, command))
    for forks in (0, 1, 1):
        warm.order()  # It may end at once.
        started(warm, forked=forks, executed=2 - forks)
        wait_for(partial(said, warm, warm.attempt, prefix=sys.prefix, conda=str(python.parents[1])))
        if not forks:
            warm.steps()
    assert ended(warm).exit_code == 77


def test_what_a_script_imports_may_change_between_attempts(warm: Warm) -> None:
    """The fork makes the new import, which the next has learnt. An import is noted when the next one begins."""
    warmed(warm, f"import colorsys\n{SAYS}say()\n{WAITS}", "bash", "-c", '"$$0" "$$1"; exit 9', "PYTHON", "SCRIPT")
    loaded = "say(before=loaded, other='colorsys' in sys.modules)\n"
    warm.script.write_text(
        f"import sys\nloaded = 'fractions' in sys.modules\nimport fractions\nimport poplib\n{SAYS}{loaded}{WAITS}"
    )
    for attempt, before in ((2, False), (3, True)):
        warm.run()
        forked(warm)
        wait_for(partial(said, warm, attempt, before=before, other=True))
        warm.member.sidecar.send(Progress(attempt, 1, 0))
        wait_for(lambda: warm.member.log.count("the template is ready") == 2)
