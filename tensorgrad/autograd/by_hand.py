"""A node that is called as a function: `y.grad_fn(gradient)` gives the gradients of its inputs."""

from __future__ import annotations

from tensorgrad.autograd.engine import keep_gradient
from tensorgrad.autograd.graph import AccumulateGrad, Node
from tensorgrad.autograd.modes import GRAD
from tensorgrad.tensor import Tensor


def call(node: Node, gradients: tuple):
    """The gradients of the inputs (one alone as itself), from those of the outputs; None is one that is not there.

    They are as the formulas give them: nothing has been summed to the shapes of the inputs.

    Raises: TypeError for another number of gradients than there are outputs, and for what is no tensor.
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
