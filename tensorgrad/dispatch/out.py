"""`out=`: results stored in the caller's tensors, by one set of rules for every op and composite.

    return store_out("softmax", out, result)

While gradients are recorded, neither `out` nor an input may require grad. `out` is on the result's device and has a
dtype in which the op can store its result (dispatch/out_dtype.py). If it has another shape it is resized, with a
warning unless it was empty. Everything is checked before the first write.
"""

from __future__ import annotations

from tensorgrad.autograd.modes import GRAD
from tensorgrad.dispatch.out_dtype import check_own_dtype
from tensorgrad.dispatch.resizing import resize
from tensorgrad.errors import warn
from tensorgrad.layouts import dense_order, memory_strides, strided
from tensorgrad.rows.switches import LOCAL
from tensorgrad.tensor import Tensor, tensors_in


def store_out(name: str, out, result, inputs=(), *, pointwise: bool = False, quietly: bool = False):
    """Stores `result` (a tensor or a tuple of them) in `out` and returns `out`; returns `result` if `out` is None.

    `out` may not overlap with `inputs` (see `check_overlap`); `quietly` resizes without a warning.

    Raises: TypeError if `out` is not a tensor (or a tuple of as many), RuntimeError if it breaks one of the rules
    above.
    """
    if out is None:
        return result
    refuse_grad(name, (out, result))
    inputs = tuple(inputs)
    pointwise = pointwise or name in POINTWISE_TOO
    several = isinstance(result, tuple)
    if several and (not isinstance(out, list | tuple) or len(out) != len(result)):
        raise TypeError(f"{name}(): out must be a tuple of {len(result)} tensors")
    pairs = list(zip(out, result, strict=True)) if several else [(out, result)]
    for nr, (target, value) in enumerate(pairs):
        if not isinstance(target, Tensor):
            raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(target).__name__}")
        _check(name, target, value, inputs, nr, pointwise)
        if pointwise and target._array.shape != value._array.shape and any(target is tensor for tensor in inputs):
            raise RuntimeError(  # resizing it would change the input
                f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(value.shape)}"
            )
    check_overlap(name, pointwise, out, inputs)
    for target, value in pairs:
        _store(target, value, pointwise, quietly)
    return out if not several else type(result)(out)


def refuse_grad(name: str, values) -> None:
    """Raises: RuntimeError if gradients are recorded and a tensor among `values` requires grad."""
    if GRAD.enabled and any(t.requires_grad for t in tensors_in(values)):
        raise RuntimeError(
            f"{name.rstrip('_')}(): functions with out=... arguments don't support automatic differentiation, but one "
            "of the arguments requires grad."
        )


# These read their output while they write it, so PyTorch does not let them write over an input at all.
_READ_AFTER_WRITE = frozenset((
    "cat", "cross_product", "gather", "index", "index_select", "kron", "kthvalue", "masked_select", "outer", "stack",
    "take",
))  # fmt: skip


# These copy their first input to the output, and then write to it at indices while they read the others.
WRITES_AT_INDICES = frozenset((
    "index_add", "index_copy", "index_reduce", "put", "scatter", "scatter_add", "scatter_reduce",
))  # fmt: skip

# Pointwise in PyTorch, though their rows are of another kind.
POINTWISE_TOO = frozenset(("heaviside", "where", "masked_fill"))

# These copy their first input to the output, or write where they have read.
_COPIES_FIRST = frozenset(("addmm", "logcumsumexp", "cumsum", "renorm", "sort", "topk"))


def check_overlap(name: str, pointwise: bool, out, inputs) -> None:
    """Raises: RuntimeError if `out` shares memory with an input, unless both are the same view.

    As in PyTorch, only dense tensors are checked: interleaved ones pass.
    """
    refuses, at_indices = name in _READ_AFTER_WRITE, name in WRITES_AT_INDICES
    if not (pointwise or refuses or at_indices or name in _COPIES_FIRST):
        return
    for target in tensors_in((out,)):
        if target._storage.layout is not strided:
            continue
        for nr, tensor in enumerate(inputs[:1] if name in _COPIES_FIRST else inputs):
            if target._storage is tensor._storage:
                check_apart(target, tensor, f" ({name}, out=)", refuses or (at_indices and nr > 0))


def check_sources(target: Tensor, sources, refuses: bool = False) -> None:
    """Raises: RuntimeError if a tensor among `sources`, which a write to `target` reads, overlaps it (see
    `check_apart`)."""
    memory = target._memory
    for source in sources:
        if source is target:
            overlap = refuses
        else:
            overlap = memory is not None and isinstance(source, Tensor) and source._memory is memory
        if overlap and target._storage.layout is strided:
            check_apart(target, source, refuses=refuses)


def check_apart(target: Tensor, source: Tensor, where: str = "", refuses: bool = False) -> None:
    """Raises: RuntimeError if two dense tensors of one storage overlap and are not the same view (or, with `refuses`,
    are)."""
    start, stop, _ = span = _span(target)
    other_start, other_stop, _ = other = _span(source)
    if max(start, other_start) < min(stop, other_stop) and (refuses or span != other):
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
            f"single memory location. Please clone() the tensor before performing the operation.{where}"
        )


def _span(tensor) -> tuple:
    """The range of a dense tensor's elements in its storage, shape and strides; an empty range for one with gaps."""
    array = tensor._array
    reach = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    extent = reach + array.dtype.itemsize if array.size else 0
    if extent != array.size * array.dtype.itemsize:
        return 0, 0, (array.shape, array.strides)
    start = tensor.storage_offset() * array.dtype.itemsize
    return start, start + extent, (array.shape, array.strides)


def _check(name: str, out: Tensor, result: Tensor, inputs: tuple, nr: int, pointwise: bool) -> None:
    check_own_dtype(name, out, result, inputs, nr, pointwise)
    if out.device != result.device:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {result.device} and "
            f"{out.device}! ({name}, out=)"
        )
    check_no_overlap(out)


def is_expanded(array) -> bool:
    """Whether several elements share memory."""
    return array.size > 0 and any(s == 0 and n > 1 for s, n in zip(array.strides, array.shape, strict=True))


def check_no_overlap(tensor: Tensor) -> None:
    """Raises: RuntimeError for an expanded tensor, in which several elements share memory."""
    array = tensor._array
    if 0 in array.strides and is_expanded(array):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )


def _store(out: Tensor, result: Tensor, pointwise: bool, quietly: bool) -> None:
    if out._array.shape != result._array.shape:
        if out._array.size and not quietly:
            warn(
                f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does "
                f"not match the required output shape {list(result.shape)}. This behavior is deprecated, and in a "
                "future PyTorch release outputs will not be resized unless they have zero elements. You can "
                "explicitly reuse an out tensor t by resizing it, inplace, to zero elements with t.resize_(0).",
            )
        if out._storage.layout is not strided:
            out._array.shape = result._array.shape
        elif LOCAL.transforms:  # resizes each sample
            out.resize_(result._array.shape)
        else:
            shape, itemsize = result._array.shape, out._array.itemsize
            as_result = pointwise and dense_order(result._array)  # in the layout that the operands decide
            strides = result.stride() if as_result else memory_strides(shape, None)
            resize(out, shape, tuple(n * itemsize for n in strides))
    if LOCAL.transforms and LOCAL.transforms[-1].stored(out, result):
        return
    storage = out._storage
    storage.write(out._array, result._array)
    storage.bump()
