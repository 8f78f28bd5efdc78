"""An element-wise update as a chain of recorded tensor ops, so that gradients flow through an optimizer's step.

The update functions are written with an array module's in-place operations. Here they get `RECORDED` instead of
the module, and slots instead of arrays: writing to a slot stores a new tensor in it, which autograd can track, instead
of overwriting a tensor that it still needs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import tensorgrad as torch
from tensorgrad.optim.settings import Settings
from tensorgrad.optim.state import begin


class Slot:
    """Contains a tensor, and replaces an array."""

    __slots__ = ("value",)

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __setitem__(self, key: Any, other: Slot) -> None:
        """Implements `slot[...] = other` as a copy without history, as PyTorch initializes a momentum buffer."""
        self.value = other.value.detach().clone()


def _value(argument: Any) -> Any:
    return argument.value if isinstance(argument, Slot) else argument


def _into_last(function: Callable) -> Callable:
    """Adds the array module's calling convention: the last argument, or `out`, gets the result and is returned."""

    def call(*arguments: Any, out: Any = None) -> Slot:
        given = arguments
        if out is None:
            given, out = arguments[:-1], arguments[-1]
        out.value = function(*map(_value, given))
        return out

    return call


def _copyto(slot: Slot, value: Any, where: Any = None) -> None:
    value = _value(value)
    slot.value = value if where is None else torch.where(where, value, slot.value)


# The functions of an array module that the updates use.
RECORDED = SimpleNamespace(
    add=_into_last(operator.add),
    subtract=_into_last(operator.sub),
    multiply=_into_last(operator.mul),
    divide=_into_last(operator.truediv),
    maximum=_into_last(torch.maximum),
    negative=_into_last(torch.neg),
    absolute=_into_last(torch.abs),
    sqrt=_into_last(torch.sqrt),
    sign=_into_last(torch.sign),
    clip=_into_last(torch.clamp),
    equal=lambda a, b: _value(a) == _value(b),
    less=lambda a, b: _value(a) < _value(b),
    greater=lambda a, b: _value(a) > _value(b),
    copyto=_copyto,
)


def step_group(optimizer: Any, group: dict[str, Any], settings: Settings) -> None:
    """Moves a group's parameters with tensor ops, which autograd records.

    Raises: RuntimeError if a parameter is a leaf that requires a gradient: that of its old value would be inaccessible.
    """
    starts, names = settings.starts, settings.names
    with torch.set_grad_enabled(optimizer.defaults["differentiable"]):
        for p in group["params"]:
            if p.grad is None:
                continue
            state: dict[str, Any] = {}
            t: Any = None
            if starts:
                state = optimizer.state[p]
                first = state.get(names[0]) is None
                if first:
                    begin(state, p, starts)
                t = optimizer._count(state, group) if "step" in starts else first
            tensors = [p.grad, *(state[name] if name else None for name in names)]
            # Settings are not converted: a tensor remains one, so that it can get a gradient.
            _move(optimizer, p, tensors, optimizer._coefficients_at(group, t))


def _move(optimizer: Any, p: Any, tensors: list, n: Any) -> None:
    """Runs the update on a parameter, its gradient and its state (`tensors`, or `None`)."""
    split = optimizer._complex_as_pairs and p.is_complex()
    grad, *kept = tensors
    # Copies, because autograd may need the values that are about to be replaced.
    before = [None if t is None else t.clone() for t in (p, *kept)]
    x, g, *state = (
        None if t is None else Slot(torch.view_as_real(t) if split else t) for t in (before[0], grad, *before[1:])
    )
    first = [None if slot is None else slot.value for slot in (x, *state)]
    optimizer._update(RECORDED, x, g, *state, n, *(Slot() for _ in range(optimizer._temporaries)))
    for tensor, slot, old in zip((p, *kept), (x, *state), first, strict=True):
        if slot is not None and slot.value is not old:
            tensor.copy_(torch.view_as_complex(slot.value) if split else slot.value)
