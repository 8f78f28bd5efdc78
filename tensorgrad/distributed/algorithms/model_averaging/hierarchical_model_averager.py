"""Parameters are averaged over small groups often, and over large groups seldom."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from tensorgrad.distributed.algorithms.model_averaging import utils
from tensorgrad.distributed.algorithms.model_averaging.averagers import NO_NEED, ModelAverager, check_warmup
from tensorgrad.distributed.process_group import new_subgroups

__all__ = ["HierarchicalModelAverager"]


class HierarchicalModelAverager(ModelAverager):
    """Averages parameters over groups of several sizes, each with its own period.

    Args:
        period_group_size_dict: the size of the groups for each period, from the shortest period to the longest. The
            last size is that of the whole group.
        warmup_steps: how many steps come first.
        process_group: the whole group; the default one if None.

    Raises:
        ValueError: there are no periods, one is not positive, or the last size is not that of the group.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.model_averaging.hierarchical_model_averager import (
    ...     HierarchicalModelAverager)
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> HierarchicalModelAverager({4: 1}).step
    0
    >>> dist.destroy_process_group()
    """

    def __init__(
        self, period_group_size_dict: dict[int, int] | None = None, warmup_steps: int = 0, process_group: Any = None
    ) -> None:
        super().__init__(process_group)
        if not period_group_size_dict:
            raise ValueError("Arg ``period_group_size_dict`` must not be empty.")
        periods, sizes = list(period_group_size_dict), list(period_group_size_dict.values())
        if periods[0] <= 0:
            raise ValueError("The minimum period in arg ``period_group_size_dict`` must be a positive value.")
        if periods[-1] == 1:
            warnings.warn(
                f"When the maximum period in arg ``period_group_size_dict`` is 1, {NO_NEED}",
                stacklevel=2,
            )
        whole = self.process_group.size()
        if sizes[-1] != whole:
            raise ValueError(
                f"The last value in arg ``period_group_size_dict`` {sizes[-1]} must be equal to the size of arg "
                f"``process_group`` {whole}."
            )
        check_warmup(warmup_steps)
        self.warmup_steps = warmup_steps
        self.period_process_group_dict: OrderedDict[int, Any] = OrderedDict()
        for period, size in period_group_size_dict.items():
            group = self.process_group if size == whole else new_subgroups(size, self.process_group)[0]
            self.period_process_group_dict[period] = group

    def average_parameters(self, params: Iterable[Any]) -> None:
        """Averages parameters over the group of the longest period that has passed, if one has.

        Args:
            params: parameters, or an optimizer's groups of them.
        """
        passed = [period for period in self.period_process_group_dict if self.step % period == 0]
        if self.step >= self.warmup_steps and passed:
            utils.average_parameters_or_parameter_groups(params, self.period_process_group_dict[passed[-1]])
        self.step += 1
