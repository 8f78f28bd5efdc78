"""Pointwise ops, each a kernel built from its expression (`expressions.py`); operands broadcast with strides of 0.

Bytes per element: those of the operands and of the result, once each. Floating-point arrays only, and int64 in sums and
products, as of counters; scalars may replace arrays. The result's memory order is that of the first operand, as CuPy's.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import cupy
import numpy as np

from tensorgrad.kernels.cuda.expressions import EXPRESSIONS, WHOLE, settings
from tensorgrad.kernels.cuda.runtime import program
from tensorgrad.kernels.cuda.runtime.launch import ARRAY
from tensorgrad.layouts import inverse
from tensorgrad.storage.cuda.storage import CARDS, value_of

THREADS = 256
MOST_BLOCKS = 2**31 - 1
_NOTHING = np.int64(0)  # the address of an operand that is a scalar


@cache
def _function(name: str, kernel: str, dtype: str):
    return program.function("pointwise", kernel, dtype, **settings(name, dtype))


class _Form(NamedTuple):
    """An op on arrays of one dtype: what does not depend on the operands."""

    result: np.dtype
    kinds: list  # dtype of each operand
    some: int  # elements per thread
    number: Any  # the type of its scalars
    zero: Any
    rest: tuple  # the arguments of the operands that it does not have
    numbers: tuple  # three times zero
    whole: Any  # the function for arrays without gaps


@cache
def _form(name: str, dtype: np.dtype) -> _Form | None:
    """Returns None for a dtype that has no kernel."""
    number = np.int64 if dtype.name == "int64" and name in WHOLE else program.NUMBER.get(dtype.name)
    if number is None:
        return None
    row, kinds, zero = EXPRESSIONS[name], {"T": dtype, "b": np.dtype(bool)}, number(0)
    return _Form(
        kinds[row.result], [kinds[kind] for kind in row.operands], 16 // dtype.itemsize, number, zero,
        (_NOTHING, zero) * (3 - len(row.operands)), (zero,) * 3, _function(name, "whole", dtype.name),
    )  # fmt: skip


class _Whole(NamedTuple):
    """An op on arrays of one size without gaps, and perhaps numbers."""

    kinds: list  # dtype of each array
    result: np.dtype
    launch: Any  # of the result and the arrays


@lru_cache(maxsize=4096)
def _whole(name: str, dtype: np.dtype, size: int, scalars: tuple, numbers: tuple) -> _Whole | None:
    """Returns None if there is no kernel, or nothing to launch.

    `scalars` are the operands that are numbers, None for arrays; or it is empty if there are none.
    """
    form = _form(name, dtype)
    if form is None or not size:
        return None
    number = form.number
    kinds: list = []
    given: list = []
    for kind, x in zip(form.kinds, scalars or (None,) * len(form.kinds)):
        if x is None:
            kinds.append(kind)
            given += ARRAY, form.zero
        elif kind == dtype:
            given += _NOTHING, number(x)
        else:
            return None
    three = (*map(number, numbers), *form.numbers)[:3]
    grid = min(-(-size // (THREADS * form.some)), MOST_BLOCKS)
    arguments = ARRAY, np.int64(size), *given, *form.rest, *three
    return _Whole(kinds, form.result, form.whole.prepared((grid,), (THREADS,), arguments))


def run(name: str, *operands: Any, numbers: tuple = (), out: Any = None):
    """Runs an op on arrays and Python scalars; `numbers` are its parameters. NotImplemented if it has no kernel.

    `out`, of the result's dtype, receives the result; it may be one of the operands.
    """
    arrays: Any = operands
    scalars: tuple = ()
    for x in operands:
        if x.__class__ is not cupy.ndarray:
            arrays = [x for x in operands if x.__class__ is cupy.ndarray]
            scalars = tuple([None if x.__class__ is cupy.ndarray else x for x in operands])
            if not arrays or not all(x is None or x.__class__ in _scalars(arrays[0].dtype) for x in scalars):
                return NotImplemented
            break
    if (scalars or numbers) and _has_negative_zero(scalars, numbers):
        return _run(name, operands, numbers, out)
    first = arrays[0]
    how, shape = _whole(name, first.dtype, first.size, scalars, numbers), first.shape
    if how is not None:
        for x, kind in zip(arrays, how.kinds):
            if x.dtype != kind or x.shape != shape or x.data.ptr % 16 or not x._c_contiguous:
                break
            if CARDS > 1 and x.data.device_id != first.data.device_id:
                break
        else:
            if out is None:
                out = cupy.empty(shape, how.result)
            elif not _may_write(out, first, how.result, arrays):
                return NotImplemented
            how.launch(out, *arrays)
            return out
    return _run(name, operands, numbers, out)


def _has_negative_zero(scalars: tuple, numbers: tuple) -> bool:
    """Whether a number is -0.0, which a cache takes for 0.0."""
    return any([x == 0 and math.copysign(1, x) < 0 for x in (*scalars, *numbers)])


def _scalars(dtype: np.dtype) -> tuple:
    """Returns the classes of numbers that may stand for an array of this dtype."""
    return (int, float) if dtype.kind != "i" else (int,)


def _run(name: str, operands: tuple, numbers: tuple, out: Any):
    """Runs an op on operands of any kind."""
    dtype = None
    arrays = []
    for kind, x in zip(EXPRESSIONS[name].operands, operands):
        if x.__class__ is cupy.ndarray:
            arrays.append(x)
            if kind == "T" and dtype is None:
                dtype = x.dtype
    form = None if dtype is None else _form(name, dtype)
    if form is None:
        return NotImplemented
    first, number, zero = arrays[0], form.number, form.zero
    shape, device, whole = first.shape, first.data.device_id, True
    given: list[Any] = []
    for x, kind in zip(operands, form.kinds):
        if x.__class__ is cupy.ndarray:
            if x.dtype != kind or x.data.device_id != device:
                return NotImplemented
            if whole:
                whole = x.flags.c_contiguous and x.shape == shape and not x.data.ptr % 16
            given += (x, zero)
        elif kind != dtype:
            return NotImplemented
        else:
            given += (_NOTHING, number(x))
    given += form.rest
    given += [*map(number, numbers), zero, zero, zero][:3] if numbers else form.numbers
    if out is not None and not (whole and _may_write(out, first, form.result, arrays)):
        return NotImplemented
    if not whole:
        return _broadcast(name, operands, given, form, dtype)
    if out is None:
        out = cupy.empty(shape, form.result)
    if n := out.size:
        form.whole((min(-(-n // (THREADS * form.some)), MOST_BLOCKS),), (THREADS,), (out, np.int64(n), *given))
    return out


def _may_write(out, like, dtype, arrays) -> bool:
    """Returns whether `out` has the result's form, and lies where an operand lies or apart from it."""
    if out.shape != like.shape or out.dtype != dtype or not out.flags.c_contiguous or out.data.ptr % 16:
        return False
    start, size = out.data.ptr, out.nbytes
    return all(x.data.ptr == start or not -x.nbytes < x.data.ptr - start < size for x in arrays)


# --- conversions -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _conversion(given: np.dtype, wanted: np.dtype, size: int):
    """Returns the launch that converts an array of this size; None if there is no kernel, or nothing to launch."""
    if given.name not in program.NUMBER or wanted.name not in program.NUMBER or not size:
        return None
    number = program.NUMBER[given.name](0)
    function = program.function(
        "pointwise", "whole", given.name, EXPRESSION="a", OPERANDS=1, OUT=program.TYPES[wanted.name][0], TA="T"
    )
    nothing = _NOTHING, number
    grid = min(-(-size // (THREADS * (16 // given.itemsize))), MOST_BLOCKS)
    arguments = ARRAY, np.int64(size), ARRAY, number, *nothing, *nothing, *[number] * 3
    return function.prepared((grid,), (THREADS,), arguments)


def convert(x, dtype):
    """Converts between floating-point dtypes, in memory's order. NotImplemented for others, and arrays with gaps."""
    launch = _conversion(x.dtype, dtype, x.size)
    if launch is None:
        return NotImplemented
    if not x._c_contiguous:
        order = order_of([x], x.ndim)
        made = x.transpose(order)
        if not made.flags.c_contiguous:
            return NotImplemented
        made = convert(made, dtype)
        return made if made is NotImplemented else made.transpose(inverse(order))
    if x.data.ptr % 16:
        return NotImplemented
    out = cupy.empty(x.shape, dtype)
    launch(out, x)
    return out


# --- shapes and steps ------------------------------------------------------------------------------------------------


def order_of(arrays, dims: int) -> list[int]:
    """Orders dimensions from the largest stride to the smallest; the first array that distinguishes two decides."""
    order = list(range(dims))
    strides = [[abs(step) for step in x.strides] for x in arrays if x.ndim == dims]
    for i in range(1, dims):  # by insertion: repeated dimensions, and those of one element, cannot be compared
        at = i
        for before in range(i - 1, -1, -1):
            wider = _wider(strides, order[at], order[before])
            if wider is None:
                continue
            if not wider:
                break
            order[at], order[before] = order[before], order[at]
            at = before
    return order


def _wider(strides, d: int, other: int) -> bool | None:
    """Returns whether dimension d has larger strides than the other; None if no array decides."""
    for steps in strides:
        if steps[d] and steps[other] and steps[d] != steps[other]:
            return steps[d] > steps[other]
    return None


def _steps(x, shape, order):
    """Returns steps in elements over the dimensions of `shape`, in `order`: 0 where `x` is repeated."""
    missing = len(shape) - x.ndim
    return [0 if d < missing or x.shape[d - missing] == 1 else x.strides[d - missing] // x.itemsize for d in order]


def collapsed(shape, steps):
    """Merges dimensions that are contiguous in all arrays; returns the shape and one list of steps per array.

    >>> collapsed((2, 3, 4), [[12, 4, 1], [0, 4, 1]])
    ([2, 12], [[12, 1], [0, 1]])
    """
    kept: list[int] = []
    rows: list[list[int]] = [[] for _ in steps]
    for d, n in enumerate(shape):
        if n == 1:
            continue
        if kept and all(row[-1] == given[d] * n for row, given in zip(rows, steps)):
            kept[-1] *= n
            for row, given in zip(rows, steps):
                row[-1] = given[d]
        else:
            kept.append(n)
            for row, given in zip(rows, steps):
                row.append(given[d])
    return kept, rows


class _Laid(NamedTuple):
    """Operands as an array of their shape, strides and alignment; what `_order` and `_steps` ask of one."""

    shape: tuple
    strides: tuple
    itemsize: int
    aligned: bool  # its address is a multiple of a pack's size

    @property
    def ndim(self) -> int:
        return len(self.shape)


@lru_cache(maxsize=4096)
def _plan(operands: tuple, some: int):
    """Plans a launch with steps: (the result's shape in memory, how to turn it, kernel, grid, the kernel's sizes).

    `operands` are of _Laid, or None for a scalar; `some` is the number of elements per thread. Returns None if four
    dimensions are not enough.
    """
    arrays = [x for x in operands if x is not None]
    shape = np.broadcast_shapes(*(x.shape for x in arrays))
    order = order_of(arrays, len(shape))
    ordered = tuple(shape[d] for d in order)
    back = inverse(order)
    turn, n = None if order == back == sorted(order) else back, math.prod(shape)
    if not n:
        return ordered, turn, None, 0, ()
    sizes, steps = collapsed(ordered, [_steps(x, shape, order) for x in arrays])
    if len(sizes) > 4:
        return None
    missing = 4 - len(sizes)
    sizes = [1] * missing + sizes
    by_array = iter([0] * missing + row for row in steps)
    rows = [[0] * 4 if x is None else next(by_array) for x in (*operands, None, None)[:3]]
    packed = sizes[3] % some == 0 and n < 2**31 and _suits_packs(operands, rows, some)
    kernel = "broadcast_packed" if packed else "broadcast" if n < 2**31 else "broadcast_far"
    count = n // some if packed else n
    grid = min(-(-count // THREADS), MOST_BLOCKS)
    return ordered, turn, kernel, grid, tuple(np.int64(v) for v in (n, *sizes[1:], *rows[0], *rows[1], *rows[2]))


def _suits_packs(operands, rows, some) -> bool:
    """Returns whether each operand's memory consists of whole, aligned packs of adjacent elements."""
    for x, row in zip(operands, rows):
        if x is None:
            continue
        if row[3] == 1:
            if not x.aligned or any(step % some for step in row[:3]):
                return False
        elif row[3]:
            return False
    return True


def _broadcast(name, operands, given, form, dtype):
    """Computes the result with steps. Returns NotImplemented if four dimensions are not enough."""
    laid = tuple([
        _Laid(x.shape, x.strides, x.itemsize, not x.data.ptr % (form.some * x.itemsize))
        if x.__class__ is cupy.ndarray else None for x in operands
    ])  # fmt: skip
    plan = _plan(laid, form.some)
    if plan is None:
        return NotImplemented
    shape, turn, kernel, grid, places = plan
    out = cupy.empty(shape, form.result)
    if kernel is not None:
        given = (out, places[0], *given, *places[1:])
        _function(name, kernel, program.NAME[dtype])((grid,), (THREADS,), given)
    return out if turn is None else out.transpose(turn)


# --- the ops' kernels ------------------------------------------------------------------------------------------------


def __getattr__(name: str):
    """Returns the kernel of an expression by name: it takes arrays, then the op's scalars."""
    if name not in EXPRESSIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    arrays = len(EXPRESSIONS[name].operands)

    def kernel(*given, out=None):
        return run(name, *given[:arrays], numbers=given[arrays:], out=out)

    kernel.__name__ = name
    return kernel


relu_backward = partial(run, "threshold_grad")


def gelu(x, approximate="none"):
    """Computes the Gaussian error linear unit, or its tanh form."""
    return run("gelu_tanh" if approximate == "tanh" else "gelu", x)


def gelu_grad(g, x, approximate="none"):
    """Computes the gradient of `gelu`."""
    return run("gelu_tanh_grad" if approximate == "tanh" else "gelu_grad", g, x)


def _limits(low, high):
    return (-math.inf if low is None else low, math.inf if high is None else high)


def clamp(x, low, high):
    """Limits x to [low, high]; either may be None."""
    low, high = _limits(low, high)
    if math.isnan(low) or math.isnan(high):  # CuPy's own ignores it
        return cupy.full(x.shape, math.nan, x.dtype) if x.dtype.name in program.NUMBER else NotImplemented
    return run("clamp", x, numbers=(low, high))


def clamp_grad(g, x, low, high):
    """Computes the gradient of `clamp`."""
    return run("clamp_grad", g, x, numbers=_limits(low, high))


_POWERS = {2: "square", 3: "cube", 0.5: "sqrt", -1: "reciprocal", -0.5: "rsqrt"}


def power(x, y):
    """Computes x to the power y."""
    number = y if y.__class__ is float or y.__class__ is int else value_of(y) if y.__class__ is cupy.ndarray else None
    name = None if number is None or x.dtype.kind == "c" else _POWERS.get(float(number))
    return run("pow", x, y) if name is None else run(name, x)


def masked_fill(x, mask, value):
    """Replaces x by a scalar where the mask is true."""
    return NotImplemented if value.__class__ is complex else run("masked_fill", x, mask, numbers=(value,))
