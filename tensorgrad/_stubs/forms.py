"""The functions that can be called in several ways, of which Python's signature can only say one: as overloads.

Each is written as its parameters and its result, in the stubs' names (`_int`, as `int` is a dtype there). A method of
the same name has the same forms, with `self` for the first parameter.
"""

from __future__ import annotations

_LIKE = (
    "dtype: _dtype | None = ..., layout: _layout | None = ..., device: _device | _str | _int | None = ..., "
    "requires_grad: _bool = ..., pin_memory: _bool = ..."
)
_OUT = f"out: Tensor | None = ..., {_LIKE}"
_RANDOM = f"generator: _Generator | None = ..., {_OUT}"
_FORMAT = "memory_format: _memory_format | None = ..."
_MOVED = f"non_blocking: _bool = ..., copy: _bool = ..., *, {_FORMAT}"
_SIZE = "Sequence[_int]"


def _of_size(more: str) -> list[str]:
    """The forms of what makes a tensor of a size: `zeros(2, 3)` and `zeros((2, 3))`."""
    return [f"*size: _int, {more} -> Tensor", f"size: {_SIZE}, *, {more} -> Tensor"]


def _in_shape(name: str) -> list[str]:
    """The forms of a method that takes numbers, or one list of them."""
    return [f"self, *{name}: _int -> Tensor", f"self, {name}: {_SIZE} -> Tensor"]


def _extremum(name: str) -> list[str]:
    return [
        "input: Tensor, *, out: Tensor | None = ... -> Tensor",
        "input: Tensor, other: Tensor, *, out: Tensor | None = ... -> Tensor",
        f"input: Tensor, dim: _int, keepdim: _bool = ..., *, out: Any = ... -> _return_types.{name}",
    ]


def _median(name: str) -> list[str]:
    return [
        "input: Tensor -> Tensor",
        f"input: Tensor, dim: _int, keepdim: _bool = ..., *, out: Any = ... -> _return_types.{name}",
    ]


_SUM = ["input: Tensor, other: Tensor | _Number, *, alpha: _Number = ..., out: Tensor | None = ... -> Tensor"]

FUNCTIONS: dict[str, list[str]] = {
    **{name: _of_size(_OUT) for name in ("ones", "zeros")},
    "empty": _of_size(f"{_OUT}, {_FORMAT}"),
    **{name: _of_size(_RANDOM) for name in ("rand", "randn")},
    **{name: [f"input: Tensor, *, {_LIKE}, {_FORMAT} -> Tensor"] for name in ("empty_like", "ones_like", "zeros_like")},
    "full_like": [f"input: Tensor, fill_value: _Number, *, {_LIKE}, {_FORMAT} -> Tensor"],
    "randint": [
        f"high: _int, size: {_SIZE}, *, {_RANDOM} -> Tensor",
        f"low: _int, high: _int, size: {_SIZE}, *, {_RANDOM} -> Tensor",
    ],
    "max": _extremum("max"),
    "min": _extremum("min"),
    "median": _median("median"),
    "nanmedian": _median("nanmedian"),
    "nonzero": [
        "input: Tensor, *, as_tuple: Literal[False] = ..., out: Tensor | None = ... -> Tensor",
        "input: Tensor, *, as_tuple: Literal[True] -> builtins.tuple[Tensor, ...]",
    ],
    "where": [
        "condition: Tensor, input: Tensor | _Number, other: Tensor | _Number, *, out: Tensor | None = ... -> Tensor",
        "condition: Tensor -> builtins.tuple[Tensor, ...]",
    ],
    "einsum": ["equation: _str, *operands: Any -> Tensor"],
    **dict.fromkeys(("add", "sub", "subtract"), _SUM),
}

_NEW = _LIKE
METHODS: dict[str, list[str]] = {
    **{name: _in_shape(argument) for name, argument in (
        ("expand", "size"), ("flip", "dims"), ("permute", "dims"), ("repeat", "repeats"), ("reshape", "shape"),
        ("tile", "dims"), ("sum_to_size", "size"), ("broadcast_to", "size"),
    )},
    "count_nonzero": ["self, *dim: _int -> Tensor", "self, dim: _int | Sequence[_int] | None -> Tensor"],
    **{name: [
        "self, *indices: _int -> builtins.tuple[Tensor, ...]",
        "self, indices: Sequence[_int] -> builtins.tuple[Tensor, ...]",
        "self, *, sections: _int -> builtins.tuple[Tensor, ...]",
    ] for name in ("dsplit", "hsplit", "vsplit")},
    "view": [*_in_shape("size"), "self, dtype: _dtype -> Tensor"],
    "to": [
        f"self, dtype: _dtype, {_MOVED} -> Tensor",
        f"self, device: _device | _str | _int | None = ..., dtype: _dtype | None = ..., {_MOVED} -> Tensor",
        f"self, other: Tensor, {_MOVED} -> Tensor",
    ],
    "type": [
        "self, dtype: None = ..., non_blocking: _bool = ... -> _str",
        "self, dtype: _dtype | _str | builtins.type, non_blocking: _bool = ... -> Tensor",
    ],
    **{f"new_{name}": [f"self, *size: _int, {_NEW} -> Tensor", f"self, size: {_SIZE}, *, {_NEW} -> Tensor"]
       for name in ("empty", "ones", "zeros")},
    "new_full": [f"self, size: {_SIZE}, fill_value: _Number, *, {_NEW} -> Tensor"],
    "new_tensor": [f"self, data: Any, *, {_NEW} -> Tensor"],
}  # fmt: skip


def forms(name: str, method: bool) -> list[tuple[list[str], str]]:
    """The forms of a function or method: the parameters and the result of each; none if it has only one.

    >>> from tensorgrad._stubs.forms import forms
    >>> forms("median", method=True)[0]
    (['self'], 'Tensor')
    """
    found = (METHODS.get(name) or FUNCTIONS.get(name, [])) if method else FUNCTIONS.get(name, [])
    made = []
    for form in found:
        parameters, _, result = form.rpartition(" -> ")
        first, *rest = parameters.split(", ")
        made.append((["self" if method else first, *rest], result))
    return made
