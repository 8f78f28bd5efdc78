"""`tensor.render()`: the computation graph as a picture."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from tensorgrad.tensor import Tensor
from tensorgrad.viz import dot, svg
from tensorgrad.viz.boxes import BACKWARD, FORWARD, LINE, PAD, SMALL, WIDEST, arranged, counted, font, size_of
from tensorgrad.viz.folding import fold as folded
from tensorgrad.viz.graph import INPUT, LEAF, MODULE, OP, Graph, Link, Vertex, collect
from tensorgrad.viz.layout import Placed, Point
from tensorgrad.viz.picture import Picture, write

MOST = 3000  # boxes; a picture with more is unreadable, and has to be requested explicitly

KINDS = {  # kind -> (fill, border, name in the legend)
    LEAF: ("good-soft", "good", "leaf, gets a gradient"),
    INPUT: ("panel", "edge", "input, needs no gradient"),
    OP: ("accent-soft", "accent", "operation"),
    MODULE: ("warm-soft", "warm", "module, folded"),
}


class GraphPicture(Picture):
    """A picture of a graph. `graph` has its content as data, and `dot` in Graphviz's DOT language."""

    def __init__(self, markup: str, graph: Graph, direction: str, title: str):
        super().__init__(markup, title)
        self.graph, self.direction = graph, direction

    @property
    def dot(self) -> str:
        """The graph in Graphviz's DOT language."""
        return dot.source(self.graph, self.direction)

    def save(self, path: str | os.PathLike, dark: bool = False) -> Path:
        """Writes the picture to a file with the extension `.svg`, `.html`, `.dot`, `.png` or `.pdf`.

        The first three need no other program. PNG and PDF are converted from the SVG by an installed converter, or
        else made by Graphviz's program `dot`, with a plainer layout and colors.

        Raises:
            ValueError: If the file has another extension.
            RuntimeError: If no installed program can write PNG or PDF.
        """
        kind = Path(path).suffix.lower().removeprefix(".")
        if kind == "dot":
            return write(path, self.dot)
        try:
            return super().save(path, dark)
        except RuntimeError as error:
            program = shutil.which("dot")
            if kind not in ("png", "pdf"):
                raise
            if program is None:
                raise RuntimeError(
                    f"{error}. Graphviz's program `dot` can also do this, but is not installed"
                ) from None
            made = subprocess.run([program, f"-T{kind}"], input=self.dot.encode(), capture_output=True, check=True)
            return write(path, made.stdout)
        except ValueError as error:
            raise ValueError(f"{error}".replace(".svg, ", ".svg, .dot, ", 1)) from None


def render(
    tensor: Tensor,
    direction: str = FORWARD,
    *,
    module: Any = None,
    names: Mapping[str, Tensor] | None = None,
    fold: int | None = None,
) -> GraphPicture:
    """Draws the computation graph that leads to a tensor.

    Args:
        tensor: the result of the computation.
        direction: "forward" shows tensors and the ops that computed them, from the leaves down to the result.
            "backward" shows the nodes (`grad_fn`) in the order in which gradients reach them, from the result down to
            the leaves, with the number of the input on each edge and what each node saves for its formulas.
        module: the model that computed the tensor. Its parameters are then shown by name, and ops are folded by module.
            Ops between two parameters are assigned to their modules. For a graph made inside `viz.record(model)` the
            modules are known exactly, and `module` is not needed.
        names: names for other tensors, as in `names={"x": x}`. A tensor's own attribute `name` is used as well.
        fold: how many levels of modules to show: with 1, each module of the model is one box. 0 shows every op; None
            folds graphs of more than 60 ops.

    Returns:
        A picture: a notebook shows it; elsewhere use `.save("graph.svg")` or `.show()`.

    Raises:
        ValueError: If the direction is unknown, or the graph has thousands of boxes and cannot be folded.

    >>> w = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> loss = (w.exp() * w).sum()
    >>> loss.render(names={"w": w})
    <GraphPicture: Graph of sum: 3 ops, 1 leaf, 8 B saved>
    >>> "MulBackward0" in loss.render("backward").svg
    True
    """
    if direction not in (FORWARD, BACKWARD):
        raise ValueError(f"direction: expected 'forward' or 'backward', but got {direction!r}")
    graph = folded(collect(tensor, module, names), fold)
    if fold is None and len(graph.vertices) > MOST:
        raise ValueError(
            f"the graph has {len(graph.vertices)} boxes: pass the model to fold it, render(module=model), or pass "
            "fold=0 to draw all of them"
        )
    return GraphPicture(draw(graph, direction)[0], graph, direction, title(graph))


def title(graph: Graph) -> str:
    """Returns a one-line summary of the picture."""
    leaves = sum(v.kind == LEAF for v in graph.vertices) + sum(len(v.parameters) for v in graph.vertices)
    root = graph.vertices[graph.root]
    if not graph.ops:
        what = "A leaf without any operations" if root.kind == LEAF else "A tensor without a graph"
        return f"{what}: {root.name} {root.outputs[0]}".replace(":  ", ": ")
    saved = f", {svg.size(graph.saved_bytes)} saved" if graph.saved_bytes else ""
    return f"Graph of {root.name}: {counted(graph.ops, 'op')}, {counted(leaves, 'leaf', 'leaves')}{saved}"


# --- boxes -------------------------------------------------------------------------------------------------------


def box(
    vertex: Vertex, lines: list[tuple[str, str]], at: Point, size: tuple[float, float], key: str, result: bool
) -> str:
    """Draws one box as SVG, with `key` as its `id` if given. The box of the result has a bold border."""
    fill, border, _ = KINDS[vertex.kind]
    (x, y), (w, h) = at, size
    shape: dict[str, Any] = {"rx": h / 2 if vertex.kind in (LEAF, INPUT) and len(lines) <= 2 else 7}
    if vertex.kind == INPUT:
        shape["stroke_dasharray"] = "4 3"
    parts = [svg.element("title", svg.escape(tooltip(vertex)))]
    outline = {
        "fill": svg.colour(fill),
        "stroke": svg.colour(border),
        "stroke_width": 2.6 if result else 1.3,
        "class_": "tg-box",
    }
    if vertex.kind == MODULE:  # a second box peeking out from behind shows that there is more inside
        parts.append(svg.element("rect", x=x + 4, y=y + 4, width=w, height=h, **shape, **{**outline, "class_": None}))
    parts.append(svg.element("rect", x=x, y=y, width=w, height=h, **shape, **outline))
    for i, (content, style) in enumerate(lines):
        size_, mono = font(style)
        attributes: dict[str, Any] = {"text_anchor": "middle", "font_size": size_}
        attributes["font_weight"] = 600 if style == "bold" else None
        attributes["class_"] = {"mono": "tg-mono", "muted": "tg-muted"}.get(style)
        cut = svg.shortened(content, WIDEST, size_, mono)
        parts.append(svg.text(x + w / 2, y + PAD / 2 + LINE * (i + 0.74), cut, **attributes))
    return svg.element("g", parts, id=key or None, class_=f"tg-{vertex.kind}")


def tooltip(vertex: Vertex) -> str:
    """Returns the tooltip of a box, with all its details."""
    lines = [f"{vertex.name or vertex.kind} ({vertex.module or vertex.kind})"]
    if vertex.node_name:
        lines.append(f"backward: {vertex.node_name}")
    lines += [f"returns {shape}" for shape in vertex.outputs[:6]]
    if vertex.arguments:
        lines.append(vertex.arguments)
    if vertex.scope:
        lines.append(f"in module {vertex.scope}")
    for s in vertex.saved[:12]:
        lines.append(f"saves {s.name}: {s.shape or s.text}")
    lines += [f"parameter {name}" for name in vertex.parameters[:12]]
    return "\n".join(lines)


# --- edges and the whole picture ---------------------------------------------------------------------------------


def edge(points: list[Point], key: str = "", note: str = "") -> str:
    """Draws an edge as SVG: a smooth line with an arrow at its end, and `note` next to its start."""
    path = f"M{svg.number(points[0][0])} {svg.number(points[0][1])}"
    for (x0, y0), (x1, y1) in pairwise([*points[:-1], (points[-1][0], points[-1][1] - 5.0)]):
        if abs(x0 - x1) < 0.5:
            path += f"V{svg.number(y1)}"
        else:
            middle = svg.number((y0 + y1) / 2)
            path += f"C{svg.number(x0)} {middle} {svg.number(x1)} {middle} {svg.number(x1)} {svg.number(y1)}"
    x, y = points[-1]
    tip = f"M{svg.number(x - 3.6)} {svg.number(y - 7.0)}h7.2L{svg.number(x)} {svg.number(y)}Z"
    grey = svg.colour("edge")
    parts = [
        svg.element("path", d=path, fill="none", stroke=grey, stroke_width=1.3),
        svg.element("path", d=tip, fill=grey, class_="tg-tip"),
    ]
    if note:
        (x, y), turns_left = points[0], next((b < a for (a, _), (b, _) in pairwise(points) if a != b), True)
        attributes = {"text_anchor": None if turns_left else "end", "class_": "tg-muted", "font_size": 10}
        parts.append(svg.text(x + (4 if turns_left else -4), y + 11, note, **attributes))
    return svg.element("g", parts, id=key or None, class_="tg-edge")


def draw(graph: Graph, direction: str, prefix: str = "") -> tuple[str, Placed]:
    """Draws the picture. Returns it as SVG, with its layout.

    With `prefix`, boxes and edges have `id`s: prefix + "box3" is vertex 3, and prefix + "edge5" is the drawn link 5.
    """
    drawn, lines, placed, links = arranged(graph, direction)
    margin = 16.0
    many = Counter(link.target for link in links)
    body = []
    for e, (link, points) in enumerate(zip(links, placed.edges)):
        note = _note(graph, link, direction, many[link.target] == 1)
        body.append(edge(points, f"{prefix}edge{e}" if prefix else "", note))
    for i, text, at in zip(drawn, lines, placed.boxes):
        key = f"{prefix}box{i}" if prefix else ""
        body.append(box(graph.vertices[i], text, at, size_of(text), key, i == graph.root))
    legend, legend_width = _legend({graph.vertices[i].kind for i in drawn})
    caption = title(graph)
    wide = max(placed.width, legend_width, 1.1 * svg.text_width(caption, SMALL)) + 2 * margin
    high = placed.height + 2 * margin + 46
    shift = (wide - placed.width) / 2
    moved = svg.element("g", body, transform=f"translate({svg.number(shift)} {svg.number(margin)})")
    foot = svg.element("g", legend, transform=f"translate({svg.number(margin)} {svg.number(high - 38)})")
    label = svg.text(margin, high - 12, caption, font_size=SMALL, class_="tg-muted")
    markup = svg.document(wide, high, moved, foot, label, title=caption, description=description(graph, direction))
    return markup, placed


def _note(graph: Graph, link: Link, direction: str, alone: bool) -> str:
    """Returns the note at the start of an edge: the number of the op's input, or of the output it comes from."""
    if direction == BACKWARD:
        folded = graph.vertices[link.target].kind == MODULE
        return "" if folded or (alone and not link.number) else str(link.number)
    return str(link.output) if len(graph.vertices[link.source].outputs) > 1 else ""


def _legend(kinds: set[str]) -> tuple[list[str], float]:
    """Draws a sample of each kind of box. Returns the samples and their total width."""
    parts, x = [], 0.0
    for kind, (fill, border, name) in KINDS.items():
        if kind in kinds:
            look: dict[str, Any] = {"fill": svg.colour(fill), "stroke": svg.colour(border)}
            look["stroke_dasharray"] = "4 3" if kind == INPUT else None
            look["rx"] = 5 if kind in (LEAF, INPUT) else 2
            parts.append(svg.element("rect", x=x, y=0, width=18, height=11, **look))
            parts.append(svg.text(x + 24, 9.5, name, font_size=SMALL, class_="tg-muted"))
            x += 24 + 1.1 * svg.text_width(name, SMALL) + 14
    return parts, x


def description(graph: Graph, direction: str) -> str:
    """Describes the picture in words: the first forty ops in order, each with its inputs."""
    sources: dict[int, list[str]] = {}
    for link in graph.links:
        sources.setdefault(link.target, []).append(graph.vertices[link.source].name or graph.vertices[link.source].kind)
    ops = [i for i, v in enumerate(graph.vertices) if v.kind in (OP, MODULE)]
    if not ops:
        return f"One tensor, {graph.vertices[graph.root].outputs[0]}."
    entries = []
    for i in ops if direction == FORWARD else reversed(ops):
        results = ", ".join(map(str, graph.vertices[i].outputs))
        entries.append(f"{graph.vertices[i].name} of {', '.join(sources.get(i, ['nothing']))}: {results}")
    rest = f"; and {len(entries) - 40} more" if len(entries) > 40 else ""
    order = "in the order of computation" if direction == FORWARD else "from the result back"
    return f"{counted(len(ops), 'box', 'boxes')} {order}: {'; '.join(entries[:40])}{rest}."
