"""The connection to the controller: one WebSocket, dialled again without end, or an end that says why it can't be had.

Where the address of its Service is known, that is dialled first, and by name only if it doesn't answer: a cluster's DNS
that is slow or away must not delay a recovery. The certificate must have the name in the URL whichever way it is
dialled, also that of a leader that a standby names by its IP address.

The wait before each attempt is drawn from the whole range up to a limit that doubles (full jitter), so the members of a
restarted controller come back spread out in time. A connection that is lost at once must not be dialled in a hot loop.

**First contact.** A sidecar that never reaches the controller says why in the status of its pod, which has the words of
a container only when it ends. So it ends, with the reason as its termination message, and the kubelet starts it again.
Until the pod's first contact no worker runs in it, so nothing is lost::

    ends   <=>   no sidecar of this pod has had a connection
            and  a reason is known for PATIENCE since the start, or nothing has answered for LONG_PATIENCE
            and  the newest answer doesn't ask to try again (503)
            and  the pod's status has not had this reason, and has had fewer than MOST

A sidecar that has once been connected must not end: its worker trains on, and its restarts would delay the recovery.
The kubelet delays each restart of a container by more, so there are few, and none for what passes by itself: there is
no leader for a moment, or the controller does not know the pod yet.
"""

from __future__ import annotations

import asyncio
import os
import random
import ssl
import time
from contextlib import suppress
from socket import AF_INET, AF_INET6, inet_pton
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from wsproto.frame_protocol import CloseReason

from gangsidecar import wire
from gangsidecar.agent import websocket
from gangsidecar.common import log
from gangsidecar.wire.frozen import frozen

if TYPE_CHECKING:
    from gangsidecar.agent.relay import Relay
    from gangsidecar.agent.websocket import WebSocket

FIRST_WAIT, LAST_WAIT = 0.05, 5.0
"""Limits, in seconds, of the wait before the first and before a late attempt."""
DIAL = 10.0
"""Seconds that a controller has for the upgrade."""
LEADER_DIAL = 3.0
"""The same for a leader that a standby has named: it may have died, and its successor is about to take over."""
SILENCE = 15.0
"""Seconds without a ping after which a controller counts as frozen."""
REFUSALS = frozenset({401, 403, 409})
_UNAVAILABLE = 503
PATIENCE = 3.0
"""Seconds: a controller that is started beside its pods answers within this time."""
LONG_PATIENCE = 10.0
"""Seconds in which a packet that nothing answers may still be on its way."""
MOST = 2
"""Times that a sidecar ends: three restarts would count as a start that failed."""
_CONNECTED = "connected"
_LIMIT = 400
"""Characters of a reason."""


@frozen
class Address:
    """The controller's address, and the proof of our identity. Files are read before each attempt: they may change."""

    token_file: str
    url: str = ""
    url_file: str = ""
    """Holds the URL, instead of ``url``."""
    ca_file: str = ""
    """The certificates to trust for ``wss``; without it, the system's."""
    address_file: str = ""
    """Holds the IP address of the URL's host, or nothing."""


class _RefusedError(Exception):
    """The other side answers, but not as our controller: another attempt soon won't change it."""

    def __init__(self, text: str, code: int = CloseReason.POLICY_VIOLATION) -> None:
        super().__init__(text)
        self.code = code


class _LostError(Exception):
    """The connection could not be made, or it ended."""


class _UnreachableError(_LostError):
    """Nothing that we trust answers there."""


class _NotNowError(_LostError):
    """The other side asks to try again: it is a standby, or can't answer yet."""


class _StandbyError(_NotNowError):
    """The other side is a standby, and it has named the leader."""

    def __init__(self, text: str, leader: str) -> None:
        super().__init__(text)
        self.leader = leader


async def stay_connected(address: Address, relay: Relay, contact: FirstContact) -> None:
    """Keep one connection and relay both ways, until cancelled."""
    loop = asyncio.get_running_loop()
    failures, logged = 0, ""
    while True:
        began = loop.time()
        shortest, passes = 0.0, False
        try:
            await _connection(address, relay, contact)
        except _RefusedError as error:
            reason, shortest = str(error), LAST_WAIT / 2
        except _NotNowError as error:
            reason, passes = str(error), True
        except (_LostError, OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
        contact.failed(reason, passes=passes)
        # A connection that held for a while isn't a failure; one that was lost at once is.
        failures = 0 if loop.time() - began > LAST_WAIT else failures + 1
        if reason != logged:
            log("warning", "there is no connection to the controller; workers train on", reason=reason)
        logged = reason if failures else ""
        limit = LAST_WAIT if shortest else min(LAST_WAIT, FIRST_WAIT * 2 ** min(max(failures - 1, 0), 10))
        await asyncio.sleep(random.uniform(shortest, limit))  # noqa: S311 - jitter, not a secret


async def _connection(address: Address, relay: Relay, contact: FirstContact) -> None:
    """Connect once; return never. It raises an error whose text says why the connection ended or was not made."""
    url = address.url or _read(address.url_file)
    name = urlsplit(url).hostname or ""
    missed = ""
    ip = _ip_address(address.address_file)
    if ip:
        try:
            await _follow(address, relay, contact, _at(url, ip), name)
        except _UnreachableError as error:
            missed = f"{ip}: {error}; by name: "
    try:
        await _follow(address, relay, contact, url, name)
    except _UnreachableError as error:
        raise _LostError(f"{missed}{error}") from None


async def _follow(address: Address, relay: Relay, contact: FirstContact, url: str, name: str) -> None:
    """One connection to this URL, or to the leader that a standby there has named; ``name``: in its certificate."""
    try:
        await _dial(address, relay, contact, (url, name), DIAL)
    except _StandbyError as standby:
        leader = standby.leader
        if not leader.startswith("wss://" if url.startswith("wss://") else ("ws://", "wss://")):
            raise _LostError(f"{standby}; the leader that it names is not dialled: {leader!r:.120}") from None
    log("info", "a standby answered; dialling its leader", url=leader)
    try:
        await _dial(address, relay, contact, (leader, name), LEADER_DIAL)
    except _UnreachableError as error:
        raise _LostError(f"the leader {leader}: {error}") from None


async def _dial(address: Address, relay: Relay, contact: FirstContact, at: tuple[str, str], seconds: float) -> None:
    url, name = at
    headers = {
        "Authorization": f"Bearer {_token(address)}",
        wire.REVISION_HEADER: str(wire.REVISION),
        wire.ORDER_HEADER: str(time.time_ns() // 1_000_000),
    }
    try:
        async with asyncio.timeout(seconds):
            socket = await websocket.dial(url, headers, _trust(address), name, wire.MAX_BYTES)
    except websocket.RefusalError as refusal:
        text = f"the controller answered {refusal.status}: {refusal}"
        leader = refusal.headers.get(wire.LEADER_HEADER.lower(), "")
        if refusal.status == _UNAVAILABLE:
            raise (_StandbyError(text, leader) if leader else _NotNowError(text)) from None
        raise (_RefusedError if refusal.status in REFUSALS else _LostError)(text) from None
    except TimeoutError:
        raise _UnreachableError(f"the controller didn't answer within {seconds:.0f} s") from None
    except OSError as error:
        raise _UnreachableError(str(error)) from None
    log("info", "connected to the controller", url=url)
    contact.connected()
    await _relay_both_ways(socket, relay, wire.revision_of(socket.headers.get(wire.REVISION_HEADER.lower(), "")))


async def _relay_both_ways(socket: WebSocket, relay: Relay, revision: int) -> None:
    code, reason = int(CloseReason.GOING_AWAY), "the sidecar ends"
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_send_reports(socket, relay, revision))
            tasks.create_task(_receive(socket, relay))
    except ExceptionGroup as errors:
        first = errors.exceptions[0]
        code, reason = first.code if isinstance(first, _RefusedError) else CloseReason.POLICY_VIOLATION, str(first)
        raise first from None
    finally:
        relay.controller_disconnected()
        await socket.close(code, reason)


async def _send_reports(socket: WebSocket, relay: Relay, revision: int) -> None:
    """Send each report at once; while the controller is slow, only the newest."""
    sent, known = 0, None
    while True:
        report, scanned, imports = relay.report_after(sent, revision), relay.take_scanned(), relay.imports_after(known)
        if report is not None:
            sent, text = report
            await socket.send(text)
        if scanned is not None:
            await socket.send(scanned)
        if imports is not None:
            known = imports
            await socket.send(imports)
        if report is None and scanned is None and imports is None:
            await relay.changes.wait()


async def _receive(socket: WebSocket, relay: Relay) -> None:
    """Relay what arrives, until the connection ends, carries no message, or brings no ping for too long.

    A replica that relays while no leader answers pings by WebSocket: it is there, and the supervisor must not hear it.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(SILENCE) as silence:
            while not isinstance(found := await socket.receive(), websocket.Closed):
                if found is None or isinstance(_decode(relay, found), wire.Ping):
                    silence.reschedule(loop.time() + SILENCE)
    except TimeoutError:
        raise _LostError(f"no ping for {SILENCE:.0f} s: the controller is frozen") from None
    except websocket.NoMessageError as error:
        raise _RefusedError(f"the controller sent something that isn't a message: {error}", error.code) from None
    raise _LostError(f"the controller closed the connection (code {found.code}, {found.reason or 'no reason'})")


def _decode(relay: Relay, text: str) -> wire.Message:
    try:
        message: wire.Message = wire.decode(text)
        relay.from_controller(text, message)
    except wire.WireError as error:
        raise _RefusedError(f"the controller sent a malformed message: {error}") from None
    return message


def _read(path: str) -> str:
    if not path:
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def _token(address: Address) -> str:
    """Read the bearer token. _LostError: the file can't be read."""
    try:
        return _read(address.token_file)
    except (OSError, ValueError) as error:
        raise _LostError(f"the token can't be read: {error}") from None


def _trust(address: Address) -> ssl.SSLContext | None:
    """Return what is trusted now: the file may have changed. _LostError: the file can't be used."""
    if not address.ca_file:
        return None
    try:
        return ssl.create_default_context(cafile=address.ca_file)
    except OSError as error:  # An SSLError is one.
        raise _LostError(f"{address.ca_file} has no certificate of an authority to trust: {error}") from None


def _ip_address(file: str) -> str:
    """The IP address in the file; empty if there is none."""
    try:
        found = _read(file)
        inet_pton(AF_INET6 if ":" in found else AF_INET, found)
    except (OSError, ValueError):
        return ""
    return found


def _at(url: str, address: str) -> str:
    parts = urlsplit(url)
    host = f"[{address}]" if ":" in address else address
    return parts._replace(netloc=host if parts.port is None else f"{host}:{parts.port}").geturl()


class FirstContact:
    """Remembers in a file, which outlives the container, the reasons that the pod's status has had."""

    def __init__(self, file: str, message: str) -> None:
        """Remember in ``file``. Without a file for the termination message the sidecar never ends."""
        self._file = file
        self._message = message
        self._reasons = _lines(file)
        self._reason = ""
        self._lasts = asyncio.Event()
        self._lasts.set()

    def connected(self) -> None:
        """The controller has accepted the connection."""
        if _CONNECTED not in self._reasons:
            self._reasons.append(_CONNECTED)
            self._remember()

    def failed(self, reason: str, *, passes: bool = False) -> None:
        """Note the reason why there is no connection. ``passes``: the controller asks to try again."""
        self._reason = " ".join(reason.split())[:_LIMIT]
        self._lasts.clear() if passes else self._lasts.set()

    async def missed(self) -> None:
        """Return when the sidecar is to end, with its reason written; it may never be."""
        for seconds, otherwise in ((PATIENCE, ""), (LONG_PATIENCE - PATIENCE, "nothing answers")):
            await asyncio.sleep(seconds)
            while not self._lasts.is_set():
                await self._lasts.wait()
                await asyncio.sleep(PATIENCE)
            if self._tell(self._reason or otherwise):
                return
        await asyncio.Event().wait()

    def _tell(self, reason: str) -> bool:
        is_over = _CONNECTED in self._reasons or len(self._reasons) >= MOST
        if not reason or is_over or reason in self._reasons or not self._message:
            return False
        self._reasons.append(reason)
        try:
            _write(self._message, reason)
        except OSError as error:
            log("warning", "the termination message can't be written", reason=error)
            return False
        return self._remember()

    def _remember(self) -> bool:
        new = f"{self._file}.new"
        with suppress(OSError):
            _write(new, "\n".join(self._reasons))
            os.replace(new, self._file)
            return True
        return False


def _lines(file: str) -> list[str]:
    try:
        return _read(file).splitlines()
    except (OSError, ValueError):
        return []


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
