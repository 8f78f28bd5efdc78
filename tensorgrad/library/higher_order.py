"""Operators that take functions: `torch._ops.HigherOrderOperator`, which libraries subclass for theirs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from tensorgrad.autograd.modes import is_grad_enabled
from tensorgrad.library.dispatch_keys import EXCLUDED, name_of
from tensorgrad.library.operators import device_key, overrides
from tensorgrad.overriding import function_classes
from tensorgrad.rows.switches import LOCAL
from tensorgrad.system.per_thread import PerThread
from tensorgrad.tensor import tensors_in
from tensorgrad.utils._pytree import tree_leaves

__all__ = ["HigherOrderOperator"]

_OF_ALL_DEVICES = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")


class _Running(PerThread):
    outer: tuple = ()  # (operator, key) of the kernels for autograd that are running in this thread


_RUNNING = _Running()


class HigherOrderOperator(ABC):
    """An operator whose arguments may be functions. A subclass gives it a name, and `py_impl` kernels.

    A call runs, the first that there is: what a `TorchDispatchMode` that is on has a kernel for; that for autograd, if
    gradients are recorded (called within itself, the operator goes on to the next); that for the device of its
    tensors; that for all devices.

    Args:
        name: the operator's name.
        cacheable: accepted for compatibility.

    Raises:
        TypeError: If it is made of this class itself: a subclass defines `__call__`, as below.

    >>> from tensorgrad._ops import HigherOrderOperator
    >>> class Twice(HigherOrderOperator):
    ...     def __init__(self):
    ...         super().__init__("twice")
    ...     def __call__(self, function, x):
    ...         return super().__call__(function, x)
    >>> twice = Twice()
    >>> @twice.py_impl(torch._C.DispatchKey.CompositeExplicitAutograd)
    ... def kernel(function, x):
    ...     return function(function(x))
    >>> twice(torch.sqrt, torch.tensor([16.0]))
    tensor([2.])
    """

    namespace: ClassVar[str] = "higher_order"

    def __init__(self, name: str, *, cacheable: bool = False) -> None:
        self._name = self.__name__ = name
        self._cacheable = cacheable
        self.py_kernels: dict[str, Callable] = {}  # by name of the key
        self.python_key_table: dict[type, Callable] = {}  # by class of the mode
        self.left_out: set[str] = set()  # names of keys that `fallthrough` was called for

    def py_impl(self, k: Any) -> Callable:
        """A decorator that makes a function the kernel for a dispatch key, or for a class of modes.

        Raises:
            AssertionError: If there is one for the key.
        """

        def register(function: Callable) -> Callable:
            if isinstance(k, type):
                self.python_key_table[k] = function
                return function
            name = name_of(k)
            if name in self.py_kernels:
                raise AssertionError(f"Trying to override a python impl for {k} on operator {self._name}")
            self.py_kernels[name] = function
            self.left_out.discard(name)
            return function

        return register

    def py_autograd_impl(self, fn: Callable) -> Callable:
        """A decorator that makes a function the kernel for autograd, where an argument requires grad."""

        def kernel(*args: Any, **kwargs: Any) -> Any:
            tracked = any(t.requires_grad for t in tensors_in(tree_leaves((args, kwargs))))
            return fn(*args, **kwargs) if tracked else self(*args, **kwargs)

        self.py_impl("Autograd")(kernel)
        return fn

    def fallthrough(self, dispatch_key: Any) -> None:
        """Calls go on to the next kernel where this key's would be run."""
        self.left_out.add(name_of(dispatch_key))

    def has_kernel_for_dispatch_key(self, k: Any) -> bool:
        """Whether there is a kernel for a dispatch key."""
        return name_of(k) in self.py_kernels

    def name(self) -> str:
        """The operator's name."""
        return self._name

    def cacheable(self) -> bool:
        """What was said when it was made."""
        return self._cacheable

    @abstractmethod
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the operator. Raises: NotImplementedError if there is no kernel for its tensors."""
        tensors = list(tensors_in(tree_leaves((args, kwargs))))
        if not LOCAL.inside_override:
            classes = {t.__class__: None for t in tensors if overrides(t)}
            overriding = [cls for cls in classes if cls not in self.python_key_table]
            if overriding:
                return function_classes.call(self, tuple(overriding), args, kwargs)
        for cls, kernel in self.python_key_table.items():
            modes = LOCAL.dispatch_modes
            if modes and isinstance(modes[-1], cls):
                LOCAL.dispatch_modes = modes[:-1]
                try:
                    return kernel(modes[-1], *args, **kwargs)
                finally:
                    LOCAL.dispatch_modes = modes
            if any(isinstance(t, cls) for t in tensors):
                return kernel(*args, **kwargs)
        device = device_key(tensors)
        if is_grad_enabled():
            for key in (f"Autograd{device}", "Autograd"):
                if self._runs(key) and (self, key) not in _RUNNING.outer:
                    before, _RUNNING.outer = _RUNNING.outer, (*_RUNNING.outer, (self, key))
                    try:
                        return self.py_kernels[key](*args, **kwargs)
                    finally:
                        _RUNNING.outer = before
        found = next((key for key in (device, *_OF_ALL_DEVICES) if self._runs(key)), None)
        if found is None:
            raise NotImplementedError(f"could not find kernel for {self._name} at dispatch key DispatchKey.{device}")
        return self.py_kernels[found](*args, **kwargs)

    def _runs(self, key: str) -> bool:
        return key in self.py_kernels and key not in self.left_out and key not in EXCLUDED.names

    def __str__(self) -> str:
        return self._name
