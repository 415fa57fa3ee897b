"""Data-parallel PyTorch in a gang that may lose any rank at any time. ``pytorch.yaml`` runs it.

A small network learns a function; gradients are averaged by real collectives (gloo). It works with every launch mode:
``Command`` (env://), ``PerProcess``, and under torchrun. The final loss is the same to the last bit, whatever fails.

1. Read rank, world size and master from the environment in every attempt: the port changes.
2. Restore what gangctl selects (``GANG_RESTORE_PATH``), not the newest checkpoint that this rank finds.
3. Make a checkpoint complete or absent: write the data first, then DONE, and sync each before the next.
4. Let the data depend only on step and rank, so that a repeated step gives the same result.
5. Exit at once if a collective fails because a peer is gone. gangctl knows which member failed first.
6. Keep every step in memory, with a copy at a peer. Without a tier of scope Peers that does nothing (``memory.yaml``).
"""

import argparse
import functools
import json
import os
import shutil
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import gangclient.memory  # gangctl puts it last into PYTHONPATH

KEPT = 3
PEER_LOST = 75


def say(what: str) -> None:
    """One line of this rank."""
    print(f"rank {os.environ['RANK']} attempt {os.environ.get('GANG_ATTEMPT', '1')}: {what}", flush=True)


def save(directory: Path, step: int, state: dict[str, object]) -> None:
    """(3) A process that dies in here leaves a folder without DONE, which is no checkpoint."""
    folder = directory / f"step-{step}"
    drop(folder)
    folder.mkdir()
    with (folder / "state.pt").open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    with (folder / "DONE").open("wb") as file:
        os.fsync(file.fileno())
    for place in (folder, directory):
        descriptor = os.open(place, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    complete = sorted(directory.glob("step-*/DONE"), key=lambda done: int(done.parent.name.removeprefix("step-")))
    for done in complete[:-KEPT]:
        drop(done.parent)


def drop(folder: Path) -> None:
    """Delete a checkpoint, or the remains of an incomplete one: DONE first."""
    (folder / "DONE").unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(4) The data of this rank in this step."""
    chance = torch.Generator().manual_seed(1_000_003 * step + rank)
    x = torch.rand(64, 2, generator=chance) * 2 - 1
    return x, torch.sin(3 * x[:, :1]) * torch.cos(2 * x[:, 1:])


def train(steps: int, save_every: int, pause: float, directory: Path) -> None:
    """Train from the restore point to the last step."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    gang, start = gangclient.connect(), 0
    memory = gangclient.memory.connect(gang)  # (6)
    if gang.restore:  # (2)
        with gang.loading(), memory.load() or (Path(gang.restore.path) / "state.pt").open("rb") as file:
            saved = torch.load(file, weights_only=True)  # loading() measures it for the trace of the recovery
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        start = gang.restore.step
    say(f"restored step {start}" if gang.restore else "starts from the beginning")

    with gang.joining():
        dist.init_process_group("gloo")  # (1) env://
    rank, world, loss = dist.get_rank(), dist.get_world_size(), torch.zeros(1)
    for step in range(start + 1, steps + 1):
        began = time.monotonic()
        x, y = batch(step, rank)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()] + [loss.detach().view(1)])
        mine = time.monotonic() - began  # excluding the wait for the others
        dist.all_reduce(gradients)
        gradients /= world
        sizes = [parameter.numel() for parameter in model.parameters()]
        for parameter, part in zip(model.parameters(), gradients[:-1].split(sizes), strict=True):
            parameter.grad = part.view_as(parameter)
        optimizer.step()
        loss = gradients[-1]
        gang.progress(step, seconds=mine)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        memory.save(step, functools.partial(torch.save, state))
        if rank == 0 and step % 50 == 0:
            say(f"step {step} loss {loss.item():.6f}")
        if rank == 0 and (step % save_every == 0 or step == steps):
            save(directory, step, state)
        time.sleep(pause)
    if rank == 0:
        result = {"step": steps, "loss": loss.item(), "loss_hex": loss.item().hex()}
        (directory / "result.json").write_text(json.dumps(result) + "\n")
        say(f"final loss {loss.item():.7f} ({loss.item().hex()})")
    dist.barrier()  # no rank exits before all have finished
    dist.destroy_process_group()


def options() -> argparse.Namespace:
    """Read the flags."""
    flags = argparse.ArgumentParser(description="Train a small network with data parallelism.")
    flags.add_argument("--steps", type=int, default=600)
    flags.add_argument("--save-every", type=int, default=20, help="steps between two checkpoints")
    flags.add_argument("--pause", type=float, default=0.02, help="extra seconds for each step, to watch it")
    flags.add_argument("--directory", type=Path, default=os.environ.get("CHECKPOINT_DIR", "checkpoints"))
    return flags.parse_args()


def main() -> None:
    """Read the flags, and train."""
    given = options()
    given.directory.mkdir(parents=True, exist_ok=True)
    try:
        train(given.steps, given.save_every, given.pause, given.directory)
    except RuntimeError as error:  # (5) torch raises this if a peer is gone
        say(f"a collective has failed: {str(error).splitlines()[0]}")
        os._exit(PEER_LOST)


if __name__ == "__main__":
    main()
