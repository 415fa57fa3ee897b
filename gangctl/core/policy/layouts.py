"""Checkpoint layouts: how frameworks name a step's folder or file, and which file in the folder they write last."""

from __future__ import annotations

from typing import Final

from gangctl.api.gangjob import DirectorySource

LAYOUTS: Final = {
    # torch.distributed.checkpoint, filesystem.py: finish() writes .metadata.tmp, syncs it and renames it to .metadata
    # after all ranks have written. The folder's name is the caller's; step-N is torchtitan's.
    "TorchDCP": ("step-{step}", ".metadata"),
    # transformers, trainer.py: _save_checkpoint() saves model, optimizer, scheduler and random states into
    # checkpoint-N and then trainer_state.json. (Old releases wrote the random states after it.)
    "HuggingFace": ("checkpoint-{step}", "trainer_state.json"),
    # Megatron-LM, core/dist_checkpointing/serialization.py: metadata.json is written by rank 0 in the finalize
    # function, after every shard; iter_N is padded to 7 digits. The older format "torch" marks nothing in the folder.
    "Megatron": ("iter_{step}", "metadata.json"),
    # Orbax, checkpoint/_src/path/atomicity.py: a step is written to N.orbax-checkpoint-tmp, _CHECKPOINT_METADATA gets
    # its commit time, and the folder is renamed to N.
    "Orbax": ("{step}", "_CHECKPOINT_METADATA"),
    # Lightning, callbacks/model_checkpoint.py: "{epoch}-{step}.ckpt" unless the script says more, and "-v1" where the
    # name is taken. lightning/fabric/utilities/cloud_io.py: _atomic_save() writes elsewhere and moves the file.
    "Lightning": ("*step={step}*.ckpt", ""),
}
"""Layout -> (the name of a step with ``{step}``, the file that marks its folder complete; empty = a step is a file)."""


def folder_rule(source: DirectorySource) -> tuple[str, str]:
    """The name with ``{step}``, and the file that marks a folder complete (empty = a step is a file)."""
    if source.layout == "Pattern":
        return source.pattern or "{step}", source.complete or ""
    return LAYOUTS[source.layout]
