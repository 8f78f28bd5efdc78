"""The shapes of all values in a graph, for given inputs: `torch.fx.passes.shape_prop.ShapeProp`."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorgrad
from tensorgrad.fx.interpreter import Interpreter
from tensorgrad.fx.node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its values."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Any, include_contiguity: bool = True) -> TensorMetadata:
    formats = (tensorgrad.contiguous_format, tensorgrad.channels_last, tensorgrad.channels_last_3d)
    ranks = {tensorgrad.channels_last: 4, tensorgrad.channels_last_3d: 5}
    fitting = (
        f for f in formats if ranks.get(f, result.dim()) == result.dim() and result.is_contiguous(memory_format=f)
    )
    return TensorMetadata(
        result.shape, result.dtype, result.requires_grad, result.stride(), next(fitting, None), False, {}
    )


class ShapeProp(Interpreter):
    """Runs a graph once, and stores shape and dtype of every tensor as `node.meta["tensor_meta"]`.

    >>> traced = torch.fx.symbolic_trace(lambda x: x.sum(0))
    >>> result = torch.fx.passes.shape_prop.ShapeProp(traced).propagate(torch.ones(2, 3))
    >>> [tuple(node.meta["tensor_meta"].shape) for node in traced.graph.nodes]
    [(2, 3), (3,), (3,)]
    """

    def run_node(self, n: Node) -> Any:
        """Runs one node, and notes what it returns."""
        result = super().run_node(n)
        found = False

        def note(value: Any) -> Any:
            nonlocal found
            if isinstance(value, tensorgrad.Tensor):
                found = True
                return _extract_tensor_metadata(value)
            return value

        meta = map_aggregate(result, note)
        if found:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Runs the graph with the given inputs and returns its result."""
        return super().run(*args)
