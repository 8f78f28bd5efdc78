"""Memory formats and layouts: the names that PyTorch programs pass around."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorgrad.errors import wrong_argument


class memory_format:
    """The memory order of a dense tensor's dimensions: which one varies fastest.

    >>> x = torch.zeros(1, 4, 5, 3).permute(0, 3, 1, 2)
    >>> x.is_contiguous(memory_format=torch.channels_last)
    True
    """

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class layout(memory_format):
    """Which of a tensor's elements are stored, and how: all of them for `strided` tensors.

    >>> torch.ones(2).layout
    torch.strided
    >>> torch.ones(2).layout == torch.sparse_coo
    False
    """

    __slots__ = ()


class qscheme(memory_format):
    """How the integers of a quantized tensor stand for numbers: with one scale for all, or one for each channel.

    >>> torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8).qscheme()
    torch.per_tensor_affine
    """

    __slots__ = ()


per_tensor_affine, per_channel_affine = qscheme("per_tensor_affine"), qscheme("per_channel_affine")
per_tensor_symmetric, per_channel_symmetric = qscheme("per_tensor_symmetric"), qscheme("per_channel_symmetric")
per_channel_affine_float_qparams = qscheme("per_channel_affine_float_qparams")

contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
sparse_bsr = layout("sparse_bsr")
sparse_bsc = layout("sparse_bsc")
jagged = layout("jagged")
_mkldnn = layout("_mkldnn")

# The annotation of the argument `layout` of functions that make sparse tensors, too; other functions refuse the sparse
# layouts before they are called (dispatch/guard.py).
AnyLayout = layout | None


def check_memory_format(given: Any) -> None:
    """Raises: TypeError that names the function, unless it is a memory format (or "contiguous", as this library's own
    functions say it)."""
    if given.__class__ is not memory_format and not (given.__class__ is str and given == "contiguous"):
        raise wrong_argument(given, "memory_format", "torch.memory_format")


def memory_strides(shape: tuple[int, ...], given: memory_format | None) -> tuple[int, ...]:
    """Returns the strides, in elements, of a dense tensor in a memory format (row-major for None).

    Raises: RuntimeError if tensors of this rank, or new tensors, cannot have the format.
    """
    if given is not None:
        check_memory_format(given)
    name = "contiguous_format" if given is None else str(given).rpartition(".")[2]
    order = list(range(len(shape)))
    if name.startswith("channels_last"):
        rank = 5 if name.endswith("3d") else 4
        if len(shape) != rank:
            raise RuntimeError(f"required rank {rank} tensor to use {name} format")
        order = [0, *order[2:], 1]
    elif name != "contiguous_format":
        raise RuntimeError(f"unsupported memory format option {name}")
    return strides_in_order(shape, order)


def strides_in_order(shape: tuple[int, ...], order: Sequence[int], step: int = 1) -> tuple[int, ...]:
    """Returns the strides without gaps of dimensions that are in this order in memory, outermost first.

    `step` is that of the innermost one: the size of an element for strides in bytes.

    >>> from tensorgrad.layouts import strides_in_order
    >>> strides_in_order((2, 3, 4), [2, 0, 1])
    (3, 1, 6)
    """
    strides = [0] * len(shape)
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def check_strided(name: str, given) -> None:
    """Checks the argument `layout` of functions that create tensors.

    Raises: TypeError if it is not a layout, NotImplementedError if it is not `strided`.
    """
    if given is not strided and given is not None:
        if given.__class__ is not layout:
            kind = "torch.dtype" if type(given).__name__ == "dtype" else type(given).__name__
            raise TypeError(f"{name}(): argument 'layout' must be torch.layout, not {kind}")
        raise NotImplementedError(f"{name}: it makes strided tensors only, not {given}")


def dense_order(array) -> list[int] | None:
    """The dimensions of an array, outermost in memory first; None if it has gaps or repeats elements."""
    order = sorted(range(array.ndim), key=lambda d: -array.strides[d])
    step = array.itemsize
    for d in reversed(order):
        if array.shape[d] != 1:
            if array.strides[d] != step:
                return None
            step *= array.shape[d]
    return order


def inverse(order: Sequence[int]) -> list[int]:
    """Returns the inverse permutation.

    >>> from tensorgrad.layouts import inverse
    >>> inverse([0, 2, 3, 1])
    [0, 3, 1, 2]
    """
    return sorted(range(len(order)), key=order.__getitem__)


def made_in_order(make: Callable[[tuple], Any], shape: tuple[int, ...], order: Sequence[int]) -> Any:
    """Creates an array whose dimensions are in this order in memory, outermost first; `make` makes row-major arrays.

    >>> import numpy as np
    >>> from tensorgrad.layouts import made_in_order
    >>> made_in_order(np.empty, (2, 3, 4, 5), [0, 2, 3, 1]).strides
    (480, 8, 120, 24)
    """
    return make(tuple([shape[d] for d in order])).transpose(inverse(order))
