"""For a training loop in PyTorch: checkpoints, state that survives a restart, and no waiting for a lost peer.

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
import socket
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from gangclient import GangError, _frameworks
from gangclient._client import Client, Event, Restore
from gangclient._connections import Connections
from gangclient._frameworks import api_tiers, framework, process_tier
from gangclient._kept import Holding, givers
from gangclient._parking import AGAIN_SECONDS

OLDEST = "2.6"
OFFER_SECONDS = 1.0
"""For the sidecar to take a step that survives. Without it the gang goes back to a checkpoint."""
leave_at_once = _frameworks.leave_at_once
"""For ``gang.on_stop``."""
_connections = Connections()
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

    PyTorch loads what ``state`` has and leaves out the rest: a new optimizer, which has no moments yet, would go on
    without. So that is an error. ``get_state_dict`` of ``torch.distributed.checkpoint.state_dict`` makes the moments.

    Raises:
        ImportError: PyTorch is not installed, or older than 2.6.
        torch.distributed.checkpoint.api.CheckpointException: it can't be loaded, or what it has is empty in ``state``.
    """
    dcp = _dcp()
    planner = dcp.DefaultLoadPlanner()
    decide = planner.create_global_plan

    def checked(plans: List[Any]) -> Any:
        asked = {item.storage_index.fqn for plan in plans for item in plan.items}  # by any rank
        for key, path in (planner.metadata.planner_data or {}).items():
            empty = "" if key in asked else _empty(planner.original_state_dict, path)
            if empty:
                raise ValueError(
                    f"the checkpoint has {key}, and {empty} is empty here, so it would be lost: save and load what "
                    "torch.distributed.checkpoint.state_dict.get_state_dict(model, optimizer) returns"
                )
        return decide(plans)

    planner.create_global_plan = checked
    dcp.load(state, checkpoint_id=restore.path, planner=planner)


def join(gang: Client, backend: str, **options: Any) -> None:
    """Join the process group of this attempt: ``init_process_group``, with keys that name the gang and the attempt.

    A rank of an older attempt, or of another gang that had the same port, can't get into it: it looks for other keys.

    Args:
        gang: the client of this rank.
        backend: as ``torch.distributed.init_process_group`` takes it.
        options: others that it takes, such as ``timeout``.

    Raises:
        GangError: :func:`abort` was called meanwhile (``Stopping``).
    """
    c10d: Any = framework("gangclient.pytorch", "torch.distributed.distributed_c10d", "torch", OLDEST)
    with _connections.opened(gang.number):
        _wait_for_first_rank(gang.number, c10d.default_pg_timeout.total_seconds())
        store, rank, size = next(c10d.rendezvous("env://"))
        _check(gang.number)
        store = c10d.PrefixStore(f"gangctl/{os.environ.get('GANG_UID', '')}/{gang.number}", store)
        c10d._world.group_count = 0  # noqa: SLF001 - a join that failed has counted, and peers look for keys by the count
        c10d.init_process_group(backend, store=store, rank=rank, world_size=size, **options)


def _wait_for_first_rank(attempt: int, seconds: float) -> None:
    """Until it serves the store, or :func:`abort` is called, which can't end PyTorch's own attempts to connect."""
    rank, address, port = (os.environ.get(name, "") for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"))
    if rank in {"", "0"} or not (address and port):  # PyTorch says what is missing.
        return
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        _check(attempt)
        with suppress(OSError), socket.create_connection((address, port), seconds):
            return
        time.sleep(AGAIN_SECONDS)


def _check(attempt: int) -> None:
    if _connections.has_ended(attempt):
        raise GangError("Stopping", f"attempt {attempt} is being stopped: its process group isn't joined")


def abort(stop: Event) -> None:
    """End what waits for other ranks of the group: for ``abort`` of ``gangclient.run``, where :func:`join` made it.

    With gloo, a collective that waits for a peer that hangs raises at once, as if that had died, and so does a
    :func:`join` that waits for a rank. Groups of ``new_group`` and other backends aren't ended. A planned stop ends
    nothing: all ranks still answer.
    """
    if not stop.planned:
        _connections.end(stop.attempt, os.environ.get("MASTER_PORT", ""))


class KeptState:
    """State that is equal on all ranks, and goes on with the processes that survive a restart.

    For ``kept`` of ``gangclient.run``, where the GangJob has a tier with scope Process. A rank that is new, or has not
    made the step that others have, gets the state from one of them. Without such a tier, each attempt makes it anew.
    """

    def __init__(self, new: Callable[[], StateDict]) -> None:
        """``new`` makes the state of the beginning, by names: what has ``state_dict`` and ``load_state_dict``."""
        self._new = new
        self._holding = Holding()
        self._guard: Optional[Callable[[], None]] = None
        self.state: StateDict = {}

    def begin(self, gang: Client, load: Callable[[StateDict, Restore], object]) -> int:
        """Return the step that the attempt begins after; ``state`` has it then. Every rank calls it, in its group.

        Args:
            gang: the client of this rank.
            load: loads a checkpoint into ``state``, where the restore point is one.

        Raises:
            GangError: no process has the restore point any more (``StateLost``). Let it end the process: the next
                attempt takes a checkpoint.
        """
        self._guard = gang.guard
        restore, since = gang.restore, self._holding.since(gang.restore, process_tier())
        self._holding.step = None
        if restore is not None and restore.tier == process_tier():
            with gang.loading():
                self._exchange(restore, since)
        else:
            self.state = self._new()
            if restore is not None:
                with gang.loading():
                    load(self.state, restore)
        step = 0 if restore is None else restore.step
        self._holding.begin(gang.number, step)
        return step

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Enclose what changes the state to that of this step, after all that waits for other ranks.

        With NCCL, a collective that ``abort`` has cut short ends as if it were complete, and what is queued behind it
        runs on a part of the gradients. So before the change this waits for the device, and *then* asks for a stop,
        which is known before ``abort`` begins: the change is made only after collectives that no abort has touched.

        Raises:
            gangclient.Restart: a fault stops this attempt. The state is that of the step before, and stays whole.
        """
        cuda: Any = sys.modules.get("torch.cuda")
        if cuda is not None and cuda.is_initialized():
            cuda.current_stream().synchronize()
        if self._guard is not None:
            self._guard()
        self._holding.step = None
        yield
        self._holding.step = number

    def offer(self, gang: Client) -> None:
        """Register the step that the state has: ``gangclient.run`` calls it as the attempt is left."""
        tier = process_tier()
        step = self._holding.offered(gang.number, gang.restore, tier) if tier else None
        if step is not None:
            gang.checkpoint_completed(step, tier, deadline=OFFER_SECONDS)

    def _exchange(self, restore: Restore, since: int) -> None:
        dist: Any = framework("gangclient.pytorch", "torch.distributed", "torch", OLDEST)
        of_all = [0] * dist.get_world_size()
        dist.all_gather_object(of_all, since)
        try:
            plan, own = givers(of_all), dist.get_rank()
        except ValueError:
            raise GangError(
                "StateLost",
                f"no process that had made step {restore.step} is left; this process should end, and the next attempt "
                "starts from a checkpoint",
            ) from None
        for rank, giver in plan.items():
            if giver == own:
                dist.send_object_list([{name: one.state_dict() for name, one in self.state.items()}], dst=rank)
        if own in plan:
            self.state = self._new()
            given: Any = [None]
            dist.recv_object_list(given, src=plan[own])
            for name, one in self.state.items():
                one.load_state_dict(given[0][name])


def leave() -> None:
    """Leave all process groups: for ``finalize`` of ``gangclient.run``. Without one, it does nothing.

    A model in ``DistributedDataParallel`` keeps its group open, and ``get_state_dict`` of
    ``torch.distributed.checkpoint`` keeps every model that it has seen (``lru_cache`` of ``_get_fqns``, PyTorch 2.6):
    peers would wait for a rank that has left. So that is forgotten first. Accelerate forgets the group, too, or its
    next ``Accelerator`` would not join again.
    """
    seen: Any = getattr(sys.modules.get("torch.distributed.checkpoint.state_dict"), "_get_fqns", None)
    if hasattr(seen, "cache_clear"):
        seen.cache_clear()
    _connections.forget()
    dist: Any = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
    accelerate: Any = sys.modules.get("accelerate.state")
    if accelerate is not None:
        accelerate.AcceleratorState._reset_state(reset_partial_state=True)  # noqa: SLF001 - there is no public way
        accelerate.GradientState._reset_state()  # noqa: SLF001 - it has the loaders of this attempt


def _dcp() -> Any:
    return framework("gangclient.pytorch", "torch.distributed.checkpoint", "torch", OLDEST)


def _empty(state: StateDict, path: Sequence[Any]) -> str:
    """The name of the empty container on the path to a value; empty if there is none."""
    value: Any = state
    for at, name in enumerate(path):
        if not isinstance(value, dict) or name not in value:
            return ".".join(map(str, path[:at])) if value == {} else ""
        value = value[name]
    return ""


def _copied(state: StateDict) -> Any:
    """With copies of what is on CPUs: there ``async_save`` copies nothing, and writes what the next steps change.

    What is ``Stateful`` becomes its state, as in ``async_save`` itself: its keys are those of a ``save``.
    """
    tree = framework("gangclient.pytorch", "torch.utils._pytree", "torch", OLDEST)
    kind = framework("gangclient.pytorch", "torch.distributed.checkpoint.stateful", "torch", OLDEST).Stateful
    values = {name: one.state_dict() if isinstance(one, kind) else one for name, one in state.items()}
    return tree.tree_map(lambda one: one.clone() if getattr(one, "is_cpu", False) else one, values)


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
