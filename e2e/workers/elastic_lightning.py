"""Train with Lightning on any number of ranks that divides the batch: a step has the same loss at any size.

Rank 0 appends each step to ``losses``: its number, the size, and the loss. With ONE_PROCESS one process trains alone.
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

from gangclient.lightning import GangCallback

DIRECTORY = Path(os.environ["CHECKPOINT_DIR"])
BATCH, SAVE_EVERY, STEPS = 12, 10, int(os.environ["STEPS"])
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
ALONE = "ONE_PROCESS" in os.environ


class Model(LightningModule):
    """A small network."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 50), nn.Tanh(), nn.Linear(50, 1))

    def training_step(self, _batch: torch.Tensor, _index: int) -> torch.Tensor:
        """Take this rank's part of the step's batch."""
        step, rank, size = self.global_step + 1, self.global_rank, self.trainer.world_size
        x = torch.rand(BATCH, 8, generator=torch.Generator().manual_seed(step))
        own = x[rank * BATCH // size : (rank + 1) * BATCH // size]
        loss = nn.functional.mse_loss(self.layers(own), own.sum(1, keepdim=True).sin())
        mean = loss.detach() / size
        if not ALONE:
            dist.all_reduce(mean)
        if rank == 0:
            with (DIRECTORY / "losses").open("a") as losses:
                print(step, size, mean.item(), file=losses)
        time.sleep(STEP_SECONDS)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    """Go on from the restore point."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    gang = GangCallback()
    trainer = Trainer(
        accelerator="cpu",
        strategy="auto" if ALONE else "ddp",
        devices=1,
        num_nodes=int(os.environ.get("WORLD_SIZE", "1")),
        max_steps=STEPS,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[gang, ModelCheckpoint(DIRECTORY, every_n_train_steps=SAVE_EVERY, save_top_k=-1)],
    )
    data = torch.utils.data.DataLoader(torch.zeros(10 * STEPS))  # So no size ends an epoch.
    trainer.fit(Model(), data, ckpt_path=gang.ckpt_path)


if __name__ == "__main__":
    main()
