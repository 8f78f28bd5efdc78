"""Replaces parts of a graph: `torch.fx.replace_pattern`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tensorgrad.fx._symbolic_trace import symbolic_trace
from tensorgrad.fx.graph import Graph
from tensorgrad.fx.graph_module import GraphModule
from tensorgrad.fx.node import Node, nodes_in
from tensorgrad.nn import Module

__all__ = ["Match", "replace_pattern"]


class Match(NamedTuple):
    """A part of a graph that looks like a pattern: its last node, and which node is which of the pattern's."""

    anchor: Node
    nodes_map: dict[Node, Node]


def replace_pattern(
    gm: GraphModule, pattern: Callable | GraphModule, replacement: Callable | GraphModule
) -> list[Match]:
    """Replaces all parts of a graph that look like a pattern, in place. Parts do not overlap.

    Args:
        gm: the module to change.
        pattern: a function whose graph is looked for; its parameters match anything.
        replacement: a function with the same parameters, whose graph takes its place.

    Returns:
        The parts that were replaced.

    >>> traced = torch.fx.symbolic_trace(lambda x, y: torch.relu(x + y) * 2)
    >>> matches = torch.fx.replace_pattern(traced, lambda a, b: a + b, lambda a, b: a - b)
    >>> print(len(matches), traced.code.strip().splitlines()[1].strip())
    1 sub = x - y;  x = y = None
    """
    wanted = pattern.graph if isinstance(pattern, GraphModule) else symbolic_trace(pattern).graph
    other = replacement if isinstance(replacement, GraphModule) else symbolic_trace(replacement)
    inputs = [n for n in wanted.nodes if n.op == "placeholder"]
    new_inputs = [n for n in other.graph.nodes if n.op == "placeholder"]
    if len(inputs) != len(new_inputs):
        raise RuntimeError(f"the pattern has {len(inputs)} parameters, and the replacement {len(new_inputs)}")
    results = nodes_in(wanted.output_node().args)
    used: set[Node] = set()
    changed: dict[Node, Node] = {}  # results of parts that were replaced -> what is there now
    matches = list(_matches(gm.graph, wanted, used))
    for match in matches:
        values = {}
        for mine, theirs in zip(new_inputs, inputs, strict=True):
            if theirs in match.nodes_map:
                found = match.nodes_map[theirs]
                while found in changed:
                    found = changed[found]
                values[mine] = found
        inner = {
            match.nodes_map[n] for n in wanted.nodes if n in match.nodes_map and n.op not in ("placeholder", "output")
        }
        old = [match.nodes_map[n] for n in results]
        after = [n for n in gm.graph.nodes if any(o in n._input_nodes for o in old) and n not in inner]
        with gm.graph.inserting_before(after[0] if after else gm.graph.output_node()):
            new = gm.graph.graph_copy(other.graph, values)
        for before, now in zip(old, nodes_in(new), strict=True):
            before.replace_all_uses_with(now)
            changed[before] = now
        for node in reversed(gm.graph.nodes):
            if node in inner:
                gm.graph.erase_node(node)
    if isinstance(replacement, Module):
        gm.delete_all_unused_submodules()
    gm.recompile()
    return matches


def _matches(graph: Graph, wanted: Graph, used: set[Node]) -> Iterator[Match]:
    """Yields the parts that look like the pattern; their nodes, but the inputs, are used only within."""
    results = list(nodes_in(wanted.output_node().args))
    if not results:
        return
    for node in graph.nodes:
        for found in _all_of(list(results), node, graph, {}):
            inner = {found[n] for n in found if n.op != "placeholder"}
            ends = {found[n] for n in results}
            closed = all(set(n.users) <= inner for n in inner - ends)
            if closed and not inner & used:
                used |= inner
                yield Match(found[results[-1]], found)
                break


def _all_of(results: list[Node], node: Node, graph: Graph, found: dict[Node, Node]) -> Iterator[dict[Node, Node]]:
    """Yields the ways in which all results match, the last one at `node` and the others anywhere."""
    mine = dict(found)
    if not _same(results[-1], node, mine):
        return
    if len(results) == 1:
        yield mine
        return
    for other in graph.nodes:
        yield from _all_of(results[:-1], other, graph, mine)


def _same(pattern: Any, value: Any, found: dict[Node, Node]) -> bool:
    """Whether an argument matches one of the pattern's; adds what nodes match to `found`."""
    if isinstance(pattern, Node):
        if pattern in found:
            return found[pattern] is value
        if pattern.op == "placeholder":
            if not isinstance(value, Node):
                return False
            found[pattern] = value
            return True
        if not isinstance(value, Node) or value.op != pattern.op or value.target != pattern.target:
            return False
        if not (_same(pattern.args, value.args, found) and _same(pattern.kwargs, value.kwargs, found)):
            return False
        found[pattern] = value
        return True
    if isinstance(pattern, list | tuple):
        alike = isinstance(value, list | tuple) and len(value) == len(pattern)
        return alike and all(_same(p, v, found) for p, v in zip(pattern, value, strict=True))
    if isinstance(pattern, dict):
        return (
            isinstance(value, dict)
            and pattern.keys() == value.keys()
            and all(_same(p, value[k], found) for k, p in pattern.items())
        )
    return type(pattern) is type(value) and pattern == value
