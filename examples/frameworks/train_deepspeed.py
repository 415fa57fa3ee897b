"""DeepSpeed with gangctl; ``deepspeed.yaml`` runs it. The data depends only on step and rank, as it should."""

import json
import os
from pathlib import Path

import deepspeed
import torch
from torch import nn

import gangclient

DIRECTORY = Path(os.environ.get("CHECKPOINT_DIR", "checkpoints"))
STEPS = int(os.environ.get("STEPS", "200"))
SETTINGS = {
    "train_micro_batch_size_per_gpu": 64,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},  # its own one is compiled at each start
    "zero_optimization": {"stage": int(os.environ.get("ZERO_STAGE", "2"))},
}


def main() -> None:
    """Train from the restore point to the last step."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    gang = gangclient.connect()
    deepspeed.init_distributed("gloo")
    rank = torch.distributed.get_rank()
    model: nn.Module = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))
    engine, *_ = deepspeed.initialize(model=model, config=SETTINGS)
    start = gang.restore.step if gang.restore else 0
    print(f"rank {rank} attempt {gang.number}: begins after step {start}", flush=True)
    if gang.restore:
        with gang.loading():
            engine.load_checkpoint(DIRECTORY, tag=f"global_step{start}")  # not what its file "latest" names
    loss = torch.zeros(1)
    for step in range(start + 1, STEPS + 1):
        chance = torch.Generator().manual_seed(1_000_003 * step + rank)
        x = torch.rand(64, 8, generator=chance)
        loss = nn.functional.mse_loss(engine(x), x.sum(1, keepdim=True).sin())
        engine.backward(loss)
        engine.step()
        gang.progress(step)
        if step % 10 == 0:
            path = DIRECTORY / f"global_step{step}"
            gang.checkpoint_begun(step, "shared", path)  # an older one of this step is none from now on
            engine.save_checkpoint(DIRECTORY, tag=path.name)
            gang.checkpoint_completed(step, "shared", path)
    if rank == 0:
        (DIRECTORY / "result.json").write_text(json.dumps({"loss": loss.item().hex()}))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
