"""The arguments with which a view shows the same part of every sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def shifted(name: str, value: Any, shape: tuple, args: tuple) -> tuple[str, Any, tuple]:
    """The op, the value and the arguments for a view of all samples, from those for a view of one of this shape."""
    if name == "t":
        return ("transpose", value, (1, 2)) if len(shape) == 2 else ("alias", value, ())
    if name == "unfold" and not shape:  # one number, as a window of length 0 or 1
        return "slice", value.unsqueeze(1), ((slice(None), slice(args[1])),)
    return name, *(_RULES[name](value, shape, *args) if name in _RULES else (value, args))


def _plus(*dims: int) -> tuple:
    return tuple([d + 1 if d >= 0 else d for d in dims])


def _expand(value: Any, shape: tuple, size: tuple) -> tuple:
    for _ in range(len(size) - len(shape)):
        value = value.unsqueeze(1)
    return value, ((value.shape[0], *size),)


def _strided(value: Any, shape: tuple, size: tuple, stride: tuple, delta: int, geometry: Any) -> tuple:
    array = value._array
    lead = array.strides[0] // array.itemsize
    return value, ((len(value), *size), (lead, *stride), delta, (array.shape, value.stride()))


def _spread(value: Any, shape: tuple, wanted: tuple, dims: Any, keepdim: bool) -> tuple:
    dims = (dims,) if dims.__class__ is int else range(len(wanted)) if dims is None else dims
    return value, ((value.shape[0], *wanted), _plus(*dims) if wanted else (), keepdim)


_RULES: dict[str, Callable] = {
    "view": lambda x, shape, size: (x, ((x.shape[0], *size),)),
    "expand": _expand,
    "unsqueeze": lambda x, shape, dim: (x, (dim + 1,)),
    "squeeze_dims": lambda x, shape, dims: (x, (_plus(*dims) if shape else (),)),
    "squeeze": lambda x, shape, dims: (x, (_plus(*dims) if shape else (),)),
    "permute": lambda x, shape, dims: (x, ((0, *_plus(*dims)),)),
    "transpose": lambda x, shape, a, b: (x, _plus(a, b) if shape else (0, 0)),
    "diagonal": lambda x, shape, offset, a, b: (x, (offset, *_plus(a, b))),
    "unfold": lambda x, shape, dim, size, step: (x, (dim + 1, size, step)),
    "select": lambda x, shape, index: (x, ((slice(None), *index),)),
    "slice": lambda x, shape, index: (x, ((slice(None), *index),)),
    "new_axes": lambda x, shape, index: (x, ((slice(None), *index),)),
    "spread": _spread,
    "as_strided": _strided,
}
