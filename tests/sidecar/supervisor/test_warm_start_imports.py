"""Modules that a template can't import, or must not, and interpreters that can't be one."""

from __future__ import annotations

import getpass
import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gangsidecar.wire import Progress
from tests.pythons import FIRST_MINOR, every
from tests.sidecar.supervisor.supervised import wait_for
from tests.sidecar.supervisor.warm import WAITS, Warm, reporting, template_ends

pytestmark = pytest.mark.usefixtures("greeting")


def test_a_module_that_can_not_be_imported_is_told_with_the_start(warm: Warm) -> None:
    warm.start(sys.executable, str(warm.script), preload="decimal,no_such_module")
    warm.ready()
    warm.run()
    assert warm.told.forked == 1
    assert warm.told.not_imported == "no_such_module (ModuleNotFoundError: No module named 'no_such_module')"


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


@pytest.mark.parametrize(("folder", "forks"), [("", 1), ("/elsewhere", 0)])
def test_the_default_folder_of_pytorchs_caches_is_no_other_value_than_none(
    warm: Warm, folder: str, forks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below deepspeed the ranks have it from an import of their launcher, which the template does without."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    default = f"{tempfile.gettempdir()}/torchinductor_{getpass.getuser()}"
    warm.install("reads", "import os\nos.environ.get('TORCHINDUCTOR_CACHE_DIR')\n")
    warm.start(sys.executable, str(warm.script), preload="decimal,reads")
    warm.ready()
    warm.run(TORCHINDUCTOR_CACHE_DIR=folder or default)
    assert (warm.told.forked, warm.told.executed) == (forks, 1 - forks)


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


def test_variables_that_python_sets_itself_are_those_of_a_start(warm: Warm) -> None:
    """As LC_CTYPE in the locale C; tqdm, which PyTorch imports, looks at all variables."""
    warm.install("sitecustomize", "import os\nos.environ['BY_PYTHON'] = 'sweet'")
    warm.install("copies", "import os\nsaw = dict(os.environ).get('BY_PYTHON')")
    warm.script.write_text(reporting("import os, copies", "[copies.saw, os.environ.get('BY_PYTHON')]"))
    warm.start(sys.executable, str(warm.script), preload="copies")
    warm.ready()
    warm.run()
    assert (warm.told.forked, warm.report()) == (1, ["sweet", "sweet"])


def test_a_directory_that_an_import_has_made_outlives_the_forks(warm: Warm) -> None:
    warm.install(
        "generates",
        "import pathlib, sys, tempfile\nkept = tempfile.TemporaryDirectory()\n"
        "pathlib.Path(kept.name, 'generated.py').write_text('value = 7')\n"
        "sys.path.append(kept.name)\nimport generated",
    )
    warm.script.write_text(reporting("import generates", "generates.generated.value").replace(WAITS, ""))
    warm.start(sys.executable, str(warm.script), preload="generates")
    warm.ready()
    for attempt in (1, 2, 3):
        warm.order()
        assert warm.report() == 7
        warm.member.ended()
        assert warm.told.forked == 1, (attempt, warm.told.obstacle)


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
        warm.order()
        assert warm.report() == ["hello", ["a"], 1]
        assert (warm.told.forked, warm.told.executed) == (0, 1)
        warm.member.sidecar.send(Progress(warm.attempt, 1, 0))


def too_old() -> str:
    """An interpreter before 3.8."""
    found = [path for minor, path in every().items() if minor < FIRST_MINOR]
    return found[0] if found else pytest.skip("this machine has no Python before 3.8")
