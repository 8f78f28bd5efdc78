"""Averaging parameters over a group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed import collectives
from tensorgrad.distributed.group import not_in_group, or_default
from tensorgrad.nn.parameter import Parameter

__all__ = ["average_parameters", "average_parameters_or_parameter_groups", "get_params_to_average"]


def average_parameters(params: Iterable[Any], process_group: Any) -> None:
    """Averages parameters over a group, in one message. Nothing happens in processes that are not members.

    Args:
        params: the parameters; the same in all processes.
        process_group: the group; the default one if None.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.model_averaging.utils import average_parameters
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> average_parameters(torch.nn.Linear(2, 1).parameters(), None)
    >>> dist.destroy_process_group()
    """
    if not_in_group(process_group):
        return
    group, chosen = or_default(process_group), list(params)
    with torch.no_grad():
        flat = torch.cat([p.detach().reshape(-1) for p in chosen]) / group.size()
        collectives.all_reduce(flat, group=group)
        for p, mean in zip(chosen, flat.split([p.numel() for p in chosen])):
            p.copy_(mean.view_as(p))


def get_params_to_average(params: Iterable[Any]) -> list[Any]:
    """Returns the parameters that have a gradient.

    Args:
        params: parameters, or an optimizer's groups of them.

    Raises:
        NotImplementedError: they are something else.

    >>> from tensorgrad.distributed.algorithms.model_averaging.utils import get_params_to_average
    >>> get_params_to_average(torch.nn.Linear(2, 1).parameters())
    []
    """
    found: list[Any] = []
    for item in params:
        if not isinstance(item, Parameter | dict):
            raise NotImplementedError(f"Parameter input of type {type(item)} is not supported")
        found += [p for p in (item["params"] if isinstance(item, dict) else [item]) if p.grad is not None]
    return found


def average_parameters_or_parameter_groups(params: Iterable[Any], process_group: Any) -> None:
    """Averages those parameters over a group that have a gradient.

    Args:
        params: parameters, or an optimizer's groups of them.
        process_group: the group; the default one if None.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.model_averaging.utils import average_parameters_or_parameter_groups
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = torch.nn.Linear(2, 1)
    >>> model(torch.ones(2)).backward()
    >>> average_parameters_or_parameter_groups(model.parameters(), None)
    >>> dist.destroy_process_group()
    """
    average_parameters(get_params_to_average(params), process_group)
