"""Answer the controller's scans of checkpoint directories, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gangsidecar import wire
from gangsidecar.common.clock import now_ms
from gangsidecar.supervisor import checkpoints

if TYPE_CHECKING:
    from gangsidecar.supervisor.forked_helpers import ForkedHelpers


class Scans:
    """One scan runs; of those that arrive meanwhile, the newest waits."""

    def __init__(self, helpers: ForkedHelpers, pod: str, answer: Callable[[str], None]) -> None:
        self._helpers = helpers
        self._pod = pod
        self._answer = answer
        self._current: wire.Scan | None = None
        self._next: wire.Scan | None = None

    def take(self, scan: wire.Scan) -> None:
        """Scan in a child process. The answer is one line; a scan that is too slow is answered with an error."""
        if self._current is not None:
            self._next = None if scan == self._current else scan
            return
        self._current = scan
        self._helpers.start(partial(self._work, scan), now_ms() + max(0, scan.timeout_ms), partial(self._done, scan))

    def _work(self, scan: wire.Scan) -> str:
        found, error = checkpoints.scan(scan.tiers)
        return wire.encode(wire.Scanned(scan.attempt, self._pod, found, error))

    def _done(self, scan: wire.Scan, text: str | None) -> None:
        late = f"the file system did not answer within {scan.timeout_ms} ms"
        self._answer(text or wire.encode(wire.Scanned(scan.attempt, self._pod, error=late)))
        self._current, following, self._next = None, self._next, None
        if following is not None:
            self.take(following)
