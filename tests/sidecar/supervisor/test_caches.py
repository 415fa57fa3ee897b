"""What compilers make is kept for the next start, where only the worker's user may enter. With a real JAX."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from gangsidecar.supervisor import launch
from gangsidecar.wire import Compiler
from tests.sidecar.supervisor.supervised import Member, wait_for
from tests.sidecar.supervisor.warm import Warm, reporting

ALL = ",".join(one.value for one in Compiler)
SCRIPT = """\
import jax
from jax._src import monitoring
seen = []
monitoring.register_event_listener(lambda event, **_: seen.append(event))
jax.jit(lambda x: (x @ x).sum())(jax.numpy.ones((8, 8))).block_until_ready()
hits, asked = (seen.count(f"/jax/compilation_cache/{what}") for what in ("cache_hits", "compile_requests_use_cache"))
"""
FOUND = '[hits, asked, os.environ.get("JAX_COMPILATION_CACHE_DIR"), os.environ.get("GANG_CACHES")]'


@pytest.fixture
def jax(warm: Warm, monkeypatch: pytest.MonkeyPatch) -> Warm:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    warm.script.write_text(reporting(SCRIPT, FOUND))
    return warm


def attempt(member: Member, number: int, **env: str) -> Any:
    """Run the script in this attempt; returns what it has found."""
    member.run(member.hold(number), {"GANG_ATTEMPT": str(number), **env})
    path = member.file(f"report-{number}")
    return wait_for(lambda: json.loads(path.read_text()) if path.exists() else None)


def test_a_restart_finds_what_jax_has_compiled(jax: Warm) -> None:
    jax.member.start(sys.executable, str(jax.script), caches=ALL)
    folder = str(jax.member.folder / "caches" / "jax")
    hits, asked, where, ours = attempt(jax.member, 1)
    assert (hits, where, ours) == (0, folder, None)
    assert asked > 0
    assert attempt(jax.member, 2) == [asked, asked, folder, None]
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700


def test_a_forked_worker_finds_it_too(jax: Warm) -> None:
    jax.start(sys.executable, str(jax.script), preload="jax", caches="JAX")
    jax.ready()
    jax.run()
    _, asked, *where = jax.report()
    assert jax.told.forked == 1
    jax.run()
    assert jax.report() == [asked, asked, *where]


def test_a_new_session_of_the_pod_finds_it(jax: Warm) -> None:
    jax.member.start(sys.executable, str(jax.script), caches="JAX")
    _, asked, *where = attempt(jax.member, 1)
    jax.member.finish(2)
    jax.member.start(sys.executable, str(jax.script), caches="JAX")
    assert attempt(jax.member, 3) == [asked, asked, *where]


def test_what_an_end_has_cut_off_is_compiled_again(jax: Warm) -> None:
    jax.member.start(sys.executable, str(jax.script), caches="JAX")
    _, asked, *where = attempt(jax.member, 1)
    for path in (jax.member.folder / "caches" / "jax").glob("*-cache"):
        os.truncate(path, 100)
    assert attempt(jax.member, 2) == [0, asked, *where]


@pytest.mark.parametrize("value", ["elsewhere", ""])
def test_the_folder_that_the_user_has_set_stays(jax: Warm, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", value and str(jax.member.folder / value))
    jax.member.start(sys.executable, str(jax.script), caches="JAX")
    attempt(jax.member, 1)
    hits, asked, where, _ = attempt(jax.member, 2)
    assert where == (value and str(jax.member.folder / value))
    assert hits == 0 or value, "an empty variable means no cache"
    assert asked > 0
    assert not (jax.member.folder / "caches").exists()


def test_without_a_word_from_the_pod_nothing_is_set(jax: Warm) -> None:
    jax.member.start(sys.executable, str(jax.script))
    assert attempt(jax.member, 1)[2] is None


def test_each_compiler_has_a_folder_of_its_own(tmp_path: Path) -> None:
    found = launch.cache_variables(str(tmp_path / "caches"), tuple(Compiler), {"TRITON_CACHE_DIR": "/mine"})
    assert {name for name in found if "JAX" not in name} == {"CUDA_CACHE_PATH", "TORCHINDUCTOR_CACHE_DIR"}
    folders = [value for name, value in found.items() if "DIR" in name or "PATH" in name]
    assert len(set(folders)) == len(folders) == 3
    assert all(Path(folder).is_dir() for folder in folders)


def test_what_jax_keeps_in_a_folder_of_the_user_is_his_choice(tmp_path: Path) -> None:
    assert launch.cache_variables(str(tmp_path), (Compiler.JAX,), {"JAX_COMPILATION_CACHE_DIR": "gs://mine"}) == {}
    name = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
    tmp_path.chmod(0o700)
    assert name not in launch.cache_variables(str(tmp_path), (Compiler.JAX,), {name: "5"})


@pytest.mark.parametrize("kind", ["open", "link", "file"])
def test_a_folder_that_another_user_could_write_to_is_not_used(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    folder = tmp_path / "caches"
    if kind == "open":
        folder.mkdir()
        folder.chmod(0o770)
    elif kind == "link":
        (tmp_path / "other").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "other")
    else:
        folder.write_text("")
    assert launch.cache_variables(str(folder), tuple(Compiler), {}) == {}
    assert "what compilers make is not kept for a restart" in capfd.readouterr().err


def test_an_unknown_compiler_is_refused(member: Member) -> None:
    member.launch("true", caches="CUDA,LLVM")
    assert member.wait() == 2
    assert "--caches: 'CUDA,LLVM' instead of some of CUDA,Inductor,JAX,Triton" in member.log
