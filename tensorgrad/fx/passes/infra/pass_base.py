"""One pass over a graph: what it takes and returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from tensorgrad.fx.graph_module import GraphModule
from tensorgrad.nn import Module

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """What a pass returns: the module, and whether the pass has changed it."""

    graph_module: Module
    modified: bool


class PassBase(ABC):
    """A pass: subclasses define `call`, and what must hold before and after it.

    >>> from tensorgrad.fx.passes.infra.pass_base import PassBase, PassResult
    >>> class Count(PassBase):
    ...     def call(self, graph_module):
    ...         print(len(graph_module.graph.nodes), "nodes")
    ...         return PassResult(graph_module, False)
    >>> Count()(torch.fx.symbolic_trace(lambda x: x + 1)).modified
    3 nodes
    False
    """

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Runs the pass."""

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027  # what subclasses may define
        """Raises an error if the pass cannot run on a graph."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Raises an error if the pass has left a graph as it must not be."""
