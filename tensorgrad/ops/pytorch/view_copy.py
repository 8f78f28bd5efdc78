"""Views copied to new memory: `expand_copy`, `slice_copy`, ..."""

from __future__ import annotations

from tensorgrad.dispatch.kinds import composite
from tensorgrad.dispatch.out import store_out
from tensorgrad.dtypes import dtype
from tensorgrad.errors import wrap_dim
from tensorgrad.ops.complex import view_as_complex, view_as_real
from tensorgrad.ops.copy import clone
from tensorgrad.ops.shape import alias_of, permute
from tensorgrad.tensor import Tensor


def _copying(name: str, viewing=None) -> None:
    """Declares `name_copy`, a copy of what a function returns, or the method `name` with the checks it has by then."""

    def function(input: Tensor, *args, out=None, **kwargs):
        view = getattr(Tensor, name) if viewing is None else viewing
        made = view(input, *args, **kwargs)
        if isinstance(made, tuple):
            made = tuple(clone(part, memory_format="contiguous") for part in made)
            made = store_out(function.__name__, out, made)
            return made if out is None else None
        made = clone(made, memory_format="contiguous")
        return store_out(function.__name__, out, made)

    function.__name__ = function.__qualname__ = f"{name}_copy"
    function.__code__ = function.__code__.replace(co_name=f"{name}_copy")  # errors.wrong_argument names it
    function.__doc__ = f"Returns a copy of the result of `{name}`, in new memory."
    composite("function", "method" if name == "narrow" else "function")(function)


def _view(input: Tensor, *args, **kwargs) -> Tensor:
    """Returns `input.view(…)`, for a shape that no view can have that of a copy."""
    sized = not any(isinstance(value, dtype) for value in (*args, *kwargs.values()))
    return Tensor.view(input.contiguous() if sized else input, *args, **kwargs)


def _slice(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """Returns the view `input[..., start:end:step, ...]` at dimension `dim`."""
    shape = input._array.shape
    if not shape:
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    if step < 1:
        raise RuntimeError("slice step must be positive")
    dim = wrap_dim(dim, len(shape))
    return input[(slice(None),) * dim + (slice(start, end, step),)]


for _name in (
    "as_strided", "detach", "diagonal", "expand", "narrow", "select", "split", "split_with_sizes", "squeeze",
    "t", "transpose", "unbind", "unfold", "unsqueeze",
):  # fmt: skip
    _copying(_name)
_copying("permute", permute)
_copying("view", _view)
_copying("alias", alias_of)
_copying("slice", _slice)
_copying("view_as_complex", view_as_complex)
_copying("view_as_real", view_as_real)
