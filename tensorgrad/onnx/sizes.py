"""Several recordings of one program, at different sizes of its dynamic dimensions, as one list of steps.

What is the same in all of them is what it is. An integer that differs is a `Size`: its value in each recording. That is
enough to find the dimension that it comes from, and to check it (lowering.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorgrad.capture import Recording
from tensorgrad.dtypes import dtype as Dtype
from tensorgrad.fx import Node
from tensorgrad.onnx.errors import SymbolicValueError
from tensorgrad.tensor import Tensor


class Varying:
    """A value of the program that is not the same in all recordings."""

    def __init__(self, values: tuple) -> None:
        self.values = tuple(values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Varying) and self.values == other.values

    def __hash__(self) -> int:
        return hash(self.values)

    def __repr__(self) -> str:
        return " or ".join(map(str, self.values))

    def _refuse(self, *other: Any) -> Any:
        raise SymbolicValueError(
            f"a value that is {self} at the sizes that were tried has to be the same for all sizes here"
        )

    __index__ = __int__ = __float__ = __bool__ = __iter__ = __len__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __truediv__ = __mod__ = _refuse
    __neg__ = _refuse


class Size(Varying):
    """An integer that is not the same in all recordings."""


@dataclass
class Step:
    """A node of the first recording, with what differs in the others."""

    node: Node
    args: tuple
    kwargs: dict[str, Any]
    shapes: list[tuple[int, ...]] | None  # of the result in each recording
    dtype: Dtype | None
    constants: list[Any] = field(default_factory=list)  # of an attribute, in each recording

    @property
    def where(self) -> str:
        """The line of the program that did it."""
        return self.node.meta.get("where", "")


def unified(recordings: list[Recording]) -> list[Step]:
    """The steps of a program that was recorded at several sizes.

    Raises: SymbolicValueError if it does not do the same at all of them.
    """
    graphs = [list(recording.graph.nodes) for recording in recordings]
    first = graphs[0]
    places = [{node: i for i, node in enumerate(nodes)} for nodes in graphs]
    for nodes in graphs[1:]:
        for i, node in enumerate(first):
            if i >= len(nodes) or _does(node) != _does(nodes[i]):
                raise SymbolicValueError(
                    f"onnx.export(): the program does something else at another size of its dynamic dimensions: "
                    f"{_shown(node)} at the first, {_shown(nodes[i]) if i < len(nodes) else 'it ends'} at another"
                )
        if len(nodes) > len(first):
            raise SymbolicValueError(
                f"onnx.export(): the program does more at another size of its dynamic dimensions: "
                f"{_shown(nodes[len(first)])} is not done at the first"
            )
    steps = []
    for i, node in enumerate(first):
        same = [nodes[i] for nodes in graphs]
        values = [n.meta.get("val") for n in same]
        known = all(isinstance(v, Tensor) for v in values)
        step = Step(
            node,
            _unify([n.args for n in same], places),
            _unify([dict(n.kwargs) for n in same], places),
            [tuple(v.shape) for v in values] if known else None,
            values[0].dtype if known else None,
        )
        if node.op == "get_attr":
            step.constants = [r.lifted[str(n.target)] for r, n in zip(recordings, same, strict=True)]
        steps.append(step)
    return steps


def _does(node: Node) -> tuple:
    target = node.target
    op = getattr(target, "op", None)
    name = op.name if op is not None else target if isinstance(target, str) else getattr(target, "__name__", "")
    if node.op == "get_attr" and str(target).startswith(("_constant", "_value", "_tensor")):
        name = "a constant"
    return node.op, name


def _shown(node: Node) -> str:
    if node.op == "output":
        return "it ends"
    return f"{_does(node)[1]} {node.meta.get('where', '')}".strip()


def _unify(values: list, places: list[dict]) -> Any:
    first = values[0]
    if isinstance(first, Node):
        at = places[0][first]
        if any(not isinstance(v, Node) or place[v] != at for v, place in zip(values, places, strict=True)):
            raise SymbolicValueError(
                f"onnx.export(): {first.name} is used at one size of the dynamic dimensions, another result elsewhere"
            )
        return first
    if isinstance(first, tuple | list):
        if any(type(v) is not type(first) or len(v) != len(first) for v in values):
            return Varying(tuple(values))
        return tuple(_unify(list(items), places) for items in zip(*values, strict=True))
    if isinstance(first, dict):
        return {key: _unify([v[key] for v in values], places) for key in first}
    if isinstance(first, slice):
        return slice(*(_unify([getattr(v, name) for v in values], places) for name in ("start", "stop", "step")))
    if first.__class__ is int and any(v != first for v in values):
        return Size(tuple(values)) if all(v.__class__ is int for v in values) else Varying(tuple(values))
    if first.__class__ in (float, str, bool, type(None)) and any(v != first and v == v for v in values):
        return Varying(tuple(values))
    return first


def merged(shapes: list[tuple[int, ...]]) -> tuple[int | Size, ...]:
    """The shapes of a tensor in all recordings as one.

    >>> from tensorgrad.onnx.sizes import merged
    >>> merged([(2, 3), (5, 3)])
    (2 or 5, 3)
    """
    if len({len(shape) for shape in shapes}) > 1:
        raise SymbolicValueError(f"a tensor has {' or '.join(str(len(s)) for s in shapes)} dimensions")
    return tuple(d[0] if len(set(d)) == 1 else Size(d) for d in zip(*shapes, strict=True))


def linear(target: Varying, source: Size) -> tuple[int, int] | None:
    """Integers c and k so that target = c * source + k in all recordings, if there are any."""
    for t, s in zip(target.values[1:], source.values[1:], strict=True):
        if s != source.values[0]:
            c, rest = divmod(t - target.values[0], s - source.values[0])
            k = target.values[0] - c * source.values[0]
            if not rest and c and all(c * b + k == a for a, b in zip(target.values, source.values, strict=True)):
                return c, k
            return None
    return None


def divided(target: Varying, source: Size) -> tuple[int, int] | None:
    """Integers q and k so that target = (source + k) // q in all recordings, if there are any."""
    for q in range(2, 65):
        for k in sorted(range(1 - q, q), key=abs):
            if all((s + k) // q == t for t, s in zip(target.values, source.values, strict=True)):
                return q, k
    return None


def product(target: Varying, sources: list[Size]) -> int | None:
    """An integer c so that target = c * the product of the sources in all recordings, if there is one."""
    products = np.prod([s.values for s in sources], axis=0)
    if (products == 0).any():
        return None
    c, rest = divmod(target.values[0], int(products[0]))
    if rest or any(c * int(p) != t for t, p in zip(target.values, products, strict=True)):
        return None
    return c
