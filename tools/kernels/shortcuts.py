"""Makes Numba work less: what it would find out again is remembered, and what kernels do not need is left out.

These functions replace Numba's while kernels are compiled (internals.py). None changes what is compiled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


def _remembering_types(get_call_type: Callable) -> Callable:
    """Keeps the types of calls of built-in functions, which Numba infers anew each time it looks at a statement."""
    known: dict[Any, Any] = {}

    def get_call_type_once(self: Any, context: Any, args: Any, kws: Any) -> Any:
        try:
            key = (self, args, tuple(sorted(kws.items())))
            found = known.get(key)
        except TypeError:
            return get_call_type(self, context, args, kws)
        if found is None:
            found = get_call_type(self, context, args, kws)
            if self._impl_keys.get(found.args) == self.typing_key:  # not compiled by the options of one caller
                known[key] = found
        return found

    return get_call_type_once


def _remembering_sizes(get_abi_sizeof: Callable) -> Callable:
    """Keeps the sizes of LLVM types, for each of which Numba makes a module."""
    known: dict[str, int] = {}

    def get_abi_sizeof_once(self: Any, kind: Any) -> int:
        name = str(kind)
        if "%" in name:  # it names another type
            return get_abi_sizeof(self, kind)
        if name not in known:
            known[name] = get_abi_sizeof(self, kind)
        return known[name]

    return get_abi_sizeof_once


def _same_options(compare: Callable) -> Callable:
    def equal(self: Any, other: Any) -> Any:
        return True if self is other or self._values == getattr(other, "_values", None) else compare(self, other)

    return equal


def _without_lifetimes(run: Callable) -> Callable:
    """Leaves out what only generators and loops to be lifted out of a function need: which variables live where."""
    from numba.core import postproc, transforms

    def run_shortly(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
        if emit_dels or self.func_ir.is_generator:
            run(self, emit_dels, extend_lifetimes)
            return
        self.func_ir.blocks = transforms.canonicalize_cfg(self.func_ir.blocks)
        self.func_ir.variable_lifetime = postproc.VariableLifetime(self.func_ir.blocks)
        self.func_ir.generator_info = None

    return run_shortly


def _variables(nodes: Any) -> Callable:
    """Returns a function that lists the variables inside a value, as Numba's, which is called a million times."""
    plain = {str, int, float, bool, type(None), nodes.Loc}

    def collect(value: Any, found: list) -> None:
        kind = value.__class__
        if kind is nodes.Var:
            found.append(value)
        elif kind is dict:
            for inside in value.values():
                if inside.__class__ not in plain:
                    collect(inside, found)
        elif isinstance(value, list | tuple):
            for inside in value:
                collect(inside, found)
        elif isinstance(value, nodes.Inst):
            found += value.list_vars()

    def _rec_list_vars(self: Any, value: Any) -> list:
        found: list[Any] = []
        collect(value, found)
        return found

    return _rec_list_vars


def _remembered(signature: Callable) -> Callable:
    """Keeps the signatures of Python functions, which never change."""
    known: dict[Any, Any] = {}

    def pysignature(function: Any) -> Any:
        if function not in known:
            known[function] = signature(function)
        return known[function]

    return pysignature


def _attributes(resolve: Callable) -> Callable:
    """Keeps the types of what modules hold (`np.float32`)."""
    from numba import types

    known: dict[Any, Any] = {}

    def resolve_getattr(self: Any, kind: Any, attribute: str) -> Any:
        if type(kind) is not types.Module:
            return resolve(self, kind, attribute)
        found = known.get((self, kind, attribute))
        if found is None:
            found = known[self, kind, attribute] = resolve(self, kind, attribute)
        return found

    return resolve_getattr


class _Silent:
    """A log of which nothing is kept."""

    def debug(self, *given: Any) -> None:
        pass


def _unheard(kind: Any, data: Any = None, exc_details: Any = None) -> None:
    """Tells nobody of an event: Numba reports each use of a lock."""


def replacements() -> list[tuple[Any, str, Any]]:
    """Returns the functions that replace Numba's: class or module, name, function."""
    from numba.core import base, byteflow, errors, event, interpreter, postproc, ssa, targetconfig, typing, utils
    from numba.core import ir as nodes
    from numba.core.types import functions

    silent, warner = _Silent(), getattr(errors, "WarningsFixer")  # noqa: B009 (its types are not known)
    return [
        (functions.BaseFunction, "get_call_type", _remembering_types(functions.BaseFunction.get_call_type)),
        (base.BaseContext, "get_abi_sizeof", _remembering_sizes(base.BaseContext.get_abi_sizeof)),
        (targetconfig.TargetConfig, "__eq__", _same_options(targetconfig.TargetConfig.__eq__)),
        (targetconfig.TargetConfig, "__hash__", lambda self: hash(type(self))),
        (postproc.PostProcessor, "run", _without_lifetimes(postproc.PostProcessor.run)),
        (nodes.Inst, "_rec_list_vars", _variables(nodes)),
        (utils, "pysignature", _remembered(utils.pysignature)),
        (typing.BaseContext, "resolve_getattr", _attributes(typing.BaseContext.resolve_getattr)),
        (warner, "catch_warnings", lambda self, *given, **options: contextlib.nullcontext()),
        (event, "start_event", _unheard), (event, "end_event", _unheard),
        *((module, "_logger", silent) for module in (byteflow, interpreter, ssa) if hasattr(module, "_logger")),
    ]  # fmt: skip
