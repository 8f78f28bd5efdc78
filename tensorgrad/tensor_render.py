"""`tensor.render()`: the method, which loads viz/ when it is called."""

from __future__ import annotations

from tensorgrad.dispatch.kinds import composite
from tensorgrad.tensor import Tensor


@composite("method")
def render(input: Tensor, direction: str = "forward", *, module=None, names=None, fold=None):
    """Returns a picture of a tensor's computation graph, which notebooks display; `.save("graph.svg")` writes it.

    Args:
        direction: "forward" for tensors and the ops that computed them, "backward" for the nodes of the backward pass.
        module: The model that computed it; provides parameter names and folding by module.
        names: Names for other tensors, as in `{"x": x}`.
        fold: The depth to which modules are shown separately; 0 shows every op.

    See `tensorgrad.viz.render` for details.

    >>> w = torch.ones(2, requires_grad=True)
    >>> (w.exp() + 1).sum().render(names={"w": w})
    <GraphPicture: Graph of sum: 3 ops, 1 leaf, 8 B saved>
    """
    from tensorgrad.viz.drawing import render as draw

    return draw(input, direction, module=module, names=names, fold=fold)
