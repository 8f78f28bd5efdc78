"""Optimizer steps, and the norm of all gradients: one pass over memory, one launch for all parameters.

The formulas are those of `optim/sgd.py` and `optim/adam.py`, in the same order of operations.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled.casts import is_half
from tensorgrad.kernels.compiled.functions import F
from tensorgrad.kernels.compiled.lists import (
    KNOWN,
    array_of,
    bits_of,
    found,
    identities,
    items_of,
    known,
    measured,
    starts,
    word_at,
)
from tensorgrad.kernels.compiled.moments import row_dot
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import inner
from tensorgrad.kernels.compiled.runtime.launch import Shared, shared
from tensorgrad.kernels.compiled.simd.two_bytes import rounded, widened

_BLOCK = 2048  # elements that stay in the first-level cache from one loop over them to the next
_KNOWN = "UniTuple(int64, 4)"
_ROW, _NONE = "float32[::1]", np.empty(0, F32)
_PART = 16384  # elements whose squares are one sum: fixed, so that results do not depend on threads


def _loops(step: Callable, width: int) -> tuple[Shared, Shared]:
    """Makes the loops that update many parameters with the compiled function `step`: if they are few, and the rest."""

    @inner
    def move(items, numbers, rows, starts, known, first, last):
        k = found(starts, first)
        while first < last:
            begin, size = first - starts[k], starts[k + 1] - starts[k]
            end = min(last - starts[k], size)
            if begin < end:
                row = numbers[rows[k] if rows.size > 1 else 0]
                step(items + 8 * width * k, size, row, known, begin, end)
            first += end - begin
            k += 1

    @shared(f"void(int64, float32[:,::1], int64[::1], int64[::1], {_KNOWN}, int64, int64, int64)")
    def begin(arrays, numbers, rows, ends, known, alone, first, last):
        """Looks at the arrays, and updates the parameters if they have no more than so many elements."""
        items = items_of(arrays)
        measured(items, width, known, ends)
        total = ends[ends.size - 2]
        if total <= alone:
            move(items, numbers, rows, ends, known, 0, total)

    @shared(f"void(int64, float32[:,::1], int64[::1], int64[::1], {_KNOWN}, int64, int64)")
    def over_all(arrays, numbers, rows, starts, known, first, last):
        move(items_of(arrays), numbers, rows, starts, known, first, last)

    return begin, over_all


def _as_arrays(scalars: list, absent: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns different scalars as rows, and the row of each parameter (only one if they have it in common).

    `absent` maps their names, in the order of a row, to the value that replaces None.
    """
    places: dict[tuple, int] = {}
    rows = [places.setdefault(values, len(places)) for values in scalars]
    found = [[getattr(values, name) for name in absent] for values in places]
    numbers = [[otherwise if v is None else v for v, otherwise in zip(row, absent.values())] for row in found]
    return np.array(numbers, F32), np.array(rows if len(places) > 1 else rows[:1], np.int64)


def _over_all(steps: tuple[Callable, Callable], width: int, absent: dict[str, int], cost: float) -> Callable:
    """Makes the function that updates many parameters with the compiled `steps`: for float32, and for two bytes.

    It takes a list of arrays, `width` for each parameter (its own, its gradient's and those of its state, or `None`),
    and a list of scalars for each parameter. It returns the indices of the parameters that are left, since kernels do
    not take their arrays. `absent` maps the names of the scalars, in the order of `step`, to the value that replaces
    None.
    """

    loops = [_loops(step, width) for step in steps]
    kept: tuple = [], None, None  # the last scalars, which are often the next
    alone = int(thread_pool.GRAIN / cost)  # elements that one thread updates

    def advance(arrays, scalars, kind=KNOWN):
        nonlocal kept
        before, numbers, rows = kept
        if scalars != before:
            numbers, rows = _as_arrays(scalars, absent)
            kept = scalars, numbers, rows
        begin, over_all = loops[kind is not KNOWN]
        ends = np.empty(len(scalars) + 2, np.int64)
        begin.launch(begin.address, (id(arrays), numbers, rows, ends, kind, alone), 1, 0, 0)
        total = ends.item(-2)
        if total > alone:
            thread_pool.run(over_all, total, (id(arrays), numbers, rows, ends, kind), int(total * cost), arrays)
        if not ends.item(-1):
            return ()
        left = np.flatnonzero(ends[:-2] == ends[1:-1]).tolist()
        return of_two_bytes(left, arrays, scalars) if kind is KNOWN else left

    def of_two_bytes(left, arrays, scalars):
        """Updates those of the parameters left that are of float16 or bfloat16. Returns the others."""
        kinds: dict[np.dtype, list[int]] = {}
        for n in left:
            if is_half(arrays[n * width]):
                kinds.setdefault(arrays[n * width].dtype, []).append(n)
        for dtype, several in kinds.items():
            some = [a for n in several for a in arrays[n * width : (n + 1) * width]]
            unfit = advance(some, [scalars[n] for n in several], known(dtype))
            moved = {n for k, n in enumerate(several) if k not in unfit}
            left = [n for n in left if n not in moved]
        return left

    return advance


# --- SGD -------------------------------------------------------------------------------------------------------------


_OF_SGD = {"lr": 0, "decay": 0, "momentum": 0, "take": 1, "nesterov": 0, "maximize": 0, "first": 0}
_LR, _DECAY, _MOMENTUM, _TAKE, _NESTEROV, _MAXIMIZE, _FIRST = range(len(_OF_SGD))
_COST_OF_SGD = 0.2  # for 200,000 numbers two threads take no less time than one


@inner(fastmath={"contract"})
def _without_buffer(x, g, numbers):
    lr, decay, sign = numbers[_LR], numbers[_DECAY], F(1.0) - F(2.0) * numbers[_MAXIMIZE]
    if decay != F(0.0):
        for i in range(x.size):
            x[i] -= lr * (sign * g[i] + decay * x[i])
    else:
        lr = lr * sign
        for i in range(x.size):
            x[i] -= lr * g[i]


@inner(fastmath={"contract"})
def _with_buffer(x, g, buffer, numbers):
    is_first, nesterov = numbers[_FIRST] != F(0.0), numbers[_NESTEROV] != F(0.0)
    lr, decay, momentum, take = numbers[_LR], numbers[_DECAY], numbers[_MOMENTUM], numbers[_TAKE]
    sign = F(1.0) - F(2.0) * numbers[_MAXIMIZE]
    decays = decay != F(0.0)
    for i in range(x.size):
        slope = sign * g[i]
        slope = slope + decay * x[i] if decays else slope
        moved = slope if is_first else momentum * buffer[i] + take * slope
        buffer[i] = moved
        x[i] -= lr * (slope + momentum * moved if nesterov else moved)


def _sgd() -> Callable:
    @inner
    def step(job, size, numbers, known, first, last):
        x, g = array_of(word_at(job), size)[first:last], array_of(word_at(job + 8), size)[first:last]
        if word_at(job + 16) == known[2]:  # there is no buffer
            _without_buffer(x, g, numbers)
        else:
            _with_buffer(x, g, array_of(word_at(job + 16), size)[first:last], numbers)

    @inner
    def in_two_bytes(job, size, numbers, known, first, last):
        brain, has_buffer = known[3] > 0, word_at(job + 16) != known[2]
        bits, slopes = bits_of(word_at(job), size), bits_of(word_at(job + 8), size)
        buffers = bits_of(word_at(job + 16 if has_buffer else job), size)
        held = np.empty((3, _BLOCK), np.float32)
        for start in range(first, last, _BLOCK):
            end = min(start + _BLOCK, last)
            x, g, buffer = held[0, : end - start], held[1, : end - start], held[2, : end - start]
            widened(bits[start:end], x, brain)
            widened(slopes[start:end], g, brain)
            if has_buffer:
                widened(buffers[start:end], buffer, brain)
                _with_buffer(x, g, buffer, numbers)
                rounded(buffer, buffers[start:end], brain)
            else:
                _without_buffer(x, g, numbers)
            rounded(x, bits[start:end], brain)

    return _over_all((step, in_two_bytes), 3, _OF_SGD, _COST_OF_SGD)


def _sgd_each() -> Callable:
    """Makes the function that does the same by a launch for each parameter, which a plan repeats by itself."""

    @shared(f"void({_ROW}, {_ROW}, {_ROW}, {_ROW}, int64, int64)")
    def move(x, g, buffer, numbers, first, last):
        """Updates a parameter; a `buffer` without numbers stands for none."""
        if buffer.size:
            _with_buffer(x[first:last], g[first:last], buffer[first:last], numbers)
        else:
            _without_buffer(x[first:last], g[first:last], numbers)

    def each(arrays, scalars):
        numbers, rows = _as_arrays(scalars, _OF_SGD)
        left = []
        for n in range(len(scalars)):
            several = [a for a in arrays[3 * n : 3 * n + 3] if a is not None]
            if not all(a.dtype is F32 and a.flags.carray and a.shape == several[0].shape for a in several):
                left.append(n)
                continue
            x, g, *buffer = [a.reshape(-1) for a in several]
            row = numbers[rows[n] if rows.size > 1 else 0]
            thread_pool.run(move, x.size, (x, g, *(buffer or [_NONE]), row), int(x.size * _COST_OF_SGD))
        return left

    return each


# --- Adam ------------------------------------------------------------------------------------------------------------


def _adam() -> Callable:
    absent = {"rate": 0, "eps": 0, "shrink": 1, "decay": 0, "take1": 0, "beta2": 0, "take2": 0, "maximize": 0}
    RATE, EPS, SHRINK, DECAY, TAKE1, BETA2, TAKE2, MAXIMIZE = range(len(absent))

    @inner(fastmath={"contract"})
    def average(x, g, m, v, numbers):
        decay, take1, beta2, take2 = numbers[DECAY], numbers[TAKE1], numbers[BETA2], numbers[TAKE2]
        sign = F(1.0) - F(2.0) * numbers[MAXIMIZE]
        if decay != F(0.0):
            for i in range(x.size):
                slope = sign * g[i] + decay * x[i]
                m[i] += take1 * (slope - m[i])
                v[i] = beta2 * v[i] + take2 * (slope * slope)
        else:
            for i in range(x.size):
                slope = sign * g[i]
                m[i] += take1 * (slope - m[i])
                v[i] = beta2 * v[i] + take2 * (slope * slope)

    @inner(fastmath={"contract"})
    def largest_so_far(v, largest):
        for i in range(v.size):
            a, b = largest[i], v[i]
            larger = a if a > b else b
            largest[i] = larger if a == a else a

    @inner(fastmath={"contract"})
    def move(x, m, v, rate, eps, shrink):
        for i in range(x.size):
            x[i] = x[i] * shrink - rate * (m[i] / (np.sqrt(v[i]) + eps))

    @inner
    def step(job, size, numbers, known, first, last):
        x, g, m = array_of(word_at(job), size), array_of(word_at(job + 8), size), array_of(word_at(job + 16), size)
        v, has_largest = array_of(word_at(job + 24), size), word_at(job + 32) != known[2]
        largest = array_of(word_at(job + 32 if has_largest else job), size)
        for start in range(first, last, _BLOCK):
            end = min(start + _BLOCK, last)
            here, averages, squares = x[start:end], m[start:end], v[start:end]
            average(here, g[start:end], averages, squares, numbers)
            if has_largest:
                largest_so_far(squares, largest[start:end])
                squares = largest[start:end]
            move(here, averages, squares, numbers[RATE], numbers[EPS], numbers[SHRINK])

    @inner
    def in_two_bytes(job, size, numbers, known, first, last):
        brain, has_largest = known[3] > 0, word_at(job + 32) != known[2]
        bits, slopes = bits_of(word_at(job), size), bits_of(word_at(job + 8), size)
        averages, squares = bits_of(word_at(job + 16), size), bits_of(word_at(job + 24), size)
        largest = bits_of(word_at(job + 32 if has_largest else job), size)
        held = np.empty((5, _BLOCK), np.float32)
        for start in range(first, last, _BLOCK):
            end = min(start + _BLOCK, last)
            n = end - start
            x, g, m, v, most = held[0, :n], held[1, :n], held[2, :n], held[3, :n], held[4, :n]
            widened(bits[start:end], x, brain)
            widened(slopes[start:end], g, brain)
            widened(averages[start:end], m, brain)
            widened(squares[start:end], v, brain)
            average(x, g, m, v, numbers)
            rounded(m, averages[start:end], brain)
            rounded(v, squares[start:end], brain)
            if has_largest:
                widened(largest[start:end], most, brain)
                largest_so_far(v, most)
                rounded(most, largest[start:end], brain)
            move(x, m, most if has_largest else v, numbers[RATE], numbers[EPS], numbers[SHRINK])
            rounded(x, bits[start:end], brain)

    return _over_all((step, in_two_bytes), 5, absent, 1.0)


# --- norms -----------------------------------------------------------------------------------------------------------


def _squares() -> Callable:
    """Computes the sum of the squares of each array of a list, in double precision."""

    @shared("void(int64[::1], int64[::1], int64[::1], float64[::1], int64, int64)")
    def loop(arrays, ends, parts, sums, first, last):
        """`parts`: where each array's parts start."""
        k = found(parts, first) if first < last else 0
        for at in range(first, last):
            while at >= parts[k + 1]:
                k += 1
            size = ends[k + 1] - ends[k]
            begin = (at - parts[k]) * _PART
            part = array_of(arrays[k], size)[begin : min(begin + _PART, size)]
            sums[at] = row_dot(part, part)

    def kernel(arrays):
        sizes = [a.size for a in arrays]
        ends, parts = starts(sizes), starts([-(-size // _PART) for size in sizes])
        sums = np.zeros(parts[-1])
        given = (identities(arrays, len(arrays)), ends, parts, sums)
        thread_pool.run(loop, len(sums), given, int(ends[-1]) // 4, arrays)
        return sums

    return kernel


def _scale() -> Callable:
    """Multiplies all arrays of a list by a number."""

    @inner
    def multiplied(x, factor):
        for i in range(x.size):
            x[i] *= factor

    @shared("void(int64[::1], int64[::1], float32, int64, int64)")
    def loop(arrays, ends, factor, first, last):
        k = found(ends, first)
        while first < last:
            end = min(last, ends[k + 1])
            multiplied(array_of(arrays[k], ends[k + 1] - ends[k])[first - ends[k] : end - ends[k]], factor)
            first = max(first, end)
            k += 1

    def kernel(arrays, factor):
        ends = starts([a.size for a in arrays])
        given = (identities(arrays, len(arrays)), ends, factor)
        thread_pool.run(loop, int(ends[-1]), given, int(ends[-1]) // 4, arrays)

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "sgd": _sgd, "sgd_each": _sgd_each, "adam": _adam, "squares": _squares, "scale": _scale
}  # fmt: skip
