"""`torch.fx`: traces programs symbolically, changes their graphs, and turns graphs into code again.

A program is run with proxies in place of tensors (`proxy.py`); what is done with them becomes nodes of a graph
(`node.py`, `graph.py`), which a `GraphModule` turns into Python code (`codegen.py`, `graph_module.py`).
"""

from tensorgrad.fx import immutable_collections, operator_schemas, passes, proxy
from tensorgrad.fx._symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace, wrap
from tensorgrad.fx.codegen import CodeGen
from tensorgrad.fx.graph import Graph
from tensorgrad.fx.graph_module import GraphModule
from tensorgrad.fx.interpreter import Interpreter, Transformer
from tensorgrad.fx.node import Node, has_side_effect, map_arg
from tensorgrad.fx.proxy import Proxy
from tensorgrad.fx.subgraph_rewriter import replace_pattern

__all__ = [
    "PH", "CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "ProxyableClassMeta", "Tracer",
    "Transformer", "has_side_effect", "map_arg", "replace_pattern", "symbolic_trace", "wrap",
]  # fmt: skip
