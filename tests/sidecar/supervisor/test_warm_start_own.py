"""What a program changes before it imports counts in its forks, too: a template imports nothing that this changes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gangsidecar.supervisor.import_lists import merged
from gangsidecar.supervisor.workers import KNOWN_IMPORTS
from gangsidecar.wire import Imports, Progress
from tests.sidecar.supervisor.supervised import wait_for
from tests.sidecar.supervisor.test_handover import forked, started
from tests.sidecar.supervisor.warm import Warm, reporting

pytestmark = pytest.mark.usefixtures("greeting")
VENDORS = "import os, sys\nsys.path.insert(0, os.environ['DIR'] + '/third-party')\n"


def vendored(warm: Warm, name: str) -> Path:
    """A package that lies beside the program, of which another version is installed."""
    warm.install(name, "found = 'installed'")
    path = warm.member.file("third-party") / name / "__init__.py"
    path.parent.mkdir(parents=True)
    path.write_text("found = 'vendored'")
    return path


def learnt(warm: Warm, *command: str) -> Imports:
    """Run an attempt that is executed, until a template of it is ready; returns what it offers."""
    warm.start(*(command or (sys.executable, str(warm.script))))
    warm.run()
    started(warm, executed=1)
    warm.report()
    warm.member.sidecar.send(Progress(warm.attempt, 1, 0))
    wait_for(lambda: "the template" in warm.member.log)
    if not warm.template:
        warm.steps()  # Without the module that is to blame.
    return warm.member.sidecar.imports()


def fork(warm: Warm) -> None:
    """The next attempt is a fork; its program finds what it found when it was executed."""
    expected = warm.report()
    warm.run()
    forked(warm)
    assert warm.report() == expected


def test_a_fork_imports_the_programs_own_module_and_not_the_installed_one(warm: Warm) -> None:
    vendored(warm, "models")
    warm.install("tunes", "import models; found = models.found")
    warm.script.write_text(
        reporting(f"{VENDORS}import decimal, tunes, models, colorsys", "[models.found, tunes.found]")
    )
    modules = learnt(warm).modules
    assert "importing tunes imports models (the program has its own)" in warm.member.log
    assert warm.report() == ["vendored", "vendored"]
    assert "decimal" in modules
    assert not {"tunes", "models"} & {*modules}
    fork(warm)


def test_a_fork_in_another_pod_imports_the_programs_own_module(warm: Warm) -> None:
    vendored(warm, "models")
    warm.install("tunes", "import models; found = models.found")
    warm.script.write_text(
        reporting(f"{VENDORS}import decimal, tunes, models, colorsys", "[models.found, tunes.found]")
    )
    offered = learnt(warm)
    assert offered.modules[0] == "!models", "first, so that no list is too long for it"
    assert warm.member.process is not None
    warm.member.process.kill()
    warm.member.wait()
    (warm.member.folder / KNOWN_IMPORTS).unlink()
    before = warm.template
    warm.start(sys.executable, str(warm.script))
    warm.member.sidecar.send(replace(offered, pod="a-peer"))
    wait_for(lambda: warm.template != before)
    fork(warm)


def test_a_template_has_no_module_of_which_a_program_that_has_ended_has_its_own(warm: Warm) -> None:
    vendored(warm, "models")
    first = warm.script.with_name("prepare.py")
    first.write_text(f"{VENDORS}import models, colorsys\nopen(os.environ['DIR'] + '/' + models.found, 'w')\n")
    warm.script.write_text(reporting("import decimal, models, colorsys", "models.found"))
    learnt(warm, "sh", "-c", f'"$$0" {first}; exec "$$0" "$$1"', sys.executable, str(warm.script))
    warm.member.file("vendored").unlink()
    warm.run()
    forked(warm, 2)
    assert warm.report() == "installed"
    assert warm.member.file("vendored").exists()


def test_what_a_template_finds_as_the_program_does_is_not_the_programs_own(
    warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder in PYTHONPATH, a namespace, and what is in no folder."""
    monkeypatch.setenv("PYTHONPATH", f"{warm.installed}:{warm.member.folder}")
    spaced = warm.installed / "spaced"
    spaced.mkdir()
    (spaced / "inner.py").touch()
    warm.install("made", "import sys, types; sys.modules['unreal'] = types.ModuleType('unreal')")
    warm.member.file("ours.py").touch()
    warm.script.with_name("beside.py").touch()
    warm.script.write_text(reporting("import spaced.inner, ours, made, unreal, beside, colorsys", "1"))
    modules = learnt(warm).modules
    assert {name for name in modules if name.startswith("!")} == {"!beside"}
    fork(warm)


def test_what_an_installed_module_writes_and_imports_is_not_the_programs_own(warm: Warm) -> None:
    """As PyTorch does in ``torch/distributed/nn``; the program has put a folder into the path before."""
    vendored(warm, "models")
    warm.install("writer", "import sys, tempfile\nfolder = tempfile.TemporaryDirectory()\nsys.path.append(folder.name)")
    body = "import importlib, writer\nopen(writer.folder.name + '/written.py', 'w').close()\n"
    warm.install("nn", f"{body}importlib.invalidate_caches()\nimportlib.import_module('written')\nimport decimal")
    warm.script.write_text(reporting(f"{VENDORS}import nn, models, colorsys", "models.found"))
    modules = learnt(warm).modules
    assert {name for name in modules if name.startswith("!")} == {"!models"}
    assert {"nn", "decimal"} <= {*modules}
    assert "importing nn" not in warm.member.log
    fork(warm)


CHANGES = {
    "sets": ("", "os.environ['CACHE'] = '/data'", ["/data"]),
    "sets another value": ("/cache", "os.environ['CACHE'] = '/data'", ["/data"]),
    "removes": ("/cache", "del os.environ['CACHE']", [None]),
    "sets a default": ("/cache", "os.environ.setdefault('CACHE', '/data')", ["/cache"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_module_that_reads_a_variable_reads_it_in_a_fork_as_the_program_has_left_it(
    warm: Warm, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    given, code, found = CHANGES[change]
    monkeypatch.setenv("CACHE", given) if given else monkeypatch.delenv("CACHE", raising=False)
    warm.install("hub", "import os; cache = os.environ.get('CACHE')")
    warm.script.write_text(reporting(f"import os, decimal\n{code}\nimport colorsys, hub, fractions", "[hub.cache]"))
    modules = learnt(warm).modules
    assert warm.report() == found
    assert {"decimal", "colorsys"} <= {*modules}
    assert ("hub" in modules) == (change == "sets a default")
    assert ("importing hub reads CACHE, which the program changes" in warm.member.log) == ("hub" not in modules)
    fork(warm)


def test_a_variable_that_the_program_changes_hinders_no_module_that_has_not_read_it_then(
    warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has read it before, one copies the whole environment as tqdm does, one changes a variable itself."""
    monkeypatch.setenv("CACHE", "/cache")
    warm.install("before", "import os; cache = os.environ['CACHE']")
    warm.install("copies", "import os; copied = [name for name, value in os.environ.items() if not value]")
    warm.install("sets", "import os; os.environ['SET'] = '1'; import setup")
    warm.install("setup", "import os; was = os.environ['SET']")
    code = "import os, before\nos.environ['CACHE'] = '/data'\nimport copies, sets, fractions"
    warm.script.write_text(reporting(code, "[before.cache, os.environ['CACHE'], os.environ['SET'], sets.setup.was]"))
    modules = learnt(warm).modules
    assert [name for name in modules if name.startswith("=")] == ["=CACHE"]
    assert {"before", "copies", "sets", "setup"} <= {*modules}
    assert modules.index("before") < modules.index("=CACHE") < modules.index("copies")
    fork(warm)


def test_a_variable_that_only_forks_change_hinders_what_was_imported_before(
    warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program may have changed it before: what a template has imported, its forks don't record."""
    monkeypatch.delenv("CACHE", raising=False)
    warm.install("hub", "import os; cache = os.environ.get('CACHE')")
    again = "if os.environ['GANG_ATTEMPT'] != '1': os.environ['CACHE'] = '/data'; import colorsys, wave"
    warm.script.write_text(reporting(f"import os, decimal, hub, fractions\n{again}", "'hub'"))
    learnt(warm)
    first = warm.template
    fork(warm)
    warm.member.sidecar.send(Progress(warm.attempt, 1, 0))
    wait_for(lambda: "importing hub reads CACHE, which the program changes" in warm.member.log)
    recorded = warm.member.file("imports").read_text().split()
    assert [line for line in recorded if line.startswith("=")] == ["=CACHE"], "a fork begins with what its start has"
    warm.member.sidecar.send(Progress(warm.attempt, 2, 0))
    wait_for(lambda: warm.template != first)
    fork(warm)


def test_what_a_sitecustomize_sets_is_no_change_of_the_programs(warm: Warm) -> None:
    warm.install("sitecustomize", "import os; os.environ['CUSTOM'] = '1'")
    warm.install("hub", "import os; custom = os.environ['CUSTOM']")
    warm.script.write_text(reporting("import hub, colorsys", "hub.custom"))
    assert "hub" in learnt(warm).modules
    fork(warm)


def test_a_variable_stands_before_all_that_has_followed_it_in_any_list() -> None:
    launcher, rank = ["torch", "=PATH", "elastic"], ["=HF_HOME", "numpy", "torch", "=PATH", "transformers"]
    assert merged([launcher, rank]) == ["=HF_HOME", "torch", "=PATH", "elastic", "numpy", "transformers"]
    assert merged([rank]) == rank
    assert merged([]) == []
