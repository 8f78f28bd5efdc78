"""Sums, sums of squares, extrema and products over dimensions that are adjacent in memory.

The loops see (outer, n, inner): each result is folded from n elements, which are adjacent if `inner` is 1. Long ones
are folded in parts whose size depends on the shape alone, so that results do not depend on the number of threads. Sums
are kept in single precision for a few thousand elements at most, beyond that in double.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array.blocks import in_dtype
from tensorgrad.kernels.compiled import layout
from tensorgrad.kernels.compiled.casts import bits, is_half
from tensorgrad.kernels.compiled.functions import F
from tensorgrad.kernels.compiled.layout import suits
from tensorgrad.kernels.compiled.moments import combined, with_row
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import MATRIX, inlined, inner
from tensorgrad.kernels.compiled.runtime.launch import Shared, shared
from tensorgrad.kernels.compiled.simd import sums
from tensorgrad.kernels.compiled.simd.totals import total
from tensorgrad.kernels.compiled.simd.two_bytes import FLOAT32, STORAGES, Storage
from tensorgrad.kernels.compiled.simd.vectors import PARTS
from tensorgrad.kernels.compiled.walk import taken

_PART = 16384  # adjacent elements that one thread folds
_RUN = 4096  # of which this many are summed in single precision
_COLUMNS = 2048  # that one thread folds at a time
_LINES, _FEWEST_LINES = 256, 8  # that one thread folds: at most, and at least
_ALONE = 1 << 15  # results of parts that one thread quickly folds
_PARTS, _WORTH = 64, 65536  # parts of an array, for as many threads, and elements that are worth one
_NARROW = 16  # columns for which the loop over planes is not worthwhile
_WIDE, _FEW = 512, 8  # columns for which it is fast, and lines that it is worthwhile for
_COST = 0.2
_AT_ONCE = 8  # lines of two bytes that become float32 at a time: they stay in a second-level cache


_row_product = total(lambda x: x, times=True)


@inner
def _product(row):
    if row.size >= PARTS:
        return _row_product(row)
    made = F(1.0)
    for i in range(row.size):  # in order: the product of a large and a tiny number may have fewer digits
        made *= row[i]
    return made


# --- loops -----------------------------------------------------------------------------------------------------------


class _Loops(NamedTuple):
    """Compiled loops; the last two divide the result (by 1 except for means)."""

    adds: bool  # whether n equal numbers fold to n times the number, not to the number

    lines: Shared
    long: Shared  # rows of adjacent elements, in parts
    join: Shared  # the parts of each row
    short: Shared  # rows that are a single part


def _loops(adds: bool, fold, fold_run, fold_lines, further, stored: Storage = FLOAT32) -> _Loops:
    """Makes the loops from functions that fold a row and lines, and one that combines two numbers.

    `stored`: how the numbers to fold are stored; results are float32.
    """
    empty, scratch, read, memory = stored.empty, stored.scratch, stored.read, stored.memory
    add_lines = _lines_of(fold_lines, further, stored)

    @shared(f"void({memory}, float32[::1], UniTuple(int64, 5), float32, boolean, int64, int64)", calls=(fold, fold_run))
    def short(x, out, numbers, divisor, brain, first, last):
        n, rows, plane_step, row_step, step = numbers
        held, wide = empty(0 if step == 1 else n), scratch(n)
        plane, row = first // rows, first % rows
        for k in range(first, last):
            at = plane * plane_step + row * row_step
            if step != 1:
                taken(x, at, step, held)
            these = read(x[at : at + n] if step == 1 else held, wide, brain)
            out[k] = F(fold(these) if n <= _RUN else fold_run(these)) / divisor
            row += 1
            if row == rows:
                plane, row = plane + 1, 0

    @shared("void(float64[:,::1], float32[::1], float32, int64, int64)", calls=(further,))
    def join(parts, out, divisor, first, last):
        for k in range(first, last):
            whole = parts[k, 0]
            for i in range(1, parts.shape[1]):
                whole = further(whole, parts[k, i])
            out[k] = F(whole) / divisor

    @shared(f"void({memory}, float64[:,::1], int64, boolean, int64, int64)", calls=(fold_run,))
    def long(x, parts, n, brain, first, last):
        wide = scratch(_PART)
        for k in range(first, last):
            row, part = k // parts.shape[1], k % parts.shape[1]
            at = row * n + part * _PART
            parts[row, part] = fold_run(read(x[at : min(at + _PART, (row + 1) * n)], wide, brain))

    signature = f"void({memory}, float32[:,:,::1], UniTuple(int64, 6), float32, boolean, int64, int64)"

    @shared(signature, calls=(add_lines, further))
    def lines(x, out, numbers, divisor, brain, first, last):
        """Folds lines `step` apart; each consists of several `times` those of the result, which are folded last.

        `several` of them are a part.
        """
        n, inner, plane_step, step, times, several = numbers
        chunks, parts = -(-inner // _COLUMNS), out.shape[1]
        held = np.empty(inner if times > 1 else 0, np.float32)
        for k in range(first, last):
            outer, part, column = k // (chunks * parts), k // chunks % parts, k % chunks * _COLUMNS
            result = out[outer, part, column : min(column + _COLUMNS, out.shape[2])]
            at = outer * plane_step + part * several * step + column
            add_lines(held if times > 1 else result, x, at, min(several, n - part * several), step, brain)
            if times > 1:
                for c in range(result.size):
                    result[c] = held[c]
                for start in range(result.size, held.size, result.size):
                    here = held[start : start + result.size]
                    for c in range(result.size):
                        result[c] = further(result[c], here[c])
            if divisor != F(1.0):
                for c in range(result.size):
                    result[c] /= divisor

    return _Loops(adds, lines, long, join, short)


def _lines_of(fold_lines, further, stored: Storage):
    """Makes the function that folds lines where they are; those of two bytes a few at a time."""
    read = stored.read

    @inner
    def where_they_are(to, x, at, count, step, brain):
        fold_lines(to, x, at, count, step)

    @inner
    def some_at_a_time(to, x, at, count, step, brain):
        width = to.size
        held, part = np.empty(_AT_ONCE * width, np.float32), np.empty(width, np.float32)
        for start in range(0, count, _AT_ONCE):
            several = min(_AT_ONCE, count - start)
            for k in range(several):
                p = at + (start + k) * step
                read(x[p : p + width], held[k * width : (k + 1) * width], brain)
            fold_lines(part if start else to, held, 0, several, width)
            if start:
                for c in range(width):
                    to[c] = further(to[c], part[c])

    return where_they_are if stored is FLOAT32 else some_at_a_time


@cache
def _sum_loops(square: bool, half: bool = False) -> _Loops:
    @inner
    def fold(row):
        return sums.row_of_squares(row, 0, row.size) if square else sums.row(row, 0, row.size)

    @inner
    def fold_run(row):
        total = 0.0
        for at in range(0, row.size, _RUN):
            total += fold(row[at : min(at + _RUN, row.size)])
        return total

    @inlined
    def plus(a, b):
        return a + b

    return _loops(True, fold, fold_run, sums.lines_of_squares if square else sums.lines, plus, STORAGES[half])


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
def _extreme_loops(largest: bool, half: bool = False) -> _Loops:
    fold = extreme(largest)

    @inlined
    def further(a, b):
        """Returns the more extreme of two numbers; nan if either is."""
        beyond = (b > a) if largest else (b < a)
        return b if beyond or b != b else a

    @inner
    def fold_one(to, a):
        for i in range(to.size):
            to[i] = further(to[i], a[i])

    @inner
    def fold_four(to, a, b, c, d):
        for i in range(to.size):
            to[i] = further(further(to[i], further(a[i], b[i])), further(c[i], d[i]))

    @inner
    def fold_lines(to, x, at, count, step):
        width = to.size
        for c in range(width):
            to[c] = x[at + c]
        i = 1
        while i + 4 <= count:
            p = at + i * step
            q, r, s = p + step, p + 2 * step, p + 3 * step
            fold_four(to, x[p : p + width], x[q : q + width], x[r : r + width], x[s : s + width])
            i += 4
        while i < count:
            p = at + i * step
            fold_one(to, x[p : p + width])
            i += 1

    return _loops(False, fold, fold, fold_lines, further, STORAGES[half])


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


@lru_cache(maxsize=512)
def _lines_of_part(outer: int, n: int, width: int) -> int:
    """Returns how many of `n` lines are one part: few if there would be too few parts for many threads.

    It depends on the shape alone, as results do.
    """
    others = outer * -(-width // _COLUMNS)
    parts = max(1, min(-(-_PARTS // others), outer * n * width // (_WORTH * others)))
    return max(_FEWEST_LINES, min(_LINES, -(-n // (4 * parts)) * 4))


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


class _Pass(NamedTuple):
    """One launch of a loop: over `length`, with the loop's numbers, to a new array of these sizes."""

    loop: int
    length: int
    numbers: Any
    sizes: tuple[int, ...]
    divisor: int
    work: int


_BY_ROWS, _BY_PARTS, _JOINING, _BY_LINES = range(4)  # the loops of a pass


def _lines_passes(outer: int, numbers: tuple, work: int) -> list[_Pass]:
    """Folds (outer, n, inner) to (outer, 1, inner), in parts of so many lines. `numbers` are those of the loop."""
    n, inner, plane_step, step = numbers
    times = _wider(n, inner) if step == inner else 1
    width, several = inner * times, _lines_of_part(outer, n // times, inner * times)
    parts, chunks = -(-n // times // several), -(-width // _COLUMNS)
    numbers = n // times, width, plane_step, step * times, times, several
    passes = [_Pass(_BY_LINES, outer * parts * chunks, numbers, (outer, parts, inner), 1, work)]
    left = outer * parts * inner
    if parts > 1 and left < _ALONE:
        numbers = parts, inner, parts * inner, inner, 1, parts
        passes.append(_Pass(_BY_LINES, outer * -(-inner // _COLUMNS), numbers, (outer, 1, inner), 1, 0))
    elif parts > 1:
        passes += _lines_passes(outer, (parts, inner, parts * inner, inner), left)
    return passes


def _row_passes(outer: int, n: int, work: int) -> list[_Pass]:
    """Folds rows that follow each other."""
    parts = -(-n // _PART)
    if parts == 1:
        return [_Pass(_BY_ROWS, outer, (n, outer, 0, n, 1), (outer,), 1, work)]
    long = _Pass(_BY_PARTS, outer * parts, n, (outer, parts), 1, work)
    return [long, _Pass(_JOINING, outer, (), (outer,), 1, 8 * outer * parts)]


def _passes(shape: tuple, dims: tuple) -> list[_Pass] | None:
    """Folds these dimensions of an array without gaps; None if NumPy is no slower."""
    passes: list[_Pass] = []
    left: tuple[int, ...] = dims
    while left:
        planned = plan(shape, left, True)
        if planned is None:
            return passes or None
        (outer, n, inner), after, left = planned
        work = int(math.prod(shape) * _COST)
        if inner == 1:
            passes += _row_passes(outer, n, work)
        elif inner * _wider(n, inner) < _NARROW:
            return None
        else:
            passes += _lines_passes(outer, (n, inner, n * inner, inner), work)
        shape = after
    return passes


class _Recipe(NamedTuple):
    """How an array is folded in the order of its memory."""

    order: list[int] | None  # in which the dimensions are copied to rows; None if it is folded where it is
    passes: list[_Pass]
    shape: tuple[int, ...]  # of the result, in that order
    back: list[int] | None  # the permutation that restores it


class _Repeated(NamedTuple):
    """How an array that repeats elements is folded."""

    once: tuple  # the index that takes repeated elements once
    times: int  # how often each of them is folded
    alone: bool  # whether nothing is left to fold then
    kept: tuple[int, ...]  # the shape of the result with dimensions of size 1 for those that are folded
    dims: tuple[int, ...]


@lru_cache(maxsize=512)
def _recipe(shape: tuple, strides: tuple, dim: tuple | None, keepdim: bool, mean: bool) -> _Recipe | _Repeated | None:
    """Plans how to fold an array over `dim`, after that dividing by the number of elements for a `mean`.

    Returns None if NumPy is no slower.
    """
    rank = len(shape)
    dims = tuple(range(rank)) if dim is None else tuple([d % rank for d in dim]) if rank else ()
    if 0 in shape or all(shape[d] == 1 for d in dims):
        return None
    repeated = [d for d, (n, s) in enumerate(zip(shape, strides, strict=True)) if s == 0 and n > 1]
    if repeated:
        once = tuple([slice(1 if d in repeated else None) for d in range(rank)])
        times = math.prod([shape[d] for d in repeated if d in dims])
        alone = all([shape[d] == 1 or d in repeated for d in dims])
        return _Repeated(once, times, alone, tuple([1 if d in dims else n for d, n in enumerate(shape)]), dims)
    order, back = layout.order(shape, strides) or (None, None)
    own = range(rank) if order is None else order
    size, steps = tuple([shape[d] for d in own]), tuple([strides[d] for d in own])
    inside = tuple([n for n, d in enumerate(own) if d in dims])
    dense = all(n == 1 or s == 4 * math.prod(size[d + 1 :]) for d, (n, s) in enumerate(zip(size, steps, strict=True)))
    spaced = None if dense or any([s < 0 or s % 4 for s in steps]) else _spaced_plan(size, steps, inside)
    passes: list[_Pass] | None = None
    if spaced is None:
        passes = _passes(size, inside)
    else:
        lines, folded, numbers = spaced
        after, work = tuple([1 if d in folded else n for d, n in enumerate(size)]), int(math.prod(size) * _COST)
        if lines:
            passes = _lines_passes(math.prod(after) // numbers[1], numbers, work)
        else:
            passes = [_Pass(_BY_ROWS, math.prod(after), numbers, (math.prod(after),), 1, work)]
        left = tuple([d for d in inside if d not in folded and size[d] > 1])
        more = _passes(after, left) if left else []
        passes = None if more is None else passes + more
    if passes is None:
        return None
    if mean:
        passes[-1] = passes[-1]._replace(divisor=math.prod([shape[d] for d in dims]))
    if keepdim:
        after = tuple([1 if n in inside else size[n] for n in range(rank)])
    else:
        kept = [d for d in own if d not in dims]
        after = tuple([shape[d] for d in kept])
        back = [kept.index(d) for d in sorted(kept)]
        back = None if back == sorted(back) else back
    copied = (list(own) if spaced is None else None) if not dense else None
    return _Recipe(copied, passes, after, back)


def _run(loops, again, memory, passes):
    """Folds an array with `loops`, and the results of its parts with `again`."""
    brain = memory.dtype.char == "E"
    memory = bits(memory)
    for loop, length, numbers, sizes, divisor, work in passes:
        if loop == _BY_PARTS:
            out = np.empty(sizes)
            thread_pool.run(loops.long, length, (memory, out, numbers, brain), work)
        else:
            out = np.empty(sizes, F32)
            if loop == _JOINING:
                thread_pool.run(loops.join, length, (memory, out, divisor), work)
            else:
                chosen = loops.lines if loop == _BY_LINES else loops.short
                thread_pool.run(chosen, length, (memory, out, numbers, divisor, brain), work)
        memory, loops = out, again
    return memory


def _fold_all(loops, again, x, dim, keepdim, mean=False):
    """Folds x over `dim` with `loops`, and the results of its parts with `again`; a `mean` divides by their number.

    `loops` are those for float32, and those for two bytes (or None), whose results are rounded.
    The result has the order of the dimensions that are left, as PyTorch's. Returns NotImplemented if NumPy is no
    slower.
    """
    half = is_half(x)
    if x.__class__ is not np.ndarray or (x.dtype is not F32 and not half) or loops[half] is None:
        return NotImplemented
    recipe = _recipe(x.shape, tuple([2 * s for s in x.strides]) if half else x.strides, dim, keepdim, mean)
    if recipe is None:
        return NotImplemented
    if isinstance(recipe, _Repeated):
        found = _fold_repeated(loops, again, x, recipe, keepdim, mean)
        return in_dtype(found, x.dtype) if half and found is not NotImplemented else found
    order, passes, shape, back = recipe
    out = _run(loops[half], again, x if order is None else layout.in_rows(x.transpose(order)), passes).reshape(shape)
    out = in_dtype(out, x.dtype) if half else out
    return out if back is None else out.transpose(back)


def _fold_repeated(loops, again, x, recipe, keepdim, mean):
    """The same for an array that repeats elements: each is folded once."""
    once, times, alone, kept, dims = recipe
    part = in_dtype(x[once], F32) if is_half(x) else x[once]
    if alone:
        passes = _lines_passes(1, (1, part.size, part.size, part.size), part.size)
        found = _run(loops[0], again, layout.in_rows(part), passes).reshape(part.shape)
    else:
        found = _fold_all(loops, again, part, dims, True, mean)
    if found is NotImplemented:
        return found
    if times > 1 and loops[0].adds and not mean:
        np.multiply(found, F32.type(times), found)
    if found.shape != kept:
        out = np.empty(kept, F32)
        out[...] = found
        found = out
    return found if keepdim else found.squeeze(dims)


def _sum() -> Callable:
    loops = _sum_loops(False), _sum_loops(False, True)

    def kernel(x, dim, keepdim, dtype):
        return _fold_all(loops, loops[0], x, dim, keepdim)

    return kernel


def _mean() -> Callable:
    loops = _sum_loops(False), _sum_loops(False, True)

    def kernel(x, dim, keepdim, dtype):
        return _fold_all(loops, loops[0], x, dim, keepdim, mean=True)

    return kernel


def _column_sum() -> Callable:
    """Sums over all dimensions but the last: the gradient of a bias."""
    loops = _sum_loops(False), _sum_loops(False, True)

    def kernel(x):
        return _fold_all(loops, loops[0], x, tuple(range(x.ndim - 1)), False) if x.ndim > 1 else NotImplemented

    return kernel


def _norm() -> Callable:
    loops, again = (_sum_loops(True), None), _sum_loops(False)

    def kernel(x, ord, dim, keepdim, dtype):
        if ord != 2:
            return NotImplemented
        squares = _fold_all(loops, again, x, dim, keepdim)
        return squares if squares is NotImplemented else np.sqrt(squares, squares)

    return kernel


def _extreme(largest: bool) -> Callable:
    loops = _extreme_loops(largest), _extreme_loops(largest, True)

    def kernel(x, dim=None, keepdim=False):
        return _fold_all(loops, loops[0], x, dim, keepdim)

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
                count, mean, squares = with_row(count, mean, squares, x[start : min(start + _RUN, end)])
            parts[row, part, 0], parts[row, part, 1] = mean, squares

    @shared("void(float64[:,:,::1], float32[::1], int64, float64, int64, int64)")
    def variances(parts, out, n, freedom, first, last):
        for k in range(first, last):
            count, mean, squares = np.float64(min(n, _PART)), parts[k, 0, 0], parts[k, 0, 1]
            for i in range(1, parts.shape[1]):
                size = np.float64(min(n - i * _PART, _PART))
                count, mean, squares = combined(count, mean, squares, size, parts[k, i, 0], parts[k, i, 1])
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
    "sum": _sum, "column_sum": _column_sum, "mean": _mean, "vector_norm": _norm, "prod": _prod,
    "amax": partial(_extreme, True), "amin": partial(_extreme, False),
    "var": partial(_var, False), "std": partial(_var, True), "var_mean": partial(_with_mean, False),
    "std_mean": partial(_with_mean, True), "extreme_dim": _places, "arg_extreme": _arg_extreme,
}  # fmt: skip
