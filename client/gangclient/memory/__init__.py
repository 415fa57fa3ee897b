"""Checkpoints in memory, with a copy at a peer on another node. Python 3.8, the standard library only.

The GangJob has a tier with ``scope: Peers`` and ``source: {type: API}``. A loop that uses it::

    gang = gangclient.connect()
    memory = gangclient.memory.connect(gang)
    file = memory.load()                                    # the agreed step, from here or from a peer
    if file is not None:
        state = torch.load(file)
    elif gang.restore:
        state = load(gang.restore.path)                     # another tier
    for step in range(start + 1, STEPS + 1):
        train(state)
        gang.progress(step)
        memory.save(step, lambda file: torch.save(state, file))     # False: not kept, and nothing is lost by it
        if step % 1000 == 0:
            save(state, step)                               # memory goes with its pods: keep a directory, too

Every rank calls ``save`` at the same steps. It returns when the part is in memory; a thread registers it and sends
the copy. Outside of gangctl, and where the GangJob has no such tier, nothing happens.
"""

from __future__ import annotations

from gangclient.memory._memory import Memory, connect
from gangclient.memory._parts import Data

__all__ = ["Data", "Memory", "connect"]
