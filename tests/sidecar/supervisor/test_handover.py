"""A Python that starts below a shell or a launcher runs its program in a fork, and its launcher can't tell."""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gangsidecar.supervisor import processes, warm_start
from gangsidecar.wire import End, Milestone, Progress, Reached, Report
from tests.sidecar.supervisor.supervised import Member, is_alive, wait_for
from tests.sidecar.supervisor.test_warm_start import SCRIPT
from tests.sidecar.supervisor.warm import WAITS, Warm, reporting

LAUNCHER = """\
import os, subprocess, sys
program = [sys.executable, "-u", *sys.argv[1:]]
own = {"LAUNCHER": str(os.getpid())}
ranks = [subprocess.Popen(program, env={**os.environ, **own, "LOCAL_RANK": str(rank)}) for rank in range(2)]
sys.exit(max(rank.wait() for rank in ranks))
"""
"""Starts two ranks as torchrun does."""
SAYS = """\
import decimal, json, os, signal, sys, time
def say(**words):
    with open(os.environ["DIR"] + "/said", "a") as file:
        file.write(json.dumps({"attempt": os.environ["GANG_ATTEMPT"], "pid": os.getpid(), **words}) + "\\n")
"""


def words(warm: Warm, *command: str) -> list[str]:
    return [{"PYTHON": sys.executable, "SCRIPT": str(warm.script)}.get(word, word) for word in command]


def warmed(warm: Warm, script: str, *command: str, preload: str = "Auto") -> None:
    """Run a script once, and wait for the template that it makes. A dollar in the command is doubled, as in a pod."""
    warm.script.write_text(script)
    warm.start(*words(warm, *command), preload=preload)
    warm.run()
    started(warm, executed=1)
    wait_for(lambda: said(warm, 1) or warm.member.file("report-1").exists())  # It has imported what it needs.
    warm.steps()


def said(warm: Warm, attempt: int, **words: Any) -> list[Any]:
    """What the script has said in an attempt: with these words, if there are any."""
    path = warm.member.folder / "said"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line for line in lines if line["attempt"] == str(attempt) and words.items() <= line.items()]


def started(warm: Warm, **numbers: int) -> None:
    """Wait until so many Pythons of the newest attempt have started in this way."""

    def is_told(report: Report) -> bool:
        told = report.warm_start
        if told is None or told.attempt != warm.attempt or told.obstacle == warm_start.NO_PYTHON:
            return False
        return numbers.items() <= vars(told).items()

    last = warm.member.sidecar.last
    if last is None or not is_told(last):
        warm.member.sidecar.until(is_told)


def ended(warm: Warm) -> End:
    """How the newest attempt's process ended."""

    def ends(report: Report) -> list[End]:
        return [end for end in report.ends if end.attempt == warm.attempt]

    last = warm.member.sidecar.last
    found = [] if last is None else ends(last)
    return (found or ends(warm.member.sidecar.until(ends)))[0]


def forked(warm: Warm, number: int = 1) -> None:
    started(warm, forked=number)


SHELLS = [
    ("sh", "-c", 'exec "$$0" "$$1"', "PYTHON", "SCRIPT"),
    ("sh", "-c", '"$$0" -u "$$1"; exit $$?', "PYTHON", "SCRIPT"),
    ("env", "PYTHON", "SCRIPT"),
    ("nice", "-n", "5", "PYTHON", "-W", "ignore", "SCRIPT", "--lr", "1"),
    (
        "sh",
        "-c",
        'cd "$$DIR"/code && umask 027 && exec 7<"$$1" && trap "" HUP && exec "$$0" train.py',
        "PYTHON",
        "SCRIPT",
    ),
    ("bash", "-c", 'cd "$$DIR"/code; export PYTHONPATH=src:$$PYTHONPATH:; exec "$$0" train.py', "PYTHON", "SCRIPT"),
]


@pytest.mark.parametrize("command", SHELLS, ids=[" ".join(words[:3]) for words in SHELLS])
def test_a_fork_below_a_shell_is_as_what_the_shell_starts(warm: Warm, command: tuple[str, ...]) -> None:
    warmed(warm, SCRIPT, *command)
    first = warm.report(1)
    assert warm.told.obstacle == warm_start.FIRST_START
    warm.run()
    second = warm.report(2)
    assert second["pid"] == second["session"]
    assert processes.parent(second["pid"]) == warm.member.pid
    for each in (first, second):
        for name in ("pid", "session"):
            del each[name]
        assert each["environment"].pop("GANG_ATTEMPT")
        each["files"] = [file for file in each["files"] if file < 10]
    assert second == first


@pytest.mark.parametrize("shell", ["exec ", "unset LANG LC_ALL LC_CTYPE; exec "])
def test_each_rank_of_a_launcher_is_forked_and_the_launcher_too(
    warm: Warm, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    """Without a locale, Python sets LC_CTYPE for itself and what it starts: the ranks have it, the launcher doesn't.

    As tqdm does, a module looks at all variables: the template must have none of a rank or an attempt.
    """
    warm.install("scans", "import os\nkept = dict(os.environ)")
    monkeypatch.setenv("PYTHONPATH", str(warm.installed))
    launcher = warm.script.with_name("launch.py")
    launcher.write_text(LAUNCHER)
    parent = "str(os.getppid()) == os.environ['LAUNCHER']"
    child = "os.fork() or (say(child=os.getppid() == own), os._exit(0))"
    rank = f"say(rank=os.environ['LOCAL_RANK'], parent={parent})"
    warm.script.write_text(f"import scans\n{SAYS}own = os.getpid()\n{child}\nos.wait()\n{rank}\n{WAITS}")
    warm.start("sh", "-c", shell + " ".join([sys.executable, str(launcher), str(warm.script)]))
    warm.run()
    wait_for(lambda: len(said(warm, 1, parent=True)) == 2)
    started(warm, executed=3)
    warm.steps()
    warm.run()
    forked(warm, 3)
    wait_for(lambda: len(said(warm, 2, parent=True)) == 2)
    assert {line["rank"] for line in said(warm, 2, parent=True)} == {"0", "1"}
    assert len(said(warm, 2, child=True)) == 2
    pids = [line["pid"] for line in said(warm, 2, parent=True)]
    warm.member.hold(3)
    assert not any(map(is_alive, pids))


def test_ranks_whose_module_reads_a_variable_of_their_own_are_forked_without_it_beside_their_launcher(
    warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As below deepspeed: once the launcher is a fork and its ranks aren't, all that are executed have the variable."""
    warm.install("scans", "import os\nkept = dict(os.environ)")
    warm.install("reads", "import os\n'LAUNCHER' in os.environ")
    monkeypatch.setenv("PYTHONPATH", str(warm.installed))
    launcher = warm.script.with_name("launch.py")
    launcher.write_text("import scans\n" + LAUNCHER)
    warm.script.write_text(f"import scans, reads\n{SAYS}say()\n{WAITS}")
    warm.start("bash", "-c", " ".join([sys.executable, str(launcher), str(warm.script), "; exit 9"]))
    for forks in (0, 1, 3):
        warm.run()
        wait_for(lambda: len(said(warm, warm.attempt)) == 2)
        started(warm, forked=forks, executed=3 - forks)
        warm.steps()
        wait_for(lambda: warm.member.log.count("the template is ready") == min(warm.attempt, 2))


def reached(warm: Warm) -> dict[Milestone, Reached]:
    """The milestones of the newest attempt, once it has made a step."""
    warm.member.sidecar.send(Progress(warm.attempt, 1, 0, first_step=1, first_age_ms=0))
    told = warm.member.sidecar.until(lambda report: report.progress and report.progress.first_step == 1)
    return {one.milestone: one for one in told.reached if one.attempt == warm.attempt}


def test_the_start_of_a_launchers_ranks_and_the_imports_of_executed_ones_are_reported(warm: Warm) -> None:
    warm.install("leaf", "")
    warm.install("slow", "import time; time.sleep(0.6); import leaf")
    warm.install("helper", WAITS)
    launcher = warm.script.with_name("launch.py")
    launcher.write_text("import time; time.sleep(0.5)\n" + LAUNCHER)
    script = (
        SAYS + "import slow, subprocess\ntime.sleep(0.6)\nimport colorsys\n"
        "subprocess.Popen([sys.executable, '-m', 'helper'])\n"
        f"time.sleep(0.4)\nsay()\n{WAITS}"
    )
    warm.script.write_text(script)
    path = f"PYTHONPATH={warm.installed}"
    warm.start("sh", "-c", f"{path}:$$PYTHONPATH exec " + " ".join([sys.executable, str(launcher), str(warm.script)]))
    warm.run()
    wait_for(lambda: len(said(warm, 1)) == 2)
    first = reached(warm)
    assert set(first) == {Milestone.LAUNCH, Milestone.IMPORTS}
    imports = first[Milestone.IMPORTS]
    assert imports.milliseconds is not None
    assert imports.milliseconds >= 600
    for age in (imports.age_ms + imports.milliseconds, first[Milestone.LAUNCH].age_ms):
        assert age >= 1600, "the helpers that the ranks have started later don't count"
    warm.ready()
    warm.run()
    forked(warm, 3)
    wait_for(lambda: len(said(warm, 2)) == 2)
    second = reached(warm)
    assert set(second) == {Milestone.LAUNCH}, "a fork imports nothing"
    assert second[Milestone.LAUNCH].age_ms >= 1000


def test_the_ranks_below_a_launcher_that_can_only_be_executed_are_reported_too(member: Member) -> None:
    launcher, script = member.file("launch.py"), member.file("train.py")
    launcher.write_text("import time; time.sleep(0.5)\n" + LAUNCHER)
    script.write_text(f"import pathlib, os; pathlib.Path(os.environ['LOCAL_RANK']).touch()\n{WAITS}")
    member.start("sh", "-c", f"cd {member.folder}; {sys.executable} launch.py train.py; true")
    member.run(member.hold(1), {"GANG_ATTEMPT": "1"})
    wait_for(lambda: member.file("0").exists() and member.file("1").exists())
    member.sidecar.send(Progress(1, 1, 0, first_step=1, first_age_ms=0))
    told = member.sidecar.until(lambda report: report.progress and report.progress.first_step == 1)
    assert [one.milestone for one in told.reached] == [Milestone.LAUNCH]
    assert told.reached[0].age_ms <= told.phase_age_ms - 500


HELPED = "import os, subprocess, sys, time; subprocess.Popen([sys.executable, '-m', 'helper']); time.sleep(0.5)\n"
"""A rank that starts a Python of its own, which isn't a rank."""


@pytest.mark.parametrize("preload", ["", "decimal"])
def test_a_helper_is_not_taken_for_its_rank_that_no_launcher_has_started(
    warm: Warm, preload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(warm.installed))
    warm.install("helper", WAITS)
    warm.script.write_text(reporting(HELPED, "1"))
    flags = {"preload": preload} if preload else {}
    warm.member.start(sys.executable, str(warm.script), fsize=-1, **flags)
    if preload:
        warm.ready()
    warm.member.run(warm.member.hold(1), {"GANG_ATTEMPT": "1", "LOCAL_RANK": "0"})
    warm.attempt = 1
    warm.report()
    if preload:
        forked(warm, 2)  # The rank is a fork, and its helper asks for one.
    assert reached(warm) == {}


ENDS = {
    "sys.exit(3)": 3,
    "raise ValueError": 1,
    "os._exit(77)": 77,
    "os.kill(os.getpid(), 9)": 128 + 9,
    "os.kill(os.getpid(), signal.SIGTERM)": 128 + 15,
    "os.abort()": 128 + 6,
    "0": 0,
}


@pytest.mark.parametrize("end", ENDS)
def test_a_shell_sees_how_a_fork_ends(warm: Warm, end: str) -> None:
    script = SAYS + f"say()\nif os.environ['GANG_ATTEMPT'] == '1':\n    time.sleep(1000)\n{end}\n"
    warmed(warm, script, "sh", "-c", 'echo go; "$$0" "$$1"; echo $$? >> "$$DIR/codes"; exit 9', "PYTHON", "SCRIPT")
    warm.order()  # It may end at once.
    forked(warm)
    assert ended(warm).exit_code == 9
    assert warm.member.file("codes").read_text().split()[-1:] == [str(ENDS[end])]
    wait_for(lambda: processes.children(warm.member.pid) == [warm.template])


LISTENS = SAYS + (
    "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP, signal.SIGTSTP):\n"
    "    if os.environ['GANG_ATTEMPT'] == '2':\n"
    "        signal.signal(number, lambda number, _: say(got=number))\n"
    "say(ready=True)\nwhile True:\n    time.sleep(0.005)\n"
)


def listening(warm: Warm) -> tuple[int, int]:
    """A stand-in and its fork, which says what signals it gets."""
    warmed(warm, LISTENS, "sh", "-c", '"$$0" "$$1"; exit 9', "PYTHON", "SCRIPT")
    warm.run()
    forked(warm)
    fork = wait_for(lambda: said(warm, 2, ready=True))[0]["pid"]
    (shell,) = [pid for pid in processes.children(warm.member.pid) if pid not in {warm.template, fork}]
    (stand_in,) = processes.children(shell)
    return stand_in, fork


def test_a_stand_in_passes_signals_on(warm: Warm) -> None:
    stand_in, _ = listening(warm)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP, signal.SIGTSTP):
        os.kill(stand_in, number)
        wait_for(partial(said, warm, 2, got=number))


def test_a_stop_asks_a_fork_once(warm: Warm) -> None:
    _, fork = listening(warm)
    warm.member.hold(3, grace_ms=3_000)
    assert not is_alive(fork)
    assert [line["got"] for line in said(warm, 2) if "got" in line] == [signal.SIGTERM]


@pytest.mark.parametrize("first", [0, 1], ids=["the stand-in", "the fork"])
def test_a_stand_in_stops_and_goes_on_with_its_fork(warm: Warm, first: int) -> None:
    pair = listening(warm)
    os.kill(pair[first], signal.SIGSTOP)
    wait_for(lambda: processes.is_stopped(pair[1 - first]))
    os.kill(pair[first], signal.SIGCONT)
    wait_for(lambda: not processes.is_stopped(pair[1 - first]))
    assert all(map(is_alive, pair))


@pytest.mark.parametrize("first", [0, 1], ids=["the stand-in", "the fork"])
def test_neither_outlives_the_other(warm: Warm, first: int) -> None:
    pair = listening(warm)
    os.kill(pair[first], signal.SIGKILL)
    wait_for(lambda: not is_alive(pair[1 - first]))
    assert ended(warm).exit_code == 9


def test_a_fork_reads_and_closes_the_pipes_of_its_launcher(warm: Warm) -> None:
    script = (
        SAYS + "if os.environ['GANG_ATTEMPT'] == '1':\n    say()\n    time.sleep(1000)\n"
        "say(read=sys.stdin.read(), tty=sys.stdout.isatty())\nprint('printed')\nsys.stdout.close()\nos.close(1)\n"
        f"{WAITS}"
    )
    pipe = 'echo given | "$$0" "$$1" | { cat > "$$DIR/out.tmp"; mv "$$DIR/out.tmp" "$$DIR/out"; }'
    warmed(warm, script, "sh", "-c", pipe, "PYTHON", "SCRIPT")
    warm.run()
    forked(warm)
    wait_for(lambda: said(warm, 2, read="given\n"))
    path = warm.member.file("out")  # The reader has seen the end, so the stand-in holds no end of the pipe.
    assert wait_for(lambda: path.exists() and path.read_text()) == "printed\n"


def test_a_fork_runs_a_script_that_comes_through_a_pipe(warm: Warm) -> None:
    script = reporting("import decimal, sys", "[__file__, sys.argv, sys.path]")
    warmed(warm, script, "sh", "-c", 'cat "$$1" | "$$0" /dev/stdin; exit $$?', "PYTHON", "SCRIPT")
    first = warm.report(1)
    warm.run()
    forked(warm)
    assert warm.report(2) == first


def test_the_users_own_sitecustomize_is_the_one_that_stays(warm: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(warm.installed))
    warm.install(
        "sitecustomize", "import os\nos.environ['CUSTOMIZED'] = str(int(os.environ.get('CUSTOMIZED', 0)) + 1)\n"
    )
    told = "[os.environ['CUSTOMIZED'], sys.modules['sitecustomize'].__file__, sys.path]"
    warmed(warm, reporting("import decimal, sys", told), "sh", "-c", 'exec "$$0" "$$1"', "PYTHON", "SCRIPT")
    first = warm.report(1)
    assert first[:2] == ["1", str(warm.installed / "sitecustomize.py")]
    warm.run()
    forked(warm)
    assert warm.report(2) == first


def test_an_interpreter_whose_signal_comes_with_its_question_is_answered(warm: Warm) -> None:
    """Without open files, the kernel joins the two."""
    asks = (
        "import os, socket\nlink = socket.socket(socket.AF_UNIX)\nlink.connect(os.environ['GANG_WARM_STARTS'])\n"
        r"link.send(b'||a kind\n\0')"
    )
    warm.script.write_text(reporting(asks, "link.recv(99).decode()"))
    warm.start(*words(warm, "PYTHON", "SCRIPT"))
    warm.run()
    assert warm.report() == "execute\n"


REFUSED = {
    "a flag": ('exec "$$0" -O "$$1"', warm_start.OTHER_PYTHON),
    "another environment of the loader": (
        'LD_LIBRARY_PATH=/nowhere exec "$$0" "$$1"',
        "LD_LIBRARY_PATH is not what the template began with",
    ),
    "a child from before": ('sleep 1000 & exec "$$0" "$$1"', "it has children"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_a_fork_can_not_be_is_executed(warm: Warm, kind: str) -> None:
    """The second attempt differs in what a fork of the template can't become. The third is forked again."""
    command, obstacle = REFUSED[kind]
    plain = 'exec "$$0" "$$1"'
    shell = f'if [ "$$GANG_ATTEMPT" = 2 ]; then {command}; fi; {plain}'
    warmed(warm, reporting("import decimal", "1"), "sh", "-c", shell, "PYTHON", "SCRIPT")
    warm.run()
    assert warm.report(2) == 1
    started(warm, executed=1)
    assert warm.told.obstacle == obstacle
    warm.run()
    forked(warm)
    assert warm.report(3) == 1


@pytest.mark.parametrize("path", ["$$PYTHONPATH", "$$PYTHONPATH:", ".:$$PYTHONPATH"])
def test_a_fork_in_another_folder_is_as_a_start_there_or_its_program_is_executed(warm: Warm, path: str) -> None:
    """The second attempt starts in another folder. What PYTHONPATH has may depend on that."""
    shell = f'export PYTHONPATH={path}; [ "$$GANG_ATTEMPT" != 2 ] || cd /; exec "$$0" "$$1"'
    found = '[os.getcwd(), multiprocessing.process.ORIGINAL_DIR, "/" in sys.path]'
    script = reporting("import sys, os, multiprocessing.process, decimal", found)
    warmed(warm, script, "sh", "-c", shell, "PYTHON", "SCRIPT")
    depends = path != "$$PYTHONPATH"
    warm.run()
    assert warm.report(2) == ["/", "/", depends]
    started(warm, forked=1 - depends, executed=int(depends))
    if depends:
        began = "PYTHONPATH has an empty or relative entry, and the template began in "
        assert warm.told.obstacle == f"{began}{Path.cwd()}, not in /"
    warm.run()
    forked(warm)
    assert warm.report(3) == warm.report(1)


def test_a_folder_that_a_program_has_left_behind_hinders_no_fork(warm: Warm) -> None:
    shell = 'cd "$$(mktemp -d)"; "$$0" "$$1" & rmdir "$$PWD"; wait $$!'
    warmed(warm, reporting("import decimal", "1"), "sh", "-c", shell, "PYTHON", "SCRIPT")
    warm.run()
    forked(warm)


def test_a_command_does_not_begin_in_the_folder_of_what_it_starts(warm: Warm) -> None:
    other = warm.script.with_name("other.py")
    other.write_text(f"import decimal\nopen('ready', 'w')\n{WAITS}")
    starts = (
        f"import os, subprocess, sys\nsubprocess.Popen([sys.executable, {str(other)!r}], cwd={str(other.parent)!r})"
    )
    waits = f"import time\nwhile not os.path.exists({str(other.with_name('ready'))!r}): time.sleep(0.01)"
    warmed(warm, reporting(f"{starts}\n{waits}", "os.getcwd()"), "PYTHON", "SCRIPT")
    warm.run()
    forked(warm, 2)
    assert warm.report(2) == warm.report(1) == str(Path.cwd())


def test_nothing_is_left_after_many_handovers(warm: Warm) -> None:
    warmed(warm, reporting("import decimal", "1"), "sh", "-c", '"$$0" "$$1"; true', "PYTHON", "SCRIPT")
    open_files = Path(f"/proc/{warm.member.pid}/fd")
    counts = []
    for _ in range(5):
        warm.run()
        forked(warm)
        assert warm.report() == 1
        counts.append(len(list(open_files.iterdir())))
    wait_for(lambda: len(list(open_files.iterdir())) <= counts[0])
    warm.member.hold(warm.attempt + 1)
    wait_for(lambda: processes.children(warm.member.pid) == [warm.template])
