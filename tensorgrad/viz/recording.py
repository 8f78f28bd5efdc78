"""Recording of a graph: in which module each node was created, and its inputs and results.

The graph itself keeps only what backward needs. `with viz.record(model):` adds an observer for ops (the mechanism that
DEBUG and the profiler use), which stores its notes on the node. They live exactly as long as the node.
"""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from tensorgrad.autograd.graph import Node
from tensorgrad.autograd.saved_tensors import save
from tensorgrad.rows import switches
from tensorgrad.tensor import Tensor

_KEY = "tensorgrad.viz"  # in `node.metadata`


class Model(NamedTuple):
    """What the notes record about the model: only names, so that they do not keep it alive."""

    classes: dict[str, str]  # path of a module -> its class
    owners: list[tuple[weakref.ref, str]]  # parameters and buffers, with their names


class Made(NamedTuple):
    """The notes on one node.

    `constants` are the tensor arguments that need no gradient, and `values` the results, by output number. Both are in
    the form in which nodes save tensors, (array, storage, version), or None if values are not recorded.
    """

    scope: str
    module: str  # the class of the module
    constants: list[tuple[str, tuple]] | None
    values: dict[int, tuple] | None
    model: Model


def noted(node: Node) -> Made | None:
    """Returns the notes on a node; None if it was created outside `viz.record()`."""
    notes = node.__dict__.get("_metadata") if hasattr(node, "__dict__") else None
    return None if notes is None else notes.get(_KEY)


class record(AbstractContextManager):
    """Records the inputs and results of every op run inside the block, and the module it ran in.

    Pictures can then fold exactly by module (`tensor.render()`), and the explorer can show every value. Ops are slower
    inside the block, and with `values=True` their results stay in memory as long as their graph.

    Args:
        module: the model whose modules to record.
        values: whether to keep inputs and results.

    >>> from tensorgrad import viz
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    >>> with viz.record(model):
    ...     y = model(torch.ones(1, 2))
    >>> [(v.name, v.scope, v.module) for v in viz.collect(y).vertices if v.kind == "op"]
    [('linear', '0', 'Linear'), ('relu', '1', 'ReLU')]
    """

    def __init__(self, module: Any = None, values: bool = True):
        self.values, self.module = values, module
        self.model = Model({}, [])
        if module is not None:
            tensors = (*module.named_parameters(), *module.named_buffers())
            classes = {name: type(m).__name__ for name, m in module.named_modules()}
            self.model = Model(classes, [(weakref.ref(tensor), name) for name, tensor in tensors])
        self.stack: list[str] = []
        self.handles: list = []

    def __enter__(self) -> record:
        switches.observe(self._observe, "viz.record")
        if self.module is not None:
            self.stack = []
            for name, module in self.module.named_modules():
                self.handles += [
                    module.register_forward_pre_hook(self._enter(name), prepend=True),
                    module.register_forward_hook(self._leave, always_call=True),
                ]
        return self

    def __exit__(self, *exception) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles = []
        switches.unobserve(self._observe, "viz.record")

    def _enter(self, name: str):
        def enter(module, args):
            self.stack.append(name)

        return enter

    def _leave(self, module, args, output) -> None:
        self.stack.pop()

    def _observe(self, op, args, result, start: float, seconds: float) -> None:
        results = result if isinstance(result, tuple) else (result,)
        edges = [(t, t._edge) for t in results if isinstance(t, Tensor) and t._edge is not None]
        if not edges or not isinstance(edges[0][1][0], Node):
            return
        node = edges[0][1][0]
        values = constants = None
        if self.values:
            values = {edge[1]: save(t) for t, edge in edges}
            constants = [(name, save(t)) for name, t in _tensors(op, args) if not t.requires_grad]
        scope = self.stack[-1] if self.stack else ""
        node.metadata[_KEY] = Made(scope, self.model.classes.get(scope, ""), constants, values, self.model)


def _tensors(op, args: tuple):
    """Yields the tensors among an op's arguments, with the names of their parameters."""
    for p, value in zip(op.params, args):
        if isinstance(value, Tensor):
            yield p.name, value
        elif p.annotation == "tensors":
            for i, v in enumerate(value):
                if isinstance(v, Tensor):
                    yield f"{p.name}[{i}]", v
