"""`torch.cuda`'s graphs: the names exist, and raise an error since graphs are not supported."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"torch.cuda.{name}: graphs of kernels are not recorded; leave this out, everything runs eagerly"
    )


def is_current_stream_capturing() -> bool:
    """Returns whether a CUDA graph is being captured: always False.

    >>> import tensorgrad as torch
    >>> torch.cuda.is_current_stream_capturing()
    False
    """
    return False


def graph_pool_handle():
    """Would return a memory pool for graphs.

    Raises:
        NotImplementedError: Always.

    >>> import tensorgrad as torch
    >>> torch.cuda.graph_pool_handle()
    Traceback (most recent call last):
        ...
    NotImplementedError: torch.cuda.graph_pool_handle: graphs of kernels are not recorded; leave this out, ...
    """
    _refuse("graph_pool_handle")


class CUDAGraph:
    """Would record the kernels of a step, to launch them together.

    Raises:
        NotImplementedError: Always.

    >>> import tensorgrad as torch
    >>> torch.cuda.CUDAGraph()
    Traceback (most recent call last):
        ...
    NotImplementedError: torch.cuda.CUDAGraph: graphs of kernels are not recorded; leave this out, ...
    """

    def __init__(self, keep_graph: bool = False):
        _refuse("CUDAGraph")


class graph:
    """Would capture the work in a `with` block.

    Raises:
        NotImplementedError: Always.

    >>> import tensorgrad as torch
    >>> torch.cuda.graph(None)
    Traceback (most recent call last):
        ...
    NotImplementedError: torch.cuda.graph: graphs of kernels are not recorded; leave this out, everything runs eagerly
    """

    def __init__(self, cuda_graph, pool=None, stream=None, capture_error_mode: str = "global"):
        _refuse("graph")


def make_graphed_callables(callables, sample_args, num_warmup_iters=3, allow_unused_input=False, pool=None):
    """Would capture the forward and backward passes of modules.

    Raises:
        NotImplementedError: Always.

    >>> import tensorgrad as torch
    >>> torch.cuda.make_graphed_callables(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    Traceback (most recent call last):
        ...
    NotImplementedError: torch.cuda.make_graphed_callables: graphs of kernels are not recorded; leave this out, ...
    """
    _refuse("make_graphed_callables")
