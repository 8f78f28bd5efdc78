"""`tensor.render()`: the method, which loads viz/ when it is called."""

from __future__ import annotations

from tensorgrad.dispatch.kinds import composite
from tensorgrad.tensor import Tensor


@composite("method")
def render(input: Tensor, direction: str = "forward", *, module=None, names=None, fold=None):
    """A picture of the computation graph that leads to a tensor, which notebooks show; `.save("graph.svg")` writes it.

    Args:
        direction: "forward" for tensors and the ops that computed them, "backward" for the nodes that gradients pass.
        module: the model that computed it, for the names of its parameters and for folding by module.
        names: names for other tensors, as in `{"x": x}`.
        fold: how many levels of modules are told apart; 0 shows every op.

    `tensorgrad.viz.render` says more.

    >>> import tensorgrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> (w.exp() + 1).sum().render(names={"w": w})
    <GraphPicture: Graph of sum: 3 ops, 1 leaf, 8 B saved>
    """
    from tensorgrad.viz.drawing import render as draw

    return draw(input, direction, module=module, names=names, fold=fold)
