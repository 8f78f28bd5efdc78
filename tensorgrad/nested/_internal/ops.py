"""What each op does with nested tensors of the jagged layout.

Functions on corresponding elements, most of all, run on the values (`elementwise`); so do reductions of dimensions that
are in the values, and views of these. What concerns the ragged dimension goes through padded tensors, or through the
pieces. As in PyTorch, what would mix the pieces of the batch raises an error.

A rule is a function of the function that was called and its arguments, under the names that the function has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorgrad as torch
from tensorgrad import layouts
from tensorgrad.errors import wrap_dim
from tensorgrad.nested._internal import nested_int
from tensorgrad.nested._internal.base import (
    Nested,
    dropout,
    indexing,
    is_in_place,
    mapped,
    name_of,
    nested_in,
    requires_grad_,
)
from tensorgrad.nested._internal.nested_int import NestedInt
from tensorgrad.nested._internal.nested_tensor import NestedTensor, jagged_from_list, nested_from_padded, offsets_of
from tensorgrad.tensor import Tensor

__all__ = ["RULES", "elementwise", "extract_kwargs"]

RULES: dict[str, Callable] = {}

Jagged = Any  # a NestedTensor: its methods are these rules, which mypy does not know


def rule(*names: str, packed: str = "") -> Callable:
    """Makes a function the rule for functions of these names; the argument called `packed` must have no gaps and be
    ragged in dimension 1."""

    def register(function: Callable) -> Callable:
        for name in names:
            RULES[name] = _checked(function, name, packed) if packed else function
        return function

    return register


def _checked(function: Callable, name: str, packed: str) -> Callable:
    def check(func: Any, *args: Any, **kwargs: Any) -> Any:
        given = kwargs[packed] if packed in kwargs else args[0]
        if isinstance(given, NestedTensor) and (given._lengths is not None or given._ragged_idx != 1):
            raise ValueError(
                f"NestedTensor {name}({packed}: jt): expected {packed} to be a contiguous jagged layout NestedTensor"
            )
        return function(func, *args, **kwargs)

    return check


def extract_kwargs(arg: Any) -> dict[str, Any]:
    """Returns what a nested tensor of other values takes to have the same pieces: for libraries, which import it."""
    return {
        "offsets": arg._offsets,
        "lengths": arg._lengths,
        "_metadata_cache": arg._metadata_cache,
        "_ragged_idx": arg._ragged_idx,
    }


# --- dimensions ------------------------------------------------------------------------------------------------------


def _inner(x: Jagged, dim: int) -> int:
    """A dimension of the whole as one of the values, where batch and ragged dimension are one."""
    return x._ragged_idx - 1 if dim == 0 else dim - 1


def _dim(x: Jagged, dim: int, name: str, ndim: int | None = None, ragged: bool = False) -> int:
    """A dimension, neither the batch nor (unless allowed) the ragged one, as one of the values.

    Raises: RuntimeError for those.
    """
    dim = wrap_dim(dim, x.dim() if ndim is None else ndim)
    if dim == x._ragged_idx and not ragged:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on ragged dim")
    if dim == 0:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on dim=0")
    return _inner(x, dim)


def raggedness_matches(x: Jagged, size: Sequence) -> bool:
    """Whether a shape begins as that of `x` does, up to the ragged dimension; -1 fits any size."""
    own = x._size[: x._ragged_idx + 1]
    return len(size) >= len(own) and all(n == m or m == -1 for n, m in zip(own, size))


# --- padded tensors --------------------------------------------------------------------------------------------------


def _padded(x: Jagged, padding: Any, length: int | None = None) -> Tensor:
    """The pieces as one ordinary tensor (B, ..., length, ...), filled up with `padding`, or cut off."""
    if x._lengths is not None:
        raise RuntimeError("to_padded_tensor(): not supported for nested tensors with holes")
    longest = x._max_seqlen if length is None else length
    rows = x._values.movedim(x._ragged_idx - 1, 0)
    place = torch.arange(longest, device=rows.device)
    inside = place < x._offsets.diff().unsqueeze(1)  # (B, length)
    index = torch.where(inside, x._offsets[:-1].unsqueeze(1) + place, len(rows))
    filled = torch.cat([rows, rows.new_full((1, *rows.shape[1:]), padding)])  # the last row is what is added
    return filled[index].movedim(1, x._ragged_idx)


def _lowest(dtype: Any) -> Any:
    return (
        torch.finfo(dtype).min if dtype.is_floating_point else False if dtype is torch.bool else torch.iinfo(dtype).min
    )


def _largest(dtype: Any) -> Any:
    return (
        torch.finfo(dtype).max if dtype.is_floating_point else True if dtype is torch.bool else torch.iinfo(dtype).max
    )


@rule("to_padded_tensor")
def _to_padded_tensor(func: Any, input: Jagged, padding: Any, output_size: Any = None) -> Tensor:
    return _padded(input, padding, None if output_size is None else output_size[input._ragged_idx])


# --- corresponding elements ------------------------------------------------------------------------------------------


def _values_for(name: str, x: Jagged, other: Any) -> Any:
    """An argument as it meets the values of `x`: broadcast over batch and ragged dimension.

    Raises: RuntimeError if the shapes do not fit, NotImplementedError if it has more dimensions than `x`.
    """
    if isinstance(other, NestedInt):
        raise RuntimeError(f"NestedTensor {name}: invalid argument {other}")
    if isinstance(other, NestedTensor):
        if not raggedness_matches(x, other._size):
            raise RuntimeError(
                f"cannot call binary pointwise function {name} with inputs of shapes {x._size} and {other._size}"
            )
        return other._values
    if not isinstance(other, Tensor):
        return other
    if other.ndim > x.dim():
        raise NotImplementedError("NYI: broadcasting NT with T with larger dim")
    leading = 0
    while leading < other.ndim and other.shape[leading] == 1:
        leading += 1
    if x.dim() >= other.ndim - leading + 2:
        return other.reshape(other.shape[leading:])
    at = x._ragged_idx
    if x.dim() != other.ndim or x._size[:at] != tuple(other.shape[:at]):
        raise RuntimeError(
            f"cannot call binary pointwise function {name} with inputs of shapes {x.shape} and {other.shape}"
        )
    length = x._max_seqlen
    other = other.expand([length if d == at else n for d, n in enumerate(other.shape)])
    return nested_from_padded(other, x._offsets, at)._values


def elementwise(func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Runs a function of corresponding elements on the values."""
    name = name_of(func)
    if kwargs.get("out") is not None:
        raise NotImplementedError(f"{name}: out= is not supported for nested tensors")
    x = next(nested_in((*args, *kwargs.values())))
    given = [value if value is x else _values_for(name, x, value) for value in args]
    given = [value._values if value is x else value for value in given]
    named = {key: x._values if value is x else _values_for(name, x, value) for key, value in kwargs.items()}
    if is_in_place(name):
        if args[0] is not x:
            raise RuntimeError(f"{name}: a nested tensor cannot be written over an ordinary one")
        func(*given, **named)
        return x
    return mapped(func(*given, **named), x._with)


NestedTensor._elementwise = staticmethod(elementwise)
NestedTensor._rules = RULES


@rule("where")
def _where(func: Any, condition: Any, input: Any, other: Any) -> Any:
    x = next(nested_in((condition, input, other)))
    if not isinstance(condition, NestedTensor):
        raise ValueError("NestedTensor where(condition: jt_all): expected condition to be a jagged layout NestedTensor")
    for value in (input, other):
        if isinstance(value, Tensor) and not isinstance(value, Nested) and value.ndim >= x.dim():
            raise ValueError(
                "broadcast_tensors(): broadcasting nested tensors with dense tensors of equal or higher dim is not "
                "currently supported"
            )
    values = [x._values if value is x else _values_for("where", x, value) for value in (condition, input, other)]
    return x._with(func(*values))


@rule("clone", "contiguous")
def _clone(func: Any, input: Jagged, *, memory_format: Any = None) -> Jagged:
    contiguous = name_of(func) == "contiguous"
    if contiguous and input.is_contiguous():
        return input
    if input._lengths is not None and (contiguous or memory_format is layouts.contiguous_format):
        return jagged_from_list(input._pieces(), None)[0]
    return input._with(
        func(input._values) if memory_format is None else func(input._values, memory_format=memory_format)
    )


@rule("to", "cpu", "cuda")
def _to(func: Any, input: Jagged, *args: Any, **kwargs: Any) -> Jagged:
    kwargs.pop("layout", None)
    args = tuple(value._values if isinstance(value, NestedTensor) else value for value in args)
    values = func(input._values, *args, **kwargs)
    return input if values is input._values else _moved(input, values)


def _moved(x: Jagged, values: Tensor) -> Jagged:
    """Other values of the same pieces, which may be on another device."""
    if values.device == x._values.device:
        return x._with(values)
    offsets = nested_int.share_size(x._offsets, x._offsets.to(values.device))
    lengths = None if x._lengths is None else nested_int.share_size(x._lengths, x._lengths.to(values.device))
    return NestedTensor(values, offsets, lengths=lengths, _ragged_idx=x._ragged_idx, _metadata_cache=x._metadata_cache)


@rule("zeros_like", "ones_like", "empty_like", "rand_like", "randn_like", "full_like", "randint_like")
def _like(func: Any, input: Jagged, *args: Any, **kwargs: Any) -> Jagged:
    kwargs.pop("layout", None)
    return _moved(input, func(input._values, *args, **kwargs))


@rule("new_zeros", "new_ones", "new_empty")
def _new(func: Any, input: Jagged, *size: Any, **kwargs: Any) -> Tensor:
    shape = size[0] if len(size) == 1 and isinstance(size[0], tuple | list) else size
    if len(shape):
        raise RuntimeError("new_empty() not supported for NJT with shape != ()")
    kwargs.pop("layout", None)
    return func(input._values, (), **kwargs)


@rule("copy_")
def _copy(func: Any, input: Jagged, src: Any, non_blocking: bool = False) -> Jagged:
    for name, value in (("self", input), ("src", src)):
        if not isinstance(value, NestedTensor):
            raise ValueError(f"NestedTensor copy_({name}: jt_all): expected {name} to be a jagged layout NestedTensor")
    if input._size == src._size and input._lengths is None:
        input._values.copy_(src._values)
        return input
    mine, theirs = input._pieces(), src._pieces()
    if [p.shape for p in mine] != [p.shape for p in theirs]:
        raise RuntimeError(f"copy_(): expected compatible input and src shapes, but got: {input.shape} and {src.shape}")
    if input._lengths is None:
        input._values.copy_(torch.cat(theirs, input._ragged_idx - 1))
        return input
    for target, source in zip(mine, theirs):
        target.copy_(source)
    return input


@rule("zero_")
def _zero(func: Any, input: Jagged) -> Jagged:
    input._values.zero_()
    return input


rule("requires_grad_")(requires_grad_)


@rule("pin_memory", packed="input")
def _pin_memory(func: Any, input: Jagged, *args: Any, **kwargs: Any) -> Jagged:
    return input._with(func(input._values, *args, **kwargs))


@rule("share_memory_")
def _share_memory(func: Any, input: Jagged) -> Jagged:
    for part in (input._values, input._offsets, input._lengths):
        if part is not None:
            part.share_memory_()
    return input


@rule("apply_")
def _apply(func: Any, input: Jagged, callable: Any) -> Jagged:
    input._values.apply_(callable)
    return input


rule("dropout", packed="input")(dropout)


# --- reductions ------------------------------------------------------------------------------------------------------


def _reduce(func: Any, name: str, x: Jagged, dim: Any, keepdim: bool, padding: Any, **options: Any) -> Any:
    """A reduction of some dimensions.

    Raises: RuntimeError if it is of the batch alone, or of the ragged dimension and others that are not the batch, or
    of a ragged dimension with gaps.
    """
    if dim is None or (isinstance(dim, tuple | list) and not dim):
        made = func(x._values, **options)
        return mapped(made, lambda t: t.unsqueeze(x._ragged_idx)) if keepdim and x._ragged_idx <= made.ndim else made
    listed = isinstance(dim, tuple | list)
    dims = [wrap_dim(d, x.dim()) for d in (dim if listed else (dim,))]
    inner = list(dict.fromkeys(_inner(x, d) for d in dims))
    batch, ragged = 0 in dims, x._ragged_idx in dims
    others = any(d not in (0, x._ragged_idx) for d in dims)
    if ragged and x._lengths is not None:
        raise RuntimeError(
            f"{name}(): reducing across the ragged dimension is not supported for non-contiguous nested tensors with "
            "holes"
        )
    given = inner if listed else inner[0]
    if ragged and batch:
        made = func(x._values, given, keepdim, **options)
        return mapped(made, lambda t: t.unsqueeze(0)) if keepdim else made
    if ragged:
        if others:
            raise RuntimeError(
                f"{name}(): reducing along a ragged and non-batch dimension is not supported for nested tensors"
            )
        return func(_padded(x, padding), [x._ragged_idx] if listed else x._ragged_idx, keepdim, **options)
    if batch:
        raise RuntimeError(
            f"{name}(): reducing along the batch dimension but not the ragged dimension is not supported for nested "
            "tensors"
        )
    before = 0 if keepdim else sum(d < x._ragged_idx - 1 for d in inner)
    made = func(x._values, given, keepdim, **options)
    return mapped(made, lambda t: x._with(t, x._ragged_idx - before))


def _dtype(dtype: Any) -> dict[str, Any]:
    return {} if dtype is None else {"dtype": dtype}


@rule("sum")
def _sum(func: Any, input: Jagged, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return _reduce(func, "sum", input, dim, keepdim, 0, **_dtype(dtype))


@rule("prod")
def _prod(func: Any, input: Jagged, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return _reduce(func, "prod", input, dim, keepdim, 1, **_dtype(dtype))


@rule("mean")
def _mean(func: Any, input: Jagged, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    dims = [] if dim is None else [wrap_dim(d, input.dim()) for d in (dim if isinstance(dim, tuple | list) else (dim,))]
    if input._ragged_idx not in dims or 0 in dims:
        return _reduce(func, "mean", input, dim, keepdim, 0, **_dtype(dtype))
    if len(dims) > 1:
        raise AssertionError("Cannot reduce on both ragged and non-batch dimensions without also reducing on batch")
    total = _reduce(torch.sum, "mean", input, dim, True, 0, **_dtype(dtype))
    made = total / input._length_of_each().reshape(-1, *[1] * (total.ndim - 1))
    return made if keepdim else made.squeeze(input._ragged_idx)


@rule("any")
def _any(func: Any, input: Jagged, dim: Any = None, keepdim: bool = False) -> Any:
    return _reduce(func, "any", input, dim, keepdim, False)


@rule("all")
def _all(func: Any, input: Jagged, dim: Any = None, keepdim: bool = False) -> Any:
    return _reduce(func, "all", input, dim, keepdim, True)


@rule("max", "min")
def _max_min(func: Any, input: Jagged, dim: Any = None, keepdim: bool = False) -> Any:
    if isinstance(dim, Tensor):
        return elementwise(func, (input, dim), {})
    largest = name_of(func) == "max"
    padding = (_lowest if largest else _largest)(input.dtype)
    return _reduce(func, name_of(func), input, dim, keepdim, padding)


@rule("amax", "argmax")
def _amax(func: Any, input: Jagged, dim: Any = None, keepdim: bool = False) -> Any:
    return _reduce(func, name_of(func), input, dim, keepdim, _lowest(input.dtype))


@rule("amin", "argmin")
def _amin(func: Any, input: Jagged, dim: Any = None, keepdim: bool = False) -> Any:
    return _reduce(func, name_of(func), input, dim, keepdim, _largest(input.dtype))


# --- pieces and views ------------------------------------------------------------------------------------------------


@rule("unbind")
def _unbind(func: Any, input: Jagged, dim: int = 0) -> tuple[Tensor, ...]:
    if dim != 0:
        raise RuntimeError("unbind(): only supported for NestedTensor on dim=0")
    return tuple(input._pieces())


@rule("select")
def _select(func: Any, input: Jagged, dim: int, index: int) -> Any:
    if wrap_dim(dim, input.dim()) == 0:
        count = input._size[0]
        if not -count <= index < count:
            raise IndexError(
                f"select(): index {index} out of range for tensor of size {list(input._size)} at dimension 0"
            )
        first, last = input._offsets[index % count : index % count + 2].tolist()
        length = last - first if input._lengths is None else int(input._lengths[index].item())
        return input._values.narrow(input._ragged_idx - 1, first, length)  # a view of its own: it may be written
    inner = _dim(input, dim, "select")
    if input._lengths is not None:
        raise ValueError("select(): not yet supported on dim != 0 for non-contiguous nested tensor with holes")
    before = inner < input._ragged_idx - 1
    return input._with(func(input._values, inner, index), input._ragged_idx - before)


def _sliced(x: Jagged, dim: int, item: slice) -> Jagged:
    return x._with(x._values[(slice(None),) * _dim(x, dim, "slice") + (item,)])


rule("__getitem__")(indexing(_sliced))


@rule("narrow", packed="input")
def _narrow(func: Any, input: Jagged, dim: int, start: Any, length: int) -> Jagged:
    return input._with(func(input._values, _dim(input, dim, "narrow"), start, length))


@rule("chunk", packed="input")
def _chunk(func: Any, input: Jagged, chunks: int, dim: int = 0) -> tuple[Jagged, ...]:
    if wrap_dim(dim, input.dim()) != 0:
        return tuple(input._with(t) for t in func(input._values, chunks, _dim(input, dim, "chunk")))
    lengths = input._offsets.diff().chunk(chunks)
    values = input._values.split([int(n.sum().item()) for n in lengths])
    return tuple(NestedTensor(part, offsets_of(n), _ragged_idx=input._ragged_idx) for part, n in zip(values, lengths))


@rule("split", "split_with_sizes", packed="input")
def _split(func: Any, input: Jagged, split_size: Any, dim: int = 0) -> tuple[Jagged, ...]:
    name = "split" if isinstance(split_size, int) else "split_with_sizes"
    return tuple(input._with(t) for t in input._values.split(split_size, _dim(input, dim, name)))


@rule("squeeze", packed="input")
def _squeeze(func: Any, input: Jagged, dim: Any = None) -> Jagged:
    if not isinstance(dim, int):
        raise NotImplementedError("squeeze: of a nested tensor, one dimension must be named")
    return input._with(func(input._values, _dim(input, dim, "squeeze")))


@rule("unsqueeze")
def _unsqueeze(func: Any, input: Jagged, dim: int) -> Jagged:
    inner = _dim(input, dim, "unsqueeze", input.dim() + 1, ragged=True)
    return input._with(func(input._values, inner), input._ragged_idx + (inner <= input._ragged_idx - 1))


@rule("transpose", "swapaxes", "swapdims")
def _transpose(func: Any, input: Jagged, dim0: int, dim1: int) -> Jagged:
    a, b = wrap_dim(dim0, input.dim()), wrap_dim(dim1, input.dim())
    if input._ragged_idx not in (a, b):
        inner = _dim(input, a, "transpose"), _dim(input, b, "transpose")
        return input._with(input._values.transpose(*inner))
    if 0 in (a, b):
        raise ValueError("Transpose is not supported on the batch dimension for jagged NT")
    return input._with(input._values.transpose(a - 1, b - 1), b if a == input._ragged_idx else a)


@rule("permute")
def _permute(func: Any, input: Jagged, *dims: Any) -> Jagged:
    dims = tuple(dims[0]) if len(dims) == 1 and isinstance(dims[0], tuple | list) else dims
    if input.dim() != len(dims):
        raise ValueError(
            f"permute(): number of dimensions in the tensor input ({input.dim()}) does not match the length of the "
            f"desired ordering of dimensions ({len(dims)})."
        )
    order = [wrap_dim(d, input.dim()) for d in dims]
    if len(order) != len(set(order)):
        raise ValueError("permute(): duplicate dims are not allowed.")
    if input._lengths is not None:
        raise ValueError("permute(): not supported on jagged layout nested tensor with holes")
    if order[0] != 0:
        raise ValueError("Permute is not supported on the batch dimension for jagged NT")
    return input._with(input._values.permute([d - 1 for d in order[1:]]), order.index(input._ragged_idx))


def _size_of(size: tuple) -> tuple:
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], tuple | list) else size


@rule("view", "reshape")
def _view(func: Any, input: Jagged, *size: Any, shape: Any = None) -> Jagged:
    if len(size) == 1 and isinstance(size[0], torch.dtype):
        raise NotImplementedError("view: a nested tensor cannot be viewed as another dtype")
    size = tuple(shape) if shape is not None else _size_of(size)
    if input._lengths is not None and name_of(func) == "reshape":
        input = input.contiguous()
    if input._ragged_idx != 1 and input._size != size:
        raise RuntimeError(
            "view(): does not support ragged_idx != 1 except when inp._size == size. "
            f"inp._size is ({input._size}) and size is ({size})."
        )
    if len(size) < 3 or not raggedness_matches(input, size):
        raise RuntimeError(f"view(): cannot view shape {input._size} as {list(size)}")
    at = input._ragged_idx - 1
    inner = [input._values.shape[at] if d == at else n for d, n in enumerate(size[1:])]
    return input._with(func(input._values, inner))


@rule("flatten")
def _flatten(func: Any, input: Jagged, start_dim: int = 0, end_dim: int = -1) -> Jagged:
    first, last = (wrap_dim(d, input.dim()) for d in (start_dim, end_dim))
    for d in (first, last):
        _dim(input, d, "flatten")
    if first == last:
        return input
    return input.reshape(*input._size[:first], math.prod(input._size[first : last + 1]), *input._size[last + 1 :])


@rule("unflatten")
def _unflatten(func: Any, input: Jagged, dim: int, sizes: Any) -> Jagged:
    at = wrap_dim(dim, input.dim())
    if at in (0, input._ragged_idx):
        raise RuntimeError(f"unflatten(): dimension {dim} of a nested tensor is the batch or ragged")
    known = math.prod(n for n in sizes if n != -1)
    sizes = [input._size[at] // max(known, 1) if n == -1 else n for n in sizes]
    if math.prod(sizes) != input._size[at]:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {dim} ({input._size[at]}) "
            "in the input tensor"
        )
    return input.view(*input._size[:at], *sizes, *input._size[at + 1 :])


@rule("expand")
def _expand(func: Any, input: Jagged, *size: Any, implicit: bool = False) -> Jagged:
    size = _size_of(size)
    if not raggedness_matches(input, size):
        raise RuntimeError(f"expand(): cannot expand shape {input._size} -> {size}")
    return input._with(input._values.expand([-1 if d == input._ragged_idx else size[d] for d in range(1, input.dim())]))


@rule("expand_as")
def _expand_as(func: Any, input: Any, other: Jagged) -> Jagged:
    if isinstance(input, NestedTensor):
        return input.expand(other._size)
    return other._with(input.expand(other._values.shape))


@rule("broadcast_to")
def _broadcast_to(func: Any, input: Jagged, size: Any) -> Jagged:
    if len(size) <= input.dim():
        return input.expand([*[1] * (input.dim() - len(size)), *size])
    raise ValueError(
        "broadcast_to(): broadcasting to a higher-dim shape is currently not supported for nested tensors with the "
        "jagged layout"
    )


@rule("broadcast_tensors")
def _broadcast_tensors(func: Any, *tensors: Any) -> tuple:
    tensors = _size_of(tensors)
    x = next(nested_in(tensors))
    made = []
    for t in tensors:
        if not isinstance(t, NestedTensor) and t.ndim >= x.dim():
            raise ValueError(
                "broadcast_tensors(): broadcasting nested tensors with dense tensors of equal or higher dim is not "
                "currently supported"
            )
        made.append(_values_for("broadcast_tensors", x, t) if t is not x else t._values)
    return tuple(x._with(t) for t in torch.broadcast_tensors(*made))


def _same_lengths(x: Jagged, y: Jagged) -> bool:
    """Whether the pieces of two tensors have the same lengths and places, though their sizes have two names."""
    return x._ragged_idx == y._ragged_idx and all(
        (a is None and b is None) or (a is not None and b is not None and a.tolist() == b.tolist())
        for a, b in ((x._offsets, y._offsets), (x._lengths, y._lengths))
    )


@rule("cat", "concat", "concatenate")
def _cat(func: Any, tensors: Any, dim: int = 0) -> Jagged:
    first = next(nested_in(tensors))
    inner = _dim(first, dim, "cat")
    for t in tensors:
        if isinstance(t, NestedTensor) and not raggedness_matches(first, t._size) and not _same_lengths(first, t):
            raise RuntimeError(f"cat(): expected pieces of the same lengths, but got {first.shape} and {t.shape}")
    parts = [t._values if isinstance(t, NestedTensor) else t.expand(first._values.shape) for t in tensors]
    return first._with(torch.cat(parts, inner))


@rule("stack")
def _stack(func: Any, tensors: Any, dim: int = 0) -> Jagged:
    first = next(nested_in(tensors))
    for t in tensors:
        if not isinstance(t, NestedTensor):
            raise RuntimeError("stack(): expected all nested tensors inputs")
        if t.dim() != first.dim():
            raise RuntimeError("stack(): expected all nested tensors to have the same dim")
        if not raggedness_matches(t, first._size):
            raise RuntimeError("stack(): expected all nested tensors to have the same nested structure")
    return first._with(torch.stack([t._values for t in tensors], _dim(first, dim, "stack", first.dim() + 1)))


@rule("masked_select", packed="input")
def _masked_select(func: Any, input: Jagged, mask: Any) -> Jagged:
    if input.dim() > 2:
        raise RuntimeError("masked_select only support 2-D selections currently")
    if input.shape != mask.shape:
        raise RuntimeError(f"Mask with shape {mask.shape} is not compatible with input's shape {input.shape}")
    before = offsets_of(mask._values)  # how many are selected before each value
    return NestedTensor(input._values.masked_select(mask._values), before[input._offsets])


@rule("index_put", "index_put_")
def _index_put(func: Any, input: Jagged, indices: Any, values: Tensor, accumulate: bool = False) -> Jagged:
    """Writes at (piece, place, ...): the place is found in the values by the offsets."""
    at = input._ragged_idx
    if len(indices) > input.dim():
        raise AssertionError(f"Too many indices: got {len(indices)} but tensor has {input.dim()} dimensions")
    if len(indices) < at + 1:
        if not input.is_contiguous():
            raise RuntimeError(
                "index_put(): If ragged dimension is not part of indices, this only works on contiguous NJTs"
            )
        padded = torch.index_put(_padded(input, 0), tuple(indices), values, accumulate)
        made = nested_from_padded(padded, input._offsets, at)._values
    else:
        piece, place = torch.broadcast_tensors(indices[0], indices[at])
        length = input._length_of_each()[piece]
        if not bool(((-length <= place) & (place < length)).all()):
            raise RuntimeError("Some indices in the ragged dimension are out of bounds!")
        begin = input._offsets[:-1][piece]  # without the end of the last piece: -1 is the last piece
        inner = (*indices[1:at], begin + place + length * (place < 0), *indices[at + 1 :])
        made = torch.index_put(input._values, inner, values, accumulate)
    if is_in_place(name_of(func)):
        input._values.copy_(made)
        return input
    return input._with(made)


@rule("__setitem__")
def _setitem(func: Any, input: Jagged, index: Any, value: Any) -> None:
    if isinstance(index, tuple) and index and all(isinstance(item, Tensor) for item in index):
        _index_put(torch.Tensor.index_put_, input, index, torch.as_tensor(value, dtype=input.dtype))
        return
    target = input[index]
    if isinstance(target, NestedTensor):
        target.copy_(value) if isinstance(value, NestedTensor) else target._values.copy_(torch.as_tensor(value))
    else:
        target.copy_(torch.as_tensor(value))


# --- products --------------------------------------------------------------------------------------------------------


@rule("linear", packed="input")
def _linear(func: Any, input: Any, weight: Tensor, bias: Tensor | None = None) -> Jagged:
    if not isinstance(input, NestedTensor):
        raise ValueError("NestedTensor linear(input: jt): expected input to be a contiguous jagged layout NestedTensor")
    return input._with(func(input._values, weight, bias))


def _through_padded(x: Jagged, function: Callable[[Tensor], Tensor]) -> Jagged:
    """What a function makes of the padded tensor, in pieces again."""
    return x._with(nested_from_padded(function(_padded(x, 0)), x._offsets, x._ragged_idx)._values)


@rule("matmul", "__matmul__")
def _matmul(func: Any, input: Any, other: Any) -> Any:
    a, b = input, other
    if not isinstance(b, NestedTensor):
        if a.dim() >= 3 and a.dim() == b.dim() and a._ragged_idx < a.dim() - 1:
            return _through_padded(a, lambda padded: torch.matmul(padded, b))
        if b.dim() == 2 and a.dim() > 2 and a._ragged_idx < a.dim() - 1:
            return a._with(torch.matmul(a._values, b))
    elif not isinstance(a, NestedTensor):
        if b.dim() >= 3 and b.dim() == a.dim() and b._ragged_idx >= 2:
            return _through_padded(b, lambda padded: torch.matmul(a, padded))
        if a.dim() == 2 and b.dim() > 2 and b._ragged_idx >= 2:
            return b._with(torch.matmul(a, b._values))
    elif a.dim() > 3 and b.dim() > 3 and raggedness_matches(a, b._size):
        return a._with(torch.matmul(a._values, b._values))
    elif a.dim() == b.dim() == 3 and (a._ragged_idx, b._ragged_idx) == (2, 1) and a._size[2] == b._size[1]:
        return torch.stack([torch.matmul(x, y) for x, y in zip(a._pieces(), b._pieces())])
    raise RuntimeError(f"matmul(): not supported between inputs of shapes {_shape(a)} and {b.shape}")


def _shape(x: Any) -> Any:
    return x._size if isinstance(x, NestedTensor) else x.shape


@rule("__rmatmul__")
def _rmatmul(func: Any, input: Any, other: Any) -> Any:
    return _matmul(func, other, input)


@rule("bmm")
def _bmm(func: Any, input: Any, mat2: Any) -> Any:
    if not isinstance(input, NestedTensor):
        raise ValueError("NestedTensor bmm(self: jt_all): expected self to be a jagged layout NestedTensor")
    for name, value in (("input", input), ("mat2", mat2)):
        if value.dim() != 3:
            raise ValueError(f"bmm(): {name} must be 3D")
    return _matmul(func, input, mat2)


@rule("embedding")
def _embedding(func: Any, input: Any, weight: Tensor, *args: Any, **kwargs: Any) -> Jagged:
    if isinstance(weight, NestedTensor):
        raise ValueError("NestedTensor embedding(weight: t): expected weight to be a tensor")
    if input._lengths is not None or input._ragged_idx != 1:
        raise ValueError(
            "NestedTensor embedding(indices: jt): expected indices to be a contiguous jagged layout NestedTensor"
        )
    return input._with(func(input._values, weight, *args, **kwargs))


@rule("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", packed="input")
def _convolution(func: Any, input: Jagged, *args: Any, **kwargs: Any) -> Jagged:
    return input._with(func(input._values, *args, **kwargs))


# --- normalization ---------------------------------------------------------------------------------------------------


@rule("softmax", "log_softmax")
def _softmax(func: Any, input: Jagged, dim: Any = None, *args: Any, **options: Any) -> Jagged:
    name = name_of(func)
    if isinstance(dim, tuple):
        raise RuntimeError(f"{name}(): not supported for dimensions of type 'tuple' for NestedTensor")
    at = wrap_dim(1 if dim is None else dim, input.dim())
    if at == 0:
        raise RuntimeError(f"{name}(): not supported when reducing across the batch dimension for NestedTensor")
    if at != input._ragged_idx:
        return input._with(func(input._values, at - 1, *args, **options))
    if name == "log_softmax":
        raise RuntimeError("log_softmax(): not supported when reducing along the ragged dimension for NestedTensor")
    if at > 1:
        raise RuntimeError(
            "softmax(): not supported when reducing along the ragged dimension for ragged_idx > 1 for NestedTensor"
        )
    if input._lengths is not None:
        raise RuntimeError(
            "softmax(): not supported where lengths is not None if reducing across the ragged dimension for "
            "NestedTensor"
        )
    padded = func(_padded(input, -math.inf), 1, *args, **options)
    return input._with(nested_from_padded(padded, input._offsets)._values)


@rule("layer_norm")
def _layer_norm(
    func: Any, input: Jagged, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Jagged:
    if input.dim() <= 2:
        raise RuntimeError("layer_norm(): not supported for NestedTensor objects with 2 or fewer dimensions")
    if input.dim() == len(normalized_shape):
        raise RuntimeError("layer_norm(): not supported when normalizing over the batch dimension for NestedTensor")
    if input._size[input._ragged_idx] not in tuple(normalized_shape):
        return input._with(func(input._values, normalized_shape, weight, bias, eps))
    if input._lengths is not None:
        raise RuntimeError(
            "layer_norm(): not supported where lengths is not None if operating on the ragged dimension for "
            "NestedTensor"
        )
    # Each piece by itself: the sums of all its elements, divided by how many it has.
    batch = torch.repeat_interleave(input._offsets.diff())
    rows = input._values.flatten(1)
    count = (input._offsets.diff() * rows.shape[1]).to(rows.dtype)

    def mean(values: Tensor) -> Tensor:
        total = torch.zeros(input._size[0], dtype=rows.dtype, device=rows.device).index_add(0, batch, values.sum(1))
        return (total / count)[batch].unsqueeze(1)

    centered = rows - mean(rows)
    made = centered / torch.sqrt(mean(centered * centered) + eps)
    return input._with(made.unflatten(1, input._values.shape[1:]))


@rule("rms_norm")
def _rms_norm(func: Any, input: Jagged, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Jagged:
    if len(normalized_shape) > input.dim() - input._ragged_idx - 1:
        raise ValueError("rms_norm(): Normalization over the ragged dim not supported for nested tensors")
    return input._with(func(input._values, normalized_shape, weight, eps))


@rule("scaled_dot_product_attention")
def _attention(func: Any, *args: Any, **kwargs: Any) -> Any:
    from tensorgrad.nested._internal.sdpa import jagged_scaled_dot_product_attention

    return jagged_scaled_dot_product_attention(*args, **kwargs)
