"""`torch.segment_reduce`: sums, means, products and extrema of consecutive segments of a dimension."""

from __future__ import annotations

import math

from tensorgrad.dispatch.kinds import alias, composite, number
from tensorgrad.dispatch.promotion import refuse_numbers
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import wrap_dim
from tensorgrad.ops.create import arange
from tensorgrad.ops.join import cat
from tensorgrad.ops.nn.bag import bag_extreme, bag_sum
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch import whole

_REDUCTIONS = ("sum", "mean", "prod", "max", "amax", "min", "amin")


@composite("function")
def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: number | None = None,
) -> Tensor:  # fmt: skip
    """Reduces consecutive segments of dimension `axis` of `data` to one slice each.

    Args:
        reduce: "sum", "mean", "prod", "max" or "min".
        lengths: the length of each segment, shape (*outer, S), where outer are the dimensions of `data` before `axis`.
        offsets: in place of lengths, shape (*outer, S + 1): where each segment starts, and the end of the last one.
        unsafe: allows `lengths` to cover less than the whole dimension.
        initial: the initial value of each reduction; by default the neutral element, but NaN for an empty mean.

    Raises:
        RuntimeError: If the segments do not fit the data.

    >>> torch.segment_reduce(torch.tensor([1.0, 2.0, 4.0]), "sum", lengths=torch.tensor([2, 1]))
    tensor([3., 4.])
    """
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    if not data.is_floating_point():
        raise NotImplementedError(f"\"_segment_reduce_cpu\" not implemented for '{scalar_type(data)}'")
    refuse_numbers(**{n: v for n, v in (("lengths", lengths), ("offsets", offsets)) if v is not None})
    cuts, by_length = (lengths, True) if offsets is None else (offsets, False)
    if cuts is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    axis = wrap_dim(axis, data.ndim)
    _check_cuts(data, cuts, axis, "lengths" if by_length else "offsets")
    outer, inner = data._array.shape[:axis], data._array.shape[axis + 1 :]
    count = cuts._array.shape[-1] - (not by_length)
    if data.is_meta:
        return data.new_empty((*outer, count, *inner))
    size = data._array.shape[axis]
    ends = cuts.long()
    if by_length:
        if bool((whole(cuts) < 0).any()):
            raise RuntimeError("lengths contains negative value!")
        ends = cat([ends.new_zeros((*outer, 1)), ends.cumsum(-1)], -1)
        if not unsafe and bool((whole(ends)[..., -1] != size).any()):
            raise RuntimeError(
                "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when "
                "!unsafe."
            )
    every = whole(ends)
    if bool((every.diff() < 0).any() | (every < 0).any() | (every > size).any()):
        raise RuntimeError(
            f"segment_reduce(): offsets must be in ascending order from 0 to at most {size}, the size of axis {axis}"
        )
    rows, width = math.prod(outer), math.prod(inner)
    result = _reduced(data.reshape(rows, size, width), ends.reshape(rows, count + 1), reduce, initial)
    return result.reshape((*outer, count, *inner))


alias("_segment_reduce", segment_reduce, "function")


def _check_cuts(data: Tensor, cuts: Tensor, axis: int, name: str) -> None:
    if data.ndim < cuts.ndim:
        raise RuntimeError(f"segment_reduce(): {name} has {cuts.ndim} dimensions, data only {data.ndim}")
    if axis != cuts.ndim - 1:
        raise RuntimeError(f"segment_reduce(): Expected axis to be the last dimension of {name} but got {axis}.")
    if cuts._array.shape[:axis] != data._array.shape[:axis]:
        raise RuntimeError(
            f"segment_reduce(): {name} of shape {list(cuts.shape)} does not fit data of shape {list(data.shape)}: all "
            f"dimensions before the last one must be the same"
        )
    if cuts._array.dtype.kind not in "iu":
        kernel = f"_segment_reduce_{name}_cpu_kernel1"
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type(cuts)}'")


def _reduced(blocks: Tensor, ends: Tensor, reduce: str, initial: number | None) -> Tensor:
    """Reduces the segments of `blocks` (N, size, width) cut at `ends` (N, S + 1), to (N · S, width)."""
    number, size, width = blocks._array.shape
    ends = ends + (_range(number, ends) * size).unsqueeze(1)
    starts, sizes = ends[:, :-1].reshape(-1), ends.diff().reshape(-1)
    count = sizes._array.shape[0]
    bags = _range(count, sizes).repeat_interleave(sizes)
    rows = blocks.reshape(number * size, width)
    if bags._array.shape[0] != rows._array.shape[0]:  # there are gaps between the segments
        indices = (starts - (sizes.cumsum(0) - sizes)).repeat_interleave(sizes)
        rows = rows[indices + _range(indices._array.shape[0], indices)]
    if reduce == "prod":
        result = _products(rows, sizes)
        return result if initial is None else result * initial
    if reduce not in ("sum", "mean"):
        largest = reduce.endswith("max")
        result = bag_extreme(rows, bags, count, largest)
        if initial is None:
            return result
        return result.masked_fill(result < initial if largest else result > initial, initial)
    total = bag_sum(rows, bags, count)
    if initial is not None:
        total = total + initial
    if reduce == "sum":
        return total
    divisors = sizes if initial is None else sizes.clamp(min=1)
    return total / divisors.unsqueeze(1).to(total.dtype)


def _products(rows: Tensor, sizes: Tensor) -> Tensor:
    """Computes the product of each segment's rows, for all segments of one length at a time."""
    starts = sizes.cumsum(0) - sizes
    products, indices = [rows[:0]], [sizes[:0]]
    for size in sizes.unique().tolist():
        same = (sizes == size).nonzero().squeeze(1)
        products.append(rows[starts[same].unsqueeze(1) + _range(size, sizes)].prod(1))
        indices.append(same)
    return cat(products)[cat(indices).argsort()]


def _range(count: int, like: Tensor) -> Tensor:
    return arange(count, device=like.device)
