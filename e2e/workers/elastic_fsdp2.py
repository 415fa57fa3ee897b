"""Train with FSDP2 on any number of ranks that divides the batch: a step's loss depends on the step, not on the size.

Rank 0 appends each step to ``losses``: its number, the size, and the loss. With ONE_PROCESS the same model is trained
by plain PyTorch, to compare.
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import gangclient
from gangclient import pytorch

DIRECTORY = Path(os.environ["CHECKPOINT_DIR"])
BATCH, SAVE_EVERY, STEPS = 12, 10, int(os.environ["STEPS"])
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
ALONE = "ONE_PROCESS" in os.environ


def main() -> None:
    """Go on from the restore point."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    gang = gangclient.connect()
    model = nn.Sequential(nn.Linear(8, 50), nn.Tanh(), nn.Linear(50, 1))  # 50 rows can't be split alike.
    rank, size = 0, 1
    if not ALONE:
        pytorch.join(gang, "gloo")
        rank, size = dist.get_rank(), dist.get_world_size()
        fully_shard(model, mesh=dist.init_device_mesh("cpu", (size,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    start = gang.restore.step if gang.restore else 0
    if gang.restore:
        weights, moments = get_state_dict(model, optimizer)
        pytorch.load({"model": weights, "optimizer": moments}, gang.restore)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    with (DIRECTORY / "losses").open("a", buffering=1) as losses:
        for step in range(start + 1, STEPS + 1):
            x = torch.rand(BATCH, 8, generator=torch.Generator().manual_seed(step))
            own = x[rank * BATCH // size : (rank + 1) * BATCH // size]
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(own), own.sum(1, keepdim=True).sin())
            loss.backward()
            optimizer.step()
            mean = loss.detach() / size
            if not ALONE:
                dist.all_reduce(mean)
            if rank == 0:
                print(step, size, mean.item(), file=losses)
            if not ALONE and step % SAVE_EVERY == 0:
                weights, moments = get_state_dict(model, optimizer)
                pytorch.save(gang, {"model": weights, "optimizer": moments}, step, DIRECTORY)
            gang.progress(step)
            time.sleep(STEP_SECONDS)
    if not ALONE:
        dist.barrier()
        pytorch.leave()


if __name__ == "__main__":
    main()
