"""`viz.explore(loss, "backprop.html")`: one backward pass as a page to step through."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

from tensorgrad.autograd.graph import Node
from tensorgrad.tensor import Tensor
from tensorgrad.viz import formulas, svg
from tensorgrad.viz.boxes import FORWARD, counted
from tensorgrad.viz.digest import CELLS, digest
from tensorgrad.viz.drawing import draw, title
from tensorgrad.viz.graph import INPUT, LEAF, OP, Graph, Saved, Vertex, trace
from tensorgrad.viz.picture import Page, write
from tensorgrad.viz.recording import record
from tensorgrad.viz.values import Place, gradients, values

MOST = 1500  # vertices; the page would be slow, and nobody would come to its end


def explore(
    loss: Tensor | Callable[[], Tensor],
    path: str | os.PathLike = "backprop.html",
    *,
    module: Any = None,
    names: Mapping[str, Tensor] | None = None,
    gradient: Tensor | None = None,
) -> Page:
    """Writes a page that steps through the computation of a tensor, and back through its gradients, node by node.

    For every node it shows the value, the gradient, the formulas as they stand in the op's row, and a heat map or a
    histogram; the picture of the graph fills as one steps. The page is one file, loads nothing, and is used with the
    keyboard (arrow keys, Home, End, space), the mouse, by touch or with a screen reader.

    The gradients are computed for this by one run of the engine, which keeps the graph and changes no `.grad`: so
    call this before `backward()`, or use `backward(retain_graph=True)`. Hooks on tensors and nodes run in it as they
    do in `backward()`. The graph keeps only the values that its formulas need; most others can be computed again from
    them, the rest are shown as unknown. All are known if `loss` is given as a function, which is then called with
    notes being taken, or if it was computed inside `viz.record()`.

    Args:
        loss: where gradients begin, or a function without arguments that computes it.
        path: the file to write.
        module: the model, for the names of its parameters; see `tensor.render()`.
        names: names for other tensors.
        gradient: the gradient to begin with, for a `loss` that is no scalar.

    Returns: the path of the page, which a notebook shows as the page itself.

    Raises: RuntimeError if the tensor has no graph or the graph was freed, ValueError for one of over 1,500 nodes.

    >>> import os, tempfile
    >>> import tensorgrad as torch
    >>> w = torch.tensor([1.0, -2.0], requires_grad=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = explore((w * w).sum(), os.path.join(folder, "backprop.html"), names={"w": w})
    ...     path.name, w.grad is None
    ('backprop.html', True)
    """
    if not isinstance(loss, Tensor):
        if not callable(loss):
            raise TypeError(f"loss: expected a tensor, or a function that computes it, got {type(loss).__name__}")
        with record(module):
            loss = loss()
    graph, targets = trace(loss, module, names)
    if not graph.ops:
        raise RuntimeError("explore: the tensor has no graph: nothing that requires grad went into it")
    if len(targets) > MOST:
        raise ValueError(
            f"explore: the graph has {len(targets)} nodes, which is more than a page can show ({MOST}); explore a "
            "smaller model, or look at the whole with render(module=model)"
        )
    cells = CELLS if len(targets) <= 100 else CELLS // 2
    found = gradients(loss, targets, gradient), values(loss, targets)
    data = {
        "vertices": [_described(graph, i, target, *found, cells) for i, target in enumerate(targets)],
        "steps": steps(graph),
    }
    return Page(write(path, page(graph, data)))


def steps(graph: Graph) -> list[dict]:
    """The order in which the page shows the vertices: as they were computed, then as gradients reach them.

    The engine takes the youngest node first. A leaf's gradient is complete when the oldest op that uses it has run.

    >>> import tensorgrad as torch
    >>> x = torch.tensor(2.0, requires_grad=True)
    >>> graph = trace(x.exp(), names={"x": x})[0]
    >>> [(s["phase"], graph.vertices[s["vertex"]].name) for s in steps(graph)]
    [('forward', 'x'), ('forward', 'exp'), ('backward', 'exp'), ('backward', 'x')]
    """
    first_use: dict[int, list[int]] = {}
    oldest: dict[int, int] = {}
    for link in graph.links:
        if graph.vertices[link.source].kind == LEAF:
            oldest[link.source] = min(oldest.get(link.source, link.target), link.target)
    for leaf, op in oldest.items():
        first_use.setdefault(op, []).append(leaf)
    found = [{"phase": "forward", "vertex": i} for i in range(len(graph.vertices))]
    for i in reversed(range(len(graph.vertices))):
        if graph.vertices[i].kind == OP:
            found += [{"phase": "backward", "vertex": j} for j in (i, *first_use.get(i, ()))]
    return found


def _described(graph: Graph, i: int, target, grads: dict[Place, Any], known: dict[Place, Any], cells: int) -> dict:
    """All that the page says of one vertex."""
    vertex: Vertex = graph.vertices[i]
    key = id(target[0]) if isinstance(target, tuple) else id(target)
    outputs = range(max(len(vertex.outputs), 1))
    row = formulas.of_node(target) if isinstance(target, Node) else formulas.Formula("", "", [])
    return {
        "kind": vertex.kind,
        "name": vertex.name or {LEAF: "leaf", INPUT: "input"}.get(vertex.kind, vertex.kind),
        "node": vertex.node_name,
        "scope": vertex.scope or "",
        "module": vertex.module,
        "arguments": vertex.arguments,
        "outputs": [str(shape) for shape in vertex.outputs],
        "signature": row.signature,
        "says": row.says,
        "derivatives": row.derivatives,
        "twin": row.twin,
        "saved": [[s.name, str(s.shape) if s.shape else s.text, kept(s)] for s in vertex.saved],
        "inputs": [{"vertex": a.source, "name": a.name, "number": a.number, "output": a.output}
                   for a in graph.links if a.target == i],
        "values": [digest(known[key, nr], cells) if (key, nr) in known else None for nr in outputs],
        "gradients": [digest(grads[key, nr], cells) if (key, nr) in grads else None for nr in outputs],
    }  # fmt: skip


def kept(saved: Saved) -> str:
    """How much memory a saved value takes; "" for what is no tensor."""
    if saved.shape is None:
        return ""
    return svg.size(saved.shape.nbytes) if saved.memory else "a leaf"


def page(graph: Graph, data: dict) -> str:
    """The page, from its template, stylesheet and script beside this file."""
    files = resources.files("tensorgrad.viz")
    template, style, script = (files.joinpath(f"explorer.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    nodes = counted(sum(v.kind == OP for v in graph.vertices), "operation")
    leaves = counted(sum(v.kind == LEAF for v in graph.vertices), "leaf", "leaves")
    parts = {
        "title": svg.escape(title(graph)),
        "summary": svg.escape(f"{nodes}, {leaves}, {svg.size(graph.saved_bytes)} saved for the way back"),
        "style": svg.theme() + style,
        "graph": draw(graph, FORWARD, "v-")[0],
        "last": str(len(data["steps"]) - 1),
        # What would end the script element early is written differently; JSON means the same.
        "data": json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], template)
