"""How a call finds its kernel: one table per op, from the class of the array to a function.

A table fills itself. The first call with a new array class looks for, in this order: a kernel registered for the op
and the device; one that was written for that device (`OWN`); the general kernel of `kernels/array/`, if the device has
a NumPy-like module; the op's shape rule (meta); its twin. If there is none, an error names the op and the device. A
kernel may decline a call by returning `NotImplemented`: then the next one runs.
"""

from __future__ import annotations

import importlib
import sys
from functools import wraps
from types import MethodType
from typing import Any

from tensorgrad.devices import TYPES
from tensorgrad.rows.signature import arguments_of
from tensorgrad.storage.stubs import BACKENDS, STORAGES, Storage
from tensorgrad.system.missing_names import suggestion

NOTICE: Any = None  # set by DEBUG=4: a function that is given a line of text when a second choice runs

REGISTERED: dict[tuple[str, str], Any] = {}  # (op name, device type) -> kernel, or class with `forward`
ON_CHANGE: Any = None  # called with the row then (dispatch/generate.py)

# For ops without a kernel, in order: (op, storage class) -> kernel or None (dispatch/shapes.py, dispatch/twins.py).
FALLBACKS: list = []

OPS: dict[str, Any] = {}  # op name -> its row (rows/op.py)


class OpDispatch:
    """Registers kernels from outside or inside the package (CONTRIBUTING.md in the repository has an example)."""

    @staticmethod
    def register(op: str, device: str):
        """A decorator that makes a function, or a class after `ops.stubs.Op`, the kernel of `op` on `device`.

        Raises: ValueError for an unknown op or device, TypeError if it is not a kernel, or if its backward needs what
        the op does not save.
        """
        if op not in OPS:
            raise ValueError(f"register({op!r}, {device!r}): there is no op {op!r}{suggestion(op, OPS)}")
        known = TYPES | BACKENDS
        if device not in known:
            raise ValueError(
                f"register({op!r}, {device!r}): there is no device {device!r}{suggestion(device, known)}; expected one "
                f"of {', '.join(sorted(known))}. The Storage of a device or layout of your own is registered first."
            )

        def decorator(kernel):
            if not callable(getattr(kernel, "forward", kernel)):
                raise TypeError(
                    f"register({op!r}, {device!r}): expected a function or a class with forward, got {kernel!r}"
                )
            if hasattr(kernel, "backward"):
                check_backward(OPS[op], kernel.backward)
            REGISTERED[op, device] = kernel
            _changed(op)
            return kernel

        return decorator

    @staticmethod
    def unregister(op: str, device: str) -> None:
        """Removes a registered kernel."""
        if REGISTERED.pop((op, device), None) is not None:
            _changed(op)


AROUND: Any = None  # (op, kernel) -> a kernel that checks the arrays first


def put_around(around: Any) -> None:
    """Puts a check around all kernels, also those that have been used."""
    global AROUND
    AROUND = around
    for name in list(OPS):
        _changed(name)


def _changed(name: str) -> None:
    """Forgets an op's kernels, so that they are looked up again."""
    if name in OPS:
        kernels = OPS[name].compiled.kernels
        for table in (kernels, kernels.large):
            if table is not None:
                table.clear()
        ON_CHANGE(OPS[name])


# Kernels written for one device: device type, or name of a layout -> {op, or "op.backward" -> "file.function" of
# kernels/<device>/}.
OWN: dict[str, dict[str, str]] = {}

# Ops with a second kernel for large arrays on the CPU: name -> its row (kernels/compiled/table.py).
LARGE: dict = {}

# Kernels that belong to no op, which composites, samplers and optimizers look up by name: on the CPU (name -> its row),
# and on other devices (device type -> {name -> "file.function" of kernels/<device>/}).
PARTS: dict[str, Any] = {}
OWN_PARTS: dict[str, dict[str, str]] = {}


def by_part(name: str, elements: int, *given: Any) -> Any:
    """The result of a compiled kernel that belongs to no op; `NotImplemented` if NumPy should do this much work."""
    row = PARTS.get(name)
    return NotImplemented if row is None else row.attempt(elements, *given)


class KernelTable(dict):
    """The kernels of one op by array class, found when first needed; `large` are those for arrays of
    `large_from` elements and more (kernels/compiled/), if there are any."""

    __slots__ = ("for_large", "large", "large_from", "op")

    def __init__(self, op, for_large: bool = False):
        self.op, self.large_from, self.for_large = op, sys.maxsize, for_large
        self.large: KernelTable | None = None

    def split_at(self, large_from: int) -> None:
        """Arrays of so many elements and more have kernels of their own from now on."""
        self.large_from = large_from
        if self.large is None:
            self.large = KernelTable(self.op, for_large=True)

    def __missing__(self, array_type):
        op, storage = self.op, STORAGES[array_type]
        given = REGISTERED.get((op.name, storage.backend))
        general = with_own(op.name, storage, general_kernel(op, storage), self.for_large)
        kernel = first_that_accepts(op.name, getattr(given, "forward", given), general)
        if kernel is None:
            kind = "device" if storage.backend == storage.device_type else "layout"
            raise NotImplementedError(
                f"{op.name}: no kernel for {kind} '{storage.backend}', and no composite twin to run instead. "
                f"Register one with OpDispatch.register({op.name!r}, {storage.backend!r})."
            )
        if AROUND is not None:
            kernel = AROUND(op, kernel)
        if NOTICE is not None and hasattr(kernel, "twin"):
            NOTICE(f"{op.name}: no kernel for {storage.backend}, its twin runs instead")
        return self.setdefault(array_type, storage.guard(kernel))


def run_kernel(name: str, *given: Any) -> Any:
    """The results of an op as arrays: its kernel's for the first array's class and size."""
    kernels, first = OPS[name].compiled.kernels, given[0]
    table = kernels if first.size < kernels.large_from else kernels.large
    return table[first.__class__](*given)


def check_backward(op, backward):
    """Returns a registered backward, which may use what the row's formulas save. Raises: TypeError if it needs more."""

    available = {"g", "needs", *op.saved, *op.kept}
    missing = [name for name in arguments_of(backward) if name not in available]
    if missing:
        raise TypeError(
            f"the backward registered for {op.name} needs {', '.join(missing)}; it may use "
            f"{', '.join(sorted(available))}"
        )
    return backward


def first_that_accepts(name, override, general):
    """A kernel that runs `override`, and `general` if that declines; either may be None."""
    if override is None or general is None:
        return override or general

    @wraps(override)
    def kernel(*arrays, **params):
        result = override(*arrays, **params)
        if result is NotImplemented:
            if NOTICE is not None:
                NOTICE(f"{name}: {getattr(override, '__name__', override)} declined, the general kernel runs")
            result = general(*arrays, **params)
        return result

    return kernel


def with_own(name, storage: type[Storage], general, large=True):
    """The general kernel of an op (or of "op.backward"), after the one written for the device, if any."""
    if storage.backend == "cpu":
        return LARGE[name].over(general) if large and name in LARGE else general
    return first_that_accepts(name, _own(OWN, name, storage), general)


def own_part(name: str, storage: type[Storage]):
    """The kernel of this name, belonging to no op, that was written for a device; or None."""
    return _own(OWN_PARTS, name, storage)


def _own(table: dict[str, dict[str, str]], name: str, storage: type[Storage]):
    path = table.get(storage.backend, {}).get(name)
    return None if path is None else _found(storage.folder, path)


def general_kernel(op, storage: type[Storage]):
    """The kernel for any NumPy-like module; else the shape rule (meta); else the twin; else None."""
    if storage.xp is not None and op.kernel is not None:
        return array_kernel(op.kernel, storage.xp)
    found = (fallback(op, storage) for fallback in FALLBACKS)
    return next((without_cache(op, kernel) for kernel in found if kernel is not None), None)


def without_cache(op, kernel):
    """A kernel that returns the op's outputs, and None for each array of its cache.

    (A row's `shape=` may say how large these are, for counting the memory that graphs keep.)
    """
    if not op.cache:
        return kernel
    count = len(op.outputs) + len(op.cache)

    @wraps(kernel)
    def padded(*values):
        made = kernel(*values)
        made = made if isinstance(made, tuple) else (made,)
        return (*made, *(None,) * (count - len(made)))

    return padded


def array_kernel(kernel, xp):
    """Resolves a row's `kernel`: the name of a function of `xp`, "family.function" of kernels/array, or a function.

    `xp` is the first argument of the latter two. (As that of a method: Python calls one for less than a `partial`.)
    """
    if not callable(kernel) and "." not in kernel:
        return getattr(xp, kernel)
    return MethodType(kernel if callable(kernel) else array_function(kernel), xp)


def array_function(path: str):
    """Returns a function of kernels/array by its "family.function"."""
    return _found("array", path)


def _found(folder: str, path: str):
    """A kernel by its "family.function" in a folder of kernels/."""
    family, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"tensorgrad.kernels.{folder}.{family}"), name)
