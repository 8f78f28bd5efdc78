"""The default generators of the host and of all GPUs together: seeding them, and going back to where they stood."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np

from tensorgrad.devices import device as Device
from tensorgrad.random import philox
from tensorgrad.random.generator import Generator, default_generator


def manual_seed(seed) -> Generator:
    """Seed the default generators, of the host and of all GPUs, with `int(seed)`; return the host's.

    >>> from tensorgrad.random import manual_seed
    >>> manual_seed(1).initial_seed()
    1

    Raises: ValueError if the seed is outside [-2**63, 2**64).
    """
    seed = int(seed)
    default_generator.manual_seed(seed)
    philox.seed_all(seed)
    return default_generator


def seed() -> int:
    """Seed the default generators, of the host and of all GPUs, from the system's entropy; return the 64-bit seed.

    >>> import tensorgrad as torch
    >>> first, second = torch.seed(), torch.seed()
    >>> first == second
    False
    """
    seed = default_generator.seed()
    philox.seed_all(seed)
    return seed


def initial_seed() -> int:
    """The default generator's seed.

    >>> import tensorgrad as torch
    >>> _ = torch.manual_seed(7)
    >>> torch.initial_seed()
    7
    """
    return default_generator.initial_seed()


Places = tuple[np.ndarray, philox.Places]  # where default generators stand: the host's state, and those of GPUs


def places(gpus=None) -> Places:
    """Where the default generators of the host and of some GPUs (their numbers; None: all) stand, for `go_to`.

    >>> from tensorgrad.random import default_generator, default_generators
    >>> before = default_generators.places()
    >>> _ = default_generator.random32(5)
    >>> default_generators.standing_at(before)
    False
    >>> default_generators.go_to(before); default_generators.standing_at(before)
    True
    """
    return default_generator.state_bytes(), philox.places(gpus)


def go_to(taken: Places) -> None:
    """Puts the default generators back where they were."""
    host, gpus = taken
    default_generator.set_state_bytes(host)
    philox.go_to(gpus)


def standing_at(taken: Places) -> bool:
    """Whether no default generator has moved since."""
    host, gpus = taken
    return np.array_equal(default_generator.state_bytes(), host) and philox.standing_at(gpus)


@contextmanager
def fork_rng(devices=None, enabled=True, device_type=None):
    """Run a block of code and then put the default generators back where they were before.

    The host's is always put back; `devices` says of which GPUs too (None: of all). With `enabled=False` nothing is.

    >>> from tensorgrad.random import default_generator, fork_rng, manual_seed
    >>> before = manual_seed(0).state_bytes()
    >>> with fork_rng():
    ...     _ = default_generator.random32(5)
    >>> bool((default_generator.state_bytes() == before).all())
    True
    """
    if not enabled or device_type == "meta":
        yield
        return
    gpus = None if devices is None else [d if isinstance(d, int) else Device(d).index or 0 for d in devices]
    before = places(gpus)
    try:
        yield
    finally:
        go_to(before)
