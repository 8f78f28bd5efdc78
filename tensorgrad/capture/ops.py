"""Recording ops: each runs on the real arrays, gets a node, and has its result masked."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from tensorgrad.autograd.modes import GRAD, no_grad
from tensorgrad.autograd.views import edge_of
from tensorgrad.capture import steps
from tensorgrad.capture.masks import Unmasked, described, real_storage
from tensorgrad.capture.nodes import Nodes
from tensorgrad.capture.traced import TracedArray
from tensorgrad.dispatch.slow_path import execute
from tensorgrad.dtypes import from_numpy_dtype
from tensorgrad.fx import has_side_effect
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.rows.switches import LOCAL
from tensorgrad.storage.stubs import storage_class
from tensorgrad.tensor import VIEW, Tensor, share, tensors_in


class Ops(Nodes):
    """Recording ops: each runs on the real arrays, gets a node, and has its result masked."""

    def run(self, op: Any, args: tuple) -> Any:
        """Runs an op, and adds its node."""
        tensors = list({id(t): t for t in tensors_in(args)}.values())
        if GRAD.enabled:
            for t in tensors:
                if t._requires_grad is VIEW:
                    edge_of(t)  # what makes the graph of a view again is recorded too
        given = self.argument(tuple(args))
        overwritten = LOCAL.overwritten
        into_plain = overwritten is not None and not LOCAL.computing_tangents and (
            args[0].__class__ is not TracedArray and isinstance(args[0], Tensor) and args[0]._memory is overwritten
            and args[0]._array.__class__ is not TracedArray
        )  # fmt: skip
        with self.off(), Unmasked(self, tensors):
            result = execute(op, args)
        keeps = bool(op.cache) and _recorded_by(result, op) is not None
        target = steps.with_cache(op.name) if keeps else op.compiled.call
        node = self.call(target, given) if keeps else self.call(target, *_written(op, given))
        if op.params[-1].name == "generator":
            self.note("random", node, f"{op.name} draws random numbers")
            has_side_effect(target)
        results = result if isinstance(result, tuple) else (result,)
        sized_by_values = _size_depends_on_values(op, args)
        for i, r in enumerate(results):
            item = node if r is result and not keeps else self.call(steps.getitem, (node, i))
            if into_plain and i == 0:
                self._know(r._array, item)
                item.meta["val"] = described(r._array)
            else:
                self.mask(r, item)
            if sized_by_values:
                self.note("read", self.call(steps.check_shape, (item, tuple(r.shape))),
                          f"the shape of {item.name} depends on values")  # fmt: skip
        self._mask_saved(result, op, tensors)
        if keeps:
            saved = dict(zip(op.saved, _recorded_by(result, op).saved, strict=True))
            for i, name in enumerate(op.cache):
                kept = saved.get(name)
                if kept is not None and not isinstance(kept, int | float | bool | str):
                    self._know(kept, self.call(steps.getitem, (node, len(results) + i)))
        return result

    def _mask_saved(self, result: Any, op: Any, tensors: list[Tensor]) -> None:
        """Gives the node that an op recorded the traced arrays of what it saved: transforms know tensors by these."""
        node = _recorded_by(result, op)
        if node is not None and node.saved:
            results = result if isinstance(result, tuple) else (result,)
            arrays = [t._array for t in (*tensors, *results) if t._array.__class__ is TracedArray]
            traced = {id(array.real): array for array in arrays}

            def masked(saved: Any) -> Any:
                if saved.__class__ is list:
                    return [masked(s) for s in saved]
                if saved.__class__ is not tuple or id(saved[0]) not in traced:
                    return saved
                return traced[id(saved[0])], self.storage_over(saved[1]), saved[2]

            node.saved = tuple(masked(s) for s in node.saved)
            self._saving.append(weakref.ref(node))

    def op(self, name: str, array: TracedArray, *rest: Any) -> Any:
        """The array of an op's result."""
        with no_grad():
            return self.run(OPS[name], (share(array, None), *rest))._array

    def on_arrays(self, op: Any, args: tuple) -> Any:
        """The arrays of an op's results, whose graph is another matter."""
        with no_grad():
            result = self.run(op, args)
        return tuple(r._array for r in result) if isinstance(result, tuple) else result._array

    def cast(self, array: TracedArray, dtype: Any) -> Any:
        """The array cast to another dtype."""
        return self.op("to_copy", array, from_numpy_dtype(np.dtype(dtype)))

    def empty(self, shape: tuple, dtype: Any, device: Any) -> TracedArray:
        """Uninitialized memory."""
        real = storage_class(device).empty(tuple(shape), dtype, device)
        node = self.call(steps.empty, (tuple(shape), from_numpy_dtype(np.dtype(dtype)), device))
        node.meta["val"] = described(real)
        self._know(real, node)
        return TracedArray(self, real, node)

    def beside(self, function: Any, args: tuple, writes: tuple = (), kind: str = "") -> Any:
        """Runs a function that computes on arrays itself, beside the ops: as one node."""
        tensors = list({id(t): t for t in tensors_in(args)}.values())
        given = self.argument(tuple(args))
        with self.off(), Unmasked(self, tensors):
            result = function(*args)
        node = self.call(function, given)
        if kind:
            self.note(kind, node, f"{node.name} draws random numbers")
            has_side_effect(function)
        for t in writes:
            self.expect(real_storage(t))
            self.note("write", node, f"{node.name} writes to {self.node_of(t).name}")
            has_side_effect(function)
        if isinstance(result, Tensor):
            self.mask(result, node)
        elif isinstance(result, tuple | list):
            for i, r in enumerate(result):
                if r is not None:
                    self.mask(r, self.call(steps.getitem, (node, i)))
        return result

    def call_function(self, function: Any, args: tuple, kwargs: dict) -> tuple:
        """Runs a custom autograd function, whose ops are recorded."""
        return function._recorded(args, kwargs)


def _recorded_by(result: Any, op: Any) -> Any:
    """The node of the autograd graph that an op recorded; None if it did not."""
    first = result[0] if isinstance(result, tuple) else result
    edge = first._edge
    return edge[0] if edge is not None and getattr(edge[0], "op", None) is op else None


def _written(op: Any, given: tuple) -> tuple[tuple, dict[str, Any]]:
    """The arguments of a row as a call writes them: keywords by name, and without the defaults at the end."""
    count = len(given) - sum(p.keyword for p in op.params)
    keywords = {
        p.name: value for p, value in zip(op.params[count:], given[count:], strict=True) if repr(value) != p.default
    }
    while count and repr(given[count - 1]) == op.params[count - 1].default:
        count -= 1
    return given[:count], keywords


def _size_depends_on_values(op: Any, args: tuple) -> bool:
    if op.name in _SIZED_BY_VALUES:
        return True
    return op.name == "index" and any(t._array.dtype.kind == "b" for t in tensors_in(args[1:]))


_SIZED_BY_VALUES = frozenset(("nonzero", "masked_select", "bincount"))
