"""Data-parallel PyTorch whose processes survive the restarts of their gang: ``train_torch.py`` with ``gangclient.run``.

The failed rank is started anew; the others keep their process, with all that it has imported, and only leave ``train``.
The final loss is the same to the last bit, whatever fails. In ``pytorch.yaml``, name this script instead.

1. What an attempt owns is local to ``train``, or ended by ``finalize``: the process group.
2. The environment is read in ``train``, in each attempt.
3. ``gangclient.Restart`` and exceptions of collectives pass: ``run`` takes them.
"""

import os
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from train_torch import batch, options, save, say

import gangclient.pytorch  # gangctl puts it last into PYTHONPATH


def train(steps: int, save_every: int, directory: Path, gang: gangclient.Client) -> None:
    """Train from the restore point to the last step."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    start = 0
    if gang.restore:
        with gang.loading():
            saved = torch.load(Path(gang.restore.path) / "state.pt", weights_only=True)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        start = gang.restore.step
    say(f"process {os.getpid()} begins after step {start}. {gang.restart_reason}")

    with gang.joining():
        dist.init_process_group("gloo")  # (2)
    rank = dist.get_rank()
    for step in range(start + 1, steps + 1):
        x, y = batch(step, rank)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
        dist.all_reduce(loss.detach())
        gang.progress(step)  # (3) raises gangclient.Restart when the gang restarts
        if rank == 0 and (step % save_every == 0 or step == steps):
            save(directory, step, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    if rank == 0:
        say(f"final loss {loss.item():.7f} ({loss.item().hex()})")
    dist.barrier()  # no rank ends before all have finished


if __name__ == "__main__":
    flags = options()
    flags.directory.mkdir(parents=True, exist_ok=True)
    gangclient.run(
        partial(train, flags.steps, flags.save_every, flags.directory), finalize=gangclient.pytorch.leave
    )  # (1)
    gangclient.pytorch.leave()
