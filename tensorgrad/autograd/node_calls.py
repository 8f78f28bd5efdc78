"""Calling a node as a function: `y.grad_fn(gradient)` returns the gradients of its inputs."""

from __future__ import annotations

from tensorgrad.autograd.engine import keep_gradient
from tensorgrad.autograd.graph import AccumulateGrad, Node
from tensorgrad.autograd.modes import GRAD
from tensorgrad.tensor import Tensor


def call(node: Node, gradients: tuple):
    """Returns the gradients of the inputs (a single one without a tuple), given those of the outputs; None if absent.

    They are the raw results of the formulas, not summed to the shapes of the inputs.

    Raises: TypeError if there is not one gradient per output, or if one is not a tensor.
    """
    if len(gradients) != len(node.outputs):
        raise TypeError(f"expected {len(node.outputs)} arguments, got {len(gradients)} instead")
    for i, gradient in enumerate(gradients):
        if gradient is not None and not isinstance(gradient, Tensor):
            raise TypeError(f"argument {i} is not a Variable")
    if isinstance(node, AccumulateGrad):
        if gradients[0] is not None:
            keep_gradient(node.variable, gradients[0], GRAD.enabled)
        return ()
    if all(g is None for g in gradients):
        results: list = [None] * len(node.edges)
    else:
        results = list(node.apply(list(gradients)))
    return tuple(results) if len(results) != 1 else results[0]
