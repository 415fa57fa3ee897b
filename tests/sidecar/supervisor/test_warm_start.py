"""Workers that are forked from a template: with real interpreters, as each user's script would see it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gangsidecar.supervisor import processes, warm_start
from gangsidecar.wire import WORKERS_FILE, Progress
from tests.pythons import oldest
from tests.sidecar.supervisor.supervised import wait_for
from tests.sidecar.supervisor.warm import Warm, reporting

SCRIPT = """\
import json, os, sys, decimal, email.parser
class Point: pass
import inspect, pickle, random, signal
parking = int(os.environ.pop("GANG_PARKING", "-1:").partition(":")[0])  # Its own in each process.
report = {
    "name": __name__, "file": __file__, "argv": sys.argv, "path": sys.path, "pid": os.getpid(), "session": os.getsid(0),
    "modules": sorted(name for name in sys.modules if "gang" in name), "environment": dict(os.environ),
    "files": sorted(int(one) for one in os.listdir("/proc/self/fd")
                    if os.path.exists(f"/proc/self/fd/{one}") and int(one) != parking),
    "source": inspect.getsource(Point), "pickled": type(pickle.loads(pickle.dumps(Point()))).__module__,
    "spec": str(__spec__), "flags": list(sys.flags), "meta": [str(type(one)) for one in sys.meta_path],
    "stdin": sys.stdin.read(), "cwd": os.getcwd(), "main": sys.modules["__main__"].__dict__ is globals(),
    "original": getattr(sys, "orig_argv", []),
    "mask": [str(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    "handlers": [str(signal.getsignal(one)) for one in sorted(signal.valid_signals())], "umask": os.umask(0o22),
    "annotations": __annotations__ if sys.version_info < (3, 14) else {}, "globals": sorted(globals()),
}
with open(os.environ["DIR"] + "/report-" + os.environ["GANG_ATTEMPT"] + ".tmp", "w") as file:
    json.dump(report, file)
os.rename(file.name, file.name[:-len(".tmp")])
import time
time.sleep(1000)
"""


@pytest.mark.parametrize("python", sorted({sys.executable, oldest()[1]}))
def test_a_forked_worker_is_as_one_that_was_executed(warm: Warm, python: str) -> None:
    warm.script.write_text(SCRIPT)
    warm.start(python, "-u", "-W", "ignore", str(warm.script), "--rank", "$(RANK)")
    warm.run()
    first = warm.report(1)
    warm.steps()
    worker = warm.run()
    second = warm.report(2)
    assert second["pid"] == second["session"] == worker
    assert processes.parent(worker) == warm.member.pid
    assert first["argv"] == [str(warm.script), "--rank", "0"]
    for each in (first, second):
        for name in ("pid", "session"):
            del each[name]
        assert each["environment"].pop("GANG_ATTEMPT")
    assert second == first


def test_a_worker_that_can_be_forked_starts_as_python_starts_it(warm: Warm) -> None:
    warm.script.write_text(SCRIPT)
    command = (sys.executable, "-u", "-W", "ignore", str(warm.script), "--rank", "$(RANK)")
    warm.start(*command)
    warm.run()
    own = warm.report(1)
    environment = {**own["environment"], "GANG_ATTEMPT": "9"}
    words = ["env", "--default-signal", *command[:-1], "0"]
    with subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, start_new_session=True) as plain:
        report = warm.report(9)
        plain.kill()
    assert own["meta"].pop(0) == "<class 'gangsidecar.start.recorder.Recorder'>"
    for each in (own, report):
        for name in ("pid", "session"):
            del each[name]
        assert each["environment"].pop("GANG_ATTEMPT")
    assert own == report


def test_it_is_forked(warm: Warm) -> None:
    warm.script.write_text(SCRIPT)
    warm.start(sys.executable, str(warm.script))
    warm.run()
    assert (warm.told.forked, warm.told.executed) == (0, 1)
    assert warm.told.obstacle == warm_start.FIRST_START
    warm.report(1)
    template = warm.steps()
    second = warm.run()
    warm.report(2)
    assert (warm.told.forked, warm.told.executed, warm.told.obstacle) == (1, 0, "")
    assert warm.told.template_bytes > 1 << 20

    def heap(pid: int) -> list[str]:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        return [line.partition("-")[0] for line in lines if line.endswith("[heap]")][:1]

    assert heap(second) == heap(template)  # An executed process has its heap at a random address.


def test_each_process_of_a_pod_is_forked_with_its_own_environment(warm: Warm) -> None:
    warm.script.write_text(reporting("import os", "1").replace('"GANG_ATTEMPT"', '"NAME"'))
    warm.start(sys.executable, str(warm.script), preload="decimal")
    warm.ready()
    warm.order({"NAME": "a"}, {"NAME": "b"}, {"NAME": "c"})
    assert (warm.told.forked, warm.told.executed) == (3, 0)
    wait_for(lambda: all((warm.member.folder / f"report-{name}").exists() for name in "abc"))
    published = json.loads((warm.member.folder / WORKERS_FILE).read_text())
    assert sorted(published.values()) == [0, 1, 2]
    assert {int(pid) for pid in published} == set(processes.children(warm.member.pid)) - {warm.template}


def test_what_is_learnt_are_installed_packages_never_files_of_the_user(
    warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{warm.installed}{os.pathsep}{warm.member.folder}")
    warm.install("framework", "import fractions")
    warm.install("broken", "raise ImportError")
    beside, on_path = warm.script.parent / "model.py", warm.member.folder / "ours.py"
    for path in (beside, on_path):
        path.write_text("import framework; value = 1")
    warm.script.write_text(
        reporting(
            "import sys; before = set(sys.modules); import model, ours, missing_or_not\n"
            "try: import broken\nexcept ImportError: pass",
            '[model.value + ours.value, "framework" in before, "model" in before, "ours" in before]',
        ).replace("missing_or_not", "decimal")
    )
    warm.start(sys.executable, str(warm.script))
    warm.run()
    assert warm.report() == [2, False, False, False]
    learnt = (warm.member.folder / f"imports-{warm.worker()}").read_text().split()
    assert {"framework", "fractions", "decimal"} <= set(learnt)
    assert not {"model", "ours", "broken", "__main__"} & set(learnt)
    warm.steps()
    for path in (beside, on_path):
        path.write_text("value = 20")  # The user mends a file of theirs, in the pod.
    warm.run()
    assert warm.told.forked == 1
    assert warm.report() == [40, True, False, False]


def test_what_was_learnt_before_a_module_that_can_not_be_forked_is_preloaded(
    warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(warm.installed))
    warm.install("before", "")
    warm.install(
        "compiler", "import threading, time\nthreading.Thread(target=time.sleep, args=(99,), daemon=True).start()"
    )
    warm.install("after", "import compiler")
    code = "import sys; had = [name in sys.modules for name in ('before', 'compiler', 'after')]"
    warm.script.write_text(reporting(f"{code}; import before, after, decimal", "had"))
    warm.start(sys.executable, str(warm.script))
    warm.run()
    assert warm.report() == [False, False, False]
    warm.member.sidecar.send(Progress(warm.attempt, 1, 0))
    wait_for(lambda: "importing compiler has started a thread" in warm.member.log)
    assert warm.template == 0
    warm.steps()  # The next step that is reported: another template is made.
    warm.run()
    assert (warm.told.forked, warm.told.obstacle) == (1, "")
    assert warm.report() == [True, False, False]


def test_a_named_module_is_there_at_the_first_start(warm: Warm) -> None:
    warm.script.write_text(reporting("import sys", '"decimal" in sys.modules'))
    warm.start(sys.executable, str(warm.script), preload="decimal,no_such_module")
    warm.ready()
    assert "no_such_module" in warm.member.log
    warm.run()
    assert warm.report() is True
    assert warm.told.forked == 1


def test_the_end_of_a_forked_worker_is_its_own(warm: Warm) -> None:
    warm.script.write_text("import sys; sys.exit(7)")
    warm.start(sys.executable, str(warm.script), preload="decimal")
    warm.ready()
    warm.order()
    end = warm.member.ended().ends[-1]
    assert (end.exit_code, end.signal, end.rank) == (7, None, 0)
    warm.script.write_text("import os; os.kill(os.getpid(), 11)")
    warm.order()
    end = warm.member.sidecar.until(lambda told: [one for one in told.ends if one.attempt == 2]).ends[-1]
    assert (end.exit_code, end.signal) == (None, 11)


def test_a_script_that_is_missing_or_wrong_ends_as_with_python(warm: Warm) -> None:
    warm.start(sys.executable, str(warm.script), preload="decimal")
    warm.ready()
    warm.script.unlink(missing_ok=True)
    warm.order()
    assert warm.member.ended().ends[-1].exit_code == 2
    warm.script.write_text("1 +")
    warm.order()
    found = warm.member.sidecar.until(lambda told: [one for one in told.ends if one.attempt == 2])
    assert [one.exit_code for one in found.ends] == [2, 1]
    assert "SyntaxError" in warm.member.log


def test_random_states_differ_between_forked_processes(warm: Warm) -> None:
    drawn = "[random.random(), float(numpy.random.rand()), uuid.uuid4().hex, secrets.token_hex(4)]"
    code = "import random, numpy, uuid, secrets"
    warm.script.write_text(reporting(code, drawn).replace('"GANG_ATTEMPT"', '"RANK"'))
    warm.start(sys.executable, str(warm.script), preload="numpy.random,uuid,secrets,random")
    warm.ready()
    warm.order({}, {})
    assert warm.told.forked == 2
    paths = [warm.member.folder / f"report-{rank}" for rank in range(2)]
    wait_for(lambda: all(path.exists() for path in paths))
    first, second = (json.loads(path.read_text()) for path in paths)
    assert all(one != other for one, other in zip(first, second, strict=True))


TRAINS = """\
import hashlib, random, numpy, framework
random.seed(7); numpy.random.seed(7)
weights, rate = numpy.random.randn(300, 300), 0.01
for step in range(30):
    order = random.sample(range(300), 300)
    inputs = numpy.random.randn(200, 300)[:, order]
    wrong = numpy.tanh(inputs @ weights) - inputs
    weights -= rate * inputs.T @ (wrong * (1 - numpy.tanh(inputs @ weights) ** 2)) / 200
loss = float((wrong ** 2).mean())
"""


def test_training_that_is_seeded_ends_with_the_same_loss_to_the_last_bit(
    warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(warm.installed))
    warm.install("framework", "import numpy, random; drawn = numpy.random.rand(), random.random()")
    told = "[loss.hex(), hashlib.sha256(weights.tobytes()).hexdigest()]"
    warm.script.write_text(reporting(TRAINS, told))
    warm.start(sys.executable, str(warm.script))
    warm.run()
    executed = warm.report()
    warm.steps()
    warm.run()
    assert (warm.told.forked, warm.report()) == (1, executed)


def test_each_attempt_begins_in_the_working_directory_of_the_container(warm: Warm) -> None:
    warm.script.write_text(reporting("import os; began = os.getcwd(); os.chdir('/'); os.umask(0o77)", "began"))
    warm.start(sys.executable, str(warm.script), preload="decimal")
    warm.ready()
    for _ in range(2):
        warm.run()
        assert (warm.told.forked, warm.report()) == (1, str(Path.cwd()))


@pytest.mark.parametrize("number", ["", "1", "2"])
def test_a_library_uses_as_many_threads_as_after_a_start(warm: Warm, number: str) -> None:
    multiplies = "import numpy, os; a = numpy.ones((600, 600)); total = float((a @ a).sum())"
    warm.script.write_text(reporting(multiplies, '[total, len(os.listdir("/proc/self/task"))]'))
    warm.start(sys.executable, str(warm.script), preload="numpy")
    plain = {"OMP_NUM_THREADS": number} if number else {}
    warm.ready()
    warm.run(**plain)
    assert warm.told.forked == 1
    cores = len(os.sched_getaffinity(0))
    assert warm.report() == [600.0**3, int(number or cores)]


def test_processes_of_multiprocessing_find_the_script(warm: Warm) -> None:
    warm.script.write_text(
        "import multiprocessing, os, sys\n"
        "def work(queue): queue.put([__name__, os.getppid()])\n"
        "def results():\n"
        "    for method in ('spawn', 'fork', 'forkserver'):\n"
        "        context = multiprocessing.get_context(method)\n"
        "        queue = context.SimpleQueue()\n"
        "        process = context.Process(target=work, args=(queue,))\n"
        "        process.start()\n"
        "        yield queue.get()[0]\n"
        "        process.join()\n"
        "if __name__ == '__main__':\n"
        "    found = list(results())\n"
        + "".join(f"    {line}\n" for line in reporting("", "found").splitlines() if line)
    )
    warm.start(sys.executable, str(warm.script), preload="multiprocessing.queues")
    warm.ready()
    warm.run()
    assert warm.report() == ["__mp_main__", "__main__", "__mp_main__"]
    assert warm.told.forked == 1


@pytest.mark.parametrize("flags", [["-u"], ["-O", "-X", "utf8"], ["-Wignore", "-uB"]])
def test_a_module_is_run_with_pythons_flags(warm: Warm, flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    package = warm.installed / "trained"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "other.py").write_text("value = 5")
    (package / "__main__.py").write_text(
        reporting(
            "import sys; from .other import value", "[value, sys.argv[1:], __spec__.name, list(sys.flags), __debug__]"
        )
    )
    monkeypatch.setenv("PYTHONPATH", str(warm.installed))
    target = ["-m", "trained", "--lr", "1"]
    warm.start(sys.executable, *flags, *target)
    warm.run()
    executed = warm.report()
    assert executed[:2] == [5, ["--lr", "1"]]
    warm.steps()
    warm.run()
    assert warm.told.forked == 1
    assert warm.report() == executed
