"""A row of the table of compiled kernels: it asks for its kernel when that is first needed; NumPy serves until then."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from tensorgrad.dispatch import kernel_tables
from tensorgrad.kernels.numba.runtime import hooks
from tensorgrad.kernels.numba.runtime.unsuited import Unsuited
from tensorgrad.settings import _Settings as SETTINGS


class Row:
    """An op, its compiled kernel as "file.name" of kernels/numba/, and the elements of its first array that it is for.

    `op` may be another name, by which a kernel is asked for that is no op's.
    `sized` is the number of the argument that is measured, where it is not the first. "name.backward" is the kernel of
    an op's `backward_kernel`.
    """

    __slots__ = ("_elements", "asked", "kernel", "op", "ready", "sized")

    def __init__(self, op: str, kernel: str, elements: int, sized: int = 0):
        self.op, self.kernel, self._elements, self.sized = op, kernel, elements, sized
        self.ready: Any = None  # the kernel, once it is compiled
        self.asked = False

    @property
    def elements(self) -> int:
        return self._elements

    @elements.setter
    def elements(self, elements: int) -> None:
        self._elements = elements
        if self.op in kernel_tables.OPS:  # the call path looks there
            kernel_tables.OPS[self.op].compiled.kernels.few = elements

    def available(self) -> bool:
        """Whether the kernel is compiled; if not, asks for it."""
        if self.ready is None:
            from tensorgrad.kernels.numba.runtime.background import request

            request(self)
        return self.ready is not None

    def over(self, general: Callable) -> Callable:
        """The kernel of an op for large arrays: the compiled one, once there is one, else NumPy's."""
        from tensorgrad.kernels.numba.runtime.background import request

        again = hooks.layouts.get(self.kernel.rpartition(".")[0])
        sized = self.sized
        always = self.op in kernel_tables.OPS  # the caller of an op's kernel has looked at the size

        def kernel(*given, **options):
            if (always or given[sized].size >= self._elements) and not SETTINGS.deterministic:
                if self.ready is None:
                    request(self)
                else:
                    try:
                        made = self.ready(*given, **options)
                        if made is NotImplemented and again is not None and not options:
                            made = again(self.ready, given)
                    except Unsuited:
                        made = NotImplemented
                    if made is not NotImplemented:
                        return made
            return general(*given, **options)

        return update_wrapper(kernel, getattr(general, "func", general))


WAITING = Row("spin_wait", "runtime.spin.wait", 0)  # what the pool's threads do until there is work (thread_pool.py)
