"""`make_fx`: the graph of what a function does, found by running it. (tensorgrad/capture)"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorgrad
from tensorgrad._ops import ops
from tensorgrad.capture import record
from tensorgrad.fx.graph_module import GraphModule
from tensorgrad.fx.node import Node, map_arg
from tensorgrad.library.dispatch_classes import MADE_OF_OTHERS, overload_of
from tensorgrad.library.operators_of_rows import ROWS
from tensorgrad.overriding.function_classes import without_defaults
from tensorgrad.tensor import Tensor
from tensorgrad.utils._pytree import tree_map_only

__all__ = ["get_proxy_mode", "make_fx"]


def make_fx(f: Callable, decomposition_table: Any = None, tracing_mode: str = "real", **options: Any) -> Callable:
    """Returns a function that runs `f` on its arguments, and returns an `fx.GraphModule` of the ops that it called.

    The graph is below autograd: a backward pass inside of `f` is part of it. Nodes call the operators of PyTorch's
    registry (`torch.ops.aten`) where an op is one of these, else functions of this library.

    Args:
        f: the function.
        decomposition_table: must be empty: ops are recorded as they run.
        tracing_mode: "real", the function runs on its arguments; or "fake", on tensors without values.
        options: accepted for compatibility.

    Raises:
        NotImplementedError: For another mode, or a table of decompositions.

    >>> from tensorgrad.fx.experimental.proxy_tensor import make_fx
    >>> graph = make_fx(lambda x: x.sin() + 1)(torch.zeros(2))
    >>> print(graph.code.strip())
    def forward(self, x):
        sin = torch.ops.aten.sin.default(x);  x = None
        add = torch.ops.aten.add.Tensor(sin, 1);  sin = None
        return add
    """
    if decomposition_table:
        raise NotImplementedError("make_fx(): decomposition_table: ops are recorded as they run")
    if tracing_mode not in ("real", "fake"):
        raise NotImplementedError(f"make_fx(): tracing_mode={tracing_mode!r}: sizes are plain numbers")

    @functools.wraps(f)
    def traced(*args: Any) -> GraphModule:
        if tracing_mode == "fake":
            args = tree_map_only(Tensor, _without_values, args)
        module = record(f, *args).graph_module
        for node in module.graph.nodes:
            if node.op == "call_function" and hasattr(node.target, "op"):
                _name(node)
        module.recompile()
        return module

    return traced


def _without_values(tensor: Tensor) -> Tensor:
    """A tensor of the same shape, strides and dtype on the meta device."""
    made = tensorgrad.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return made.requires_grad_(tensor.requires_grad)


def _name(node: Node) -> None:
    """Gives a node the operator of PyTorch's registry that its row is, if there is one with these arguments."""
    target: Any = node.target
    name = target.op.name
    if name in ROWS or name in MADE_OF_OTHERS or not hasattr(ops.aten, name):
        return
    args, kwargs = without_defaults(target, node.args, dict(node.kwargs))
    values = map_arg((args, kwargs), lambda n: n.meta.get("val"))
    node.target = overload_of(name, tuple(values[0]), dict(values[1]))
    node.args, node.kwargs = args, kwargs


def get_proxy_mode() -> None:
    """Returns None: programs are recorded while they run, without a mode."""
