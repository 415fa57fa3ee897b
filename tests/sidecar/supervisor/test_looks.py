"""A look at processes isn't one moment: whatever moves during it, it doesn't miss what runs all the time.

An audit hook moves a process before the Nth file that the look reads, for every N.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

WAIT_FOR = """
import os, signal, subprocess, sys, time
from gangsidecar.supervisor import processes
def wait_for(condition):
    while not (found := condition()):
        time.sleep(0.001)
    return found
"""
MOVED = (
    WAIT_FOR
    + """
assert not processes.adopt_orphans()
me, left = os.getpid(), -1

def hook(event, args):
    global left
    if event in {"open", "os.listdir"} and left >= 0:
        left -= 1
        if left < 0:
            move()

def move():
    parked.stdin.write(b"x")
    parked.stdin.flush()
    wait_for(has_moved)

sys.addaudithook(hook)
for at in range(1000):
    with subprocess.Popen([sys.executable, "-IS", "-c", PARKED], stdin=-1, stdout=-1) as parked:
        child = int(parked.stdout.readline())
        left = at
        gone = processes.only_children(set(), {parked.pid})
        is_through, left = left >= 0, -1
        os.kill(child, signal.SIGKILL)
        parked.kill()
    wait_for(lambda: not [*processes.reap()] and not processes.children(me))
    assert not gone, f"a process that moves before file {at} is missed"
    if is_through:
        break
else:
    raise AssertionError("no look ends")
print(at)
"""
)
ORPHAN = '''
PARKED = """
import os, sys, time
read, write = os.pipe()
if os.fork() == 0:
    child = os.fork()
    if child == 0:
        time.sleep(1000)
    os.write(write, str(child).encode())
    sys.stdin.read(1)
    os._exit(0)
print(os.read(read, 99).decode(), flush=True)
os.wait()
time.sleep(1000)
"""
def has_moved():
    return processes.parent(child) == me
'''
THREADS_CHILD = '''
PARKED = """
import os, sys, _thread, time
def thread():
    child = os.fork()
    if child == 0:
        time.sleep(1000)
    print(child, flush=True)
    sys.stdin.read(1)
_thread.start_new_thread(thread, ())
time.sleep(1000)
"""
def has_moved():
    return len(os.listdir(f"/proc/{parked.pid}/task")) == 1
'''
SUCCESSOR = (
    WAIT_FOR
    + """
PROGRAM = (
    "import os, sys, time; sys.stdin.read(1); os.fork() and os._exit(0); print(os.getpid(), flush=True); "
    "time.sleep(1000)"
)
pod = f"pod of {os.getpid()}"
marks = {**os.environ, "GANG_POD_UID": pod, processes.MARK: "1"}
with subprocess.Popen([sys.executable, "-IS", "-c", PROGRAM], env=marks, stdin=-1, stdout=-1) as worker:
    child = 0
    def hook(event, args):
        global child
        if event == "os.listdir" and str(args[0]).startswith(f"/proc/{worker.pid}") and not child:
            worker.stdin.write(b"x")
            worker.stdin.flush()
            child = int(worker.stdout.readline())
            worker.wait()
    wait_for(lambda: processes.find_marked(pod))
    sys.addaudithook(hook)
    found = processes.find_marked(pod)
    os.kill(child, signal.SIGKILL)
assert found == [child], (found, child)
"""
)


def result(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("moving", [ORPHAN, THREADS_CHILD], ids=["to the supervisor", "to another thread"])
def test_a_process_below_a_parked_one_that_moves_is_seen(moving: str) -> None:
    assert int(result(moving + MOVED)) > 0


def test_a_new_supervisor_sees_the_child_of_a_process_that_ends_as_it_looks() -> None:
    result(SUCCESSOR)
