"""Modules in a row of a graph become one: convolution, batch normalization and relu; linear layer and relu."""

from __future__ import annotations

from typing import Any

from tensorgrad import nn
from tensorgrad.ao.quantization.fuse_modules import fused
from tensorgrad.ao.quantization.fx.patterns import key_of
from tensorgrad.fx import GraphModule, Node
from tensorgrad.nn import Module

_RELU = {nn.ReLU, nn.functional.relu}


def _row(node: Node, modules: dict[str, Module]) -> list[Node]:
    """The nodes in a row that end at this one and become one module; the first computes with weights."""
    row, key = [node], key_of(node, modules)
    if key in _RELU:
        row.insert(0, _before(node))  # type: ignore[arg-type]
        key = key_of(row[0], modules)
        if key is nn.Linear:
            return row
    if key is nn.BatchNorm2d:
        row.insert(0, _before(row[0]))  # type: ignore[arg-type]
        key = key_of(row[0], modules)
    return row if key is nn.Conv2d and len(row) > 1 else []


def _before(node: Node) -> Node | None:
    """The node whose result is the input of this one alone."""
    given = node.args[0] if node.args else None
    return given if isinstance(given, Node) and len(given.users) == 1 else None


def fuse(model: GraphModule, is_qat: bool) -> GraphModule:
    """Returns the model with one module in the place of the first of a row; the model's modules change."""
    graph, done = model.graph, set()
    for node in reversed(list(graph.nodes)):
        if node in done:
            continue
        modules = dict(model.named_modules(remove_duplicate=False))
        row = _row(node, modules)
        if not row:
            continue
        parts: list[Any] = [modules[str(n.target)] if n.op == "call_module" else nn.ReLU() for n in row]
        if row[-1].op != "call_module":
            parts[-1].train(parts[0].training)
        model.set_submodule(str(row[0].target), fused(parts, is_qat))
        done.update(row)
        row[-1].replace_all_uses_with(row[0])
        for last in reversed(row[1:]):
            graph.erase_node(last)
    return GraphModule(model, graph)
