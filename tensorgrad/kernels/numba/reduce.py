"""Sums, sums of squares, extrema and products over dimensions that are adjacent in memory.

The loops see (outer, n, inner): each result is folded from n elements, which are adjacent if `inner` is 1. Long ones
are folded in parts whose size depends on the shape alone, so that results do not depend on the number of threads. Sums
are kept in single precision for a few thousand elements at most, beyond that in double.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import NamedTuple

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.numba import layout
from tensorgrad.kernels.numba.functions import F
from tensorgrad.kernels.numba.layout import suits
from tensorgrad.kernels.numba.runtime import thread_pool
from tensorgrad.kernels.numba.runtime.language import MEMORY, inlined, inner
from tensorgrad.kernels.numba.runtime.launch import Shared, shared
from tensorgrad.kernels.numba.softmax import ANY_ORDER, MATRIX, joined, together
from tensorgrad.kernels.numba.walk import taken

_PART = 16384  # adjacent elements that one thread folds
_RUN = 4096  # of which this many are summed in single precision
_LINES, _COLUMNS = 256, 2048  # the part of a plane that one thread folds
_NARROW = 16  # columns for which the loop over planes is not worthwhile
_WIDE, _FEW = 512, 8  # columns for which it is fast, and lines that it is worthwhile for
_COST = 0.2


@inner(fastmath=ANY_ORDER)
def _product(row):
    total = F(1.0)
    for i in range(row.size):
        total *= row[i]
    return total


# --- loops -----------------------------------------------------------------------------------------------------------


class _Loops(NamedTuple):
    """Compiled loops; the last two divide the result (by 1 except for means)."""

    adds: bool  # whether n equal numbers fold to n times the number, not to the number

    lines: Shared
    long: Shared  # rows of adjacent elements, in parts
    join: Shared  # the parts of each row
    short: Shared  # rows that are a single part


def _loops(adds: bool, fold, fold_run, fold_lines, further, start: float) -> _Loops:
    """Makes the loops from functions that fold rows and lines, and one that combines two numbers."""

    @shared(f"void({MEMORY}, float32[::1], UniTuple(int64, 5), float32, int64, int64)")
    def short(x, out, numbers, divisor, first, last):
        n, rows, plane_step, row_step, step = numbers
        held = np.empty(0 if step == 1 else n, np.float32)
        plane, row = first // rows, first % rows
        for k in range(first, last):
            at = plane * plane_step + row * row_step
            if step != 1:
                taken(x, at, step, held)
            these = x[at : at + n] if step == 1 else held
            out[k] = F(fold(these) if n <= _RUN else fold_run(these)) / divisor
            row += 1
            if row == rows:
                plane, row = plane + 1, 0

    @shared("void(float64[:,::1], float32[::1], float32, int64, int64)")
    def join(parts, out, divisor, first, last):
        for k in range(first, last):
            whole = parts[k, 0]
            for i in range(1, parts.shape[1]):
                whole = further(whole, parts[k, i])
            out[k] = F(whole) / divisor

    @shared("void(float32[::1], float64[:,::1], int64, int64, int64)")
    def long(x, parts, n, first, last):
        for k in range(first, last):
            row, part = k // parts.shape[1], k % parts.shape[1]
            at = row * n + part * _PART
            parts[row, part] = fold_run(x[at : min(at + _PART, (row + 1) * n)])

    @inner
    def fold_four(to, x, at, step):
        """Folds four lines that are `step` apart."""
        second, third, fourth, width = at + step, at + 2 * step, at + 3 * step, to.size
        fold_lines(
            to, x[at : at + width], x[second : second + width], x[third : third + width], x[fourth : fourth + width]
        )

    @inner
    def join_held(to, held):
        """Combines the lines of which `held`, already folded, consists."""
        for at in range(0, held.size, to.size):
            here = held[at : at + to.size]
            for c in range(to.size):
                to[c] = further(to[c], here[c])

    @shared(f"void({MEMORY}, float32[:,:,::1], UniTuple(int64, 5), int64, int64)")
    def lines(x, out, numbers, first, last):
        """Folds lines `step` apart; each consists of several `times` those of the result, which are folded last."""
        n, inner, plane_step, step, times = numbers
        chunks, parts = -(-inner // _COLUMNS), out.shape[1]
        held = np.empty(inner if times > 1 else 0, np.float32)
        for k in range(first, last):
            outer, part, column = k // (chunks * parts), k // chunks % parts, k % chunks * _COLUMNS
            result = out[outer, part, column : min(column + _COLUMNS, out.shape[2])]
            to = held if times > 1 else result
            for c in range(to.size):
                to[c] = F(start)
            stop = min((part + 1) * _LINES, n)
            four = stop - (stop - part * _LINES) % 4
            plane = outer * plane_step + column
            for i in range(part * _LINES, four, 4):
                fold_four(to, x, plane + i * step, step)
            for i in range(four, stop):
                at = plane + i * step
                fold_lines(to, x[at : at + to.size], to[:0], to[:0], to[:0])
            if times > 1:
                for c in range(result.size):
                    result[c] = F(start)
                join_held(result, held)

    return _Loops(adds, lines, long, join, short)


@cache
def _sum_loops(square: bool) -> _Loops:
    @inner(fastmath=ANY_ORDER)
    def fold(row):
        total = F(0.0)
        for i in range(row.size):
            total += row[i] * row[i] if square else row[i]
        return total

    @inner
    def fold_run(row):
        total = 0.0
        for at in range(0, row.size, _RUN):
            total += fold(row[at : min(at + _RUN, row.size)])
        return total

    @inner(fastmath={"contract"})
    def fold_lines(to, a, b, c, d):
        if b.size:
            for i in range(to.size):
                if square:
                    to[i] += (a[i] * a[i] + b[i] * b[i]) + (c[i] * c[i] + d[i] * d[i])
                else:
                    to[i] += (a[i] + b[i]) + (c[i] + d[i])
        else:
            for i in range(to.size):
                to[i] += a[i] * a[i] if square else a[i]

    @inlined
    def plus(a, b):
        return a + b

    return _loops(True, fold, fold_run, fold_lines, plus, 0.0)


SIGN_BIT, REST_BITS = np.int32(31), np.int32(0x7FFFFFFF)
LOWEST, _HIGHEST = np.int32(-2139095041), np.int32(0x7F800000)  # the infinities in the order below
_OTHER = np.uint32(0xFF000001)  # one infinity, counted from the other


@cache
def extreme(largest: bool) -> Callable:
    """Makes the compiled function that finds the largest or smallest number of an array, or nan if there is one.

    The compiler does not vectorize floating-point comparisons, so the numbers are compared as integers. Their order is
    that of the floats once all bits but the sign are flipped in negative ones. Counted without sign from the infinity
    that loses, every nan is beyond the other infinity, whatever its sign.
    """

    @inner
    def fold(row):
        bits, top = row.view(np.int32), np.uint32(0)
        for i in range(bits.size):
            b = bits[i]
            place = np.int32(b ^ np.int32(np.int32(b >> SIGN_BIT) & REST_BITS))
            top = max(top, np.uint32(place - LOWEST) if largest else np.uint32(_HIGHEST - place))
        if top > _OTHER:
            return F(np.nan)
        place = np.int32(np.int32(top) + LOWEST) if largest else np.int32(_HIGHEST - np.int32(top))
        return np.int32(place ^ np.int32(np.int32(place >> SIGN_BIT) & REST_BITS)).view(np.float32)

    return fold


@cache
def _extreme_loops(largest: bool) -> _Loops:
    fold = extreme(largest)

    @inlined
    def further(a, b):
        """Returns the more extreme of two numbers; nan if either is."""
        beyond = (b > a) if largest else (b < a)
        return b if beyond or b != b else a

    @inner
    def fold_lines(to, a, b, c, d):
        if b.size:
            for i in range(to.size):
                to[i] = further(further(to[i], further(a[i], b[i])), further(c[i], d[i]))
        else:
            for i in range(to.size):
                to[i] = further(to[i], a[i])

    return _loops(False, fold, fold, fold_lines, further, -math.inf if largest else math.inf)


# --- kernels ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def plan(shape: tuple, dim: tuple | None, keepdim: bool):
    """Plans folding the last group of adjacent dimensions in `dim`; None if there is nothing to fold.

    Returns (outer, n, inner), the shape after it is folded, and the dimensions left to fold.
    """
    dims = range(len(shape)) if dim is None else dim
    wanted = sorted(d for d in dims if shape[d] != 1)
    if not wanted:
        return None
    last = first = wanted.pop()
    while wanted and math.prod(shape[wanted[-1] + 1 : first]) == 1:
        first = wanted.pop()
    sizes = math.prod(shape[:first]), math.prod(shape[first : last + 1]), math.prod(shape[last + 1 :])
    after = (*shape[:first], *[1] * (last + 1 - first), *shape[last + 1 :])
    if not wanted and not keepdim:
        after = tuple(n for d, n in enumerate(after) if d not in dims)
    return sizes, after, tuple(wanted)


def _wider(n: int, inner: int) -> int:
    """Returns how many adjacent lines to treat as one, so that they are long enough for the loop over columns."""
    times = 1
    while inner * times < _WIDE and n % (2 * times) == 0 and n // (2 * times) >= _FEW:
        times *= 2
    return times


def _fold_lines(lines, again, memory, outer: int, numbers: tuple, work: int):
    """Folds (outer, n, inner) to (outer, 1, inner), in parts of so many lines. `numbers` are those of the loop."""
    n, inner, plane_step, step = numbers
    times = _wider(n, inner) if step == inner else 1
    parts, width = -(-n // times // _LINES), inner * times
    out = np.empty((outer, parts, inner), F32)
    chunks = -(-width // _COLUMNS)
    numbers = n // times, width, plane_step, step * times, times
    thread_pool.run(lines, outer * parts * chunks, (memory, out, numbers), work)
    if parts > 1:
        out = _fold_lines(again.lines, again, out, outer, (parts, inner, parts * inner, inner), out.size)
    return out


def _fold_all(loops, again, x, dim, keepdim, mean=False):
    """Folds x over `dim` with `loops`, and the results of its parts with `again`; a `mean` divides by their number.

    Returns NotImplemented if NumPy is no slower.
    """
    if not suits(x):
        return _fold_spaced(loops, again, x, dim, keepdim, mean)
    planned = plan(x.shape, dim, keepdim) if x.size else None
    if planned is None:
        return NotImplemented
    (outer, n, inner), shape, left = planned
    divisor, work = n if mean and not left else 1, int(x.size * _COST)
    if inner == 1:
        parts, out = -(-n // _PART), np.empty(outer, F32)
        if parts == 1:
            thread_pool.run(loops.short, outer, (x.reshape(-1), out, (n, outer, 0, n, 1), divisor), work)
        else:
            folded = np.empty((outer, parts))
            thread_pool.run(loops.long, outer * parts, (x.reshape(-1), folded, n), work)
            thread_pool.run(again.join, outer, (folded, out, divisor), 8 * outer * parts)
    elif inner * _wider(n, inner) < _NARROW:
        return NotImplemented
    else:
        out = _fold_lines(loops.lines, again, x.reshape(-1), outer, (n, inner, n * inner, inner), work)
        if divisor != 1:
            np.true_divide(out, F32.type(divisor), out)
    out = out.reshape(shape)
    if left:
        out = _fold_all(again, again, out, left, True)
        if out is not NotImplemented and mean:
            np.true_divide(out, F32.type(x.size // out.size), out)
        if out is not NotImplemented and not keepdim:
            out = out.reshape([n for d, n in enumerate(x.shape) if dim is not None and d not in dim])
    return out


def _group(shape: tuple, steps: tuple, inside: tuple, end: int, most: float = math.inf) -> tuple[int, int, bool, int]:
    """Finds the dimensions before `end`, all folded or all kept, that have one step and at most `most` elements.

    Returns the first of them, their size, whether they are folded, and the step.
    """
    size, folded, step, first = 1, False, 0, end
    for d in reversed(range(end)):
        if shape[d] > 1:
            if size == 1:
                folded, step = d in inside, steps[d]
            elif (d in inside) is not folded or steps[d] != step * size or size * shape[d] > most:
                break
            size *= shape[d]
        first = d
    return first, size, folded, step


@lru_cache(maxsize=512)
def _spaced_plan(shape: tuple, strides: tuple, inside: tuple):
    """Plans folding an array with gaps where it is; None if it must be copied first.

    Returns whether it has lines or rows to fold, the dimensions that are folded, and the numbers of the loop.
    """
    steps = tuple([s // 4 for s in strides])
    first, n, folded, within = _group(shape, steps, inside, len(shape), _PART)
    if n < _NARROW or (within > layout.NEAR if folded else within != 1):
        return None
    dims, lines = range(first, len(shape)), not folded
    numbers: tuple[int, ...] = (n,)
    step = within
    if lines:
        end = first
        first, count, folded, step = _group(shape, steps, inside, end)
        if not folded:
            return None
        dims, numbers = range(first, end), (count, n)
    elif n > _PART:
        return None
    outer = []  # size and step of the dimensions that remain, the innermost first
    while first:
        first, size, _, apart = _group(shape, steps, (), first)
        if size > 1:
            outer.append((size, apart))
    if len(outer) > (1 if lines else 2):
        return None
    outer += [(1, 0)] * (2 - len(outer))
    numbers += (outer[0][1], step) if lines else (outer[0][0], outer[1][1], outer[0][1], within)
    return lines, dims, numbers


class _Walk(NamedTuple):
    """How an array that is not row-major is folded."""

    once: tuple | None  # the index that takes repeated elements once
    times: int  # how often each of them is folded
    alone: bool  # whether nothing is left to fold then
    kept: tuple[int, ...]  # the shape of the result with dimensions of size 1 for those that are folded
    dims: tuple[int, ...]
    order: list[int] | None  # that of memory, if it is another
    back: list[int] | None
    inside: tuple[int, ...]  # the dimensions that are folded, in that order
    spaced: tuple | None  # `_spaced_plan`
    shape: tuple[int, ...]  # after folding the first group of dimensions, in the order of memory
    left: tuple[int, ...]  # the dimensions that are folded after that


@lru_cache(maxsize=512)
def _walk(shape: tuple, strides: tuple, dim: tuple | None) -> _Walk:
    dims = tuple(range(len(shape))) if dim is None else tuple([d % len(shape) for d in dim])
    kept = tuple([1 if d in dims else n for d, n in enumerate(shape)])
    repeated = [d for d, (n, s) in enumerate(zip(shape, strides, strict=True)) if s == 0 and n > 1]
    if repeated:
        once = tuple([slice(1 if d in repeated else None) for d in range(len(shape))])
        times = math.prod([shape[d] for d in repeated if d in dims])
        alone = all([shape[d] == 1 or d in repeated for d in dims])
        return _Walk(once, times, alone, kept, dims, None, None, (), None, (), ())
    order, back = layout.order(shape, strides) or (None, None)
    own = range(len(shape)) if order is None else order
    size, steps = tuple([shape[d] for d in own]), tuple([strides[d] for d in own])
    inside = tuple([n for n, d in enumerate(own) if d in dims])
    dense = all(n == 1 or s == 4 * math.prod(size[d + 1 :]) for d, (n, s) in enumerate(zip(size, steps, strict=True)))
    spaced = None if dense or any([s < 0 or s % 4 for s in steps]) else _spaced_plan(size, steps, inside)
    folded = () if spaced is None else spaced[1]
    left = tuple([d for d in inside if d not in folded and size[d] > 1])
    after = tuple([1 if d in folded else n for d, n in enumerate(size)])
    return _Walk(None, 1, False, kept, dims, order, back, inside, spaced, after, left)


def _fold_spaced(loops, again, x, dim, keepdim, mean):
    """Folds an array that is not row-major, in the order of its memory; it is copied if that has no rows or lines.

    The result has the order of the dimensions that are left, as PyTorch's.
    """
    if x.__class__ is not np.ndarray or x.dtype is not F32 or not x.size:
        return NotImplemented
    once, times, alone, kept, dims, order, back, inside, spaced, shape, left = _walk(x.shape, x.strides, dim)
    if once is not None:
        part = x[once]
        if alone:
            numbers = 1, part.size, part.size, part.size
            found = _fold_lines(loops.lines, again, layout.in_rows(part), 1, numbers, part.size).reshape(part.shape)
        else:
            found = _fold_all(loops, again, part, dims, True, mean)
        if found is NotImplemented:
            return found
        if times > 1 and loops.adds and not mean:
            np.multiply(found, F32.type(times), found)
        if found.shape != kept:
            out = np.empty(kept, F32)
            out[...] = found
            found = out
        return found if keepdim else found.squeeze(dims)
    y = x if order is None else x.transpose(order)
    if spaced is None:
        out = _fold_all(loops, again, layout.in_rows(y), inside, True, mean)
        if out is NotImplemented:
            return out
    else:
        lines, _, numbers = spaced
        work = int(x.size * _COST)
        if lines:
            outer = math.prod(shape) // numbers[1]
            out = _fold_lines(loops.lines, again, y, outer, numbers, work).reshape(shape)
        else:
            out = np.empty(shape, F32)
            thread_pool.run(loops.short, out.size, (y, out.reshape(-1), numbers, 1), work)
        out = _fold_all(again, again, out, left, True) if left else out
        if out is NotImplemented:
            return out
        if mean:
            np.true_divide(out, F32.type(x.size // out.size), out)
    out = out if back is None else out.transpose(back)
    return out if keepdim else out.squeeze(dims)


def _sum() -> Callable:
    loops = _sum_loops(False)

    def kernel(x, dim, keepdim, dtype):
        return _fold_all(loops, loops, x, dim, keepdim)

    return kernel


def _mean() -> Callable:
    loops = _sum_loops(False)

    def kernel(x, dim, keepdim, dtype):
        return _fold_all(loops, loops, x, dim, keepdim, mean=True)

    return kernel


def _norm() -> Callable:
    loops, again = _sum_loops(True), _sum_loops(False)

    def kernel(x, ord, dim, keepdim, dtype):
        if ord != 2:
            return NotImplemented
        squares = _fold_all(loops, again, x, dim, keepdim)
        return squares if squares is NotImplemented else np.sqrt(squares, squares)

    return kernel


def _extreme(largest: bool) -> Callable:
    loops = _extreme_loops(largest)

    def kernel(x, dim=None, keepdim=False):
        return _fold_all(loops, loops, x, dim, keepdim)

    return kernel


def _var(root: bool) -> Callable:
    @shared("void(float32[::1], float64[:,:,::1], int64, int64, int64)")
    def moments(x, parts, n, first, last):
        """Computes the mean and the sum of squared deviations of each part of each row."""
        for k in range(first, last):
            row, part = k // parts.shape[1], k % parts.shape[1]
            at, end = row * n + part * _PART, min(row * n + (part + 1) * _PART, (row + 1) * n)
            count = mean = squares = 0.0
            for start in range(at, end, _RUN):
                count, mean, squares = joined(count, mean, squares, x[start : min(start + _RUN, end)])
            parts[row, part, 0], parts[row, part, 1] = mean, squares

    @shared("void(float64[:,:,::1], float32[::1], int64, float64, int64, int64)")
    def variances(parts, out, n, freedom, first, last):
        for k in range(first, last):
            count, mean, squares = np.float64(min(n, _PART)), parts[k, 0, 0], parts[k, 0, 1]
            for i in range(1, parts.shape[1]):
                size = np.float64(min(n - i * _PART, _PART))
                count, mean, squares = together(count, mean, squares, size, parts[k, i, 0], parts[k, i, 1])
            out[k] = math.sqrt(squares / freedom) if root else squares / freedom

    def kernel(x, dim, correction, keepdim):
        planned = plan(x.shape, dim, keepdim) if suits(x) and x.size else None
        if planned is None or planned[0][2] != 1 or planned[2]:
            return NotImplemented
        (outer, n, _), shape, _ = planned
        parts, out = np.empty((outer, -(-n // _PART), 2)), np.empty(outer, F32)
        thread_pool.run(moments, outer * parts.shape[1], (x.reshape(-1), parts, n), int(3 * x.size * _COST))
        thread_pool.run(variances, outer, (parts, out, n, max(n - correction, 0.0)), 8 * outer * parts.shape[1])
        return out.reshape(shape)

    return kernel


def _with_mean(root: bool) -> Callable:
    spread, mean = _var(root), _mean()

    def kernel(x, dim, correction, keepdim):
        first = spread(x, dim, correction, keepdim)
        second = NotImplemented if first is NotImplemented else mean(x, dim, keepdim, None)
        return NotImplemented if second is NotImplemented else (first, second)

    return kernel


@cache
def _places() -> Callable:
    """Finds the first largest or smallest elements along a dimension that is not the last, and their indices."""

    @inner
    def compare(values, places, row, i, largest):
        for c in range(row.size):
            a, b = values[c], row[c]
            further = ((b > a) if largest else (b < a)) or (b != b and a == a)
            values[c] = b if further else a
            places[c] = i if further else places[c]

    @shared("void(float32[:,:,::1], float32[:,::1], int64[:,::1], boolean, int64, int64)")
    def lines(x, values, places, largest, first, last):
        chunks = -(-x.shape[2] // _COLUMNS)
        small = np.empty(_COLUMNS, np.int32)
        for k in range(first, last):
            outer, column = k // chunks, k % chunks * _COLUMNS
            end = min(column + _COLUMNS, x.shape[2])
            value, place = values[outer, column:end], small[: end - column]
            row = x[outer, 0, column:end]
            for c in range(row.size):
                value[c], place[c] = row[c], np.int32(0)
            for i in range(1, x.shape[1]):
                compare(value, place, x[outer, i, column:end], np.int32(i), largest)
            to = places[outer, column:end]
            for c in range(to.size):
                to[c] = place[c]

    def find(x, dim, keepdim, name):
        inner = math.prod(x.shape[dim + 1 :])
        if not suits(x) or not x.size or inner < _NARROW or x.shape[dim] >= 2**31:
            return NotImplemented
        shape = x.size // (x.shape[dim] * inner), x.shape[dim], inner
        values, places = np.empty(shape[::2], F32), np.empty(shape[::2], np.int64)
        work = shape[0] * -(-inner // _COLUMNS)
        thread_pool.run(lines, work, (x.reshape(shape), values, places, not name.endswith("min")), x.size // 2)
        shape = (*x.shape[:dim], *[1] * keepdim, *x.shape[dim + 1 :])
        return values.reshape(shape), places.reshape(shape)

    return find


def _arg_extreme() -> Callable:
    find = _places()

    def kernel(x, dim, keepdim, name):
        dim = dim[0] if dim.__class__ is tuple and len(dim) == 1 else dim
        found = find(x, dim, keepdim, name) if dim.__class__ is int else NotImplemented
        return found if found is NotImplemented else found[1]

    return kernel


def _prod():
    @shared(f"void({MATRIX}, float32[::1], int64, int64)")
    def loop(x, out, first, last):
        for n in range(first, last):
            out[n] = _product(x[n])

    def products(rows):
        out = np.empty(len(rows), F32)
        thread_pool.run(loop, len(rows), (rows, out), rows.size)
        return out

    def kernel(x, dim, keepdim, dtype):
        if not suits(x) or not x.size:
            return NotImplemented
        if dim is None or len(dim) == x.ndim:
            flat = x.reshape(-1)
            whole = flat.size - flat.size % _PART
            parts = [products(a) for a in (flat[:whole].reshape(-1, _PART), flat[whole:].reshape(1, -1)) if a.size]
            return products(np.concatenate(parts).reshape(1, -1)).reshape((1,) * x.ndim if keepdim else ())
        if dim != (x.ndim - 1,):
            return NotImplemented
        found = products(x.reshape(-1, x.shape[-1]))
        return found.reshape(*x.shape[:-1], 1) if keepdim else found.reshape(x.shape[:-1])

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "sum": _sum, "mean": _mean, "vector_norm": _norm, "prod": _prod, "amax": partial(_extreme, True),
    "amin": partial(_extreme, False),
    "var": partial(_var, False), "std": partial(_var, True), "var_mean": partial(_with_mean, False),
    "std_mean": partial(_with_mean, True), "extreme_dim": _places, "arg_extreme": _arg_extreme,
}  # fmt: skip
