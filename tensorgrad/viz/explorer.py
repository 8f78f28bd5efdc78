"""`viz.explore(loss, "backprop.html")`: a page that steps through one backward pass."""

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
from tensorgrad.viz.values import OutputKey, gradients, values

MOST = 1500  # vertices; with more, the page would be slow and too long to step through


def explore(
    loss: Tensor | Callable[[], Tensor],
    path: str | os.PathLike = "backprop.html",
    *,
    module: Any = None,
    names: Mapping[str, Tensor] | None = None,
    gradient: Tensor | None = None,
) -> Page:
    """Writes a page that steps through the computation of a tensor, and back through its gradients, node by node.

    For each node, the page shows the value, the gradient, the formulas from the op's row, and a heat map or a
    histogram; the picture of the graph fills in step by step. The page is a single file that loads nothing else. It
    works with the keyboard (arrow keys, Home, End, space), the mouse, touch and screen readers.

    The gradients are computed by one extra run of the engine that keeps the graph and leaves `.grad` unchanged. Call
    this before `backward()`, or use `backward(retain_graph=True)`. Hooks on tensors and nodes run as in `backward()`.
    The graph keeps only the values that its formulas need. Most others can be recomputed from them; the rest are shown
    as unknown. To see all values, pass `loss` as a function, which is then called and recorded, or compute it inside
    `viz.record()`.

    Args:
        loss: the tensor to start from, or a function without arguments that computes it.
        path: the file to write.
        module: the model, for the names of its parameters; see `tensor.render()`.
        names: names for other tensors.
        gradient: the initial gradient; required if `loss` is not a scalar.

    Returns:
        The path of the page. A notebook shows it as the page itself.

    Raises:
        TypeError: If `loss` is neither a tensor nor a function.
        RuntimeError: If the tensor has no graph, or the graph was freed.
        ValueError: If the graph has more than 1,500 nodes.

    >>> import os, tempfile
    >>> w = torch.tensor([1.0, -2.0], requires_grad=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = explore((w * w).sum(), os.path.join(folder, "backprop.html"), names={"w": w})
    ...     path.name, w.grad is None
    ('backprop.html', True)
    """
    if not isinstance(loss, Tensor):
        if not callable(loss):
            raise TypeError(f"loss: expected a tensor or a function that computes one, but got {type(loss).__name__}")
        with record(module):
            loss = loss()
    graph, targets = trace(loss, module, names)
    if not graph.ops:
        raise RuntimeError("explore: the tensor has no graph: it was not computed from a tensor that requires grad")
    if len(targets) > MOST:
        raise ValueError(
            f"explore: the graph has {len(targets)} nodes, but a page can show at most {MOST}; explore a smaller "
            "model, or draw the whole graph with render(module=model)"
        )
    cells = CELLS if len(targets) <= 100 else CELLS // 2
    found = gradients(loss, targets, gradient), values(loss, targets)
    data = {
        "vertices": [_described(graph, i, target, *found, cells) for i, target in enumerate(targets)],
        "steps": steps(graph),
    }
    return Page(write(path, page(graph, data)))


def steps(graph: Graph) -> list[dict]:
    """Returns the steps of the page: the vertices in the order of computation, then in the order of their gradients.

    The engine runs the most recent node first. A leaf's gradient is complete once the oldest op that uses it has run.

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


def _described(
    graph: Graph, i: int, target, grads: dict[OutputKey, Any], known: dict[OutputKey, Any], cells: int
) -> dict:
    """Returns everything that the page shows about one vertex."""
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
        "summary": row.summary,
        "derivatives": row.derivatives,
        "twin": row.twin,
        "saved": [[s.name, str(s.shape) if s.shape else s.text, kept(s)] for s in vertex.saved],
        "inputs": [{"vertex": a.source, "name": a.name, "number": a.number, "output": a.output}
                   for a in graph.links if a.target == i],
        "values": [digest(known[key, nr], cells) if (key, nr) in known else None for nr in outputs],
        "gradients": [digest(grads[key, nr], cells) if (key, nr) in grads else None for nr in outputs],
    }  # fmt: skip


def kept(saved: Saved) -> str:
    """Returns how much memory a saved value takes; "" if it is not a tensor."""
    if saved.shape is None:
        return ""
    return svg.size(saved.shape.nbytes) if saved.memory else "a leaf"


def page(graph: Graph, data: dict) -> str:
    """Builds the page from its template, stylesheet and script, which are next to this file."""
    files = resources.files("tensorgrad.viz")
    template, style, script = (files.joinpath(f"explorer.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    nodes = counted(sum(v.kind == OP for v in graph.vertices), "operation")
    leaves = counted(sum(v.kind == LEAF for v in graph.vertices), "leaf", "leaves")
    parts = {
        "title": svg.escape(title(graph)),
        "summary": svg.escape(f"{nodes}, {leaves}, {svg.size(graph.saved_bytes)} saved for the backward pass"),
        "style": svg.theme() + style,
        "graph": draw(graph, FORWARD, "v-")[0],
        "last": str(len(data["steps"]) - 1),
        # Escaped, so that no "</script>" in the data ends the element early; the JSON value is the same.
        "data": json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], template)
