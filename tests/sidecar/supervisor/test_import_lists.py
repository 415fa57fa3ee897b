"""The first start of a pod is forked where its imports are known: from an earlier session, or from a peer."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangsidecar import wire
from gangsidecar.start import link
from gangsidecar.supervisor import processes
from gangsidecar.supervisor.import_lists import EARLY, ImportLists, Known
from gangsidecar.supervisor.warm_start import IMPORTING, NO_PYTHON, NOT_YET, WAIT_MS
from gangsidecar.supervisor.workers import KNOWN_IMPORTS
from gangsidecar.wire import Imports, Phase, Progress, Report
from gangsidecar.wire.python_command import PythonCommand, parse_python
from tests.sidecar.supervisor.supervised import wait_for
from tests.sidecar.supervisor.test_handover import LAUNCHER, forked, started
from tests.sidecar.supervisor.warm import Warm, template_ends

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("greeting")
HELLO = ["hello", True]
"""What the script says if decimal was imported before it."""
PLAIN = ["hello", False]
BELOW_A_SHELL = ("sh", "-c", 'exec "$$0" "$$1"', "PYTHON", "SCRIPT")
COMMANDS = pytest.mark.parametrize("command", [("PYTHON", "SCRIPT"), BELOW_A_SHELL], ids=["itself", "below a shell"])
BLOCKS = "import os, time\nwhile not os.path.exists(os.environ['DIR'] + '/go'): time.sleep(0.01)\n"


def begin(warm: Warm, command: tuple[str, ...] = BELOW_A_SHELL, member: str = "worker-0") -> None:
    words = {"PYTHON": sys.executable, "SCRIPT": str(warm.script)}
    warm.member.start(*(words.get(word, word) for word in command), preload="Auto", member=member)


def known(warm: Warm, *modules: str) -> Imports:
    """What a peer has learnt."""
    return Imports("g1", "a-peer", (sys.executable, str(warm.script)), modules or ("decimal",))


def templates(warm: Warm, number: int) -> None:
    wait_for(lambda: warm.member.log.count("the template is ready") == number)


def learnt(warm: Warm) -> Imports:
    """Run an attempt that is executed, until its supervisor offers what was imported."""
    warm.script.write_text("import decimal\n" + warm.script.read_text())
    warm.run()
    warm.report()
    started(warm, executed=1)
    warm.member.sidecar.send(Progress(warm.attempt, 1, 0))
    return warm.member.sidecar.imports()


@COMMANDS
def test_the_first_worker_of_a_pod_is_forked_if_a_peer_has_learnt_its_imports(
    warm: Warm, command: tuple[str, ...]
) -> None:
    begin(warm, command)
    warm.member.sidecar.send(known(warm))
    warm.ready()
    warm.order()
    forked(warm)
    assert warm.report() == HELLO
    assert (warm.told.executed, warm.told.obstacle) == (0, "")


@COMMANDS
def test_the_first_worker_is_forked_after_a_restart_of_its_container(warm: Warm, command: tuple[str, ...]) -> None:
    begin(warm, command)
    learnt(warm)
    assert warm.member.process is not None
    warm.member.process.kill()
    warm.member.wait()
    begin(warm, command)
    templates(warm, 2)
    warm.order()
    forked(warm)
    assert (warm.report()[0], warm.told.executed) == ("hello", 0)


def test_what_is_offered_leads_to_a_fork_in_another_pod_and_has_no_secret(
    warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "secret-1")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    shell = 'export LANGCHAIN_API_KEY=secret-2 PYTHONNODEBUGRANGES=1; exec "$$0" -O "$$1" --token secret-3'
    begin(warm, ("sh", "-c", shell, *BELOW_A_SHELL[3:]))
    offered = learnt(warm)
    assert offered.command == (sys.executable, "-O", str(warm.script))
    assert offered.environment == (("PYTHONNODEBUGRANGES", "1"),)
    assert {"decimal", "numbers"} <= set(offered.modules)
    assert "secret" not in wire.encode(offered)
    assert warm.member.process is not None
    warm.member.process.kill()
    warm.member.wait()
    (warm.member.folder / KNOWN_IMPORTS).unlink()
    (warm.member.folder / "imports").unlink(missing_ok=True)
    begin(warm, ("sh", "-c", shell, *BELOW_A_SHELL[3:]))
    warm.member.sidecar.send(replace(offered, pod="a-peer"))
    templates(warm, 2)
    warm.order()
    forked(warm)
    assert warm.told.executed == 0


@pytest.mark.parametrize("is_there", [True, False])
def test_a_list_whose_path_depends_on_a_folder_leads_to_a_fork_only_where_the_folder_is_there(
    warm: Warm, *, is_there: bool
) -> None:
    code = warm.script.parent
    (code / "src").mkdir()
    (code / "src" / "mine.py").touch()
    warm.script.write_text("import mine\n" + warm.script.read_text())
    command = (
        "sh",
        "-c",
        f"export PYTHONPATH=src:$$PYTHONPATH; cd {code}; exec {BELOW_A_SHELL[2][5:]}",
        *BELOW_A_SHELL[3:],
    )
    begin(warm, command)
    offered = learnt(warm)
    assert offered.folder == str(code)
    assert warm.member.process is not None
    warm.member.process.kill()
    warm.member.wait()
    (warm.member.folder / KNOWN_IMPORTS).unlink()
    begin(warm, command)
    there = offered.folder if is_there else f"{offered.folder}/not-yet"
    warm.member.sidecar.send(replace(offered, pod="a-peer", folder=there))
    for forks in (int(is_there), 1):
        if forks:
            templates(warm, 2)
        warm.order()
        started(warm, forked=forks, executed=1 - forks)
        assert warm.report()[0] == "hello"
        warm.member.sidecar.send(Progress(warm.attempt, 1, 0))


def test_a_list_is_offered_again_to_a_sidecar_that_comes_back_and_by_the_first_members_of_a_role(warm: Warm) -> None:
    begin(warm)
    offered = learnt(warm)
    warm.member.sidecar.accept()
    assert warm.member.sidecar.imports() == offered
    warm.member.finish(2)
    (warm.member.folder / KNOWN_IMPORTS).unlink()
    begin(warm, member="worker-10")
    warm.attempt = 2
    warm.run()
    warm.report()
    warm.member.sidecar.send(Progress(warm.attempt, 1, 0))
    wait_for((warm.member.folder / KNOWN_IMPORTS).exists)
    warm.member.sidecar.send(warm.member.directive(4, wire.Verb.HOLD))
    while not isinstance(message := warm.member.sidecar.receive(), Report) or message.phase is not Phase.READY:
        assert isinstance(message, Report)


def test_a_list_has_only_what_the_template_could_import(warm: Warm) -> None:
    warm.install("picky", "import os; assert os.environ['RANK']")
    warm.script.write_text("import picky\n" + warm.script.read_text())
    begin(warm)
    modules = learnt(warm).modules
    assert "decimal" in modules
    assert "picky" not in modules


def test_a_start_before_not_all_is_installed_says_so(warm: Warm) -> None:
    begin(warm)
    warm.member.sidecar.send(known(warm, "decimal", "no_such_module"))
    template_ends(warm)
    warm.order()
    started(warm, executed=1)
    assert warm.told.obstacle.startswith(f"{NOT_YET}: no_such_module (ModuleNotFoundError: ")


@COMMANDS
def test_a_worker_that_starts_meanwhile_waits_for_the_template(warm: Warm, command: tuple[str, ...]) -> None:
    warm.install("blocks", BLOCKS)
    begin(warm, command)
    warm.member.sidecar.send(known(warm, "decimal", "blocks"))
    warm.order()
    assert not warm.told.forked
    assert warm.told.obstacle in {IMPORTING, NO_PYTHON}
    warm.member.file("go").touch()
    forked(warm)
    assert warm.report() == HELLO
    assert (warm.told.executed, warm.told.obstacle) == (0, "")
    assert warm.told.template_bytes > 0


def test_a_launcher_and_its_ranks_wait_for_the_template_as_well(warm: Warm) -> None:
    warm.install("blocks", BLOCKS)
    launcher = warm.script.with_name("launch.py")
    launcher.write_text(LAUNCHER)
    warm.member.start("sh", "-c", f"exec {sys.executable} {launcher} {warm.script}", preload="Auto")
    warm.member.sidecar.send(known(warm, "decimal", "blocks"))
    warm.order()
    warm.member.file("go").touch()
    forked(warm, 3)
    assert warm.report() == HELLO
    assert (warm.told.executed, warm.told.obstacle) == (0, "")


def waiting(warm: Warm) -> int:
    """Start a worker that waits for the template; return the template's pid."""
    template = wait_for(lambda: processes.children(warm.member.pid))[0]
    warm.order()
    (worker,) = {*processes.children(warm.member.pid)} - {template}
    wait_for(lambda: "SigBlk:\t0000000000000000" not in Path(f"/proc/{worker}/status").read_text())
    return int(template)


def test_a_worker_that_waits_is_stopped_as_one_that_runs(warm: Warm) -> None:
    warm.install("blocks", BLOCKS)
    begin(warm, ("PYTHON", "SCRIPT"))
    warm.member.sidecar.send(known(warm, "blocks"))
    waiting(warm)
    assert warm.member.hold(2).killed_ms is None, "SIGTERM was enough"
    assert not warm.member.file("report-1").exists()


def test_a_worker_that_waits_is_executed_when_the_template_is_gone(warm: Warm) -> None:
    warm.install("blocks", BLOCKS)
    begin(warm)
    warm.member.sidecar.send(known(warm, "decimal", "blocks"))
    os.kill(waiting(warm), signal.SIGKILL)
    template_ends(warm)
    started(warm, executed=1)
    assert warm.report() == PLAIN


@pytest.mark.parametrize(
    "harm",
    [
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "import os; rank = os.environ.get('RANK')",
        "import os; os._exit(3)",
        "import no_such_module",
    ],
    ids=["a thread", "the rank", "an end", "not installed yet"],
)
def test_what_is_learnt_here_is_imported_if_what_a_peer_has_learnt_can_not_be(warm: Warm, harm: str) -> None:
    warm.install("harms", harm)
    begin(warm)
    warm.member.sidecar.send(known(warm, "decimal", "harms"))
    wait_for(lambda: "the template" in warm.member.log)
    warm.order()
    started(warm, executed=1)
    assert warm.report() == PLAIN
    before = warm.member.log.count("the template is ready")
    warm.member.sidecar.send(Progress(warm.attempt, 1, 0))
    templates(warm, before + 1)
    warm.order()
    forked(warm)


def another_python(warm: Warm) -> tuple[str, ...]:
    link = warm.member.file("python3")
    link.symlink_to(sys.executable)
    return (*BELOW_A_SHELL[:3], str(link), "SCRIPT")


@pytest.mark.parametrize(
    ("more", "command"),
    [({"beside": True}, lambda _: BELOW_A_SHELL), ({}, another_python)],
    ids=["beside", "another Python"],
)
def test_a_worker_waits_for_no_template_of_another_python_and_for_none_that_imports_slowly(
    warm: Warm, more: dict[str, Any], command: Callable[[Warm], tuple[str, ...]]
) -> None:
    warm.install("blocks", BLOCKS)
    begin(warm, command(warm))
    warm.member.sidecar.send(replace(known(warm, "blocks"), **more))
    began = time.monotonic()
    warm.order()
    started(warm, executed=1)
    assert time.monotonic() - began < WAIT_MS / 1000
    assert warm.report() == PLAIN


def test_a_newer_list_of_a_peer_counts_until_the_first_start(warm: Warm) -> None:
    begin(warm)
    warm.member.sidecar.send(known(warm, "fractions"), known(warm))
    warm.ready()
    warm.member.sidecar.send(known(warm))  # The same once more, as after another connection.
    warm.order()
    forked(warm)
    warm.member.sidecar.send(known(warm, "fractions"))
    warm.member.sidecar.send(Progress(warm.attempt, 1, 0))
    assert "fractions" not in warm.member.sidecar.imports().modules
    assert warm.member.log.count("the template ends") == 1


BAD: dict[str, dict[str, Any]] = {
    "another gang": {"gang": "g2"},
    "a name": {"command": ("python3", "train.py")},
    "a missing interpreter": {"command": ("/no/such/python3", "train.py")},
    "another program": {"command": ("/bin/sh", "train.py")},
    "no program": {"command": ()},
    "code": {"command": (sys.executable, "-c", "import os")},
    "a NUL": {"command": (sys.executable, "train\0py")},
    "a path": {"modules": ("decimal", "../decimal")},
    "an empty name": {"modules": ("",)},
    "a line": {"modules": ("decimal\n",)},
    "a long name": {"modules": ("m" * 256,)},
    "a variable": {"environment": (("PATH", "/tmp"),)},
    "a secret": {"environment": (("LANGCHAIN_API_KEY", "1"),)},
    "a variable with a NUL": {"environment": (("LC_ALL", "C\0"),)},
    "a folder with a NUL": {"folder": "/code\0"},
}


@pytest.mark.parametrize("wrong", BAD)
def test_a_bad_list_is_ignored_and_the_log_says_so(warm: Warm, wrong: str) -> None:
    """As a whole."""
    lists = ImportLists(str(warm.member.folder / KNOWN_IMPORTS), "g1", "worker-0", "a-pod")
    given = replace(known(warm), **BAD[wrong])
    assert lists.read(given, parse_python(given.command), None, {}) is None
    good = known(warm)
    assert lists.read(good, parse_python(good.command), None, {}) is not None


FILES = {"text": "what?", "another kind": wire.encode(wire.Ping()), "too long": " " * (wire.MAX_IMPORTS_BYTES + 1)}


@pytest.mark.parametrize("content", [*FILES, "another pod", "a bad list"])
def test_after_a_bad_file_or_list_the_worker_is_executed(warm: Warm, content: str) -> None:
    texts = {**FILES, "another pod": wire.encode(known(warm))}
    text = texts.get(content)
    if text is not None:
        (warm.member.folder / KNOWN_IMPORTS).write_text(text)
    begin(warm)
    if text is None:
        warm.member.sidecar.send(known(warm, "decimal", "../decimal"))
    warm.order()
    started(warm, executed=1)
    assert warm.report() == PLAIN
    said = "is not usable" if content in FILES and content != "another kind" else "is another pod's"
    assert (said if text is not None else "a list of what the worker imports is ignored") in warm.member.log


def test_a_long_list_is_cut_to_its_first_modules(tmp_path: Path) -> None:
    lists = ImportLists(str(tmp_path / "known"), "g1", "worker-0", "a-pod")
    modules = [f"package_{number}.module_with_a_name_of_ordinary_length" for number in range(10_000)]
    lists.keep(Known(PythonCommand(["python3"], ["train.py"]), {}, modules, ""), "/usr/bin/python3", {})
    assert wire.MAX_IMPORTS_BYTES / 2 < len(lists.offer) <= wire.MAX_IMPORTS_BYTES
    kept = lists.load()
    assert kept is not None
    assert list(kept.modules) == modules[: len(kept.modules)]
    assert json.loads(lists.offer) == json.loads((tmp_path / "known").read_text())
    before = lists.offer
    lists.keep(
        Known(PythonCommand(["python3"], ["train.py"]), {"LC_ALL": "\N{SNOWMAN}" * 5000}, modules, ""), "/python3", {}
    )
    assert lists.offer == before, "the controller would refuse what is longer"


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "LANG", "LC_ALL", "MALLOC_ARENA_MAX", "PYTHONPATH"])
def test_variables_of_a_list_are_those_that_a_fork_must_have_begun_with(name: str) -> None:
    assert EARLY.fullmatch(name)
    assert link.READ_EARLY.fullmatch(name)  # What this must agree with.


@pytest.mark.parametrize("name", ["LANGSMITH_API_KEY", "PYTHON_TOKEN", "RANK", "LD_"])
def test_a_variable_with_any_other_name_is_in_no_list(name: str) -> None:
    assert not EARLY.fullmatch(name)
