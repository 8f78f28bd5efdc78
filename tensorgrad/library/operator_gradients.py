"""Autograd above `__torch_dispatch__`: what a class computes is one step, whose derivative is that of the op.

The class computes without recording. The result gets a node with the formulas of the op's row, which are ops on
tensors: in a backward pass, too, the class is given the operators that they run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorgrad
from tensorgrad._ops import ops
from tensorgrad.autograd import gradients
from tensorgrad.autograd.graph import Node, next_sequence_nr
from tensorgrad.autograd.modes import is_grad_enabled, no_grad
from tensorgrad.autograd.saved_tensors import SavedSubclass, save, unpack
from tensorgrad.autograd.views import edge_of
from tensorgrad.dispatch.generate import attribute_of
from tensorgrad.rows.signature import LIST
from tensorgrad.storage.wrapper_subclass import NoMemory
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.transform import arrays_of


class ByFormulas(Node):
    """A step whose gradients are computed by formulas on tensors, never on arrays."""

    __slots__ = ()

    def apply(self, grads: list) -> Any:
        """Returns the gradients of the inputs, given those of the outputs."""
        return by_operators(self, grads)


def by_operators(node: Node, grads: list) -> Any:
    """Returns the gradients of a node's inputs by formulas, or by the operator that PyTorch has for them."""
    one = ONE_OPERATOR.get(node.op.name)
    return node.op.compiled.on_tensors(node, grads) if one is None else one(node, grads[0])


def _convolution(node: Any, g: Any) -> Any:
    """The gradients of a convolution, by PyTorch's operator for all three."""
    op = node.op
    values = dict(zip(op.kept, node.args, strict=True))
    edges = dict(zip(op.wrt, node.edges, strict=True))
    for name, saved in zip(op.saved, node.saved, strict=True):
        values[name] = None if saved is None else unpack(node, saved, edges.get(name))
    if values.get("input") is None:  # not saved, since the weight needs no gradient: its shape is all that matters
        values["input"] = g.new_zeros(()).expand(values["input_shape"])
    if values.get("weight") is None:
        values["weight"] = g.new_zeros(()).expand(values["weight_shape"])
    transposed = "transpose" in op.name
    dims = values["weight"].ndim - 2
    bias = [values["weight"].shape[1] * values["groups"] if transposed else values["weight"].shape[0]]
    needs = [edge is not None for edge in (*node.edges, None)[:3]]
    settings = [
        list(values[name]) or [default] * dims for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))
    ]
    extra = list(values.get("output_padding") or [0] * dims)
    operator = ops.aten.convolution_backward.default
    return operator(g, values["input"], values["weight"], bias, *settings, transposed, extra, values["groups"], needs)


ONE_OPERATOR = {"conv": _convolution, "conv_transpose": _convolution}


class Result(SavedSubclass):
    """A result of a class's own that its own step saved: without a graph, as otherwise the two would be a cycle."""

    __slots__ = ()

    def unpack(self, edge: Any) -> Tensor:
        """Returns the tensor, in its place in the graph if a graph is recorded."""
        tensor = self.tensor
        if edge is not None and is_grad_enabled():
            tensor = tensor.detach()
            tensor._edge, tensor._requires_grad = edge, True
        return tensor


def recorded(row: Any, arguments: list[Any], compute: Callable[[], Any]) -> Any:
    """Returns what `compute` returns, recorded as the result of an op.

    Args:
        row: the op's row.
        arguments: its arguments, in the row's order.
        compute: calls the classes.
    """
    values = dict(zip([p.name for p in row.params], _prepared(row, arguments), strict=True))
    wanted = [p for p in row.params if p.is_tensor and p.name in row.wrt]
    edges = {p.name: [_edge(t) for t in (values[p.name] if p.kind is LIST else [values[p.name]])] for p in wanted}
    with no_grad():
        made = compute()
    results = list(made) if isinstance(made, tuple | list) else [made]
    flat = [edge for p in wanted for edge in edges[p.name]]
    integers = results[0]._array.dtype.kind in "biu"
    if not any(flat) or integers:
        return made
    node = object.__new__(ByFormulas)
    node.op, node.edges, node.hooks, node.sequence_nr, node.saved = row, tuple(flat), None, next_sequence_nr(), ()
    results = [tensor.detach() if any(tensor is t for t in arguments) else tensor for tensor in results]
    node.outputs = tuple((t._array.shape, t._array.dtype, t._array.__class__) for t in results)
    kept = dict(zip(row.outputs, results, strict=False))
    node.saved = tuple(
        None if name in row.cache
        else _saved(node, kept[name], True) if name in kept
        else _saved(node, values[name], False) if any(any(edges[user]) for user in users)
        else None
        for name, users in row.saved.items()
    )  # fmt: skip
    node.args = tuple(_kept_value(values, name) for name in row.kept)
    several = len(results) if row.kind == "views" else row.differentiable_outputs
    for nr, tensor in enumerate(results[:several]):
        tensor._edge, tensor._requires_grad = (node, nr), True
    return type(made)(results) if isinstance(made, tuple | list) else results[0]


def _prepared(row: Any, arguments: list[Any]) -> list[Any]:
    """The arguments as formulas know them: the plain ones normalized, as the row prepares them for its kernel."""
    if row.prepare is None:
        return arguments
    ready = list(row.prepare(*arrays_of(tuple(arguments))))
    return [given if p.is_tensor else made for p, given, made in zip(row.params, arguments, ready, strict=True)]


def _edge(value: Any) -> Any:
    return edge_of(value) if isinstance(value, Tensor) else None


def _saved(node: Node, value: Any, is_result: bool) -> Any:
    """What a node keeps of an argument or a result: a class keeps the values of its tensors itself."""
    if isinstance(value, list | tuple):
        return [_saved(node, v, is_result) for v in value]
    if not isinstance(value, Tensor) or value._array.__class__ is not NoMemory:
        return save(value)
    return Result(value.detach(), node) if is_result else value


def _kept_value(values: dict[str, Any], name: str) -> Any:
    """A plain argument, or the shape or dtype of a tensor, by the name that formulas have for it."""
    if name in values:
        return values[name]
    tensor, _, what = name.rpartition("_")
    value = values[tensor]
    return [attribute_of(v, what) for v in value] if isinstance(value, list | tuple) else attribute_of(value, what)


def tracked(tensors: Any) -> bool:
    """Returns whether what is computed of tensors is recorded."""
    return is_grad_enabled() and any(t.requires_grad for t in tensors)


gradients.ONES_LIKE = lambda tensor: tensorgrad.ones_like(tensor.detach())
