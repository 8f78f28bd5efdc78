"""A trace: what one call of a region did, as a graph, and the tensors that went in and came out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tensorgrad.autograd.views import edge_of
from tensorgrad.capture import steps
from tensorgrad.capture.history import History, Refused, used_up
from tensorgrad.capture.nodes import Effect
from tensorgrad.capture.recorder import Recorder
from tensorgrad.capture.values import tensors
from tensorgrad.fx import Graph, Node
from tensorgrad.tensor import Tensor


class Trace:
    """What one call did.

    Attributes:
        graph: the graph. It ends with a tuple of `outputs`.
        attributes: what its `get_attr` nodes fetch.
        inputs: the tensors among the arguments, in order.
        result: what the function returned; its tensors are `returned`, and their nodes `outputs`.
        bases: for each of `returned`, the node of the tensor that it is a view of, or None.
        effects: writes, gradients, random draws, reads of values.
        history: the graph of autograd behind the results; None if there is none, or `refused` says why not.
    """

    refused: Refused | None = None
    history: History | None = None

    def __init__(self, function: Callable, args: tuple, kwargs: dict, watched: Iterable[Tensor]) -> None:
        """Runs `function(*args, **kwargs)`. `watched` are leaves whose gradients it may change."""
        recorder = Recorder("note", with_kernels=True)
        self.inputs = list(tensors((args, kwargs)))
        for leaf in watched:
            recorder.watch(leaf)
        with recorder:
            for i, tensor in enumerate(self.inputs):
                recorder.placeholder(f"arg{i}", tensor)
            edges = [edge_of(t) for t in self.inputs]
            self.result = function(*args, **kwargs)
            recorder.settle_gradients()
            recorder.check_versions()
            self.returned = list(tensors(self.result))
            self.outputs: list[Node] = [recorder.returned(t) for t in self.returned]
            self.bases = [None if t._view is None else recorder.node_of(t._view[0]) for t in self.returned]
            try:
                self.history = _history(recorder, self.returned, self.inputs, edges)
            except Refused as refused:
                self.refused = refused
            slots = [] if self.history is None else self.history.slots
            recorder.graph.output(tuple([*self.outputs, *[b for b in self.bases if b is not None], *slots]))
            recorder.finish()
        recorder.graph.eliminate_dead_code()
        found: Any = recorder.graph.output_node().args[0]
        self.outputs = list(found[: len(self.outputs)])
        rest = iter(found[len(self.outputs) :])
        self.bases = [None if base is None else next(rest) for base in self.bases]
        self.graph: Graph = recorder.graph
        self.attributes: dict[str, Any] = recorder.attributes
        self.effects: list[Effect] = recorder.effects
        if self.history is not None:
            self.history.settle(list(rest), self._owners())

    def _owners(self) -> Iterator[tuple[Any, Tensor]]:
        """What the program can write to after the call: (the tensor from outside or the node of a result, a tensor)."""
        for tensor in (*self.inputs, *self.lifted()):
            yield tensor, tensor
        for node, base, tensor in zip(self.outputs, self.bases, self.returned, strict=True):
            if all(tensor is not t for t in self.inputs):
                yield node if base is None else base, tensor

    def forget_results(self) -> None:
        """Lets go of what the call returned and of its graph: only what was computed is compared later."""
        self.result = None
        self.returned = []
        if self.history is not None:
            self.history.alive = []

    def lifted(self) -> list[Tensor]:
        """The tensors from outside that the graph uses."""
        used = dict.fromkeys(str(n.target) for n in self.graph.nodes if n.op == "get_attr")
        return [
            self.attributes[name]
            for name in used
            if isinstance(self.attributes[name], Tensor) and not name.startswith("_constant")
        ]


def _history(recorder: Recorder, results: list[Tensor], inputs: list[Tensor], edges: list[Any]) -> History | None:
    """The history of those results whose graph was not used up by a backward pass within. Raises: Refused."""
    given = {id(t) for t in inputs}
    left = [
        t for t in results
        if t.requires_grad and t._edge is not None and id(t) not in given and not used_up(t._edge[0])
    ]  # fmt: skip
    bases = [t._view[0] for t in left if t._view is not None and t._view[0].requires_grad]
    bases = [b for b in bases if b._edge is not None and id(b) not in given]
    return History(recorder, [*left, *bases], inputs, edges) if left else None


def difference(one: Trace, other: Trace) -> str:
    """What differs between two traces of the same region, in words; "" if nothing does."""
    first, second = list(one.graph.nodes), list(other.graph.nodes)
    places = [{n: i for i, n in enumerate(nodes)} for nodes in (first, second)]
    for a, b in zip(first, second, strict=False):
        if a.op != b.op or (a.op == "call_function" and a.target is not b.target):
            return f"it computed {_called(a)} the first time and {_called(b)} the second time"
        if a.op == "get_attr":
            x, y = one.attributes[str(a.target)], other.attributes[str(b.target)]
            if not _same_attribute(str(a.target), x, y):
                return f"'{a.target}', which it uses, was another one the second time"
        elif a.op != "placeholder" and (
            _canonical(a.args, places[0]) != _canonical(b.args, places[1])
            or _canonical(a.kwargs, places[0]) != _canonical(b.kwargs, places[1])
        ):
            return f"{_called(a)} had other arguments the second time: {b.args} in place of {a.args}"
        if _metadata(a) != _metadata(b):
            return f"{_called(a)} had a result of another shape or layout the second time"
    if one.history is not None and not one.history.same_as(other.history, lambda v: _canonical(v, {})):
        return "its results had another history the second time"
    if len(first) != len(second):
        return f"it took {len(first)} steps the first time and {len(second)} the second time"
    return ""


def _called(node: Node) -> str:
    return getattr(node.target, "__name__", str(node.target))


def _metadata(node: Node) -> Any:
    value = node.meta.get("val")
    return None if value is None else (value._array.shape, value._array.strides, value._array.dtype)


def _same_attribute(name: str, x: Any, y: Any) -> bool:
    if x is y:
        return True
    if isinstance(x, Tensor):
        return name.startswith("_constant") and isinstance(y, Tensor) and _bits(x) == _bits(y)
    return not isinstance(y, Tensor) and x.__class__ is y.__class__ and repr(x) == repr(y) and name[:8] in _BY_VALUE


_BY_VALUE = ("_outputs", "_value")


def _bits(x: Tensor) -> Any:
    array = x._array
    return (array.shape, array.strides, str(array.dtype), array.tobytes()) if hasattr(array, "tobytes") else id(x)


def _canonical(value: Any, places: dict[Node, int]) -> Any:
    """A value that is equal for equal arguments, and for nothing else."""
    if isinstance(value, Node):
        return "node", places[value]
    if isinstance(value, list | tuple):
        return value.__class__.__name__, *[_canonical(v, places) for v in value]
    if isinstance(value, dict):
        return "dict", *[(k, _canonical(v, places)) for k, v in value.items()]
    if isinstance(value, slice):
        return "slice", *[_canonical(v, places) for v in (value.start, value.stop, value.step)]
    if value is None or isinstance(value, int | float | complex | str):
        return value.__class__.__name__, repr(value)
    return value.__class__.__name__, repr(value) if value.__class__.__module__.startswith("tensorgrad") else id(value)


def reads(trace: Trace) -> list[str]:
    """The reads of values in a trace, in words, except those which a guard can stand for."""
    return [
        e.detail
        for e in trace.effects
        if e.kind == "read" and getattr(e.node, "target", None) is not steps.check_no_grad
    ]
