"""A script that has never heard of gangctl: the Trainer, which goes on from the last checkpoint that it finds."""

import json
import os
import time
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

DIRECTORY = Path(os.environ["CHECKPOINT_DIR"])
STEPS = int(os.environ["STEPS"])
SECONDS = 0.02
"""To load an example. Ten steps of training are longer than a checkpoint, as they are elsewhere."""
# On CPUs alone: Accelerate names the device cpu:0, which torch.load does not know.
torch.serialization.register_package(0, lambda _: None, lambda data, at: data if at == "cpu:0" else None)


class Examples(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Rows that count."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        time.sleep(SECONDS)
        row = torch.arange(index, index + 16) % 64
        return {"input_ids": row, "labels": row}


torch.set_num_threads(1)
torch.manual_seed(0)
shape = GPT2Config(
    vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0
)
model = GPT2LMHeadModel(shape)
arguments = TrainingArguments(
    output_dir=str(DIRECTORY),
    max_steps=STEPS,
    per_device_train_batch_size=4,
    save_steps=10,
    save_total_limit=3,
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
    ddp_backend="gloo",  # Accelerate prefers MPI where PyTorch is built with it
)
trainer = Trainer(model, arguments, train_dataset=Examples())
trainer.train(resume_from_checkpoint=get_last_checkpoint(str(DIRECTORY)))
if trainer.is_world_process_zero():
    total = sum(one.double().sum().item() for one in model.state_dict().values())
    (DIRECTORY / "result.json").write_text(json.dumps({"sum_of_weights": total.hex()}))
