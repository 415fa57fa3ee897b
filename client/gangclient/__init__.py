"""gangclient: what a training script can report to gangctl and ask it for. Python 3.8, the standard library only.

Every call is optional. Outside of gangctl (no GANG_SOCKET) no call does anything, so the same script runs everywhere.
A loop that is restartable in full::

    import gangclient

    gang = gangclient.connect()
    with gang.joining():                                    # its time appears in the incident
        init_process_group()
    start, model = 0, new_model()
    if gang.restore:
        with gang.loading():                                # and so does this
            start, model = gang.restore.step, load(gang.restore.path)   # the same step on every rank
    gang.on_stop(lambda stop: abort_collectives())          # a peer has failed: don't wait for it
    for step in range(start + 1, STEPS + 1):
        train(model)
        gang.progress(step)                                 # never raises, never waits
        if step % 100 == 0:
            gang.checkpoint_begun(step, "ram", path)
            save(model, path)
            gang.checkpoint_completed(step, "ram", path)    # now a restart may go back to it

``progress`` is the heartbeat: a daemon thread sends the newest one and drops older ones. ``joining``, ``joined``,
``loading`` and ``checkpoint_loaded`` go the same way: they never raise and never wait. The calls about checkpoints and
restarts wait for the sidecar, five seconds at most. If it doesn't answer, they return False, training goes on, and a
daemon thread repeats them in order; the next ones don't wait until it answers again. :class:`GangError` has one use:
the GangJob has no such tier, and nothing is lost by finding that out now.
"""

from __future__ import annotations

from gangclient._calls import GangError
from gangclient._client import Client, Event, Restore, connect
from gangclient._session import Restart, run

__all__ = ["Client", "Event", "GangError", "Restart", "Restore", "connect", "run"]
