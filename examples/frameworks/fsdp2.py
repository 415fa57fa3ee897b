"""FSDP2 with torch.distributed.checkpoint; ``fsdp2.yaml`` runs it. DDP=1: the same with DistributedDataParallel."""

import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import gangclient
from gangclient import pytorch

DIRECTORY = Path(os.environ.get("CHECKPOINT_DIR", "checkpoints"))
STEPS = int(os.environ.get("STEPS", "200"))


def main() -> None:
    """Train from the restore point to the last step."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    gang = gangclient.connect()
    with gang.joining():
        dist.init_process_group("gloo")
    writers = dist.new_group(backend="gloo")
    model: nn.Module = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    if "DDP" in os.environ:
        # Else DDP makes other buckets after its first step, and a restart would sum gradients in another order.
        model = DistributedDataParallel(model, find_unused_parameters=True)
    else:
        fully_shard(model, mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    start = gang.restore.step if gang.restore else 0
    print(f"rank {dist.get_rank()} attempt {gang.number}: begins after step {start}", flush=True)
    if gang.restore:
        with gang.loading():
            weights, moments = get_state_dict(model, optimizer)
            pytorch.load({"model": weights, "optimizer": moments}, gang.restore)
            set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    loss, written = torch.zeros(1), None
    for step in range(start + 1, STEPS + 1):
        chance = torch.Generator().manual_seed(1_000_003 * step + dist.get_rank())
        x = torch.rand(64, 8, generator=chance)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True).sin())
        loss.backward()
        optimizer.step()
        gang.progress(step)
        if step % 10 == 0:
            weights, moments = get_state_dict(model, optimizer)
            state = {"model": weights, "optimizer": moments}
            if "ASYNC" in os.environ:
                if written:
                    written.result()  # one save at a time
                written = pytorch.async_save(gang, state, step, DIRECTORY, writers)
            else:
                pytorch.save(gang, state, step, DIRECTORY)
    if written:
        written.result()
    dist.all_reduce(loss := loss.detach())
    if dist.get_rank() == 0:
        (DIRECTORY / "result.json").write_text(json.dumps({"loss": loss.item().hex()}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
