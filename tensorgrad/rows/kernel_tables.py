"""How a call finds its kernel: one registry, `REGISTRY`, and one order of asking, `ORDER`.

The registry has a table for each class of arrays and source of kernels. Its keys are names of ops, "op.backward" for
their backward kernels, and names of helpers: kernels that belong to no op, such as an optimizer's step. The kernels of
an op by array class are found when first needed (`KernelTable`). `python -m tensorgrad.dispatch.show mul` prints which
are asked, and in what order.
"""

from __future__ import annotations

import importlib
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from types import MethodType
from typing import Any

from tensorgrad.devices import TYPES
from tensorgrad.rows import index_results
from tensorgrad.rows.signature import arguments_of
from tensorgrad.storage.stubs import BACKENDS, STORAGES, Storage
from tensorgrad.system.missing_names import suggestion

# Where kernels come from, in the order of asking. Those before "general" may decline a call by returning
# `NotImplemented`: then the next one is asked. Of the others, the first that there is takes every call.
ORDER = (
    "stored",  # refuses types that store values only: dispatch/stored_types.py
    "registered",  # by a program: `OpDispatch.register`
    "compiled",  # for large arrays on the CPU: kernels/compiled/table.py
    "device",  # written for a device or a layout: kernels/cuda/table.py, kernels/sparse/table.py
    "general",  # the row's `kernel`, with the device's NumPy-like module: kernels/array/
    "recorded",  # for arrays that stand for their place in a graph: capture/traced.py
    "batch rule",  # for vmap's arrays: transforms/batch_rules.py
    "stored values",  # of a sparse array, for ops on elements: kernels/sparse/table.py
    "shape rule",  # of the row or its kind, for arrays without data: dispatch/shapes.py
    "twin",  # the same in simpler ops: dispatch/twins.py
)
TAKE_EVERY_CALL = ORDER[ORDER.index("general") :]
_RETURN_THE_CACHE = ORDER[: ORDER.index("general") + 1]

# (backend of the arrays' storage, source) -> {name -> kernel}. A kernel is a function; "folder.file.function" of
# kernels/, imported when it is first needed; or an object with `over`, which makes a kernel of the next one.
REGISTRY: defaultdict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
COMPILED = REGISTRY["cpu", "compiled"]  # name -> its row (kernels/compiled/runtime/row.py); empty if they are disabled

# For the sources without a table: (op, storage class) -> kernel or None.
RULES: dict[str, Callable[[Any, type[Storage]], Any]] = {}

NOTICE: Any = None  # set by DEBUG=4: a function that is given a line of text when a second choice runs
ON_CHANGE: Any = None  # called with a row whose kernels changed (dispatch/generate.py)

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
            forward, backward = getattr(kernel, "forward", kernel), getattr(kernel, "backward", None)
            if not callable(forward):
                raise TypeError(
                    f"register({op!r}, {device!r}): expected a function or a class with forward, got {kernel!r}"
                )
            if backward is not None:
                check_backward(OPS[op], backward)
            OpDispatch.unregister(op, device)
            REGISTRY[device, "registered"] |= {op: forward} | ({f"{op}.backward": backward} if backward else {})
            forget(op)
            return kernel

        return decorator

    @staticmethod
    def unregister(op: str, device: str) -> None:
        """Removes a registered kernel."""
        registered = REGISTRY[device, "registered"]
        if registered.pop(op, None) is not None:
            registered.pop(f"{op}.backward", None)
            forget(op)


def forget(*names: str) -> None:
    """Kernels of these ops, or of all, are looked up again: the registry has changed."""
    for name in names or list(OPS):
        if name in OPS:
            kernels = OPS[name].compiled.kernels
            for table in (kernels, kernels.large):
                if table is not None:
                    table.clear()
            ON_CHANGE(OPS[name])


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
        kernel = in_turn(op.name, asked(op, storage, self.for_large))
        if kernel is None:
            kind = "device" if storage.backend == storage.device_type else "layout"
            raise NotImplementedError(
                f"{op.name}: no kernel for {kind} '{storage.backend}', and no composite twin to run instead. "
                f"Register one with OpDispatch.register({op.name!r}, {storage.backend!r})."
            )
        if NOTICE is not None and hasattr(kernel, "twin"):
            NOTICE(f"{op.name}: no kernel for {storage.backend}, its twin runs instead")
        return self.setdefault(array_type, storage.guard(kernel))


# --- the order of asking -------------------------------------------------------------------------------------------


def asked(op, storage: type[Storage], large: bool = True) -> list[tuple[str, Any]]:
    """The kernels for a call of an op with arrays of a class, each with its source, in the order of asking.

    `large`: those for large arrays are among them.
    """
    found = []
    for source in ORDER:
        if source in RULES:
            kernel = RULES[source](op, storage)
        else:
            kernel = REGISTRY[storage.backend, source].get(op.name) if large or source != "compiled" else None
        if kernel is not None:
            found.append((source, kernel if source in _RETURN_THE_CACHE else without_cache(op, kernel)))
            if source in TAKE_EVERY_CALL:
                return found
    return found


def asked_backward(op, storage: type[Storage]) -> list[tuple[str, Any]]:
    """The same for the row's `backward_kernel`."""
    name = f"{op.name}.backward"
    made = [(source, REGISTRY[storage.backend, source].get(name)) for source in ("compiled", "device")]
    found = [(source, kernel) for source, kernel in made if kernel is not None]
    return [*found, ("general", array_kernel(op.backward_kernel, storage.xp))]


def in_turn(name: str, found: list[tuple[str, Any]]):
    """One kernel out of those that are asked in turn; None if there are none."""
    made = None
    for _, kernel in reversed(found):
        if not hasattr(kernel, "over"):
            made = first_that_accepts(name, function_at(kernel) if kernel.__class__ is str else kernel, made)
        elif made is not None:
            made = kernel.over(made)
    return made


def first_that_accepts(name: str, override, general):
    """A kernel that runs `override`, and `general`, if there is one, if that declines."""
    if general is None:
        return override

    @wraps(override)
    def kernel(*arrays, **params):
        result = override(*arrays, **params)
        if result is NotImplemented:
            if NOTICE is not None:
                NOTICE(f"{name}: {getattr(override, '__name__', override)} declined, the general kernel runs")
            result = general(*arrays, **params)
        return result

    return kernel


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


# --- kernels that other code runs ----------------------------------------------------------------------------------


def run_kernel(name: str, *given: Any) -> Any:
    """The results of an op as arrays: its kernel's for the first array's class and size."""
    kernels, first = OPS[name].compiled.kernels, given[0]
    table = kernels if first.size < kernels.large_from else kernels.large
    return table[first.__class__](*given)


def run_compiled(name: str, elements: int, *given: Any) -> Any:
    """The result of a compiled kernel; `NotImplemented` if there is none, or NumPy should do this much work."""
    row = COMPILED.get(name)
    return NotImplemented if row is None else row.attempt(elements, *given)


def device_kernel(name: str, storage: type[Storage]):
    """The helper of this name that was written for a device; or None."""
    kernel = REGISTRY[storage.backend, "device"].get(name)
    return function_at(kernel) if kernel.__class__ is str else kernel


# --- where kernels are written -------------------------------------------------------------------------------------


def general_kernel(op, storage: type[Storage]):
    """The row's kernel, with the NumPy-like module of the device; None if either is missing."""
    if storage.xp is None or op.kernel is None:
        return None
    return index_results.widened(op.name, array_kernel(op.kernel, storage.xp))


RULES["general"] = general_kernel


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
    return function_at(f"array.{path}")


def function_at(path: str):
    """Returns a function by its "folder.family.function" in kernels/."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"tensorgrad.kernels.{module}"), name)
