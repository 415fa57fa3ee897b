"""Training in PyTorch with all that must come back: optimizer, random states of three libraries, a data loader.

It notes what it draws at the beginning of each attempt, and the final loss. With IN_PROCESS=1 it calls
``gangclient.run``, and with DISTURBED=1 it waits to be disturbed.
"""

import json
import os
import random
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

import gangclient  # the supervisor puts it into PYTHONPATH

STEPS, SAVE_EVERY, BATCH = 100, 20, 8
HELD = {1: 20, 2: 60} if os.environ.get("DISTURBED") else {}
"""Attempt -> the step after which it goes no further, so that a test can end it there."""


class Samples(Dataset):
    """What one rank learns from a step on: each sample depends on its number alone, whichever process makes it."""

    def __init__(self, rank: int, start: int) -> None:
        self.rank, self.start = rank, start

    def __len__(self) -> int:
        """From there to the last step."""
        return (STEPS - self.start) * BATCH

    def __getitem__(self, at: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Two numbers and their sum."""
        number = 2 * (self.start * BATCH + at) + self.rank
        x = torch.rand(2, generator=torch.Generator().manual_seed(number))
        return x, x.sum(0, keepdim=True)


def note(directory: Path, name: str, value: object) -> None:
    """Write a file at once."""
    path = directory / name
    path.with_suffix(".tmp").write_text(json.dumps(value))
    path.with_suffix(".tmp").rename(path)


def states() -> dict[str, object]:
    """The random states, as ``torch.save`` keeps them."""
    kind, keys, *rest = np.random.get_state()
    return {"python": random.getstate(), "numpy": (kind, keys.tolist(), *rest), "torch": torch.get_rng_state()}


def train(directory: Path, gang: gangclient.Client) -> None:
    """Train from the restore point to the last step."""
    torch.set_num_threads(1)
    drawn = [random.random(), float(np.random.random()), torch.rand(1).item()]
    model = nn.Sequential(nn.Linear(2, 32), nn.Dropout(0.1), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    dist.init_process_group("gloo")
    rank, start = dist.get_rank(), gang.restore.step if gang.restore else 0
    note(directory, f"drawn-{gang.number}-{rank}", {"drawn": drawn, "pid": os.getpid(), "start": start})
    samples = Samples(rank, start)
    loader = DataLoader(samples, batch_size=BATCH, num_workers=2, persistent_workers=True, generator=torch.Generator())
    batches = iter(loader)
    if gang.restore:
        with gang.loading():
            saved = torch.load(Path(gang.restore.path) / f"{rank}.pt", weights_only=False)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        random.setstate(saved["python"])
        np.random.set_state(saved["numpy"])
        torch.set_rng_state(saved["torch"])
    for step in range(start + 1, STEPS + 1):
        x, y = next(batches)
        x = x + 0.01 * random.random() + 0.01 * np.random.random()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
        loss = loss.detach()
        dist.all_reduce(loss)
        gang.progress(step)
        if step % SAVE_EVERY == 0:
            folder = directory / f"step-{step}"
            folder.mkdir(exist_ok=True)
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), **states()}, folder / f"{rank}.pt"
            )
            dist.barrier()
            if rank == 0:
                (folder / "DONE").touch()
        while step == HELD.get(gang.number):
            gang.progress(step)  # raises gangclient.Restart in ``gangclient.run``
            time.sleep(0.1)
    note(directory, f"loss-{rank}", loss.item().hex())
    dist.barrier()  # no rank ends before all have finished


def leave() -> None:
    """End what outlives ``train``."""
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    body = partial(train, Path(os.environ["CHECKPOINT_DIR"]))
    if os.environ.get("IN_PROCESS"):
        gangclient.run(body, finalize=leave)
    else:
        body(gangclient.connect())
    leave()
