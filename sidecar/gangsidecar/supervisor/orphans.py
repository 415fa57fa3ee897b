"""What a supervisor left behind that was itself killed, where it was not PID 1."""

from __future__ import annotations

import signal
import time

from gangsidecar.common.clock import now_ms
from gangsidecar.common.log import log
from gangsidecar.supervisor import processes

SAY_AGAIN_MS = 10_000


def kill(pod: str) -> None:
    """Kill the marked processes of this pod's workers; gives back when nothing of them is left.

    A session that began earlier would say Ready with a worker of an older attempt at its side: so it waits, if it must
    for ever (state D), and the controller replaces a pod that doesn't speak.
    """
    said_at = 0
    while True:
        left = processes.marked(pod)
        if not left:
            return
        if now_ms() - said_at >= SAY_AGAIN_MS:
            said_at = now_ms()
            log("warning", "processes of an earlier session are being killed", pids=",".join(map(str, left)))
        processes.send(left, signal.SIGKILL)
        time.sleep(0.005)  # they are no children, so nothing tells when they are gone
