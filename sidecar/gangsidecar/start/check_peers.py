"""Talk to the other ranks of a check: each connects to rank 0, which measures one after the other.

A rank is blamed for what it sees of rank 0, and rank 0 only for what it sees of at least half of the others: a slow or
silent peer must not fail rank 0 unless there is no third to compare it with. Whatever a peer sends, or doesn't, ends
within the time of the check.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import math
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Callable, Dict, List, NamedTuple

MIB = 1 << 20
AGAIN_SECONDS = 0.05
HELLO_SECONDS = 2.0
MAX_LINE = 1 << 12
Faults = Dict[int, str]
"""By rank: what rank 0 has seen of it that is wrong."""


class Failed(Exception):  # noqa: N818 - an outcome of a check
    """The check has failed; the text says what was seen."""


class Corrupt(Exception):  # noqa: N818 - an outcome of a check
    """A result is wrong without an error, and so may be what was computed before; the text says what was seen."""


class Untold(Exception):  # noqa: N818 - an outcome of a check
    """It can't be told here; the text says why."""


def block(seed: int) -> bytes:
    """A MiB that is no other's."""
    return hashlib.sha512(b"%d" % seed).digest() * (MIB // 64)


def rate_of(size: int, seconds: float) -> float:
    """MB/s."""
    return size / 1e6 / max(seconds, 1e-9)


class Place(NamedTuple):
    """The place of this process in its group."""

    rank: int
    size: int
    host: str
    port: int

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Place:
        """Read it from the variables that the supervisor sets."""
        rank, size, host, port = (
            environment.get(f"GANG_CHECK_{name}", "") for name in ("RANK", "SIZE", "HOST", "PORT")
        )
        if int(size or 1) < 2:  # noqa: PLR2004 - a pair
            raise Untold("there is no other rank: the scope is to be Pair or Gang")
        return cls(int(rank), int(size), host, int(port))


class Peer:
    """A connection to another rank: lines of numbers, and blocks. Failed: the rank sends something else, or nothing."""

    def __init__(self, link: socket.socket, rank: int, deadline: float) -> None:
        self.rank, self.deadline = rank, deadline
        self._link, self._data = link, bytearray()

    def send(self, *numbers: float) -> None:
        """Send a line of numbers."""
        self._send((" ".join(map(repr, numbers)) + "\n").encode())

    def receive(self, count: int) -> list[float]:
        """Receive a line of so many numbers."""
        line = self.receive_line()
        try:
            numbers = [float(word) for word in line.split()]
        except ValueError:
            numbers = []
        if len(numbers) != count or not all(map(math.isfinite, numbers)):
            raise Failed(f"rank {self.rank} sent {line[:40]!r} instead of {count} numbers")
        return numbers

    def receive_line(self) -> bytes:
        while b"\n" not in self._data:
            if len(self._data) > MAX_LINE:
                raise Failed(f"rank {self.rank} sent {bytes(self._data[:40])!r} and no end of a line")
            self._receive()
        line, _, self._data = self._data.partition(b"\n")
        return bytes(line)

    def send_blocks(self, number: int, *, flip: bool) -> None:
        for at in range(number):
            data = bytearray(block(0))
            data[0] ^= flip and at == 0
            self._send(data)

    def receive_blocks(self, number: int) -> float:
        """Receive so many blocks; returns MB/s from the first byte on."""
        expected, began = block(0), 0.0
        for at in range(number):
            while len(self._data) < MIB:
                self._receive()
                began = began or time.monotonic()
            if self._data[:MIB] != expected:
                raise Failed(f"MiB {at} of {number} from rank {self.rank} differs from what was to be sent")
            del self._data[:MIB]
        return rate_of(number * MIB, time.monotonic() - began)

    def _send(self, data: bytes | bytearray) -> None:
        with self._in_time():
            self._link.sendall(data)

    def _receive(self) -> None:
        with self._in_time():
            data = self._link.recv(MIB)
        if not data:
            raise Failed(f"rank {self.rank} has closed the connection")
        self._data += data

    @contextlib.contextmanager
    def _in_time(self) -> Iterator[None]:
        self._link.settimeout(max(0.001, self.deadline - time.monotonic()))
        try:
            yield
        except socket.timeout:
            raise Failed(f"rank {self.rank} was too slow") from None
        except OSError as error:
            raise Failed(f"the connection to rank {self.rank} broke: {error.strerror}") from None


def dial(place: Place, options: argparse.Namespace) -> Peer:
    """Connect to rank 0, which may start later."""
    while True:
        try:
            link = socket.create_connection((place.host, place.port), max(0.001, options.deadline - time.monotonic()))
        except OSError as error:
            if time.monotonic() + AGAIN_SECONDS > options.deadline:
                raise Failed(f"rank 0 at {place.host}:{place.port} can't be reached: {error}") from None
            time.sleep(AGAIN_SECONDS)
        else:
            link.sendall(f"{options.name} {place.rank}\n".encode())
            return Peer(link, 0, options.deadline)


class Served(NamedTuple):
    """What rank 0 has measured."""

    peers: Dict[int, Peer]
    figures: Dict[int, List[float]]
    """By rank."""
    faults: Faults

    def tell(self, figures: Mapping[int, Sequence[float]]) -> None:
        """Tell each rank the numbers by which it is to judge itself. Without them, it fails."""
        for rank, figure in figures.items():
            with contextlib.suppress(Failed):
                self.peers[rank].send(*figure)


def serve(place: Place, options: argparse.Namespace, measure: Callable[[Peer], List[float]]) -> Served:
    """As rank 0, measure one rank after the other."""
    peers, strays = _accepted(place, options)
    faults = {rank: f"rank {rank} didn't connect{strays}" for rank in range(1, place.size) if rank not in peers}
    figures: Dict[int, List[float]] = {}
    for left, peer in zip(range(len(peers), 0, -1), peers.values()):
        peer.deadline = time.monotonic() + (options.deadline - time.monotonic()) / left
        try:
            figures[peer.rank] = measure(peer)
        except Failed as failure:
            faults[peer.rank] = str(failure)
    return Served(peers, figures, faults)


def _accepted(place: Place, options: argparse.Namespace) -> tuple[dict[int, Peer], str]:
    """The ranks that connect in half of the time, since each needs the rest; and what was sent by others."""
    peers: dict[int, Peer] = {}
    strays = ""
    end = time.monotonic() + options.wait / 2
    family, _, _, _, address = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)[0]
    with socket.create_server(address, family=family, backlog=place.size) as server:
        while len(peers) < place.size - 1 and time.monotonic() < end:
            server.settimeout(max(0.001, end - time.monotonic()))
            try:
                link, _ = server.accept()
            except socket.timeout:
                break
            peer = Peer(link, -1, min(end, time.monotonic() + HELLO_SECONDS))
            line, name = b"", ""
            with contextlib.suppress(Failed, ValueError):
                line = peer.receive_line()
                name, rank = line.decode().split()
                peer.rank = int(rank)
            if name == options.name and 0 < peer.rank < place.size and peer.rank not in peers:
                peers[peer.rank] = peer
            else:
                strays = f"; another connection sent {line[:40]!r}"
    return dict(sorted(peers.items())), strays


def of_rank_0(place: Place, faults: Faults, said: str) -> str:
    """Fail if the fault may be rank 0's own; otherwise the others fail by themselves."""
    worst = "; ".join(faults[rank] for rank in sorted(faults)[:3])
    if faults and 2 * len(faults) >= place.size - 1:
        raise Failed(worst)
    return "; ".join(filter(None, (said, worst)))
