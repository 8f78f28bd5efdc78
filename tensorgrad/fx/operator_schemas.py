"""The arguments of a call by the names that its function has for them."""

from __future__ import annotations

import inspect
from ast import literal_eval
from collections.abc import Callable
from typing import Any, NamedTuple

from tensorgrad.errors import MISSING

__all__ = ["ArgsKwargsPair", "normalize_function", "normalize_module"]


class ArgsKwargsPair(NamedTuple):
    """Positional and named arguments."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def normalize_function(
    target: Callable,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    arg_types: tuple[Any, ...] | None = None,
    kwarg_types: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """Returns the arguments of a call with the defaults of those that were left out; None if they do not fit.

    Args:
        target: The function.
        args: Its positional arguments.
        kwargs: Its named arguments.
        arg_types: Accepted for compatibility, as is `kwarg_types`: a function has one signature here.
        normalize_to_only_use_kwargs: Names all arguments; by default, those after the positional ones.

    >>> from tensorgrad.fx.operator_schemas import normalize_function
    >>> normalize_function(torch.softmax, (1, 2), normalize_to_only_use_kwargs=True).kwargs
    {'input': 1, 'dim': 2, 'dtype': None}
    """
    return _normalized(_signature(target), args, kwargs or {}, normalize_to_only_use_kwargs)


def normalize_module(
    root: Any,
    target: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The same for the submodule `target` of a module.

    Raises: RuntimeError if there is none.
    """
    try:
        module = root.get_submodule(target)
    except AttributeError as error:
        raise RuntimeError(f"Tried to normalize arguments to {target} but it is not a submodule") from error
    return _normalized(inspect.signature(module.forward), args, kwargs or {}, normalize_to_only_use_kwargs)


def _signature(target: Callable) -> inspect.Signature:
    """The signature of a function; that of an op's row, whose function may not have been compiled yet."""
    op = getattr(target, "op", None)
    if op is None:
        return inspect.signature(inspect.unwrap(target))
    return inspect.Signature([
        inspect.Parameter(
            p.name,
            inspect.Parameter.KEYWORD_ONLY if p.keyword else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=literal_eval(p.default) if p.default else inspect.Parameter.empty,
        )
        for p in op.params
    ])  # fmt: skip


# Left out unless they are given: NumPy's names, which only this library takes, and `out`, which only some overloads of
# PyTorch's have.
_SELDOM = ("axis", "keepdims", "out")


def _normalized(
    signature: inspect.Signature, args: tuple, kwargs: dict[str, Any], only_kwargs: bool
) -> ArgsKwargsPair | None:
    parameters = [
        p for p in signature.parameters.values()
        if not (p.kind is p.VAR_POSITIONAL and p.name == "old")  # what calls that were written long ago pass
        and not (p.kind is p.KEYWORD_ONLY and p.name in _SELDOM and p.name not in kwargs)
    ]  # fmt: skip
    if any(p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in parameters):
        return None
    try:
        bound = signature.replace(parameters=parameters).bind(*args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    values = {name: value for name, value in bound.arguments.items() if value is not MISSING}
    if len(values) < len(bound.arguments):  # a required argument that may also be given under NumPy's name
        return None
    if only_kwargs:
        return ArgsKwargsPair((), values)
    names = list(values)
    return ArgsKwargsPair(
        tuple(values[name] for name in names[: len(args)]), {name: values[name] for name in names[len(args) :]}
    )
