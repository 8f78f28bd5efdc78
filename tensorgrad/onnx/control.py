"""ONNX's operators with graphs of their own, `If`, `Loop`, `Scan` and their like: modules that run these.

Their loops end: a file may say at most `TURNS` turns in all that a call of the model makes, and what these keep may
have at most `KEPT` bytes.
"""

from __future__ import annotations

from typing import Any, ClassVar

import tensorgrad
from tensorgrad.dtypes import BY_NAME
from tensorgrad.nn import Module
from tensorgrad.onnx.model import NAMES, Graph, Node
from tensorgrad.onnx.operators.attention import for_heads
from tensorgrad.onnx.operators.table import PREVIEW, bounded, dtype_of
from tensorgrad.system.per_thread import PerThread

TURNS = 10_000_000
KEPT = 2**33


class _Budget(PerThread):
    """What the loops that run in a thread have used.

    Attributes:
        depth: how many of them run, one within another.
    """

    depth = turns = kept = 0


_budget = _Budget()


class _Loops(Module):
    """A module with a loop. It counts what it does, with the loops around it and within."""

    def __enter__(self) -> None:
        if not _budget.depth:
            _budget.turns = _budget.kept = 0
        _budget.depth += 1

    def __exit__(self, *exception: object) -> None:
        _budget.depth -= 1

    @staticmethod
    def _count(kept: Any = ()) -> None:
        """Counts a turn, and what it keeps."""
        _budget.turns += 1
        _budget.kept += sum(t.numel() * t.itemsize for t in kept if isinstance(t, tensorgrad.Tensor))
        if _budget.turns > TURNS or _budget.kept > KEPT:
            raise RuntimeError(
                f"onnx: loops of {_budget.turns} turns that keep {_budget.kept} bytes; {TURNS} turns and {KEPT} bytes "
                "are the most"
            )


class If(Module):
    """Runs one of two graphs. Both take the values of the graph around them that either uses."""

    GRAPHS: ClassVar = ("then_branch", "else_branch")

    def __init__(self, then: Module, other: Module) -> None:
        super().__init__()
        self.then_branch, self.else_branch = then, other

    @staticmethod
    def fits(node: Node, graphs: list[Graph]) -> bool:
        """Whether the graphs can be those of the operator."""
        return len(node.inputs) == 1 and all(
            not graph.arguments and len(graph.outputs) == len(node.outputs) for graph in graphs
        )

    @classmethod
    def of(cls, node: Node, parts: dict[str, Module]) -> If:
        """The module of an operator whose graphs are modules."""
        return cls(parts["then_branch"], parts["else_branch"])

    def forward(self, condition: Any, *outer: Any) -> tuple:
        """The results of the graph that the condition chooses."""
        return (self.then_branch if bool(condition) else self.else_branch)(*outer)


class Loop(_Loops):
    """Runs a graph again and again, with the values that it returned before.

    Args:
        body: takes the number of the turn, the condition, the values that are carried on, and those of the graph
            around it; returns the next condition, the next values, and what is kept of each turn.
        carried: how many values are carried on.
        empty: what is kept of no turns.
    """

    GRAPHS: ClassVar = ("body",)

    def __init__(self, body: Module, carried: int, empty: list[Any]) -> None:
        super().__init__()
        self.body, self.carried, self.empty = body, carried, empty

    @staticmethod
    def fits(node: Node, graphs: list[Graph]) -> bool:
        """Whether the graph can be that of the operator."""
        (graph,) = graphs
        return (
            2 <= len(node.inputs) == len(graph.arguments)
            and len(graph.outputs) == len(node.outputs) + 1
            and len(node.outputs) >= len(node.inputs) - 2
        )

    @classmethod
    def of(cls, node: Node, parts: dict[str, Module]) -> Loop:
        """The module of an operator whose graph is a module."""
        carried = len(node.inputs) - 2
        kept = node.attributes["body"].outputs[1 + carried :]
        return cls(parts["body"], carried, [(value.element_type, value.shape) for value in kept])

    def forward(self, turns: Any, condition: Any, *values: Any) -> tuple:
        """The last values, and what was kept of all turns, stacked."""
        state, outer = list(values[: self.carried]), values[self.carried :]
        kept: list[list[Any]] = [[] for _ in self.empty]
        condition = tensorgrad.tensor(True) if condition is None else condition
        turn = 0
        with self:
            while (turns is None or turn < int(turns)) and bool(condition):
                condition, *made = self.body(tensorgrad.tensor(turn), condition, *state, *outer)
                state = made[: self.carried]
                self._count(made[self.carried :])
                for one, value in zip(kept, made[self.carried :], strict=True):
                    one.append(value)
                turn += 1
        return (*state, *(_stacked(one, 0, *what) for one, what in zip(kept, self.empty, strict=True)))


def _stacked(values: list, axis: int, kind: int, shape: tuple | None) -> Any:
    """What was kept of all turns; of none, as the file says."""
    if values:
        return tensorgrad.stack(values, axis)
    sizes = bounded(size if isinstance(size, int) else 0 for size in shape or ())
    axis %= len(sizes) + 1
    return tensorgrad.zeros(*sizes[:axis], 0, *sizes[axis:], dtype=BY_NAME[NAMES.get(kind, "float32")])


class Scan(_Loops):
    """Runs a graph for each part of some tensors.

    Args:
        body: takes the values that are carried on, a part of each tensor, and the values of the graph around it;
            returns the next values, and what is kept of each turn.
        carried: how many values are carried on.
        inputs: for each tensor, the dimension that is taken apart, and whether from its end on.
        kept: for each result, the dimension in which the turns are, and whether the last turn is first.
        empty: what is kept of no turns.
    """

    GRAPHS: ClassVar = ("body",)

    def __init__(self, body: Module, carried: int, inputs: list, kept: list, empty: list) -> None:
        super().__init__()
        self.body, self.carried, self.inputs, self.kept, self.empty = body, carried, inputs, kept, empty

    @staticmethod
    def fits(node: Node, graphs: list[Graph]) -> bool:
        """Whether the graph can be that of the operator."""
        (graph,), count = graphs, node.attributes.get("num_scan_inputs")
        carried = len(node.inputs) - (count if isinstance(count, int) else 0)
        return (
            isinstance(count, int)
            and count > 0
            and 0 <= carried <= len(graph.outputs) == len(node.outputs)
            and len(node.inputs) == len(graph.arguments)
            and all(isinstance(value, list) for name, value in node.attributes.items() if name.startswith("scan_"))
        )

    @classmethod
    def of(cls, node: Node, parts: dict[str, Module]) -> Scan:
        """The module of an operator whose graph is a module."""
        given = node.attributes
        count = given["num_scan_inputs"]
        carried = len(node.inputs) - count
        kept = given["body"].outputs[carried:]
        inputs, results = (
            list(zip(_filled(given.get(f"scan_{what}_axes"), n), _filled(given.get(f"scan_{what}_directions"), n)))
            for what, n in (("input", count), ("output", len(kept)))
        )
        return cls(parts["body"], carried, inputs, results, [(value.element_type, value.shape) for value in kept])

    def forward(self, *values: Any) -> tuple:
        """The last values, and what was kept of all turns, stacked."""
        state, rest = list(values[: self.carried]), values[self.carried :]
        count = len(self.inputs)
        parts = [
            x.unbind(axis)[:: -1 if backwards else 1]
            for x, (axis, backwards) in zip(rest[:count], self.inputs, strict=True)
        ]
        kept: list[list[Any]] = [[] for _ in self.kept]
        with self:
            for turn in zip(*parts, strict=True):
                made = self.body(*state, *turn, *rest[count:])
                state = list(made[: self.carried])
                self._count(made[self.carried :])
                for one, value in zip(kept, made[self.carried :], strict=True):
                    one.append(value)
        found = zip(kept, self.kept, self.empty, strict=True)
        return (*state, *(_stacked(one[:: -1 if way[1] else 1], way[0], *what) for one, way, what in found))


def _filled(values: list | None, count: int) -> list[int]:
    """One integer for each; those that are not given are 0."""
    return [*(values or ())[:count], *[0] * (count - len(values or ()))]


class ScanOfBatches(Module):
    """`Scan` before version 9: for each element of a batch by itself, as far as its sequences go."""

    GRAPHS: ClassVar = ("body",)

    def __init__(self, scan: Scan) -> None:
        super().__init__()
        self.scan = scan

    @staticmethod
    def fits(node: Node, graphs: list[Graph]) -> bool:
        """Whether the graph can be that of the operator."""
        return bool(node.inputs) and Scan.fits(ScanOfBatches._newer(node), graphs)

    @staticmethod
    def _newer(node: Node) -> Node:
        given = {name: value for name, value in node.attributes.items() if name != "directions"}
        if "directions" in node.attributes:
            given["scan_input_directions"] = node.attributes["directions"]
        return Node(node.operator, node.inputs[1:], node.outputs, given)

    @classmethod
    def of(cls, node: Node, parts: dict[str, Module]) -> ScanOfBatches:
        """The module of an operator whose graph is a module."""
        return cls(Scan.of(cls._newer(node), parts))

    def forward(self, lengths: Any, *values: Any) -> tuple:
        """The results, with the batch first."""
        scan, made = self.scan, []
        count = scan.carried + len(scan.inputs)
        for i in range(values[0].shape[0]):
            given = [value[i] for value in values[:count]]
            if lengths is not None:
                given[scan.carried :] = [x[: int(lengths[i])] for x in given[scan.carried :]]
            made.append(scan(*given, *values[count:]))
        whole = values[scan.carried].shape[1]
        found = []
        for k, results in enumerate(zip(*made, strict=True)):
            if k >= scan.carried:
                results = tuple(tensorgrad.cat([r, r.new_zeros(whole - r.shape[0], *r.shape[1:])]) for r in results)
            found.append(tensorgrad.stack(results))
        return tuple(found)


class SequenceMap(_Loops):
    """Runs a graph for each element of sequences."""

    GRAPHS: ClassVar = ("body",)

    def __init__(self, body: Module, inputs: int) -> None:
        super().__init__()
        self.body, self.inputs = body, inputs

    @staticmethod
    def fits(node: Node, graphs: list[Graph]) -> bool:
        """Whether the graph can be that of the operator."""
        (graph,) = graphs
        return 0 < len(node.inputs) == len(graph.arguments) and len(node.outputs) == len(graph.outputs)

    @classmethod
    def of(cls, node: Node, parts: dict[str, Module]) -> SequenceMap:
        """The module of an operator whose graph is a module."""
        return cls(parts["body"], len(node.inputs))

    def forward(self, first: Any, *values: Any) -> tuple:
        """A sequence for each result. Inputs that are tensors are the same each time."""
        given, outer = (first, *values[: self.inputs - 1]), values[self.inputs - 1 :]
        made = []
        with self:
            for i in range(len(first)):
                made.append(self.body(*(v[i] if isinstance(v, list) else v for v in given), *outer))
                self._count(made[-1])
        count = len(self.body.graph.output_node().args[0])
        return tuple([results[k] for results in made] for k in range(count))


class FlexAttention(Module):
    """Attention whose scores, and whose shares after the softmax, graphs may change."""

    GRAPHS: ClassVar = ()
    OPTIONAL: ClassVar = ("score_mod", "prob_mod")

    def __init__(self, scale: float | None, precision: int, parts: dict[str, Module]) -> None:
        super().__init__()
        self.scale, self.precision = scale, precision
        self.score_mod, self.prob_mod = parts.get("score_mod"), parts.get("prob_mod")

    @staticmethod
    def fits(node: Node, graphs: list[Graph]) -> bool:
        """Whether the graphs can be those of the operator."""
        one = all(len(graph.arguments) == len(graph.outputs) == 1 for graph in graphs)
        return one and len(node.inputs) == 3 and len(node.outputs) == 1

    @classmethod
    def of(cls, node: Node, parts: dict[str, Module]) -> FlexAttention:
        """The module of an operator whose graphs are modules."""
        return cls(node.attributes.get("scale"), node.attributes.get("softmax_precision", 0), parts)

    def forward(self, q: Any, k: Any, v: Any, *outer: Any) -> tuple:
        """The results, of the type of the values."""
        wide = dtype_of(self.precision) if self.precision else tensorgrad.promote_types(q.dtype, tensorgrad.float32)
        root = (q.shape[-1] ** -0.5 if self.scale is None else self.scale) ** 0.5
        key, value = (for_heads(t, q.shape[1]) for t in (k, v))
        scores = ((q * root) @ (key * root).mT).to(wide)
        if self.score_mod is not None:
            (scores,) = self.score_mod(scores, *outer)
        shares = scores.softmax(-1)
        if self.prob_mod is not None:
            (shares,) = self.prob_mod(shares, *outer)
        return ((shares @ value.to(wide)).to(v.dtype),)


CONTROL: dict[str, Any] = {
    "If": If, "Loop": Loop, "Scan": Scan, "SequenceMap": SequenceMap, PREVIEW + "FlexAttention": FlexAttention,
}  # fmt: skip


def control_of(name: str, version: int) -> Any:
    """The module of an operator in a version; None if it has no graphs of its own."""
    return ScanOfBatches if name == "Scan" and version < 9 else CONTROL.get(name)
