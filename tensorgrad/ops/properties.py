"""Properties of a tensor: the category of its dtype, its device, shape, memory order and origin."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tensorgrad.dispatch.kinds import composite
from tensorgrad.dtypes import COMPLEX_KINDS
from tensorgrad.layouts import channels_last, memory_format
from tensorgrad.ops.create import check_tensor
from tensorgrad.tensor import Tensor

# --- the elements --------------------------------------------------------------------------------------------------


@composite()
def is_floating_point(input: Tensor) -> bool:
    """Returns whether the dtype is floating-point.

    >>> torch.is_floating_point(torch.ones(1)), torch.is_floating_point(torch.tensor([1]))
    (True, False)
    """
    return input.dtype.is_floating_point


@composite()
def is_complex(input: Tensor) -> bool:
    """Returns whether the dtype is complex.

    >>> torch.is_complex(torch.tensor([1j])), torch.is_complex(torch.ones(1))
    (True, False)
    """
    return input._array.dtype.kind in COMPLEX_KINDS


@composite()
def is_signed(input: Tensor) -> bool:
    """Returns whether the dtype can represent negative numbers.

    >>> torch.is_signed(torch.tensor([-1])), torch.is_signed(torch.tensor([True]))
    (True, False)
    """
    return input.dtype.is_signed


@composite()
def is_nonzero(input: Tensor) -> bool:
    """Returns whether the tensor's only element is nonzero.

    Raises:
        RuntimeError: If there is not exactly one element.

    >>> torch.is_nonzero(torch.tensor([0.5]))
    True
    """
    check_tensor("is_nonzero", input)
    return bool(input.to_dense() if input.is_sparse and input.numel() == 1 else input)


# --- the tensor ----------------------------------------------------------------------------------------------------


@composite("function")
def numel(input: Tensor) -> int:
    """Returns the number of elements.

    >>> torch.numel(torch.zeros(2, 3))
    6
    """
    return input.numel()


@composite()
def is_inference(input: Tensor) -> bool:
    """Returns whether the tensor was made in inference mode.

    >>> with torch.inference_mode():
    ...     x = torch.ones(2)
    >>> torch.is_inference(x), torch.is_inference(torch.ones(2))
    (True, False)
    """
    return input._storage.of_inference()


@composite()
def get_device(input: Tensor) -> int:
    """Returns the index of the CUDA device, or -1 on the CPU.

    >>> torch.get_device(torch.ones(2))
    -1
    """
    return input.device.index or 0 if input.is_cuda else -1


@composite()
def is_distributed(input: Tensor) -> bool:
    """Returns False always: PyTorch itself no longer has such tensors.

    >>> torch.is_distributed(torch.ones(2))
    False
    """
    check_tensor("is_distributed", input)
    return False


@composite()
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Returns whether two tensors have the same shape.

    >>> torch.is_same_size(torch.ones(2, 3), torch.ones(3, 2))
    False
    """
    return input._array.shape == other._array.shape


@composite("method")
def dim_order(self: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """Returns the dimensions in memory order, outermost first.

    Args:
        ambiguity_check: True to raise if the strides fit several orders; or a list of memory formats, exactly one of
            which must fit.

    Raises:
        RuntimeError: If the order is ambiguous.
        TypeError: If `ambiguity_check` is anything else.

    >>> torch.ones(2, 3).t().dim_order()
    (1, 0)
    """
    formats = ambiguity_check if isinstance(ambiguity_check, list) else []
    if not isinstance(ambiguity_check, bool | list) or not all(isinstance(f, memory_format) for f in formats):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    check = ambiguity_check is True or isinstance(ambiguity_check, list)
    shape, stride = self._array.shape, self.stride()
    several = 1 in shape or any(a == b for a, b in pairwise(stride))
    if check and several and sum(self.is_contiguous(memory_format=f) for f in formats) != 1:
        raise RuntimeError(
            "The tensor does not have unique dim order, or cannot map to exact one of the given memory formats."
        )
    dense, last = self.is_contiguous(), self.is_contiguous(memory_format=channels_last)
    if dense is not last or len(shape) < 2:
        return tuple(range(len(shape))) if not last else (0, 2, 3, 1)
    inwards = list(reversed(range(len(shape))))
    laid = [d for d in inwards if stride[d]]  # an expanded dimension has no order in memory: it keeps its position
    ordered = iter(sorted(laid, key=lambda d: (stride[d], shape[d])))
    outwards = [next(ordered) if stride[d] else d for d in inwards]
    steps = [stride[d] for d in outwards]
    if check and not all(0 < a < b for a, b in pairwise(steps)):
        raise RuntimeError("The tensor does not have unique dim order.")
    return tuple(reversed(outwards))


# --- its graph -----------------------------------------------------------------------------------------------------
