"""Results that are indices or counts: int64 on every machine, as in PyTorch.

NumPy's own are as wide as addresses: 32 bits in WebAssembly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

WIDE = np.dtype(np.intp).itemsize == 8  # whether NumPy's are int64 already

# Ops whose kernels take them from NumPy, and which of their results they are.
RESULTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("arg_extreme", "bincount", "count_nonzero", "lu_row_order", "max_pool_indices"), (0,)),
    **dict.fromkeys(("nonzero", "searchsorted"), (0,)),
    **dict.fromkeys(("adaptive_max_pool", "extreme_dim", "fractional_max_pool2d", "fractional_max_pool3d"), (1,)),
    **dict.fromkeys(("kthvalue", "max_pool", "median_dim", "mode", "running_extreme", "sort", "topk"), (1,)),
    **dict.fromkeys(("unique_all", "unique_dim", "unique_runs"), (1, 2)),
}


def widened(name: str, kernel: Callable) -> Callable:
    """A kernel whose indices are int64; the same one where they are."""
    places = RESULTS.get(name)
    return kernel if WIDE or places is None else _widened(kernel, places)


def _widened(kernel: Callable, places: tuple[int, ...]) -> Callable:
    @wraps(kernel)
    def wide(*given: Any) -> Any:
        made = kernel(*given)
        if not isinstance(made, tuple | list):
            return _wide(made)
        return tuple(_wide(each) if place in places else each for place, each in enumerate(made))

    return wide


def _wide(array: Any) -> Any:
    return array if array is None or array.dtype != np.intp else array.astype(np.int64)
