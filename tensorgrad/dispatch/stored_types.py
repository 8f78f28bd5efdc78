"""Types that only store values, as in PyTorch.

Float8 numbers are converted, copied, indexed and compared; those of fewer than eight bits are viewed and moved.

The kernels could compute in these types, badly. So a check is put around all kernels when the first of them is used;
until then there is no trace of it.
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
OF_FLOAT8 = frozenset(
    (
        "abs", "cat", "clone", "clone_copy", "contiguous", "copy", "eq", "fill", "index", "index_select", "isnan", "ne",
        "repeat", "stack", "where",
        "zeros_like", "ones_like", "full_like", "empty_like", "select", "getitem", "setitem",
    )
)  # fmt: skip
# And with types of fewer than eight bits, besides views; with those that have no meaning, and pairs of floats, copies.
OF_SMALL_INTEGERS = frozenset(("cat", "stack", "where", "empty_like", "zeros_like"))
OF_BITS = OF_SMALL_INTEGERS | {"clone", "clone_copy", "contiguous", "copy", "repeat", "reshape", "setitem"}
_allowed: dict[Any, frozenset[str]] = {}  # the dtype of arrays -> the names of ops


class _Check(NamedTuple):
    """Refuses arrays of these types; other calls go on to the op's kernel."""

    op: Op

    def over(self, kernel: Callable) -> Callable:
        name = self.op.name

        @wraps(kernel)
        def checked(*arrays: Any, **options: Any) -> Any:
            for array in arrays:
                allowed = _allowed.get(getattr(array, "dtype", None))
                if allowed is not None and name not in allowed:
                    kind = dtypes.scalar_type(dtypes.from_numpy_dtype(array.dtype))
                    raise NotImplementedError(f'"{name}_cpu" not implemented for {kind!r}')
            return kernel(*arrays, **options)

        return checked


def _check_of(op: Op, storage: Any) -> _Check | None:
    return None if op.kind in LINEAR_KINDS or op.name in OF_FLOAT8 & OF_SMALL_INTEGERS else _Check(op)


def _allowed_of(kind: dtypes.dtype) -> frozenset[str]:
    if kind in dtypes.FLOAT8:
        return OF_FLOAT8
    return OF_BITS if kind.name.startswith(("bits", "float4")) else OF_SMALL_INTEGERS


def _first_use() -> None:
    _allowed.update({d._numpy: _allowed_of(d) for d in (*dtypes.FLOAT8, *dtypes.BITS) if d._numpy is not None})
    if "stored" not in RULES:
        RULES["stored"] = _check_of
        forget()
        storage: Any = STORAGES[np.ndarray]
        plain, convert = storage.write, storage.cast

        def write(cls: Any, target: Any, values: Any) -> None:
            plain(target, cls.cast(np.asarray(values), target.dtype) if target.dtype in _allowed else values)

        def cast(cls: Any, array: Any, dtype: np.dtype, order: str = "K") -> Any:
            if dtype.names is None and array.dtype.names is None:
                return convert(array, dtype, order)
            if dtype == array.dtype:
                return array.astype(dtype, order=order)
            name = (dtype.names or array.dtype.names)[0]
            raise NotImplementedError(f'"copy_" not implemented for {dtypes.SCALAR_TYPES[name]!r}')

        storage.write, storage.cast = classmethod(write), classmethod(cast)


dtypes.ON_STORED.append(_first_use)
