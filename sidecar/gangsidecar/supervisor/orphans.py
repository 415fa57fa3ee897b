"""Processes of workers whose supervisor was killed, where it was not PID 1."""

from __future__ import annotations

import signal
import time

from gangsidecar.common.clock import now_ms
from gangsidecar.common.log import log
from gangsidecar.supervisor import processes

LOG_AGAIN_MS = 10_000


def kill(pod: str) -> None:
    """Kill the marked processes of this pod's workers; returns when none is left.

    A session must never report Ready while a worker of an older attempt is alive. So this waits, without end if it must
    (state D); the controller replaces a pod that doesn't report.
    """
    logged_at = 0
    while True:
        left = processes.marked(pod)
        if not left:
            return
        if now_ms() - logged_at >= LOG_AGAIN_MS:
            logged_at = now_ms()
            log("warning", "processes of an earlier session are being killed", pids=",".join(map(str, left)))
        processes.send(left, signal.SIGKILL)
        time.sleep(0.005)  # they are no children of this process, so it gets no signal when they are gone
