"""The first contact of a pod: a sidecar that never reaches the controller says why in the status of its pod.

The rule: the status of a pod has the words of a container only when it ends. So it ends, with the reason as its
termination message, and the kubelet starts it again. Until the pod's first contact no worker runs in it, so nothing is
lost::

    ends   <=>   no sidecar of this pod has had a connection
            and  a reason is known for PATIENCE since the start, or nothing has answered for LONG_PATIENCE
            and  the newest answer is none that asks to try again (503)
            and  it is none that the pod's status has had, which has had fewer than MOST

A sidecar that has once been connected must not end: its worker trains on, and its restarts would delay the recovery.
The kubelet delays each restart of a container by more, so there are few, and none for what passes by itself: there is
no leader for a moment, or the controller does not know the pod yet.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from gangsidecar.common.log import log

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 3.0
"""Seconds: a controller that is started beside its pods answers within this time."""
LONG_PATIENCE = 10.0
"""Seconds in which a packet that nothing answers may still be on its way."""
MOST = 2
"""Times that a sidecar ends: three restarts would count as a start that failed."""
_CONNECTED = "connected"
_LIMIT = 400
"""Characters of a reason."""


class FirstContact:
    """Remembers in a file, which outlives the container, what the pod's status has been told."""

    def __init__(self, file: Path, message: Path | None) -> None:
        """Give it its files.

        Args:
            file: what it remembers.
            message: the container's termination message; None: there is none, so the sidecar never ends.
        """
        self._file = file
        self._message = message
        self._told = _lines(file)
        self._reason = ""
        self._lasts = asyncio.Event()
        self._lasts.set()

    def connected(self) -> None:
        """The controller has accepted the connection."""
        if _CONNECTED not in self._told:
            self._told.append(_CONNECTED)
            self._remember()

    def failed(self, reason: str, *, passes: bool = False) -> None:
        """There is no connection, for this reason. ``passes``: the controller asks to try again."""
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
        is_over = _CONNECTED in self._told or len(self._told) >= MOST
        if not reason or is_over or reason in self._told or self._message is None:
            return False
        self._told.append(reason)
        try:
            self._message.write_text(reason)
        except OSError as error:
            log("warning", "the termination message can't be written", reason=error)
            return False
        return self._remember()

    def _remember(self) -> bool:
        new = self._file.with_name(f"{self._file.name}.new")
        with suppress(OSError):
            new.write_text("\n".join(self._told))
            new.replace(self._file)
            return True
        return False


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except (OSError, ValueError):
        return []
