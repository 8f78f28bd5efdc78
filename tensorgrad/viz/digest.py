"""Condenses a tensor for display on a page: its values if it is small, else a coarse map of them, and a histogram."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorgrad import dtypes
from tensorgrad.storage.stubs import STORAGES

FEW, WIDE = 256, 16  # up to this many values, in rows of at most this many, are shown individually
ROW = 4  # vectors are broken into rows of this many values
CELLS = 24  # the maximum number of rows and columns of a coarse map
BINS = 24


def digest(array, cells: int = CELLS) -> dict[str, Any]:
    """Returns what to show of an array, ready for JSON.

    The keys are `shape`, `dtype` and `count`; `low`, `high`, `mean` and `std` of the finite values; the number of
    `zeros` and of `odd` values (nan or infinite); `rows`, a table of the values themselves if `exact`, else of the
    means of blocks of size `block` = [rows, columns]; and `bins`, the counts of a histogram from `low` to `high`.

    The last dimension runs across, all others down; a vector shown exactly is broken into several rows. For complex
    numbers, the magnitudes are shown (`magnitude` is then true).

    >>> import numpy as np
    >>> digest(np.array([[1.0, 2.0], [3.0, 6.0]], "float32"))["rows"]
    [[1.0, 2.0], [3.0, 6.0]]
    """
    dtype = dtypes.from_numpy_dtype(array.dtype).name
    shown: dict[str, Any] = {"shape": list(array.shape), "dtype": dtype, "count": int(math.prod(array.shape))}
    storage = STORAGES[array.__class__]
    if storage.device_type == "meta" or not shown["count"]:
        return {**shown, "rows": [], "exact": True, "bins": []}
    host = np.asarray(storage.to_host(array))
    if host.dtype.name == "bfloat16":
        host = host.astype(np.float32)
    if host.dtype.kind == "c":
        host, shown["magnitude"] = np.abs(host), True
    table = host.reshape(-1, host.shape[-1] if host.ndim else 1)
    if host.ndim == 1 and host.size <= FEW:
        shown.update(exact=True, rows=[[_plain(v) for v in host[i : i + ROW]] for i in range(0, host.size, ROW)])
    elif host.size <= FEW and table.shape[1] <= WIDE:
        shown.update(exact=True, rows=[[_plain(v) for v in row] for row in table])
    else:
        means, block = _coarse(table.astype(np.float64), cells)
        shown.update(exact=False, rows=[[_plain(np.float64(f"{v:.4g}")) for v in row] for row in means], block=block)
    return {**shown, **_statistics(host.astype(np.float64))}


def _coarse(table: np.ndarray, cells: int) -> tuple[np.ndarray, list[int]]:
    """Returns the means of equal blocks (the last ones may be smaller), and the size of the blocks."""
    height, width = (max(1, math.ceil(n / cells)) for n in table.shape)
    rows, columns = (np.arange(0, n, step) for n, step in zip(table.shape, (height, width)))
    sums = np.add.reduceat(np.add.reduceat(table, rows, axis=0), columns, axis=1)
    counts = np.outer(np.diff([*rows, table.shape[0]]), np.diff([*columns, table.shape[1]]))
    return sums / counts, [height, width]


def _plain(value) -> Any:
    """Converts a number for JSON, which has no nan or infinity; a float32 gets only as many digits as it needs."""
    if value.dtype.kind == "b":
        return int(value)
    if value.dtype.kind in "iu":
        return int(value)
    if not np.isfinite(value):
        return str(float(value))
    return float(np.format_float_scientific(value)) if value.dtype.itemsize < 8 else float(value)


def _statistics(host: np.ndarray) -> dict[str, Any]:
    finite = host[np.isfinite(host)]
    found: dict[str, Any] = {"odd": int(host.size - finite.size), "zeros": int((host == 0).sum()), "bins": []}
    if not finite.size:
        return found
    low, high = float(finite.min()), float(finite.max())
    with np.errstate(all="ignore"):
        found.update(low=low, high=high, mean=float(finite.mean()), std=float(finite.std()))
        if host.size >= 8 and high > low and math.isfinite(high - low):
            found["bins"] = np.histogram(finite, BINS, (low, high))[0].tolist()
    return {k: (str(v) if isinstance(v, float) and not math.isfinite(v) else v) for k, v in found.items()}
