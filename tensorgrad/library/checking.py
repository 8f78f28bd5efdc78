"""Tests that an operator does what its schema, fake kernel and derivative say: `torch.library.opcheck`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorgrad
from tensorgrad import testing
from tensorgrad.library import definitions, operators
from tensorgrad.tensor import Tensor, tensors_in

__all__ = ["OpCheckError", "opcheck"]


class OpCheckError(Exception):
    """An operator does something else than it says."""


DEFAULT_TESTS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: Any = DEFAULT_TESTS,
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, str]:
    """Tests an operator with some arguments. (Whether the derivative is right, `torch.autograd.gradcheck` tests.)

    Args:
        op: the operator: what `custom_op` returned, `torch.ops.ns.name.overload`, or its name.
        args: the arguments; tensors that require grad have the derivative tested.
        kwargs: the arguments by keyword.
        test_utils: the tests to run: that arguments are written to as the schema says ("test_schema"), that the
            derivative is registered where autograd looks ("test_autograd_registration"), that the fake kernel returns
            what the real one does ("test_faketensor"), and that two calls agree and backward runs
            ("test_aot_dispatch_dynamic").
        raise_exception: raises the first failure instead of returning it.
        atol, rtol: how much the results of two calls may differ.

    Returns:
        For each test "SUCCESS", or the exception.

    Raises:
        OpCheckError: If a test fails.

    >>> torch.library.define("docs10::f", "(Tensor x) -> Tensor")
    >>> torch.library.impl("docs10::f", "cpu", lambda x: x.clone())
    >>> torch.library.register_fake("docs10::f", lambda x: torch.empty_like(x))
    <function ...
    >>> torch.library.opcheck("docs10::f", (torch.ones(2),))["test_faketensor"]
    'SUCCESS'
    """
    operator = operators.find(definitions._named(op))
    kwargs = kwargs or {}
    wanted = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    unknown = set(wanted) - set(_TESTS)
    if unknown:
        raise ValueError(f"test_utils must be a subset of {set(_TESTS)}, got {set(wanted)}")
    found: dict[str, Any] = {}
    for name in wanted:
        try:
            _TESTS[name](operator, args, kwargs, {"atol": atol, "rtol": rtol})
            found[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(
                    f"opcheck(op, ...): {name} failed with {error} (scroll up for stack trace)"
                ) from error
            found[name] = error
    return found


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, list | tuple):
        return type(value)(map(_copied, value))
    return value


def _copies(args: tuple, kwargs: dict[str, Any]) -> tuple[list, dict]:
    return list(map(_copied, args)), {name: _copied(value) for name, value in kwargs.items()}


def _test_schema(operator: Any, args: tuple, kwargs: dict[str, Any], close: dict) -> None:
    """Arguments are written to exactly if the schema says so; results share no memory with them unless it says so."""
    given, named = operator._schema.bind(*_copies(args, kwargs))
    values = dict(zip((a.name for a in operator._schema.arguments), (*given, *named.values()), strict=True))
    before = {name: [t.detach().clone() for t in tensors_in((value,))] for name, value in values.items()}
    with tensorgrad.no_grad():
        result = operator(*given, **named)
    for argument in operator._schema.arguments:
        now = list(tensors_in((values[argument.name],)))
        same = all(_equal(a, b) for a, b in zip(before[argument.name], now, strict=True))
        if not same and not argument.is_write:
            raise RuntimeError(f"Argument {argument.name} is not defined as mutable but was mutated")
        if argument.alias is None:
            memory = {id(t._storage) for t in now}
            if any(id(t._storage) in memory for t in tensors_in((result,))):
                raise RuntimeError(f"Argument {argument.name} is not defined to alias output but was aliasing")


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype is b.dtype and tensorgrad.allclose(a, b.detach(), 0.0, 0.0, equal_nan=True)


def _test_autograd(operator: Any, args: tuple, kwargs: dict[str, Any], close: dict) -> None:
    """A derivative is registered where it applies: not beneath a kernel of "Autograd" that hides it."""
    if operator.backward is not None and any(key.startswith("Autograd") for key in operator.kernels):
        raise RuntimeError(f"{operator}: has both a derivative and a kernel for Autograd; the derivative is never used")


def _test_fake(operator: Any, args: tuple, kwargs: dict[str, Any], close: dict) -> None:
    """The fake kernel returns tensors of the shapes, dtypes and strides that the real one returns."""
    given, named = _copies(args, kwargs)
    with tensorgrad.no_grad():
        real = list(tensors_in((operator(*given, **named),)))

    def to_meta(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach().to("meta")
        return type(value)(map(to_meta, value)) if isinstance(value, list | tuple) else value

    fake = list(
        tensors_in((operator(*map(to_meta, args), **{name: to_meta(value) for name, value in kwargs.items()}),))
    )
    prefix = (
        f"When comparing the output of {operator} on FakeTensor and concrete Tensors, found mismatched tensor metadata"
    )
    if len(real) != len(fake):
        raise AssertionError(f"{prefix}: {len(real)} and {len(fake)} results")
    for a, b in zip(real, fake, strict=True):
        for what in ("shape", "dtype"):
            if getattr(a, what) != getattr(b, what):
                raise AssertionError(
                    f"{prefix}: {what.title()}s {getattr(a, what)} and {getattr(b, what)} are not equal!"
                )
        if a.stride() != b.stride():
            raise AssertionError(f"{prefix}: Strides {a.stride()} and {b.stride()} are not equal!")


def _test_again(operator: Any, args: tuple, kwargs: dict[str, Any], close: dict) -> None:
    """Two calls agree, and so do their gradients."""
    runs = []
    for _ in range(2):
        given, named = _copies(args, kwargs)
        results = list(tensors_in((operator(*given, **named),)))
        inputs = [t for t in tensors_in((*given, *named.values())) if t.requires_grad]
        tracked = [t for t in results if t.requires_grad]
        gradients: Any = ()
        if inputs and tracked:
            ones = [tensorgrad.ones_like(t) for t in tracked]
            gradients = tensorgrad.autograd.grad(tracked, inputs, ones, allow_unused=True)
        runs.append([*results, *(g for g in gradients if g is not None)])
    tolerances = {} if close["atol"] is None and close["rtol"] is None else close
    for a, b in zip(*runs, strict=True):
        testing.assert_close(a.detach(), b.detach(), equal_nan=True, **tolerances)


_TESTS: dict[str, Callable[..., None]] = {
    "test_schema": _test_schema,
    "test_autograd_registration": _test_autograd,
    "test_faketensor": _test_fake,
    "test_aot_dispatch_static": _test_again,
    "test_aot_dispatch_dynamic": _test_again,
}
