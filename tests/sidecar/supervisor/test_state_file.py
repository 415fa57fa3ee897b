"""The state file that outlives a supervisor."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path

import pytest

from gangsidecar.supervisor import persistence
from gangsidecar.wire import Checkpoint, Dropped, Phase, Report
from tests.sidecar.supervisor.supervised import SLEEP, Member, wait_for


def test_ends_and_checkpoints_outlive_the_supervisor(member: Member) -> None:
    report = member.train("false")
    member.ended()
    kept = Checkpoint("ram", 5, 0, report.attempt, "/dev/shm/5")
    member.sidecar.send(kept)
    member.sidecar.until(lambda told: told.checkpoints)
    wait_for(lambda: '"ram"' in member.state.read_text())
    os.kill(member.pid, signal.SIGKILL)
    member.wait()
    after = member.start(*SLEEP)
    assert after.checkpoints == (kept,)
    assert [end.exit_code for end in after.ends] == [1]
    assert after.ends[0].age_ms > 0


def test_a_later_session_does_not_start_an_attempt_again(member: Member) -> None:
    member.train(*SLEEP)
    wait_for(lambda: member.state.exists() and '"ran": 1' in member.state.read_text())
    os.kill(member.pid, signal.SIGKILL)
    member.wait()
    member.start(*SLEEP)
    member.sidecar.send(member.order(member.hold(1)))
    ready = member.hold(2)
    assert ready.ends == ()  # A worker that had been started would have been stopped.
    assert member.run(ready).phase is Phase.RUNNING


def test_which_attempt_has_run_is_known_whatever_the_supervisor_did_since(tmp_path: Path) -> None:
    file = str(tmp_path / "state")
    for phase in Phase:
        persistence.save_state(file, Report("g", "worker-0", 0, "u", "one", 1, 4, phase), 5, ran=3)
        assert persistence.load_state(file, "g", "u", 6)[0].ran == 3


def test_a_checkpoint_in_memory_is_of_an_earlier_boot_after_the_node_has_rebooted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mounts(*points: str) -> str:
        table = tmp_path / "mountinfo"
        table.write_text("".join(f"1 0 0:1 / {point} rw - {kind} none rw\n" for point, kind in map(str.split, points)))
        return str(table)

    paths = ("/dev/shm/5", "/data/5", "/data/a b/5", "relative/5", "")
    kept = tuple(Checkpoint("ram", 5, rank, 1, path) for rank, path in enumerate(paths))
    gone = Dropped("ram", 4, 0, 1)
    told = Report("g", "worker-0", 0, "u", "one", 1, 1, Phase.READY, checkpoints=kept, dropped=(gone,))
    file = str(tmp_path / "state")
    monkeypatch.setattr(persistence, "_MOUNTS", mounts("/ ext4", "/dev tmpfs", "/data xfs", "/data/a\\040b ramfs"))
    monkeypatch.setattr(persistence, "_boot", lambda: "first")
    persistence.save_state(file, told, 5)
    assert persistence.load_state(file, "g", "u", 6)[0].checkpoints == kept
    for boot in ("second", ""):
        monkeypatch.setattr(persistence, "_boot", lambda boot=boot: boot)
        after, wrong = persistence.load_state(file, "g", "u", 7)
        assert [one.earlier_boot for one in after.checkpoints] == [True, False, True, True, True]
        assert (after.dropped, wrong) == ((gone,), "")


@pytest.mark.parametrize("content", [b"", b"{", b"{}\n{}", b"\xff\xfe\n\n", b'{"boot":1,"now_ms":"x"}\n'])
def test_an_unreadable_state_file_counts_as_absent(member: Member, content: bytes) -> None:
    member.state.write_bytes(content)
    assert member.start(*SLEEP).ends == ()
    assert "not usable" in member.log


def test_the_state_file_of_another_pod_is_ignored(member: Member) -> None:
    member.train("false")
    member.ended()
    wait_for(member.state.exists)
    os.kill(member.pid, signal.SIGKILL)
    member.wait()
    member.pod = str(uuid.uuid4())
    assert member.start(*SLEEP).ends == ()


def test_a_full_disk_is_logged_once_and_the_last_good_state_file_survives(member: Member) -> None:
    member.start("false", fsize=16_000)
    member.run(member.hold(1))
    member.ended()
    wait_for(member.state.exists)
    good = member.state.read_text()
    for step in range(20):
        member.sidecar.send(Checkpoint("shm", step, 0, 1, "p" * 2_000))
    member.sidecar.until(lambda told: told.checkpoints and told.checkpoints[0].step == 19)
    member.finish(1)
    after = member.state.read_text()
    assert after.startswith('{"boot"')
    assert len(after) < 16_000
    assert len(after) >= len(good)
    assert member.log.count("can't be kept") == 1
    assert not member.file("state.tmp").exists()


def test_a_supervisor_works_without_the_folder_of_its_state_file(member: Member) -> None:
    member.state = member.file("nowhere") / "state"
    member.train("false")
    member.ended()
    member.finish(1)
