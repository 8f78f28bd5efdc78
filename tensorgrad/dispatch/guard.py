"""Composites as users call them: PyTorch's error if an argument is not a tensor; `axis` and `keepdims` as other names
of `dim` and `keepdim`; Python's `float` as a dtype; a `layout` that is checked.

A composite of `ops/` is an ordinary Python function: given a list, it would complain that the list lacks an attribute.
So `torch.name` is a guard: a function with the same parameters (templates.py) that passes its arguments on and checks
tensors only when an exception comes back. That costs about 25 ns a call. Parameters that are a bool, an int, a float, a
number or a str by their annotations are checked before, since a wrong one might go unnoticed (a few ns each). The
library itself calls the composite, and so do methods that have no `dim`.
"""

# ruff: noqa: F401 (the generated functions use what is imported here)

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from functools import lru_cache
from numbers import Number
from types import FunctionType
from typing import Any

import numpy as np

from tensorgrad.dispatch import templates
from tensorgrad.dispatch.autocast_ops import AS_ONE
from tensorgrad.dispatch.codegen import function_of, take_over
from tensorgrad.dtypes import as_dtype, dtype
from tensorgrad.errors import (
    MISSING,
    NUMPY_NAMES,
    as_float,
    as_integer,
    as_number,
    check_flag,
    check_of_64_bits,
    check_string,
    hide_callers,
    missing,
    of_64_bits,
    typename,
)
from tensorgrad.layouts import check_strided, strided
from tensorgrad.overriding.caller_arguments import is_in_python, position_given, running
from tensorgrad.overriding.function_classes import as_called, overriding
from tensorgrad.overriding.function_classes import call as call_other
from tensorgrad.overriding.function_modes import COMPOSITES
from tensorgrad.overriding.torch_function import NUMBERS_AND_NAMES, ask
from tensorgrad.rows.switches import LOCAL
from tensorgrad.tensor import ON_OVERRIDING_CLASS, PLAIN, Tensor

DTYPE = dtype  # the texts have a parameter of that name
# What an annotation allows, and what PyTorch's message calls it.
_SINGLE: dict[str, tuple[tuple, str]] = {
    "Tensor": ((Tensor,), "Tensor"),
    "Tensor | None": ((Tensor, None.__class__), "Tensor"),
    "Tensor | number": ((Tensor, Number), "Tensor"),
    "dtype": ((dtype,), "torch.dtype"),
}
# The same for what is not a tensor: whether a value is of that type. (A tensor of one element is a number, too; of a
# complex one each function that takes a `number` says what it minds.)
_PLAIN: dict[str, tuple[Any, str]] = {
    "bool": (lambda v: isinstance(v, bool | np.bool_), "bool"),
    "int": (lambda v: hasattr(v, "__index__") and not isinstance(v, bool), "int"),
    "float": (lambda v: isinstance(v, Number | Tensor) and not isinstance(v, complex), "float"),
    "number": (lambda v: isinstance(v, Number | Tensor), "Number"),
    "sizes": (lambda v: not isinstance(v, int | float | str), "tuple of ints"),
    "str": (lambda v: isinstance(v, str), "str"),
    "out": (lambda v: isinstance(v, Tensor | list | tuple), "Tensor"),
}
# Flags and numbers that PyTorch's functions in Python pass on; all but a few of these functions, which compute by them.
_PASSED_ON = frozenset((
    "align_corners", "align_to_window", "alpha", "beta", "blank", "ceil_mode", "delta", "dim", "eps", "full",
    "ignore_index", "include_last_offset", "indexing", "keepdim", "label_smoothing", "log_input", "log_target", "lower",
    "margin", "max_norm", "max_val", "min_val", "momentum", "negative_slope", "normalized", "num_groups",
    "onesided", "p", "padding_idx", "return_complex", "return_counts", "return_inverse", "scale_grad_by_freq",
    "sorted", "sparse", "swap", "threshold", "training", "upper", "use_input_stats", "value", "zero_infinity",
))  # fmt: skip
_COMPUTES_ITSELF = frozenset((
    "gaussian_nll_loss", "gumbel_softmax", "local_response_norm", "multi_margin_loss", "normalize",
    "triplet_margin_with_distance_loss",
))  # fmt: skip
_COMPUTES_BY = {  # or by some of them only
    "embedding": frozenset(("padding_idx",)), "interpolate": frozenset(("align_corners",)),
}  # fmt: skip
_FLAG_OR_NONE = "bool | None"
_SIZES = frozenset(("size", "shape", "split_sizes", "pad"))  # PyTorch's names of them
_LISTS = frozenset({"list[Tensor]", "Sequence[Tensor]", "tuple[Tensor, ...]"})
_KNOWN = _LISTS | set(_SINGLE)
_CHECKED = _LISTS | {"Tensor", "bool", "int", "float", "number", "str"}
# What parameters without an annotation are by PyTorch's names for them.
_NAMES = {
    "self": "Tensor", "input": "Tensor | number", "tensor1": "Tensor | number", "tensor2": "Tensor | number",
    "elements": "Tensor | number", "test_elements": "Tensor | number", "tensors": "Sequence[Tensor]",
    "matrices": "Sequence[Tensor]",
}  # fmt: skip


# Functions with guards although their parameters do not say that they are tensors.
_ALSO = frozenset((
    "einsum", "tensordot", "lstm", "gru", "rnn_tanh", "rnn_relu",
))  # fmt: skip
# What `intercept` was given, and the guards that are compiled, with their functions.
HANDLER: Any = None
ASKS = False  # do guards look for modes and for classes that override functions?
_compiled: list[tuple[Any, Any, bool]] = []


# Written in Python in PyTorch, too: these know only their own names.
_NO_NUMPY_NAMES = frozenset(f"tensorgrad.{name}" for name in ("norm", "split", "unique", "unique_consecutive"))
_BARE_METHODS = frozenset((
    "backward", "copy_", "norm", "requires_grad_", "set_", "size", "split", "stride", "to", "type", "unflatten",
    "unique", "unique_consecutive", "view", "where",
))  # fmt: skip


def guarded(functions: dict[str, Any], module: str, numpy_names: bool = False) -> dict[str, Any]:
    """The same functions, those that take tensors or a dtype and were not made from a row with their guards.

    `module` is where users find them: a function is pickled as a name there. `numpy_names`: `axis` and `keepdims` are
    other names of `dim` and `keepdim`.

    >>> torch.squeeze([1.0])
    Traceback (most recent call last):
        ...
    TypeError: squeeze(): argument 'input' (position 1) must be Tensor, not list
    """
    return {
        name: _guard(function, name, module, numpy_names and f"{module}.{name}" not in _NO_NUMPY_NAMES)
        if _takes(function, "dtype", "layout") or _takes_tensors(function) or _is_also(function, name)
        else function
        for name, function in functions.items()
    }


def intercept(handler: Any) -> None:
    """Shows every call of a guarded composite to `handler(guard, *args, **kwargs)` first.

    What that returns is the result, unless it is `NotImplemented`. Until this is called, guards have no trace of it.
    """
    global HANDLER
    HANDLER = handler
    _compile_again()


def ask_first(_cls: type | None = None) -> None:
    """From now on guards ask modes and classes that override functions, before anything runs."""
    global ASKS
    if not ASKS:
        ASKS = True
        _compile_again()


def _compile_again() -> None:
    for guard, function, numpy_names in _compiled:
        _compile(guard, function, numpy_names)


def _is_also(function, name: str) -> bool:
    return name in _ALSO and isinstance(function, FunctionType) and not hasattr(function, "op")


def guard_methods() -> None:
    """Lets the methods that were not made from a row take `axis` for `dim`, and `keepdims` for `keepdim`; those that
    autocast treats as one op also get a guard.

    >>> torch.tensor([[1.0, 2.0], [3.0, 4.0]]).argmax(axis=1)
    tensor([1, 1])
    """
    for name, function in list(vars(Tensor).items()):
        if isinstance(function, FunctionType) and not hasattr(function, "op") and name not in _BARE_METHODS:
            code = function.__code__
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            numpy_names = not NUMPY_NAMES.keys().isdisjoint(names)
            given = numpy_names or name in AS_ONE or _takes(function, "dtype") or _takes_others(function)
            if not name.startswith("_") and given:
                setattr(Tensor, name, _guard(function, name, function.__module__, numpy_names))


def _takes(function, *names: str) -> bool:
    """Whether an ordinary function, not made from a row, has one of these parameters."""
    if not isinstance(function, FunctionType) or hasattr(function, "op"):
        return False
    code = function.__code__
    return not set(names).isdisjoint(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _takes_others(function) -> bool:
    """Whether a method has another parameter that is a tensor, a number, a str or a bool.

    (Importing asks all methods: a signature would be slow.)
    """
    code = function.__code__
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    annotations = function.__annotations__
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    flags = any(d is True or d is False for d in defaults)
    return flags or any(annotations.get(n, "").partition(" | ")[0] in _CHECKED for n in names)


def _takes_tensors(function) -> bool:
    """Whether an ordinary function says that some of its arguments are tensors."""
    if not isinstance(function, FunctionType) or hasattr(function, "op"):
        return False
    code, annotations = function.__code__, function.__annotations__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)]
    return any((annotations.get(n) or _NAMES.get(n)) in _KNOWN for n in names)


def _guard(FUNCTION, name: str, module: str, numpy_names: bool):
    def guard(*args, **kwargs):  # compiled when it is first called, since there are hundreds
        return _become(SELF, FUNCTION, numpy_names)(*args, **kwargs)

    SELF = guard  # what `update_wrapper` does, in a third of its time
    guard.__name__ = guard.__qualname__ = name
    guard.__module__, guard.__doc__, guard.__annotations__ = module, FUNCTION.__doc__, FUNCTION.__annotations__
    vars(guard).update(vars(FUNCTION), __wrapped__=FUNCTION)
    if module == "tensorgrad" or (module == "tensorgrad.nn.functional" and name not in COMPOSITES):
        COMPOSITES[name] = guard
    return guard


def _become(guard, function, numpy_names: bool):
    """Gives a guard the parameters of its function; returns it."""
    _compiled.append((guard, function, numpy_names))
    return _compile(guard, function, numpy_names)


def _compile(guard, function, numpy_names: bool):
    cells = {"FUNCTION": function, "SELF": guard, "numpy_names": numpy_names}
    made = function_of(text(guard, function, numpy_names), cells, globals(), guard.__name__)
    parameters = _parameters(function)
    late, renamed = _late(parameters, numpy_names), _renamed(parameters, numpy_names)
    made.__defaults__ = (*(MISSING for _ in late), *(function.__defaults__ or ()))
    made.__kwdefaults__ = {**(function.__kwdefaults__ or {}), **{NUMPY_NAMES[name]: None for name in renamed}}
    return take_over(guard, made)


@lru_cache(1)  # it is needed several times in a row
def _parameters(function) -> Mapping[str, inspect.Parameter]:
    """The parameters that a function has, whatever signature it shows."""
    if "__signature__" in vars(function):
        bare = FunctionType(function.__code__, {}, closure=function.__closure__)
        bare.__defaults__, bare.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        bare.__annotations__ = function.__annotations__
        function = bare
    return inspect.signature(function).parameters


def _renamed(parameters: Mapping[str, inspect.Parameter], numpy_names: bool) -> list[str]:
    """Which of a function's parameters also go by NumPy's names."""
    return [name for name in parameters if numpy_names and name in NUMPY_NAMES]


def _late(parameters: Mapping[str, inspect.Parameter], numpy_names: bool) -> list[str]:
    """The required parameters that the function's guard must check itself."""
    positional = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    return templates.late({p.name: p.default is p.empty for p in positional}) if numpy_names else []


def checked(COMPOSITE, name: str):
    """The function behind an in-place method, which writes what it returns: its arguments are checked as a guard checks
    them. (Modes and classes that override functions are asked elsewhere.)"""

    def guard(*args, **kwargs):  # compiled when it is first called
        return take_over(SELF, _checking(SELF, COMPOSITE))(*args, **kwargs)

    SELF: Any = guard
    guard.__name__ = guard.__qualname__ = name
    guard.__module__ = "tensorgrad"
    return SELF


def _checking(guard, function):
    cells = {"COMPOSITE": function, "SELF": guard}
    made = function_of(templates.checked(*_parts(guard, function, False)), cells, globals(), guard.__name__)
    made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return made


def text(guard, function, numpy_names: bool) -> str:
    """The text of the guard of a function (without defaults, which `_become` sets)."""
    parts = _parts(guard, function, numpy_names)
    return templates.guard(*parts, function.__name__ in AS_ONE, HANDLER is not None, ASKS)


def _parts(guard, function, numpy_names: bool) -> tuple[list[str], list[str], list[str], list[str], list[str]]:
    """What both kinds of guards consist of: parameters, arguments, what is given otherwise, checks, and the names of
    the tensors."""
    parameters, arguments, star = [], [], False
    for p in _parameters(function).values():
        stars = "*" * (p.kind is p.VAR_POSITIONAL) + "**" * (p.kind is p.VAR_KEYWORD)
        if p.kind is p.KEYWORD_ONLY and not star:
            parameters.append("*")
        star = star or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        parameters.append(stars + p.name)
        arguments.append(f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else stars + p.name)
    renamed = _renamed(_parameters(function), numpy_names)
    if renamed:
        at = len(parameters) - parameters[-1].startswith("**")
        parameters[at:at] = [*([] if star else ["*"]), *(NUMPY_NAMES[name] for name in renamed)]
    given = templates.numpy_names(renamed, _late(_parameters(function), numpy_names), "SELF.__name__")
    if _takes(function, "dtype"):
        given.append(templates.dtype_of("dtype", "SELF.__name__"))
    in_python = is_in_python(guard)
    passed_on = _passed_on(guard)
    annotations = function.__annotations__
    checks = [
        templates.flag(name, annotations.get(name) == _FLAG_OR_NONE)
        for name in _flags(function)
        if not in_python or name in passed_on
    ]
    checks += [] if in_python else [templates.plain_value(name, "number", False) for name in _factors(function)]
    checks += [templates.plain_value(*p) for p in _plain_values(function) if not in_python or p[0] in passed_on]
    if _takes(function, "layout") and function.__annotations__.get("layout") != "AnyLayout":
        given.append(templates.fill(templates.CHECK_LAYOUT))
    return parameters, arguments, given, checks, [name for _, name, _ in _tensors(function)]


def _passed_on(guard) -> frozenset[str]:
    """The flags and numbers that PyTorch's function passes on, if it is written in Python."""
    name = guard.__name__
    return frozenset() if name in _COMPUTES_ITSELF else _PASSED_ON - _COMPUTES_BY.get(name, frozenset())


def _flags(function) -> list[str]:
    """The parameters that are bools; but for `inplace`, of which PyTorch only asks whether it is true."""
    return [
        p.name
        for p in _parameters(function).values()
        if p.name != "inplace"
        and (
            p.annotation in ("bool", _FLAG_OR_NONE)
            or (p.annotation is p.empty and (p.default is True or p.default is False))
        )
    ]


def _factors(function) -> list[str]:
    """The parameters that are numbers to multiply by: their names say it."""
    return [p.name for p in _parameters(function).values() if _is_factor(p)]


def _plain_values(function) -> list[tuple[str, str, bool]]:
    """Name, type and whether it may be None of each parameter that is an int, a float, a number or a str."""
    found = []
    for p in _parameters(function).values():
        annotation, _, none = ("" if p.annotation is p.empty else str(p.annotation)).partition(" | ")
        if annotation in templates.PLAIN_VALUES and none in ("", "None"):
            found.append((p.name, annotation, none == "None"))
    return found


def _is_factor(p: inspect.Parameter) -> bool:
    return p.name in ("alpha", "beta") and p.kind is p.KEYWORD_ONLY and p.default.__class__ in (int, float)


def _tensors(function) -> list[tuple[int, str, str]]:
    """Position, name and annotation of the parameters that are tensors or lists of them."""
    found = []
    for i, p in enumerate(_parameters(function).values()):
        annotation = _NAMES.get(p.name, "") if p.annotation is p.empty else str(p.annotation)
        if annotation in _KNOWN:
            found.append((i + 1, p.name, "Sequence[Tensor]" if p.kind is p.VAR_POSITIONAL else annotation))
    return found


def _public_name(guard) -> str:
    """PyTorch's own name of a function: `fft_fft` for `torch.fft.fft`."""
    room = guard.__module__.removeprefix("tensorgrad.")
    return f"{room}_{guard.__name__}" if room in ("fft", "linalg", "special") else guard.__name__


def _argument(guard, name: str, position: int) -> str:
    """How messages name an argument: with the function, and its position unless the call has named it.

    Args:
        position: Counted from 1; 0 if it can only be named.
    """
    frame = running([guard.__code__])
    given = None if frame is None or not position else position_given(frame, name)
    if given is None and position:
        method = vars(Tensor).get(guard.__name__)
        given = max(position - (guard in (method, getattr(method, "checked", None))), 1)
    where = f" (position {given})" if given else ""
    return f"{_public_name(guard)}(): argument '{'input' if name == 'self' else name}'{where}"


def check_tensors(function, guard, tensors: tuple, values: tuple) -> tuple[type, ...]:
    """Returns the classes of values that are not tensors and override functions, if there are any.

    Raises: TypeError if one of the `tensors` is not a tensor (or a list of them).
    """
    __tracebackhide__ = True
    types = tuple({value.__class__: None for value in overriding(values)})
    if types:
        return types
    hide_callers(sys._getframe(1))
    error = sys.exc_info()[1]
    for (position, name, annotation), value in zip(_tensors(function), tensors, strict=True):
        kind = typename(value)
        if annotation in _SINGLE:
            allowed, wanted = _SINGLE[annotation]
            if isinstance(error, AttributeError) and Number in allowed:  # a number, where one of two is to be a tensor
                allowed = (Tensor,)
            if not isinstance(value, allowed):
                raise TypeError(f"{_argument(guard, name, position)} must be {wanted}, not {kind}") from None
        elif not isinstance(value, list | tuple):
            raise TypeError(f"{_argument(guard, name, position)} must be tuple of Tensors, not {kind}") from None
        else:
            for i, item in enumerate(value):
                if not isinstance(item, Tensor):
                    raise TypeError(
                        f"expected Tensor as element {i} in argument {position - 1}, but got {type(item).__name__} "
                        f"({_public_name(guard)}())"
                    ) from None
    _check_plain(function, guard, values, by_annotation=isinstance(error, TypeError))
    return ()


def _check_plain(function, guard, values: tuple, by_annotation: bool) -> None:
    """Raises: TypeError if one of the values is not of the type that its annotation or, unless `by_annotation`, the
    name of its parameter says. (A function that has raised a TypeError of its own knows better what it takes.)"""
    __tracebackhide__ = True
    parameters = _parameters(function).values()
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return
    passed_on = _passed_on(guard) if is_in_python(guard) else None  # of these alone the type is known
    for position, (p, value) in enumerate(zip(parameters, values, strict=True), 1):
        name, _, none = str(p.annotation).partition(" | ")
        if p.annotation is p.empty and (p.default is True or p.default is False):
            name = "bool"
        elif _is_factor(p):
            name = "number"
        elif by_annotation:
            pass
        elif p.annotation is p.empty and p.name in _SIZES:
            name = "sizes"
        elif p.name == "out":
            name, none = "out", "None"
        if passed_on is not None and p.name not in passed_on:
            continue
        if name not in _PLAIN or none not in ("", "None") or (value is None and (none or p.default is None)):
            continue
        fits, wanted = _PLAIN[name]
        of_many = name != "out" and isinstance(value, Tensor) and value._array.ndim > 0
        if of_many or not fits(value):
            where = _argument(guard, p.name, 0 if p.kind is p.KEYWORD_ONLY else position)
            raise TypeError(f"{where} must be {wanted}, not {typename(value)}") from None
        if value.__class__ is int and name == "int":
            check_of_64_bits(value, p.name)
        elif value.__class__ is int and name == "number" and not of_64_bits(value):
            raise OverflowError(f"{_public_name(guard)}(): argument '{p.name}' is beyond 64 bits: {value}") from None


ON_OVERRIDING_CLASS.append(ask_first)
