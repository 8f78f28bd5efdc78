"""Sizes that vary: several traces of one program, at different sizes of its dynamic dimensions, become one graph.

What is the same in all traces is what it is. An integer that differs is a dimension, or follows from dimensions: a
multiple, a sum, a product, a quotient, the size of a tensor of the program; it becomes a node. What has no such
explanation in all traces is an error.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import tensorgrad
from tensorgrad._ops import ops
from tensorgrad.export.errors import OtherStepsError, UserError
from tensorgrad.fx import Graph, Node
from tensorgrad.onnx.sizes import Size, linear
from tensorgrad.tensor import Tensor


class Expression:
    """A size that varies: its values in all traces, how it is written, and how its node is made."""

    def __init__(self, values: tuple[int, ...], text: str, build: Callable[[], Node]) -> None:
        self.values, self.text, self._build = values, text, build
        self._node: Node | None = None

    def node(self) -> Node:
        """The node, made where the graph inserts now, or earlier."""
        if self._node is None:
            self._node = self._build()
            if self.text:
                self._node.meta["expression"] = self.text
        return self._node


class Sizes:
    """Makes the graphs of several traces into the first one, which holds for all sizes."""

    def __init__(self, graphs: list[Graph]) -> None:
        self.graphs, self.graph = graphs, graphs[0]
        self.known: dict[tuple, Expression] = {}
        self.dimensions: list[Expression] = []
        self.seen: dict[tuple, Expression] = {}  # sizes of tensors of the program so far

    def dimension(self, name: str, values: tuple[int, ...], place: tuple[Node, int], factor: int, shift: int) -> None:
        """Adds a dynamic dimension: the size of an input there is `factor * size + shift`."""
        node, axis = place
        given = tuple(factor * v + shift for v in values)

        def size() -> Node:
            return self._call(ops.aten.sym_size.int, (node, axis), "sym_size_int", given)

        def root() -> Node:
            made = size()
            if shift:
                made = self._call(operator.sub, (made, shift), "sub", tuple(v - shift for v in given))
            return self._call(operator.floordiv, (made, factor), "floordiv", values) if factor != 1 else made

        if values not in self.known:
            self.known[values] = Expression(values, name, root)
            self.dimensions.append(self.known[values])

    def merge(self) -> None:
        """Changes the first graph.

        Raises: UserError if the program does not do the same at all sizes, or a size does not follow from them.
        """
        lists = [list(graph.nodes) for graph in self.graphs]
        places = [{node: i for i, node in enumerate(nodes)} for nodes in lists]
        for nodes in lists[1:]:
            for i, node in enumerate(lists[0]):
                if i >= len(nodes) or _does(node) != _does(nodes[i]):
                    raise OtherStepsError(
                        "the program does something else at another size of its dynamic dimensions: "
                        f"{_shown(node)} at one, {_shown(nodes[i]) if i < len(nodes) else 'nothing more'} at another"
                    )
            if len(nodes) > len(lists[0]):
                raise OtherStepsError(f"the program does more at another size: {_shown(nodes[len(lists[0])])}")
        start = next(n for n in lists[0] if n.op != "placeholder")
        with self.graph.inserting_before(start):
            for dimension in self.dimensions:
                dimension.node()
        for i, node in enumerate(lists[0]):
            same = [nodes[i] for nodes in lists]
            with self.graph.inserting_before(node):
                try:
                    args = self._unify([n.args for n in same], places)
                    kwargs = self._unify([dict(n.kwargs) for n in same], places)
                except UserError as error:
                    raise UserError(f"{error} ({_shown(node)})") from None
            if node.op != "placeholder":
                node.args, node.kwargs = tuple(args), dict(kwargs)
            values = [n.meta.get("val") for n in same]
            self._describe(node, values)

    # --- the sizes of results ----------------------------------------------------------------------------------------

    def _describe(self, node: Node, values: list) -> None:
        if not all(isinstance(v, Tensor) for v in values):
            return
        if len({v.ndim for v in values}) > 1:
            raise UserError(f"a tensor has another number of dimensions at another size ({_shown(node)})")
        shape: list[int | str] = []
        for axis, sizes in enumerate(zip(*(v.shape for v in values), strict=True)):
            if len(set(sizes)) == 1:
                shape.append(sizes[0])
                continue
            values_ = tuple(map(int, sizes))
            found = self._algebra(values_, self.dimensions)
            text = f"{node.name}.size({axis})" if found is None else found.text
            if values_ not in self.seen:
                self.seen[values_] = Expression(values_, text, self._size_of(node, axis, values_))
            shape.append(text)
        node.meta["sizes"] = tuple(shape)

    def _size_of(self, node: Node, axis: int, values: tuple) -> Callable[[], Node]:
        return lambda: self._call(ops.aten.sym_size.int, (node, axis), "sym_size_int", values)

    # --- arguments ---------------------------------------------------------------------------------------------------

    def _unify(self, values: list, places: list[dict]) -> Any:
        first = values[0]
        if isinstance(first, Node):
            at = places[0][first]
            if any(not isinstance(v, Node) or p[v] != at for v, p in zip(values, places, strict=True)):
                raise UserError("one result is used at one size, another elsewhere")
            return first
        if isinstance(first, tuple | list):
            if any(not isinstance(v, tuple | list) or len(v) != len(first) for v in values):
                raise UserError(f"an argument is {first} at one size, and of another length elsewhere")
            made = [self._unify(list(items), places) for items in zip(*values, strict=True)]
            return tuple(made) if isinstance(first, tuple) else made
        if isinstance(first, dict):
            return {key: self._unify([v[key] for v in values], places) for key in first}
        if isinstance(first, slice):
            return slice(*(self._unify([getattr(v, n) for v in values], places) for n in ("start", "stop", "step")))
        if all(type(v) is type(first) and (v == first or v != v) for v in values):
            return first
        if all(type(v) is int for v in values):
            return self.expression(tuple(values)).node()
        if all(type(v) in (int, float) for v in values):
            return self._float(tuple(map(float, values)))
        raise UserError(f"an argument is {first!r} at one size of the dynamic dimensions, and another elsewhere")

    def expression(self, values: tuple[int, ...]) -> Expression:
        """The expression of a size. Raises: UserError if there is none."""
        found = self._algebra(values, self.dimensions) or self.seen.get(values)
        found = found or self._algebra(values, [*self.dimensions, *self.seen.values()])
        if found is None:
            raise UserError(
                f"a size is {' or '.join(map(str, values))} at the sizes that were tried, which does not follow from "
                "the dynamic dimensions in a known way"
            )
        return found

    def _algebra(self, values: tuple[int, ...], atoms: list[Expression]) -> Expression | None:
        """A size as arithmetic on others."""
        found = self.known.get(values)
        if found is None:
            found = self._found(values, atoms)
            if found is not None:
                self.known[values] = found
        return found

    def _found(self, values: tuple[int, ...], atoms: list[Expression]) -> Expression | None:
        for atom in atoms:
            made = self._affine(values, atom)
            if made is not None:
                return made
        for atom in atoms:
            made = self._quotient(values, atom)
            if made is not None:
                return made
        for count in (2, 3):
            for chosen in itertools.combinations_with_replacement(atoms[:12], count):
                made = self._product(values, chosen)
                if made is not None:
                    return made
        for one, other in itertools.combinations(atoms[:12], 2):
            rest = tuple(v - a for v, a in zip(values, one.values, strict=True))
            made = self._affine(rest, other) if len(set(rest)) > 1 else None
            if made is not None:
                return self._binary(operator.add, "add", one, made, values, f"{one.text} + {made.text}")
        return None

    def _affine(self, values: tuple, atom: Expression) -> Expression | None:
        if values == atom.values:
            return atom
        found = linear(Size(values), Size(atom.values))
        if found is None:
            return None
        factor, shift = found
        made = atom
        if factor != 1:
            scaled = tuple(factor * v for v in atom.values)
            made = self._binary(operator.mul, "mul", made, factor, scaled, f"{factor}*{_in_brackets(atom.text)}")
        if shift:
            name, function = ("add", operator.add) if shift > 0 else ("sub", operator.sub)
            text = f"{made.text} {'+' if shift > 0 else '-'} {abs(shift)}"
            made = self._binary(function, name, made, abs(shift), values, text)
        return made

    def _quotient(self, values: tuple, atom: Expression) -> Expression | None:
        common = math.gcd(*values)
        for factor in {1, common} if common else {1}:
            parts = tuple(v // factor for v in values)
            for q in range(2, 65):
                for k in sorted(range(1 - q, q), key=abs):
                    if all((a + k) // q == v for a, v in zip(atom.values, parts, strict=True)):
                        made = self._affine(tuple(a + k for a in atom.values), atom)
                        assert made is not None
                        text = f"({made.text})//{q}" if k else f"{_in_brackets(made.text)}//{q}"
                        made = self._binary(operator.floordiv, "floordiv", made, q, parts, text)
                        return made if factor == 1 else self._affine(values, made)
        return None

    def _product(self, values: tuple, chosen: tuple[Expression, ...]) -> Expression | None:
        products = [math.prod(v) for v in zip(*(c.values for c in chosen), strict=True)]
        if 0 in products or values[0] % products[0]:
            return None
        factor = values[0] // products[0]
        if any(factor * p != v for p, v in zip(products, values, strict=True)):
            return None
        made = chosen[0]
        for other in chosen[1:]:
            both = tuple(a * b for a, b in zip(made.values, other.values, strict=True))
            text = f"{_in_brackets(made.text)}*{_in_brackets(other.text)}"
            made = self._binary(operator.mul, "mul", made, other, both, text)
        return self._affine(values, made)

    def _binary(self, function: Any, name: str, a: Any, b: Any, values: tuple, text: str) -> Expression:
        def build() -> Node:
            given = tuple(v.node() if isinstance(v, Expression) else v for v in (a, b))
            return self._call(function, given, name, values)

        return Expression(values, text, build)

    def _float(self, values: tuple[float, ...]) -> Node:
        for atom in [*self.dimensions, *self.known.values(), *self.seen.values()]:
            for text, compute in _FLOATS:
                try:
                    same = all(compute(float(a)) == v for a, v in zip(atom.values, values, strict=True))
                except (ZeroDivisionError, OverflowError):
                    continue
                if same:
                    node = self._call(tensorgrad.sym_float, (atom.node(),), "sym_float", values)
                    if "**" in text:
                        node = self._call(operator.pow, (node, -0.5 if "-" in text else 0.5), "pow_1", values)
                    return self._call(operator.truediv, (1.0, node), "truediv", values) if "1/" in text else node
        raise UserError(
            f"a number is {' or '.join(map(str, values))} at the sizes that were tried, which does not follow from the "
            "dynamic dimensions in a known way"
        )

    def _call(self, function: Any, args: tuple, name: str, values: tuple) -> Node:
        node = self.graph.create_node("call_function", function, args, {}, name)
        node.meta["val"] = values[0]
        return node


_FLOATS: tuple[tuple[str, Callable[[float], float]], ...] = (
    ("x", lambda x: x),
    ("x**0.5", lambda x: x**0.5),
    ("x**-0.5", lambda x: x**-0.5),
    ("1/x", lambda x: 1.0 / x),
    ("1/x**0.5", lambda x: 1.0 / x**0.5),
)


def _in_brackets(text: str) -> str:
    return f"({text})" if any(sign in text for sign in (" ", "/")) else text


def _does(node: Node) -> tuple:
    if node.op == "get_attr":
        return (node.op,)
    return node.op, node.target if isinstance(node.target, str) and node.op != "placeholder" else str(node.target)


def _shown(node: Node) -> str:
    lines = (node.meta.get("stack_trace") or "").strip().splitlines()
    where = lines[-2].strip().removeprefix("File ") if len(lines) > 1 else ""
    return f"{node.target} at {where}" if where else str(node.target)
