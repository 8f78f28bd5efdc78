"""`implicit_replication`: ordinary tensors among distributed ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tensorgrad.distributed.tensor.dtensor import DTensor

__all__ = ["implicit_replication"]


@contextmanager
def implicit_replication() -> Iterator[None]:
    """In this context, ordinary tensors in ops with distributed ones count as replicated: all ranks must have the same.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.tensor import ones
    >>> from tensorgrad.distributed.tensor.experimental import implicit_replication
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> with implicit_replication():
    ...     (ones(2) + torch.ones(2)).to_local()
    tensor([2., 2.])
    >>> dist.destroy_process_group()
    """
    before, DTensor._implicit_replication = DTensor._implicit_replication, True
    try:
        yield
    finally:
        DTensor._implicit_replication = before
