"""Replaces parts of a graph: `torch.fx.replace_pattern`, and those that pass filters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tensorgrad.fx._symbolic_trace import symbolic_trace
from tensorgrad.fx.graph import Graph
from tensorgrad.fx.graph_module import GraphModule
from tensorgrad.fx.node import Node, nodes_in
from tensorgrad.nn import Module

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]


class Match(NamedTuple):
    """A part of a graph that looks like a pattern: the pattern's result, and which node is which of the pattern's."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """A part of a graph that was replaced, as `Match`, and the nodes in its place."""

    anchor: Node
    nodes_map: dict[Node, Any]
    replacements: list[Node]


@dataclass
class InternalMatch:
    """A part of a graph that looks like a pattern, as filters see it.

    Args:
        anchors: The results of the pattern that it does not use itself.
        nodes_map: Which node, or other argument, is which node of the pattern's.
        placeholder_nodes: What stands for the pattern's parameters.
        returning_nodes: The results of the part.
        name_node_map: Empty: for patterns that name their nodes, which there are not here.
    """

    anchors: list[Node]
    nodes_map: dict[Node, Any] = field(default_factory=dict)
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Node] = field(default_factory=dict)


_Pattern = Callable | GraphModule | Graph
_Filter = Callable[[InternalMatch, Graph, Graph], bool]


def replace_pattern(gm: GraphModule, pattern: _Pattern, replacement: _Pattern) -> list[Match]:
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
    return [Match(m.anchor, m.nodes_map) for m in replace_pattern_with_filters(gm, pattern, replacement)]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: _Pattern,
    replacement: _Pattern | None = None,
    match_filters: list[_Filter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """Replaces those parts of a graph that look like a pattern and pass all filters: see `replace_pattern`.

    Args:
        gm: The module to change.
        pattern: What is looked for.
        replacement: What takes its place.
        match_filters: Functions of (a match, the graph, the pattern's graph) that say whether a part is replaced.
        ignore_literals: Whether arguments that are not nodes may differ.
        replacement_callback: A function of the same that returns the graph to take the part's place.
        node_name_match: Not supported.

    Raises:
        NotImplementedError: If `node_name_match` is given.
        RuntimeError: If the replacement has another number of parameters than the pattern.

    >>> from tensorgrad.fx.subgraph_rewriter import replace_pattern_with_filters
    >>> traced = torch.fx.symbolic_trace(lambda x: (x + 1) * (x + 2))
    >>> is_two = lambda match, graph, pattern: match.placeholder_nodes[1] == 2
    >>> found = replace_pattern_with_filters(traced, lambda a, b: a + b, lambda a, b: a - b, [is_two])
    >>> len(found), traced(torch.tensor(5.0))
    (1, tensor(18.))
    """
    if node_name_match:
        raise NotImplementedError("replace_pattern_with_filters(): node_name_match is not included: pass match_filters")
    wanted = _graph_of(pattern)
    given = None if replacement is None else _graph_of(replacement)
    inputs = [n for n in wanted.nodes if n.op == "placeholder"]
    results = list(nodes_in(wanted.output_node().args))
    changed: dict[Node, Node] = {}  # results of parts that were replaced -> what is there now
    matches = [
        match
        for match in _matches(gm.graph, wanted, set(), ignore_literals)
        if all(passes(match, gm.graph, wanted) for passes in match_filters or ())
    ]
    replaced = []
    for match in matches:
        other = given if replacement_callback is None else replacement_callback(match, gm.graph, wanted)
        if other is None:
            raise AssertionError("Must provide either a replacement GraphModule or a replacement callback")
        new_inputs = [n for n in other.nodes if n.op == "placeholder"]
        if len(inputs) != len(new_inputs):
            raise RuntimeError(f"the pattern has {len(inputs)} parameters, and the replacement {len(new_inputs)}")
        values: dict[Node, Any] = {}
        for mine, theirs in zip(new_inputs, inputs, strict=True):
            if theirs in match.nodes_map:
                found = match.nodes_map[theirs]
                while isinstance(found, Node) and found in changed:
                    found = changed[found]
                values[mine] = found
        inner = {
            match.nodes_map[n] for n in wanted.nodes if n in match.nodes_map and n.op not in ("placeholder", "output")
        }
        old = [match.nodes_map[n] for n in results]
        after = [n for n in gm.graph.nodes if any(o in n._input_nodes for o in old) and n not in inner]
        with gm.graph.inserting_before(after[0] if after else gm.graph.output_node()):
            new = gm.graph.graph_copy(other, values)
        for before, now in zip(old, nodes_in(new), strict=True):
            before.replace_all_uses_with(now)
            changed[before] = now
        for node in reversed(gm.graph.nodes):
            if node in inner:
                gm.graph.erase_node(node)
        added = [made for of, made in values.items() if of not in new_inputs]
        replaced.append(ReplacedPatterns(match.anchors[0], match.nodes_map, added))
    if isinstance(replacement, Module):
        gm.delete_all_unused_submodules()
    gm.recompile()
    return replaced


def _graph_of(pattern: _Pattern) -> Graph:
    if isinstance(pattern, Graph):
        return pattern
    return pattern.graph if isinstance(pattern, GraphModule) else symbolic_trace(pattern).graph


def _matches(graph: Graph, wanted: Graph, used: set[Node], any_literals: bool) -> Iterator[InternalMatch]:
    """Yields the parts that look like the pattern; their nodes, but the inputs, are used only within."""
    results = list(nodes_in(wanted.output_node().args))
    if not results:
        return
    for node in graph.nodes:
        for found in _all_of(list(results), node, graph, {}, any_literals):
            inner = {found[n] for n in found if n.op != "placeholder"}
            ends = {found[n] for n in results}
            closed = all(set(n.users) <= inner for n in inner - ends)
            if closed and not inner & used:
                used |= inner
                anchors = [n for n in results if len(n.users) == 1] or results
                given = [found[n] for n in wanted.nodes if n.op == "placeholder" and n in found]
                yield InternalMatch(anchors, found, given, [found[n] for n in results])
                break


def _all_of(
    results: list[Node], node: Node, graph: Graph, found: dict[Node, Any], any_literals: bool
) -> Iterator[dict[Node, Any]]:
    """Yields the ways in which all results match, the last one at `node` and the others anywhere."""
    mine = dict(found)
    if not _same(results[-1], node, mine, any_literals):
        return
    if len(results) == 1:
        yield mine
        return
    for other in graph.nodes:
        yield from _all_of(results[:-1], other, graph, mine, any_literals)


def _same(pattern: Any, value: Any, found: dict[Node, Any], any_literals: bool) -> bool:
    """Whether an argument matches one of the pattern's; adds what nodes match to `found`."""
    if isinstance(pattern, Node):
        if pattern in found:
            return found[pattern] is value if isinstance(value, Node) else found[pattern] == value
        if isinstance(value, Node) and any(value is other for other in found.values()):
            return False  # each node of the pattern is another one
        if pattern.op == "placeholder":
            found[pattern] = value
            return True
        if not isinstance(value, Node) or value.op != pattern.op or value.target != pattern.target:
            return False
        found[pattern] = value
        return _same(pattern.args, value.args, found, any_literals) and _same(
            pattern.kwargs, value.kwargs, found, any_literals
        )
    if isinstance(pattern, list | tuple):
        alike = isinstance(value, list | tuple) and len(value) == len(pattern)
        return alike and all(_same(p, v, found, any_literals) for p, v in zip(pattern, value, strict=True))
    if isinstance(pattern, dict):
        return (
            isinstance(value, dict)
            and pattern.keys() == value.keys()
            and all(_same(p, value[k], found, any_literals) for k, p in pattern.items())
        )
    if any_literals and not isinstance(value, Node):
        return True
    return type(pattern) is type(value) and pattern == value
