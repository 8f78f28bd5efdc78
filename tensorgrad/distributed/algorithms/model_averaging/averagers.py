"""When parameters are averaged over the processes: every few steps."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from tensorgrad.distributed.algorithms.model_averaging import utils
from tensorgrad.distributed.group import or_default

__all__ = ["ModelAverager", "PeriodicModelAverager"]

NO_NEED = (
    "no need to use model averaging because the communication cost of all-reducing parameters will be no less than the "
    "cost of all-reducing gradients by DistributedDataParallel in the backward pass. Therefore, only "
    "DistributedDataParallel should be used for this case."
)


class ModelAverager(ABC):
    """Base class: `average_parameters` is called after each step, and `step` counts the calls.

    Args:
        process_group: the group; the default one if None.
    """

    def __init__(self, process_group: Any = None) -> None:
        self.process_group = or_default(process_group)
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Iterable[Any]) -> None:
        """Averages parameters if it is time.

        Args:
            params: parameters, or an optimizer's groups of them.
        """


def check_warmup(warmup_steps: int) -> None:
    """Raises: ValueError if the number is negative."""
    if warmup_steps < 0:
        raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")


class PeriodicModelAverager(ModelAverager):
    """Averages parameters every `period` steps, after the first `warmup_steps`.

    Args:
        period: how many steps there are from one average to the next.
        warmup_steps: how many steps come first.
        process_group: the group; the default one if None.

    Raises:
        ValueError: `period` is not positive, or `warmup_steps` is negative.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> averager, model = PeriodicModelAverager(period=4), torch.nn.Linear(2, 1)
    >>> model(torch.ones(2)).backward()
    >>> averager.average_parameters(model.parameters())
    >>> averager.step
    1
    >>> dist.destroy_process_group()
    """

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Any = None) -> None:
        super().__init__(process_group)
        check_warmup(warmup_steps)
        if period < 1:
            raise ValueError("Arg ``period`` must be a positive value.")
        if period == 1:
            warnings.warn(f"When period is 1, {NO_NEED}", stacklevel=2)
        self.period, self.warmup_steps = period, warmup_steps

    def average_parameters(self, params: Iterable[Any]) -> None:
        """Averages parameters if it is time.

        Args:
            params: parameters, or an optimizer's groups of them.
        """
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            utils.average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1
