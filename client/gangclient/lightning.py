"""For Lightning: one callback, which reports steps and ends a rank that waits for a lost peer.

What to write::

    gang = GangCallback()
    checkpoints = ModelCheckpoint("/checkpoints", every_n_train_steps=100)
    Trainer(callbacks=[gang, checkpoints]).fit(model, ckpt_path=gang.ckpt_path)

The tier has layout Lightning: it finds files with ``step=100`` in their names, as Lightning names them. Importing this
without Lightning, or with one that is too old, raises an ImportError. Outside of gangctl the callback does nothing.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Optional

from gangclient._client import Client, connect
from gangclient._frameworks import framework, leave_at_once, warn_of_fixed_size

OLDEST = "2.4"
_OLD_NAME = "pytorch_lightning"  # Both packages are on the index, and take only callbacks of their own.
_old = _OLD_NAME in sys.modules and "lightning.pytorch" not in sys.modules
_lightning = framework(
    "gangclient.lightning", _OLD_NAME if _old else "lightning.pytorch", _OLD_NAME if _old else "lightning", OLDEST
)


_Callback: Any = _lightning.Callback


class GangCallback(_Callback):  # type: ignore[misc]
    """Reports each optimizer step with its seconds, and each validation batch as the phase Evaluation.

    Lightning handles SIGTERM by a broadcast, in which a survivor would wait for the rank that has failed. So an
    unplanned stop ends the process before the signal comes; a planned one is left to Lightning.
    """

    def __init__(self) -> None:
        self._gang: Client = connect()
        self._began = 0.0

    @property
    def ckpt_path(self) -> Optional[str]:
        """The argument for ``Trainer.fit``: the step that all ranks agreed on. None: start from the beginning."""
        restore = self._gang.restore
        return restore.path if restore else None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002 - Lightning passes them by name
        """Begin as the rank that Lightning has."""
        self._gang = connect(trainer.global_rank)
        self._gang.on_stop(leave_at_once)
        if "DeepSpeed" in type(trainer.strategy).__name__:
            warn_of_fixed_size()

    def on_train_batch_start(self, *_: Any) -> None:
        """Begin to measure."""
        self._began = time.monotonic()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Report the step; while gradients are accumulated it is the same one again."""
        self._gang.progress(trainer.global_step, seconds=time.monotonic() - self._began)

    def on_validation_batch_end(self, trainer: Any, *_: Any) -> None:
        """Report that it is evaluating."""
        self._gang.progress(trainer.global_step, "Evaluation")

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002 - as above
        """End the client's threads."""
        self._gang.close()
