"""`cupy.ufunc`: CuPy's loops (which types there are, which is chosen), computed by NumPy's function of that name."""

from __future__ import annotations

import numpy as np

from tests.emulator import table
from tests.emulator.arrays import UFUNCS, check_race, fresh, host_of, may_hold, ndarray
from tests.emulator.graphs import recorded

BFLOAT16 = "E"
NUMBERS = (bool, int, float, complex)


def dtype_of(char: str) -> np.dtype:
    """The dtype of a letter; ml_dtypes brings bfloat16's."""
    if char == BFLOAT16:
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(char)


def by_float32(function):
    """A function of bfloat16 arrays that computes in float32, as CUDA's does."""

    def run(*arrays):
        return function(*(a.astype(np.float32) if a.dtype.char == BFLOAT16 else a for a in arrays))

    return run


class ufunc:
    """A universal function with CuPy's loops."""

    def __init__(self, row: str, function=None):
        name, scatter, types = row.split(" ")
        self.name, self._scatter_op = f"cupy_{name}", None if scatter == "None" else scatter
        self.types = types.split(",")
        self._loops = [tuple([dtype_of(c) for c in part] for part in t.split("->")) for t in self.types]
        self.nin, self.nout = len(self._loops[0][0]), len(self._loops[0][1])
        self.nargs = self.nin + self.nout
        self.__name__ = name
        self._function = getattr(np, name) if function is None else function
        self._chosen: dict = {}

    def __repr__(self):
        return f"<ufunc '{self.name}'>"

    # --- which loop ---

    def _kind(self, value):
        """What the choice of a loop depends on: the dtype of arrays and NumPy scalars, the class of Python numbers."""
        if isinstance(value, ndarray):
            return value.dtype
        if type(value) in NUMBERS:
            return type(value)
        if isinstance(value, np.generic) and value.dtype.kind in "biufcV" and may_hold(value.dtype):
            return value.dtype
        raise TypeError(f"Unsupported type {type(value)}")

    def _loop(self, kinds):
        found = self._chosen.get(kinds)
        if found is None:
            found = self._chosen[kinds] = self._find(kinds)
        return found

    def _find(self, kinds):
        order = {bool: 0, int: 1, float: 2, complex: 3}
        strong = [k for k in kinds if not isinstance(k, type)]
        weight = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}
        reach = max((weight[k.kind] for k in strong), default=-1)
        weak = [isinstance(k, type) and order[k] <= reach for k in kinds]
        dtypes = [np.dtype(k) if isinstance(k, type) else k for k in kinds]
        for loop in self._loops:
            for kind, dtype, is_weak, wanted in zip(kinds, dtypes, weak, loop[0], strict=True):
                if np.can_cast(dtype, wanted):
                    continue
                if not is_weak or np.result_type(kind(0), wanted) != wanted:
                    break
            else:
                return loop
        raise TypeError(f"Wrong type ({kinds}) of arguments for {self.name}")

    def _loop_for(self, dtype):
        for loop in self._loops:
            if all(t == dtype for t in loop[1]):
                return loop
        raise TypeError(f"Wrong type ({dtype}) of arguments for {self.name}")

    # --- the call ---

    @recorded
    def __call__(self, *args, out=None, dtype=None, where=None, casting="same_kind", **others):
        if others:
            raise TypeError(f"Wrong arguments {others}")
        if len(args) not in (self.nin, self.nargs):
            raise TypeError(f"Invalid number of arguments for {self.name}: {len(args)}")
        outs = list(args[self.nin :])
        if out is not None:
            if outs:
                raise ValueError("Cannot specify 'out' as both a positional and keyword argument")
            outs = list(out) if isinstance(out, tuple) else [out]
        outs = outs or [None] * self.nout
        inputs = args[: self.nin]
        kinds = tuple([self._kind(x) for x in inputs])
        loop = self._loop(kinds) if dtype is None else self._loop_for(np.dtype(dtype))
        hosts = [self._cast(x, wanted) for x, wanted in zip(inputs, loop[0], strict=True)]
        mask = None if where is None or where is True else host_of(where)
        shape = np.broadcast_shapes(*(h.shape for h in hosts), *(() if mask is None else (mask.shape,)))
        self._check_outs(outs, loop[1], shape, casting, inputs)
        results = self._compute(hosts, loop)
        made = [self._deliver(r, o, w, shape, mask) for r, o, w in zip(results, outs, loop[1], strict=True)]
        return made[0] if self.nout == 1 else tuple(made)

    @staticmethod
    def _cast(value, wanted):
        if isinstance(value, ndarray):
            host = host_of(value)
            return host if host.dtype == wanted else host.astype(wanted)
        return np.asarray(value, wanted) if not isinstance(value, complex) else np.asarray(value).astype(wanted)

    def _compute(self, hosts, loop):
        function = self._function
        if any(t.char == BFLOAT16 for t in (*loop[0], *loop[1])):
            function = by_float32(function)
        with np.errstate(all="ignore"):
            results = function(*hosts)
        return results if isinstance(results, tuple) else (results,)

    def _check_outs(self, outs, wanted, shape, casting, inputs):
        for given, dtype in zip(outs, wanted, strict=True):
            if given is None:
                continue
            if not isinstance(given, ndarray):
                raise TypeError("Output arguments type must be cupy.ndarray")
            if given.shape != shape:
                raise ValueError(f"Out shape is mismatched: {given.shape}, expected {shape}")
            if not np.can_cast(dtype, given.dtype, casting):
                raise TypeError(f"output of {dtype} cannot be cast to {given.dtype} by the rule {casting!r}")
            for x in inputs:
                if isinstance(x, ndarray):
                    check_race(given, x)

    @staticmethod
    def _deliver(result, given, dtype, shape, mask):
        if given is None:
            result = np.asarray(result)
            if mask is not None:
                return fresh(np.where(mask, result, np.zeros((), dtype)).astype(dtype))
            return fresh(np.ascontiguousarray(result, dtype).reshape(shape))
        target = host_of(given)
        with np.errstate(all="ignore"):
            np.copyto(target, np.asarray(result).astype(dtype, copy=False), casting="unsafe",
                      **({} if mask is None else {"where": mask}))  # fmt: skip
        return given

    # --- methods ---

    def reduce(self, array, axis=0, dtype=None, out=None, keepdims=False):
        if self.name == "cupy_add":
            return array.sum(axis, dtype, out, keepdims)
        if self.name == "cupy_multiply":
            return array.prod(axis, dtype, out, keepdims)
        raise NotImplementedError(f"`{self.name}.reduce` is not supported yet")

    def accumulate(self, array, axis=0, dtype=None, out=None):
        if self.name == "cupy_add":
            return array.cumsum(axis, dtype, out)
        if self.name == "cupy_multiply":
            return array.cumprod(axis, dtype, out)
        raise NotImplementedError(f"`{self.name}.accumulate` is not supported yet")

    @recorded
    def reduceat(self, array, indices, axis=0, dtype=None, out=None):
        if self.name != "cupy_add":
            raise NotImplementedError(f"`{self.name}.reduceat` is not supported yet")
        result = np.add.reduceat(host_of(array), host_of(indices), axis, dtype)
        if out is None:
            return fresh(result)
        host_of(out)[...] = result
        return out

    def at(self, a, indices, b=None):
        if self._scatter_op is None:
            raise NotImplementedError(f"`{self.name}.at` is not supported yet")
        a._scatter_op(indices, b, self._scatter_op)

    def outer(self, A, B, **kwargs):
        A = A if isinstance(A, ndarray) else fresh(np.asarray(A))
        B = B if isinstance(B, ndarray) else fresh(np.asarray(B))
        return self(A.reshape(A.shape + (1,) * B.ndim), B.reshape((1,) * A.ndim + B.shape), **kwargs)


ALL = UFUNCS


def inner(name: str) -> ufunc:
    """The ufunc that a function of CuPy's calls: `where` and `clip` have none for bfloat16."""
    return ufunc(table.rows()[f"{name}.loops"][1], getattr(np, name))


def _floor_divide(x, y):
    """CUDA's floor of the quotient, which is infinite where Python's is nan, and may be one too large."""
    return np.floor_divide(x, y) if x.dtype.kind not in "fV" else np.floor(np.true_divide(x, y))


def _hypot(x, y):
    """CUDA's: infinite near the largest number of double precision."""
    found = np.hypot(x, y)
    return np.where(found > 2.0**1023, np.inf, found) if found.dtype == np.float64 else found


OWN = {"floor_divide": _floor_divide, "hypot": _hypot}  # where CUDA's differ from NumPy's


def load() -> dict[str, ufunc]:
    """All of CuPy's ufuncs by name; synonyms are one object."""
    if not ALL:
        objects: dict[str, ufunc] = {}
        for name, (kind, row) in table.rows().items():
            if kind == "ufunc":
                if row not in objects:
                    objects[row] = ufunc(row, OWN.get(row.split(" ")[0]))
                ALL[name] = objects[row]
    return ALL
