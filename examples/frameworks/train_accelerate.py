"""Accelerate with gangctl; ``accelerate.yaml`` runs it. The data depends only on step and rank, as it should."""

import json
import os
from pathlib import Path

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from torch import nn

import gangclient

DIRECTORY = Path(os.environ.get("CHECKPOINT_DIR", "checkpoints"))
STEPS = int(os.environ.get("STEPS", "200"))


def main() -> None:
    """Train from the restore point to the last step."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    gang = gangclient.connect()
    accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
    model: nn.Module = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Dropout(0.1), nn.Linear(64, 1))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    start = gang.restore.step if gang.restore else 0
    print(f"rank {accelerator.process_index} attempt {gang.number}: begins after step {start}", flush=True)
    if gang.restore:
        with gang.loading():
            accelerator.load_state(gang.restore.path)
    loss = torch.zeros(1)
    for step in range(start + 1, STEPS + 1):
        chance = torch.Generator().manual_seed(1_000_003 * step + accelerator.process_index)
        x = torch.rand(64, 8, generator=chance)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True).sin())
        accelerator.backward(loss)
        optimizer.step()
        gang.progress(step)
        if step % 10 == 0:
            path = DIRECTORY / f"step-{step}"
            gang.checkpoint_begun(step, "shared", path)  # an older one of this step is none from now on
            accelerator.save_state(str(path))
            gang.checkpoint_completed(step, "shared", path)
    loss = accelerator.reduce(loss.detach())
    if accelerator.is_main_process:
        (DIRECTORY / "result.json").write_text(json.dumps({"loss": loss.item().hex()}))
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
