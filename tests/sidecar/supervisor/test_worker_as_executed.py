"""A worker finds what a plain exec gives it: environment, arguments, files, signals, limits."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sidecar.supervisor.supervised import EXECUTABLE, Member

ADDED = {b"GANG_POD_UID", b"GANG_SUPERVISED", b"GANG_PARKING", b"GANG_TERMINATION_LOG"}
"""What the supervisor adds here: marks, the file of last words, and the socket on which ``gangclient.run`` parks."""
PARTS = ("environ", "cmdline", "status", "oom_score_adj", "limits", "personality")
SAME = ("Umask", "NoNewPrivs", "Seccomp", "Cpus_allowed_list", "SigBlk", "SigIgn", "SigCgt", "THP_enabled", "CapEff")
WORDS = [b"tail", b"-n", b"+1", *(f"/proc/self/{part}".encode() for part in PARTS), b"$HOME", b"a b", b"", b"\xff"]
"""It prints these files, after a line with the name of each. It does not find the others."""
ODD: dict[bytes, bytes] = {
    b"PATH": os.environb[b"PATH"],
    b"Z": b"first",
    b"A": b"then",
    b"BYTES": b"\xff\xfe not UTF-8",
    b"EMPTY": b"",
    b"LINES": b"a\nb",
    b"PYTHONHOME": b"/nowhere",
    b"PYTHONPATH": b"/nowhere",
    b"PYTHONOPTIMIZE": b"2",
    b"PYTHONINSPECT": b"1",
    b"LD_LIBRARY_PATH": b"/nowhere",
    b"MALLOC_ARENA_MAX": b"1",
    b"TZ": b"Nowhere/None",
}
"""Much of it would mislead a Python, and in a locale that is not set Python sets LC_CTYPE."""


@pytest.fixture
def odd_process() -> Iterator[None]:
    """What a worker inherits through its supervisor differs from the usual."""
    before = os.umask(0o027)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(777, files[1]), files[1]))
    for one in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(one) is signal.SIG_IGN:  # A shell does so for what it starts in the background.
            signal.signal(one, signal.SIG_DFL)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, files)
    os.umask(before)


@pytest.mark.skipif(not EXECUTABLE, reason="an interpreter may set LC_CTYPE, so the archive's does")
@pytest.mark.usefixtures("odd_process")
def test_a_worker_of_the_executable_is_like_one_that_a_plain_exec_starts(member: Member, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    with plain.open("wb") as file:
        environment = {**ODD, b"DIR": os.fsencode(member.folder)}
        subprocess.run(WORDS, env=environment, stdout=file, stderr=subprocess.DEVNULL, check=False)
    worker = tmp_path / "worker"
    with worker.open("wb") as file:
        member.stdout = file.fileno()
        member.environment = {os.fsdecode(name): os.fsdecode(value) for name, value in ODD.items()}
        member.start(*map(os.fsdecode, WORDS))
        member.run(member.hold(1))
        member.ended()
        member.finish(1)
    expected, found = read(plain), read(worker)
    own = [one for one in found["environ"] if one.partition(b"=")[0] in ADDED]
    assert {one.partition(b"=")[0] for one in own} == ADDED
    assert [one for one in found["environ"] if one not in own] == expected["environ"]
    assert found["cmdline"] == expected["cmdline"]
    assert {part: found[part] for part in PARTS[2:]} == {part: expected[part] for part in PARTS[2:]}
    assert len(found["status"]) >= 6


def test_a_worker_gets_no_file_of_its_supervisor(member: Member, tmp_path: Path) -> None:
    worker = tmp_path / "worker"
    with worker.open("wb") as file:
        member.stdout = file.fileno()
        member.train("ls", "-l", "/proc/self/fd")
        member.ended()
        member.finish(1)
    targets = {line.rpartition(" -> ")[2] for line in worker.read_text().splitlines() if " -> " in line}
    # Its own listing is open, too. Standard error is the log that the test gives to the supervisor.
    (parking,) = (one for one in targets if one.startswith("socket:"))
    others = {one for one in targets if not one.startswith("/proc/")} - {parking}
    assert others == {"/dev/null", str(worker), str(member.folder / "log")}


def read(file: Path) -> dict[str, list[bytes]]:
    """The parts that ``tail`` has printed, without what differs between any two processes."""
    found: dict[str, list[bytes]] = {}
    for piece in file.read_bytes().split(b"==> /proc/self/")[1:]:
        name, _, content = piece.partition(b" <==\n")
        part = name.decode()
        if part in {"environ", "cmdline"}:
            found[part] = content.removesuffix(b"\n").rstrip(b"\0").split(b"\0")
        else:
            lines = content.strip().splitlines()
            kept = [line for line in lines if line.decode().partition(":")[0] in SAME]
            found[part] = kept if part == "status" else lines
    return found
