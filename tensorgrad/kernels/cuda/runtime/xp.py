"""The array module of `kernels/array/` for tensors on GPUs: CuPy, except where it differs from NumPy.

`MODULE.name` is `cupy.name` for every name that is not replaced at the end of this file. Functions are replaced if they

- lack bfloat16 in CuPy: `where` and `clip` would return float32, sorting and scanning refuse it;
- are ufuncs: NumPy's have methods that CuPy's lack (`ufuncs.py`), and keep the order of memory (`order.py`);
- multiply matrices, which is done by our own calls of cuBLAS (`matmul.py`);
- check indices without waiting for the GPU (`bounds.py`);
- must raise if they fail: CuPy's linear algebra checks cuSOLVER's status only if configured to.
"""

from __future__ import annotations

from functools import wraps
from types import SimpleNamespace

import cupy
import numpy as np

from tensorgrad.kernels.cuda.matmul import numpys
from tensorgrad.kernels.cuda.runtime import bounds
from tensorgrad.kernels.cuda.runtime.order import keeping
from tensorgrad.kernels.cuda.runtime.ufuncs import extended
from tensorgrad.storage.cuda.capture import current


def _is_bfloat16(value) -> bool:
    """Returns whether an array or a NumPy number is bfloat16."""
    dtype = getattr(value, "dtype", None)
    return dtype is not None and dtype.char == "E"


def where(condition, x=None, y=None):
    """`cupy.where`, but keeps bfloat16: it selects the bits as integers."""
    if not (_is_bfloat16(x) or _is_bfloat16(y)):
        return cupy.where(condition, x, y) if x is not None else cupy.where(condition)
    kept = [v for v in (x, y) if not isinstance(v, bool | int | float)]
    if not all(map(_is_bfloat16, kept)):
        return cupy.where(condition, *(v.astype(np.float32) if _is_bfloat16(v) else v for v in (x, y)))
    dtype = kept[0].dtype
    bits = [v if v.__class__ is cupy.ndarray else np.asarray(v, dtype) for v in (x, y)]
    bits = [v.view(np.int16)[()] if v.__class__ is np.ndarray else v.view(np.int16) for v in bits]
    return cupy.where(condition, *bits).view(dtype)


def clip(a, a_min, a_max, out=None):
    """`cupy.clip`, but keeps bfloat16."""
    if not _is_bfloat16(a):
        return cupy.clip(a, a_min, a_max, out)
    result = a if a_min is None else cupy.maximum(a, a_min)
    result = result if a_max is None else cupy.minimum(result, a_max)
    if out is None:
        return result
    out[...] = result
    return out


def tril(m, k=0):
    """`cupy.tril`, but keeps bfloat16."""
    return where(cupy.tri(*m.shape[-2:], k=k, dtype=bool), m, m.dtype.type(0))


def triu(m, k=0):
    """`cupy.triu`, but keeps bfloat16."""
    return where(cupy.tri(*m.shape[-2:], k=k - 1, dtype=bool), m.dtype.type(0), m)


def _of_truth(name: str):
    """Makes a logical function that also takes complex numbers: nonzero ones are true."""
    function = getattr(cupy, name)

    @wraps(function)
    def run(*args, **kwargs):
        if any(a.__class__ is cupy.ndarray and a.dtype.kind == "c" for a in args[: function.nin]):
            args = tuple([a != 0 if i < function.nin else a for i, a in enumerate(args)])
        return function(*args, **kwargs)

    return run


def _by_float32(name: str, keeps: bool = True):
    """Makes a function that computes bfloat16 as float32, which is exact; `keeps`: the result is converted back."""
    function = getattr(cupy, name)

    @wraps(function)
    def run(*args, **kwargs):
        if not any(map(_is_bfloat16, args)):
            return function(*args, **kwargs)
        dtype = next(a.dtype for a in args if _is_bfloat16(a))
        out = kwargs.pop("out", None)
        result = function(*(a.astype(np.float32) if _is_bfloat16(a) else a for a in args), **kwargs)
        if keeps:
            result = (result[0].astype(dtype), *result[1:]) if isinstance(result, tuple) else result.astype(dtype)
        if out is None:
            return result
        out[...] = result
        return out

    return run


def _running(name: str):
    """Makes `cumsum` or `cumprod`, computed in single precision for two-byte elements."""
    function = getattr(cupy, name)

    @wraps(function)
    def run(a, axis=None, dtype=None, out=None):
        wanted = a.dtype if dtype is None else np.dtype(dtype)
        if out is None and not a.size:
            return a.astype(wanted)
        if wanted.kind in "biu" or wanted.itemsize != 2:
            return function(a, axis, dtype, out)
        result = function(a.astype(np.float32), axis).astype(wanted)
        if out is None:
            return result
        out[...] = result
        return out

    return run


def _said(function):
    """Makes a linear algebra function raise LinAlgError if it fails."""

    @wraps(function)
    def run(*args, **kwargs):
        import cupyx

        with cupyx.errstate(linalg="raise"):
            return function(*args, **kwargs)

    return run


_LINALG = ("cholesky", "det", "eig", "eigh", "inv", "lstsq", "norm", "qr", "slogdet", "solve", "svd")
_VALUES = ("sort", "unique", "partition")
_PLACES = ("argsort", "lexsort", "searchsorted", "argpartition", "isin")


_COPYING = ("asarray", "array")  # functions that copy from the host


def _of_graphs(name: str):
    """Makes a function that copies from the host, for use while a graph is captured.

    It copies values from the host now, once; the graph keeps the result, which its kernels read at each replay.
    """
    function = getattr(cupy, name)

    @wraps(function)
    def run(obj, *args, **kwargs):
        capture = None if _on_gpu(obj) else current()
        if capture is None:
            return function(obj, *args, **kwargs)
        with capture.unrecorded():
            made = function(obj, *args, **kwargs)
        capture.kept.append(made)
        return made

    return run


def _on_gpu(obj) -> bool:
    """Returns whether an array, or an array in nested lists, is on a GPU."""
    return any(map(_on_gpu, obj)) if isinstance(obj, list | tuple) else isinstance(obj, cupy.ndarray)


def while_captured(captured: bool) -> None:
    """Makes `MODULE` fit for captured work, or as it was before."""
    MODULE.__dict__.update({name: _of_graphs(name) if captured else getattr(cupy, name) for name in _COPYING})


class _Module:
    """CuPy's names, each looked up once, and the replaced ones."""

    def __getattr__(self, name: str):
        found = getattr(cupy, name)
        if found.__class__ is cupy.ufunc:
            found = extended(name)
        setattr(self, name, found)
        return found


MODULE = _Module()
MODULE.__dict__.update(
    {name: _running(name) for name in ("cumsum", "cumprod")},
    check_indices=bounds.check, where=keeping(where, 3), clip=keeping(clip, 3), tril=tril, triu=triu, matmul=numpys,
    **{name: keeping(_of_truth(name), 2) for name in ("logical_not", "logical_and", "logical_or", "logical_xor")},
    **{name: _by_float32(name) for name in _VALUES},
    around=keeping(_by_float32("around"), 1),
    **{name: _by_float32(name, keeps=False) for name in _PLACES},
    linalg=SimpleNamespace(**{name: _said(getattr(cupy.linalg, name)) for name in _LINALG}),
)  # fmt: skip
