"""JAX with Orbax; ``orbax.yaml`` runs it. The data depends only on step and rank, as it should."""

import json
import os
from pathlib import Path

import gangclient.jax  # isort: skip - before JAX is initialized
import jax
import numpy as np
import orbax.checkpoint as ocp
from jax import numpy as jnp
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

DIRECTORY = Path(os.environ.get("CHECKPOINT_DIR", "checkpoints")).absolute()
STEPS = int(os.environ.get("STEPS", "200"))


def new_state() -> dict[str, np.ndarray]:
    """Weights of a small network, and the momentum of each; the same on all ranks."""
    chance = np.random.default_rng(0)
    weights = {"in": chance.normal(size=(8, 64)), "out": chance.normal(size=(64, 1))}
    return {name: value.astype(np.float32) / 8 for name, value in weights.items()} | {
        f"{name} momentum": np.zeros_like(value, np.float32) for name, value in weights.items()
    }


@jax.jit
def train_step(state: dict[str, jax.Array], x: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
    """One step of gradient descent on the data of all ranks."""

    def loss_of(weights: dict[str, jax.Array]) -> jax.Array:
        found = jnp.tanh(x @ weights["in"]) @ weights["out"]
        return jnp.mean((found - jnp.sin(x.sum(1, keepdims=True))) ** 2)

    names = ("in", "out")
    loss, gradients = jax.value_and_grad(loss_of)({name: state[name] for name in names})
    momentum = {name: 0.9 * state[f"{name} momentum"] + gradients[name] for name in names}
    moved = {name: state[name] - 0.01 * momentum[name] for name in names}
    return moved | {f"{name} momentum": momentum[name] for name in names}, loss


def main() -> None:
    """Train from the restore point to the last step."""
    gang = gangclient.connect()
    jax.distributed.initialize()
    mesh, rank = Mesh(np.array(jax.devices()), "rank"), jax.process_index()
    everywhere, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("rank"))
    state = {name: jax.make_array_from_process_local_data(everywhere, one) for name, one in new_state().items()}
    options = ocp.CheckpointManagerOptions(save_interval_steps=10, max_to_keep=3)
    with ocp.CheckpointManager(DIRECTORY, options=options) as manager:
        start = gang.restore.step if gang.restore else 0
        print(f"rank {rank} attempt {gang.number}: begins after step {start}", flush=True)
        if gang.restore:
            with gang.loading():
                state = manager.restore(start, args=ocp.args.StandardRestore(state))
        loss = jnp.zeros(())
        for step in range(start + 1, STEPS + 1):
            mine = np.random.default_rng(1_000_003 * step + rank).random((64, 8), np.float32)
            state, loss = train_step(state, jax.make_array_from_process_local_data(split, mine))
            loss.block_until_ready()
            gang.progress(step)
            manager.save(step, args=ocp.args.StandardSave(state))  # every tenth, and a last one when a stop is planned
            if manager.reached_preemption(step):
                manager.wait_until_finished()
                return
    if rank == 0:
        (DIRECTORY / "result.json").write_text(json.dumps({"loss": float(loss).hex()}))
    multihost_utils.sync_global_devices("the result is written")


if __name__ == "__main__":
    main()
