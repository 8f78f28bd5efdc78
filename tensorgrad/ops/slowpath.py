"""What the fast path skips: subclasses that override ops, observers (DEBUG, profiler), anomaly mode, hooks on saved
tensors, inference mode, and `out=`.

A call comes here when any of them is on anywhere; each checks whether it concerns this call.
"""

from __future__ import annotations

import threading
import time
import traceback
from typing import Any

from tensorgrad.autograd.anomaly import ANOMALY
from tensorgrad.autograd.graph import Node, Packed
from tensorgrad.autograd.modes import GRAD
from tensorgrad.dtypes import SPOKEN
from tensorgrad.ops.errors import warn
from tensorgrad.tensor import PLAIN, Tensor, share

OBSERVERS: list = []  # functions (op, args, result, start, seconds) called after every op


class _Local(threading.local):
    """What is on in this thread only."""

    autocast: Any = None  # the state of the innermost `torch.autocast` (amp/autocast_mode.py)
    saved_hooks: tuple = ()  # (pack, unpack) pairs, the innermost last
    overwritten: Any = None  # the storage that the running in-place op is about to write to
    inside_override = False


LOCAL = _Local()


def run(op, args: tuple, out=None):
    """One op with everything rare around it."""
    override = _override(args)
    if override is not None:
        return override(op, args, out)
    if LOCAL.autocast is not None and out is None and LOCAL.overwritten is None:  # what is there already has a dtype
        args = LOCAL.autocast.cast(op, args)
    if out is not None and GRAD.enabled and any(t.requires_grad for t in (*_tensors(args), *_tensors((out,)))):
        raise RuntimeError(
            f"{op.name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )
    start = time.perf_counter()
    result = op.plain(*args)
    seconds = time.perf_counter() - start
    results = result if isinstance(result, tuple) else (result,)
    if GRAD.inference:
        for tensor in results:
            if tensor._view is None:  # a view shares its base's counter
                tensor._storage.version = None
            else:
                tensor._view, tensor._requires_grad = None, False
    node = next((t._edge[0] for t in results if t._edge is not None), None)
    if node is not None and isinstance(node, Node):
        if ANOMALY.enabled:
            node.metadata["traceback_"] = traceback.format_stack()[:-2]
        if LOCAL.saved_hooks and node.saved:
            pack_saved(node)
    for observe in OBSERVERS:
        observe(op, args, result, start, seconds)
    if out is None:
        return result
    check_overlap(op.name, op.kind == "pointwise", out, _tensors(args))
    return write_out(op.name, out, result)


def _tensors(values):
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def pack_saved(node: Node) -> None:
    """Sends what `node` saved through the innermost pair of `saved_tensors_hooks`."""
    node.saved = tuple(packed(saved) for saved in node.saved)


def packed(saved):
    """What the innermost hook makes of one saved value; of a list, of each of its members."""
    if saved.__class__ is list:
        return [packed(s) for s in saved]
    if saved.__class__ is not tuple:
        return saved
    array, storage, _ = saved
    if storage is LOCAL.overwritten:  # the hook may keep what it is given
        array = storage.copy(array)
        storage = storage.of(array)
    pack, unpack = LOCAL.saved_hooks[-1]
    with callpath_quiet():
        return Packed(pack(share(array, storage)), unpack)


class overwriting:
    """Inside, an op runs whose result will be written over `storage`."""

    def __init__(self, storage):
        self.storage = storage

    def __enter__(self):
        self.before, LOCAL.overwritten = LOCAL.overwritten, self.storage

    def __exit__(self, *exception):
        LOCAL.overwritten = self.before


class callpath_quiet:
    """Suspends hooks on saved tensors while such a hook itself runs."""

    def __enter__(self):
        self.hooks, LOCAL.saved_hooks = LOCAL.saved_hooks, ()
        self.grad, GRAD.enabled = GRAD.enabled, False

    def __exit__(self, *exception):
        LOCAL.saved_hooks, GRAD.enabled = self.hooks, self.grad


# --- subclasses ----------------------------------------------------------------------------------------------------


def _override(args):
    """How to run a call with tensors of the user's own subclasses; None if there are none."""
    if LOCAL.inside_override:
        return None
    types = []
    for tensor in _tensors(args):
        cls = tensor.__class__
        if cls not in PLAIN and cls not in types:
            types.append(cls)
    if not types:
        return None
    types.sort(key=lambda c: -len(c.__mro__))  # the most derived first

    def call(op, args, out):
        kwargs = {} if out is None else {"out": out}
        for cls in types:
            result = cls.__torch_function__(op.call, tuple(types), args, kwargs)
            if result is not NotImplemented:
                return result
        raise TypeError(
            f"Multiple dispatch failed for 'torch.{op.name}'; all __torch_function__ handlers returned "
            f"NotImplemented: {', '.join(c.__name__ for c in types)}"
        )

    return call


class DisableTorchFunctionSubclass:
    """Inside, subclasses of Tensor are treated as plain tensors."""

    def __enter__(self):
        self.before, LOCAL.inside_override = LOCAL.inside_override, True

    def __exit__(self, *exception):
        LOCAL.inside_override = self.before


def default_torch_function(cls, func, types, args=(), kwargs=None):
    """What `Tensor.__torch_function__` does unless overridden: run the op, make the results `cls`."""
    op = getattr(func, "op", None)
    # Another library's function (PyTorch's own, given one of our tensors) would come back here without end.
    if not all(issubclass(cls, t) for t in types) or (op is None and LOCAL.inside_override):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        if op is not None and not kwargs:
            result = run(op, bind(op, args))
        else:
            result = func(*args, **(kwargs or {}))
    if isinstance(result, tuple):
        return type(result)(_as(cls, r) for r in result) if type(result) is tuple else result
    return _as(cls, result)


def bind(op, args: tuple) -> tuple:
    """Positional arguments completed with the op's defaults."""
    defaults = op.call.__defaults__ or ()
    missing = len([p for p in op.params if not p.keyword]) - len(args)
    args = (*args, *(defaults[len(defaults) - missing :] if missing > 0 else ()))
    keyword = [p.name for p in op.params if p.keyword]
    return (*args, *((op.call.__kwdefaults__ or {})[k] for k in keyword[len(args) - len(op.params) + len(keyword) :]))


def _as(cls, value):
    return value.as_subclass(cls) if isinstance(value, Tensor) and not isinstance(value, cls) else value


Tensor.__torch_function__ = classmethod(default_torch_function)  # type: ignore[attr-defined]


# --- out= --------------------------------------------------------------------------------------------------------


def write_out(name: str, out, result):
    """Stores an op's result in the tensor (or tuple of tensors) the caller gave.

    Raises: RuntimeError if the dtype does not allow it. A tensor of another shape is resized, with a warning unless
    it was empty.
    """
    if isinstance(result, tuple):
        if not isinstance(out, list | tuple) or len(out) != len(result):
            raise TypeError(f"{name}(): out must be a tuple of {len(result)} tensors")
        for target, value in zip(out, result, strict=True):
            _check_out(name, target, value)
        for target, value in zip(out, result, strict=True):
            _store(target, value)
        return type(result)(out) if not hasattr(result, "_fields") else type(result)(*out)
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    _check_out(name, out, result)
    _store(out, result)
    return out


# These read what they have written already, so PyTorch refuses to let them write over an input at all.
_READ_AFTER_WRITE = frozenset((
    "cat", "cross_product", "gather", "index", "index_select", "kthvalue_", "take",
))  # fmt: skip


def check_overlap(name: str, pointwise: bool, out, inputs) -> None:
    """Raises: RuntimeError if `out` shares memory with an input, unless it is that very view of it.

    Like PyTorch's, the check sees dense tensors only: interleaved ones are let through.
    """
    refuses = name in _READ_AFTER_WRITE
    if not pointwise and not refuses:
        return
    for target in _tensors((out,)):
        start, stop, _ = span = _span(target)
        for tensor in inputs:
            if target._storage is not tensor._storage:
                continue
            other_start, other_stop, _ = other = _span(tensor)
            if start < other_stop and other_start < stop and (refuses or span != other):
                raise RuntimeError(
                    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
                    "single memory location. Please clone() the tensor before performing the operation. "
                    f"({name}, out=)"
                )


def _span(tensor) -> tuple:
    """Where a dense tensor's elements lie in its storage, with the strides; nowhere for one with gaps."""
    array = tensor._array
    reach = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    extent = reach + array.dtype.itemsize if array.size else 0
    start = tensor.storage_offset() * array.dtype.itemsize
    dense = extent == array.size * array.dtype.itemsize
    return start, start + extent if dense else start, (array.shape, array.strides)


def spoken(dtype) -> str:
    """PyTorch's spoken name of a dtype in messages: `Float`, `Long`."""
    return SPOKEN[dtype.name]


def _check_out(name: str, out: Tensor, result: Tensor) -> None:
    have, want = result.dtype, out.dtype
    if have.category > want.category:
        if name in ("cat", "stack"):
            raise TypeError(f"torch.cat(): input types can't be cast to the desired output type {spoken(want)}")
        raise RuntimeError(
            f"result type {spoken(have)} can't be cast to the desired output type {spoken(want)} ({name}, out=)"
        )
    if out.device != result.device:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {result.device} and "
            f"{out.device}! ({name}, out=)"
        )


def _store(out: Tensor, result: Tensor) -> None:
    from tensorgrad.ops.inplace import check_no_overlap

    check_no_overlap(out)
    storage = out._storage
    if out._array.shape != result._array.shape:
        if out._array.size:
            warn(
                f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does "
                f"not match the required output shape {list(result.shape)}. This behavior is deprecated, and in a "
                "future PyTorch release outputs will not be resized unless they have zero elements. You can "
                "explicitly reuse an out tensor t by resizing it, inplace, to zero elements with t.resize_(0).",
            )
        if out._memory is not None:  # a view: the storage is that of others too
            from tensorgrad.ops.restride import resize_

            resize_(out, result._array.shape)
        else:
            storage.array = storage.empty(result._array.shape, out._array.dtype, storage.device)
            out._array = storage.array
    storage.write(out._array, result._array)
    storage.bump()
