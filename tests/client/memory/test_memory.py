"""Saving and loading between ranks: what is lost, torn, stale, full or away."""

from __future__ import annotations

import asyncio
import errno
import pickle
import shutil
import socket
import subprocess
import sys
import threading
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pytest

import gangclient
import gangclient.memory
from gangclient.memory import _link
from gangclient.memory._directory import Directory
from gangclient.memory._link import Identity, encode_line
from gangclient.memory._parts import put
from tests.client.memory.ranks import Rank, attempt, changed, held, part, safe, save
from tests.wait import SECONDS, until


def loaded(one: Rank) -> bytes:
    file = one.memory.load()
    assert file is not None
    with file:
        return file.read()


def test_each_part_has_a_copy_on_another_node_and_older_steps_go(tmp_path: Path) -> None:
    with attempt(tmp_path, 4) as ranks:
        save(ranks, 10)
        save(ranks, 20)
        until("older ones are gone", lambda: all({step for step, _ in held(one)} == {20} for one in ranks))
        copies = {owner: at for at, one in enumerate(ranks) for _, owner in held(one) if owner != at}
        assert set(copies) == {0, 1, 2, 3}
        assert all((owner - at) % 2 for owner, at in copies.items()), "each is on the other node"
        until("the registry has what is there", lambda: all(one.registry.registered == held(one) for one in ranks))


def test_a_lost_member_gets_its_part_from_its_peer_bit_by_bit(tmp_path: Path) -> None:
    with attempt(tmp_path, 4) as ranks:
        save(ranks, 10)
    shutil.rmtree(tmp_path / "worker-2")
    with attempt(tmp_path, 4, number=2, restored=10) as ranks:
        found: dict[int, bytes] = {}
        threads = [threading.Thread(target=lambda at=at: found.update({at: loaded(ranks[at])})) for at in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == {rank: part(10, rank) for rank in range(4)}
        assert (10, 2) in ranks[2].registry.registered, "it is its own again"
        until("its member holds a copy again", lambda: len(held(ranks[2])) == 2)
        save(ranks, 11)


def test_what_functions_and_pieces_write_is_kept(tmp_path: Path) -> None:
    state = {"weights": list(range(1000)), "step": 1}

    def write(file: BinaryIO) -> None:
        pickle.dump(state, file)

    with attempt(tmp_path, 2) as ranks:
        assert all(one.memory.save(1, write) for one in ranks)
        safe(ranks, 1)
        assert all(one.memory.save(2, (bytes([at]) * 3 for at in range(4))) for one in ranks)
        safe(ranks, 2)
    with attempt(tmp_path, 2, number=2, restored=2) as ranks:
        assert loaded(ranks[1]) == b"\0\0\0\1\1\1\2\2\2\3\3\3"


def test_an_empty_part_is_kept_and_comes_back(tmp_path: Path) -> None:
    with attempt(tmp_path, 2) as ranks:
        assert ranks[0].memory.save(1, b"all of it")
        assert ranks[1].memory.save(1, b"")
        safe(ranks, 1)
        found = ranks[1].folder.find(1, 1)
        own = Identity("uid", 1, 1, 2, "worker-1", "node-1")
        assert found is not None
        ranks[0].folder.drop(1, 1)
        assert not put(own, ranks[1].folder, found, "127.0.0.1", ranks[0].store.port)
    shutil.rmtree(tmp_path / "worker-1")
    with attempt(tmp_path, 2, number=2, restored=1) as ranks:
        assert loaded(ranks[1]) == b""


def _flip(content: bytearray) -> None:
    content[len(content) // 2] ^= 1


def _cut(content: bytearray) -> None:
    del content[-1:]


@pytest.mark.parametrize("change", [_flip, _cut])
def test_a_part_that_is_not_whole_is_none(tmp_path: Path, change: Any) -> None:
    with attempt(tmp_path, 2) as ranks:
        save(ranks, 10)
    changed(tmp_path / "worker-1" / "10.1", change)
    with attempt(tmp_path, 2, number=2, restored=10) as ranks:
        assert loaded(ranks[1]) == part(10, 1), "it comes from the peer"
    changed(tmp_path / "worker-1" / "10.1", change)
    changed(tmp_path / "worker-0" / "10.1", change)
    with attempt(tmp_path, 2, number=3, restored=10) as ranks:
        with pytest.raises(gangclient.GangError, match="PartLost: no member has a whole part of rank 1 of step 10"):
            ranks[1].memory.load()
        for one in ranks:
            assert (10, 1) not in one.registry.registered, "the next attempt takes another step"
            assert (10, 1) not in held(one)


def test_a_copy_of_a_history_that_was_undone_is_refused(tmp_path: Path) -> None:
    with attempt(tmp_path, 2) as ranks:
        save(ranks, 10)
    shutil.copytree(tmp_path / "worker-0", tmp_path / "old")
    with attempt(tmp_path, 2, number=2) as ranks:  # From the beginning: what was saved before is gone.
        assert not any(held(one) for one in ranks)
        save(ranks, 10)
    for name in ("10.1", "10.1.json"):  # A member that was not there meanwhile has the old copy.
        shutil.copy(tmp_path / "old" / name, tmp_path / "worker-0" / name)
    shutil.rmtree(tmp_path / "worker-1")
    with (
        attempt(tmp_path, 2, number=3, restored=10) as ranks,
        pytest.raises(gangclient.GangError, match="PartLost"),
    ):
        ranks[1].memory.load()


def test_parts_of_another_gang_in_the_folder_are_none(tmp_path: Path) -> None:
    with attempt(tmp_path, 2) as ranks:
        save(ranks, 10)
    with attempt(tmp_path, 2, number=2, restored=10, gang="another") as ranks:
        assert not any(held(one) for one in ranks)
        with pytest.raises(gangclient.GangError, match="PartLost"):
            ranks[0].memory.load()


def test_a_step_that_one_rank_skips_goes_everywhere_and_the_next_is_kept(tmp_path: Path) -> None:
    with attempt(tmp_path, 3) as ranks:
        save(ranks, 1)
        ranks[2].registry.is_away = True
        for rank, one in enumerate(ranks):
            one.memory.save(2, part(2, rank))
        until("step 2 is gone", lambda: all({step for step, _ in held(one)} == {1} for one in ranks[:2]))
        ranks[2].registry.is_away = False
        assert all((1, rank) in held(one) for rank, one in enumerate(ranks)), "the safe one stays"
        save(ranks, 3)


def test_a_copy_that_the_sidecar_hears_of_too_late_is_dropped_there(tmp_path: Path) -> None:
    with attempt(tmp_path, 2) as ranks:
        save(ranks, 1)
        holder = ranks[1].registry
        holder.is_away = True
        assert ranks[0].memory.save(2, part(2, 0))
        until("the step is given up", lambda: (2, 0) not in held(ranks[0]))
        holder.back()
        until("the registry has what is there", lambda: holder.registered == held(ranks[1]))


def test_a_copy_on_its_way_ends_with_the_attempt(tmp_path: Path) -> None:
    with attempt(tmp_path, 2) as ranks:
        save(ranks, 1)
    with attempt(tmp_path, 2, number=2, restored=1) as ranks:
        sender = socket.create_connection(("127.0.0.1", ranks[1].store.port), timeout=SECONDS)
        announced = part(2, 0)
        hello = {"gang": "uid", "attempt": 2, "rank": 0}
        sender.sendall(encode_line({**hello, "put": [2, 0, 2, len(announced), zlib.crc32(announced)]}))
        assert b"wanted" in sender.recv(1000)
        sender.sendall(announced[:-1])
    with sender, attempt(tmp_path, 2, number=3, restored=1) as ranks:
        save(ranks, 2)
        with suppress(OSError):
            sender.sendall(announced[-1:])
            sender.recv(1000)
        assert (2, 0) in held(ranks[1]), "the copy of this attempt stays"


def test_a_function_that_fails_is_heard_and_leaves_nothing(tmp_path: Path) -> None:
    def broken(file: BinaryIO) -> None:
        file.write(b"half")
        raise ValueError("no such tensor")

    with attempt(tmp_path, 2) as ranks:
        with pytest.raises(ValueError, match="no such tensor"):
            ranks[0].memory.save(1, broken)
        ranks[1].memory.save(1, b"whole")
        until("step 1 is gone", lambda: not any(list(one.folder.path.iterdir()) for one in ranks))
        save(ranks, 2)


@pytest.mark.parametrize("turns", range(8))
def test_a_rank_that_joins_as_the_directory_ends_is_hung_up_on(turns: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as rank:

        async def serve() -> None:
            over, loop = asyncio.Event(), asyncio.get_running_loop()

            def turn(left: int) -> None:
                if left:
                    loop.call_soon(turn, left - 1)
                else:
                    over.set()

            def dial() -> None:
                rank.connect(listening.getsockname())
                turn(turns)

            loop.call_later(0.01, dial)
            await Directory(Identity("uid", 1, 0, 2, "worker-0", "node")).serve(listening, over)

        asyncio.run(serve())
        rank.settimeout(SECONDS)
        with suppress(ConnectionResetError):
            assert rank.recv(1) == b""


@pytest.fixture
def tiny(tmp_path: Path) -> Any:
    """A file system with room for four parts, for all members."""
    place = tmp_path / "tiny"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", place], check=False, capture_output=True)
    if made.returncode:
        pytest.skip("needs root to mount a small file system")
    yield place
    subprocess.run(["umount", place], check=True)


def test_what_does_not_fit_is_not_kept_and_said(tiny: Path, caplog: pytest.LogCaptureFixture) -> None:
    with attempt(tiny, 2) as ranks:
        save(ranks, 1)
        assert not ranks[0].memory.save(2, b"x" * (6 << 20))
        assert "can't keep step 2 in memory: [Errno 28] No space left on device" in caplog.text
        assert "mount an emptyDir of medium Memory" in caplog.text
        ranks[1].memory.save(2, b"x")
        until("step 2 is gone", lambda: all({step for step, _ in held(one)} == {1} for one in ranks))
        assert all(one.memory.save(3, b"small") for one in ranks)
        safe(ranks, 3)


def test_a_peer_that_dies_leaves_the_step_before(tmp_path: Path) -> None:
    with attempt(tmp_path, 3) as ranks:
        save(ranks, 1)
        ranks[2].memory.close()
        for rank in (0, 1):
            ranks[rank].memory.save(2, part(2, rank))
        until("one has given up", lambda: any((2, rank) not in held(ranks[rank]) for rank in (0, 1)))
        assert all((1, rank) in held(ranks[rank]) for rank in (0, 1))


def test_the_directory_and_the_ranks_send_others_away(tmp_path: Path) -> None:
    with attempt(tmp_path, 2) as ranks:
        save(ranks, 1)
        address = ranks[0].store.directory
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"x" * 200_000, b"[1]\n", encode_line({"gang": "other", "rank": 0})):
            for host, port in (address, ("127.0.0.1", ranks[1].store.port)):
                assert answer(host, port, garbage) == b""
        save(ranks, 2)


def answer(host: str, port: int, sent: bytes) -> bytes:
    """What comes back. A reset is no answer: it comes where the receiver hangs up before it has read everything."""
    with socket.create_connection((host, port), timeout=SECONDS) as connection:
        try:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(10)
        except OSError as error:
            if error.errno in {errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN}:
                return b""
            raise


def test_a_rank_that_never_connects_is_named_by_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_link, "JOIN_SECONDS", 0.3)
    never = pytest.raises(gangclient.GangError, match=r"every rank must call gangclient\.memory\.connect")
    with attempt(tmp_path, 2, restored=1, absent=1) as ranks, never:
        ranks[0].memory.load()


def test_attempts_in_one_process_leave_no_thread_behind(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    for number in range(1, 4):
        with attempt(tmp_path, 2, number=number, restored=None if number == 1 else number - 1) as ranks:
            save(ranks, number)
    until("all threads have ended", lambda: set(threading.enumerate()) <= before)


@pytest.mark.parametrize(
    "variables", [{}, {"GANG_SOCKET": "/s"}, {"GANG_MEMORY_TIER": "ram", "GANG_MEMORY_FOLDER": "/x"}]
)
def test_without_a_tier_nothing_happens(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    memory = gangclient.memory.connect(gangclient.connect())
    assert memory.load() is None
    assert not memory.save(1, b"x")
    memory.close()


def test_a_broken_environment_costs_a_line_and_no_training(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("GANG_SOCKET", "GANG_MEMORY_TIER", "GANG_MEMORY_FOLDER"):
        monkeypatch.setenv(name, "/nowhere")
    assert not gangclient.memory.connect(gangclient.connect()).save(1, b"x")
    assert "checkpoints are not kept in memory" in caplog.text


def test_the_import_starts_nothing_and_is_quick() -> None:
    script = "import threading, sys, gangclient.memory; print(threading.active_count(), 'asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "False"]
