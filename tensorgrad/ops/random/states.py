"""Generator states as tensors: methods of `torch.Generator`, and functions for the default generator."""

from __future__ import annotations

from tensorgrad.random.generator import Generator, default_generator
from tensorgrad.tensor import Tensor, wrap


def _state_array(state):
    if not isinstance(state, Tensor):
        raise TypeError(f"expected a torch.ByteTensor, but got {type(state).__name__}")
    return state._storage.to_host(state._array)


def _get_state(self: Generator) -> Tensor:
    """Returns the state in PyTorch's format: a tensor of 5,056 bytes."""
    return wrap(self.state_bytes())


def _set_state(self: Generator, new_state: Tensor) -> Generator:
    """Restores a state returned by `get_state`, here or in PyTorch. Returns the generator.

    Raises:
        TypeError: If `new_state` is not a byte tensor.
        RuntimeError: If it is not a generator state.
    """
    self.set_state_bytes(_state_array(new_state))
    return self


def _graphsafe_set_state(self: Generator, state: Generator) -> None:
    """Copies the state of another generator."""
    self.set_state_bytes(state.state_bytes())


Generator.get_state = _get_state  # type: ignore[attr-defined]
Generator.set_state = _set_state  # type: ignore[attr-defined]
Generator.graphsafe_get_state = Generator.clone_state  # type: ignore[attr-defined]
Generator.graphsafe_set_state = _graphsafe_set_state  # type: ignore[attr-defined]


def get_rng_state() -> Tensor:
    """Returns the state of the default generator as a byte tensor.

    >>> state = torch.get_rng_state()
    >>> a = torch.rand(2); torch.set_rng_state(state)
    >>> bool((torch.rand(2) == a).all())
    True
    """
    return _get_state(default_generator)


def set_rng_state(new_state: Tensor) -> None:
    """Sets the state of the default generator.

    Raises:
        TypeError: If `new_state` is not a byte tensor.
        RuntimeError: If it is not a generator state.

    >>> _ = torch.manual_seed(0)
    >>> state = torch.get_rng_state()
    >>> torch.rand(2)
    tensor([0.4963, 0.7682])
    >>> torch.set_rng_state(state)
    >>> torch.rand(2)
    tensor([0.4963, 0.7682])
    """
    default_generator.set_state_bytes(_state_array(new_state))
