"""`torch.cuda.MemPool`: memory of GPUs that only certain allocations are made from."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

from tensorgrad.cuda.devices import index_of, module
from tensorgrad.cuda.graphs import graph_pool_handle
from tensorgrad.storage.cuda import capture, memory

__all__ = ["MemPool", "use_mem_pool"]


class MemPool:
    """A pool of memory, from which `use_mem_pool` allocates. It is given back when the pool and its tensors are gone.

    Args:
        allocator: must be None: memory is CUDA's.
        use_on_oom: accepted for compatibility.
        no_split: accepted for compatibility: blocks are not divided.

    Raises:
        NotImplementedError: If there is an allocator.
        RuntimeError: If there is no GPU.

    >>> if torch.cuda.is_available():
    ...     pool = torch.cuda.MemPool()
    ...     with torch.cuda.use_mem_pool(pool):
    ...         x = torch.empty(1000, device="cuda")
    """

    def __init__(self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False) -> None:
        module()
        if allocator is not None:
            raise NotImplementedError("torch.cuda.MemPool: allocators of a program's own (allocator=)")
        self._id = graph_pool_handle()
        self._pool = capture.POOLS[self._id] = capture.Pool(self._id)
        self._pool.graphs += 1
        weakref.finalize(self, self._pool.leave).atexit = False

    @property
    def id(self) -> tuple[int, int]:
        """A token, which `torch.cuda.graph` takes as its `pool`."""
        return self._id

    @property
    def allocator(self) -> None:
        """None: memory is CUDA's."""
        return None

    def use_count(self) -> int:
        """The number of its users: the pool itself, and graphs."""
        return self._pool.graphs


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Any = None) -> Iterator[None]:
    """A context in which this thread allocates memory of GPUs from a pool.

    Args:
        pool: the pool.
        device: the GPU that is the current one meanwhile.

    >>> if torch.cuda.is_available():
    ...     with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
    ...         x = torch.empty(1000, device="cuda")
    """
    cupy = module()
    own = pool._pool.memory
    with cupy.cuda.Device(index_of(device)), cupy.cuda.using_allocator(lambda size: memory.from_pool(cupy, own, size)):
        yield
