"""`torch.cuda`'s random number generators: one for each GPU (`random/philox.py`)."""

from __future__ import annotations

from typing import Any

from tensorgrad.cuda.devices import checked_index_of, current_device, device_count, index_of, is_available, module
from tensorgrad.random import philox
from tensorgrad.random.generator import Generator
from tensorgrad.tensor import Tensor

__all__ = [
    "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all",
    "set_rng_state", "set_rng_state_all",
]  # fmt: skip


def _default(device=None) -> Any:
    return philox.default(checked_index_of(device))


def default_generators() -> tuple[Generator, ...]:
    """Returns `torch.cuda.default_generators`: the generators of all GPUs, an empty tuple without one."""
    return tuple(_default(index) for index in range(device_count()))


def manual_seed(seed: int) -> None:
    """Seeds the current GPU's generator. No effect without a GPU, as in PyTorch.

    Args:
        seed: an integer.

    >>> torch.cuda.manual_seed(0)
    """
    seed = int(seed)
    if is_available():
        _default().manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all GPUs. No effect without a GPU, as in PyTorch.

    Args:
        seed: an integer.

    >>> torch.cuda.manual_seed_all(0)
    """
    seed = int(seed)
    for index in range(device_count()):
        _default(index).manual_seed(seed)


def seed() -> None:
    """Seeds the current GPU's generator from the system's entropy.

    >>> torch.cuda.seed()
    """
    if is_available():
        _default().seed()


def seed_all() -> None:
    """Seeds the generators of all GPUs with the same seed from the system's entropy.

    >>> torch.cuda.seed_all()
    """
    if is_available():
        manual_seed_all(_default(0).seed())


def initial_seed() -> int:
    """Returns the seed of the current GPU's generator.

    Raises:
        RuntimeError: If there is no GPU.

    >>> if torch.cuda.is_available():
    ...     number = torch.cuda.initial_seed()
    """
    module()
    return philox.default(current_device()).initial_seed()


def get_rng_state(device="cuda") -> Tensor:
    """Returns the state of a GPU's generator, 16 bytes: seed and offset.

    Raises:
        RuntimeError: If there is no GPU.

    >>> if torch.cuda.is_available():
    ...     state = torch.cuda.get_rng_state()
    """
    module()
    return _default(device).get_state()


def get_rng_state_all() -> list[Tensor]:
    """Returns the generator states of all GPUs; an empty list without one.

    >>> len(torch.cuda.get_rng_state_all()) == torch.cuda.device_count()
    True
    """
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state: Tensor, device="cuda") -> None:
    """Sets the state of a GPU's generator. No effect without a GPU, as in PyTorch.

    >>> if torch.cuda.is_available():
    ...     torch.cuda.set_rng_state(torch.cuda.get_rng_state())
    """
    if is_available():
        _default(index_of(device)).set_state(new_state)


def set_rng_state_all(new_states) -> None:
    """Sets the generator states of all GPUs.

    >>> torch.cuda.set_rng_state_all(torch.cuda.get_rng_state_all())
    """
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
