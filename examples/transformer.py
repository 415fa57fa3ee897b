"""A small transformer that learns to write Python, byte by byte, and the text it learns from.

This module is independent of gangs and restarts; ``train.py`` handles them. All weights are one long vector, so that a
step needs one all-reduce and a checkpoint three arrays.
"""

import sysconfig
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

BYTES, WIDTH, HEADS, LAYERS, CONTEXT = 256, 128, 4, 2, 64
STACKED = {
    "query_key_value": (LAYERS, WIDTH, 3 * WIDTH),
    "mix": (LAYERS, WIDTH, WIDTH),
    "widen": (LAYERS, WIDTH, 4 * WIDTH),
    "narrow": (LAYERS, 4 * WIDTH, WIDTH),
}
SHAPES = {"letters": (BYTES, WIDTH), "places": (CONTEXT, WIDTH), **STACKED}
LEARNING_RATE = 2e-3

State = dict[str, np.ndarray | jax.Array]
"""``weights``, Adam's two moments ``mean`` and ``square``, and the ``loss`` of the step that made them."""


def new_state(seed: int) -> State:
    """The state before the first step."""
    size = sum(int(np.prod(shape)) for shape in SHAPES.values())
    weights = np.random.default_rng(seed).standard_normal(size, np.float32) * np.float32(0.05)
    zeros = np.zeros_like(weights)
    return {"weights": weights, "mean": zeros, "square": zeros, "loss": np.float32(np.nan)}


def unpack(weights: jax.Array) -> dict[str, jax.Array]:
    """The named matrices, which are stored one after the other in the vector."""
    ends = np.cumsum([np.prod(shape) for shape in SHAPES.values()])
    parts = jnp.split(weights, ends[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(SHAPES.items(), parts, strict=True)}


def normal(x: jax.Array) -> jax.Array:
    """Bring each position to the same length (RMSNorm without a gain)."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5)


def layer(x: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, None]:
    """Each position looks at the ones before it, then thinks for itself."""
    query_key_value = (normal(x) @ w["query_key_value"]).reshape(*x.shape[:2], HEADS, 3 * WIDTH // HEADS)
    query, key, value = jnp.split(query_key_value, 3, axis=-1)
    match = jnp.einsum("bqhd,bkhd->bhqk", query, key) / (WIDTH // HEADS) ** 0.5
    earlier = jnp.tril(jnp.ones((CONTEXT, CONTEXT), bool))
    attention = jax.nn.softmax(jnp.where(earlier, match, -1e9))
    x += jnp.einsum("bhqk,bkhd->bqhd", attention, value).reshape(x.shape) @ w["mix"]
    return x + jax.nn.gelu(normal(x) @ w["widen"]) @ w["narrow"], None


def surprise(weights: jax.Array, text: jax.Array) -> jax.Array:
    """The loss: mean of -log(probability) of the byte that really came next. Who knows nothing has ln(256) = 5.5."""
    w = unpack(weights)
    x = w["letters"][text[:, :-1]] + w["places"]
    x, _ = jax.lax.scan(layer, x, {name: w[name] for name in STACKED})
    log_probability = jax.nn.log_softmax(normal(x) @ w["letters"].T)
    return -jnp.take_along_axis(log_probability, text[:, 1:, None], axis=-1).mean()


def train_step(state: State, step: jax.Array, text: jax.Array) -> State:
    """One step of Adam on the mean gradient of all ranks; each rank brings its own text."""
    loss, gradient = jax.value_and_grad(surprise)(state["weights"], text)
    loss, gradient = jax.lax.pmean((loss, gradient), "rank")  # the collective
    mean = 0.9 * state["mean"] + 0.1 * gradient
    square = 0.99 * state["square"] + 0.01 * gradient**2
    change = mean / (1 - 0.9**step) / (jnp.sqrt(square / (1 - 0.99**step)) + 1e-8)
    return {"weights": state["weights"] - LEARNING_RATE * change, "mean": mean, "square": square, "loss": loss}


def library() -> np.ndarray:
    """The source files of Python's own standard library, as bytes, always in the same order."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return np.frombuffer(b"".join(file.read_bytes() for file in files), np.uint8)


def pieces(corpus: np.ndarray, count: int, *seed: int) -> np.ndarray:
    """So many pieces of the corpus, which depend on the seed alone: one byte more than the context, to be guessed."""
    places = np.random.default_rng(seed).integers(len(corpus) - CONTEXT, size=count)
    return corpus[places[:, None] + np.arange(CONTEXT + 1)].astype(np.int32)
