"""Rotation of logs: bounded, in order, and safe wherever the controller is killed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gangctl.cluster.local.log_files import LogReader, rotate_log, rotated_path
from tests.wait import until

MOST = 1000


def _all(reader: LogReader) -> bytes:
    found = b""
    while piece := reader.read(77):
        found += piece
    return found


def _append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def _fills_blocks(path: Path, content: bytes) -> None:
    """Allocated blocks count, so that a file with a hole isn't rotated again and again."""
    _append(path, content)
    subprocess.run(["sync", str(path)], check=True)


def test_a_small_log_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    _fills_blocks(log, b"x" * MOST)
    assert not rotate_log(log, MOST)
    assert not rotated_path(log).exists()


def test_each_byte_is_read_once_and_in_order_over_several_rotations(tmp_path: Path) -> None:
    log = tmp_path / "log"
    early, late = LogReader(log), b""
    assert early.read() == b""
    seen = written = b""
    for at in range(5):
        piece = b"".join(b"%d-%04d\n" % (at, number) for number in range(150))
        written += piece
        _fills_blocks(log, piece[:500])
        seen += early.read(300)
        _fills_blocks(log, piece[500:])
        assert rotate_log(log, MOST)
        seen += _all(early)
        late = _all(LogReader(log))
        assert late == piece
        assert log.stat().st_size == 0
    assert seen == written


def test_the_program_that_writes_does_not_notice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        log.open("ab") as output,
        subprocess.Popen(
            ["sh", "-c", "while read -r word; do echo $word; done"], stdin=subprocess.PIPE, stdout=output, text=True
        ) as child,
    ):
        assert child.stdin is not None
        reader = LogReader(log)
        seen = b""
        for at in range(3):
            child.stdin.write(f"{at}{'x' * 6000}\n")
            child.stdin.flush()
            until("it is written", lambda: log.stat().st_size == 6002)
            seen += _all(reader)
            assert rotate_log(log, MOST)
        child.stdin.close()
    assert seen == b"".join(b"%d%s\n" % (at, b"x" * 6000) for at in range(3))


def test_of_a_file_that_is_far_too_large_the_newest_part_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    content = b"".join(b"%08d\n" % at for at in range(10_000))
    _fills_blocks(log, content)
    assert rotate_log(log, MOST)
    assert rotated_path(log).read_bytes() == content[-MOST:]
    assert log.stat().st_size == 0


@pytest.mark.parametrize("killed", ["while it copies", "before it truncates"])
def test_a_rotation_that_was_killed_is_done_again_and_loses_nothing(tmp_path: Path, killed: str) -> None:
    log = tmp_path / "log"
    content = b"first\n" + b"x" * 5000 + b"\n"
    _fills_blocks(log, content)
    if killed == "while it copies":
        (tmp_path / ".log.tmp").write_bytes(content[:100])
    else:
        rotated_path(log).write_bytes(content)
    _append(log, b"last\n")
    assert rotate_log(log, 4000)
    assert _all(LogReader(log)) == content + b"last\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1"]


def test_a_log_that_is_read_this_moment_is_rotated_the_next_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    _fills_blocks(log, b"x" * 5000)
    with subprocess.Popen(["flock", "--shared", str(log), "sh", "-c", "echo; read -r _"], stdin=-1, stdout=-1) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert not rotate_log(log, MOST)
        child.communicate(b"\n")
    assert rotate_log(log, MOST)


def test_a_hole_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.seek(1 << 30)
        file.write(b"x")
    assert not rotate_log(log, 1 << 20)


def test_a_reader_from_the_end_sees_only_what_comes_and_follows_a_log_that_is_emptied(tmp_path: Path) -> None:
    log = tmp_path / "log"
    _append(log, b"before\n")
    reader = LogReader(log, from_end=True)
    assert reader.read() == b""
    _append(log, b"after\n")
    assert reader.read() == b"after\n"
    log.write_bytes(b"new\n")
    assert reader.read() == b"new\n"
    log.unlink()
    assert reader.read() == b""
