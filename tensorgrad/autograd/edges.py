"""Graph positions that users can name, and pass to `backward` and `grad` instead of tensors."""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorgrad.autograd.graph import AccumulateGrad, Node, as_node
from tensorgrad.autograd.views import edge_of
from tensorgrad.tensor import Tensor


class GradientEdge(NamedTuple):
    """Output `output_nr` of `node`: the graph position at which the gradient of a tensor is computed.

    It keeps the graph alive, but not the tensor's values.

    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> edge = torch.autograd.graph.get_gradient_edge(x * x)
    >>> edge.node.name(), edge.output_nr
    ('MulBackward0', 0)
    """

    node: Node
    output_nr: int
    ownership_token: Node | None = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Returns the graph position at which the gradient of `tensor` is computed.

    Raises:
        RuntimeError: If the tensor does not require grad.

    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> y = x * x
    >>> edge = torch.autograd.graph.get_gradient_edge(y)
    >>> torch.autograd.grad(y * 5, edge)
    (tensor(5.),)
    """
    edge = edge_of(tensor)
    if edge is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(as_node(edge[0]), edge[1])


def edge_at(position: Tensor | GradientEdge) -> Any:
    """The graph's internal edge (see `edge_of`) of a tensor or a `GradientEdge`."""
    if isinstance(position, Tensor):
        return edge_of(position)
    if not isinstance(position, GradientEdge):
        raise RuntimeError(f"all inputs have to be Tensors or GradientEdges, but got {type(position).__name__}")
    node = position.node
    return (node.variable, 0) if isinstance(node, AccumulateGrad) else (node, position.output_nr)


def shape_and_type(position: Tensor | GradientEdge) -> tuple[tuple[int, ...], Any, type]:
    """The shape, element type and class of the array whose gradient is computed at a position."""
    if isinstance(position, GradientEdge):
        return position.node.outputs[position.output_nr]
    array = position._array
    return array.shape, array.dtype, array.__class__
