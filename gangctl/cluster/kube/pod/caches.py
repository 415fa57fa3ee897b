"""Which compilers keep their caches in a pod.

The rule: all of them, but JAX only where one pod has all processes of the process group. In a distributed JAX only
process 0 writes to the cache (``jax/_src/compiler.py``, ``_cache_write``), so the other pods would find nothing. Worse,
on GPUs the processes share the work of autotuning: one that finds its program in the cache does its part no more, and
the others would wait for it, for up to 24 hours (XLA, ``--xla_gpu_shard_autotuning``).
"""

from __future__ import annotations

from gangctl.api.gangjob import Role, Spec
from gangctl.core.facts.layout import numbered
from gangsidecar.wire import Compiler


def kept_caches(spec: Spec, role: Role) -> tuple[Compiler, ...]:
    """The compilers whose caches a pod of this role keeps."""
    is_alone = len(numbered(spec).groups.get(role.group, ())) == 1
    return tuple(one for one in Compiler if one is not Compiler.JAX or is_alone)
