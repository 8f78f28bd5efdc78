"""What operators of PyTorch's registry the functions and methods that users call are made of.

Only those are here whose arguments are not the operator's, or that have no operator of their name. Each takes the
arguments of its function and calls the operators; it returns `NotImplemented` if the function is to run, and be made of
others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorgrad
from tensorgrad._ops import REDUCTIONS, ops
from tensorgrad.autograd.modes import no_grad
from tensorgrad.nn.compiled import parts_of_to
from tensorgrad.tensor import Tensor

_CASTS = {
    "bfloat16": "bfloat16", "bool": "bool", "byte": "uint8", "char": "int8", "double": "float64", "float": "float32",
    "half": "float16", "int": "int32", "long": "int64", "short": "int16",
}  # fmt: skip


def indexed(self: Tensor, indices: Any) -> Any:
    """`self[indices]` by the operators for it, one after the other."""
    aten = ops.aten
    operators = {"select": aten.select.int, "slice": aten.slice.Tensor, "unsqueeze": aten.unsqueeze.default}
    views, others = views_of(self.shape, indices)
    result: Any = self
    for name, _, *given in views:
        result = operators[name](result, *given)
    if others:
        places: list[Any] = [None] * (others[-1][0] + 1)
        for place, index in others:
            places[place] = index if isinstance(index, Tensor) else tensorgrad.as_tensor(index)
        return aten.index.Tensor(result, places)
    return aten.alias.default(result) if result is self else result


def views_of(shape: Any, indices: Any) -> tuple[list[tuple], list[tuple[int, Any]]]:
    """The views by which plain indices take elements, one after the other, and where the other indices are.

    A view is the operator's name, the sizes before it, and its arguments. The dimensions of the other indices (tensors,
    lists, booleans) are those of the last view.

    Raises: IndexError if there are too many indices, ValueError for a step less than 1.
    """
    sizes, dim = list(shape), 0
    views: list[tuple] = []
    others: list[tuple[int, Any]] = []
    given = list(indices) if isinstance(indices, tuple) else [indices]
    taken = sum(dimensions_of(index) for index in given)
    if taken > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
    for index in given:
        before = list(sizes)
        if index is Ellipsis:
            dim += len(shape) - taken
        elif index is None:
            views += [("unsqueeze", before, dim)]
            sizes.insert(dim, 1)
            dim += 1
        elif isinstance(index, slice):
            start, stop, step = index.indices(sizes[dim])
            if step < 1:
                raise ValueError("step must be greater than zero")
            stop = max(stop, start)
            if (start, step) != (0, 1) or stop < sizes[dim]:
                views += [("slice", before, dim, start, stop, *(() if step == 1 else (step,)))]
                sizes[dim] = len(range(start, stop, step))
            dim += 1
        elif isinstance(index, int) and not isinstance(index, bool):
            views += [("select", before, dim, index)]
            sizes[dim : dim + 1] = []
        else:
            others += [(dim, index)]
            dim += dimensions_of(index)
    return views, others


def dimensions_of(index: Any) -> int:
    """How many dimensions of a tensor an index takes."""
    if index is None or index is Ellipsis:
        return 0
    mask = isinstance(index, Tensor) and index.dtype in (tensorgrad.bool, tensorgrad.uint8)
    return index.ndim if mask else 1


def in_places(indices: Any, pattern: Any) -> list[Any]:
    """The indices of a row as the registry has them: one for each dimension, None for those that are not indexed."""
    return [None if place is None else indices[place] for place in pattern]


def _setitem(self: Tensor, indices: Any, value: Any) -> None:
    """`self[indices] = value`: where the indices are a view, its values are written."""
    given = indices if isinstance(indices, tuple) else (indices,)
    value = value if isinstance(value, Tensor) else tensorgrad.as_tensor(value, dtype=self.dtype)
    if any(isinstance(index, Tensor | list | bool) for index in given):
        places = [index if isinstance(index, Tensor) else tensorgrad.as_tensor(index) for index in given]
        ops.aten.index_put_.default(self, places, value)
    else:
        ops.aten.copy_.default(indexed(self, indices), value)


def converted(self: Tensor, *args: Any, layout: Any = None, **kwargs: Any) -> Any:
    """`self.to(...)`: the tensor itself, or a copy."""
    if args and isinstance(args[0], Tensor):
        args = (args[0].device, args[0].dtype, *args[1:])
    device, dtype, non_blocking, copy, memory_format = parts_of_to(*args, **kwargs)
    same = dtype in (None, self.dtype) and device in (None, self.device) and memory_format is None
    if same and not copy:
        return self
    options = {"dtype": dtype, "device": device, "non_blocking": non_blocking or None, "memory_format": memory_format}
    return ops.aten._to_copy.default(self, **{name: value for name, value in options.items() if value is not None})


def split(self: Tensor, split_size_or_sections: Any, dim: int = 0) -> Any:
    """`self.split(...)`: into parts of a size, or of several."""
    how, late = split_size_or_sections, () if dim == 0 else (dim,)
    if isinstance(how, int):
        return ops.aten.split.Tensor(self, how, *late)
    return ops.aten.split_with_sizes.default(self, list(how), *late)


def _embedding(input: Tensor, weight: Tensor, padding_idx: Any = None, *more: Any, **kwargs: Any) -> Any:
    if more or any(value is not None for value in kwargs.values()):
        return NotImplemented
    return ops.aten.embedding.default(weight, input, *(() if padding_idx is None else (padding_idx,)))


def _deepcopy(self: Tensor, memo: dict) -> Any:
    if id(self) not in memo:
        with no_grad():
            memo[id(self)] = ops.aten.clone.default(self).requires_grad_(self.requires_grad)
        if getattr(self, "_is_param", False):
            memo[id(self)]._is_param = True
    return memo[id(self)]


def _softmax(operator: str, functional: bool) -> Callable:
    def form(input: Tensor, dim: Any = None, dtype: Any = None, *, out: Any = None) -> Any:
        if dim is None or out is not None:
            return NotImplemented
        input = input if dtype is None else converted(input, dtype)
        return getattr(ops.aten, operator).default(input, dim, False)

    if functional:
        return lambda input, dim=None, _stacklevel=3, dtype=None: form(input, dim, dtype)
    return form


def _made(name: str) -> Callable:
    """A function that makes a tensor of a size: `torch.ones(2, 3)` is `aten.ones.default([2, 3], device=…)`."""

    def form(*size: Any, generator: Any = None, requires_grad: bool = False, out: Any = None, **kwargs: Any) -> Any:
        count = 2 if name == "full" else 1
        if out is not None or generator is not None or "names" in kwargs or "layout" in kwargs:
            return NotImplemented
        if not (len(size) == count and isinstance(size[0], tuple | list)):
            if count == 2 or not size:
                return NotImplemented
            size = (size,)
        options = {n: value for n, value in kwargs.items() if value is not None}
        options |= {
            "device": tensorgrad.device(options.get("device") or tensorgrad.get_default_device()),
            "pin_memory": False,
        }
        overload = "memory_format" if name == "empty" else "default"
        made = getattr(getattr(ops.aten, name), overload)(list(size[0]), *size[1:], **options)
        return made.requires_grad_() if requires_grad else made

    return form


def _relu(input: Tensor, inplace: bool = False) -> Any:
    return (ops.aten.relu_ if inplace else ops.aten.relu).default(input)


def _loss(name: str, option: str = "", default: float = 1.0) -> Callable:
    """A loss with PyTorch's number for the reduction."""

    def form(input: Tensor, target: Tensor, *args: Any, reduction: str = "mean", **kwargs: Any) -> Any:
        value = kwargs.pop(option, default)
        if args or reduction not in REDUCTIONS or any(v is not None for v in kwargs.values()):
            return NotImplemented
        late = () if value == default else (value,)
        if late or reduction != "mean":
            late = (REDUCTIONS.index(reduction), *late)
        return getattr(ops.aten, name).default(input, target, *late)

    return form


def nll_loss(
    input: Tensor, target: Tensor, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    if size_average is not None or reduce is not None or reduction not in REDUCTIONS or input.ndim not in (1, 2, 4):
        return NotImplemented
    operator = ops.aten.nll_loss2d_forward if input.ndim == 4 else ops.aten.nll_loss_forward
    return operator.default(input, target, weight, REDUCTIONS.index(reduction), ignore_index)[0]


def _cross_entropy(
    input: Tensor, target: Tensor, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    if label_smoothing or target.is_floating_point() or input.ndim not in (1, 2, 4):
        return NotImplemented
    logs = ops.aten._log_softmax.default(input, 0 if input.ndim == 1 else 1, False)
    return nll_loss(logs, target, weight, size_average, ignore_index, reduce, reduction)


def _batch_norm(
    input: Tensor, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    if training and (input.ndim < 2 or input.numel() == input.shape[1]):
        return NotImplemented  # the function refuses that
    given = weight, bias, running_mean, running_var, training, momentum, eps
    return ops.aten.native_batch_norm.default(input, *given)[0]


def _index_put_(self: Tensor, indices: Any, values: Tensor, *late: Any, **kwargs: Any) -> Any:
    """`index_put_`. As a step of an op that writes in place, it has the arguments of the row of `index_put`."""
    *pattern, accumulate = late or (kwargs.get("accumulate", False),)
    places = in_places(indices, pattern[0]) if pattern else list(indices)
    return ops.aten.index_put_.default(self, places, values, *([True] if accumulate else []))


# What users call, and how the registry writes it.
FUNCTIONS: dict[str, Callable] = {
    "__deepcopy__": _deepcopy,
    "__iter__": lambda self: iter(ops.aten.unbind.int(self)),
    "_getitem": indexed,
    "_setitem": _setitem,
    "_split_method": split,
    "block_diag": lambda *tensors: ops.aten.block_diag.default(list(tensors)),
    "cpu": lambda self, *args, **kwargs: converted(self, "cpu"),
    "cuda": lambda self, device=None, **kwargs: converted(self, "cuda" if device is None else device),
    "batch_norm": lambda input, weight, bias, running_mean, running_var, *more: _batch_norm(
        input, running_mean, running_var, weight, bias, *more[:3]
    ),
    "index_put_": _index_put_,
    "log_softmax": _softmax("_log_softmax", functional=False),
    "norm": lambda *args, **kwargs: NotImplemented,  # several functions of that name, which call others
    "pin_memory": lambda self, device=None: ops.aten._pin_memory.default(self),
    "relu": _relu,
    "softmax": _softmax("_softmax", functional=False),
    "split": split,
    "to": converted,
    "type_as": lambda self, other: converted(self, other.device, other.dtype),
    **{
        name: lambda self, _dtype=dtype, **kwargs: converted(self, getattr(tensorgrad, _dtype))
        for name, dtype in _CASTS.items()
    },
    **{name: _made(name) for name in ("empty", "full", "ones", "rand", "randn", "zeros")},
}


# The same for functions of `torch.nn.functional`, which may have the name of an operator and other arguments.
FUNCTIONAL: dict[str, Callable] = {
    "batch_norm": _batch_norm,
    "cross_entropy": _cross_entropy,
    "embedding": _embedding,
    "huber_loss": _loss("huber_loss", "delta"),
    "log_softmax": _softmax("_log_softmax", functional=True),
    "mse_loss": _loss("mse_loss"),
    "nll_loss": nll_loss,
    "smooth_l1_loss": _loss("smooth_l1_loss", "beta"),
    "softmax": _softmax("_softmax", functional=True),
    # Their rows are the operators: the functions may also be asked to write in place, or take other arguments.
    **dict.fromkeys(
        (
            "adaptive_max_pool2d", "adaptive_max_pool3d", "binary_cross_entropy_with_logits", "elu", "hardsigmoid",
            "hardswish", "hardtanh", "leaky_relu", "max_pool2d_with_indices", "max_pool3d_with_indices", "mish", "pad",
            "silu", "unfold",
        ),
        lambda *args, **kwargs: NotImplemented,
    ),
}  # fmt: skip
