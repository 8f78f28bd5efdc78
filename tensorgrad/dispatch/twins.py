"""Twins: they run in place of missing kernels, and derivatives go through them.

A twin computes in simpler ops what a fused op computes. Where a device has no kernel for the op, the twin is the
kernel. Where the backward pass is itself recorded (`create_graph=True`), or the device has no backward kernel, the op's
gradients are those of its twin, run on what the node saved.
"""

from __future__ import annotations

from typing import Any

from tensorgrad.autograd import engine
from tensorgrad.autograd.graph import Node, next_sequence_nr
from tensorgrad.autograd.modes import GRAD
from tensorgrad.autograd.saved_tensors import unpack
from tensorgrad.autograd.views import edge_of
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.rows.op import Op
from tensorgrad.rows.signature import LIST, PLAIN_VALUE
from tensorgrad.rows.switches import LOCAL
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor, share, wrap


class _Running:
    """A context in which a twin runs: recorded or not, and without autocast, which has cast the op's inputs already."""

    def __init__(self, recorded: bool):
        self.recorded = recorded

    def __enter__(self):
        self.autocast, self.before = LOCAL.autocast, GRAD.enabled
        LOCAL.autocast, GRAD.enabled = None, self.recorded

    def __exit__(self, *exception):
        LOCAL.autocast, GRAD.enabled = self.autocast, self.before


def twin_kernel(op: Op, storage=None):
    """A kernel, arrays to arrays, that runs the op's twin without recording; None for an op without one."""
    if op.twin is None:
        return None

    def kernel(*values):
        tensors = []
        for p, value in zip(op.params, values, strict=True):
            if p.kind is PLAIN_VALUE or value is None or value.__class__ not in STORAGES:
                tensors.append([wrap(v) for v in value] if p.kind is LIST else value)
            else:
                tensors.append(wrap(value))
        with _Running(False):
            result = op.twin(*tensors)  # type: ignore[misc]
        return result._array if isinstance(result, Tensor) else tuple(r._array for r in result)

    kernel.twin = op.twin  # type: ignore[attr-defined]
    return kernel


def gradients(node: Node, grads) -> list:
    """The gradients of a node's inputs through the twin of its op; in the graph, if the pass is being recorded."""
    op, recorded = node.op, GRAD.enabled
    edges = dict(zip(op.wrt, node.edges, strict=True))
    values = {**dict(zip(op.saved, node.saved, strict=True)), **dict(zip(op.kept, node.args, strict=True))}
    stops: dict[str, Any] = {}  # input that needs a gradient -> the tensor that the twin gets for it
    with _Running(True):
        for name in (p.name for p in op.params if p.is_tensor):
            edge = edges.get(name)
            values[name] = unpack(node, values[name], edge)
            if edge is not None:
                values[name] = stops[name] = _stop(values[name])
        results = op.twin(*[values[p.name] for p in op.params])
        pairs = zip((results,) if isinstance(results, Tensor) else results, grads)
        roots = [(edge, g) for edge, g in ((edge_of(r), g) for r, g in pairs if g is not None) if edge is not None]
        targets = [stop._edge for stop in stops.values()]
        found = engine.run(roots, keep_graph=recorded, create_graph=recorded, targets=targets)
    given = {}
    for (name, stop), g in zip(stops.items(), found, strict=True):
        if recorded:
            stop._edge[0].edges = (edges[name],)
        given[name] = stop.new_zeros(stop.shape) if g is None else g
    return [given.get(name) for name in op.wrt]


def _stop(x: Tensor) -> Tensor:
    """The same values with a new node, at which the pass through the twin stops.

    During that pass the node has no edges, so that nothing before it is visited; afterwards it leads to the real input.
    """
    made = share(x._array, x._storage)
    node = object.__new__(Node)
    node.op, node.edges, node.saved, node.args, node.hooks = OPS["alias"], (None,), (), (), None
    node.outputs = ((x._array.shape, x._array.dtype, x._array.__class__),)
    node.sequence_nr = next_sequence_nr()
    made._edge, made._requires_grad = (node, 0), True
    return made
