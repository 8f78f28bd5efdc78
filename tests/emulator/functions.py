"""CuPy's functions: NumPy's of the same name, behind CuPy's parameters and refusals."""

from __future__ import annotations

import functools
import operator

import numpy as np

from tests.emulator import graphs, runtime, table
from tests.emulator.arrays import fresh, host_of, may_hold, ndarray, on_host

OWN: dict = {}  # name -> function: where CuPy differs from NumPy

# Take NumPy arrays and lists (or indices of that kind), and copy them to the device.
TAKE_HOST = {"append", "bincount", "insert", "isin", "delete", "tile", "ix_", "put", "take", "repeat"}
# Answers that are not arrays.
PLAIN = {
    "ndim", "size", "shape", "result_type", "can_cast", "promote_types", "isscalar", "broadcast_shapes", "issubdtype",
    "iscomplexobj", "isrealobj", "may_share_memory", "shares_memory", "isdtype", "common_type", "min_scalar_type",
}  # fmt: skip
OPERAND = {"a", "x", "m", "ary", "arr", "array"}  # what CuPy calls a first argument that must be its array
# Functions of NumPy's that are CuPy's by another name.
CALLED = {"concat": "concatenate", "permute_dims": "transpose"}
# Not known to take bfloat16.
NO_BFLOAT16 = {
    "cumsum", "cumprod", "searchsorted", "unique", "round", "around", "bincount", "isin", "histogram", "percentile",
    "quantile", "median", "var", "std", "partition", "argpartition", "interp", "digitize", "nan_to_num", "einsum",
    "tensordot", "lexsort", "convolve", "cross", "kron", "vdot", "inner", "average", "isclose", "allclose",
}  # fmt: skip
# Wait for the device, since the shape of what they return depends on values.
SYNCHRONIZE = {
    "nonzero", "flatnonzero", "argwhere", "unique", "extract", "compress", "union1d", "setdiff1d", "bincount", "delete",
}  # fmt: skip


def own(function):
    """Registers a function under its name (without the underscore that keeps it from hiding Python's own)."""
    name = function.__name__.strip("_")
    OWN[name] = function
    return function


def device_results(result, found):
    """NumPy's answer as CuPy's: arrays, also of no dimensions, on the device."""
    if isinstance(result, np.ndarray | np.generic | bool | int | float | complex):
        return fresh(in_order(np.asarray(result), found), *found)
    if hasattr(result, "_fields"):
        return type(result)(*(device_results(r, found) for r in result))
    if isinstance(result, tuple | list):
        return type(result)([device_results(r, found) for r in result])
    return result


def fresh_columns(result, found):
    """`device_results` of linear algebra, whose matrices keep their order."""
    if isinstance(result, tuple):
        parts = [fresh_columns(r, found) for r in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    return fresh(np.asarray(result))


def in_order(host, found):
    """CuPy's new arrays are C-contiguous, where NumPy follows its inputs."""
    if host.flags.c_contiguous or any(np.may_share_memory(host, a._host) for a in found):
        return host
    return np.ascontiguousarray(host)


def general(name: str, function):
    """A function of CuPy's that is NumPy's `function` on the host memory."""
    if name.startswith("linalg."):
        function = quiet(function)
    first = next(iter(table.signature(name).parameters), "")

    def run(*args, **kwargs):
        by_position, by_name = table.bound(name, args, kwargs)
        if name in SYNCHRONIZE:
            runtime.check_synchronize()
        found: list = []
        take_host = name in TAKE_HOST
        arrays_only = by_position and first in OPERAND and not take_host and name not in PLAIN
        if arrays_only and not isinstance(by_position[0], ndarray):
            raise AttributeError(f"cupy.{name}: {type(by_position[0]).__name__!r} is not a cupy.ndarray")
        if name in NO_BFLOAT16 or name.startswith(("linalg.", "fft.")):
            refuse(name, by_position, by_name)
        out = by_name.pop("out", None)
        by_position = [on_host(v, found, take_host) for v in by_position]
        by_name = {k: on_host(v, found, take_host) for k, v in by_name.items() if v is not None}
        with np.errstate(all="ignore"):
            result = function(*by_position, **by_name)
        if name in PLAIN:
            return result
        if out is not None:
            return into(out, result)
        return fresh_columns(result, found) if name.startswith("linalg.") else device_results(result, found)

    return functools.update_wrapper(run, function, ("__name__", "__qualname__"))


def refuse(name, by_position, by_name):
    """Raises: TypeError for bfloat16 where CuPy is not known to take it, float16 where it does not."""
    for value in (*by_position, *by_name.values()):
        kind = value.dtype.name if isinstance(value, ndarray) else ""
        if kind == "bfloat16" or (kind == "float16" and name.startswith("linalg.") and name != "linalg.norm"):
            raise TypeError(f"{kind} is unsupported in {name}")


def quiet(function):
    """Linear algebra that fails as CuPy does: with an exception only under `cupyx.errstate(linalg="raise")`."""

    def run(*args, **kwargs):
        try:
            return columns(function(*args, **kwargs))
        except np.linalg.LinAlgError as error:
            if runtime.CURRENT.linalg == "raise" or "must" in str(error):
                raise
            return np.full_like(args[0], np.nan)

    return run


def columns(result):
    """cuSOLVER's matrices lie in the order of columns, and some of CuPy's results with them; here all do."""
    if isinstance(result, tuple):
        parts = [columns(r) for r in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    if not isinstance(result, np.ndarray) or result.ndim < 2:
        return result
    return np.ascontiguousarray(result.swapaxes(-1, -2)).swapaxes(-1, -2)


def into(out, result):
    """Writes a result to the array that `out=` names."""
    result = np.asarray(result)
    if out.shape != result.shape:
        raise ValueError(f"Out shape is mismatched: {out.shape}, expected {result.shape}")
    if not np.can_cast(result.dtype, out.dtype, "same_kind"):
        raise TypeError(f"Cannot cast from {result.dtype} to {out.dtype}")
    host_of(out)[...] = result
    return out


# May return views of their arguments, which is not work.
VIEWS = {
    "array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "reshape", "ravel", "transpose",
    "permute_dims", "swapaxes", "moveaxis", "rollaxis", "broadcast_to", "broadcast_arrays", "squeeze", "expand_dims",
    "atleast_1d", "atleast_2d", "atleast_3d", "diagonal", "flip", "fliplr", "flipud", "rot90", "split", "array_split",
    "hsplit", "vsplit", "dsplit", "real", "imag", "lib.stride_tricks.as_strided", "diag", "triu_indices",
}  # fmt: skip
# Call cuBLAS or cuSOLVER through CuPy, which refuses that in a capture.
LIBRARIES = {"matmul", "dot", "tensordot", "inner", "vdot"}
# Wait for their stream in Thrust or CUB.
WAIT = {"sort", "argsort", "lexsort", "partition", "argpartition", "unique"}
NO_WORK = {"get_array_module", "asnumpy", "from_dlpack", "empty", "empty_like"}


def function(name: str):
    """CuPy's function of that dotted name. Raises: AttributeError where CuPy, or the emulator, has none."""
    found = _function(name)
    if not callable(found) or isinstance(found, type) or name in PLAIN | NO_WORK:
        return found
    return graphs.recorded(_refused_in_captures(name, found), only_copies=name in VIEWS)


def _refused_in_captures(name: str, function):
    if name in LIBRARIES or name.startswith("linalg."):
        check = graphs.check_library
    elif name in WAIT:
        check = graphs.check_sorted
    else:
        return function

    @functools.wraps(function)
    def run(*args, **kwargs):
        check()
        return function(*args, **kwargs)

    return run


def _function(name: str):
    kind = table.rows().get(name, ("", ""))[0]
    if not kind:
        raise AttributeError(f"module 'cupy' has no attribute {name!r}")
    if name in OWN:
        return OWN[name]
    place = np
    *folders, last = CALLED.get(name, name).split(".")
    for part in folders:
        place = getattr(place, part)
    found = getattr(place, last, None)
    if found is None:
        raise NotImplementedError(f"emulator: CuPy has {name!r}, the emulator does not")
    return general(name, found) if kind == "def" else found


# --- making arrays ---------------------------------------------------------------------------------------------------


@own
def array(obj, dtype=None, copy=True, order="K", subok=False, ndmin=0, *, blocking=False):
    found: list = []
    if isinstance(obj, ndarray):
        host_of(obj)
        ordered = order in ("K", "A", None) or (order == "C" and obj.flags.c_contiguous)
        if copy is not True and dtype in (None, obj.dtype) and obj.ndim >= ndmin and ordered:
            return obj
    given = on_host(obj, found, True)
    if not found:
        graphs.check_host_waits("H2D transfers")
    host = np.array(given, dtype, order=order or "K", ndmin=ndmin)
    if host.dtype == object or not may_hold(host.dtype):
        raise ValueError(f"Unsupported dtype {host.dtype}")
    return fresh(host)


@own
def asarray(a, dtype=None, order=None, *, copy=None, blocking=False):
    return array(a, dtype, copy or False, order or "K")


OWN["asanyarray"] = asarray


@own
def shares_memory(a, b, max_work=None):
    """CuPy compares the addresses of the elements, and gives all arrays without dimensions the same one."""
    if a.ndim == b.ndim == 0:
        if a.dtype.kind == "c":
            raise TypeError("zero-dimensional arrays cannot be concatenated")
        return True
    return bool(np.shares_memory(a._host, b._host))


@own
def ascontiguousarray(a, dtype=None):
    made = array(a, dtype, False, "C", ndmin=1)
    return made if made.flags.c_contiguous else made.copy()


@own
def asnumpy(a, stream=None, order="C", out=None, *, blocking=True):
    if isinstance(a, ndarray):
        return a.get(stream=stream, order=order, out=out)
    host = np.asarray(a, order=order)
    if out is None:
        return host
    np.copyto(out, host)
    return out


@own
def get_array_module(*args):
    import cupy

    return cupy if any(isinstance(a, ndarray) for a in args) else np


def _new(make, shape, dtype, order):
    dtype = np.dtype(dtype)
    if not may_hold(dtype):
        raise ValueError(f"Unsupported dtype {dtype}")
    return fresh(make(shape, dtype, order))


@own
def empty(shape, dtype=float, order="C"):
    return ndarray(shape, dtype, order=order)


@own
def zeros(shape, dtype=float, order="C"):
    return _new(np.zeros, shape, dtype, order)


@own
def ones(shape, dtype=float, order="C"):
    return _new(np.ones, shape, dtype, order)


@own
def full(shape, fill_value, dtype=None, order="C"):
    if isinstance(fill_value, np.ndarray) and fill_value.ndim:
        raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
    if dtype is None:
        dtype = fill_value.dtype if isinstance(fill_value, ndarray) else np.array(fill_value).dtype
    made = empty(shape, dtype, order)
    made.fill(fill_value)
    return made


def _like(make):
    def run(a, dtype=None, order="K", subok=None, shape=None):
        if not isinstance(a, ndarray):
            raise TypeError(f"Unsupported type {type(a)}")
        if subok is not None:
            raise TypeError("subok is not supported yet")
        return fresh(make(a._host, dtype=dtype, order=order, shape=shape))

    return run


@own
def empty_like(a, dtype=None, order="K", subok=None, shape=None):
    if subok is not None:
        raise TypeError("subok is not supported yet")
    like = np.empty_like(a._host, dtype=dtype, order=order, shape=shape)
    made = ndarray(like.shape, like.dtype)
    return made if like.flags.c_contiguous else as_strided(made, like.shape, like.strides)


OWN |= {"zeros_like": _like(np.zeros_like), "ones_like": _like(np.ones_like)}


@own
def full_like(a, fill_value, dtype=None, order="K", subok=None, shape=None):
    made = OWN["empty_like"](a, dtype, order, subok, shape)
    made.fill(fill_value)
    return made


@own
def copy(a, order="K"):
    return array(a, order=order)


def _maker(name):
    make = getattr(np, name)

    def run(*args, **kwargs):
        table.bound(name, args, kwargs)
        return fresh(make(*args, **{k: v for k, v in kwargs.items() if k != "like"}))

    return run


OWN |= {name: _maker(name) for name in ("arange", "eye", "identity", "tri", "linspace", "logspace")}


@own
def from_dlpack(array, *, device=None, copy=None):
    from tests.emulator import dlpack

    return dlpack.take(array)


# --- views -----------------------------------------------------------------------------------------------------------


@own
def broadcast_to(array, shape, subok=False):
    shape = (shape,) if isinstance(shape, int | np.integer) else tuple(operator.index(n) for n in shape)
    shown = np.broadcast_to(array._host, shape)
    return fresh(np.lib.stride_tricks.as_strided(array._host, shown.shape, shown.strides), array)


@own
def broadcast_arrays(*args):
    shape = np.broadcast_shapes(*(a.shape for a in args))
    return [broadcast_to(a, shape) for a in args]


def as_strided(x, shape=None, strides=None):
    shape = x.shape if shape is None else tuple(shape)
    strides = x.strides if strides is None else tuple(strides)
    return ndarray(shape, x.dtype, x.data, strides)


OWN["lib.stride_tricks.as_strided"] = as_strided


@own
def diagonal(a, offset=0, axis1=0, axis2=1):
    return a.diagonal(offset, axis1, axis2)


# --- indexing, sorting -----------------------------------------------------------------------------------------------


@own
def take(a, indices, axis=None, out=None):
    return a.take(indices, axis, out)


@own
def take_along_axis(a, indices, axis):
    if indices.dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    host, index = host_of(a), host_of(indices)
    if axis is None:
        host, axis = host.ravel(), 0
    if host.ndim != index.ndim:
        raise ValueError("`indices` and `a` must have the same number of dimensions")
    n = host.shape[axis]
    return fresh(np.take_along_axis(host, index % n if n else index, axis))


@own
def put_along_axis(arr, indices, values, axis):
    host, index = host_of(arr), host_of(indices)
    if host.ndim != index.ndim:
        raise ValueError("`indices` and `a` must have the same number of dimensions")
    values = host_of(values) if isinstance(values, ndarray) else values
    np.put_along_axis(host, index % max(host.shape[axis], 1), values, axis)


@own
def where(condition, x=None, y=None):
    if x is None and y is None:
        return condition.nonzero()
    condition = condition.astype(bool) if isinstance(condition, ndarray) else bool(condition)
    return _inner("where")(condition, x, y)


@own
def clip(a, a_min, a_max, out=None):
    if not isinstance(a, ndarray):
        raise AttributeError(f"{type(a).__name__!r} object has no attribute 'clip'")
    if a_min is None and a_max is None:
        raise ValueError("array_clip: must set either max or min")
    if a.dtype.kind in "fb" and (a_min is None or a_max is None):
        low, high = -np.inf, np.inf
    else:
        info = np.iinfo(a.dtype) if a.dtype.kind in "iu" else None
        low, high = (info.min, info.max) if info else (-np.inf, np.inf)
    bounds = (low if a_min is None else a_min, high if a_max is None else a_max)
    return _inner("clip")(a, *bounds, **({} if out is None else {"out": out}))


@functools.cache
def _inner(name):
    from tests.emulator import ufuncs

    return ufuncs.inner(name)


@own
def copyto(dst, src, casting="same_kind", where=None):
    found: list = []
    if isinstance(src, np.ndarray):
        if src.size != 1:
            raise ValueError("non-scalar numpy.ndarray cannot be used for copyto")
        src = src.squeeze()[()]
    if not isinstance(src, bool | int | float | complex) and not np.can_cast(src.dtype, dst.dtype, casting):
        raise TypeError(f"Cannot cast {src.dtype} to {dst.dtype} in {casting} casting mode")
    np.copyto(
        host_of(dst), on_host(src, found), casting="unsafe", where=True if where is None else on_host(where, found)
    )


@own
def sort(a, axis=-1, kind=None):
    made = a.flatten() if axis is None else a.copy()
    made.sort(-1 if axis is None else axis, kind)
    return made


@own
def argsort(a, axis=-1, kind=None):
    return a.argsort(axis, kind)


@own
def lexsort(keys):
    if keys.ndim > 2:
        raise NotImplementedError("Keys with the rank of three or more is not supported in lexsort")
    refuse("lexsort", (keys,), {})
    return fresh(np.lexsort(host_of(keys)))


@own
def repeat(a, repeats, axis=None):
    if isinstance(repeats, ndarray):
        raise ValueError("cupy.ndaray cannot be specified as `repeats` argument.")
    return fresh(np.repeat(host_of(a), repeats, axis))


@own
def searchsorted(a, v, side="left", sorter=None):
    if not isinstance(a, ndarray):
        raise NotImplementedError("Only int or ndarray are supported for a")
    refuse("searchsorted", (a, v), {})
    found: list = []
    sorter = None if sorter is None else host_of(sorter)
    return fresh(np.searchsorted(host_of(a), on_host(v, found), side, sorter))


@own
def nonzero(a):
    return a.nonzero()


@own
def array_equal(a1, a2, equal_nan=False):
    found: list = []
    return fresh(np.asarray(np.array_equal(on_host(a1, found), on_host(a2, found), equal_nan)))


# --- sums of bfloat16, which NumPy has none of -----------------------------------------------------------------------


def _by_float32(name):
    """A reduction that computes bfloat16 in float32."""
    plain = general(name, getattr(np, name))

    def run(a, *args, **kwargs):
        if isinstance(a, ndarray) and a.dtype.name == "bfloat16" and kwargs.get("dtype") is None:
            out = kwargs.pop("out", None)
            result = plain(a.astype(np.float32), *args, **kwargs)
            result = result.astype(a.dtype) if result.dtype.kind == "f" else result
            return result if out is None else into(out, result._host)
        return plain(a, *args, **kwargs)

    return run


OWN |= {name: _by_float32(name) for name in ("sum", "prod", "mean", "amax", "amin", "max", "min", "argmax", "argmin")}
