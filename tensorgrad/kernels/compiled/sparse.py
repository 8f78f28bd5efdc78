"""Sparse matrices: products, samples of products, and the order and sums of coordinates.

Threads share the rows of a result, never the terms of a sum, so sums are taken in one order for any number of threads.
Indices were checked when the tensor was made, and cannot change (kernels/sparse/lines.py).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import MATRIX, inner
from tensorgrad.kernels.compiled.runtime.launch import plain, shared
from tensorgrad.kernels.compiled.simd.rows import weighted_1, weighted_4
from tensorgrad.kernels.compiled.simd.vectors import LANES, PARTS


@inner
def _add_four(a, b, c, d, x, y, z, w, to):
    for i in range(to.size):
        to[i] += x * a[i] + y * b[i] + z * c[i] + w * d[i]


@inner
def _add_one(a, x, to):
    for i in range(to.size):
        to[i] += x * a[i]


def _product():
    @shared(f"void(int64[::1], int64[::1], float32[::1], {MATRIX}, {MATRIX}, int64, int64)")
    def loop(starts, places, values, b, out, first, last):
        m = b.shape[1]
        whole, stored = m - m % PARTS, len(places) - 1
        for r in range(first, last):
            to, begin, end = out[r], starts[r], starts[r + 1]
            pairs, p = (end - begin) // 2, 0
            if pairs:
                while p + 4 * LANES <= m:
                    weighted_4(b, m, p, places, values, begin, pairs, stored - begin, out, r * m + p)
                    p += 4 * LANES
                while p < whole:
                    weighted_1(b, m, p, places, values, begin, pairs, stored - begin, out, r * m + p)
                    p += LANES
                if p < m:
                    tail = to[p:]
                    for k in range(begin, begin + 2 * pairs - 3, 4):
                        _add_four(
                            b[places[k]][p:], b[places[k + 1]][p:], b[places[k + 2]][p:], b[places[k + 3]][p:],
                            values[k], values[k + 1], values[k + 2], values[k + 3], tail,
                        )  # fmt: skip
                    for k in range(begin + 2 * pairs - 2 * pairs % 4, begin + 2 * pairs):
                        _add_one(b[places[k]][p:], values[k], tail)
            if (end - begin) % 2:
                _add_one(b[places[end - 1]], values[end - 1], to)

    @shared("void(int64[::1], int64[::1], float32[::1], float32[::1], float32[::1], int64, int64)")
    def by_vector(starts, places, values, b, out, first, last):
        for r in range(first, last):
            begin, end = starts[r], starts[r + 1]
            p = q = s = t = np.float32(0)  # four sums, since each addition waits for the one before
            for k in range(begin, end - 3, 4):
                p += values[k] * b[places[k]]
                q += values[k + 1] * b[places[k + 1]]
                s += values[k + 2] * b[places[k + 2]]
                t += values[k + 3] * b[places[k + 3]]
            for k in range(end - (end - begin) % 4, end):
                p += values[k] * b[places[k]]
            out[r] = (p + q) + (s + t)

    def kernel(starts, places, values, b):
        if values.dtype is not F32 or b.dtype is not F32 or not values.size or not b.size:
            return NotImplemented
        n, m = len(starts) - 1, b.shape[1]
        if m == 1:
            out = np.empty((n, 1), F32)
            thread_pool.run(by_vector, n, (starts, places, values, b.reshape(-1), out.reshape(-1)), 2 * values.size)
            return out
        out = np.zeros((n, m), F32)
        thread_pool.run(loop, n, (starts, places, values, b, out), 2 * values.size * m)
        return out

    return kernel


@inner
def _dot(a, b):
    total = np.float32(0)
    for i in range(a.size):
        total += a[i] * b[i]
    return total


def _sample():
    @shared(f"void(int64[::1], int64[::1], {MATRIX}, {MATRIX}, float32[::1], int64, int64)")
    def loop(rows, columns, a, b, out, first, last):
        for k in range(first, last):
            out[k] = _dot(a[rows[k]], b[columns[k]])

    def kernel(rows, columns, a, b):
        """The products of rows of `a` with rows of `b`."""
        if a.dtype is not F32 or b.dtype is not F32 or not a.size or not b.size or not rows.size:
            return NotImplemented
        out = np.empty(rows.size, F32)
        given = (np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(columns, np.int64), a, b, out)
        thread_pool.run(loop, rows.size, given, rows.size * a.shape[1])
        return out

    return kernel


def _order():
    @plain("void(int64[::1], int64[::1], int64[::1])")
    def count(lines, next_of, order):
        for k in range(lines.size):
            line = lines[k]
            order[next_of[line]] = k
            next_of[line] += 1

    def kernel(lines, starts):
        """The elements line by line, from the line of each and where lines begin."""
        if not lines.flags.carray:
            return NotImplemented
        order = np.empty(lines.size, np.int64)
        count(lines, starts[:-1].copy(), order)
        return order

    return kernel


_BITS = 11  # of each pass: a table of 2048 counters stays in the first cache


def _argsort():
    @plain("void(int64[::1], int64[::1], int64[::1], int64[::1], int64, int64[::1])")
    def digit(keys, order, keys_out, order_out, shift, counts):
        mask = np.int64(2047)
        counts[:] = 0
        for k in range(keys.size):
            counts[(keys[k] >> shift) & mask] += 1
        total = np.int64(0)
        for d in range(counts.size):
            here = counts[d]
            counts[d] = total
            total += here
        for k in range(keys.size):
            d = (keys[k] >> shift) & mask
            place = counts[d]
            counts[d] += 1
            keys_out[place] = keys[k]
            order_out[place] = order[k]

    def kernel(numbers):
        """The order of numbers that are not negative, digit after digit from the lowest (radix sort)."""
        low = int(numbers.min())
        keys = numbers - low
        bits = int(keys.max()).bit_length()
        order, counts = np.arange(keys.size), np.empty(1 << _BITS, np.int64)
        keys_out, order_out = np.empty_like(keys), np.empty_like(order)
        for shift in range(0, bits, _BITS):
            digit(keys, order, keys_out, order_out, shift, counts)
            keys, keys_out, order, order_out = keys_out, keys, order_out, order
        return order

    return kernel


def _sums():
    @shared(f"void({MATRIX}, int64[::1], int64[::1], {MATRIX}, int64, int64)")
    def loop(values, order, starts, out, first, last):
        for s in range(first, last):
            to, begin, end = out[s], starts[s], starts[s + 1]
            row = values[order[begin]]
            for i in range(to.size):
                to[i] = row[i]
            for k in range(begin + 1, end):
                row = values[order[k]]
                for i in range(to.size):
                    to[i] += row[i]

    @shared("void(float32[::1], int64[::1], int64[::1], float32[::1], int64, int64)")
    def of_numbers(values, order, starts, out, first, last):
        for s in range(first, last):
            total = values[order[starts[s]]]
            for k in range(starts[s] + 1, starts[s + 1]):
                total += values[order[k]]
            out[s] = total

    def kernel(values, order, starts):
        """The sums of groups of rows, in an order; `starts` says where each group begins."""
        if values.dtype is not F32 or not values.size or not len(starts):
            return NotImplemented
        order = np.arange(len(values)) if order is None else order
        ends = np.append(starts, len(values))
        out = np.empty((len(starts), *values.shape[1:]), F32)
        if values.ndim == 1:
            given = (np.ascontiguousarray(values), order, ends, out)
            thread_pool.run(of_numbers, len(starts), given, 2 * values.size)
        else:
            given = (np.ascontiguousarray(values).reshape(len(values), -1), order, ends, out.reshape(len(out), -1))
            thread_pool.run(loop, len(starts), given, 2 * values.size)
        return out

    return kernel


def _add_rows():
    @shared(f"void({MATRIX}, int64[::1], {MATRIX}, float32, int64, int64)")
    def loop(table, rows, values, factor, first, last):
        low, high = 16 * first, min(16 * last, table.shape[1])
        for k in range(rows.size):
            _add_one(values[k, low:high], factor, table[rows[k], low:high])

    def kernel(table, rows, values, factor):
        """table[rows[k]] += factor values[k], for one k after the other. Threads share the columns."""
        if table.dtype is not F32 or values.dtype is not F32 or not values.size or not table.flags.carray:
            return NotImplemented
        given = (table, np.ascontiguousarray(rows), np.ascontiguousarray(values), np.float32(factor))
        thread_pool.run(loop, -(-table.shape[1] // 16), given, 2 * values.size)
        return True

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "product": _product,
    "sample": _sample,
    "order": _order,
    "argsort": _argsort,
    "sums": _sums,
    "add_rows": _add_rows,
}
