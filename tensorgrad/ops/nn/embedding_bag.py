"""Bags of embeddings: looks up rows of a table and sums, averages or maximizes over them."""

from __future__ import annotations

import numpy as np

from tensorgrad.autograd.graph import legacy_type_name
from tensorgrad.autograd.modes import no_grad
from tensorgrad.dispatch.kinds import composite
from tensorgrad.dtypes import F32, I64
from tensorgrad.errors import warn
from tensorgrad.kernels.array import index as kernels
from tensorgrad.ops.create import arange
from tensorgrad.ops.nn.bag import bag_argmax, bag_numbers, bag_sum, lookup, lookup_max
from tensorgrad.ops.nn.embedding import check_indices, embedding_renorm_, looked_up
from tensorgrad.ops.sort import searchsorted
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch import whole

_MODES = ("sum", "mean", "max")


@composite("function", name="embedding_bag")
def _torch_embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """`torch.nn.functional.embedding_bag` with its intermediate results; `mode`: 0 sum, 1 mean, 2 max.

    Returns:
        The bags (B, width); the bag of each index; how many indices count in each bag (zeros for sums); and in mode 2
        the row of the table that each maximum came from (B, width), else the third result again.

    >>> table = torch.tensor([[1.0], [2.0], [4.0]])
    >>> torch.embedding_bag(table, torch.tensor([0, 2, 1]), torch.tensor([0, 2]), mode=1)[0]
    tensor([[2.5000],
            [2.0000]])
    """
    for what, tensor, ndims in (("input", indices, (1, 2)), ("offsets", offsets, (1,)), ("weight", weight, (2,))):
        if tensor.ndim not in ndims:
            allowed = " or ".join(f"{n}D" for n in ndims)
            raise RuntimeError(f"{what} has to be a {allowed} Tensor, but got Tensor of dimension {tensor.ndim}")
    indices = indices.reshape(-1)
    padding_idx = _check_bags(weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx)
    count = offsets._array.shape[0] - include_last_offset
    if any(whole(t) is not t for t in (indices, offsets)):
        rows = looked_up(weight, indices, padding_idx, scale_grad_by_freq, False)
        return _bags_of_each(rows, indices, offsets, count, mode, per_sample_weights, include_last_offset, padding_idx)
    # Indices after the last bag belong to none. But PyTorch counts them in the last bag wherever its fastest loop, for
    # sums and means of every row in single precision or less, does not apply.
    if include_last_offset and count and (padding_idx >= 0 or mode == 2 or weight._array.dtype.itemsize == 8):
        offsets, include_last_offset = offsets[:-1], False
    if (include_last_offset or not count) and not offsets.is_meta:
        end = int(offsets[-1]) if count else 0
        indices = indices[:end]
        per_sample_weights = None if per_sample_weights is None else per_sample_weights[:end]
    all_bags = bags = bag_numbers(offsets, indices._array.shape[0], not include_last_offset)
    if padding_idx >= 0 and not indices.is_meta:
        kept = (indices != padding_idx).nonzero().squeeze(1)
        indices, bags = indices[kept], bags[kept]
        per_sample_weights = None if per_sample_weights is None else per_sample_weights[kept]
    rows = looked_up(weight, indices, padding_idx, scale_grad_by_freq, sparse)
    sizes = bags.new_zeros(count)
    if mode:
        sizes = sizes.index_add(0, bags, bags.new_ones(bags._array.shape))
    if mode == 2:
        out, chosen = _bag_max(rows, indices, bags, count)
        return out, all_bags, sizes, chosen
    out = bag_sum(rows, bags, count, per_sample_weights, ties_up=padding_idx < 0)  # PyTorch has two loops
    if mode == 1:
        out = out / sizes.clamp(min=1).unsqueeze(1).to(out.dtype)
    return out, all_bags, sizes, sizes.clone()


@composite("functional")
def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None, norm_type: float = 2,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """Computes the sum, mean or maximum over bags of rows of the table `weight` (rows, width): a tensor (B, width).

    Args:
        input: row indices, (B, n) with n in each bag; or those of all bags in one dimension.
        offsets: (B) where each bag starts in a one-dimensional `input`; with `include_last_offset`, (B + 1), where the
            last one is the end of the last bag.
        max_norm: if given, first scales down, in place, the used rows whose `norm_type`-norm is larger.
        scale_grad_by_freq: whether to divide a row's gradient by the number of times it is used.
        mode: "sum", "mean" or "max". An empty bag gives zeros.
        sparse: whether the gradient of the table is a sparse tensor (see `embedding`); not for "max".
        per_sample_weights: of the shape of `input`: a factor for each looked-up row of a sum.
        padding_idx: the index of a row that is ignored and gets no gradient.

    Raises:
        ValueError, RuntimeError: If the arguments do not fit together.

    >>> table = torch.tensor([[1.0], [2.0], [4.0]])
    >>> torch.nn.functional.embedding_bag(torch.tensor([[0, 1], [1, 2]]), table, mode="sum")
    tensor([[3.],
            [6.]])
    """
    if weight._array.dtype == I64 and input.is_floating_point():
        warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, ...)` is "
            "deprecated, and should now be `embedding_bag(input, weight, ...)`.",
        )
        weight, input = input, weight
    if per_sample_weights is not None and input._array.shape != per_sample_weights._array.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then it must have the "
            f"same shape as the input ({input.shape})"
        )
    if weight.ndim != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    plain = per_sample_weights is None and padding_idx is None and max_norm is None and not scale_grad_by_freq
    if plain and mode in _MODES and not include_last_offset and not sparse:
        if input.ndim == 2 and offsets is None and (mode != "max" or input._array.shape[1]):
            _check_types(weight, input, None)
            if not input.is_meta:
                _check_indices(_host(input), weight._array.shape[0])
            return lookup_max(weight, input)[0] if mode == "max" else lookup(weight, input, None, mode == "mean")
        if mode != "max" and input.ndim == 1 and offsets is not None and offsets.ndim == 1 and offsets._array.size:
            _check_bags(weight, input, offsets, _MODES.index(mode), None, False, None)
            return lookup(weight, input, offsets, mode == "mean")
    input, offsets, per_sample_weights = _flat(input, offsets, per_sample_weights, include_last_offset)
    if mode not in _MODES:
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and (scale_grad_by_freq or sparse):
        what = "scaling the gradient by the frequency" if scale_grad_by_freq else "sparse weights"
        raise ValueError(f"max mode does not support {what}")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' "
            f"(got mode='{mode}'). Please open a feature request on GitHub."
        )
    if max_norm is not None:
        with no_grad():
            embedding_renorm_(weight, input, max_norm, norm_type)
    return _torch_embedding_bag(
        weight, input, offsets, scale_grad_by_freq, _MODES.index(mode), sparse, per_sample_weights,
        include_last_offset, padding_idx,
    )[0]  # fmt: skip


def _flat(input: Tensor, offsets, per_sample_weights, include_last_offset: bool):
    """Returns one-dimensional indices with the offsets of their bags, and the weights. Raises: ValueError."""
    if input.ndim == 1:
        if offsets is None or offsets.ndim != 1:
            raise ValueError(f"offsets has to be a 1D Tensor{' but got None' if offsets is None else ''}")
        return input, offsets, per_sample_weights
    if input.ndim != 2:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    if offsets is not None:
        raise ValueError(
            "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length "
            f"sequences. However, found offsets of type {type(offsets)}"
        )
    bags, size = input._array.shape
    starts = [size * k for k in range(bags + include_last_offset)]
    if per_sample_weights is not None:
        per_sample_weights = per_sample_weights.reshape(-1)
    return input.reshape(-1), input.new_tensor(starts), per_sample_weights


def _bags_of_each(rows, indices, offsets, count: int, mode: int, weights, include_last_offset: bool, padding_idx: int):
    """The results of `torch.embedding_bag` where bags differ between the samples of a batch (vmap).

    Rows that do not count belong to a further bag, which is dropped.
    """
    number = arange(len(indices), device=indices.device)
    starts = offsets[:count].to(number.dtype)
    bags = searchsorted(starts, number, right=True) - 1
    kept = indices != padding_idx
    if include_last_offset:
        kept = kept & (number < offsets[-1])
    into = bags.masked_fill(~kept, count)
    sizes = into.new_zeros(count + 1).index_add(0, into, into.new_ones(into.shape))[:count]
    if mode == 2:
        spread = into.unsqueeze(1).expand(rows.shape)
        zeros = rows.new_zeros((count + 1, rows.shape[1]))
        out = zeros.scatter_reduce(0, spread, rows, "amax", include_self=False)
        hit = rows == out.index_select(0, into)
        first = number.unsqueeze(1).where(hit, len(indices))
        at = spread.new_zeros(zeros.shape).scatter_reduce(0, spread, first, "amin", include_self=False)
        chosen = indices[at.clamp(max=max(len(indices) - 1, 0))] if len(indices) else at
        return out[:count], bags, sizes, chosen[:count].masked_fill((sizes == 0).unsqueeze(1), 0)
    rows = rows if weights is None else rows * weights.unsqueeze(1)
    out = rows.new_zeros((count + 1, rows.shape[1])).index_add(0, into, rows)[:count]
    if mode == 1:
        out = out / sizes.clamp(min=1).unsqueeze(1).to(out.dtype)
    return out, bags.to(offsets.dtype), sizes.to(offsets.dtype) if mode else sizes * 0, sizes if mode else sizes * 0


def _bag_max(rows: Tensor, indices: Tensor, bags: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns each bag's maxima, and the rows of the table they are from; zeros for empty bags."""
    if not rows._array.shape[0]:
        return bag_sum(rows, bags, count), indices.new_zeros((count, rows._array.shape[1]))
    at = bag_argmax(rows.detach(), bags, count)
    empty = at < 0
    at = at.masked_fill(empty, 0)
    return rows.gather(0, at).masked_fill(empty, 0), indices[at].masked_fill(empty, 0)


def _check_bags(weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx) -> int:
    """Returns the index of the padding row, or -1. Raises: RuntimeError for arguments that do not fit together."""
    rows, length = weight._array.shape[0], indices._array.shape[0]
    if padding_idx is None:
        padding_idx = -1
    elif not -rows <= padding_idx < rows:
        raise RuntimeError(
            f"padding_idx must be within the number of embeddings, -{rows} through {rows - 1}, but got {padding_idx}"
        )
    else:
        padding_idx %= rows
    if mode not in (0, 1, 2):
        raise RuntimeError("`mode` must be sum, mean, or max.")
    _check_types(weight, indices, offsets)
    if per_sample_weights is not None:
        if mode:
            raise RuntimeError("embedding_bag: per_sample_weights only supported with mode='sum'")
        if per_sample_weights.dtype != weight.dtype:
            raise RuntimeError(
                "Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 "
                f"'per_sample_weights'; but type {legacy_type_name(weight._array)} does not equal "
                f"{legacy_type_name(per_sample_weights._array)} (while checking arguments for embedding_bag)"
            )
        if per_sample_weights._array.shape != (length,):
            raise RuntimeError(
                f"embedding_bag: expected per_sample_weights of shape {[length]}, one per index, got "
                f"{list(per_sample_weights.shape)}"
            )
    if include_last_offset and not offsets._array.size:
        raise RuntimeError("include_last_offset: number of offset should be at least 1")
    if not indices.is_meta:
        _check_values(_host(indices), _host(offsets), rows)
    return padding_idx


def _host(tensor: Tensor):
    tensor = whole(tensor)
    return tensor._storage.to_host(tensor._array)


def _check_types(weight, indices, offsets) -> None:
    check_indices(indices._array, 1, "embedding_bag")
    if offsets is not None:
        check_indices(offsets._array, 1, "embedding_bag")
    if weight._array.dtype is not F32 and weight._array.dtype.name not in ("float16", "bfloat16", "float64"):
        raise RuntimeError(
            "Expected tensor for argument #1 'weight' to have one of the following scalar types: Half, BFloat16, "
            f"Float, Double; but got {legacy_type_name(weight._array)} instead (while checking arguments for "
            "embedding_bag)"
        )


def _check_values(indices, offsets, rows: int) -> None:
    if offsets.size:
        first, last, length = offsets[..., 0], offsets[..., -1].max(), indices.shape[-1]
        if (first != 0).any():
            raise RuntimeError(
                "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. "
                f"However, got {int(first[first != 0].reshape(-1)[0])}"
            )
        if last > length:
            raise RuntimeError(
                f"offsets[-1] can not be greater than input's length {length} but got offsets[-1] of {int(last)}"
            )
        if bool((offsets[..., 1:] < offsets[..., :-1]).any()):
            raise RuntimeError("embedding_bag: offsets have to be in ascending order")
    _check_indices(indices, rows)


def _check_indices(indices, rows: int) -> None:
    if not indices.size:
        return
    low, high = kernels.extremes(np, indices)
    if low < 0 or high >= rows:
        indices = indices.reshape(-1)
        position = int(((indices < 0) | (indices >= rows)).nonzero()[0][0])
        value = int(indices[position])
        raise RuntimeError(
            f"Index {position} of input takes value {value} which is not in the valid range [0, {rows}): "
            f"Expected idx >= 0 && idx < num_embeddings but found idx to be {value}"
        )
