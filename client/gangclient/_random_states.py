"""The random states that a script has when it calls :func:`gangclient.run`: each attempt begins with them.

So an attempt in a process that has survived begins as one in a new process does whose script sets its seeds before it
calls ``run``; all ranks draw alike then, those that were started anew and those that were not. A library that was not
imported at that time keeps its state.
"""

from __future__ import annotations

import random
import sys
from typing import Any, Callable, List


class RandomStates:
    """The states of ``random``, NumPy and PyTorch at one moment."""

    def __init__(self) -> None:
        state = random.getstate()
        self._restore: List[Callable[[], object]] = [lambda: random.setstate(state)]
        numpy_random: Any = sys.modules.get("numpy.random")
        if numpy_random is not None:
            of_numpy = numpy_random.get_state()
            self._restore.append(lambda: numpy_random.set_state(of_numpy))
        torch: Any = sys.modules.get("torch")
        if torch is not None and hasattr(torch, "get_rng_state"):
            of_torch = torch.get_rng_state()
            self._restore.append(lambda: torch.set_rng_state(of_torch))
            self._of_cuda(torch)

    def _of_cuda(self, torch: Any) -> None:
        """Those of the devices; where they are not in use yet, what ``torch.manual_seed`` has left for them."""
        cuda: Any = getattr(torch, "cuda", None)
        if cuda is None:
            return
        if cuda.is_initialized():
            states = cuda.get_rng_state_all()
            self._restore.append(lambda: cuda.set_rng_state_all(states))
            return
        seed = torch.initial_seed()
        self._restore.append(lambda: cuda.manual_seed_all(seed) if cuda.is_initialized() else None)

    def restore(self) -> None:
        """Set them again."""
        for each in self._restore:
            each()
