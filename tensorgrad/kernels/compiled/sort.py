"""The k largest or smallest elements of rows: each element is read once, and few of them change the result.

An element's key is an unsigned integer with the desired order; a nan counts as the largest element.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorgrad.kernels.compiled.functions import F
from tensorgrad.kernels.compiled.layout import suits
from tensorgrad.kernels.compiled.reduce import LOWEST, REST_BITS, SIGN_BIT, extreme
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import MATRIX, inlined, inner
from tensorgrad.kernels.compiled.runtime.launch import shared

_MOST = 256  # elements that are kept sorted by insertion
_CHUNK = 64  # elements that are compared before a decision
_PART = 1 << 18  # of a single row, that one thread searches
_I64 = np.dtype("int64")


@inlined
def _key(x, largest):
    bits = np.float32(x + F(0.0)).view(np.int32)  # both zeros alike
    place = np.int32(bits ^ np.int32(np.int32(bits >> SIGN_BIT) & REST_BITS))
    key = np.uint32(place - LOWEST)
    return key if largest else np.uint32(~key)


@inner
def _insert(kept, places, count, key, place):
    """Inserts a key, and its index in the row, before the first smaller one; the last of `count` is dropped."""
    at = count - 1
    while at > 0 and kept[at - 1] < key:
        kept[at], places[at] = kept[at - 1], places[at - 1]
        at -= 1
    kept[at], places[at] = key, place


def _topk() -> Callable:
    top, bottom = extreme(True), extreme(False)

    @shared(f"void({MATRIX}, boolean, int64[:,::1], int64, int64)")
    def loop(x, largest, found, first, last):
        n, k = x.shape[1], found.shape[1]
        kept = np.empty(k, np.uint32)
        for r in range(first, last):
            row, places = x[r], found[r]
            for i in range(k):
                _insert(kept, places, i + 1, _key(row[i], largest), i)
            for start in range(k, n, _CHUNK):
                end = min(start + _CHUNK, n)
                least, part = row[places[k - 1]], row[start:end]
                if top(part) <= least if largest else bottom(part) >= least:  # with a nan among them it is not
                    continue
                for i in range(start, end):
                    if row[i] <= least if largest else row[i] >= least:
                        continue
                    key = _key(row[i], largest)
                    if key > kept[k - 1]:
                        _insert(kept, places, k, key, i)

    def look(rows, k, largest):
        found = np.empty((len(rows), k), _I64)
        thread_pool.run(loop, len(rows), (rows, largest, found), rows.size // 2)
        return found

    def in_parts(row, k, largest):
        """Finds the indices in a long row: those of each part, and then of all these."""
        whole = row.size - row.size % _PART
        places = look(row[:whole].reshape(-1, _PART), k, largest)
        places += np.arange(0, whole, _PART)[:, None]
        rest = look(row[None, whole:], min(k, row.size - whole), largest) + whole
        places = np.concatenate((places.reshape(-1), rest.reshape(-1)))
        return places[look(row[places][None], k, largest)]

    def kernel(x, k, dim, largest):
        if not suits(x) or not x.size or not 0 < k <= _MOST or 2 * k > x.shape[dim]:
            return NotImplemented
        if dim != x.ndim - 1:
            found = kernel(np.ascontiguousarray(np.moveaxis(x, dim, -1)), k, x.ndim - 1, largest)
            return tuple(np.ascontiguousarray(np.moveaxis(a, -1, dim)) for a in found)
        rows = x.reshape(-1, x.shape[-1])
        if len(rows) == 1 and x.size > 2 * _PART:
            places = in_parts(rows[0], k, largest)
        else:
            places = look(rows, k, largest)
        values = np.take_along_axis(rows, places, 1)
        shape = (*x.shape[:-1], k)
        return values.reshape(shape), places.reshape(shape)

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {"topk": _topk}
