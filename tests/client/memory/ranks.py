"""Ranks in threads of this process, with real files, sockets and directories. Their sidecar is a fake, for faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from gangclient import Client, Restore
from gangclient.memory import Memory
from gangclient.memory._link import Identity
from gangclient.memory._memory import Store
from gangclient.memory._parts import Folder
from tests.ports import free_port
from tests.wait import until

TIER = "ram"


@dataclass
class Registry:
    """A fake sidecar: it notes what a member has registered, and can refuse."""

    rank: int
    restore: Restore | None = None
    registered: set[tuple[int, int]] = field(default_factory=set)
    """Step and owner."""
    is_away: bool = False
    later: list[tuple[str, int, int]] = field(default_factory=list)
    """What it hears when it is back, as from the client's backlog."""
    on_close: list[Callable[[], object]] = field(default_factory=list)

    def register(self, state: str, step: int, _tier: str, _path: str, owner: int | None = None) -> bool:
        key = step, self.rank if owner is None else owner
        if self.is_away:
            self.later.append((state, *key))
            return False
        (self.registered.add if state == "Completed" else self.registered.discard)(key)
        return True

    def back(self) -> None:
        """It answers again, and first hears what was kept for it."""
        self.is_away = False
        for state, step, owner in self.later:
            self.register(state, step, "", "", owner)


@dataclass
class Rank:
    """One rank in one attempt."""

    memory: Memory
    store: Store
    registry: Registry
    folder: Folder


@contextmanager
def attempt(
    root: Path, count: int, *, number: int = 1, restored: int | None = None, gang: str = "uid", absent: int = 0
) -> Iterator[list[Rank]]:
    """The ranks of an attempt, but the last ``absent`` ones, on two nodes. Their members keep parts below ``root``."""
    port, ranks = free_port(), list[Rank]()
    for rank in range(count - absent):
        own = Identity(gang, number, rank, count, f"worker-{rank}", f"node-{rank % 2}")
        registry = Registry(rank)
        if restored is not None:
            registry.restore = Restore(restored, "", TIER)
            registry.registered = {(restored, owner) for owner in range(count)}
        folder = Folder(str(root / f"worker-{rank}"), gang)
        store = Store(cast("Client", registry), own, TIER, folder, ("127.0.0.1", port))
        ranks.append(Rank(Memory(store), store, registry, folder))
    try:
        yield ranks
    finally:
        for one in ranks:
            one.memory.close()


def part(step: int, rank: int) -> bytes:
    return f"step {step} of rank {rank}; ".encode() * 50_000


def save(ranks: list[Rank], step: int) -> None:
    """All save the step, and it becomes safe."""
    assert all(one.memory.save(step, part(step, rank)) for rank, one in enumerate(ranks))
    safe(ranks, step)


def safe(ranks: list[Rank], step: int) -> None:
    """All have heard that it is."""
    until(f"step {step} is safe", lambda: all(one.store.newest == step for one in ranks))


def held(one: Rank) -> set[tuple[int, int]]:
    """Step and owner of what is whole in the folder of its member."""
    return {(found.step, found.rank) for found in one.folder.parts()}


def changed(path: Path, change: Callable[[bytearray], Any]) -> None:
    """Damage a file."""
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)
