"""Train with the Trainer of Hugging Face on any number of ranks that divides the batch, with the same losses for each.

Rank 0 appends each step to ``losses``: its number, the size, and the loss. With ONE_PROCESS one process trains alone.
"""

import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from gangclient.transformers import GangCallback

DIRECTORY = Path(os.environ["CHECKPOINT_DIR"])
BATCH, SAVE_EVERY, STEPS = 12, 10, int(os.environ["STEPS"])
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
SIZE = int(os.environ.get("WORLD_SIZE", "1"))
# On CPUs alone: Accelerate names the device cpu:0, which torch.load does not know.
torch.serialization.register_package(0, lambda _: None, lambda data, at: data if at == "cpu:0" else None)


class Recorded(Trainer):
    """Takes rows in their order, of which each step has the same at any size, and writes the mean loss."""

    def _get_train_sampler(self, *_: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def training_step(self, *given: Any, **named: Any) -> torch.Tensor:
        """Train, and record."""
        loss: torch.Tensor = super().training_step(*given, **named)
        mean = loss.detach() / SIZE
        if dist.is_initialized():
            dist.all_reduce(mean)
        if self.is_world_process_zero():
            with (DIRECTORY / "losses").open("a") as losses:
                print(self.state.global_step + 1, SIZE, mean.item(), file=losses)
        time.sleep(STEP_SECONDS)
        return loss


def main() -> None:
    """Go on from the restore point."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shape = {"vocab_size": 64, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**shape, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)).double()
    rows = [(torch.arange(16) * (1 + at % 5) + at) % 64 for at in range(BATCH * STEPS)]
    gang = GangCallback()
    arguments = TrainingArguments(
        output_dir=str(DIRECTORY),
        max_steps=STEPS,
        per_device_train_batch_size=BATCH // SIZE,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        save_steps=SAVE_EVERY,
        logging_steps=STEPS,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend=None if "ONE_PROCESS" in os.environ else "gloo",
    )
    trainer = Recorded(
        model, arguments, train_dataset=[{"input_ids": row, "labels": row} for row in rows], callbacks=[gang]
    )
    trainer.train(resume_from_checkpoint=gang.path)


if __name__ == "__main__":
    main()
