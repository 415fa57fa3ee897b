"""The built-in checks, as the supervisor starts them: real processes, files, mounts and connections."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gangsidecar import install
from gangsidecar.start import checks
from gangsidecar.start.check_peers import Peer
from gangsidecar.supervisor.checks import BUILTIN
from tests.ports import free_port
from tests.pythons import oldest
from tests.wait import SECONDS

HOST = "127.0.0.1"
TORCH_LIKE = """\
class cuda:
    is_available = staticmethod(lambda: False)
"""
"""A PyTorch that finds no device."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "supervisor.pyz"
    install.build_archive(path)
    return path


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(archive: Path) -> Iterator[Start]:
    """Start a check with words of its command line and variables."""
    started: list[subprocess.Popen[str]] = []

    def do(*words: str, **variables: object) -> subprocess.Popen[str]:
        variables.setdefault("PYTHONPATH", "")
        command = [oldest()[1], "-c", BUILTIN, str(archive), *words]
        environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
        started.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        return started[-1]

    yield do
    for process in started:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code and the last line that it said."""
    out, errors = process.communicate(timeout=SECONDS)
    assert not errors
    return process.returncode, out.splitlines()[-1]


def group(port: int, size: int, rank: int) -> dict[str, object]:
    return {
        "GANG_CHECK_RANK": rank,
        "GANG_CHECK_SIZE": size,
        "GANG_CHECK_HOST": HOST,
        "GANG_CHECK_PORT": port,
    }


def all_ended(start: Start, *words: str, size: int = 2, faulty: tuple[int, str] | None = None) -> list[tuple[int, str]]:
    """The ends of all ranks of a group. ``faulty``: the rank that gets a fault injected, and the file for that."""
    port = free_port()
    processes = [
        start(
            *words, *(("--inject-fault", faulty[1]) if faulty and faulty[0] == rank else ()), **group(port, size, rank)
        )
        for rank in range(size)
    ]
    return [ended(process) for process in processes]


@contextmanager
def on_a_mount() -> Iterator[str]:
    with TemporaryDirectory(dir="/dev/shm") as folder:
        yield folder


def test_a_healthy_pod_passes_each_check_of_its_own(start: Start, tmp_path: Path) -> None:
    with on_a_mount() as mounted:
        found = [
            ended(process)
            for process in [
                start("Memory", "--mib", "8"),
                start("Disk", "--mib", "2", "--path", str(tmp_path)),
                start("MatMul", "--seconds", "0"),
                start("Mount", "--path", mounted, "--path", "/proc/self", "--read-only"),
                start("Mount", "--path", mounted),
                start("Mount", "--tier", f"{mounted}/is/yet/to/come"),
            ]
        ]
        assert not any(Path(mounted).iterdir())
    assert [code for code, _ in found] == [0] * 6, found
    assert found[0][1] == "8 MiB of memory kept 5 patterns"
    assert "exact to the bit" in found[2][1]
    assert not any(Path(tmp_path).iterdir())


@pytest.mark.parametrize("words", [("Memory", "--mib", "4"), ("Disk", "--mib", "2"), ("MatMul", "--seconds", "0")])
def test_a_flipped_bit_fails(start: Start, tmp_path: Path, words: tuple[str, ...]) -> None:
    flip = tmp_path / "flip"
    words = (*words, "--path", str(tmp_path), "--inject-fault", str(flip))
    assert ended(start(*words))[0] == 0
    flip.touch()
    code, said = ended(start(*words))
    assert code == (1 if words[0] == "Disk" else 4)
    assert any(text in said for text in ("memory has changed", "was read otherwise", "differs from the stored one"))


def test_a_disk_below_the_floor_fails(start: Start, tmp_path: Path) -> None:
    code, said = ended(start("Disk", "--mib", "1", "--path", str(tmp_path), "--floor", "1e9"))
    assert code == 1
    assert said.endswith("floor 1e+09")


def test_a_folder_that_is_missing_or_on_no_mount_fails(start: Start, tmp_path: Path) -> None:
    assert ended(start("Mount", "--path", str(tmp_path / "no"))) == (1, f"{tmp_path}/no: No such file or directory")
    root = next(
        folder for folder in ("/usr", "/etc", "/var", "/opt") if Path(folder).stat().st_dev == Path("/").stat().st_dev
    )
    for flag in ("--path", "--tier"):
        assert ended(start("Mount", flag, root)) == (1, f"{root}: is on no mount")
    assert ended(start("Mount"))[0] == 3, "it has nothing to look at"


def test_a_mount_that_hangs_is_left_alone(start: Start) -> None:
    with on_a_mount() as mounted:
        os.mkfifo(Path(mounted) / f".gangctl-check-{socket.gethostname()}")  # To open it blocks.
        assert ended(start("Mount", "--path", mounted, "--wait", "0.5")) == (1, f"{mounted}: no answer within 0.5 s")


def test_a_device_can_not_be_told_without_one(start: Start, tmp_path: Path) -> None:
    assert ended(start("DeviceCopy")) == (3, "PyTorch is missing: no device can be used")
    (tmp_path / "torch.py").write_text(TORCH_LIKE)
    code, said = ended(start("DeviceCopy", PYTHONPATH=tmp_path))
    assert (code, said) == (3, "there is no device") or (code, said[:9]) == (1, "there is ")


@pytest.mark.parametrize("size", [2, 3])
def test_a_healthy_group_passes(start: Start, size: int) -> None:
    for words in (("AllReduce", "--mib", "2", "--floor", "0.001"), ("ClockSkew", "--limit", "60000")):
        found = all_ended(start, *words, size=size)
        assert [code for code, _ in found] == [0] * size, found


def test_a_rank_alone_can_not_be_told(start: Start) -> None:
    assert ended(start("AllReduce"))[0] == ended(start("ClockSkew", **group(1, 1, 0)))[0] == 3


def test_a_link_below_the_floor_fails_at_both_ends(start: Start) -> None:
    found = all_ended(start, "AllReduce", "--mib", "1", "--floor", "1e9")
    assert [code for code, _ in found] == [1, 1]
    assert found[0][1].endswith("MB/s from rank 1, floor 1e+09")
    assert found[1][1].endswith("MB/s from rank 0, floor 1e+09")


def test_a_wrong_clock_is_found_in_any_rank(start: Start, tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        found = all_ended(start, "ClockSkew", "--limit", "60000", size=4, faulty=(rank, str(tmp_path)))
        assert [code for code, _ in found] == [int(one == rank) for one in range(4)], found
        assert found[rank][1].startswith("36000")


def test_bytes_that_arrive_otherwise_fail(start: Start, tmp_path: Path) -> None:
    found = all_ended(start, "AllReduce", "--mib", "2", "--wait", "5", faulty=(1, str(tmp_path)))
    assert found[0] == (1, "MiB 0 of 2 from rank 1 differs from what was to be sent")
    assert found[1][0] == 1


def test_a_missing_peer_fails_a_pair_but_not_rank_0_of_a_larger_group(start: Start) -> None:
    port = free_port()
    assert ended(start("AllReduce", "--wait", "1", **group(port, 2, 0))) == (1, "rank 1 didn't connect")
    code, said = ended(start("AllReduce", "--wait", "1", **group(port, 2, 1)))
    assert code == 1
    assert said.startswith(f"rank 0 at {HOST}:{port} can't be reached")


def test_a_missing_rank_of_a_larger_group_is_not_put_down_to_rank_0(start: Start) -> None:
    port = free_port()
    rank_0 = start("ClockSkew", "--limit", "60000", "--wait", "8", **group(port, 4, 0))
    with connected(port, rank_0) as first, connected(port, rank_0) as second:
        peers = [Peer(link, 0, time.monotonic() + SECONDS) for link in (first, second)]
        for rank, link in enumerate((first, second), 1):
            link.sendall(f"ClockSkew {rank}\n".encode())
        for peer in peers:
            for _ in range(checks.ROUND_TRIPS):
                peer.receive(1)
                peer.send(time.time())
        assert all(abs(peer.receive(2)[0]) < 60 for peer in peers)
        code, said = ended(rank_0)
    assert code == 0
    assert said.endswith("; rank 3 didn't connect")


GARBAGE = {
    "another program": (b"GET / HTTP/1.1\r\n\r\n", "rank 1 didn't connect; another connection sent b'GET / HTTP/1.1"),
    "bytes": (b"ClockSkew 1\n\xff\x00\n", "rank 1 sent b'\\xff\\x00' instead of 1 numbers"),
    "no number": (b"ClockSkew 1\nnan\n", "rank 1 sent b'nan' instead of 1 numbers"),
    "no end": (b"ClockSkew 1\n" + b"1" * 9000, "rank 1 sent b'1111111"),
    "nothing": (b"ClockSkew 1\n", "rank 1 was too slow"),
    "an end": (b"", "rank 1 didn't connect; another connection sent b''"),
}


@pytest.mark.parametrize("case", GARBAGE)
def test_garbage_from_a_peer_fails(start: Start, case: str) -> None:
    data, expected = GARBAGE[case]
    port = free_port()
    rank_0 = start("ClockSkew", "--wait", "3", **group(port, 2, 0))
    with connected(port, rank_0) as link:
        link.sendall(data)
        if case == "an end":
            link.shutdown(socket.SHUT_WR)
        code, said = ended(rank_0)
    assert (code, said[: len(expected)]) == (1, expected)


@contextmanager
def connected(port: int, process: subprocess.Popen[str]) -> Iterator[socket.socket]:
    while True:
        try:
            link = socket.create_connection((HOST, port))
        except ConnectionRefusedError:
            assert process.poll() is None
        else:
            break
    with link:
        yield link


def test_a_link_that_stalls_fails(start: Start) -> None:
    port = free_port()
    with socket.create_server((HOST, 0)) as relay:
        rank_1 = start("AllReduce", "--wait", "4", **group(relay.getsockname()[1], 2, 1))
        link, _ = relay.accept()
        rank_0 = start("AllReduce", "--wait", "4", **group(port, 2, 0))
        with connected(port, rank_0) as onward, link:
            onward.sendall(link.recv(100))
            assert ended(rank_0) == (1, "rank 1 was too slow")
            assert ended(rank_1) == (1, "rank 0 was too slow")


def test_bad_options_are_said_on_stdout(start: Start) -> None:
    for words, said in ((("Nothing",), "invalid choice: 'Nothing'"), (("Memory", "--mib", "x"), "invalid int value")):
        process = start(*words)
        out, _ = process.communicate(timeout=SECONDS)
        assert (process.returncode, said in out.splitlines()[-1]) == (2, True)
