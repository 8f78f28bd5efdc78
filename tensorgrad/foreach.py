"""`torch._foreach_add` and the like: one op on every tensor of a list, as optimizers call them.

Each is the op itself, called for one tensor after another, so the results and derivatives are the op's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tensorgrad import linalg
from tensorgrad.tensor import Tensor

Lists = Sequence[Tensor]

_UNARY = """
    abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round
    rsqrt sigmoid sign sin sinh sqrt tan tanh trunc
"""
# name -> the tensors' method (clamp_min is maximum, but has an in-place form and takes numbers), whether it has `alpha`
_BINARY = {
    "add": ("add", True),
    "clamp_max": ("clamp_max", False),
    "clamp_min": ("clamp_min", False),
    "div": ("div", False),
    "maximum": ("clamp_min", False),
    "minimum": ("clamp_max", False),
    "mul": ("mul", False),
    "pow": ("pow", False),
    "sub": ("sub", True),
}


def functions() -> dict[str, Callable]:
    """Returns all of them, by name.

    >>> from tensorgrad.foreach import functions
    >>> functions()["_foreach_mul"]([torch.ones(1), torch.ones(2)], [2, 3])
    (tensor([2.]), tensor([3., 3.]))
    """
    made: dict[str, Callable] = {}
    for name in _UNARY.split():
        made |= _both(name, _unary, name)
    for name, (method, has_alpha) in _BINARY.items():
        made |= _both(name, _binary, method, has_alpha)
    for name in ("addcdiv", "addcmul"):
        made |= _both(name, _pointwise, name)
    made |= _both("lerp", _lerp, "lerp")
    others = (clone, copy_, max, mm, norm, powsum, zero_)
    return made | {f"_foreach_{function.__name__}": function for function in others}


def _both(name: str, make: Callable, method: str, *options: Any) -> dict[str, Callable]:
    """Returns the function that makes new tensors, and the one that writes to those given."""
    made = {}
    for suffix in ("", "_"):
        full = f"_foreach_{name}{suffix}"
        function = make(full, method + suffix, *options)
        function.__name__ = function.__qualname__ = full
        function.__doc__ = f"Calls `{name}{suffix}` for every tensor of a list, with what belongs to it."
        made[full] = function
    return made


# --- kinds -----------------------------------------------------------------------------------------------------------


def _unary(full: str, method: str) -> Callable:
    op = getattr(Tensor, method)

    def unary(self: Lists) -> Any:
        _check(full, self)
        return _given(full, self, (op(tensor) for tensor in self))

    return unary


def _binary(full: str, method: str, has_alpha: bool) -> Callable:
    op = getattr(Tensor, method)

    def binary(self: Any, *other: Any, alpha: Any = None, **named: Any) -> Any:
        value = _one(full, other, named, ("other", "scalar", "scalars", "exponent"))
        if full == "_foreach_pow" and not isinstance(self, list | tuple):  # a number, to the powers of a list
            _check(full, value)
            return tuple(self**exponent for exponent in value)
        _check(full, self)
        values = _spread(full, self, value)
        if alpha is None:
            return _given(full, self, map(op, self, values))
        if not has_alpha or not isinstance(values[0], Tensor):
            raise TypeError(f"{full}() takes alpha only with {'tensors' if has_alpha else 'add and sub'}")
        return _given(full, self, (op(tensor, v, alpha=alpha) for tensor, v in zip(self, values)))

    return binary


def _pointwise(full: str, method: str) -> Callable:
    op = getattr(Tensor, method)

    def pointwise(self: Lists, tensor1: Lists, tensor2: Lists, *value: Any, **named: Any) -> Any:
        scale = _one(full, value or ((1,) if not named else ()), named, ("value", "scalars"))
        _check(full, self, tensor1, tensor2)
        if isinstance(scale, Tensor):
            if scale.dim() != 1:
                raise RuntimeError(f"Expected packed scalar Tensor to be of dimension 1. Got {scale.dim()} instead.")
            if len(scale) != len(self):
                raise RuntimeError(
                    f"Expected length of scalars to match input of length {len(self)} but got {len(scale)} instead."
                )
            scale = scale.tolist()
        scales = _spread(full, self, scale)
        return _given(full, self, (op(a, b, c, value=s) for a, b, c, s in zip(self, tensor1, tensor2, scales)))

    return pointwise


def _lerp(full: str, method: str) -> Callable:
    op = getattr(Tensor, method)

    def lerp(self: Lists, tensors1: Lists, *weight: Any, **named: Any) -> Any:
        weights = _one(full, weight, named, ("weight", "weights"))
        _check(full, self, tensors1)
        return _given(full, self, map(op, self, tensors1, _spread(full, self, weights)))

    return lerp


# --- the others ------------------------------------------------------------------------------------------------------


def clone(self: Lists, *, memory_format: Any = None) -> tuple[Tensor, ...]:
    """Returns a copy of every tensor.

    >>> torch._foreach_clone([torch.ones(2)])
    (tensor([1., 1.]),)
    """
    _check("_foreach_clone", self)
    options = {} if memory_format is None else {"memory_format": memory_format}
    return tuple(tensor.clone(**options) for tensor in self)


def copy_(self: Lists, src: Lists, non_blocking: bool = False) -> Lists:
    """Copies every tensor of `src` over the one in `self`.

    >>> torch._foreach_copy_([torch.zeros(2)], [torch.ones(2)])
    [tensor([1., 1.])]
    """
    _check("_foreach_copy_", self, src)
    return _given("_foreach_copy_", self, (a.copy_(b, non_blocking) for a, b in zip(self, src)))


def max(self: Lists) -> tuple[Tensor, ...]:
    """Returns the largest element of every tensor.

    >>> torch._foreach_max([torch.tensor([1.0, 3.0])])
    (tensor(3.),)
    """
    _check("_foreach_max", self)
    return tuple(tensor.max() for tensor in self)


def mm(self: Lists, mat2: Lists) -> tuple[Tensor, ...]:
    """Returns the products of two lists of matrices.

    >>> torch._foreach_mm([torch.ones(1, 2)], [torch.ones(2, 1)])
    (tensor([[2.]]),)
    """
    _check("_foreach_mm", self, mat2)
    return tuple(a.mm(b) for a, b in zip(self, mat2))


def norm(self: Lists, ord: float = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """Returns the vector norm of every tensor.

    >>> torch._foreach_norm([torch.tensor([3.0, 4.0])])
    (tensor(5.),)
    """
    _check("_foreach_norm", self)
    return tuple(linalg.vector_norm(tensor, ord, dtype=dtype) for tensor in self)


def powsum(self: Lists, ord: float = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """Returns the sum of |x| ** ord over the elements x of every tensor.

    >>> torch._foreach_powsum([torch.tensor([3.0, 4.0])], 2)
    (tensor(25.),)
    """
    _check("_foreach_powsum", self)
    return tuple((tensor if dtype is None else tensor.to(dtype)).abs().pow(ord).sum() for tensor in self)


def zero_(self: Lists) -> Lists:
    """Fills every tensor with zeros.

    >>> torch._foreach_zero_([torch.ones(2)])
    [tensor([0., 0.])]
    """
    _check("_foreach_zero_", self)
    return _given("_foreach_zero_", self, (tensor.zero_() for tensor in self))


# --- arguments -------------------------------------------------------------------------------------------------------


def _check(full: str, first: Any, *others: Any) -> None:
    """Raises PyTorch's errors for lists that do not go together."""
    for tensors in (first, *others):
        if not isinstance(tensors, list | tuple) or not all(isinstance(tensor, Tensor) for tensor in tensors):
            raise TypeError(f"{full}(): expected a list of tensors, got {_described(tensors)}")
    if not first:
        raise RuntimeError("Tensor list must have at least one tensor.")
    for tensors in others:
        if len(tensors) != len(first):
            raise RuntimeError(
                f"Tensor lists must have the same number of tensors, got {len(first)} and {len(tensors)}"
            )


def _spread(full: str, self: Lists, value: Any) -> Sequence[Any]:
    """Returns what belongs to each tensor: the items of a list, or a number or a tensor without dimensions for all."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], Tensor):
        _check(full, self, value)
        return value
    if isinstance(value, list | tuple):
        if len(value) != len(self):
            raise RuntimeError("Tensor list must have same number of elements as scalar list.")
        values: Sequence[Any] = value
    else:
        values = [value] * len(self)
    for v in values:
        if isinstance(v, Tensor) and v.dim() > 0:
            raise RuntimeError(
                f"scalar tensor expected to be 0 dim but it has {v.dim()} dimensions and {v.numel()} elements."
            )
        if not isinstance(v, Tensor | bool | int | float | complex):
            raise TypeError(
                f"{full}(): expected a number, a tensor, or a list of one of these, got {_described(value)}"
            )
    return values


def _one(full: str, positional: tuple, named: dict[str, Any], names: tuple[str, ...]) -> Any:
    """Returns the only argument of several possible names."""
    given = [*positional, *(value for name, value in named.items() if name in names)]
    if len(given) != 1 or not named.keys() <= set(names):
        raise TypeError(f"{full}() takes one argument out of {', '.join(names)}; got {[*positional, *named]}")
    return given[0]


def _given(full: str, self: Lists, results: Iterable[Tensor]) -> Any:
    """Computes all results; of an op in place, returns the list that was given."""
    made = tuple(results)
    return self if full.endswith("_") else made


def _described(value: Any) -> str:
    inner = f" of {', '.join(sorted({type(v).__name__ for v in value}))}" if isinstance(value, list | tuple) else ""
    return f"{type(value).__name__}{inner}"
