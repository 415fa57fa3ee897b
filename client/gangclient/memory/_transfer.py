"""Parts on their way between two ranks: a copy that is put, and one that is fetched."""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
from contextlib import suppress
from typing import Any, BinaryIO, Callable, Iterator, Optional, Set, cast

from gangclient.memory._lines import SECONDS, Identity, LineError, Message, dial, encoded, read
from gangclient.memory._parts import PIECE, Folder, Part, TornError

AT_ONCE = 16
"""Connections; more are sent away."""
_log = logging.getLogger("gangclient")
_BROKEN = (OSError, ValueError, KeyError, TypeError)


class Server(socketserver.ThreadingTCPServer):
    """Takes copies, and gives parts back."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(
        self, own: Identity, folder: Folder, hold: Callable[[Part], bool], lose: Callable[[int, int], object]
    ) -> None:
        """Listen on a free port.

        Args:
            own: who this is.
            folder: where parts are.
            hold: registers a copy that is whole; False = it can't be held, and is dropped.
            lose: drops what is not whole, of a step and a rank.

        Raises:
            OSError: it can't listen.
        """
        self.own, self.folder, self.hold, self.lose = own, folder, hold, lose
        self._slots = threading.BoundedSemaphore(AT_ONCE)
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
        """Where it listens."""
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
    timeout = SECONDS

    def handle(self) -> None:
        server = cast("Server", self.server)
        told = read(cast("BinaryIO", self.rfile))
        if not server.own.knows(told):
            raise LineError("it is no rank of this attempt")
        if "put" in told:
            self._take(server, Part(*(int(number) for number in told["put"])))
        else:
            self._give(server, *(int(number) for number in told["get"]))

    def _take(self, server: Server, part: Part) -> None:
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
        self.wfile.write(encoded(message))


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


def put(own: Identity, folder: Folder, part: Part, host: str, port: int) -> str:
    """Give a copy to a peer; returns why it has none (empty: it has it)."""
    try:
        with dial(host, port) as connection, connection.makefile("rb") as answers:
            connection.sendall(encoded({**own.hello(), "put": list(part)}))
            answer = read(cast("BinaryIO", answers))
            if answer.get("wanted"):
                with folder.place(part.step, part.rank).open("rb") as file:
                    _send(connection, file, part.size)
                answer = read(cast("BinaryIO", answers))
            return "" if answer.get("kept") else str(answer.get("why", "the peer could not register it"))
    except _BROKEN as error:
        return f"the connection to the peer at {host} broke: {error}"


def fetch(own: Identity, folder: Folder, wanted: Message, host: str, port: int) -> Optional[Part]:
    """Get this rank's part back into the own folder; None = it isn't there, or not whole.

    ``wanted``: its ``step``, and the ``attempt`` that wrote it.
    """
    step, rank = int(wanted["step"]), own.rank
    try:
        with dial(host, port) as connection, connection.makefile("rb") as answers:
            connection.sendall(encoded({**own.hello(), "get": [step, rank]}))
            told = read(cast("BinaryIO", answers))["part"]
            part = None if told is None else Part(*(int(number) for number in told))
            if part is None or (part.step, part.rank, part.attempt) != (step, rank, wanted["attempt"]):
                return None
            written = folder.write(*part[:3], _pieces(cast("BinaryIO", answers), part.size))
            if written != part:
                folder.drop(step, rank)
                raise TornError(f"the copy at {host} is not what was saved")
            return part
    except _BROKEN as error:
        _log.warning("the copy of step %d at %s can't be used: %s", step, host, error)
        return None
