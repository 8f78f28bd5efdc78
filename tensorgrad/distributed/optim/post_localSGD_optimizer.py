"""An optimizer that averages the parameters over the processes every few steps."""

from __future__ import annotations

import warnings
from typing import Any

from tensorgrad.distributed.algorithms.model_averaging.averagers import ModelAverager
from tensorgrad.optim import Optimizer

__all__ = ["PostLocalSGDOptimizer"]


class PostLocalSGDOptimizer(Optimizer):
    """Takes an optimizer's steps, and calls an averager after each.

    Args:
        optim: the optimizer.
        averager: what averages the parameters.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    >>> from tensorgrad.distributed.optim import PostLocalSGDOptimizer
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), PeriodicModelAverager(4))
    >>> model(torch.ones(2)).backward()
    >>> optimizer.step()
    >>> optimizer.state_dict()["step"]
    1
    >>> dist.destroy_process_group()
    """

    def __init__(self, optim: Any, averager: ModelAverager) -> None:
        self.optim, self.averager = optim, averager
        self.param_groups = optim.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The state of the inner optimizer."""
        return self.optim.state

    def __repr__(self) -> str:
        return repr(self.optim)

    def state_dict(self) -> dict[str, Any]:
        """Returns the inner optimizer's state, with the number of steps as `step`."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what `state_dict` returned."""
        self.optim.load_state_dict(state_dict)
        if "step" not in state_dict:
            warnings.warn(
                "Loaded state dict does not contain a step counter for an averager. Setting step counter to 0.",
                stacklevel=2,
            )
        self.averager.step = state_dict.get("step", 0)

    def step(self) -> None:  # type: ignore[override]
        """Takes a step, and averages the parameters if it is time."""
        self.optim.step()
        self.averager.average_parameters(self.param_groups)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Sets all gradients to None, or to zero."""
        self.optim.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of parameters to the inner optimizer."""
        self.optim.add_param_group(param_group)
