"""Stand-ins do at import what libraries do: a guard names it, or the module is on the list, or it may be forked."""

from __future__ import annotations

import ctypes.util
import sys
from typing import TYPE_CHECKING

import pytest

from gangsidecar.start.unsafe_modules import UNSAFE, why_unsafe
from tests.sidecar.supervisor.warm import Warm, executed, reporting, template_ends

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("greeting")

POOL = """
import ctypes
free = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)
ctypes.CDLL("libgomp.so.1").GOMP_parallel(free, None, 3, 0)
"""
"""Three threads that free nothing: the pool stays."""
ALLOCATOR = """
import ctypes, threading, time, _thread
named = threading.Event()
def purge():
    ctypes.CDLL(None).prctl(15, b"jemalloc_bg_thd")
    named.set()
    time.sleep(1000)
_thread.start_new_thread(purge, ())
named.wait()
"""
"""A thread that Python's threading does not know."""
AGENT = "import threading, time; threading.Thread(target=time.sleep, args=(99,), name='agent', daemon=True).start()"
READS_THE_RANK_IN_C = """
import ctypes
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
found = str(getenv(b"RANK"))
"""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        pytest.param(
            POOL,
            "importing bad has started a thread (thread ",
            marks=pytest.mark.skipif(ctypes.util.find_library("gomp") is None, reason="libgomp is not installed"),
            id="OpenMP",
        ),
        pytest.param(
            ALLOCATOR, "importing bad has started a thread (thread 'jemalloc_bg_thd' of a library)", id="polars"
        ),
        pytest.param(
            "import multiprocessing; lock = multiprocessing.Lock()",
            "a preloaded module has mapped memory that processes share",
            id="a lock between processes",
        ),
    ],
)
def test_a_guard_names_what_a_library_leaves_behind(warm: Warm, code: str, said: str) -> None:
    warm.install("bad", code)
    warm.start(sys.executable, str(warm.script), preload="decimal,bad")
    template_ends(warm)
    assert executed(warm).startswith(said)


def test_a_guard_names_the_thread_that_an_agent_has_started_before_any_import(warm: Warm) -> None:
    """As ``ddtrace-run`` and ``opentelemetry-instrument`` do by a ``sitecustomize``."""
    warm.install("sitecustomize", AGENT)
    warm.start(sys.executable, str(warm.script), preload="decimal")
    template_ends(warm)
    assert executed(warm).startswith("importing decimal has started a thread (Python thread 'agent')")


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import os; os.close(os.open('/dev/full', os.O_RDWR))", id="vllm asks NVML and closes it"),
        pytest.param("import subprocess; subprocess.run(['true'], check=True)", id="bitsandbytes runs rocminfo"),
        pytest.param("import os; os.register_at_fork(before=lambda: print('fork'), after_in_child=int)", id="grpc"),
    ],
)
def test_a_library_that_leaves_nothing_behind_is_forked(warm: Warm, code: str) -> None:
    warm.install("fine", code)
    warm.start(sys.executable, str(warm.script), preload="decimal,fine")
    warm.ready()
    warm.run()
    assert (warm.report(), warm.told.forked, warm.told.obstacle) == (["hello", True], 1, "")


@pytest.mark.parametrize("listed", ["mpi4py.MPI", "habana_frameworks.torch.core"])
def test_the_list_names_what_no_guard_sees(warm: Warm, listed: str) -> None:
    warm.install("stand_in", READS_THE_RANK_IN_C)
    warm.script.write_text(reporting("import stand_in", "stand_in.found"))
    warm.start(sys.executable, str(warm.script), preload="stand_in")
    warm.ready()
    warm.run()
    assert (warm.report(), warm.told.forked) == ("None", 1), "its rank is 0"
    assert why_unsafe(listed)


def test_the_list_names_a_module_whose_import_is_the_harm(warm: Warm, tmp_path: Path) -> None:
    """The guard finds the open device when the context has been made."""
    harm = tmp_path / "harm"
    warm.install("stand_in", f"device = open('/dev/full', 'wb'); open({str(harm)!r}, 'w').close()")
    warm.start(sys.executable, str(warm.script), preload="stand_in,decimal")
    template_ends(warm)
    assert "importing stand_in has opened the device /dev/full" in warm.member.log
    assert harm.exists()
    assert why_unsafe("pycuda.autoinit")


def test_a_process_that_a_module_keeps_is_the_template(warm: Warm) -> None:
    """No guard sees it, and no module in docs/reference/preloaded-modules.md keeps it."""
    warm.install("stand_in", "import os; found = os.getpid()")
    warm.script.write_text(reporting("import os, stand_in", "[stand_in.found, os.getpid()]"))
    warm.start(sys.executable, str(warm.script), preload="stand_in")
    template = warm.ready()
    worker = warm.run()
    assert warm.report() == [template, worker]


def test_a_name_on_the_list_stands_for_all_below_it() -> None:
    assert all(map(why_unsafe, UNSAFE))
    assert why_unsafe("habana_frameworks.torch.distributed.hccl") == why_unsafe("habana_frameworks.torch")
    assert [why_unsafe(name) for name in ("mpi4py", "mpi4py.MPIx", "habana_frameworks", "torch", "os")] == [""] * 5


def test_a_template_imports_none_of_the_list_and_nothing_after_it(warm: Warm) -> None:
    package = warm.installed / "pycuda"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "autoinit.py").write_text("import os; os._exit(7)")
    warm.script.write_text(reporting("import sys", '["decimal" in sys.modules, "colorsys" in sys.modules]'))
    warm.start(sys.executable, str(warm.script), preload="decimal,pycuda.autoinit,colorsys")
    warm.ready()
    warm.run()
    assert (warm.report(), warm.told.forked) == ([True, False], 1)
    assert warm.told.not_imported == f"pycuda.autoinit ({UNSAFE['pycuda.autoinit']})"


def test_a_module_of_the_list_ends_the_template_before_another_module_has_imported_it(warm: Warm) -> None:
    package = warm.installed / "mpi4py"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "MPI.py").write_text("import os; open(os.environ['DIR'] + '/joined', 'w').close()")
    warm.install("bad", "import importlib.util\nif importlib.util.find_spec('mpi4py'): from mpi4py import MPI")
    warm.start(sys.executable, str(warm.script), preload="decimal,bad,email")
    template_ends(warm)
    assert executed(warm).startswith("importing bad imports mpi4py.MPI (it joins the MPI job")
    assert not (warm.member.folder / "joined").exists()
