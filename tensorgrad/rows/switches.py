"""What is switched on and affects ops: grad mode, observers, autocast, hooks on saved tensors, inference mode.

An op's function tests `SLOW` once. While that list has an entry, in any thread, calls take the slow path
(`dispatch/slow_path.py`), which checks what applies to them. This file imports neither tensors nor ops, so any file
can use it.
"""

from __future__ import annotations

from typing import Any

from tensorgrad.system.per_thread import PerThread

SLOW: list[str] = []  # what is on, by name, once for each time that it was switched on
BESIDE_INFERENCE: list[str] = []  # the same without inference mode

# `SLOW` while nothing but `torch.autocast` is on, in one thread: in-place ops, which keep their dtype, ignore that.
AUTOCAST = ["autocast"]
INFERENCE_MODE = "inference_mode"

# (function, arguments, keywords) -> what modes and classes with a `__torch_dispatch__` make of a call, or
# `NotImplemented`: one function (library/dispatch_classes.py), from the definition of the first such class on, and
# once more for each `TorchDispatchMode` that is on in any thread.
DISPATCH: list = []

OBSERVERS: list = []  # functions (op, args, result, start, seconds) called after every op


class _Local(PerThread):
    """What is on in this thread only."""

    autocast: Any = None  # the state of the innermost `torch.autocast` (amp/autocast_mode.py)
    saved_hooks: tuple = ()  # (pack, unpack) pairs, the innermost last
    saved_hooks_refused: str | None = None  # why hooks may not be added (`disable_saved_tensors_hooks`)
    overwritten: Any = None  # the storage that the current in-place op is about to write to
    computing_tangents = False  # do ops compute tangents of the current one? Then it is not they that write
    differentiating = 0  # how many functions that `torch.func` differentiates are running, one inside the other
    inside_override = False
    function_modes: tuple = ()  # the `TorchFunctionMode`s of enclosing `with` blocks, the innermost last
    dispatch_modes: tuple = ()  # the `TorchDispatchMode`s, likewise
    transforms: tuple = ()  # what interprets ops in a way of its own (transforms/transform.py), the innermost last


LOCAL = _Local()


class differentiating:
    """A context in which a function runs that `torch.func` differentiates."""

    def __enter__(self) -> None:
        LOCAL.differentiating += 1

    def __exit__(self, *exception: Any) -> None:
        LOCAL.differentiating -= 1


class _GradMode(PerThread):
    enabled = True  # are ops recorded in this thread?
    inference = False  # are results marked as never usable in autograd?
    view_replay = False  # are all steps to a view replayed, whatever their number?


GRAD = _GradMode()


def switch(name: str, on: bool) -> None:
    """Makes all calls take the slow path, or ends that.

    >>> from tensorgrad.rows.switches import SLOW, switch
    >>> switch("a test", True); SLOW
    ['a test']
    >>> switch("a test", False); SLOW
    []
    """
    for names in (SLOW,) if name == INFERENCE_MODE else (SLOW, BESIDE_INFERENCE):
        if on:
            names.append(name)
        else:
            names.remove(name)


def observe(observer: Any, name: str) -> None:
    """Calls `observer(op, args, result, start, seconds)` after every op, in all threads."""
    OBSERVERS.append(observer)
    switch(name, True)


def unobserve(observer: Any, name: str) -> None:
    """Undoes `observe`."""
    OBSERVERS.remove(observer)
    switch(name, False)
