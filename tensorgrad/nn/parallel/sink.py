"""The outputs of a model, passed on through one node, so that its backward pass is told when it begins."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["through_sink"]


class _Sink(torch.autograd.Function):
    """Passes tensors on.

    In the backward pass, outputs on which the loss does not depend get no gradient; but the nodes behind them are
    visited, so that their parameters count as ready, too.
    """

    @staticmethod
    def forward(ctx: Any, reducer: Any, *tensors: Any) -> Any:
        ctx.set_materialize_grads(False)
        ctx.reducer = reducer
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.reducer.begin_pass()
        return (None, *grads)


def through_sink(reducer: Any, output: Any) -> Any:
    """The same output, whose tensors belong to one node.

    Args:
        reducer: its `begin_pass` is called at the beginning of the backward pass.
        output: tensors in nested lists, tuples and dicts.
    """
    leaves, structure = tree_flatten(output)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if places:
        for place, tensor in zip(places, _Sink.apply(reducer, *(leaves[i] for i in places))):
            leaves[place] = tensor
    return tree_unflatten(leaves, structure)
