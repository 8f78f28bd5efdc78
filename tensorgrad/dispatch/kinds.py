"""The kinds of op, and how a row becomes functions and methods.

A kind is a set of rules: `pointwise` promotes dtypes, broadcasts and works in place; `reduction` normalizes `dim`;
`view` shares the storage; `op` is everything else. All of them get `out=`, meta shapes and derivatives of any order
from here and from the engine; no op does this by hand.

`@composite` is for everything that needs no derivative of its own: an ordinary function over tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, Literal, Protocol, TypeAlias, overload

from tensorgrad.dispatch import generate, inplace, stored_types  # noqa: F401  stored_types registers itself
from tensorgrad.dispatch.shapes import meta_kernel
from tensorgrad.dispatch.twins import twin_kernel
from tensorgrad.errors import wrap_dim, wrap_dims
from tensorgrad.rows.kernel_tables import RULES
from tensorgrad.rows.op import Op, row
from tensorgrad.rows.signature import Param, parse
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor


class Function(Protocol):
    """What a row becomes: a function over tensors, with its row as `op`. It returns a tensor, or a tuple of them."""

    op: Op
    __name__: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


class TensorFunction(Function, Protocol):
    """A `Function` that returns one tensor."""

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor: ...


RULES.update({"shape rule": meta_kernel, "twin": twin_kernel})

# In annotations of composites, as in rows: PyTorch's Scalar. (A complex one is a matter of the function.)
number: TypeAlias = float

# Where users find a function: `torch.<name>`, `tensor.<name>`, `torch.nn.functional.<name>`.
Place = Literal["function", "method", "functional"]
PUBLIC: tuple[Place, ...] = ("function", "method")  # where PyTorch has most ops

FUNCTIONS: dict[str, Callable] = {}
FUNCTIONAL: dict[str, Callable] = {}
TABLES = {"function": FUNCTIONS, "functional": FUNCTIONAL}


def export(name: str, function: Any, *where: Place) -> None:
    """Makes a function available to users under a name, in one or several places.

    Raises: ValueError for an unknown place.
    """
    for place in where:
        if place == "method":
            setattr(Tensor, name, function)
        elif place in TABLES:
            TABLES[place][name] = function
        else:
            raise ValueError(f"{name}: there is no place {place!r}; expected one of method, {', '.join(TABLES)}")


def _declare(op: Op, where: tuple[Place, ...]) -> Any:
    function = generate.declare(op)
    export(op.name, function, *where)
    return function


def pointwise(
    signature: str,
    kernel,
    *,
    rule: str = "same",
    where: tuple[Place, ...] = PUBLIC,
    in_place: bool = True,
    operator: str = "",
    **given,
) -> TensorFunction:
    """An op on corresponding elements. `rule`: "same" computes in the promoted dtype, "float" turns integers into
    the default float first. Formulas are given by parameter name; all else `given` is as in `rows/op.py`."""
    op = _row(signature, kernel, "pointwise", given, rule=rule)
    function = _declare(op, where)
    if in_place:
        setattr(Tensor, f"{op.name}_", inplace.make(op))
        if "functional" in where or "function" in where:
            FUNCTIONS.setdefault(f"{op.name}_", getattr(Tensor, f"{op.name}_"))
    if operator:
        setattr(Tensor, f"__{operator}__", generate.promise(op, "operator"))
    return function


def reduction(signature: str, kernel, *, where: tuple[Place, ...] = PUBLIC, **given) -> TensorFunction:
    """An op that removes dimensions. Its `dim` parameter reaches the kernel as None, a tuple, or (annotated `int`)
    one dimension, counted from the front."""
    given.setdefault("prepare", _reduction_prepare(parse(signature)[1]))
    return _declare(_row(signature, kernel, "reduction", given), where)


def _reduction_prepare(params: tuple[Param, ...]):
    names = [p.name for p in params]
    at = names.index("dim")
    single = params[at].annotation == "int"
    dtype_at = names.index("dtype") if "dtype" in names else None

    def prepare(*given):
        values = list(given)
        x, dim = values[0], values[at]
        if dtype_at is not None and values[dtype_at] is not None:
            values[0] = STORAGES[x.__class__].cast(x, values[dtype_at].numpy)
        if dim is not None:
            if single:
                values[at] = wrap_dim(dim, x.ndim)
            else:
                dims = (dim,) if dim.__class__ is int or not isinstance(dim, tuple | list) else dim
                wrapped = wrap_dims(dims, x.ndim)
                values[at] = (wrapped if x.ndim else ()) if wrapped else None
        return values

    return prepare


def view(signature: str, kernel, *, where: tuple[Place, ...] = PUBLIC, **given) -> TensorFunction:
    """An op whose result shares the memory of its input: the kernel only rearranges shape and strides."""
    return _declare(_row(signature, kernel, "view", given), where)


@overload
def op(signature: str, kernel: Any = None, *, outputs: tuple[str, ...], **given: Any) -> Function: ...
@overload
def op(signature: str, kernel: Any = None, **given: Any) -> TensorFunction: ...
def op(signature: str, kernel=None, *, kind: str = "op", where: tuple[Place, ...] = PUBLIC, **given) -> Function:
    """Any other op; see `Op` for what a row may say."""
    return _declare(_row(signature, kernel, kind, given), where)


_FIELDS = frozenset(row.__kwdefaults__ or ()) - {"formulas"}


def _row(signature: str, kernel, kind: str, given: dict, **more) -> Op:
    """Makes the row. What is given by keyword is a field, or the formula of the input of that name."""
    fields = {k: v for k, v in given.items() if k in _FIELDS}
    formulas = {k: v for k, v in given.items() if k not in _FIELDS}
    return row(signature, kernel, kind=kind, formulas=formulas, **fields, **more)


def composite(*where: Place, name: str = "", in_place=False):
    """A decorator: exposes an ordinary function over tensors as `torch.name`, as a method, and (`in_place`) as
    `tensor.name_`. `in_place` may name the row that the composite comes down to when called without keywords."""

    def decorator(function):
        public = name or function.__name__
        if name and isinstance(function, FunctionType):  # tracebacks and messages name what users call
            function.__code__ = function.__code__.replace(co_name=name)
        export(public, function, *(where or PUBLIC))
        if in_place:
            setattr(Tensor, f"{public}_", inplace.make_composite(public, function, getattr(in_place, "op", None)))
        return function

    return decorator


def alias(new: str, function: Any, *where: Place, in_place_of: str = "") -> None:
    """A second name for a function, and for its in-place method."""
    export(new, function, *(where or PUBLIC))
    if in_place_of:
        setattr(Tensor, f"{new}_", getattr(Tensor, f"{in_place_of}_"))
