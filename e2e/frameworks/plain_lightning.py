"""A script that has never heard of gangctl: Lightning, which goes on from its own ``last.ckpt``."""

import json
import os
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

DIRECTORY = Path(os.environ["CHECKPOINT_DIR"])
STEPS = int(os.environ["STEPS"])


class Model(LightningModule):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def training_step(self, _batch: torch.Tensor, _index: int) -> torch.Tensor:
        """Draw this rank's data of this step."""
        torch.manual_seed(1_000_003 * self.global_step + self.global_rank)
        x = torch.rand(64, 8)
        self.loss = nn.functional.mse_loss(self.layer(x), x.sum(1, keepdim=True).sin())
        return self.loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


torch.set_num_threads(1)
torch.manual_seed(0)
model = Model()
trainer = Trainer(
    accelerator="cpu",
    strategy="ddp",
    devices=1,
    num_nodes=int(os.environ["WORLD_SIZE"]),
    max_steps=STEPS,
    logger=False,
    enable_progress_bar=False,
    callbacks=[
        ModelCheckpoint(DIRECTORY, every_n_train_steps=10, save_top_k=3, monitor="step", mode="max", save_last=True)
    ],
)
trainer.fit(model, torch.utils.data.DataLoader(torch.zeros(10 * STEPS)), ckpt_path="last")
if trainer.is_global_zero:
    (DIRECTORY / "result.json").write_text(json.dumps({"loss": model.loss.item().hex()}))
