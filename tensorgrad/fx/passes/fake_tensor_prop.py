"""Fake tensors for all values in a graph: `torch.fx.passes.fake_tensor_prop.FakeTensorProp`."""

from __future__ import annotations

from typing import Any

import tensorgrad
from tensorgrad._subclasses.fake_tensor import FakeTensorMode
from tensorgrad.fx.graph_module import GraphModule
from tensorgrad.fx.interpreter import Interpreter
from tensorgrad.fx.node import Node, map_aggregate

__all__ = ["FakeTensorProp"]


class FakeTensorProp(Interpreter):
    """Runs a graph once, without memory, and stores what each node returns as `node.meta["val"]`: a fake tensor.

    Args:
        module: the graph's module.
        mode: the mode of the fake tensors; by default a new one.

    >>> traced = torch.fx.symbolic_trace(lambda x: x.sum(0))
    >>> result = torch.fx.passes.fake_tensor_prop.FakeTensorProp(traced).propagate(torch.ones(2, 3))
    >>> [node.meta["val"] for node in traced.graph.nodes]
    [FakeTensor(..., size=(2, 3)), FakeTensor(..., size=(3,)), FakeTensor(..., size=(3,))]
    """

    def __init__(self, module: GraphModule, mode: FakeTensorMode | None = None) -> None:
        super().__init__(module)
        self._mode = FakeTensorMode() if mode is None else mode

    def run_node(self, n: Node) -> Any:
        """Runs one node, and notes what it returns."""
        result = super().run_node(n)

        def note(value: Any) -> Any:
            if isinstance(value, tensorgrad.Tensor):
                return self._mode.from_tensor(value).detach()
            return value if isinstance(value, int | float | bool) else None

        meta = map_aggregate(result, note)
        if meta is not None:
            n.meta["val"] = meta
        return result

    def propagate(self, *args: Any) -> Any:
        """Runs the graph with fake tensors for the given inputs and returns its result."""
        return self.propagate_dont_convert_inputs(
            *(self._mode.from_tensor(a) if isinstance(a, tensorgrad.Tensor) else a for a in args)
        )

    def propagate_dont_convert_inputs(self, *args: Any) -> Any:
        """Runs the graph with inputs that are fake already."""
        with self._mode:
            return super().run(*args)
