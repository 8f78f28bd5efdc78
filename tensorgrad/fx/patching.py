"""What is different in a process while something is traced, and how it is put back.

Functions of torch in their modules, functions given to `wrap`, and those of `math` look for proxies among their
arguments; calls and attributes of modules ask the tracer of their thread. When the last trace ends, all is as before.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType
from typing import Any

from tensorgrad.fx.proxy import Proxy
from tensorgrad.fx.torch_functions import _BY_METHOD, as_recorded, functions, modules
from tensorgrad.nn.module import Module
from tensorgrad.system import forks
from tensorgrad.system.lazy_modules import loaded
from tensorgrad.system.per_thread import PerThread

_MISSING = object()


class _Local(PerThread):
    tracers: tuple = ()  # those that are at work in this thread, the innermost last


LOCAL = _Local()
# (id of a module's dict, name) -> that dict: what `wrap` was called for.
wrapped: dict[tuple[int, str], dict[str, Any]] = {}

_lock = forks.lock()
_active = 0
_undo: list[tuple[dict[str, Any], str, Any]] = []  # (a module's dict, name, what was there)
_patched: set[tuple[int, str]] = set()


def find_proxy(values: Any) -> Proxy | None:
    """Returns the first proxy in nested arguments."""
    if isinstance(values, Proxy):
        return values
    inside = values.values() if isinstance(values, dict) else values if isinstance(values, list | tuple) else ()
    if isinstance(values, slice):
        inside = (values.start, values.stop, values.step)
    for value in inside:
        found = find_proxy(value)
        if found is not None:
            return found
    return None


@functools.cache
def recording(function: Callable, by_method: bool = False) -> Callable:
    """The function of torch that is in the place of another while something is traced."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        proxy = find_proxy((args, kwargs))
        if proxy is None:
            return function(*args, **kwargs)
        if by_method:
            return getattr(args[0] if args else kwargs["input"], function.__name__)()
        args, kwargs = as_recorded(function, args, kwargs)
        tracer = proxy.tracer
        return tracer.create_proxy("call_function", function, args, kwargs, name=tracer.graph._target_to_str(function))

    call.__dict__["_records"] = function
    return call


def recording_wrapped(function: Callable) -> Callable:
    """The same for a function that was given to `wrap`, or of `math`."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        proxy = find_proxy((args, kwargs))
        if proxy is None:
            return function(*args, **kwargs)
        made = proxy.tracer.create_proxy("call_function", function, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    return call


def _replace(scope: dict[str, Any], name: str, value: Any) -> None:
    if (id(scope), name) not in _patched:
        _patched.add((id(scope), name))
        _undo.append((scope, name, scope.get(name, _MISSING)))
        scope[name] = value


def replace_in(scope: dict[str, Any], others: dict[Any, Callable]) -> None:
    """Replaces the functions of torch, and `others`, among the globals of code that is about to be traced."""
    known = functions()
    with _lock:
        for name, value in list(scope.items()):
            if isinstance(value, FunctionType) and value in known:
                _replace(scope, name, recording(value))
            elif isinstance(value, FunctionType | BuiltinFunctionType) and value in others:
                _replace(scope, name, others[value])


@functools.cache
def math_functions() -> dict[Any, Callable]:
    """The functions of `math`, each with the one that takes its place."""
    return {f: recording_wrapped(f) for n, f in vars(math).items() if callable(f) and not n.startswith("_")}


@contextmanager
def patched(tracer: Any, others: dict[Any, Callable], searched: tuple[Any, ...]) -> Iterator[None]:
    """A context in which a tracer sees what happens in its thread."""
    global _active
    with _lock:
        if _active == 0:
            _start()
        _active += 1
        for (_, name), scope in list(wrapped.items()):
            function = scope.get(name, _MISSING)
            if function is _MISSING:
                import builtins

                function = getattr(builtins, name)
            _replace(scope, name, recording_wrapped(function))
        for module in searched:
            for name, value in list(vars(module).items()):
                if callable(value) and _hashable(value) and value in others:
                    _replace(vars(module), name, others[value])
    before, LOCAL.tracers = LOCAL.tracers, (*LOCAL.tracers, tracer)
    try:
        yield
    finally:
        LOCAL.tracers = before
        with _lock:
            _active -= 1
            if _active == 0:
                _stop()


def _hashable(value: Any) -> bool:
    return isinstance(value, FunctionType | BuiltinFunctionType | type)


_plain_call: Any = None


def _start() -> None:
    global _plain_call
    for prefix, module in modules():
        scope = loaded(module)
        for name, value in list(scope.items()):
            if isinstance(value, FunctionType) and value in functions():
                _replace(scope, name, recording(value, prefix == "torch.nn.functional" and name in _BY_METHOD))
    _plain_call = Module.__call__

    def call(self: Module, *args: Any, **kwargs: Any) -> Any:
        if not LOCAL.tracers:
            return _plain_call(self, *args, **kwargs)
        return LOCAL.tracers[-1]._module_called(self, args, kwargs)

    def get(self: Module, name: str) -> Any:
        value = object.__getattribute__(self, name)
        return LOCAL.tracers[-1]._module_attribute(name, value) if LOCAL.tracers else value

    kind: Any = Module
    kind.__call__, kind.__getattribute__ = call, get


def plain_call(module: Module, *args: Any, **kwargs: Any) -> Any:
    """Calls a module as if nothing were traced, except what it calls itself."""
    return _plain_call(module, *args, **kwargs)


def _stop() -> None:
    kind: Any = Module
    kind.__call__ = _plain_call
    del kind.__getattribute__
    while _undo:
        scope, name, value = _undo.pop()
        if value is _MISSING:
            del scope[name]
        else:
            scope[name] = value
    _patched.clear()
