"""The contents of a graph picture: which boxes it has, their text, and their positions."""

from __future__ import annotations

from tensorgrad.viz import svg
from tensorgrad.viz.graph import INPUT, LEAF, MODULE, OP, Graph, Link, Vertex
from tensorgrad.viz.layout import Placed, layout

FORWARD, BACKWARD = "forward", "backward"
PAD, LINE, FONT, SMALL = 10.0, 16.0, 12.5, 11.0
WIDEST = 320.0


def counted(number: int, one: str, many: str = "") -> str:
    """Returns a number with its noun, in singular or plural.

    >>> counted(1, "op"), counted(2, "leaf", "leaves")
    ('1 op', '2 leaves')
    """
    return f"{number} {one if number == 1 else many or one + 's'}"


def label(vertex: Vertex, direction: str) -> list[tuple[str, str]]:
    """Returns the lines of a box as (text, style); the first line is its heading."""
    lines: list[tuple[str, str]] = []
    if vertex.kind == LEAF:
        lines.append((vertex.name or "leaf", "bold"))
        if direction == BACKWARD:
            lines.append(("accumulates .grad", "muted"))
    elif vertex.kind == INPUT:
        lines.append((vertex.name or "input", "bold"))
    elif vertex.kind == MODULE:
        lines.append((vertex.name, "bold"))
        what = vertex.arguments or counted(vertex.ops, "op")
        lines.append((f"{vertex.module} · {what}" if vertex.module else what, "plain"))
    else:
        lines.append((vertex.node_name if direction == BACKWARD else vertex.name, "bold"))
        if vertex.arguments and len(vertex.arguments) <= 36:
            lines.append((vertex.arguments, "muted"))
    if direction == FORWARD or vertex.kind in (LEAF, INPUT):
        lines += [(str(shape), "mono") for shape in vertex.outputs[:3]]
    if vertex.parameters:
        lines.append((f"{counted(len(vertex.parameters), 'parameter')}, {svg.count(vertex.elements)}", "muted"))
    if direction == BACKWARD:
        lines += saved_lines(vertex)
    if vertex.kind == OP and vertex.scope:
        lines.append((f"in {vertex.scope}{f' ({vertex.module})' if vertex.module else ''}", "muted"))
    return lines


def saved_lines(vertex: Vertex) -> list[tuple[str, str]]:
    """Returns the lines of a box about saved values."""
    tensors = [s for s in vertex.saved if s.shape is not None]
    if vertex.kind == MODULE or len(tensors) > 4:
        summary = f"saves {counted(len(tensors), 'tensor')}, {svg.size(vertex.saved_bytes)}"
        return [(summary, "muted")] if tensors else []
    lines = []
    for s in vertex.saved:
        if s.shape is not None:
            size = svg.size(s.shape.nbytes) if s.memory else "a leaf"
            lines.append((f"saves {s.name} {s.shape}, {size}", "mono"))
        elif s.text.startswith(("packed", "used")):
            lines.append((f"{s.name}: {s.text}", "muted"))
    return lines


def size_of(lines: list[tuple[str, str]]) -> tuple[float, float]:
    """Returns the width and height of a box with these lines."""
    widths = (svg.text_width(t, *font(style)) * (1.13 if style == "bold" else 1.0) for t, style in lines)
    return min(max(60.0, *widths) + 2 * PAD, WIDEST + 2 * PAD), LINE * len(lines) + PAD


def font(style: str) -> tuple[float, bool]:
    """Returns the font size of a style, and whether it is monospaced."""
    return (FONT if style == "bold" else SMALL), style == "mono"


def links_of(graph: Graph, direction: str) -> list[Link]:
    """Returns the links to draw; in a backward picture, only those that gradients flow along."""
    return graph.links if direction == FORWARD else [link for link in graph.links if link.number >= 0]


def arranged(graph: Graph, direction: str) -> tuple[list[int], list[list[tuple[str, str]]], Placed, list[Link]]:
    """Returns the vertices to draw, their text lines, their layout, and the links between them."""
    links = links_of(graph, direction)
    drawn = list(range(len(graph.vertices)))
    if direction == BACKWARD:
        drawn = [i for i in drawn if graph.vertices[i].kind != INPUT or i == graph.root]
    position = {v: i for i, v in enumerate(drawn)}
    lines = [label(graph.vertices[i], direction) for i in drawn]
    ends = [(position[a.source], position[a.target]) for a in links]
    values = [a.output for a in links]
    if direction == BACKWARD:
        ends, values = [(target, source) for source, target in ends], [a.number for a in links]
    return drawn, lines, layout([size_of(box) for box in lines], ends, values), links
