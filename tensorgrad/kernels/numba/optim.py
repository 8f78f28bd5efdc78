"""Optimizer steps, and the norm of all gradients: one pass over memory, one launch for all parameters.

The formulas are those of `optim/sgd.py` and `optim/adam.py`, in the same order of operations.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.numba.functions import F
from tensorgrad.kernels.numba.runtime import thread_pool
from tensorgrad.kernels.numba.runtime.language import inner
from tensorgrad.kernels.numba.runtime.launch import plain
from tensorgrad.kernels.numba.softmax import row_dot

_ARRAY = "float32[::1]"
_BLOCK = 2048  # elements that stay in the first-level cache from one loop over them to the next
_PART = 65536  # elements whose squares are one sum: fixed, so that results do not depend on threads


def _over_all(step: Callable, arrays: int, absent: dict[str, int], cost: float) -> Callable:
    """Makes the function that updates many parameters.

    It takes a list of (parameter, gradient and state arrays, scalars).

    `arrays` is how many arrays `step` takes; the parameter replaces any that is None. `absent` maps the names of its
    scalars, in its order, to the value that replaces None.
    """

    def part(jobs, starts, first, last):
        for k in range(bisect_right(starts, first) - 1, len(jobs)):
            start, job = starts[k], jobs[k]
            if start >= last:
                break
            step(*job, max(first - start, 0), min(last - start, job[0].size))

    def advance(moves):
        jobs: list[tuple] = []
        made: dict[tuple, np.ndarray] = {}
        for x, others, values in moves:
            numbers = made.get(values)
            if numbers is None:
                given = [(getattr(values, name), otherwise) for name, otherwise in absent.items()]
                numbers = made[values] = np.array([o if value is None else value for value, o in given], F32)
            flat = [x if a is None else a for a in (x, *others)]
            flat += [x] * (arrays - len(flat))
            jobs.append((*(a if a.ndim == 1 else a.reshape(-1) for a in flat), numbers))
        *starts, total = accumulate((job[0].size for job in jobs), initial=0)
        thread_pool.run(part, total, (jobs, starts), int(total * cost))

    return advance


# --- SGD -------------------------------------------------------------------------------------------------------------


def _sgd() -> Callable:
    absent = {"lr": 0, "decay": 0, "momentum": 0, "take": 1, "nesterov": 0, "maximize": 0, "first": 0}
    LR, DECAY, MOMENTUM, TAKE, NESTEROV, MAXIMIZE, FIRST = range(len(absent))

    @inner(fastmath={"contract"})
    def without_buffer(x, g, lr, decay, sign):
        if decay != F(0.0):
            for i in range(x.size):
                x[i] -= lr * (sign * g[i] + decay * x[i])
        else:
            lr = lr * sign
            for i in range(x.size):
                x[i] -= lr * g[i]

    @inner(fastmath={"contract"})
    def with_buffer(x, g, buffer, numbers):
        is_first, nesterov = numbers[FIRST] != F(0.0), numbers[NESTEROV] != F(0.0)
        lr, decay, momentum, take = numbers[LR], numbers[DECAY], numbers[MOMENTUM], numbers[TAKE]
        sign = F(1.0) - F(2.0) * numbers[MAXIMIZE]
        decays = decay != F(0.0)
        for i in range(x.size):
            slope = sign * g[i]
            slope = slope + decay * x[i] if decays else slope
            moved = slope if is_first else momentum * buffer[i] + take * slope
            buffer[i] = moved
            x[i] -= lr * (slope + momentum * moved if nesterov else moved)

    @plain(f"void({_ARRAY}, {_ARRAY}, {_ARRAY}, {_ARRAY}, int64, int64)")
    def step(x, g, buffer, numbers, first, last):
        if buffer.ctypes.data == x.ctypes.data:  # there is no buffer
            sign = F(1.0) - F(2.0) * numbers[MAXIMIZE]
            without_buffer(x[first:last], g[first:last], numbers[LR], numbers[DECAY], sign)
        else:
            with_buffer(x[first:last], g[first:last], buffer[first:last], numbers)

    return _over_all(step, 3, absent, 0.5)


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

    @plain(f"void({', '.join([_ARRAY] * 6)}, int64, int64)")
    def step(x, g, m, v, largest, numbers, first, last):
        has_largest = largest.ctypes.data != x.ctypes.data
        for start in range(first, last, _BLOCK):
            end = min(start + _BLOCK, last)
            here, averages, squares = x[start:end], m[start:end], v[start:end]
            average(here, g[start:end], averages, squares, numbers)
            if has_largest:
                largest_so_far(squares, largest[start:end])
                squares = largest[start:end]
            move(here, averages, squares, numbers[RATE], numbers[EPS], numbers[SHRINK])

    return _over_all(step, 5, absent, 1.0)


# --- norms -----------------------------------------------------------------------------------------------------------


def _squares() -> Callable:
    """Computes the sum of the squares of each array of a list, in double precision."""

    @plain(f"void({_ARRAY}, float64[::1], int64, int64, int64)")
    def loop(x, sums, at, first, last):
        part = x[first:last]
        sums[at] = row_dot(part, part)

    def part(parts, sums, first, last):
        for at in range(first, last):
            x, start = parts[at]
            loop(x, sums, at, start, min(start + _PART, x.size))

    def kernel(arrays):
        flat = [a if a.ndim == 1 else a.reshape(-1) for a in arrays]
        parts = [(x, start) for x in flat for start in range(0, x.size, _PART)]
        sums = np.zeros(len(parts))
        if parts:
            thread_pool.run(part, len(parts), (parts, sums), sum(x.size for x in flat) // 4)
        return sums

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {"sgd": _sgd, "adam": _adam, "squares": _squares}
