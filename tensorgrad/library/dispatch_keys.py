"""The names of dispatch keys, which kernels are registered for: `torch._C.DispatchKey` and sets of them.

Kernels are chosen by the device of the tensors (`operators.py`). These keys exist so that libraries can name what their
kernels are for, and say that kernels of some keys are not to be used for a while.
"""

from __future__ import annotations

import enum
from typing import Any

from tensorgrad.autograd.modes import no_grad
from tensorgrad.system.per_thread import PerThread

__all__ = ["DispatchKey", "DispatchKeySet"]

_DEVICES = (
    "CPU", "CUDA", "HIP", "XLA", "MPS", "IPU", "XPU", "HPU", "VE", "Lazy", "MTIA", "MAIA", "PrivateUse1",
    "PrivateUse2", "PrivateUse3", "Meta",
)  # fmt: skip
_NAMES = [
    "Undefined", "CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd", "CompositeImplicitAutograd",
    "Autograd", "AutogradOther", "Conjugate", "Negative", "BackendSelect", "ADInplaceOrView", "Python",
    "FuncTorchBatched", "Functionalize", "Dense", *_DEVICES, "Sparse", "SparseCPU", "SparseCUDA", "SparseCsr",
    "SparseCsrCPU", "SparseCsrCUDA", "QuantizedCPU", "QuantizedCUDA", "NestedTensor", "NestedTensorCPU",
    "NestedTensorCUDA", *(f"Autograd{device}" for device in _DEVICES), *(f"Autocast{device}" for device in _DEVICES),
]  # fmt: skip


class _Key(enum.Enum):
    """A dispatch key. `str(key)` is its name, as `Library.impl` takes it."""

    def __str__(self) -> str:
        return f"DispatchKey.{self.name}"


DispatchKey: Any = _Key("DispatchKey", {name: i for i, name in enumerate(_NAMES)})  # type: ignore[call-arg]


class DispatchKeySet:
    """A set of dispatch keys.

    >>> keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    >>> keys.has(torch._C.DispatchKey.CPU), keys
    (True, DispatchKeySet(CPU))
    """

    def __init__(self, *keys: Any) -> None:
        self._keys = frozenset(keys)

    def has(self, key: Any) -> bool:
        """Whether a key is in the set."""
        return key in self._keys

    def add(self, key: Any) -> DispatchKeySet:
        """Returns the set with one more key."""
        return DispatchKeySet(*self._keys, key)

    def remove(self, key: Any) -> DispatchKeySet:
        """Returns the set without a key."""
        return DispatchKeySet(*(self._keys - {key}))

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self._keys, *other._keys)

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*(self._keys & other._keys))

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*(self._keys - other._keys))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)

    def __repr__(self) -> str:
        return f"DispatchKeySet({', '.join(sorted(key.name for key in self._keys))})"


class _Excluded(PerThread):
    names: frozenset = frozenset()  # names of keys whose kernels are not used in this thread


EXCLUDED = _Excluded()


class _ExcludeDispatchKeyGuard:
    """A context in which kernels of some keys are not used."""

    def __init__(self, keys: Any) -> None:
        self.keys = keys if isinstance(keys, DispatchKeySet) else DispatchKeySet(keys)

    def __enter__(self) -> None:
        self.before = EXCLUDED.names
        EXCLUDED.names = self.before | {key.name for key in self.keys._keys}

    def __exit__(self, *exception: Any) -> None:
        EXCLUDED.names = self.before


class _AutoDispatchBelowAutograd(no_grad):
    """A context in which ops are not recorded: for kernels of "Autograd", which bring their own derivative."""


def name_of(key: Any) -> str:
    """Returns the name of a key that is given as such or by name."""
    return key.name if isinstance(key, _Key) else str(key)
