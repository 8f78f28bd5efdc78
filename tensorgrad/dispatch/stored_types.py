"""Types that only store values, as in PyTorch, or compute little.

Float8 numbers are converted, copied, indexed and compared; those of fewer than eight bits are viewed and moved; complex
numbers of half precision are added and multiplied, too.

The kernels could compute in these types, badly. So a check is put around all kernels when the first of them is used;
until then there is no trace of it. What PyTorch computes with complex numbers of half precision is computed in
complex64 and rounded, as there.
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
from tensorgrad.storage.wide import wide
from tensorgrad.system.float_errors import ignored

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
# And with complex numbers of half precision. (In `1j / x`, PyTorch takes the reciprocal first, of real numbers.)
OF_COMPLEX_HALF = OF_FLOAT8 | {
    "add", "addcmul", "all", "any", "arg_extreme", "complex", "conj", "conj_physical", "constant_pad_nd", "conv",
    "conv_transpose", "count_nonzero", "embed_view", "index_add", "index_copy", "index_fill", "index_put", "isfinite",
    "isinf", "masked_fill", "mul", "neg", "nonzero", "outer", "pad_around", "rdiv", "reshape", "roll", "rsub", "sgn",
    "sort", "std", "std_mean", "sub", "to_layout", "tril", "triu", "var", "var_mean", "vector_norm",
}  # fmt: skip
_allowed: dict[Any, frozenset[str]] = {}  # the dtype of arrays -> the names of ops


class _Check(NamedTuple):
    """Refuses arrays of these types; other calls go on to the op's kernel."""

    op: Op
    wide: bool  # whether complex numbers of half precision become wide ones on the way

    def over(self, kernel: Callable) -> Callable:
        name = self.op.name

        @wraps(kernel)
        def checked(*arrays: Any, **options: Any) -> Any:
            half = False
            for array in arrays:
                allowed = _allowed.get(getattr(array, "dtype", None))
                if allowed is not None and name not in allowed:
                    kind = dtypes.scalar_type(dtypes.from_numpy_dtype(array.dtype))
                    raise NotImplementedError(f'"{name}_cpu" not implemented for {kind!r}')
                half = half or allowed is OF_COMPLEX_HALF
            if half and self.wide:
                return _narrow(kernel(*map(_wide, arrays), **options))
            return kernel(*arrays, **options)

        return checked


def _check_of(op: Op, storage: Any) -> _Check | None:
    if op.kind in LINEAR_KINDS or op.name in OF_FLOAT8 & OF_SMALL_INTEGERS:
        return None
    return _Check(op, storage.array_type is np.ndarray)


def _wide(value: Any) -> Any:
    return wide(value) if value.__class__ is np.ndarray and value.dtype.kind == "W" else value


def _narrow(made: Any) -> Any:
    """Results in half precision."""
    if made.__class__ is tuple:
        return tuple(map(_narrow, made))
    if made.dtype.kind not in "fc":
        return made
    kind = dtypes.complex32 if made.dtype.kind == "c" else dtypes.float16
    with ignored():
        return made.astype(kind.numpy)


def _allowed_of(kind: dtypes.dtype) -> frozenset[str]:
    if kind is dtypes.complex32:
        return OF_COMPLEX_HALF
    if kind in dtypes.FLOAT8:
        return OF_FLOAT8
    return OF_BITS if kind.name.startswith(("bits", "float4")) else OF_SMALL_INTEGERS


def _first_use() -> None:
    _allowed.update(
        {d._numpy: _allowed_of(d) for d in (*dtypes.FLOAT8, *dtypes.BITS, dtypes.complex32) if d._numpy is not None}
    )
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
