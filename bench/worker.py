"""The worker whose first steps are measured: it imports, makes a first step, notes when, and goes on without work.

    python worker.py FOLDER [MODULE ...]
    python worker.py --in-process FOLDER [MODULE ...]      the same with gangclient.run
    python worker.py --kept FOLDER torch                   the same, and survivors keep their state
    python worker.py [--kept] --waits FOLDER torch         each step waits for all ranks

With jax among the modules the step is a jitted one, with torch one of Adam in a gloo group, otherwise it is nothing.
FOLDER/ATTEMPT-RANK gets the moments, in seconds since the epoch. Outside of gangctl, these files count the attempts.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import gangclient.pytorch

IN_PROCESS = "--in-process"
KEPT = "--kept"
WAITS = "--waits"
WORDS = [word for word in sys.argv[1:] if word != WAITS]
PAUSE = 0.1
"""Seconds between two reports of progress."""


def train(gang: gangclient.Client) -> None:
    """Make a first step, and report progress until the end."""
    folder, *modules = WORDS
    moments = {"script": time.time()}
    for name in modules:
        importlib.import_module(name)
    moments["imported"] = time.time()
    if "jax" in sys.modules:
        jitted()
    first = 1
    if kept is not None:
        first = with_kept_state(gang, kept)
    elif "torch" in sys.modules:
        of_adam()
    gang.progress(first)
    rank = os.environ["RANK"]
    attempt = os.environ.get("GANG_ATTEMPT") or 1 + len(list(Path(folder).glob(f"[0-9]*-{rank}")))
    noted = Path(folder, f"{attempt}-{rank}")
    noted.with_suffix(".tmp").write_text(json.dumps({**moments, "step": time.time()}))
    noted.with_suffix(".tmp").rename(noted)
    for step in itertools.count(first + 1):
        time.sleep(PAUSE)
        if WAITS in sys.argv:
            sys.modules["torch"].distributed.barrier()
        with nullcontext() if kept is None else kept.step(step):
            pass
        gang.progress(step)


def jitted() -> None:
    """A step with JAX."""
    jax: Any = importlib.import_module("jax")
    jax.jit(lambda x: (x @ x).sum())(jax.numpy.ones((64, 64))).block_until_ready()


def of_adam() -> None:
    """A step with PyTorch."""
    torch: Any = importlib.import_module("torch")
    torch.distributed.init_process_group("gloo")
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(64)).sum().backward()
    for one in model.parameters():
        torch.distributed.all_reduce(one.grad)
    optimizer.step()


def new_state() -> dict[str, Any]:
    """Make a model and its optimizer."""
    torch: Any = importlib.import_module("torch")
    model = torch.nn.Linear(64, 64)
    return {"model": model, "optimizer": torch.optim.Adam(model.parameters())}


def with_kept_state(gang: gangclient.Client, state: gangclient.pytorch.KeptState) -> int:
    """Make a step with PyTorch after that of the state, and return it."""
    torch: Any = importlib.import_module("torch")
    gangclient.pytorch.join(gang, "gloo")
    step = state.begin(gang, lambda *_: None) + 1
    model, optimizer = state.state["model"], state.state["optimizer"]
    optimizer.zero_grad()
    model(torch.ones(64)).sum().backward()
    for one in model.parameters():
        torch.distributed.all_reduce(one.grad)
    with state.step(step):
        optimizer.step()
    return step


kept = gangclient.pytorch.KeptState(new_state) if KEPT in WORDS else None

if __name__ == "__main__":
    if WORDS[0] in {IN_PROCESS, KEPT}:
        WORDS.pop(0)
        gangclient.run(train, kept=kept, abort=gangclient.pytorch.abort, finalize=gangclient.pytorch.leave)
    else:
        train(gangclient.connect())
