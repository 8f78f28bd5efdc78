"""`torch.cond` as ONNX's `If`, and `torch.while_loop` as `Loop`.

A recording has both branches, and a choice between their results; of a loop it has one turn (control_flow.py). Here the
operators that only one branch needs become a graph of their own, and the choices an `If`; and the operators of a turn
that depend on where it began become the graph of a `Loop`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tensorgrad.onnx.model import ELEMENT_TYPES, Graph, Node, ValueInfo


@dataclass
class Choice:
    """What a result is one of: which `torch.cond` or `torch.while_loop`, whether that is a loop, and its type."""

    number: int
    loop: bool
    element_type: int


def with_branches(nodes: list[Node], outputs: set[str], choices: dict[str, Choice]) -> list[Node]:
    """The nodes of a graph with these outputs, with an `If` for each `torch.cond`, and a `Loop` for each loop."""
    for number in sorted({c.number for c in choices.values()}, reverse=True):  # those around others come later
        chosen = [n for n in nodes if n.outputs[0] in choices and choices[n.outputs[0]].number == number]
        if not chosen:
            continue
        others = {name: c for name, c in choices.items() if c.number != number}
        types = [choices[n.outputs[0]].element_type for n in chosen]
        if choices[chosen[0].outputs[0]].loop:
            nodes = _with_loop(nodes, chosen, types, others)
        else:
            nodes = _with_if(nodes, outputs, chosen, types, others)
    return nodes


def with_whole_loops(nodes: list[Node], outputs: Iterable[str], choices: dict[str, Choice]) -> set[str]:
    """These outputs, and whatever else is changed by the loops that they need: a loop may end by it."""
    wanted = set(outputs)
    while True:
        made = [name for node in _needed(nodes, wanted) for name in node.outputs if name in choices]
        loops = {choices[name].number for name in made if choices[name].loop}
        more = {name for name, choice in choices.items() if choice.number in loops}
        if more <= wanted:
            return wanted
        wanted |= more


def _with_if(
    nodes: list[Node], outputs: set[str], chosen: list[Node], types: list[int], others: dict[str, Choice]
) -> list[Node]:
    graphs, gone = {}, {id(n) for n in chosen}
    for side, name in ((1, "then_branch"), (2, "else_branch")):
        inside = _only_for(nodes, outputs, chosen, side)
        gone |= {id(n) for n in inside}
        graphs[name] = _graph(name, inside, [n.inputs[side] for n in chosen], types, others)
    made_if = Node("If", [chosen[0].inputs[0]], [n.outputs[0] for n in chosen], dict(graphs))
    made_if.metadata = chosen[-1].metadata
    return [made_if if n is chosen[-1] else n for n in nodes if n is chosen[-1] or id(n) not in gone]


def _with_loop(nodes: list[Node], chosen: list[Node], types: list[int], others: dict[str, Choice]) -> list[Node]:
    """The operators of the turn are copied: what the first condition needs of them stays, and the rest is not used."""
    by_output = {name: n for n in nodes for name in n.outputs}
    name = f"{chosen[0].outputs[0]}_body"
    starts = [n.inputs[2] for n in chosen]
    turns = [by_output[n.inputs[1]] for n in chosen]  # where(next condition, next value, next value)
    renamed = {start: f"{name}_{start}" for start in starts}
    inside = []
    for node in _needed(nodes, [turns[0].inputs[0], *(t.inputs[1] for t in turns)]):
        if node.outputs[0] not in renamed and any(value in renamed for value in uses(node)):
            renamed |= {value: f"{name}_{value}" for value in node.outputs if value}
            inside.append(_with_names(node, renamed))
    results = [renamed.get(value, value) for value in (turns[0].inputs[0], *(t.inputs[1] for t in turns))]
    within = others | {renamed[value]: choice for value, choice in others.items() if value in renamed}
    boolean = ELEMENT_TYPES["bool"]
    body = _graph(name, inside, results, [boolean, *types], within)
    body.inputs = [
        ValueInfo(f"{name}_turn", ELEMENT_TYPES["int64"], ()), ValueInfo(f"{name}_goes_on", boolean, ()),
        *(ValueInfo(renamed[start], kind, None) for start, kind in zip(starts, types, strict=True)),
    ]  # fmt: skip
    loop = Node("Loop", ["", chosen[0].inputs[0], *starts], [n.outputs[0] for n in chosen], {"body": body})
    loop.metadata = chosen[-1].metadata
    gone = {id(n) for n in (*chosen, *turns)}
    return [loop if n is chosen[-1] else n for n in nodes if n is chosen[-1] or id(n) not in gone]


def _graph(name: str, nodes: list[Node], values: list[str], types: list[int], choices: dict[str, Choice]) -> Graph:
    """A graph within another one. It returns what it makes, each once; so other values pass through an `Identity`."""
    made = {output for n in nodes for output in n.outputs}
    results: list[str] = []
    for i, value in enumerate(values):
        if value not in made or value in results:
            results.append(f"{name}_{i}_of_{values[0]}")
            nodes.append(Node("Identity", [value], [results[-1]]))
        else:
            results.append(value)
    infos = [ValueInfo(result, kind, None) for result, kind in zip(results, types, strict=True)]
    return Graph(name, with_branches(nodes, set(results), choices), [], [], infos)


def _only_for(nodes: list[Node], outputs: set[str], chosen: list[Node], side: int) -> list[Node]:
    """The nodes whose results only one side of the choices needs, in order."""
    elsewhere = set(outputs)  # values that something else needs
    found = []
    choices = {id(n) for n in chosen}
    wanted = {n.inputs[side] for n in chosen}
    for node in reversed(nodes):
        if id(node) in choices:
            elsewhere.update(value for i, value in enumerate(node.inputs) if i != side)
        elif wanted.intersection(node.outputs) and not elsewhere.intersection(node.outputs):
            found.append(node)
            wanted.update(uses(node))
        else:
            elsewhere.update(uses(node))
    return found[::-1]


def _needed(nodes: list[Node], values: Iterable[str]) -> list[Node]:
    """The nodes that make values, and what these need, in order."""
    wanted, found = set(values), []
    for node in reversed(nodes):
        if wanted.intersection(node.outputs):
            found.append(node)
            wanted.update(uses(node))
    return found[::-1]


def _with_names(node: Node, names: dict[str, str]) -> Node:
    """A copy of a node with other names of values."""
    inputs, outputs = ([names.get(value, value) for value in values] for values in (node.inputs, node.outputs))
    return Node(node.operator, inputs, outputs, dict(node.attributes), node.domain, metadata=node.metadata)


def uses(node: Node) -> Iterator[str]:
    """The values that a node needs, also in its graphs."""
    yield from node.inputs
    for value in node.attributes.values():
        if isinstance(value, Graph):
            for inner in value.nodes:
                yield from uses(inner)
            yield from (output.name for output in value.outputs)
