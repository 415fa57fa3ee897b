"""For a training loop in PyTorch: checkpoints by torch.distributed.checkpoint, and no waiting for a lost peer.

The parts of a loop::

    gang = gangclient.connect()
    gang.on_stop(pytorch.leave_at_once)                    # only where the script handles SIGTERM
    if gang.restore:
        with gang.loading():
            pytorch.load(state, gang.restore)              # exactly the step that all ranks agreed on
    for step in range(start + 1, STEPS + 1):
        train(model)
        gang.progress(step)
        if step % 100 == 0:
            pytorch.save(gang, state, step, "/checkpoints")

The folders are those of the layout TorchDCP. A tier with source API hears of a step from each rank when all have
written it; a tier with source Directory sees it. PyTorch is imported by the first call.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, Tuple, Union

from gangclient import _frameworks
from gangclient._client import Client, Restore
from gangclient._frameworks import api_tiers, framework

OLDEST = "2.6"
leave_at_once = _frameworks.leave_at_once
"""For ``gang.on_stop``."""
StateDict = Dict[str, Any]
CheckpointPath = Union[str, "os.PathLike[str]"]


def save(gang: Client, state: StateDict, step: int, directory: CheckpointPath) -> None:
    """Write ``directory/step-N``. Every rank calls it, and it returns when all have written their parts.

    Args:
        gang: the client of this rank.
        state: as ``torch.distributed.checkpoint.save`` takes it.
        step: the step that is finished.
        directory: where every rank sees the same files.

    Raises:
        ImportError: PyTorch is not installed, or older than 2.6.
    """
    dcp, folder, completed = _begin(gang, step, directory)
    dcp.save(state, checkpoint_id=folder)
    completed()


def async_save(gang: Client, state: StateDict, step: int, directory: CheckpointPath, group: Any) -> Any:
    """The same, but it returns a future when the state is copied. Wait for it before the next save and before the end.

    The step is registered when all ranks have written it.

    Args:
        gang: the client of this rank.
        state: as ``torch.distributed.checkpoint.async_save`` takes it.
        step: the step that is finished.
        directory: where every rank sees the same files.
        group: a process group for this alone, ``torch.distributed.new_group(backend="gloo")``: in a group that trains,
            the messages of the thread that writes would mix with those of the next step.

    Raises:
        ImportError: PyTorch is not installed, or older than 2.6.
    """
    dcp, folder, completed = _begin(gang, step, directory)
    written = dcp.async_save(_copied(state), checkpoint_id=folder, process_group=group)
    written.add_done_callback(lambda done: done.exception() is None and completed())
    return written


def load(state: StateDict, restore: Restore) -> None:
    """Load the restore point into ``state``, in place. The number of ranks may differ from that at the save.

    Raises:
        ImportError: PyTorch is not installed, or older than 2.6.
        torch.distributed.checkpoint.api.CheckpointException: it can't be loaded.
    """
    _dcp().load(state, checkpoint_id=restore.path)


def leave() -> None:
    """Leave all process groups: for ``finalize`` of ``gangclient.run``. Without one, it does nothing.

    A model in ``DistributedDataParallel`` keeps its group open, and ``get_state_dict`` of
    ``torch.distributed.checkpoint`` keeps every model that it has seen (``lru_cache`` of ``_get_fqns``, PyTorch 2.6):
    peers would wait for a rank that has left. So that is forgotten first.
    """
    seen: Any = getattr(sys.modules.get("torch.distributed.checkpoint.state_dict"), "_get_fqns", None)
    if hasattr(seen, "cache_clear"):
        seen.cache_clear()
    dist: Any = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def _dcp() -> Any:
    return framework("gangclient.pytorch", "torch.distributed.checkpoint", "torch", OLDEST)


def _copied(state: StateDict) -> Any:
    """With copies of what is on CPUs: there ``async_save`` copies nothing, and writes what the next steps change."""
    tree = framework("gangclient.pytorch", "torch.utils._pytree", "torch", OLDEST)
    return tree.tree_map(lambda one: one.clone() if getattr(one, "is_cpu", False) else one, state)


def _begin(gang: Client, step: int, directory: CheckpointPath) -> Tuple[Any, Path, Callable[[], None]]:
    """The library, the step's folder, and what registers it. An older checkpoint in the folder is undone."""
    dcp, folder, tiers = _dcp(), Path(directory, f"step-{step}"), api_tiers()
    for tier in tiers:
        gang.checkpoint_begun(step, tier, folder)
    with suppress(FileNotFoundError):  # Every rank does it before it writes, so before any rank can mark the step.
        (folder / ".metadata").unlink()

    def completed() -> None:
        for tier in tiers:
            gang.checkpoint_completed(step, tier, folder)

    return dcp, folder, completed
