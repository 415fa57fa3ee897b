"""The parts in a member's folder, whole or absent, and on their way between two ranks.

A part is two files: ``STEP.RANK`` with the bytes as they were given, and ``STEP.RANK.json``, written last, with the
gang, the attempt that wrote the bytes, their number and their checksum. What has no second file, or doesn't agree with
it, isn't a part. There is no fsync: it is memory.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import socketserver
import threading
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Callable, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple, Union, cast

from gangclient.memory._link import TRANSFER_SECONDS, Identity, LineError, dial, encode_line, receive_message

PIECE = 4 << 20
"""Bytes that are read or checked at a time."""
Bytes = Union[bytes, bytearray, memoryview]
Data = Union[Bytes, Iterable[Bytes], Callable[[BinaryIO], object]]
MAX_CONNECTIONS = 16
"""Connections; more are sent away."""
_log = logging.getLogger("gangclient")
_BROKEN = (OSError, ValueError, KeyError, TypeError)


class TornError(ValueError):
    """The bytes are not those that were saved."""


class MemoryPart(NamedTuple):
    """One rank's part of one step."""

    step: int
    rank: int
    attempt: int
    """That wrote the bytes. All parts of a step are of one attempt: those of another are of a history that is over."""
    size: int
    crc: int


class Writer:
    """The file that ``save`` gives to a function: it can be written to, and no more."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = 0
        self.crc = 0

    def write(self, data: Bytes) -> int:
        """Write all of it."""
        view = memoryview(data).cast("B")
        self._file.write(view)
        self.crc = zlib.crc32(view, self.crc)
        self.size += len(view)
        return len(view)

    def flush(self) -> None:
        """Do nothing: it is flushed in the end."""


class Folder:
    """The parts of one gang in one folder."""

    def __init__(self, path: str, gang: str) -> None:
        self.path = Path(path)
        self._gang = gang
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def place(self, step: int, rank: int) -> Path:
        """The file with the bytes."""
        return self.path / f"{step}.{rank}"

    def parts(self) -> List[MemoryPart]:
        """Those that look whole; their bytes are not read."""
        found = [self._read(meta) for meta in self.path.glob("*.json")]
        return sorted(part for part in found if part is not None)

    def torn(self, step: int) -> List[int]:
        """The ranks of whose part of this step there is something, but not all."""
        there = {int(path.name.split(".")[1]) for path in self.path.glob(f"{step}.*")}
        return sorted(rank for rank in there if self.find(step, rank) is None)

    def write(self, step: int, rank: int, attempt: int, data: Data) -> MemoryPart:
        """Keep a part, in place of the one that was there.

        OSError: there is no room, or the folder is gone. After an error nothing is left of the part.
        """
        whole, part = self.place(step, rank), self.path / f"{step}.{rank}.{attempt}.part"
        try:
            with part.open("wb") as file:
                writer = Writer(file)
                if callable(data):
                    data(writer)  # type: ignore[arg-type]  # it is a BinaryIO as far as it goes
                else:
                    for piece in (data,) if isinstance(data, (bytes, bytearray, memoryview)) else data:
                        writer.write(piece)
            made = MemoryPart(step, rank, attempt, writer.size, writer.crc)
            self.drop(step, rank)
            part.rename(whole)
            self._mark(made)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return made

    def open(self, part: MemoryPart) -> BinaryIO:
        """Open the bytes after checking them. TornError: they are not those that were saved. OSError: they are gone."""
        file = self.place(part.step, part.rank).open("rb")
        crc = size = 0
        for piece in iter(lambda: file.read(PIECE), b""):
            crc, size = zlib.crc32(piece, crc), size + len(piece)
        if (crc, size) != (part.crc, part.size):
            file.close()
            raise TornError(f"{file.name} has {size} bytes with checksum {crc:08x} instead of {part}")
        file.seek(0)
        return file

    def find(self, step: int, rank: int) -> Optional[MemoryPart]:
        """The part, if it looks whole."""
        return self._read(self._meta(step, rank))

    def drop(self, step: int, rank: int) -> None:
        """Delete the part; what marks it whole goes first."""
        for path in (self._meta(step, rank), self.place(step, rank)):
            with suppress(FileNotFoundError):
                path.unlink()

    def clear_unfinished(self, attempt: int) -> None:
        """Delete what processes of earlier attempts had begun to write."""
        for path in self.path.glob("*.part"):
            if int(path.name.split(".")[2]) < attempt:
                path.unlink(missing_ok=True)

    def free(self) -> int:
        """Bytes that there is room for."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def _meta(self, step: int, rank: int) -> Path:
        return self.path / f"{step}.{rank}.json"

    def _mark(self, part: MemoryPart) -> None:
        meta = self._meta(part.step, part.rank)
        new = self.path / f"{part.step}.{part.rank}.{part.attempt}.json.part"
        new.write_text(json.dumps({"gang": self._gang, **part._asdict()}))
        new.rename(meta)

    def _read(self, meta: Path) -> Optional[MemoryPart]:
        try:
            meta_data = json.loads(meta.read_bytes())
            part = MemoryPart(*(int(meta_data[name]) for name in MemoryPart._fields))
            size = self.place(part.step, part.rank).stat().st_size
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return part if meta_data["gang"] == self._gang and size == part.size and meta == self._meta(*part[:2]) else None


class Server(socketserver.ThreadingTCPServer):
    """Takes copies, and gives parts back."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(
        self, own: Identity, folder: Folder, hold: Callable[[MemoryPart], bool], lose: Callable[[int, int], object]
    ) -> None:
        """Listen on a free port. ``hold`` registers a whole copy (False: drop it), ``lose`` drops what is not whole."""
        self.own, self.folder, self.hold, self.lose = own, folder, hold, lose
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._open: Set[socket.socket] = set()
        self.address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        super().__init__(("", 0), _Handler)
        threading.Thread(target=self.serve_forever, args=(0.2,), name="gangclient-memory", daemon=True).start()

    def server_bind(self) -> None:
        """Bind both families."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection, if there are not too many."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._open.add(request)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.discard(request)
            self._slots.release()

    def server_close(self) -> None:
        """Stop listening, and end the transfers: the next attempt may save the same step in this process."""
        super().server_close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, _request: Any, client_address: Any) -> None:
        """A connection broke: the other side tries again, or doesn't need it any more."""
        _log.debug("a transfer with %s broke", client_address, exc_info=True)


class _Handler(socketserver.StreamRequestHandler):
    timeout = TRANSFER_SECONDS

    def handle(self) -> None:
        server = cast("Server", self.server)
        hello = receive_message(cast("BinaryIO", self.rfile))
        if not server.own.knows(hello):
            raise LineError("it isn't a rank of this attempt")
        if "put" in hello:
            self._take(server, MemoryPart(*(int(number) for number in hello["put"])))
        else:
            self._give(server, *(int(number) for number in hello["get"]))

    def _take(self, server: Server, part: MemoryPart) -> None:
        if server.folder.find(part.step, part.rank) == part:
            self._say(kept=server.hold(part))
            return
        if part.size > server.folder.free():
            self._say(kept=False, why=f"{part.size} bytes don't fit into the peer's {server.folder.free()}")
            return
        self._say(wanted=True)
        try:
            written = server.folder.write(*part[:3], _pieces(cast("BinaryIO", self.rfile), part.size))
        except OSError as error:
            self._say(kept=False, why=f"the peer can't keep it: {error.strerror or error}")
            return
        kept = written == part and server.hold(part)
        if not kept:
            server.lose(part.step, part.rank)  # The sidecar may hear later that it was complete.
        self._say(kept=kept)

    def _give(self, server: Server, step: int, rank: int) -> None:
        part = server.folder.find(step, rank)
        try:
            if part is None:
                raise TornError(f"the copy of step {step} of rank {rank} is gone")  # noqa: TRY301 - one way out
            with server.folder.open(part) as file:
                self._say(part=part)
                _send(self.request, file, part.size)
        except TornError as error:
            _log.warning("%s; it is dropped", error)
            server.lose(step, rank)
            self._say(part=None)

    def _say(self, **message: Any) -> None:
        self.wfile.write(encode_line(message))


def _send(connection: socket.socket, file: BinaryIO, size: int) -> None:
    if size:  # sendfile takes no count of 0.
        connection.sendfile(file, count=size)


def _pieces(file: BinaryIO, size: int) -> Iterator[memoryview]:
    buffer, left = memoryview(bytearray(min(PIECE, max(size, 1)))), size
    while left:
        count = file.readinto(buffer[: min(left, len(buffer))])  # type: ignore[attr-defined]  # a BufferedReader
        if not count:
            raise ConnectionError("the connection has ended in the middle of a part")
        left -= count
        yield buffer[:count]


def put(own: Identity, folder: Folder, part: MemoryPart, host: str, port: int) -> str:
    """Give a copy to a peer; returns why it has none (empty: it has it)."""
    try:
        with dial(host, port) as connection, connection.makefile("rb") as answers:
            connection.sendall(encode_line({**own.hello(), "put": list(part)}))
            answer = receive_message(cast("BinaryIO", answers))
            if answer.get("wanted"):
                with folder.place(part.step, part.rank).open("rb") as file:
                    _send(connection, file, part.size)
                answer = receive_message(cast("BinaryIO", answers))
            return "" if answer.get("kept") else str(answer.get("why", "the peer could not register it"))
    except _BROKEN as error:
        return f"the connection to the peer at {host} broke: {error}"


def fetch(own: Identity, folder: Folder, place: Tuple[int, int], host: str, port: int) -> Optional[MemoryPart]:
    """Get this rank's part back into the own folder; None = it isn't there, or not whole.

    ``place``: its step, and the attempt that wrote it.
    """
    (step, attempt), rank = place, own.rank
    try:
        with dial(host, port) as connection, connection.makefile("rb") as answers:
            connection.sendall(encode_line({**own.hello(), "get": [step, rank]}))
            numbers = receive_message(cast("BinaryIO", answers))["part"]
            part = None if numbers is None else MemoryPart(*(int(number) for number in numbers))
            if part is None or (part.step, part.rank, part.attempt) != (step, rank, attempt):
                return None
            written = folder.write(*part[:3], _pieces(cast("BinaryIO", answers), part.size))
            if written != part:
                folder.drop(step, rank)
                raise TornError(f"the copy at {host} is not what was saved")
            return part
    except _BROKEN as error:
        _log.warning("the copy of step %d at %s can't be used: %s", step, host, error)
        return None
