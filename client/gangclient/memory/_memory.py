"""One rank's memory in one attempt: what is saved, loaded and dropped, and in which order the others learn it.

The rule: a step is reported as kept when the own part is whole and registered, and the peer has the copy and has
registered it. What can't be kept is skipped, and logged. Nothing here ends a training, and ``save`` waits for nothing
but the bytes to be written.
"""

from __future__ import annotations

import logging
import os
import threading
from functools import partial
from queue import SimpleQueue
from typing import BinaryIO, Callable, List, Optional, Set, Tuple

from gangclient import Client, GangError
from gangclient.memory._keeping import Keeper, StepVerdict
from gangclient.memory._link import DirectoryLink, Identity, identity, parse_address
from gangclient.memory._parts import Data, Folder, MemoryPart, Server, TornError, fetch, put

COPIES = 4
"""Parts of each rank that a member needs room for: two of its own, two of the rank whose copies it holds."""
_log = logging.getLogger("gangclient")
Job = Callable[[], object]


def connect(gang: Client) -> Memory:
    """The memory of this rank in this attempt. Every rank must call it.

    It does nothing outside of gangctl, and where the GangJob has no tier with scope Peers. ``gang.close()`` ends it.
    """
    tier, folder = os.environ.get("GANG_MEMORY_TIER", ""), os.environ.get("GANG_MEMORY_FOLDER", "")
    if not tier or not os.environ.get("GANG_SOCKET"):
        return Memory(None)
    try:
        own = identity()
        store = Store(gang, own, tier, Folder(folder, own.gang), parse_address(os.environ["GANG_MEMORY_ADDRESS"]))
    except (KeyError, ValueError, OSError, RuntimeError) as error:
        _log.warning("checkpoints are not kept in memory: %s: %s", type(error).__name__, error)
        return Memory(None)
    gang.on_close.append(store.close)
    return Memory(store)


class Memory:
    """The last complete steps of all ranks, in memory."""

    def __init__(self, store: Optional[Store]) -> None:
        self._store = store

    def save(self, step: int, data: Data) -> bool:
        """Keep this rank's part of a step. Returns when it is written, and whether it is.

        False: it is not kept, because the step before is still on its way, there is no room, or a connection broke (the
        log says so once). Another rank may have skipped the step, then it is dropped later. Save on, and keep a
        directory, too.

        Args:
            step: the step; all ranks save the same ones.
            data: bytes, an iterable of bytes, or a function that writes them to the file that it gets.
        """
        return self._store is not None and self._store.save(int(step), data)

    def load(self) -> Optional[BinaryIO]:
        """This rank's part of the restore point, as a file that can be read.

        None: the restore point is in another tier, or there is none. The part comes from this member's memory, or else
        from a peer, and was checked. It waits until all ranks have connected.

        Raises:
            GangError: no whole part is there (``PartLost``), or a rank has not connected (``MemoryUnreachable``). Let
                it end the process: the next attempt takes another step.
        """
        return None if self._store is None else self._store.load()

    def close(self) -> None:
        """End its threads and connections. What is kept stays."""
        if self._store is not None:
            self._store.close()


class Store:
    """The memory where there is a tier; :class:`Memory` has its methods."""

    def __init__(self, gang: Client, own: Identity, tier: str, folder: Folder, directory: Tuple[str, int]) -> None:
        restore = gang.restore
        self._restored = restore.step if restore is not None and restore.tier == tier else None
        self._gang, self._own, self._tier, self._folder = gang, own, tier, folder
        self.directory = directory
        self._keeper = Keeper(self._restored)
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[Optional[Job]] = SimpleQueue()
        self._warned: Set[str] = set()
        folder.clear_unfinished(own.attempt)
        holding = self._begin(-1 if restore is None else restore.step)
        self._server = Server(own, folder, self._hold, self._lose)
        self.port = self._server.port
        where = {"port": self.port, "member": own.member, "node": own.node}
        self._link = DirectoryLink(own, directory, {**where, "holding": [part[1:3] for part in holding]}, self._judge)
        threading.Thread(target=self._work, name="gangclient-memory-work", daemon=True).start()

    def _begin(self, restored: int) -> List[MemoryPart]:
        """Drop what the gang has gone back behind, and what is older; returns the parts of the restore point."""
        holding: List[MemoryPart] = []
        for part in self._folder.parts():
            if part.attempt == self._own.attempt:
                continue  # Another process of this member has just saved it.
            if part.step == self._restored:
                holding.append(part)
            elif part.step > restored:
                self._folder.drop(*part[:2])  # No registration of it is left.
            else:
                self._drop_later(*part[:2])
        if self._restored is not None:
            for rank in self._folder.torn(self._restored):
                self._lose(self._restored, rank)
        return holding

    @property
    def newest(self) -> Optional[int]:
        """The newest step that every rank can load."""
        return self._keeper.safe

    def save(self, step: int, data: Data) -> bool:
        with self._lock:
            if step == self._keeper.safe and self._folder.find(step, self._own.rank) is not None:
                return True
            if not self._keeper.takes(step):
                self._jobs.put(lambda: self._link.tell(step, kept=False))
                return False
        try:
            part = self._folder.write(step, self._own.rank, self._own.attempt, data)
        except BaseException as error:
            self._skip(step, f"rank {self._own.rank} can't keep step {step} in memory: {error}{self._room()}")
            if isinstance(error, OSError):
                return False
            raise
        if self._folder.free() < (COPIES - 1) * part.size:
            self._warn(
                "room",
                f"there may be no room for checkpoints in memory: a part has {part.size >> 20} MiB, each rank needs "
                f"room for {COPIES}{self._room()}",
            )
        self._jobs.put(lambda: self._keep(part))
        return True

    def load(self) -> Optional[BinaryIO]:
        step, rank = self._restored, self._own.rank
        if step is None:
            return None
        table = self._link.table()
        part = self._folder.find(step, rank)
        if part is not None and part.attempt == table["attempt"]:
            try:
                file = self._folder.open(part)
            except (TornError, OSError) as error:
                _log.warning("the own part of step %d is not whole, and is dropped: %s", step, error)
            else:
                self._jobs.put(partial(self._copy, part))
                return file
        self._lose(step, rank)
        for host, port in table["holders"]:
            fetched = fetch(self._own, self._folder, (step, int(table["attempt"])), host, int(port))
            if fetched is not None:
                self._register("Completed", step, rank)
                self._jobs.put(partial(self._copy, fetched))
                return self._folder.open(fetched)
        raise GangError(
            "PartLost",
            f"no member has a whole part of rank {rank} of step {step} in memory. What was not whole is dropped; this "
            "process should end, and the next attempt starts from a step that every rank can load",
        )

    def close(self) -> None:
        self._jobs.put(None)
        self._link.close()
        self._server.shutdown()
        self._server.server_close()

    # In the working thread.

    def _work(self) -> None:
        for job in iter(self._jobs.get, None):
            try:
                job()
            except (GangError, OSError) as error:  # noqa: PERF203 - one job must not end the others
                _log.info("no step is kept in memory until the next attempt: %s", error)

    def _keep(self, part: MemoryPart) -> None:
        why = "" if self._register("Completed", *part[:2]) else "the sidecar has not taken it"
        if why or (self._copy(part) and (why := self._copy(part))):  # A connection may break once.
            self._skip(part.step, f"step {part.step} is not kept in memory: {why}")
        else:
            self._link.tell(part.step, kept=True)

    def _copy(self, part: MemoryPart) -> str:
        """Why the peer has no copy."""
        peer = self._link.table()["peer"]
        return "" if peer is None else put(self._own, self._folder, part, peer[0], int(peer[1]))

    # In any thread.

    def _skip(self, step: int, why: str) -> None:
        self._warn("skip", why)
        self._judge(StepVerdict(step, safe=False))
        self._jobs.put(lambda: self._link.tell(step, kept=False))

    def _judge(self, verdict: StepVerdict) -> None:
        with self._lock:
            self._keeper.take_verdict(verdict)
        for part in self._folder.parts():
            if verdict.ends(part.step):
                self._drop_later(*part[:2])

    def _hold(self, part: MemoryPart) -> bool:
        """A copy is here."""
        with self._lock:
            if self._keeper.is_dead(part.step):
                return False
        return self._register("Completed", *part[:2])

    def _lose(self, step: int, rank: int) -> None:
        """Something registered is not whole."""
        self._register("Dropped", step, rank)
        self._folder.drop(step, rank)

    def _drop_later(self, step: int, rank: int) -> None:
        def drop() -> None:
            if self._register("Dropped", step, rank):  # Otherwise a restart may still choose it.
                self._folder.drop(step, rank)

        self._jobs.put(drop)

    def _register(self, state: str, step: int, rank: int) -> bool:
        owner = None if rank == self._own.rank else rank
        path = str(self._folder.place(step, rank)) if state == "Completed" else ""
        try:
            return self._gang.register(state, step, self._tier, path, owner=owner)
        except GangError as refusal:
            self._warn("registry", f"checkpoints are not kept in memory: {refusal}")
            return False

    def _room(self) -> str:
        try:
            return (
                f"; {self._folder.path} has {self._folder.free() >> 20} MiB free (mount an emptyDir of medium Memory)"
            )
        except OSError as error:
            return f"; {error}"

    def _warn(self, kind: str, why: str) -> None:
        """Once of each kind: a line for each step would hide all others."""
        (_log.info if kind in self._warned else _log.warning)("%s", why)
        self._warned.add(kind)
