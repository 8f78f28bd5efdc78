"""Float8 tensors store values: they are converted, copied, indexed and compared, but not computed with, as in PyTorch.

The kernels could compute in these types, badly. So a check is put around all kernels when the first float8 type is
used; until then there is no trace of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from tensorgrad import dtypes
from tensorgrad.rows.kernel_tables import RULES, forget
from tensorgrad.rows.op import LINEAR_KINDS, Op
from tensorgrad.storage.stubs import STORAGES

# What PyTorch's CPU kernels do with float8, besides views and casts.
ALLOWED = frozenset(
    (
        "abs", "cat", "clone", "clone_copy", "contiguous", "copy", "eq", "fill", "index", "index_select", "isnan", "ne",
        "repeat", "stack", "where",
        "zeros_like", "ones_like", "full_like", "empty_like", "select", "getitem", "setitem",
    )
)  # fmt: skip
_types: set[Any] = set()


class _Check(NamedTuple):
    """Refuses arrays of these types; other calls go on to the op's kernel."""

    op: Op

    def over(self, kernel: Callable) -> Callable:
        @wraps(kernel)
        def checked(*arrays: Any, **options: Any) -> Any:
            for array in arrays:
                if getattr(array, "dtype", None) in _types:
                    kind = dtypes.scalar_type(dtypes.from_numpy_dtype(array.dtype))
                    raise NotImplementedError(f'"{self.op.name}_cpu" not implemented for {kind!r}')
            return kernel(*arrays, **options)

        return checked


def _check_of(op: Op, storage: Any) -> _Check | None:
    return None if op.kind in LINEAR_KINDS or op.name in ALLOWED else _Check(op)


def _first_use() -> None:
    _types.update(d._numpy for d in dtypes.FLOAT8 if d._numpy is not None)
    if "float8" not in RULES:
        RULES["float8"] = _check_of
        forget()
        storage: Any = STORAGES[np.ndarray]
        plain = storage.write

        def write(cls: Any, target: Any, values: Any) -> None:
            plain(target, cls.cast(np.asarray(values), target.dtype) if target.dtype in _types else values)

        storage.write = classmethod(write)


dtypes.ON_FLOAT8.append(_first_use)
