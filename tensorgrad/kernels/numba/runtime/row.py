"""A row of the table of compiled kernels: it requests its kernel on first use; NumPy runs the op until it is ready."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from tensorgrad.dispatch import kernel_tables
from tensorgrad.kernels.numba.runtime import hooks
from tensorgrad.kernels.numba.runtime.unsuited import Unsuited
from tensorgrad.settings import SETTINGS


class Row:
    """An op, its compiled kernel as "file.name" of kernels/numba/, and the least size of its first array, in elements.

    `op` may also be the name of a kernel that belongs to no op. `sized` is the index of the argument that is measured,
    if it is not the first. "name.backward" is the kernel of an op's `backward_kernel`. `loaded`: the least size once
    the kernel is loaded, if smaller arrays gain as well, but not enough to load it for them.
    """

    __slots__ = ("asked", "few", "kernel", "loaded", "op", "ready", "sized")

    def __init__(self, op: str, kernel: str, elements: int, sized: int = 0, loaded: int | None = None):
        self.op, self.kernel, self.few, self.sized, self.loaded = op, kernel, elements, sized, loaded
        self.ready: Any = None  # the kernel, once it is compiled
        self.asked = False

    @property
    def elements(self) -> int:
        return self.few

    @elements.setter
    def elements(self, elements: int) -> None:
        self.few = elements
        if self.op in kernel_tables.OPS:  # the dispatcher reads it there
            kernel_tables.OPS[self.op].compiled.kernels.split_at(elements)

    def use(self, kernel: Any) -> None:
        """Uses a kernel from now on."""
        self.ready = kernel
        if self.loaded is not None:
            self.elements = self.loaded

    def available(self, elements: int = 0) -> bool:
        """Returns whether the kernel is compiled, requesting it if not.

        While it is being loaded this waits a moment, if NumPy would take longer for so many elements.
        """
        if self.ready is None:
            from tensorgrad.kernels.numba.runtime.background import hold, request

            request(self)
            hold(self, elements * hooks.first_calls.get(self.kernel.rpartition(".")[0], 0.0))
        return self.ready is not None

    def attempt(self, elements: int, *given: Any) -> Any:
        """Runs the kernel of a row that belongs to no op, on work of this size; or returns `NotImplemented`.

        NumPy should do it if the work is small, the kernel is not compiled yet, or it does not take the arrays.
        """
        if elements < self.few or SETTINGS.deterministic or not self.available(elements):
            return NotImplemented
        try:
            return self.ready(*given)
        except Unsuited:
            return NotImplemented

    def over(self, general: Callable) -> Callable:
        """Wraps NumPy's kernel of an op: large arrays go to the compiled kernel once it is ready."""
        from tensorgrad.kernels.numba.runtime.background import hold, request

        family = self.kernel.rpartition(".")[0]
        again, first = hooks.layouts.get(family), hooks.first_calls.get(family)
        sized = self.sized
        always = self.op in kernel_tables.OPS  # the dispatcher has checked the size

        def kernel(*given, **options):
            if (always or given[sized].size >= self.few) and not SETTINGS.deterministic:
                if self.ready is None:
                    request(self)
                    if first:
                        hold(self, first * given[sized].size)
                if self.ready is not None:
                    try:
                        made = self.ready(*given, **options)
                        if made is NotImplemented and again is not None and not options:
                            made = again(self.ready, given)
                    except Unsuited:
                        made = NotImplemented
                    if made is not NotImplemented:
                        return made
            return general(*given, **options)

        return update_wrapper(kernel, general)


WAITING = Row("spin_wait", "runtime.spin.wait", 0)  # what the pool's threads run until there is work (thread_pool.py)
