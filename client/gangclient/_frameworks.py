"""The common part of the adapters of frameworks: a version, the tiers to register in, the end of a rank.

The rule: a checkpoint counts when every rank has registered its part. No adapter may register a part that is not
written.
"""

from __future__ import annotations

import importlib
import os
import re
import warnings
from typing import Any, List, Tuple

from gangclient import _client
from gangclient._client import Event


def framework(adapter: str, module: str, package: str, oldest: str) -> Any:
    """Import the module that an adapter is made for. ImportError: it is not installed, or is too old.

    Args:
        adapter: the adapter's name, such as ``gangclient.pytorch``.
        module: what is imported.
        package: the name to install, whose module has ``__version__``.
        oldest: the first version that works.
    """
    required = f"{package}>={oldest}"
    try:
        top = importlib.import_module(module.partition(".")[0])
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise  # The framework is there, and misses a package of its own.
        raise ImportError(
            f"{adapter} needs {package}, which is not installed for this Python. Install it: pip install '{required}'"
        ) from None
    found = str(getattr(top, "__version__", "0"))
    if _numbers(found) < _numbers(oldest):
        raise ImportError(
            f"{adapter} needs {required}, and found {found}. Install a newer one: pip install '{required}'"
        )
    return importlib.import_module(module)


def api_tiers() -> List[str]:
    """The names of the job's tiers with source API that take files, from the environment; [] outside of gangctl."""
    tiers = (one.partition("=") for one in os.environ.get("GANG_CHECKPOINT_TIERS", "").split(","))
    return [name for name, _, source in tiers if source == "API" and name != process_tier()]


def process_tier() -> str:
    """The name of the job's tier with scope Process; empty if there is none."""
    return os.environ.get("GANG_PROCESS_TIER", "")


def warn_of_fixed_size() -> None:
    """Warn, in a gang that may start with fewer ranks, of DeepSpeed, whose checkpoints only as many ranks can load."""
    if "GANG_SIZE_WANTED" in os.environ:
        warnings.warn(
            "this gang may start with fewer ranks (minReplicas), and a checkpoint of DeepSpeed is loaded only by as "
            "many as have written it, unless it was made a universal one: otherwise remove minReplicas",
            stacklevel=3,
        )


def leave_at_once(stop: Event) -> None:
    """End this process if a peer has failed: for ``gang.on_stop``, where the script or a framework handles SIGTERM.

    Without a handler SIGTERM does that itself. With one, Python runs it only when the collective returns, which waits
    for the peer. A planned stop is left to the handler: all ranks still answer. Within ``gangclient.run`` it does
    nothing: no signal comes, and the process goes on.
    """
    if not stop.planned and _client.adopt is None:
        os._exit(128 + 15)


def _numbers(version: str) -> Tuple[int, ...]:
    return tuple(int(one) for one in re.findall(r"[0-9]+", version.partition("+")[0])[:2])
