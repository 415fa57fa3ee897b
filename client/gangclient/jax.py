"""For JAX: ``jax.distributed.initialize()`` without arguments, and no waiting for a lost peer.

What to write::

    import gangclient.jax
    import jax

    jax.distributed.initialize()

JAX takes the coordinator from the environment, but neither the number of processes nor which of them it is: it asks the
clusters that it knows, and this import adds gangctl. Importing it without JAX, or with one that is too old, raises an
ImportError. Outside of gangctl, and for processes that a launcher has started, it does nothing.

The class is JAX's own way to add a cluster (``jax/_src/clusters/cluster.py``); it has no public name.
"""

from __future__ import annotations

import os
from typing import Any, Optional

from gangclient._client import connect
from gangclient._frameworks import framework, leave_at_once
from gangclient._parking import wait_for_listener

OLDEST = "0.4.36"
WAIT_SECONDS = 10.0
"""For the first process to listen. Later JAX waits itself, and tries again every second."""
_ClusterEnv: Any = framework("gangclient.jax", "jax._src.clusters", "jax", OLDEST).ClusterEnv


class _Gang(_ClusterEnv):  # type: ignore[misc]
    """A process of a gang, which gangctl has started itself."""

    name = "gangctl"
    _leaves = False

    @classmethod
    def is_env_present(cls) -> bool:
        """Return whether gangctl has started this process. JAX asks whatever the script passes to ``initialize``.

        JAX handles SIGTERM from here on: it waits for a step that all ranks agree on to save a last checkpoint. After
        a fault that is in vain, so the process leaves before the signal comes. A planned stop is left to JAX.
        """
        ours = all(os.environ.get(one) for one in ("GANG_SOCKET", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"))
        if ours and not cls._leaves:
            cls._leaves = True
            connect().on_stop(leave_at_once)
        return ours

    @classmethod
    def get_coordinator_address(cls, *_: Any, **__: Any) -> str:
        """JAX reads the same variable before it asks; old releases ask with other arguments."""
        return os.environ["JAX_COORDINATOR_ADDRESS"]

    @classmethod
    def get_process_count(cls) -> int:
        return int(os.environ["JAX_NUM_PROCESSES"])

    @classmethod
    def get_process_id(cls) -> int:
        """The number of this process, once the first process listens: a try that fails costs JAX a second."""
        number = int(os.environ["JAX_PROCESS_ID"])
        if number:
            host, _, port = cls.get_coordinator_address().rpartition(":")
            wait_for_listener(host.strip("[]"), port, WAIT_SECONDS)
        return number

    @classmethod
    def get_local_process_id(cls) -> Optional[int]:
        """The number of this process's device in the pod; None: it has all of them."""
        alone = os.environ.get("LOCAL_WORLD_SIZE") in (None, "1")
        return None if alone else int(os.environ["LOCAL_RANK"])


# The first cluster that is present is taken: that of Kubernetes is too, where its package is installed.
_ClusterEnv._cluster_types.insert(0, _ClusterEnv._cluster_types.pop())  # noqa: SLF001 - there is no public way
