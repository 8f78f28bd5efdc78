"""`torch.random`: seeds and states of random number generators."""

import typing as _typing

from tensorgrad.random.default_generators import fork_rng, initial_seed, manual_seed, seed
from tensorgrad.random.generator import Generator, default_generator
from tensorgrad.system.names_elsewhere import elsewhere as _elsewhere

__all__ = [
    "Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed",
    "set_rng_state",
]  # fmt: skip

if _typing.TYPE_CHECKING:
    from tensorgrad.ops.random.states import get_rng_state, set_rng_state

_elsewhere(__name__, dict.fromkeys(("get_rng_state", "set_rng_state"), "tensorgrad.ops.random.states"))
