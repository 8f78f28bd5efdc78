"""`torch.random`: seeds and states of random number generators."""

import typing as _typing

from tensorgrad.random.default_generators import fork_rng, initial_seed, manual_seed, seed
from tensorgrad.random.generator import Generator, default_generator
from tensorgrad.system.lazy_modules import whole as _whole

__all__ = [
    "Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed",
    "set_rng_state",
]  # fmt: skip

_STATES = ("get_rng_state", "set_rng_state")

if _typing.TYPE_CHECKING:
    from tensorgrad.ops.random.states import get_rng_state, set_rng_state
else:

    def __getattr__(name: str):
        if name in _STATES:
            from tensorgrad.ops.random import states

            return getattr(states, name)
        from tensorgrad.system.missing_names import no_attribute

        raise no_attribute(__name__, name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_STATES})

    _whole(__name__)
