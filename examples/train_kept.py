"""Data-parallel PyTorch whose survivors keep their weights: ``train_in_process.py``, and no step is made twice.

The GangJob has a tier with scope Process beside that of the checkpoints. The failed rank is
started anew and gets the state from a survivor. The final loss is the same to the last bit, whatever fails.

1. What changes the state is within ``kept.step``, after all collectives whose result it uses.
2. The batch follows from the step.
"""

import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from train_torch import batch, options, save, say

import gangclient.pytorch


def new_state() -> dict[str, Any]:
    """Make the state of the beginning."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
    return {"model": model, "optimizer": torch.optim.Adam(model.parameters(), lr=3e-3)}


def load(state: dict[str, Any], restore: gangclient.Restore) -> None:
    """Load a checkpoint."""
    saved = torch.load(Path(restore.path) / "state.pt", weights_only=True)
    for name, one in state.items():
        one.load_state_dict(saved[name])


def train(gang: gangclient.Client) -> None:
    """Train from the own state, or from the restore point, to the last step."""
    torch.set_num_threads(1)
    with gang.joining():
        gangclient.pytorch.join(gang, "gloo")
    start = kept.begin(gang, load)
    model, optimizer, rank = kept.state["model"], kept.state["optimizer"], dist.get_rank()
    say(f"process {os.getpid()} begins after step {start}. {gang.restart_reason}")
    for step in range(start + 1, flags.steps + 1):
        x, y = batch(step, rank)  # (2)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
            parameter.grad /= dist.get_world_size()
        with kept.step(step):  # (1)
            optimizer.step()
        dist.all_reduce(loss.detach())
        gang.progress(step)
        if rank == 0 and (step % flags.save_every == 0 or step == flags.steps):
            save(flags.directory, step, {name: one.state_dict() for name, one in kept.state.items()})
        time.sleep(flags.pause)
    if rank == 0:
        say(f"final loss {loss.item():.7f} ({loss.item().hex()})")
    dist.barrier()  # no rank ends before all have finished


if __name__ == "__main__":
    flags = options()
    flags.directory.mkdir(parents=True, exist_ok=True)
    kept = gangclient.pytorch.KeptState(new_state)
    gangclient.run(train, kept=kept, abort=gangclient.pytorch.abort, finalize=gangclient.pytorch.leave)
    gangclient.pytorch.leave()
