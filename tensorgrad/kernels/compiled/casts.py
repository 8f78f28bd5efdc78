"""Casts between float32, float16 and bfloat16, in the memory order of the array."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled import layout
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd import two_bytes
from tensorgrad.storage.fresh import fresh

_BITS, _ROW = "uint16[::1]", "float32[::1]"
_U16 = np.dtype(np.uint16)
_COST = 0.25
# NumPy's letters of the dtypes, and the code of each: 0 is float32, 2 is bfloat16 (which ml_dtypes defines).
_CODES = {"f": 0, "e": 1, "E": 2}


def code(array: Any) -> int | None:
    """Returns the code of a row-major array of float32, float16 or bfloat16; None for others."""
    return _CODES.get(array.dtype.char) if array.__class__ is np.ndarray and array.flags.c_contiguous else None


def is_half(array: Any) -> bool:
    """Returns whether it is an array of float16 or bfloat16, in any layout."""
    return array.__class__ is np.ndarray and _CODES.get(array.dtype.char, 0) > 0


def bits(array: np.ndarray) -> np.ndarray:
    """Returns an array as machine code sees it: float32, or uint16."""
    return array if array.dtype is F32 else array.view(_U16)


@lru_cache(maxsize=1)
def loops() -> tuple:
    """The loops to float32, from it, and from one dtype of two bytes to the other."""

    @shared(f"void({_BITS}, {_ROW}, boolean, int64, int64)")
    def widen(numbers, out, brain, first, last):
        two_bytes.widened(numbers[first:last], out[first:last], brain)

    @shared(f"void({_ROW}, {_BITS}, boolean, int64, int64)")
    def narrow(numbers, out, brain, first, last):
        two_bytes.rounded(numbers[first:last], out[first:last], brain)

    @shared(f"void({_BITS}, {_BITS}, boolean, int64, int64)")
    def exchange(numbers, out, brain, first, last):
        held = np.empty(min(two_bytes.STRETCH, last - first), np.float32)
        for at in range(first, last, two_bytes.STRETCH):
            some = held[: min(two_bytes.STRETCH, last - at)]
            two_bytes.widened(numbers[at : at + some.size], some, brain)
            two_bytes.rounded(some, out[at : at + some.size], not brain)

    return widen, narrow, exchange


def _cast(flat: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Casts a row of numbers."""
    widen, narrow, exchange = loops()
    out = fresh(flat.size, dtype)
    wide = dtype is F32
    loop = widen if wide else narrow if flat.dtype is F32 else exchange
    brain = (dtype if loop is narrow else flat.dtype).char == "E"
    thread_pool.run(loop, flat.size, (bits(flat), out if wide else out.view(_U16), brain), int(flat.size * _COST))
    return out


def cast(x, dtype: np.dtype):
    """Casts an array that has no gaps in memory, in its own order; declines others."""
    if x.__class__ is not np.ndarray or x.dtype.char not in _CODES or dtype.char not in _CODES or x.dtype == dtype:
        return NotImplemented
    if x.flags.c_contiguous:
        return _cast(x.reshape(-1), dtype).reshape(x.shape)
    turned = layout.order(x.shape, x.strides)
    if turned is None or not x.transpose(turned[0]).flags.c_contiguous:
        return NotImplemented
    inside = x.transpose(turned[0])
    return _cast(inside.reshape(-1), dtype).reshape(inside.shape).transpose(turned[1])


def _to_copy() -> Callable:
    loops()

    def kernel(x: Any, dtype: Any) -> Any:
        return cast(x, dtype if isinstance(dtype, np.dtype) else dtype.numpy)

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {"to_copy": _to_copy}
