"""For the Trainer of Hugging Face: one callback, which reports steps and registers complete checkpoints.

What to write::

    gang = GangCallback()
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[gang])
    trainer.train(resume_from_checkpoint=gang.path)

The Trainer marks a checkpoint complete when rank 0 has written its own files; those of other ranks may be missing. So
declare a tier with source API: the callback registers a step for each rank after its own part. Importing this without
transformers, or with one that is too old, raises an ImportError. Outside of gangctl the callback does nothing.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, Optional

from gangclient._client import Client, connect
from gangclient._frameworks import api_tiers, framework, warn_of_fixed_size

OLDEST = "4.48"  # Older ones can't load their own random states with PyTorch 2.6.
_transformers = framework("gangclient.transformers", "transformers", "transformers", OLDEST)


_Callback: Any = _transformers.TrainerCallback


class GangCallback(_Callback):  # type: ignore[misc]
    """Reports each optimizer step with its seconds, and registers this rank's part of each checkpoint."""

    def __init__(self) -> None:
        self._gang: Client = connect()
        self._began = 0.0
        self._registered: Dict[int, Path] = {}

    @property
    def path(self) -> Optional[str]:
        """For ``resume_from_checkpoint``: the step that all ranks agreed on. None: start from the beginning."""
        restore = self._gang.restore
        return restore.path if restore else None

    def on_train_begin(self, args: Any, *_: Any, **__: Any) -> None:
        """Begin as the rank that the Trainer has."""
        self._gang = connect(args.process_index)
        if args.deepspeed:
            warn_of_fixed_size()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Begin to measure."""
        self._began = time.monotonic()

    def on_step_end(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Report the step."""
        self._gang.progress(state.global_step, seconds=time.monotonic() - self._began)

    def on_prediction_step(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Report that it is evaluating."""
        self._gang.progress(state.global_step, "Evaluation")

    def on_save(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Register this step; no restart may use one that the Trainer has deleted (``save_total_limit``)."""
        gone = {step: path for step, path in self._registered.items() if not path.is_dir()}
        self._registered[state.global_step] = Path(args.output_dir, f"checkpoint-{state.global_step}")
        for tier in api_tiers():
            for step, path in gone.items():
                self._gang.checkpoint_dropped(step, tier, path)
            self._gang.checkpoint_completed(state.global_step, tier, self._registered[state.global_step])
        for step in gone:
            del self._registered[step]

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """End the client's threads."""
        self._gang.close()
