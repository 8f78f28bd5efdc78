"""`Stateful`: what checkpoints ask for its state."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

__all__ = ["Stateful"]


@runtime_checkable
class Stateful(Protocol):
    """Anything with `state_dict()` and `load_state_dict()`, such as a module or an optimizer.

    >>> from tensorgrad.distributed.checkpoint.stateful import Stateful
    >>> isinstance(torch.nn.Linear(1, 1), Stateful)
    True
    """

    def state_dict(self) -> dict[str, Any]:
        """Returns the state."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a state."""
        ...
