"""`cupy.ndarray` on host memory. It is not a NumPy array: what CuPy refuses, it refuses."""

from __future__ import annotations

import functools
import operator

import numpy as np

from tests.emulator import graphs, runtime, table
from tests.emulator.graphs import recorded
from tests.emulator.runtime import MemoryPointer

UFUNCS: dict = {}  # name -> ufunc; filled by ufuncs.py, which needs this file

recorded_copies = functools.partial(recorded, only_copies=True)

NO_CONVERSION = (
    "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array explicitly."
)


def may_hold(dtype: np.dtype) -> bool:
    """Whether CuPy has arrays of a dtype."""
    return (dtype.kind in "biufc" and dtype.char not in "gG") or dtype.name == "bfloat16"


def host_of(array) -> np.ndarray:
    """The host memory of an array, which must be on the current device."""
    if not isinstance(array, ndarray):
        raise TypeError(f"Unsupported type {type(array)}")
    if array._memory.device_id != runtime.CURRENT.device:
        raise ValueError(
            f"The device where the array resides ({array._memory.device_id}) is different from the current device "
            f"({runtime.CURRENT.device}). Peer access is unavailable between these devices."
        )
    return array._host


def fresh(host, *parents: ndarray) -> ndarray:
    """A device array with the values of `host`: a view of the parent whose memory it shows, or else new memory."""
    host = np.asarray(host)
    if not may_hold(host.dtype):
        raise ValueError(f"Unsupported dtype {host.dtype}")
    for parent in parents:
        if host.size and np.may_share_memory(host, parent._host):
            return _made(host, parent._memory)
    return _made(*placed(host if host.flags.c_contiguous else np.array(host, order="K")))


def placed(host: np.ndarray, fill: bool = True):
    """New device memory of a dense array's geometry, with its values: (what shows it, the memory)."""
    pointer = runtime.alloc(host.nbytes)
    made = np.ndarray(host.shape, host.dtype, pointer.mem.bytes, pointer.ptr - pointer.mem.ptr, host.strides)
    if fill:
        made[...] = host
    return made, pointer.mem


def _made(host: np.ndarray, memory) -> ndarray:
    array = object.__new__(ndarray)
    array._host, array._memory = host, memory
    return array


def same_place(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays show the same elements at the same addresses."""
    return a.ctypes.data == b.ctypes.data and a.shape == b.shape and a.strides == b.strides


def check_race(target: ndarray, source: ndarray) -> None:
    """An elementwise kernel whose output overlaps an input other than in place reads what other threads write."""
    a, b = target._host, source._host
    if a.size > 1 and not same_place(a, b) and np.may_share_memory(a, b) and np.shares_memory(a, b):
        raise RuntimeError("emulator: the output overlaps an input; a GPU's threads would race here")


def to_the_host(array: ndarray) -> np.ndarray:
    """Where every copy to the host goes through. Raises: DeviceSynchronized while that is forbidden."""
    runtime.check_synchronize()
    return array._host


def on_host(value, found: list, allow_host: bool = False):
    """A function's argument with the host memory of all device arrays, which are added to `found`."""
    if isinstance(value, ndarray):
        found.append(value)
        return host_of(value)
    if isinstance(value, np.ndarray):
        if not allow_host:
            raise TypeError(f"Unsupported type {type(value)}")
        graphs.check_host_waits("H2D transfers")
    if isinstance(value, tuple | list):
        return type(value)([on_host(v, found, allow_host) for v in value])
    return value


class Flags:
    """What is known of an array's layout."""

    def __init__(self, host, owns):
        self.c_contiguous, self.f_contiguous = host.flags.c_contiguous, host.flags.f_contiguous
        self.owndata = owns
        self.fnc, self.forc = host.flags.fnc, host.flags.forc

    @recorded_copies
    def __getitem__(self, name):
        return getattr(self, name.lower())


class ndarray:
    """A device array."""

    __slots__ = ("__weakref__", "_host", "_memory")
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, shape, dtype=float, memptr=None, strides=None, order="C"):
        dtype = np.dtype(dtype)
        if not may_hold(dtype):
            raise ValueError(f"Unsupported dtype {dtype}")
        shape = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
        if memptr is None:
            if strides is not None:
                raise ValueError("strides need memptr")
            self._host, self._memory = placed(np.empty(shape, dtype, order), fill=False)
        else:
            offset = memptr.ptr - memptr.mem.ptr
            self._host = np.ndarray(shape, dtype, memptr.mem.bytes, offset, strides, order)
            self._memory = memptr.mem

    # --- what it is ---

    shape = property(lambda self: self._host.shape, lambda self, shape: setattr(self._host, "shape", shape))
    dtype = property(lambda self: self._host.dtype)
    strides = property(lambda self: self._host.strides)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    itemsize = property(lambda self: self._host.itemsize)
    nbytes = property(lambda self: self._host.nbytes)
    device = property(lambda self: self._memory.device)
    _c_contiguous = property(lambda self: self._host.flags.c_contiguous)
    flags = property(lambda self: Flags(self._host, self._memory.bytes.nbytes == self._host.nbytes))
    T = property(lambda self: fresh(self._host.T, self))
    mT = property(lambda self: fresh(np.swapaxes(self._host, -1, -2), self))

    @property
    def data(self):
        memory = self._memory
        return MemoryPointer(memory, self._host.ctypes.data - memory.ptr if self._host.size else 0)

    @property
    def base(self):
        return None if self._memory.bytes.nbytes == self._host.nbytes else self._memory

    @property
    def real(self):
        return fresh(self._host.real, self)

    @real.setter
    def real(self, value):
        self.real[...] = value

    @property
    def imag(self):
        if self._host.dtype.kind != "c":
            return fresh(np.zeros(self.shape, self.dtype))
        return fresh(self._host.imag, self)

    @imag.setter
    def imag(self, value):
        self.imag[...] = value

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.shape, "typestr": self.dtype.str, "version": 3, "stream": 1,
            "data": (self.data.ptr, False), "strides": None if self._host.flags.c_contiguous else self.strides,
        }  # fmt: skip

    def __len__(self):
        return len(self._host)

    def __iter__(self):
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    # --- to and from the host ---

    def get(self, stream=None, order="C", out=None, *, blocking=True):
        host = to_the_host(self)
        if out is not None:
            np.copyto(out, host)
            return out
        return np.array(host, order="C" if order == "A" and not host.flags.f_contiguous else order)

    def set(self, arr, stream=None):
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if arr.dtype != self.dtype or arr.shape != self.shape:
            raise TypeError(f"{arr.dtype.name} array cannot be set to {self.dtype.name} array of shape {self.shape}")
        graphs.check_host_waits("H2D transfers")
        self._host[...] = arr

    def item(self):
        return to_the_host(self).item()

    def tolist(self):
        return to_the_host(self).tolist()

    def tobytes(self, order="C"):
        return to_the_host(self).tobytes(order)

    def __array__(self, dtype=None, copy=None):
        raise TypeError(NO_CONVERSION)

    def __bool__(self):
        return bool(to_the_host(self))

    def __int__(self):
        return int(to_the_host(self).item())

    def __float__(self):
        return float(to_the_host(self).item())

    def __complex__(self):
        return complex(to_the_host(self).item())

    def __repr__(self):
        return repr(self._host)

    def __str__(self):
        return str(self._host)

    def __format__(self, spec):
        return format(self._host, spec)

    def __reduce__(self):
        return _from_host, (to_the_host(self),)

    # --- copies and views ---

    @recorded
    def copy(self, order="C"):
        return fresh(np.array(self._host, order=order))

    def __copy__(self):
        return self.copy()

    def __deepcopy__(self, memo):
        with runtime.Device(self._memory.device_id):
            return self.copy()

    @recorded
    def astype(self, dtype, order="K", casting=None, subok=None, copy=True):
        if subok is not None or casting is not None:
            raise TypeError("casting and subok are not supported yet")
        dtype = np.dtype(dtype)
        if not copy and dtype == self.dtype:
            return self
        with np.errstate(all="ignore"):
            return fresh(host_of(self).astype(dtype, order=order, copy=True))

    def view(self, dtype=None, type=None):
        if type is not None and not issubclass(type, ndarray):
            raise TypeError("Type must be a subclass of cupy.ndarray")
        return _made(self._host.view() if dtype is None else self._host.view(np.dtype(dtype)), self._memory)

    @recorded_copies
    def reshape(self, *shape, order="C", copy=None):
        if len(shape) == 1 and isinstance(shape[0], tuple | list):
            shape = tuple(shape[0])
        shape = tuple(operator.index(n) for n in shape)
        return fresh(host_of(self).reshape(shape, order=order), self)

    def transpose(self, *axes):
        return _view(self, self._host.transpose(*axes))

    def swapaxes(self, axis1, axis2):
        return _view(self, self._host.swapaxes(axis1, axis2))

    def squeeze(self, axis=None):
        return _view(self, self._host.squeeze(axis))

    def diagonal(self, offset=0, axis1=0, axis2=1):
        host = self._host.diagonal(offset, axis1, axis2)
        return _view(self, np.lib.stride_tricks.as_strided(host, host.shape, host.strides))

    @recorded
    def flatten(self, order="C"):
        return fresh(self._host.flatten(order))

    @recorded_copies
    def ravel(self, order="C"):
        return fresh(host_of(self).ravel(order), self)

    def reduced_view(self, dtype=None):
        return self

    # --- indexing ---

    def __getitem__(self, index):
        index, advanced = self._index(index)
        if any(isinstance(part, np.ndarray) and part.dtype.kind == "b" for part in index):
            graphs.check_host_waits("D2H transfers")
        host = host_of(self)[index]
        return fresh(host) if advanced else _view(self, np.asarray(host) if not isinstance(host, np.ndarray) else host)

    def __setitem__(self, index, value):
        self._scatter_op(index, value, "update")

    def _index(self, index):
        """NumPy's index for CuPy's, and whether it holds arrays. Indices out of range wrap around, as on the GPU."""
        parts = list(index) if isinstance(index, tuple) else [index]
        advanced = False
        for i, part in enumerate(parts):
            if part is None or part is Ellipsis or isinstance(part, slice):
                continue
            if np.isscalar(part) and not isinstance(part, bool | np.bool_):
                parts[i] = operator.index(part)
                continue
            if not isinstance(part, ndarray):
                graphs.check_host_waits("H2D transfers")
            part = host_of(part) if isinstance(part, ndarray) else np.asarray(part)
            if part.size == 0 and isinstance(parts[i], list | tuple):
                part = part.astype(np.int32)
            if part.dtype.kind not in "biu":
                raise IndexError(f"arrays used as indices must be of integer or boolean type. (actual: {part.dtype})")
            parts[i], advanced = part, True
        if advanced:
            parts = self._wrapped(parts)
        whole = tuple(parts)
        if not advanced and not any(p is Ellipsis for p in parts):
            whole = (*whole, Ellipsis)  # so that NumPy too returns an array
        return whole, advanced

    def _wrapped(self, parts):
        taken = sum(p.ndim if isinstance(p, np.ndarray) and p.dtype.kind == "b" else 1
                    for p in parts if p is not None and p is not Ellipsis)  # fmt: skip
        axis, out = 0, []
        for p in parts:
            if p is Ellipsis:
                axis += self.ndim - taken
            elif isinstance(p, np.ndarray) and p.dtype.kind == "b":
                axis += p.ndim
            elif p is not None:
                if isinstance(p, np.ndarray) and axis < self.ndim and self.shape[axis]:
                    p = p.astype(np.int64) % self.shape[axis]
                axis += 1
            out.append(p)
        return out

    @recorded
    def _scatter_op(self, index, value, op):
        index, advanced = self._index(index)
        target = host_of(self)
        if isinstance(value, ndarray):
            source = host_of(value)
            if not advanced:
                check_race(self[index], value)
        elif advanced:
            if isinstance(value, np.ndarray) and value.ndim:
                graphs.check_host_waits("H2D transfers")
            source = np.asarray(value, self.dtype)
        elif op == "update" and (not np.isscalar(value) and not (isinstance(value, np.ndarray) and value.ndim == 0)):
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        else:
            source = value
        with np.errstate(all="ignore"):
            if op == "update":
                target[index] = np.asarray(source).astype(self.dtype) if isinstance(source, np.ndarray) else source
                return
            if advanced and op not in SCATTER:
                raise ValueError("provided op is not supported")
            if advanced and self.dtype.name not in SCATTER[op]:
                raise TypeError(f"scatter_{op} only supports {', '.join(SCATTER[op])} as data type")
            {"add": np.add, "max": np.maximum, "min": np.minimum}[op].at(target, index, np.asarray(source, self.dtype))

    def scatter_add(self, slices, value):
        self._scatter_op(slices, value, "add")

    def scatter_max(self, slices, value):
        self._scatter_op(slices, value, "max")

    def scatter_min(self, slices, value):
        self._scatter_op(slices, value, "min")

    @recorded
    def fill(self, value):
        if isinstance(value, np.ndarray) and value.ndim:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        if isinstance(value, ndarray):
            value = host_of(value)
        host_of(self).fill(value)

    @recorded
    def take(self, indices, axis=None, out=None):
        if not isinstance(indices, ndarray) and not np.isscalar(indices):
            graphs.check_host_waits("H2D transfers")
        indices = host_of(indices) if isinstance(indices, ndarray) else np.asarray(indices)
        result = fresh(np.take(host_of(self), indices.astype(np.int64), axis, mode="wrap"))
        return result if out is None else _into(out, result)

    @recorded
    def put(self, indices, values, mode="wrap"):
        found: list = []
        np.put(host_of(self), on_host(indices, found, True), on_host(values, found, True), mode)

    def nonzero(self):
        runtime.check_synchronize()
        return tuple(fresh(i) for i in np.nonzero(np.atleast_1d(host_of(self))))

    @recorded
    def sort(self, axis=-1, kind=None):
        graphs.check_sorted()
        if kind not in (None, "stable"):
            raise ValueError("kind can only be None or 'stable'")
        if not self.ndim:
            raise np.exceptions.AxisError("Sorting arrays with the rank of zero is not supported")
        if not may_sort(self.dtype):
            raise TypeError(f"Sorting arrays with dtype '{self.dtype}' is not supported")
        host_of(self).sort(axis, kind="stable")

    @recorded
    def argsort(self, axis=-1, kind=None):
        graphs.check_sorted()
        if kind not in (None, "stable"):
            raise ValueError("kind can only be None or 'stable'")
        if not may_sort(self.dtype):
            raise TypeError(f"Sorting arrays with dtype '{self.dtype}' is not supported")
        return fresh(host_of(self).argsort(axis, kind="stable"))

    # --- NumPy's functions on device arrays ---

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        mine = UFUNCS.get(ufunc.__name__)
        if ufunc.__name__ == "matmul" and method == "__call__":
            import cupy

            return cupy.matmul(*inputs, **kwargs)
        if mine is None:
            return NotImplemented
        out = kwargs.pop("out", None)
        if out is not None:
            kwargs["out"] = out[0] if len(out) == 1 else out
        return (mine if method == "__call__" else getattr(mine, method))(*inputs, **kwargs)

    def __array_function__(self, func, types, args, kwargs):
        import cupy

        place = cupy
        for part in func.__module__.split(".")[1:]:
            place = getattr(place, part, None)
        mine = getattr(place, func.__name__, None)
        if mine is None or mine is func:
            return NotImplemented
        return mine(*args, **kwargs)

    def dot(self, b, out=None):
        import cupy

        return cupy.dot(self, b, out=out)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        from tests.emulator import dlpack

        return dlpack.export(self, stream, max_version)

    def __dlpack_device__(self):
        return 2, self._memory.device_id


# scatter operation -> the dtypes it takes
SCATTER = {
    "add": ("int32", "float16", "float32", "float64", "uint32", "uint64"),
    "max": ("int32", "float32", "float64", "uint32", "uint64"),
    "min": ("int32", "float32", "float64", "uint32", "uint64"),
}


def may_sort(dtype) -> bool:
    return dtype.name != "bfloat16"


def _view(parent: ndarray, host: np.ndarray) -> ndarray:
    """A view of a device array, whatever its device."""
    return _made(host, parent._memory)


def _from_host(host):
    return fresh(host.copy())


def _into(out: ndarray, result: ndarray) -> ndarray:
    if out.shape != result.shape:
        raise ValueError("Output shape mismatch")
    if out.dtype != result.dtype:
        raise TypeError("Output dtype mismatch")
    host_of(out)[...] = result._host
    return out


def _install_operators() -> None:
    binary = {
        "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide",
        "mod": "remainder", "pow": "power", "lshift": "left_shift", "rshift": "right_shift", "and": "bitwise_and",
        "or": "bitwise_or", "xor": "bitwise_xor", "divmod": "divmod",
    }  # fmt: skip
    for name, function in binary.items():
        setattr(ndarray, f"__{name}__", lambda x, y, f=function: UFUNCS[f](x, y))
        setattr(ndarray, f"__r{name}__", lambda x, y, f=function: UFUNCS[f](y, x))
        if name != "divmod":
            setattr(ndarray, f"__i{name}__", lambda x, y, f=function: UFUNCS[f](x, y, x))
    comparisons = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
    comparisons |= {"eq": "equal", "ne": "not_equal"}
    for name, function in comparisons.items():
        setattr(ndarray, f"__{name}__", lambda x, y, f=function: _compare(x, y, f))
    for name, function in {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}.items():
        setattr(ndarray, f"__{name}__", lambda x, f=function: UFUNCS[f](x))


def _compare(x, y, function):
    if isinstance(y, np.ndarray) and y.ndim == 0:
        y = y.item()
    if function in ("equal", "not_equal") and (y is None or isinstance(y, str)):
        return function == "not_equal"
    return UFUNCS[function](x, y)


def _matmul(x, y):
    import cupy

    return cupy.matmul(x, y)


ndarray.__matmul__ = _matmul  # type: ignore[attr-defined]
ndarray.__rmatmul__ = lambda x, y: _matmul(y, x)  # type: ignore[attr-defined]

REDUCTIONS = (
    "all", "any", "argmax", "argmin", "argpartition", "choose", "clip", "compress", "conj", "conjugate", "cumprod",
    "cumsum", "max", "mean", "min", "partition", "prod", "ptp", "repeat", "round", "searchsorted", "std", "sum",
    "trace", "var",
)  # fmt: skip


def _install_methods() -> None:
    """Methods that are CuPy's functions of the same name."""

    def method(name):
        def run(self, *args, **kwargs):
            import cupy

            by_position, by_name = table.bound(f"ndarray.{name}", args, kwargs)
            return getattr(cupy, OTHER.get(name, name))(self, *by_position, **by_name)

        run.__name__ = name
        return run

    for name in REDUCTIONS:
        setattr(ndarray, name, method(name))


OTHER = {"max": "amax", "min": "amin"}
_install_operators()
_install_methods()
