"""What the fast path skips: modes and subclasses that override ops, transforms (forward mode), observers (DEBUG,
profiler), anomaly mode, hooks on saved tensors, inference mode, and `out=`.

Calls take this path if any of these is on, in any thread; each step checks whether it applies to the call.
"""

from __future__ import annotations

import time
from types import FunctionType

from tensorgrad.autograd.anomaly import ANOMALY
from tensorgrad.autograd.graph import Node
from tensorgrad.autograd.modes import GRAD
from tensorgrad.autograd.packing import pack_saved
from tensorgrad.autograd.refused_views import INFERENCE
from tensorgrad.dispatch.out import refuse_grad, store_out
from tensorgrad.dispatch.out_dtype import in_dtype_of_out
from tensorgrad.dtypes import dtype
from tensorgrad.overriding import function_classes, function_modes
from tensorgrad.overriding.torch_function import composite_asks
from tensorgrad.rows.switches import AUTOCAST, BESIDE_INFERENCE, DISPATCH, LOCAL, OBSERVERS, SLOW
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import PLAIN, Tensor, tensors_in


def run(op, args: tuple, out=None, is_operator: bool = False):
    """Runs one op with everything that is switched on. `is_operator`: the call was `a + b`, not `torch.add(a, b)`."""
    if out is None and (not BESIDE_INFERENCE or SLOW == AUTOCAST) and _ordinary(args):  # nothing else can apply
        return unrecorded(op, args) if GRAD.inference else op.compiled.plain(*_cast(op, args))
    declined = False
    if LOCAL.function_modes:
        result = function_modes.call_for_op(op, args, out, is_operator)
        if result is not NotImplemented:
            return result
        declined = True
    if not (LOCAL.inside_override or _ordinary(args)):
        override = _override(args)
        if override is not None:
            return override(op, args, out, is_operator)
    if DISPATCH and (LOCAL.dispatch_modes or not _ordinary(args)):
        positional, named = function_modes.as_written(op, args)
        result = DISPATCH[0](op.compiled.call, positional, named if out is None else {**named, "out": out})
        if result is not NotImplemented:
            return result
    if declined:
        raise function_modes.refused(function_modes.users_function(op, is_operator))
    transforms = LOCAL.transforms
    if out is None:
        args = _cast(op, args)
    else:  # before anything is computed
        if op.wrt or op.twin:
            refuse_grad(op.name, (args, out))
        args = in_dtype_of_out(op, args, out)
        if transforms:
            transforms[-1].refuse_out(op, (args, out))
    result = transforms[-1].run(op, args) if transforms else execute(op, args)
    if LOCAL.saved_hooks:
        node = _node_of(result)
        if node is not None and node.saved:
            pack_saved(node)
    if out is None:
        return result
    return store_out(op.name, out, result, tensors_in(args), pointwise=op.kind == "pointwise")


def _cast(op, args: tuple) -> tuple:
    """The arguments as `autocast` wants them; an in-place op keeps the dtype."""
    state = LOCAL.autocast
    if state is None or op.name not in state.listed or LOCAL.overwritten is not None:
        return args
    return state.cast(op, args)


def execute(op, args: tuple):
    """Runs one op, after everything that may replace it or its arguments: records it, and tells observers."""
    start = time.perf_counter() if OBSERVERS else None
    result = unrecorded(op, args) if GRAD.inference else op.compiled.plain(*args)
    if ANOMALY.enabled:
        remember(result)
    if start is not None:
        seconds = time.perf_counter() - start
        for observe in OBSERVERS:
            observe(op, args, result, start, seconds)
    return result


def remember(result) -> None:
    """Remembers where an op was called, for the error that anomaly mode reports."""
    node = _node_of(result)
    if node is not None:
        from tensorgrad.autograd import tracebacks

        tracebacks.remember(node)


def _node_of(result) -> Node | None:
    """The node that an op has recorded, if it has."""
    results = result if isinstance(result, tuple) else (result,)
    node = next((t._edge[0] for t in results if t._edge is not None), None)
    return node if isinstance(node, Node) else None


def unrecorded(op, args: tuple):
    """Runs one op in inference mode. Its results never take part in autograd, except views of other tensors."""
    if GRAD.enabled:
        GRAD.enabled = False
        try:
            result = op.compiled.plain(*args)
        finally:
            GRAD.enabled = True
    else:
        result = op.compiled.plain(*args)
    for tensor in result if isinstance(result, tuple) else (result,):
        if tensor._view is None:  # a view shares its base's counter
            if tensor._memory is None:
                array = tensor._array
                tensor._memory = STORAGES[array.__class__].of(array, None)
            else:
                tensor._memory.version = None
        elif tensor._storage.version is None:
            tensor._view, tensor._requires_grad = None, False
        elif tensor._view[3] is False:
            tensor._view = (*tensor._view[:3], INFERENCE)
    return result


class overwriting:
    """A context in which an op runs whose result will be written over `storage`."""

    def __init__(self, storage):
        self.storage = storage

    def __enter__(self):
        self.before = LOCAL.overwritten, LOCAL.computing_tangents
        LOCAL.overwritten, LOCAL.computing_tangents = self.storage, False

    def __exit__(self, *exception):
        LOCAL.overwritten, LOCAL.computing_tangents = self.before


# --- subclasses ----------------------------------------------------------------------------------------------------


_ORDINARY = {int, float, bool, complex, str, type(None), slice, type(...), FunctionType, dtype, *PLAIN}


def _ordinary(values) -> bool:
    """Whether values are plain tensors, numbers and the like: none of them can override a call."""
    for value in values:
        cls = value.__class__
        if cls not in _ORDINARY and cls not in PLAIN:
            if not isinstance(value, list | tuple):
                return False
            if not _ORDINARY.issuperset(map(type, value)) and not _ordinary(value):  # most often numbers or tensors
                return False
    return True


def _override(args):
    """The function that runs a call with tensors of subclasses that may override it; None if there are none."""
    types = function_classes.in_order(function_classes.classes_of(args))
    if not types:
        return None
    if not all(issubclass(cls, Tensor) for cls in types) and composite_asks(2):
        raise TypeError(f"{args} of {types}: the composite that was called asks them")

    def call(op, args, out, is_operator):
        if any(issubclass(cls, Tensor) and cls._sees_rows for cls in types):
            args, kwargs = function_modes.as_written(op, args)
            kwargs |= {} if out is None else {"out": out}
            return function_classes.call(op.compiled.call, types, args, kwargs)
        args, kwargs = function_modes.as_called(op, args, out, is_operator)
        return function_classes.call(function_modes.users_function(op, is_operator), types, args, kwargs)

    return call


class DisableTorchFunctionSubclass:
    """A context in which subclasses of Tensor are treated as plain tensors.

    >>> with torch.DisableTorchFunctionSubclass():
    ...     torch.ones(2) + 1
    tensor([2., 2.])
    """

    def __enter__(self):
        self.before, LOCAL.inside_override = LOCAL.inside_override, True

    def __exit__(self, *exception):
        LOCAL.inside_override = self.before


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """A context without modes, in which subclasses of Tensor are treated as plain tensors.

    >>> with torch.DisableTorchFunction():
    ...     torch.ones(2) + 1
    tensor([2., 2.])
    """

    def __enter__(self):
        super().__enter__()
        self.modes, LOCAL.function_modes = LOCAL.function_modes, ()

    def __exit__(self, *exception):
        super().__exit__(*exception)
        LOCAL.function_modes = self.modes


def default_torch_function(cls, func, types, args=(), kwargs=None):
    """`Tensor.__torch_function__` unless overridden: runs the op and converts the results to `cls`."""
    op = getattr(func, "op", None)
    # Another library's function (PyTorch's own, given one of our tensors) would come back here without end.
    if not all(issubclass(cls, t) for t in types) or (op is None and LOCAL.inside_override):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        dispatched = DISPATCH[0](func, args, kwargs or {}) if DISPATCH and op is None else NotImplemented
        result = func(*args, **(kwargs or {})) if dispatched is NotImplemented else dispatched
    return result if func in (Tensor.grad.__get__, Tensor._base.__get__) else _as(cls, result)


def in_class_of(input: Tensor, made: Tensor) -> Tensor:
    """What a factory (`input.new_zeros(2)`) made, in the class of `input` if that overrides nothing."""
    cls = input.__class__
    if cls in PLAIN or LOCAL.inside_override or isinstance(made, cls):
        return made
    own = getattr(cls.__torch_function__, "__func__", None)  # type: ignore[attr-defined]
    return _as(cls, made) if own is default_torch_function else made


def bind(op, args: tuple) -> tuple:
    """Positional arguments, completed with the op's defaults."""
    defaults = op.compiled.call.__defaults__ or ()
    missing = len([p for p in op.params if not p.keyword]) - len(args)
    args = (*args, *(defaults[len(defaults) - missing :] if missing > 0 else ()))
    keyword = [p.name for p in op.params if p.keyword]
    return (
        *args,
        *((op.compiled.call.__kwdefaults__ or {})[k] for k in keyword[len(args) - len(op.params) + len(keyword) :]),
    )


def _as(cls, value):
    if isinstance(value, Tensor):
        return value if isinstance(value, cls) else Tensor.as_subclass(value, cls)
    if isinstance(value, tuple | list) and next(tensors_in(value), None) is not None:
        return type(value)(_as(cls, item) for item in value)
    return value


Tensor.__torch_function__ = classmethod(default_torch_function)  # type: ignore[attr-defined]
