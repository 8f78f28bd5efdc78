"""In-place forms: `x.mul_(y)` from the row of `mul`.

Nothing is written before everything is checked. Untracked, a NumPy-like ufunc writes straight into the tensor's
memory. Tracked, the op runs out of place, its result is copied over the tensor, and its node becomes the tensor's
history: no op needs a second set of formulas.
"""

from __future__ import annotations

import inspect
from typing import Any

from numpy import ndarray

from tensorgrad.autograd.graph import Node
from tensorgrad.autograd.modes import GRAD
from tensorgrad.autograd.views import check_writable, edge_of, is_recorded, rebase
from tensorgrad.dispatch import guard, signatures
from tensorgrad.dispatch.out import POINTWISE_TOO, WRITES_AT_INDICES, check_no_overlap, check_sources
from tensorgrad.dispatch.promotion import is_operand
from tensorgrad.dispatch.slow_path import overwriting
from tensorgrad.dtypes import F32, F64, I64, scalar_type
from tensorgrad.errors import SHORT_MAX, SHORT_MIN
from tensorgrad.overriding import function_classes
from tensorgrad.rows.switches import AUTOCAST, DISPATCH, LOCAL, SLOW
from tensorgrad.system import numpy_faults
from tensorgrad.tensor import OPERANDS, PLAIN, Tensor, share

# (name, tensor, arguments, result) -> the result in the tensor's layout (ops/sparse/convert.py).
KEEP_LAYOUT: Any = None


def make(op, operator: bool = False):
    """The in-place method of an op: `name_(self, ...)`.

    A ufunc of one or two operands that keeps the dtype is given the tensor's memory as its `out`. As an `operator`
    (`x += y`) it leaves what is neither a tensor nor a number to Python, which then tries `x = x + y`.
    """
    tensors = [p for p in op.params if p.is_tensor]
    is_ufunc = isinstance(op.kernel, str) and "." not in op.kernel
    if op.kind == "pointwise" and is_ufunc and len(op.params) == len(tensors):
        if len(tensors) == 1:
            return _named(op, _unary(op))
        if len(tensors) == 2 and op.rule == "same" and op.takes_number[1]:
            return _named(op, _binary(op, operator))

    apart = op.kind == "pointwise"

    def method(self, *args, **kwargs):
        return replace(self, op.compiled.call, args, kwargs, apart=apart)

    def method_of_operator(self, other):
        if other.__class__ not in OPERANDS and not is_operand(other):
            return NotImplemented
        return replace(self, op.compiled.call, (other,), {}, apart=apart)

    return _named(op, method_of_operator if operator else method)


def _named(op, method):
    method.__name__ = method.__qualname__ = f"{op.name}_"
    method.__doc__ = f"In-place version of `{op.name}`: writes the result into this tensor and returns it."
    signatures.promise(method, lambda: signatures.in_place(signatures.of_row(op)))
    return method


def _unary(op):
    kernels, call, floats_only = op.compiled.kernels, op.compiled.call, op.rule == "float"
    suspect = op.kernel in numpy_faults.SUSPECTS
    limited = floats_only or suspect

    def method(self):
        array = self._array
        if (
            SLOW or self.__class__ not in PLAIN or (self._requires_grad and is_recorded(self))
            or (
                limited
                and (
                    (floats_only and array.dtype.kind not in "fc")
                    or (suspect and not array.flags.c_contiguous and numpy_faults.writes_wrongly_into_gaps(op.kernel))
                )
            )
        ):  # fmt: skip
            return replace(self, call, (), {})
        if 0 in array.strides:
            check_no_overlap(self)
        storage = self._memory
        if storage is None:
            storage = self._storage
        if storage.version is None:
            storage.bump()
        try:
            (kernels.large if array.size >= kernels.large_from else kernels)[array.__class__](array, out=array)
        except (RuntimeWarning, FloatingPointError):
            pass  # overflow and the like, by the user's filters: the result is complete (see kernel_errors.explain)
        except Exception:
            return replace(self, call, (), {})  # which raises the right error
        storage.version += 1
        return self

    return method


def _binary(op, operator: bool):
    kernels, call = op.compiled.kernels, op.compiled.call

    def method(self, other):
        if (not SLOW or SLOW == AUTOCAST) and self.__class__ in PLAIN:
            array = self._array
            if other.__class__ in PLAIN:
                y = other._array
                direct = y.dtype is array.dtype and y.__class__ is array.__class__
                direct = direct and not (
                    (self._requires_grad and is_recorded(self)) or (other._requires_grad and is_recorded(other))
                )
            else:
                y = other
                kind = array.dtype
                direct = (
                    (
                        (kind is F32 or kind is F64)
                        and (y.__class__ is float or (y.__class__ is int and SHORT_MIN <= y <= SHORT_MAX))
                    )
                    or (kind is I64 and y.__class__ is int)
                )  # fmt: skip
                direct = direct and not (self._requires_grad and is_recorded(self))
            if direct:
                if 0 in array.strides:
                    check_no_overlap(self)
                storage = self._memory
                if storage is None:
                    storage = self._storage
                if storage.version is None:
                    storage.bump()
                if y is not array and other.__class__ in PLAIN and other._memory is storage:
                    check_sources(self, (other,))
                try:
                    (kernels.large if array.size >= kernels.large_from else kernels)[array.__class__](
                        array, y, out=array
                    )
                except (RuntimeWarning, FloatingPointError):
                    pass
                except Exception:
                    return replace(self, call, (other,), {})  # which raises the right error
                storage.version += 1
                return self
        if operator and other.__class__ not in OPERANDS and not is_operand(other):
            return NotImplemented
        return replace(self, call, (other,), {})

    return method


def make_composite(name: str, function, row=None):
    """The in-place method of a composite: computes out of place, then copies over the tensor.

    If an op with the tensor as its first input computed the result, its node becomes the tensor's history, as it does
    for the in-place method of a row. Otherwise the history is that of the copy.

    Called without keywords, it is that of `row`, if one is given.
    """
    direct = None if row is None else make(row)
    checked = guard.checked(function, f"{name}_")

    def method(self, *args, **kwargs):
        if direct is not None and not kwargs:
            return direct(self, *args)
        taken = asked(method, self, *args, **kwargs) if DISPATCH else NotImplemented
        if taken is not NotImplemented:
            return taken
        given = (*args, *kwargs.values())
        tracked = _tracked(self, given)
        if tracked and _recorded(self, given):
            check_writable(self)
        check_no_overlap(self)
        if name in WRITES_AT_INDICES or name in POINTWISE_TOO:
            check_sources(self, given, refuses=name in WRITES_AT_INDICES)
        before = self.clone() if tracked else self
        result = checked(before, *args, **kwargs)
        result = _kept(name, self, given, result)
        check_result(self, result)
        if result._edge is not None and not SLOW and _is_of_one_op(before, result, self):
            node = result._edge[0]
            node.edges = (edge_of(self), *node.edges[1:])
            self._storage.bump()
            self._storage.write(self._array, result._array)
            take_over(self, node, result)
            return self
        return self.copy_(result)

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"In-place version of `{name}`: writes the result into this tensor and returns it."
    method.checked = checked  # type: ignore[attr-defined]
    signatures.promise(method, lambda: signatures.in_place(inspect.signature(function)))
    return method


def _is_of_one_op(before: Tensor, result: Tensor, tensor: Tensor) -> bool:
    """Whether an op computed `result` from `before` as its first input, in the form that `tensor` has."""
    node = result._edge[0]  # type: ignore[index]
    plain = node.__class__ is Node and result._view is None and tensor.__class__ in PLAIN and result.__class__ in PLAIN
    return plain and node.edges[0] == before._edge and result._array.dtype is tensor._array.dtype


def asked(method, self: Tensor, *args, **kwargs) -> Any:
    """What the `TorchDispatchMode`s that are on, or classes among the arguments with a `__torch_dispatch__`, make of a
    method that no row has; `NotImplemented` if there are none."""
    others = DISPATCH and any([isinstance(a, Tensor) and a.__class__ not in PLAIN for a in (*args, *kwargs.values())])
    return DISPATCH[0](method, (self, *args), kwargs) if others or LOCAL.dispatch_modes else NotImplemented


def readable(x: Tensor) -> bool:
    """Whether NumPy may use the tensor's array: nothing is recorded, observed or overridden."""
    return x._array.__class__ is ndarray and x.__class__ in PLAIN and not is_recorded(x) and not SLOW


def writable(x: Tensor) -> bool:
    """Whether NumPy may write directly into the tensor's array."""
    return readable(x) and 0 not in x._array.strides


def _tracked(self, args) -> bool:
    """Whether the write must be recorded, or be seen by a transform."""
    return bool(SLOW and LOCAL.transforms) or _recorded(self, args)


def _recorded(self, args) -> bool:
    if not GRAD.enabled:
        return False
    if is_recorded(self):
        return True
    for a in args:  # noqa: SIM110 - a generator costs as much as a small write
        if isinstance(a, Tensor) and a._requires_grad and is_recorded(a):
            return True
    return False


def as_stored(self: Tensor, value: Any) -> Any:
    """What is written over a tensor for a value, if one of them is of a class that has its own layout of memory."""
    keeper = next((t for t in (self, value) if hasattr(t, "_to_store")), None)
    return value if keeper is None else keeper._to_store(self, value)


def replace(self: Tensor, function, args, kwargs, overlap: bool = False, apart: bool = True) -> Tensor:
    """Runs an op out of place and makes its result this tensor's value and history.

    With `overlap` an expanded tensor may be written to as well: all its elements get the same value. With `apart`,
    arguments that overlap with this tensor, and are not the same view, are refused.
    """
    # Some rows have no method of their name (`uniform_fill`): classes then see the row itself, as any other op.
    method = getattr(Tensor, f"{function.__name__}_", None) if DISPATCH else None
    if method is not None:
        taken = DISPATCH[0](method, (self, *args), kwargs)
        if taken is not NotImplemented:
            return taken
    if DISPATCH and LOCAL.dispatch_modes:  # a mode that sees the row would not see the write
        return self.copy_(function(self, *args, **kwargs))
    tracked = GRAD.enabled and _recorded(self, (*args, *kwargs.values()))
    if tracked:
        check_writable(self)
    if not overlap:
        check_no_overlap(self)
    if apart:
        check_sources(self, (*args, *kwargs.values()))
    array = self._array
    if SLOW:
        source, given, named = originals(self, args, kwargs) if LOCAL.transforms else (self, args, kwargs)
        with overwriting(source._storage):
            result = function(source, *given, **named)
    else:
        result = function(self, *args, **kwargs)
    if self.__class__ not in PLAIN or result.__class__ not in PLAIN:
        if not isinstance(result, Tensor):  # an argument of another class took the call over: it is asked to write
            types = tuple(dict.fromkeys(map(type, function_classes.overriding((*args, *kwargs.values())))))
            return function_classes.call(getattr(Tensor, f"{function.__name__}_"), types, (self, *args), kwargs)
        result = as_stored(self, result)
    edge = result._edge
    if edge is not None:
        keep_originals(edge[0], self)
    result = _kept(function.__name__, self, args, result)
    made = result._array
    if made.shape != array.shape or made.dtype is not array.dtype:
        check_result(self, result)
    edge = result._edge
    if edge is None and tracked:  # an op without a derivative (`eq_`) makes it a constant
        return self.copy_(result)
    self._storage.bump()
    self._storage.write(array, made)
    if SLOW and made is not array:
        for transform in reversed(LOCAL.transforms):
            transform.written(self, result)
    if edge is not None:
        take_over(self, edge[0], result)
    return self


def take_over(tensor: Tensor, node: Node, result: Tensor) -> None:
    """Makes the node of `result`, which was written over a tensor, the tensor's history."""
    array = tensor._array
    point_outputs(node, result, tensor)
    node.outputs = ((array.shape, array.dtype, array.__class__),)
    rebase(tensor, node)


def _kept(name: str, self: Tensor, args, result: Tensor) -> Tensor:
    """The result of an in-place op in the tensor's layout."""
    if self._array.__class__ is ndarray and result._array.__class__ is ndarray:
        return result
    return KEEP_LAYOUT(name, self, args, result)


def originals(self: Tensor, args, kwargs) -> tuple:
    """The operands of a write as the op is to see them: copies of what is overwritten, if a transform keeps it for its
    own derivatives. (What the op itself saved is copied afterwards: `keep_originals`.)"""
    if not GRAD.enabled or self.__class__ not in PLAIN:
        return self, args, kwargs
    tensors = [v for v in (self, *args, *kwargs.values()) if isinstance(v, Tensor)]
    if not any(transform.keeps_values(tensors) for transform in LOCAL.transforms):
        return self, args, kwargs
    memory, copies = self._storage.memory, {}

    def original(value):
        if value.__class__ not in PLAIN or value._storage.memory is not memory:
            return value
        if id(value) not in copies:
            copied = value._storage.copy(value._array)
            for transform in LOCAL.transforms:
                transform.copied(value._array, copied)
            copies[id(value)] = made = share(copied, None)
            edge = edge_of(value)
            if edge is not None:
                made._edge, made._requires_grad = edge, True
        return copies[id(value)]

    return original(self), [original(v) for v in args], {name: original(v) for name, v in kwargs.items()}


def keep_originals(node: Node, tensor: Tensor) -> None:
    """Copies what the node saved of a tensor that is about to be overwritten."""
    memory = tensor._storage.memory
    if any(s.__class__ is tuple and s[1].memory is memory for s in node.saved):
        saved = []
        for s in node.saved:
            if s.__class__ is tuple and s[1].memory is memory:
                copied = s[1].copy(s[0])
                for transform in LOCAL.transforms:
                    transform.copied(s[0], copied)
                s = (copied, s[1].of(copied), 0)
            saved.append(s)
        node.saved = tuple(saved)


def point_outputs(node: Node, result: Tensor, tensor: Tensor) -> None:
    """If the node saved its output, saves the tensor that now has it instead, so that later writes are noticed."""
    if result._array.dtype == tensor._array.dtype:
        node.saved = tuple(
            (tensor._array, tensor._storage, tensor._storage.version)
            if s.__class__ is tuple and s[1] is result._storage
            else s
            for s in node.saved
        )


def check_result(tensor: Tensor, result: Tensor) -> None:
    """Raises: RuntimeError unless `result` can be stored in `tensor` (shape and category of dtype)."""
    if result._array.shape != tensor._array.shape:
        raise RuntimeError(
            f"output with shape {list(tensor.shape)} doesn't match the broadcast shape {list(result.shape)}"
        )
    have, want = result.dtype, tensor.dtype
    if have.category > want.category:
        raise RuntimeError(
            f"result type {scalar_type(have)} can't be cast to the desired output type {scalar_type(want)}"
        )
