"""What each op does with nested tensors of the strided layout: those that PyTorch has.

Functions of one element run on the values; views change sizes and strides; all others run on each piece
(`_by_pieces`), and the results are a new nested tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad.errors import wrap_dim
from tensorgrad.kernels.array import shape as kernels
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
from tensorgrad.nested._internal.strided import NO_SIZES, StridedNestedTensor, of_list
from tensorgrad.nn import functional as F
from tensorgrad.tensor import Tensor

__all__ = ["RULES"]

RULES: dict[str, Callable] = {}

Strided = Any  # a StridedNestedTensor: its methods are these rules, which mypy does not know
ELEMENTWISE = frozenset((
    "abs", "absolute", "add", "cos", "div", "divide", "eq", "ge", "gt", "gelu", "isfinite", "isinf", "isnan",
    "isneginf", "isposinf", "logical_not", "masked_fill", "mul", "multiply", "neg", "negative", "positive", "relu",
    "sgn", "silu", "sin", "sqrt", "sub", "subtract", "tanh", "true_divide", "float", "double", "half", "bfloat16",
    "int", "long", "short", "bool", "byte", "char", "type", "fill", "zero", "conj_physical",
))  # fmt: skip
_OPERATORS = frozenset(f"__{prefix}{name}__" for name in ("add", "mul", "sub", "truediv") for prefix in ("", "i"))
_OPERATORS |= frozenset(("__radd__", "__rmul__", "__neg__", "__pos__", "__abs__", "__eq__", "__ge__", "__gt__"))
_COMPARISONS = ("eq", "ge", "gt")


def rule(*names: str) -> Callable:
    """Makes a function the rule for functions of these names."""

    def register(function: Callable) -> Callable:
        for name in names:
            RULES[name] = function
        return function

    return register


def _by_pieces(function: Callable[..., Tensor], *tensors: Strided) -> Strided:
    """A nested tensor of what a function makes of each piece."""
    made = [function(*parts) for parts in zip(*(t._pieces() for t in tensors))]
    return of_list(made) if made else tensors[0]._with(tensors[0]._values)


def elementwise(func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Runs a function of corresponding elements; of two nested tensors with pieces of the same shapes.

    Raises: RuntimeError if their shapes differ, or one of them is an ordinary tensor with dimensions.
    """
    name = name_of(func)
    stem = name.strip("_")
    if name.startswith("__") and name not in _OPERATORS:
        raise NotImplementedError(f"{stem}: nested tensors with the torch.strided layout do not have it")
    given = (*args, *kwargs.values())
    x = next(nested_in(given))
    others = [value for value in given if isinstance(value, Tensor)]
    del others[next(i for i, other in enumerate(others) if other is x)]
    for other in others:
        if isinstance(other, Nested):
            if stem in _COMPARISONS:
                raise RuntimeError(f"{stem} does not support nested tensor as other value.")
            if other._sizes != x._sizes:
                raise RuntimeError(f"{stem}: expected nested tensors whose pieces have the same shapes")
        elif other.numel() != 1:
            if stem in ("add", "mul", "iadd", "imul", "radd", "rmul") and x.dim() == 3 and _is_row(x, other):
                return _by_pieces(lambda piece, o=other: func(piece, o.reshape(-1)), x)
            first, second = ("nested", "non-nested") if given[0] is x else ("non-nested", "nested")
            raise RuntimeError(f"Expected both self and other to be nested, but got a {first} self and {second} other")
    if args and args[0] is not x and is_in_place(name):
        raise RuntimeError(f"{name}: a nested tensor cannot be written over an ordinary one")
    nested = list(nested_in(given))
    if x._values.numel() != x.numel() or not all(t._strides == x._strides and t._starts == x._starts for t in nested):
        return _each_piece(func, args, kwargs, nested)
    made = func(*(mapped(value, _values) for value in args), **{k: mapped(v, _values) for k, v in kwargs.items()})
    return x if is_in_place(name) else mapped(made, x._with)


def _values(tensor: Tensor) -> Tensor:
    return tensor._values if isinstance(tensor, Nested) else tensor


def _is_row(x: Strided, other: Tensor) -> bool:
    """Whether an ordinary tensor is a row that fits the last dimension of all pieces."""
    return other.numel() == other.shape[-1] and all(size[-1] == other.shape[-1] for size in x._sizes)


def _each_piece(func: Any, args: tuple, kwargs: dict[str, Any], nested: list[Strided]) -> Any:
    """Runs a function of corresponding elements on each piece: of tensors that differ in their memory, or whose values
    have other elements, too (which must not be written, and whose gradients must stay 0)."""
    in_place = is_in_place(name_of(func))
    pieces = [x._places() if in_place and x is nested[0] else x._pieces() for x in nested]
    made = []
    for parts in zip(*pieces):
        remaining = iter(parts)

        def piece(tensor: Tensor, remaining: Any = remaining) -> Tensor:
            return next(remaining) if isinstance(tensor, Nested) else tensor

        given = [mapped(value, piece) for value in args]
        made.append(func(*given, **{key: mapped(value, piece) for key, value in kwargs.items()}))
    return nested[0] if in_place else of_list(made)


StridedNestedTensor._elementwise = staticmethod(elementwise)
StridedNestedTensor._elementwise_names = ELEMENTWISE
StridedNestedTensor._rules = RULES


@rule("flatten")
def _flatten(func: Any, input: Strided, start_dim: int = 0, end_dim: int = -1) -> Strided:
    if wrap_dim(start_dim, input.dim()) != wrap_dim(end_dim, input.dim()):
        raise RuntimeError(NO_SIZES.format("sizes"))
    return input


@rule("cat", "concat", "concatenate")
def _cat(func: Any, tensors: Any, dim: int = 0) -> Strided:
    if not all(isinstance(t, StridedNestedTensor) for t in tensors):
        raise RuntimeError("Expected each tensor in given list to be nested.")
    at = wrap_dim(dim, tensors[0].dim())
    if at == 0:
        return of_list([piece for t in tensors for piece in t._pieces()])
    if len({len(t._sizes) for t in tensors}) > 1:
        raise RuntimeError("cat: expected nested tensors of as many pieces")
    return _by_pieces(lambda *pieces: torch.cat(pieces, at - 1), *tensors)


@rule("unflatten", "expand", "broadcast_tensors", "expand_as", "repeat", "rms_norm", "mean")
def _needs_sizes(func: Any, *args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(NO_SIZES.format("sizes"))


@rule("clone")
def _clone(func: Any, input: Strided, *, memory_format: Any = None) -> Strided:
    return input._with(input._values.clone())


@rule("contiguous")
def _contiguous(func: Any, input: Strided, memory_format: Any = None) -> Strided:
    return input if input.is_contiguous() else _by_pieces(lambda piece: piece, input)


@rule("to", "cpu", "cuda")
def _to(func: Any, input: Strided, *args: Any, **kwargs: Any) -> Strided:
    values = func(input._values, *(mapped(value, _values) for value in args), **kwargs)
    return input if values is input._values else input._with(values)


@rule("pin_memory", "zeros_like", "ones_like", "empty_like")
def _on_values(func: Any, input: Strided, *args: Any, **kwargs: Any) -> Strided:
    return input._with(func(input._values, *args, **kwargs))


rule("dropout")(dropout)


@rule("zero_")
def _zero(func: Any, input: Strided) -> Strided:
    for piece in input._places():
        piece.zero_()
    return input


rule("requires_grad_")(requires_grad_)


@rule("share_memory_")
def _share_memory(func: Any, input: Strided) -> Strided:
    input._values.share_memory_()
    return input


@rule("copy_")
def _copy(func: Any, input: Strided, src: Any, non_blocking: bool = False) -> Strided:
    if not isinstance(src, StridedNestedTensor) or not isinstance(input, StridedNestedTensor):
        raise RuntimeError("copy_ only supports tensors that are the same size for Nested implementations")
    if input._sizes != src._sizes:
        raise RuntimeError("copy_ only supports tensors that are the same size for Nested implementations")
    for target, source in zip(input._places(), src._pieces()):
        target.copy_(source)
    return input


@rule("where")
def _where(func: Any, condition: Any, input: Any, other: Any) -> Strided:
    if not isinstance(condition, Nested) or not isinstance(other, Nested):
        raise RuntimeError("condition must be nested" if isinstance(other, Nested) else "other must be nested")
    if isinstance(input, Nested):
        raise RuntimeError("self must not be nested")
    return _by_pieces(lambda c, o: torch.where(c, input, o), condition, other)


# --- pieces and views ------------------------------------------------------------------------------------------------


@rule("unbind")
def _unbind(func: Any, input: Strided, dim: int = 0) -> tuple[Tensor, ...]:
    if wrap_dim(dim, input.dim()) != 0:
        raise RuntimeError(f"NestedTensor can only be unbound along dimension 0 got dimension {dim} instead.")
    return tuple(input._pieces())


@rule("select")
def _select(func: Any, input: Strided, dim: int, index: int) -> Any:
    at = wrap_dim(dim, input.dim())
    if at == 0:
        count = len(input._sizes)
        if not -count <= index < count:
            raise IndexError(f"index {index} is out of bounds for dimension 0 with size {count}")
        only = slice(index % count, index % count + 1)
        return input._viewed(input._values, input._sizes[only], input._strides[only], input._starts[only])._places()[0]
    d = at - 1
    found = [index % size[d] if -size[d] <= index < size[d] else None for size in input._sizes]
    if None in found:
        raise RuntimeError(f"index {index} is out of bounds for dimension {at} of a piece")
    return StridedNestedTensor(
        input._values.view_as(input._values),
        [size[:d] + size[d + 1 :] for size in input._sizes],
        [step[:d] + step[d + 1 :] for step in input._strides],
        [start + step[d] * i for start, step, i in zip(input._starts, input._strides, found)],
        input._piece_ndim - 1,
    )


def _no_slices(x: Strided, dim: int, item: slice) -> Any:
    raise RuntimeError(NO_SIZES.format("sizes"))


rule("__getitem__")(indexing(_no_slices))


def _transformed(input: Strided, sizes: list, strides: list | None = None, starts: list | None = None) -> Strided:
    """A view: the same values, with pieces of other sizes and strides."""
    values = input._values.view_as(input._values)
    return StridedNestedTensor(values, sizes, strides, input._starts if starts is None else starts, input._piece_ndim)


@rule("transpose", "swapaxes", "swapdims")
def _transpose(func: Any, input: Strided, dim0: int, dim1: int) -> Strided:
    a, b = wrap_dim(dim0, input.dim()), wrap_dim(dim1, input.dim())
    if a == b:
        return input
    if 0 in (a, b):
        raise RuntimeError("Nested tensor dimension 0 cannot be transposed")

    def swapped(values: tuple) -> tuple:
        listed = list(values)
        listed[a - 1], listed[b - 1] = listed[b - 1], listed[a - 1]
        return tuple(listed)

    return _transformed(input, [swapped(s) for s in input._sizes], [swapped(s) for s in input._strides])


@rule("unsqueeze")
def _unsqueeze(func: Any, input: Strided, dim: int) -> Strided:
    at = wrap_dim(dim, input.dim() + 1)
    if at == 0:
        raise RuntimeError(
            "unsqueeze(): For nested tensors, unsqueezing dimension 0 is not supported at the moment if you need this "
            "feature, please open an issue on github describing your use case."
        )
    d = at - 1
    sizes = [size[:d] + (1,) + size[d:] for size in input._sizes]
    strides = [
        step[:d] + ((size[d] * step[d]) if d < len(size) else 1,) + step[d:]
        for size, step in zip(input._sizes, input._strides)
    ]
    return _transformed(input, sizes, strides)


@rule("squeeze")
def _squeeze(func: Any, input: Strided, dim: Any = None) -> Strided:
    if not isinstance(dim, int):
        raise RuntimeError(NO_SIZES.format("sizes"))
    at = wrap_dim(dim, input.dim())
    if at == 0:
        raise RuntimeError(
            "squeeze(): For nested tensors, squeezing dimension 0 is not supported at the moment if you need this "
            "feature, please open an issue on github describing your use case."
        )
    d = at - 1
    if not input._sizes or any(size[d] != 1 for size in input._sizes):
        return input
    if input._piece_ndim == 1:
        raise RuntimeError("squeeze(): For nested tensors, squeezing a nested tensor of singleton is not supported")
    sizes, strides = ([value[:d] + value[d + 1 :] for value in given] for given in (input._sizes, input._strides))
    return _transformed(input, sizes, strides)


@rule("view", "reshape")
def _view(func: Any, input: Strided, *size: Any, shape: Any = None) -> Strided:
    size = tuple(shape) if shape is not None else tuple(size[0]) if size and isinstance(size[0], tuple | list) else size
    name = name_of(func)
    if not size:
        raise RuntimeError("shape '[]' is invalid for a nested tensor")
    if size[0] != len(input._sizes):
        raise RuntimeError(f"{name}: For now nested {name} cannot change or infer the implicit batch dimension")
    sizes = []
    for old in input._sizes:
        new = [old[d] if n == -1 and d < len(old) else n for d, n in enumerate(size[1:])]
        if any(n < 0 for n in new) or math.prod(new) != math.prod(old):
            raise RuntimeError(f"shape '{list(size)}' is invalid for input of size {math.prod(old)}")
        sizes.append(tuple(new))
    strides: Any = [kernels.view_strides(*piece, 1) for piece in zip(input._sizes, input._strides, sizes)]
    if None in strides:
        if name == "view":
            raise RuntimeError(
                "view size is not compatible with input tensor's size and stride (at least one dimension spans across "
                "two contiguous subspaces). Use .reshape(...) instead."
            )
        input, strides = input.contiguous(), None
    return StridedNestedTensor(input._values.view_as(input._values), sizes, strides, input._starts, len(size) - 1)


@rule("narrow")
def _narrow(func: Any, input: Strided, dim: int, start: int, length: int) -> Strided:
    if dim != 0:
        raise RuntimeError(f"narrow(): only dim=0 supported for nested tensors, but got: {dim}")
    end = start + length
    if not 0 <= start <= end <= len(input._sizes):
        raise RuntimeError("start + length <= self.size(0) INTERNAL ASSERT FAILED: narrow(): range is invalid")
    part = slice(start, end)
    return _transformed(input, input._sizes[part], input._strides[part], input._starts[part])


@rule("chunk")
def _chunk(func: Any, input: Strided, chunks: int, dim: int = 0) -> tuple[Strided, ...]:
    at = wrap_dim(dim, input.dim())
    if at != input.dim() - 1:
        raise RuntimeError("Chunk for nested tensors is currently only supported for the last dimension.")
    if chunks <= 0:
        raise RuntimeError("chunk expects `chunks` to be greater than 0, got: " + str(chunks))
    last = input.size(at)
    if last % chunks:
        raise RuntimeError("Chunk for nested tensors is only supported for nested tensors with trailing dimension "
                           f"divisible by chunks, got: {last} % {chunks} != 0")  # fmt: skip
    return tuple(_sliced(input, i * (last // chunks), last // chunks) for i in range(chunks))


def _sliced(input: Strided, start: int, length: int) -> Strided:
    """A slice of the last dimension."""
    starts = [at + start * step[-1] for at, step in zip(input._starts, input._strides)]
    return _transformed(input, [(*size[:-1], length) for size in input._sizes], input._strides, starts)


@rule("split", "split_with_sizes")
def _split(func: Any, input: Strided, split_size: Any, dim: int = 0) -> tuple[Strided, ...]:
    if isinstance(split_size, int):
        raise RuntimeError(NO_SIZES.format("sizes"))
    at = wrap_dim(dim, input.dim())
    if at != input.dim() - 1:
        raise RuntimeError("split_with_sizes for nested tensors is currently only supported for the last dimension.")
    last, made, start = input.size(at), [], 0
    if sum(split_size) != last:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {last} (input tensor's size at dimension {dim}), "
            f"but got split_sizes={list(split_size)}"
        )
    for length in split_size:
        made.append(_sliced(input, start, length))
        start += length
    return tuple(made)


@rule("to_padded_tensor")
def _to_padded_tensor(func: Any, input: Strided, padding: Any, output_size: Any = None) -> Tensor:
    largest = [max(size[d] for size in input._sizes) for d in range(input._piece_ndim)] if input._sizes else []
    if output_size is not None:
        if len(output_size) != input.dim():
            raise RuntimeError("Length of output_size does not match NestedTensor dims. Broadcasting is not supported.")
        if output_size[0] < len(input._sizes) or any(n < m for n, m in zip(output_size[1:], largest)):
            raise RuntimeError(
                "Value in output_size is less than NestedTensor padded size. Truncation is not supported."
            )
        largest = list(output_size[1:])
    made = [
        F.pad(piece, [n for d in reversed(range(piece.ndim)) for n in (0, largest[d] - piece.shape[d])], value=padding)
        for piece in input._pieces()
    ]
    made += [input._values.new_full(largest, padding)] * ((output_size[0] if output_size else len(made)) - len(made))
    return torch.stack(made) if made else input._values.new_empty(0)


# --- reductions, products and normalization --------------------------------------------------------------------------


@rule("sum")
def _sum(func: Any, input: Strided, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Strided:
    if dim is None:
        raise NotImplementedError(
            "sum: nested tensors with the torch.strided layout are summed over the last dimension"
        )
    dims = dim if isinstance(dim, tuple | list) else (dim,)
    if len(dims) != 1:
        raise RuntimeError("NestedTensor only allows reduction of a single dimension for now.")
    if wrap_dim(dims[0], input.dim()) != input.dim() - 1:
        raise RuntimeError(
            f"NestedTensor can only be reduced across the last dimension for now got dimension {dims[0]} instead."
        )
    if not keepdim:
        raise RuntimeError("NestedTensor always requires keepdim=True for now.")
    return _by_pieces(lambda piece: piece.sum(-1, True, dtype=dtype), input)


@rule("softmax")
def _softmax(func: Any, input: Strided, dim: Any = None, *args: Any, **options: Any) -> Strided:
    at = wrap_dim(1 if dim is None else dim, input.dim())
    if at == 0:
        raise RuntimeError("Cannot apply softmax across nested dimension 0")
    return _by_pieces(lambda piece: func(piece, at - 1, *args, **options), input)


@rule("layer_norm")
def _layer_norm(
    func: Any,
    input: Strided,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
) -> Strided:
    if weight is None or bias is None:
        raise ValueError("NestedTensor layer_norm requires weight and bias")
    return _by_pieces(lambda piece: func(piece, normalized_shape, weight, bias, eps), input)


@rule("linear")
def _linear(func: Any, input: Any, weight: Tensor, bias: Tensor | None = None) -> Strided:
    if not isinstance(input, StridedNestedTensor) or input.dim() != 3:
        raise RuntimeError("Linear requires nested_tensor.dim == 3 and dense_matrix.dim == 2")
    return _by_pieces(lambda piece: func(piece, weight, bias), input)


@rule("matmul", "__matmul__", "bmm")
def _matmul(func: Any, input: Any, other: Any = None, mat2: Any = None) -> Strided:
    other = mat2 if other is None else other
    batched = name_of(func) == "bmm"
    if not (isinstance(input, Nested) and isinstance(other, Nested)):
        if batched and isinstance(input, Nested) and other.dim() == 3:
            return of_list([piece @ matrix for piece, matrix in zip(input._pieces(), other.unbind())])
        nested = (
            "a nested self and non-nested other" if isinstance(input, Nested) else "a non-nested self and nested other"
        )
        raise RuntimeError(f"Expected both to be nested, but got {nested}")
    if batched and (input.dim() != 3 or other.dim() != 3):
        raise RuntimeError("batch1 must be a 3D tensor" if input.dim() != 3 else "batch2 must be a 3D tensor")
    if input.dim() < 3 or other.dim() < 3:
        raise RuntimeError("matmul: For nested tensors, only inputs with >= 3 dims are currently supported.")
    if len(input._sizes) != len(other._sizes):
        raise RuntimeError(
            f"matmul: Expected size for the 1st dimension of 2nd input tensor to be: {len(input._sizes)} but got: "
            f"{len(other._sizes)}."
        )
    return _by_pieces(torch.matmul, input, other)


@rule("embedding")
def _embedding(func: Any, input: Strided, weight: Tensor, *args: Any, **kwargs: Any) -> Strided:
    if not isinstance(input, Nested) or input.dim() > 2:
        raise RuntimeError("embedding: expected a nested tensor of pieces with one dimension")
    return _by_pieces(lambda piece: func(piece, weight, *args, **kwargs), input)


@rule("scaled_dot_product_attention")
def _attention(func: Any, query: Any, key: Any, value: Any, attn_mask: Any = None, *args: Any, **options: Any) -> Any:
    given = (query, key, value)
    if not all(isinstance(x, StridedNestedTensor) for x in given):
        raise RuntimeError("scaled_dot_product_attention: expected query, key and value to be nested tensors")
    if attn_mask is not None:
        raise RuntimeError("scaled_dot_product_attention: Nested tensors for query / key are not supported when "
                           "an explicit attn_mask is set")  # fmt: skip
    return _by_pieces(lambda q, k, v: func(q, k, v, None, *args, **options), *given)
