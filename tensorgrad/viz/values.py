"""The values and gradients of everything in a graph, for the explorer.

The graph keeps only the values that formulas need. The others come from a recording (`viz.record`), or are recomputed
where all inputs of an op are known. Gradients come from one run of the engine that keeps them all.
"""

from __future__ import annotations

from typing import Any

from tensorgrad.autograd import engine
from tensorgrad.autograd.function import FunctionCtx
from tensorgrad.autograd.gradients import roots_of
from tensorgrad.autograd.graph import FREED, Node
from tensorgrad.autograd.modes import no_grad
from tensorgrad.autograd.views import CopySlices, edge_of
from tensorgrad.tensor import Tensor, share
from tensorgrad.viz.graph import edge_names
from tensorgrad.viz.recording import noted

OutputKey = tuple[int, int]  # (id of a node, leaf or array; number of its output)


def gradients(tensor: Tensor, targets: list, gradient: Tensor | None = None) -> dict[OutputKey, Any]:
    """Returns the gradients of `tensor` with respect to the nodes' outputs and the leaves in `targets`, as arrays.

    The engine runs once, keeps the graph, and does not change the `.grad` of leaves. User hooks run as in `backward()`;
    the `.grad` of intermediate tensors with `retain_grad()` is restored afterwards.

    Raises: RuntimeError if the graph was freed by an earlier backward pass, or where `backward()` raises it.
    """
    edges: list[tuple] = []
    for target in targets:
        if isinstance(target, Node):
            edges += [(target, nr) for nr, (shape, *_) in enumerate(target.outputs) if shape is not None]
        elif isinstance(target, Tensor) and edge_of(target) is not None:
            edges.append((target, 0))
    if not edges:
        return {}
    retaining = [r() for t in targets if isinstance(t, Node) and t.hooks for r in t.hooks.retained.values()]
    kept = [(t, t._grad) for t in retaining if t is not None]
    for t, _ in kept:
        t._grad = None
    roots = roots_of([tensor], [gradient], False, "backward")
    try:
        found = engine.run(roots, keep_graph=True, create_graph=False, targets=edges)
    finally:
        for t, before in kept:
            t._grad = before
    return {(id(e[0]), e[1]): g._array for e, g in zip(edges, found or []) if g is not None}


def values(tensor: Tensor, targets: list) -> dict[OutputKey, Any]:
    """Returns the known values of the nodes' outputs, leaves and saved values in `targets`, as arrays.

    Memory that has since been written in place is left out, as its contents have changed.
    """
    known: dict[OutputKey, Any] = {}
    for target in targets:
        if isinstance(target, Tensor):
            known[id(target), 0] = target._array
        elif isinstance(target, tuple):
            _learn(known, (id(target[0]), 0), target)
    edge = edge_of(tensor)
    if edge is not None and isinstance(edge[0], Node):
        known[id(edge[0]), edge[1]] = tensor._array
    nodes = [t for t in targets if isinstance(t, Node)]
    for node in nodes:
        _from_notes(known, node)
        _from_saved(known, node)
    for node in nodes:  # in the order of computation: a recomputed value may be needed by the next node
        if (id(node), 0) not in known and len(node.outputs) == 1:
            array = _again(node, known)
            if array is not None:
                known[id(node), 0] = array
    return known


def _learn(known: dict, key: OutputKey, saved) -> None:
    """Adds a saved value, unless it has been written to since."""
    if saved.__class__ is tuple and saved[1].version == saved[2]:
        known.setdefault(key, saved[0])


def _from_notes(known: dict, node: Node) -> None:
    made = noted(node)
    for nr, saved in (made.values or {}).items() if made is not None else ():
        _learn(known, (id(node), nr), saved)


def _from_saved(known: dict, node: Node) -> None:
    """Adds the values that a node saves: some of its outputs, and some of its inputs (outputs of other nodes)."""
    if node.saved is FREED or isinstance(node, CopySlices):
        return
    if isinstance(node, FunctionCtx):
        for saved, edge in zip(node.saved, node.saved_edges):
            if edge is not None:
                key = (id(node), edge) if isinstance(edge, int) else (id(edge[0]), edge[1])
                _learn(known, key, saved)
        return
    edges = dict(zip(edge_names(node), node.edges))
    for name, raw in zip(node.op.saved, node.saved):
        if name in node.op.outputs:
            _learn(known, (id(node), node.op.outputs.index(name)), raw)
        named = [(f"{name}[{i}]", v) for i, v in enumerate(raw)] if raw.__class__ is list else [(name, raw)]
        for full, saved in named:
            edge = edges.get(full)
            if edge is not None:
                _learn(known, (id(edge[0]), edge[1]), saved)


def _again(node: Node, known: dict):
    """Recomputes the result of an op; returns None unless every argument is known."""
    if isinstance(node, FunctionCtx | CopySlices) or node.saved is FREED:
        return None
    args = []
    for p in node.op.params:
        found, value = _tensor(node, p, known) if p.is_tensor else _plain(node, p)
        if not found:
            return None
        args.append(value)
    try:
        with no_grad():
            result = node.op.compiled.plain(*args)
    except Exception:  # an argument was not what the op had received
        return None
    shape, dtype, _ = node.outputs[0]
    return result._array if result._array.shape == shape and result._array.dtype == dtype else None


def _tensor(node: Node, p, known: dict) -> tuple[bool, Any]:
    """Returns whether a tensor argument is known, and its value."""
    edge = dict(zip(edge_names(node), node.edges)).get(p.name)
    if edge is not None:
        key = (id(edge[0]), edge[1])
        return key in known, share(known[key], None) if key in known else None
    if f"{p.name}_shape" in node.op.kept and node.args[node.op.kept.index(f"{p.name}_shape")] is None:
        return p.default == "None", None
    if p.name in node.op.saved:
        saved = node.saved[list(node.op.saved).index(p.name)]
        if saved.__class__ is tuple:
            return saved[1].version == saved[2], share(saved[0], None)
        if isinstance(saved, int | float | complex):
            return True, saved
    return False, None


def _plain(node: Node, p) -> tuple[bool, Any]:
    """Returns whether a non-tensor argument is known, and its value."""
    if p.name in node.op.kept:
        return True, node.args[node.op.kept.index(p.name)]
    if p.annotation == "shape":  # the shape of the result
        return True, tuple(node.outputs[0][0])
    return p.annotation == "dtype", None  # a wrong guess shows in the dtype of the result
