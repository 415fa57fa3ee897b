"""The Trainer of Hugging Face with gangctl; ``trainer.yaml`` runs it. A tiny GPT-2 learns to count."""

import json
import os
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from gangclient.transformers import GangCallback

DIRECTORY = Path(os.environ.get("CHECKPOINT_DIR", "checkpoints"))
STEPS = int(os.environ.get("STEPS", "100"))
# On CPUs alone: Accelerate names the device cpu:0, which torch.load does not know.
torch.serialization.register_package(0, lambda _: None, lambda data, at: data if at == "cpu:0" else None)


def main() -> None:
    """Train from the restore point to the last step."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2))
    rows = [torch.arange(first, first + 16) % 64 for first in range(64)]
    gang = GangCallback()
    arguments = TrainingArguments(
        output_dir=str(DIRECTORY),
        max_steps=STEPS,
        per_device_train_batch_size=4,
        save_steps=10,
        save_total_limit=3,  # two at least: a restart needs the one before until all ranks have written the newest
        logging_steps=STEPS,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",  # Accelerate prefers MPI where PyTorch is built with it
    )
    data = [{"input_ids": row, "labels": row} for row in rows]
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[gang])
    print(f"begins with {gang.path}", flush=True)
    trainer.train(resume_from_checkpoint=gang.path)
    if trainer.is_world_process_zero():
        total = sum(one.double().sum().item() for one in model.state_dict().values())
        (DIRECTORY / "result.json").write_text(json.dumps({"sum_of_weights": total.hex()}))


if __name__ == "__main__":
    main()
