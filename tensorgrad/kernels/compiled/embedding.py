"""Rows of a table: lookups, sums over bags of rows, and the sums of their gradients.

Threads share the columns of a sum, not its terms: every sum is taken in the order of the rows, for any number of
threads. Many threads share the table's rows as well: each reads all terms, and takes those of its own rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array.index import extremes
from tensorgrad.kernels.compiled.casts import bits, is_half
from tensorgrad.kernels.compiled.layout import in_rows, suits
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import MATRIX, inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.small_weights import of_bfloat16, of_float16, to_bfloat16, to_float16
from tensorgrad.kernels.compiled.simd.two_bytes import FLOAT32, TWO_BYTES
from tensorgrad.storage.fresh import fresh

_COLUMNS = 32  # two cache lines: threads rarely write to the same one


def _numbers(rows, count: int):
    """Returns row indices as a flat int64 array; None if one of them is out of range."""
    if rows.dtype != np.int64:
        rows = rows.astype(np.int64)
    rows = np.ascontiguousarray(rows).reshape(-1)
    low, high = extremes(np, rows) if rows.size else (0, 0)
    return rows if low >= 0 and (high < count or not rows.size) else None


def _embedding():
    @shared(f"void({MATRIX}, int64[::1], {MATRIX}, int64, int64)")
    def loop(table, rows, out, first, last):
        for k in range(first, last):
            row, to = table[rows[k]], out[k]
            for i in range(to.size):
                to[i] = row[i]

    def kernel(table, rows, padding_idx, scale_grad_by_freq):
        flat = _numbers(rows, len(table)) if suits(table) and table.ndim == 2 and rows.size else None
        if flat is None:
            return NotImplemented
        out = fresh(flat.size * table.shape[1], F32).reshape(*rows.shape, table.shape[1])
        thread_pool.run(loop, flat.size, (table, flat, out.reshape(flat.size, -1)), out.size)
        return out

    return kernel


def _shares(width: int) -> int:
    """Returns among how many threads each column's rows are divided, a power of two."""
    return 1 << max(0, (thread_pool.parts() // -(-width // _COLUMNS)).bit_length() - 1)


@inner
def _add(row, to, brain):
    for i in range(row.size):
        to[i] += row[i]


@inner
def _add_in_two_bytes(row, to, brain):
    """Every sum is rounded, as in PyTorch."""
    if brain:
        for i in range(row.size):
            to[i] = to_bfloat16(of_bfloat16(to[i]) + of_bfloat16(row[i]))
    else:
        for i in range(row.size):
            to[i] = to_float16(of_float16(to[i]) + of_float16(row[i]))


def _embedding_grad_loop(matrix: str, add: Callable):
    @shared(f"void({matrix}, int64[::1], int64, int64, {matrix}, boolean, int64, int64)")
    def loop(g, rows, without, shares, out, brain, first, last):
        blocks = (g.shape[1] + _COLUMNS - 1) // _COLUMNS
        while first < last:
            share, stop = first // blocks, min(last, (first // blocks + 1) * blocks)
            start, end = first % blocks * _COLUMNS, min((stop - share * blocks) * _COLUMNS, g.shape[1])
            for k in range(rows.size):
                n = rows[k]
                if n != without and n & (shares - 1) == share:
                    add(g[k, start:end], out[n, start:end], brain)
            first = stop

    return loop


def _embedding_grad():
    loops = _embedding_grad_loop(FLOAT32.matrix, _add), _embedding_grad_loop(TWO_BYTES.matrix, _add_in_two_bytes)

    def kernel(g, rows, count, padding_idx, scale_grad_by_freq):
        half = is_half(g)
        if scale_grad_by_freq or g.__class__ is not np.ndarray or not (g.dtype is F32 or half) or not g.size:
            return NotImplemented
        flat = _numbers(rows, count)
        if flat is None:
            return NotImplemented
        # Recurrent layers pass it with batch and steps swapped.
        g, width = np.ascontiguousarray(g) if half else in_rows(g), g.shape[-1]
        out, shares = np.zeros((count, width), g.dtype), _shares(width)
        given = bits(g).reshape(-1, width), flat, padding_idx, shares, bits(out), g.dtype.char == "E"
        thread_pool.run(loops[half], -(-width // _COLUMNS) * shares, given, 2 * g.size)
        return out

    return kernel


def _bag_sum():
    @shared(f"void({MATRIX}, int64[::1], float32[::1], {MATRIX}, int64, int64)")
    def loop(rows, starts, weights, out, first, last):
        for bag in range(first, last):
            to = out[bag]
            for k in range(starts[bag], starts[bag + 1]):
                row = rows[k]
                if weights.size:
                    factor = weights[k]
                    for i in range(row.size):
                        to[i] += row[i] * factor
                else:
                    for i in range(row.size):
                        to[i] += row[i]

    def kernel(rows, bags, count, weights, ties_up=False):
        if not suits(rows) or not (weights is None or suits(weights)) or not rows.size:
            return NotImplemented
        starts = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(bags, minlength=count), out=starts[1:])
        out = np.zeros((count, rows.shape[1]), F32)
        thread_pool.run(
            loop, count, (rows, starts, np.empty(0, F32) if weights is None else weights, out), 2 * rows.size
        )
        return out

    return kernel


def _starts(indices, starts):
    """Returns the first index of each bag, and the total number of indices."""
    if starts is None:
        return np.arange(0, indices.size + 1, max(indices.shape[1], 1), dtype=np.int64)[: len(indices) + 1]
    return np.append(starts, indices.size).astype(np.int64, copy=False)


@inner
def _add_four(a, b, c, d, to):
    for i in range(to.size):
        to[i] = to[i] + a[i] + b[i] + c[i] + d[i]


def _lookup():
    @shared(f"void({MATRIX}, int64[::1], int64[::1], boolean, {MATRIX}, int64, int64)")
    def loop(table, indices, starts, mean, out, first, last):
        for bag in range(first, last):
            to, size = out[bag], starts[bag + 1] - starts[bag]
            end = starts[bag + 1]
            for k in range(starts[bag], end - 3, 4):
                _add_four(table[indices[k]], table[indices[k + 1]], table[indices[k + 2]], table[indices[k + 3]], to)
            for k in range(end - size % 4, end):
                row = table[indices[k]]
                for i in range(to.size):
                    to[i] += row[i]
            if mean and size > 1:
                for i in range(to.size):
                    to[i] /= np.float32(size)

    def kernel(table, indices, starts, mean):
        flat = _numbers(indices, len(table)) if suits(table) and indices.size else None
        if flat is None:
            return NotImplemented
        starts = _starts(indices, starts)
        out = np.zeros((len(starts) - 1, table.shape[1]), F32)
        thread_pool.run(loop, len(out), (table, flat, starts, mean, out), flat.size * table.shape[1])
        return out

    return kernel


def _lookup_grad():
    @shared(f"void({MATRIX}, int64[::1], int64[::1], boolean, int64, {MATRIX}, int64, int64)")
    def loop(g, indices, starts, mean, shares, out, first, last):
        blocks = (g.shape[1] + _COLUMNS - 1) // _COLUMNS
        while first < last:
            share, stop = first // blocks, min(last, (first // blocks + 1) * blocks)
            start, end = first % blocks * _COLUMNS, min((stop - share * blocks) * _COLUMNS, g.shape[1])
            for bag in range(g.shape[0]):
                row, size = g[bag, start:end], starts[bag + 1] - starts[bag]
                factor = np.float32(1.0) / np.float32(size) if mean and size > 1 else np.float32(1.0)
                for k in range(starts[bag], starts[bag + 1]):
                    n = indices[k]
                    if n & (shares - 1) == share:
                        to = out[n, start:end]
                        for i in range(to.size):
                            to[i] += row[i] * factor
            first = stop

    def kernel(g, indices, starts, count, mean):
        flat = _numbers(indices, count) if suits(g) and g.size and indices.size else None
        if flat is None:
            return NotImplemented
        out = np.zeros((count, g.shape[1]), F32)
        shares = _shares(g.shape[1])
        args = (g, flat, _starts(indices, starts), mean, shares, out)
        thread_pool.run(loop, -(-g.shape[1] // _COLUMNS) * shares, args, 2 * flat.size * g.shape[1])
        return out

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "embedding": _embedding,
    "embedding_grad": _embedding_grad,
    "bag_sum": _bag_sum,
    "lookup": _lookup,
    "lookup_grad": _lookup_grad,
}
