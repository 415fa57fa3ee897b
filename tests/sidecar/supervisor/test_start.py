"""What a worker is started with, and what must be there before it starts."""

from __future__ import annotations

import socket
from dataclasses import replace
from functools import partial

import pytest

from gangsidecar.supervisor import processes
from gangsidecar.wire import (
    Phase,
    Restore,
)
from tests import ipv6
from tests.sidecar.supervisor.supervised import SLEEP, Member, is_alive, python, shell, text, wait_for


def test_each_process_has_its_own_environment_and_arguments(member: Member) -> None:
    script = 'echo "$0 $1 $2 $3 $GANG_POD_UID" > "$DIR/out.$RANK"; sleep 1000'
    member.start("sh", "-c", script, "$(RANK)", "$$(RANK)", "$(NOPE)", "a$(DIR)$")
    member.run(member.hold(1), {"RANK": "0"}, {"RANK": "1"})
    for rank in "01":
        file = member.file(f"out.{rank}")
        said = wait_for(partial(text, file))
        assert said == f"{rank} $(RANK) $(NOPE) a{member.folder}$ {member.pod}\n"


def test_the_host_file_of_the_attempt_exists_before_the_worker(member: Member) -> None:
    member.start("sh", "-c", 'cat "$DIR/hostfile" > "$DIR/out.$GANG_ATTEMPT"; echo . >> "$DIR/out.$GANG_ATTEMPT"')
    lines = ("10.0.0.1 slots=8", "10.0.0.2 slots=8")
    for attempt, hosts, found in (
        (1, lines, "".join(f"{one}\n" for one in lines)),
        (2, lines[1:], lines[1] + "\n"),
    ):
        member.run(member.hold(attempt), {"GANG_ATTEMPT": str(attempt)}, hosts=hosts)
        assert wait_for(partial(text, member.file(f"out.{attempt}"))).startswith(found)
    member.run(member.hold(3), {"GANG_ATTEMPT": "3"})
    assert wait_for(partial(text, member.file("out.3"))) == ".\n"
    assert not member.file("hostfile").exists()


def test_a_worker_starts_although_the_host_file_cant_be_written(member: Member) -> None:
    member.file("hostfile").mkdir()
    member.start(*shell("exec sleep 1000"))
    member.run(member.hold(1), hosts=("10.0.0.1 slots=8",))
    assert is_alive(member.workers()[0])
    assert "the host file can't be written" in member.log


def test_the_worker_doesnt_get_the_supervisors_own_settings(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GANG_UID", "GANG_STATE", "GANG_POD_IP", "GANG_MEMBER", "GANG_INCARNATION", "GANG_CLIENT_DIR"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("GANG_SOCKET", "/run/gang/gang.sock")
    member.start("sh", "-c", 'env > "$DIR/out"; echo . >> "$DIR/out"')
    member.run(member.hold(1), {"GANG_MEMBER": "worker-0"})
    said = wait_for(lambda: (found := text(member.file("out"))).endswith("\n.\n") and found)
    found = {line.partition("=")[0] for line in said.splitlines() if line.startswith("GANG_")}
    told = {"GANG_SOCKET", "GANG_MEMBER", "GANG_POD_UID", "GANG_PARKING", "GANG_TERMINATION_LOG"}
    assert found == {*told, processes.MARK}


def test_gangclient_is_last_in_pythonpath(member: Member) -> None:
    member.file("client").mkdir()
    member.start("sh", "-c", 'echo "$PYTHONPATH" > "$DIR/out"')
    member.run(member.hold(1), {"PYTHONPATH": "/mine"})
    said = wait_for(partial(text, member.file("out")))
    assert said == f"/mine:{member.file('client')}\n"


def test_a_worker_has_the_default_signal_handling(member: Member) -> None:
    code = "import os; print(*[l for l in open('/proc/self/status') if l[:3] == 'Sig'], os.getsid(0) == os.getpid())"
    member.start(*python(f"import sys; sys.stdout = open('{member.folder}/out', 'w')\n{code}"))
    member.run(member.hold(1))
    said = wait_for(partial(text, member.file("out")))
    pairs = (line.split(":") for line in said.splitlines() if ":" in line and "SigQ" not in line)
    sets = {name.strip(): int(mask, 16) & 0x7FFFFFFF for name, mask in pairs}
    # Python itself ignores SIGPIPE and SIGXFSZ and catches SIGINT: nothing more may be set.
    assert (sets["SigBlk"], sets["SigIgn"], sets["SigCgt"]) == (0, 0x1001000, 2)
    assert "True" in said


def test_a_run_for_another_session_starts_nothing(member: Member) -> None:
    member.start(*shell("exec sleep 1000"))
    ready = member.hold(1)
    member.sidecar.send(member.order(replace(ready, session="another")))
    member.hold(2)
    assert not member.file().exists()


@pytest.mark.parametrize("address", ipv6.EACH)
def test_ready_offers_free_ports_and_no_taken_ones(member: Member, address: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as taken:
        taken.bind((address, 0))
        port = taken.getsockname()[1]
        member.start(*SLEEP)
        assert member.hold(1, base_port=port, port_count=1).ports == ()
    assert member.hold(2, base_port=port, port_count=1).ports == (port,)
    ports = member.hold(3).ports
    assert len(set(ports)) == 4
    assert all(29400 <= one < 29464 for one in ports)


@pytest.mark.parametrize(
    ("folder", "is_known"),
    [("with another step", True), ("empty, as a mount point without a mount", False), ("absent", False)],
)
def test_a_missing_restore_point_starts_nothing(member: Member, folder: str, *, is_known: bool) -> None:
    if folder != "absent":
        member.file("tier").mkdir()
    if is_known:
        member.file("tier/step-6").mkdir()
    member.start(*shell("exec sleep 1000"))
    ready = member.hold(1)
    member.sidecar.send(member.order(ready, restore=Restore(7, "shared", str(member.file("tier/step-7")))))
    report = member.sidecar.until(lambda told: told.missing_step is not None)
    assert (report.phase, report.missing_step, report.missing_folder) == (Phase.READY, 7, not is_known)
    assert not member.file().exists()


def test_a_worker_waits_for_a_restore_point_that_appears_a_moment_later(member: Member) -> None:
    member.start(*SLEEP)
    ready = member.hold(1)
    folder = member.file("step-7")
    member.sidecar.send(member.order(ready, restore=Restore(7, "shared", str(folder))))
    wait_for(lambda: processes.children(member.pid))  # the helper that looks for it
    folder.mkdir()
    member.sidecar.until(lambda told: told.phase is Phase.RUNNING)
