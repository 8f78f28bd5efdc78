"""The default generators of the host and of all GPUs: seeding them, and saving and restoring their states."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np

from tensorgrad.devices import device as Device
from tensorgrad.random import philox
from tensorgrad.random.generator import Generator, default_generator


def manual_seed(seed) -> Generator:
    """Seeds the default generators, of the host and of all GPUs, with `int(seed)`; returns the host's.

    Args:
        seed: an integer; negative ones count from 2⁶⁴ down.

    >>> from tensorgrad.random import manual_seed
    >>> manual_seed(1).initial_seed()
    1

    Raises:
        ValueError: If the seed is outside [-2**63, 2**64).
    """
    seed = int(seed)
    default_generator.manual_seed(seed)
    philox.seed_all(seed)
    return default_generator


def seed() -> int:
    """Seeds the default generators, of the host and of all GPUs, from the system's entropy; returns the 64-bit seed.

    >>> first, second = torch.seed(), torch.seed()
    >>> first == second
    False
    """
    seed = default_generator.seed()
    philox.seed_all(seed)
    return seed


def initial_seed() -> int:
    """Returns the default generator's seed.

    >>> _ = torch.manual_seed(7)
    >>> torch.initial_seed()
    7
    """
    return default_generator.initial_seed()


Places = tuple[np.ndarray, philox.Places]  # the states of the default generators: the host's, and those of GPUs


def places(gpus=None) -> Places:
    """Returns the states of the default generators of the host and of GPUs (by index; None: all), for `go_to`.

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
    """Restores the states of the default generators."""
    host, gpus = taken
    default_generator.set_state_bytes(host)
    philox.go_to(gpus)


def standing_at(taken: Places) -> bool:
    """Returns whether the default generators are still in these states."""
    host, gpus = taken
    return np.array_equal(default_generator.state_bytes(), host) and philox.standing_at(gpus)


@contextmanager
def fork_rng(devices=None, enabled=True, device_type=None):
    """A context manager that restores the default generators at its end.

    The host's is always restored; `devices` selects the GPUs (None: all). With `enabled=False` nothing is restored.

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
