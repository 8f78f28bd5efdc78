"""`register_sharding`: how an operator of `torch.library` runs on distributed tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorgrad.distributed.tensor.ops import custom
from tensorgrad.library.operators import Operator

__all__ = ["register_sharding"]


def register_sharding(op: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator for a function that lists the ways to run an operator on the pieces of distributed tensors.

    The function gets the operator's arguments, with a layout (`ndim`, `shape`, `placements`) in place of each tensor.
    It returns pairs for one dimension of the mesh: the placements of the results, and those of the arguments (None for
    what is not a tensor). The way that moves the least is chosen.

    Args:
        op: an operator that was defined by `torch.library` (`torch.ops.namespace.name.default`), or a list of them.

    Raises:
        NotImplementedError: it is another one; for those of PyTorch the ways are known.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.tensor import Shard, ones
    >>> from tensorgrad.distributed.tensor.experimental import register_sharding
    >>> @torch.library.custom_op("sharding::twice", mutates_args=())
    ... def twice(x: torch.Tensor) -> torch.Tensor:
    ...     return x * 2
    >>> @register_sharding(torch.ops.sharding.twice.default)
    ... def ways(x):
    ...     return [([Shard(d)], [Shard(d)]) for d in range(x.ndim)]
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> twice(ones(2, placements=[Shard(0)])).placements
    (Shard(dim=0),)
    >>> dist.destroy_process_group()
    """
    operators = op if isinstance(op, list) else [op]
    for one in operators:
        if not isinstance(one, Operator):
            raise NotImplementedError(
                f"register_sharding: {one} is not an operator that was defined by torch.library; how those of PyTorch "
                "run on distributed tensors is known and cannot be changed"
            )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        custom.WAYS.update(dict.fromkeys(operators, function))
        return function

    return decorate
