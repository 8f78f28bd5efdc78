"""What a call may write to: saved, so that it can be put back, and compared.

That is the memory of tensors, their gradients and versions, the state of optimizers, and that of random generators.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tensorgrad.capture.history import used_up
from tensorgrad.random.generator import Generator, default_generator
from tensorgrad.tensor import Tensor


class Memory:
    """The state of tensors, optimizers and generators at one time."""

    def __init__(self, tensors: Iterable[Tensor], optimizers: Iterable[Any], generators: Iterable[Generator]) -> None:
        self.optimizers = [(o, {p: dict(s) for p, s in o.state.items()}) for o in optimizers]
        self._known: set[int] = set()
        # of each: the tensor, its array and a copy, its storage and version, its gradient
        self._saved: list[tuple[Tensor, Any, Any, Any, Any, Tensor | None]] = []
        for tensor in tensors:
            self._save(tensor)
        for _, states in self.optimizers:
            for state in states.values():
                for value in state.values():
                    if isinstance(value, Tensor):
                        self._save(value)
        found = {id(g): g for g in (default_generator, *generators)}
        self._generators = [(g, g.state_bytes()) for g in found.values()]

    def _save(self, tensor: Tensor) -> None:
        if id(tensor) in self._known:
            return
        self._known.add(id(tensor))
        array = tensor._array
        copy = np.array(array, order="K") if array.__class__ is np.ndarray else None
        storage = tensor._storage
        self._saved.append((tensor, array, copy, storage, storage.version, tensor._grad))
        if tensor._grad is not None:
            self._save(tensor._grad)

    def restore(self) -> None:
        """Puts everything back."""
        for optimizer, states in self.optimizers:
            for p in list(optimizer.state):
                if p not in states:
                    del optimizer.state[p]
            for p, state in states.items():
                optimizer.state[p].clear()
                optimizer.state[p].update(state)
        for tensor, array, copy, storage, version, grad in self._saved:
            if copy is not None and array.flags.writeable:
                array[...] = copy
            tensor._array, tensor._memory, tensor._grad = array, storage, grad
            storage.version = version
        for generator, bits in self._generators:
            generator.set_state_bytes(bits)

    def versions(self) -> dict[int, tuple[Tensor, Any]]:
        """The version of each tensor's memory, by the tensor's id."""
        return {id(t): (t, version) for t, _, _, _, version, _ in self._saved}

    def difference(self, other: Memory) -> str:
        """What differs from another time, in words; "" if nothing does. Gradients may be other objects."""
        theirs = {id(t): (t, *rest) for t, *rest in other._saved}
        for tensor, _, copy, _, version, grad in self._saved:
            if id(tensor) not in theirs:
                continue
            _, _, copy2, _, version2, grad2 = theirs[id(tensor)]
            what = f"a tensor of shape {list(tensor.shape)}"
            if not _equal(copy, copy2):
                return f"{what} has other values"
            if version != version2:
                return f"{what} has the version {version2}, not {version}"
            if (grad is None) != (grad2 is None):
                return f"the gradient of {what} is{'' if grad2 is None else ' not'} None"
            if grad is not None and grad2 is not None and not _equal(self._copy(grad), other._copy(grad2)):
                return f"{what} has another gradient"
        for (_, states), (_, states2) in zip(self.optimizers, other.optimizers, strict=True):
            if states.keys() != states2.keys():
                return "an optimizer has state of other parameters"
            for p, state in states.items():
                if state.keys() != states2[p].keys():
                    return "an optimizer has other state"
                for name, value in state.items():
                    value2 = states2[p][name]
                    if isinstance(value, Tensor) and isinstance(value2, Tensor):
                        if not _equal(self._copy(value), other._copy(value2)):
                            return f"an optimizer has another '{name}'"
                    elif value is not value2 and value != value2:
                        return f"an optimizer has another '{name}'"
        for (_, a), (_, b) in zip(self._generators, other._generators, strict=True):
            if not np.array_equal(a, b):
                return "a generator of random numbers is in another state"
        return ""

    def _copy(self, tensor: Tensor) -> Any:
        return next((copy for t, _, copy, _, _, _ in self._saved if t is tensor), None)


def _equal(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return (
        a.shape == b.shape and a.dtype == b.dtype and a.strides == b.strides
        and np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
    )  # fmt: skip


def bits(array: Any) -> Any:
    """An array as what can be compared."""
    if array.__class__ is not np.ndarray:
        return array if array is None else repr(array)
    return array.shape, array.strides, array.dtype, np.ascontiguousarray(array).tobytes()


def _history(tensor: Tensor) -> Any:
    """What a program can see of a tensor's history: the node's name where it was used up, else that there is one."""
    if tensor._edge is None:
        return None
    node = tensor._edge[0]
    return node.name() if used_up(node) else "a graph"


def described(value: Any) -> Any:
    """A result as what can be compared: each tensor by what a program can see of it."""
    from tensorgrad.capture.values import mapped

    def of(t: Tensor) -> Any:
        array = t._array
        return (
            type(t), tuple(t.shape), t.stride(), t.storage_offset(), t._storage.nbytes(), str(t.dtype), t.requires_grad,
            t.is_leaf, t._storage.version, _history(t),
            np.ascontiguousarray(array).tobytes(),
        )  # fmt: skip

    return mapped(value, of)
