"""The derivative of an operator, and its rule for batches: a function of autograd made for the call.

Functions of autograd take tensors as arguments; operators may take lists of them. So the tensors of a call are passed
one by one, and `_Call` knows where they belong.
"""

from __future__ import annotations

from typing import Any

import tensorgrad
from tensorgrad.autograd.function import Function
from tensorgrad.tensor import Tensor

__all__ = ["run"]


class _At:
    """The place of a tensor in nested arguments."""

    def __init__(self, index: int) -> None:
        self.index = index


def _take_out(value: Any, tensors: list) -> Any:
    """Replaces tensors in nested lists by their places."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return _At(len(tensors) - 1)
    if isinstance(value, list | tuple):
        return type(value)(_take_out(item, tensors) for item in value)
    return value


def _put_back(value: Any, tensors: Any) -> Any:
    if isinstance(value, _At):
        return tensors[value.index]
    if isinstance(value, list | tuple):
        return type(value)(_put_back(item, tensors) for item in value)
    return value


class _Call:
    """One call: the operator, and its arguments with places instead of tensors."""

    def __init__(self, operator: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.operator = operator
        self.tensors: list = []
        self.args = _take_out(args, self.tensors)
        self.kwargs = {name: _take_out(value, self.tensors) for name, value in kwargs.items()}
        self.outputs: Any = None

    def given(self, tensors: Any) -> tuple[list[Any], dict[str, Any]]:
        return _put_back(self.args, tensors), {name: _put_back(value, tensors) for name, value in self.kwargs.items()}


def run(operator: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Runs an operator, records it, and lets transforms see it."""
    call = _Call(operator, args, kwargs)
    made = _function(operator).apply(call, *call.tensors)
    return _put_back(call.outputs, made if isinstance(made, tuple) else (made,))


def _function(operator: Any) -> type[Function]:
    name = f"GeneratedBackwardFor_{operator.namespace}_{operator.overloadpacket.__name__}_{operator._overloadname}"
    return type(name, (_Generated,), {})


class _Generated(Function):
    @staticmethod
    def forward(call: _Call, *tensors: Tensor) -> Any:
        result = call.operator.compute(*call.given(tensors))
        outputs: list = []
        call.outputs = _take_out(result, outputs)
        return tuple(outputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        call, *tensors = inputs
        ctx.call = call
        if call.operator.setup_context is None:
            return
        args, kwargs = call.given(tensors)
        more = {"keyword_only_inputs": kwargs} if kwargs else {}
        result = _put_back(call.outputs, output if isinstance(output, tuple) else (output,))
        before = ctx.needs_input_grad
        ctx.needs_input_grad = _nested(call, before)
        try:
            call.operator.setup_context(ctx=ctx, inputs=tuple(args), output=result, **more)
        finally:
            ctx.needs_input_grad = before

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        call = ctx.call
        operator = call.operator
        if operator.backward is None:
            raise RuntimeError(
                f"Trying to backward through {operator} but no autograd formula was registered. Please use "
                "register_autograd to add one."
            )
        nested = _put_back(call.outputs, grads)
        given = tuple(nested) if operator._schema.several else (nested,)
        before = ctx.needs_input_grad
        ctx.needs_input_grad = _nested(call, before)
        try:
            returned = operator.backward(ctx, *given)
        finally:
            ctx.needs_input_grad = before
        returned = returned if isinstance(returned, tuple) else (returned,)
        found: list[Any] = [None] * len(call.tensors)
        for at, gradient in zip(call.args, returned, strict=False):
            _place(at, gradient, found, operator)
        extra = [g for g in returned[len(call.args) :] if g is not None]
        if extra:
            raise RuntimeError(
                f"function {ctx.name()} returned a gradient different than None at position {len(call.args) + 1}, but "
                "the corresponding forward input was not a Variable"
            )
        return None, *found

    @staticmethod
    def vmap(info: Any, in_dims: Any, call: _Call, *tensors: Tensor) -> Any:
        dims = in_dims[1:]
        args, kwargs = call.given(tensors)
        if call.operator.vmap is not None:
            given = call.operator._schema.without_defaults(args)
            places = tuple(_put_back(_or_none(call.args), dims))[: len(given)]
            result, out_dims = call.operator.vmap(info, places, *given, **kwargs)
            outputs: list = []
            call.outputs = _take_out(result, outputs)
            spread: list = []
            _spread(call.outputs, out_dims, spread)
            return tuple(outputs), tuple(spread)
        results: list[list] = []
        for i in range(info.batch_size):  # no rule: one sample after the other
            sample = [t if dim is None else t.select(dim, i) for t, dim in zip(tensors, dims, strict=True)]
            one: list = []
            call.outputs = _take_out(call.operator.run(*call.given(sample)), one)
            results.append(one)
        stacked = tuple(tensorgrad.stack(same) for same in zip(*results, strict=True))
        return stacked, tuple(0 for _ in stacked)


def _or_none(value: Any) -> Any:
    """Places of tensors, and None for everything else."""
    if isinstance(value, _At):
        return value
    return type(value)(map(_or_none, value)) if isinstance(value, list | tuple) and _has_tensors(value) else None


def _has_tensors(value: Any) -> bool:
    return isinstance(value, _At) or (isinstance(value, list | tuple) and any(map(_has_tensors, value)))


def _spread(outputs: Any, dims: Any, found: list) -> None:
    """One batch dimension for each tensor of the results, from dimensions nested like the results."""
    if isinstance(outputs, _At):
        found.append(dims)
    elif isinstance(outputs, list | tuple):
        several = dims if isinstance(dims, list | tuple) else [dims] * len(outputs)
        for output, dim in zip(outputs, several, strict=True):
            _spread(output, dim, found)


def _nested(call: _Call, needs: tuple) -> tuple:
    """`needs_input_grad` as nested as the arguments."""

    def of(value: Any) -> Any:
        if isinstance(value, _At):
            return needs[value.index + 1]
        return list(map(of, value)) if isinstance(value, list | tuple) and _has_tensors(value) else False

    return tuple(of(value) for value in call.args)


def _place(at: Any, gradient: Any, found: list[Any], operator: Any) -> None:
    """Puts the gradients of one argument where its tensors are. Raises: RuntimeError if there are not as many."""
    if isinstance(at, _At):
        found[at.index] = gradient
    elif _has_tensors(at) and gradient is not None:
        if not isinstance(gradient, list | tuple) or len(gradient) != len(at):
            raise RuntimeError(
                f"{operator}: the gradient of a list of {len(at)} tensors must be a list of {len(at)} gradients "
                f"or None, but got {type(gradient).__name__}"
            )
        for inner, each in zip(at, gradient, strict=True):
            _place(inner, each, found, operator)
