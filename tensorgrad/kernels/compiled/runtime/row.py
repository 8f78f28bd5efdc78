"""A row of the table of compiled kernels: its kernel is loaded on first use, and NumPy runs what it declines."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from tensorgrad.kernels.compiled.runtime.unsuited import Unsuited
from tensorgrad.rows import kernel_tables
from tensorgrad.settings import SETTINGS
from tensorgrad.system import processes

# Per family: the function that calls its kernels with non-contiguous arrays, as (kernel, arguments) -> result.
# `install` fills it in (table.py), since this folder imports nothing from the folders above it.
LAYOUTS: dict[str, Callable] = {}
# Does the same for arrays of float16 and bfloat16, as (op, kernel, general, arguments) -> result.
HALVES: list[Callable] = []


class Row:
    """An op, its kernel as "file.name" of kernels/compiled/, and the least size of its first array, in elements.

    `op` may also be the name of a kernel that belongs to no op. `sized` is the index of the argument that is measured,
    if it is not the first. "name.backward" is the kernel of an op's `backward_kernel`.
    """

    __slots__ = ("failed", "kernel", "large_from", "op", "ready", "sized")

    def __init__(self, op: str, kernel: str, elements: int, sized: int = 0):
        self.op, self.kernel, self.large_from, self.sized = op, kernel, elements, sized
        self.ready: Any = None  # the kernel, once it is loaded
        self.failed = False  # whether it cannot be

    @property
    def elements(self) -> int:
        return self.large_from

    @elements.setter
    def elements(self, elements: int) -> None:
        self.large_from = elements
        if self.op in kernel_tables.OPS:  # the dispatcher reads it there
            kernel_tables.OPS[self.op].compiled.kernels.split_at(elements)

    def available(self) -> bool:
        """Returns whether the kernel can be used, loading it on first use."""
        if self.ready is None and not self.failed:
            self.load()
        return self.ready is not None

    def load(self) -> None:
        """Loads the kernel. If that fails, NumPy serves, and one line says why."""
        if sys.platform in processes.WEBASSEMBLY:  # which has no machine code that a program could bring
            self.failed = True
            return
        from tensorgrad.kernels.compiled.runtime import library, self_test

        try:
            self_test.check()
            self.ready = library.load(self.kernel)
        except Exception as error:
            self.failed = True
            if str(error) not in _warned:
                _warned.add(str(error))
                all_of_them = isinstance(error, library.Unusable)
                what = "compiled kernels are" if all_of_them else f"the compiled kernel of {self.op} is"
                warnings.warn(f"tensorgrad: {what} not used: {error!s:.300}", stacklevel=2)

    def attempt(self, elements: int, *given: Any) -> Any:
        """Runs the kernel of a row that belongs to no op, on work of this size; or returns `NotImplemented`.

        NumPy should do it if the work is small, or the kernel does not take the arrays.
        """
        if elements < self.large_from or SETTINGS.deterministic or not self.available():
            return NotImplemented
        try:
            return self.ready(*given)
        except Unsuited:
            return NotImplemented

    def over(self, general: Callable) -> Callable:
        """Wraps NumPy's kernel of an op: large arrays go to the compiled kernel."""
        again = LAYOUTS.get(self.kernel.rpartition(".")[0])
        sized = self.sized
        always = self.op in kernel_tables.OPS  # the dispatcher has checked the size

        def kernel(*given, **options):
            if (always or given[sized].size >= self.large_from) and not SETTINGS.deterministic:
                made, ready = NotImplemented, self.ready
                if ready is None and self.available():
                    ready = self.ready
                if ready is not None:
                    try:
                        made = ready(*given, **options)
                        if made is not NotImplemented:
                            return made
                        if again is not None and not options:
                            made = again(ready, given)
                    except Unsuited:
                        made = NotImplemented
                if made is NotImplemented and HALVES and not options and given[sized].dtype.itemsize == 2:
                    made = HALVES[0](self.op, kernel, general, given)
                if made is not NotImplemented:
                    return made
            return general(*given, **options)

        return update_wrapper(kernel, general)


_warned: set[str] = set()

WAITING = Row("spin_wait", "runtime.spin.wait", 0)  # what the pool's threads run until there is work (thread_pool.py)
