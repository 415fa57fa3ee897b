"""Replicas that go on: each gang is a replica group of torchft; ``torchft.yaml`` runs two.

Gradients go by ``manager.allreduce``: the DistributedDataParallel of torchft 0.2.0 raises if a replica is lost in the
middle of a step. For tests: SAME_BATCHES=1, STEP_SECONDS.
"""

import hashlib
import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchft import Manager, Optimizer, ProcessGroupGloo

import gangclient
from gangclient import pytorch

DIRECTORY = Path(os.environ.get("CHECKPOINT_DIR", "checkpoints"))
STEPS = int(os.environ.get("STEPS", "500"))
REPLICA = int(os.environ["REPLICA_GROUP_ID"])
TIMEOUT = timedelta(seconds=30)


def main() -> None:
    """Train to the last step, from where living replicas are; without any, from this gang's own checkpoint."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    gang = gangclient.connect()
    gang.on_stop(pytorch.leave_at_once)
    with gang.joining():
        dist.init_process_group("gloo")  # within this gang; torchft connects its ranks with those of other gangs
    rank, ranks = dist.get_rank(), dist.get_world_size()
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def state() -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": adam.state_dict()}

    def load(saved: dict[str, Any]) -> None:
        model.load_state_dict(saved["model"])
        adam.load_state_dict(saved["optimizer"])

    groups = ProcessGroupGloo(TIMEOUT)
    manager = Manager(groups, load, state, min_replica_size=1, timeout=TIMEOUT, replica_id=f"replica_{REPLICA}")
    if gang.restore:
        with gang.loading():
            saved = torch.load(gang.restore.path)
            load(saved)
            manager.load_state_dict(saved["torchft"])
    optimizer = Optimizer(manager, adam)
    print(f"replica {REPLICA} attempt {gang.number}: begins after step {manager.current_step()}", flush=True)
    tries = 0
    while (done := manager.current_step()) < STEPS:
        seed = 1_000_003 * done + 101 * rank + ("SAME_BATCHES" not in os.environ) * REPLICA
        x = torch.rand(64, 8, generator=torch.Generator().manual_seed(seed))
        optimizer.zero_grad()  # asks the Lighthouse which replicas take part
        nn.functional.mse_loss(model(x), x.sum(1, keepdim=True).sin()).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= ranks
            manager.allreduce(parameter.grad).wait()  # the mean of the replicas that take part
        optimizer.step()  # changes nothing if a replica was lost meanwhile: the batch is tried again
        time.sleep(float(os.environ.get("STEP_SECONDS", "0")))
        tries += 1
        step = manager.current_step()
        if step == done:
            continue
        gang.progress(step)
        print(f"step {step} of {manager.num_participants()} at {time.time():.3f}", flush=True)
        if step % 10 == 0 and rank == 0:
            half = DIRECTORY / "half"
            torch.save({**state(), "torchft": manager.state_dict()}, half)
            half.rename(DIRECTORY / f"step-{step}.pt")
    if rank == 0:
        weights = hashlib.sha256(b"".join(one.numpy().tobytes() for one in model.state_dict().values())).hexdigest()
        (DIRECTORY / "result.json").write_text(json.dumps({"weights": weights, "tries": tries}))
    dist.barrier()
    os._exit(0)  # at once: threads of torchft may still wait for replicas that have gone


if __name__ == "__main__":
    main()
