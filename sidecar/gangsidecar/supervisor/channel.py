"""The supervisor's end of the unix socket to its sidecar: lines both ways, non-blocking, reconnected without end."""

from __future__ import annotations

import socket

from gangsidecar import wire
from gangsidecar.common.log import log

FIRST_BACKOFF_MS = 20
LAST_BACKOFF_MS = 200
"""The first start of a gang waits for the sidecars' imports, so the end of these must not be missed for long."""
QUIET_MS = 5_000
"""A sidecar that is away for so long is worth a line. Before, it starts or is restarted."""


class Channel:
    """One connection at a time. Its driver selects on :attr:`socket` and calls :meth:`connect` when that is due."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.socket: socket.socket | None = None
        self.retry_at = 0
        """When to connect next, while there is no connection."""
        self._backoff_ms = FIRST_BACKOFF_MS
        self._away_since: int | None = None
        self._logged = False
        self._read = b""
        self._unsent = b""

    @property
    def waiting(self) -> bool:
        """Whether the sidecar has not taken everything yet."""
        return bool(self._unsent)

    def connect(self, now_ms: int) -> bool:
        """Try once: a unix socket accepts at once or not at all. Returns whether it is connected."""
        attempt = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        attempt.setblocking(False)  # noqa: FBT003 - its signature
        try:
            attempt.connect(self._path)
        except OSError as error:
            attempt.close()
            self._later(now_ms)
            self._missed(now_ms, error)
            return False
        self.socket = attempt
        if self._logged:
            log("info", "the sidecar is there", socket=self._path)
        self._logged, self._away_since = False, None
        return True

    def lines(self, now_ms: int) -> list[bytes]:
        """The whole lines that have arrived. An error or a line that is too long closes the connection."""
        if self.socket is None:
            return []
        try:
            piece = self.socket.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError as error:
            self.close(now_ms, str(error))
            return []
        if not piece:
            self.close(now_ms, "the sidecar closed it")
            return []
        *whole, self._read = (self._read + piece).split(b"\n")
        if len(self._read) > wire.MAX_BYTES:
            self.close(now_ms, f"a line of over {wire.MAX_BYTES} bytes")
        return whole

    def understood(self) -> None:
        """The other side sends messages that make sense: after the next break, connect again at once."""
        self._backoff_ms = FIRST_BACKOFF_MS

    def send(self, text: str, now_ms: int) -> None:
        """Queue one line and send as much as the socket takes. Without a connection the line is dropped."""
        if self.socket is None:
            return
        self._unsent += text.encode() + b"\n"
        self.flush(now_ms)

    def flush(self, now_ms: int) -> None:
        """Send more of what is queued."""
        if self.socket is None or not self._unsent:
            return
        try:
            self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError as error:
            self.close(now_ms, str(error))

    def close(self, now_ms: int, reason: str) -> None:
        """Close the connection and drop what was queued: the next one starts with a whole report."""
        if self.socket is None:
            return
        log("warning", "the connection to the sidecar ended", reason=reason)
        self.socket.close()
        self.socket = None
        self._read = self._unsent = b""
        self._later(now_ms)

    def _missed(self, now_ms: int, error: OSError) -> None:
        """Log once that the sidecar is away, if it is for long."""
        if self._away_since is None:
            self._away_since = now_ms
        if not self._logged and now_ms - self._away_since >= QUIET_MS:
            self._logged = True
            seconds = f"{(now_ms - self._away_since) / 1000:.0f}"
            log("warning", f"no sidecar for {seconds} s; trying again", socket=self._path, reason=error)

    def _later(self, now_ms: int) -> None:
        self.retry_at = now_ms + self._backoff_ms
        self._backoff_ms = min(2 * self._backoff_ms, LAST_BACKOFF_MS)
