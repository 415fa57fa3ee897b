"""Checkpoint layouts: how a step's folder is named, and which file in it marks it complete."""

from __future__ import annotations

from typing import Final

from gangctl.api.gangjob import DirectorySource

LAYOUTS: Final = {
    # torch.distributed.checkpoint writes .metadata last, by rank 0; the folder's name is the user's.
    "TorchDCP": ("step-{step}", ".metadata"),
    # transformers' Trainer saves trainer_state.json after model and optimizer.
    "HuggingFace": ("checkpoint-{step}", "trainer_state.json"),
    # Megatron-LM's torch_dist format is torch.distributed.checkpoint in a folder iter_0001000.
    "Megatron": ("iter_{step}", ".metadata"),
    # Orbax finalises a step by renaming its temporary folder; _CHECKPOINT_METADATA is in every finalised one.
    "Orbax": ("{step}", "_CHECKPOINT_METADATA"),
}


def folder_rule(source: DirectorySource) -> tuple[str, str]:
    """The folder's name with ``{step}``, and the file that marks it complete (empty = the folder itself)."""
    if source.layout == "Pattern":
        return source.pattern or "{step}", source.complete or ""
    return LAYOUTS[source.layout]
