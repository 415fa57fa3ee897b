"""Train the transformer in several processes, as one gang that may lose any of them at any time.

    gangctl run examples/demo.yaml

The gang continues from its newest checkpoint and ends with **the same loss, to the last bit**, as without a fault. What
a framework must do for that is marked below with (1) to (6):

1. Read rank, world size and coordinator from the environment in every attempt: the port changes.
2. Restore what gangctl selects, not the newest checkpoint that this rank finds: all ranks need the same one.
3. Make a checkpoint complete or absent: write the data first, then DONE, and sync each before the next.
4. Let the work depend only on seed, step and rank, and save the state exactly. Keep no other state.
5. Exit at once on SIGTERM and when a peer is gone, with an exit code that tells why.
6. Start quickly, because every restart pays for it: here, rank 0 compiles once for all.

gangclient adds two lines: ``gang.progress(...)``, so that gangctl shows the step and detects the end of a recovery and
hangs, and ``with gang.loading()``, so that the trace of a recovery shows the load of the checkpoint. ``train_plain.py``
works without them.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import socket
import time
import traceback
from pathlib import Path
from typing import Any

import jax
import numpy as np
import transformer
from jax._src.distributed import global_state  # the store that all ranks share has no public name yet
from jax.experimental import serialize_executable
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import gangclient  # gangctl puts it last into PYTHONPATH

EX_TEMPFAIL = 75
KEPT = 3
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
COORDINATOR = os.environ.get("JAX_COORDINATOR_ADDRESS", "127.0.0.1:29400")  # (1)


def say(what: str) -> None:
    """Print one line of this rank."""
    print(f"rank {RANK} attempt {os.environ.get('GANG_ATTEMPT', '1')}: {what}", flush=True)


def save(directory: Path, step: int, state: transformer.State) -> None:
    """(3) A process that dies in here leaves a folder without DONE, which gangctl ignores."""
    folder = directory / f"step-{step}"
    drop(folder)
    folder.mkdir()
    with (folder / "state.npz").open("wb") as file:
        np.savez(file, **{name: np.asarray(value) for name, value in state.items()})  # (4) float32 as it is: exact
        file.flush()
        os.fsync(file.fileno())
    with (folder / "DONE").open("wb") as file:
        os.fsync(file.fileno())
    for place in (folder, directory):  # sync the directory entries as well
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


def await_coordinator() -> None:
    """(6) Wait until rank 0 listens: JAX would fail to connect and wait a second before it tries again."""
    host, _, port = COORDINATOR.rpartition(":")
    while RANK != 0:
        try:
            socket.create_connection((host.strip("[]"), int(port))).close()
        except ConnectionRefusedError:
            time.sleep(0.01)
        else:
            return


def compiled(directory: Path, mesh: Mesh, arguments: tuple[Any, ...]) -> Any:
    """(6) The step function, compiled once by rank 0: other ranks get the code from it, later attempts from disk.

    The same code gives the same bits if all nodes have the same type of CPU.
    """
    if RANK == 0:
        source = Path(__file__).read_bytes() + Path(transformer.__file__).read_bytes()
        version = hashlib.sha256(source + f"{jax.__version__} {jax.typeof(arguments[2])}".encode()).hexdigest()
        path = directory / f"step.{version[:16]}"
        if not path.exists():
            step = jax.shard_map(
                transformer.train_step, mesh=mesh, in_specs=(P(), P(), P("rank")), out_specs=P(), check_vma=False
            )
            code, _, _ = serialize_executable.serialize(jax.jit(step).lower(*arguments).compile())
            path.with_suffix(".tmp").write_bytes(code)
            path.with_suffix(".tmp").replace(path)
        global_state.client.key_value_set_bytes("step", path.read_bytes())
    code = global_state.client.blocking_key_value_get_bytes("step", 120_000)
    takes, gives = jax.tree.structure((arguments, {})), jax.tree.structure(arguments[0])
    return serialize_executable.deserialize_and_load(code, takes, gives, execution_devices=jax.devices())


def train(seed: int, steps: int, batch: int, save_every: int, pause: float, directory: Path) -> None:
    """Train from the restore point to the last step."""
    gang = gangclient.connect()
    if gang.restore:  # (2)
        start = gang.restore.step
        with gang.loading(), np.load(Path(gang.restore.path) / "state.npz") as saved:
            state = dict(saved)
        say(f"restored step {start} from {gang.restore.path}")
    else:
        start, state = 0, transformer.new_state(seed)
        say("starts from the beginning")
    corpus = transformer.library()

    await_coordinator()
    jax.distributed.initialize(COORDINATOR, WORLD, RANK, coordinator_bind_address=COORDINATOR)
    mesh = Mesh(np.array(jax.devices()), "rank")

    def everywhere(value: np.ndarray) -> jax.Array:
        return jax.make_array_from_process_local_data(NamedSharding(mesh, P()), value)

    def text(step: int) -> jax.Array:
        mine = transformer.pieces(corpus, batch, seed, step, RANK)  # (4)
        return jax.make_array_from_process_local_data(NamedSharding(mesh, P("rank")), mine)

    state = {name: everywhere(value) for name, value in state.items()}
    step_once = compiled(directory, mesh, (state, np.float32(1), text(1)))

    for step in range(start + 1, steps + 1):
        began = time.monotonic()
        state = step_once(state, np.float32(step), text(step))
        loss = float(state["loss"])  # waits until all ranks have finished the step
        gang.progress(step, seconds=time.monotonic() - began)
        if step == start + 1:
            say(f"trains from step {step}")
        if RANK == 0 and step % 10 == 0:
            print(f"step {step:4} loss {loss:.4f} in {1000 * (time.monotonic() - began):.0f} ms", flush=True)
        if RANK == 0 and (step % save_every == 0 or step == steps):
            save(directory, step, state)
        time.sleep(pause)

    if RANK == 0:
        loss = float(state["loss"])
        result = {"step": steps, "loss": loss, "loss_hex": loss.hex()}
        (directory / "result.json").write_text(json.dumps(result) + "\n")
        print(f"final loss {loss:.7f} ({loss.hex()})", flush=True)
    jax.distributed.shutdown()  # waits for all ranks: one that exits early looks like a failure


def main() -> None:
    """Read the flags, and train."""
    flags = argparse.ArgumentParser(description="Train a small transformer on Python's standard library.")
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--steps", type=int, default=200)
    flags.add_argument("--batch", type=int, default=8, help="pieces of text of each rank and step")
    flags.add_argument("--save-every", type=int, default=10, help="steps between two checkpoints")
    flags.add_argument("--pause", type=float, default=0.0, help="extra seconds for each step, to watch it")
    flags.add_argument("--directory", type=Path, default=os.environ.get("CHECKPOINT_DIR", "checkpoints"))
    options = flags.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_enable_preemption_service", False)  # noqa: FBT003 - (5) it would intercept SIGTERM
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(EX_TEMPFAIL))  # (5) a scheduler asks the worker to leave
    try:
        train(**vars(options))
    except Exception:  # noqa: BLE001 - any error ends this rank
        traceback.print_exc()
        os._exit(1)  # (5) a normal exit would wait minutes in JAX's shutdown for peers that are gone


if __name__ == "__main__":
    main()
