"""Lightning with gangctl; ``lightning.yaml`` runs it. The data depends only on step and rank, as it should."""

import json
import os
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

from gangclient.lightning import GangCallback

DIRECTORY = Path(os.environ.get("CHECKPOINT_DIR", "checkpoints"))
STEPS = int(os.environ.get("STEPS", "200"))


class Model(LightningModule):
    """A small network."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Dropout(0.1), nn.Linear(64, 1))

    def training_step(self, _batch: torch.Tensor, _index: int) -> torch.Tensor:
        """Draw this rank's data of this step, and the dropout: a repeated step gives the same result."""
        torch.manual_seed(1_000_003 * self.global_step + self.global_rank)
        x = torch.rand(64, 8)
        self.loss = nn.functional.mse_loss(self.layers(x), x.sum(1, keepdim=True).sin())
        return self.loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    """Train from the restore point to the last step."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, gang = Model(), GangCallback()
    checkpoints = ModelCheckpoint(DIRECTORY, every_n_train_steps=10, save_top_k=-1)
    trainer = Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=1,  # one process a pod: gangctl starts the ranks
        num_nodes=int(os.environ.get("WORLD_SIZE", "1")),
        max_steps=STEPS,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[gang, checkpoints],
    )
    print(f"begins with {gang.ckpt_path}", flush=True)
    trainer.fit(model, torch.utils.data.DataLoader(torch.zeros(10 * STEPS)), ckpt_path=gang.ckpt_path)
    if trainer.is_global_zero:
        (DIRECTORY / "result.json").write_text(json.dumps({"loss": model.loss.item().hex()}))


if __name__ == "__main__":
    main()
