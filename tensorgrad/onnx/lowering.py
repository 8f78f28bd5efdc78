"""From recorded steps to a graph of ONNX operators.

ONNX has neither views nor writes. So each tensor of the program has a `Place`: a root has a value; a view has a parent
and the step that made it. A write gives the root another value; views are made again when they are next used.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tensorgrad.autograd.modes import no_grad
from tensorgrad.capture import record, steps
from tensorgrad.dtypes import dtype as Dtype
from tensorgrad.fx import Node
from tensorgrad.onnx.branches import Choice
from tensorgrad.onnx.builder import Builder, Value
from tensorgrad.onnx.errors import OnnxExporterError, SymbolicValueError, UnsupportedOperatorError
from tensorgrad.onnx.model import element_type
from tensorgrad.onnx.sizes import Size, Step, Varying, unified
from tensorgrad.onnx.translations import TABLE
from tensorgrad.system.progress import say
from tensorgrad.tensor import Tensor

_TOLD = 100  # operations between two messages
LARGEST_FOLDED = 2**20  # elements of a constant that is computed when the program is exported


class Place:
    """Where a tensor of the program is: a root, or a view of another place."""

    def __init__(self, value: Value | None, parent: Place | None = None, make: Callable | None = None) -> None:
        self.value, self.parent, self.make = value, parent, make
        self.version = 0  # of a root: how often it was written to; of a view: that of the root when it was made

    @property
    def root(self) -> Place:
        """The place at the end of the parents."""
        place = self
        while place.parent is not None:
            place = place.parent
        return place


def value_of(place: Place) -> Value:
    """The value of a place now."""
    if place.parent is None:
        assert place.value is not None
        return place.value
    version = place.root.version
    if place.version != version or place.value is None:
        place.value, place.version = place.make(value_of(place.parent)), version  # type: ignore[misc]
    return place.value


class Lowering:
    """Translates steps, and keeps what they made."""

    def __init__(
        self, builder: Builder, custom: dict[str, Callable] | None = None, names: Any = None, fold: bool = False
    ) -> None:
        self.g = builder
        self.fold = fold  # are weights constants?
        self.custom = custom or {}
        self.names: dict[int, str] = names or {}  # id of a tensor -> its name in the state_dict
        self.parameters: dict[int, Value] = {}
        self.kept: list[Any] = []  # tensors whose ids are keys

    def run(self, steps: list[Step], inputs: list[Place]) -> list[Place]:
        """The places of the results of a program whose inputs are at `inputs`."""
        return _Program(self, steps, inputs).run()

    def values_of(self, value: Value) -> np.ndarray | None:
        """The values of a constant."""
        weight = self.g.initializers.get(value.name) if self.fold else None
        return value.array if weight is None else weight.array

    def parameter(self, step: Step) -> Value:
        """A tensor from outside of the program."""
        tensor = step.constants[0]
        if any(t is not tensor for t in step.constants):
            return self.constant(step)
        if id(tensor) not in self.parameters:
            array = _array(tensor)
            name = str(step.node.target)
            if id(tensor) not in self.names and name.startswith(("_constant", "_tensor")) and array.size <= 4096:
                value = self.g.constant(array, tensor.dtype)
            else:
                value = self.g.initializer(self.names.get(id(tensor), name.lstrip("_")), array, tensor.dtype)
            value.shapes = [array.shape] * self.g.recordings
            self.parameters[id(tensor)] = value
            self.kept.append(tensor)
        return self.parameters[id(tensor)]

    def constant(self, step: Step) -> Value:
        """A tensor that the program made of plain values: perhaps another one at other sizes."""
        arrays = [_array(t) for t in step.constants]
        dtype = step.constants[0].dtype
        if all(
            a.shape == arrays[0].shape and np.array_equal(a, arrays[0], equal_nan=a.dtype.kind == "f") for a in arrays
        ):
            return self.g.constant(arrays[0], dtype)
        made = self._filled(arrays, dtype) or self._counted(arrays, dtype)
        if made is None:
            raise SymbolicValueError(
                f"a constant of shape {' or '.join(str(list(a.shape)) for a in arrays)} does not follow from the "
                "dynamic dimensions in a known way: constants of one value, and torch.arange, do"
            )
        made.shapes = [a.shape for a in arrays]
        return made

    def _filled(self, arrays: list[np.ndarray], dtype: Dtype) -> Value | None:
        values = [a.reshape(-1)[:1] for a in arrays]
        if any(not a.size or not (a == v).all() for a, v in zip(arrays, values, strict=True)):
            return None
        numbers = tuple(v.item() for v in values)
        fill: Any = numbers[0]
        if any(n != fill for n in numbers):
            fill = Size(numbers) if dtype.numpy.kind in "iu" else Varying(numbers)
        shape = [d[0] if len(set(d)) == 1 else Size(d) for d in zip(*[a.shape for a in arrays], strict=True)]
        return self.g.expand(self.g.operand(fill, dtype), shape)

    def _counted(self, arrays: list[np.ndarray], dtype: Dtype) -> Value | None:
        if any(a.ndim != 1 or len(a) < 2 or a.dtype.kind not in "iuf" for a in arrays):
            return None
        steps = {float(a[1] - a[0]) for a in arrays}
        if len(steps) > 1 or any(not np.allclose(np.diff(a.astype(float)), next(iter(steps))) for a in arrays):
            return None
        g, step = self.g, arrays[0][1] - arrays[0][0]
        starts = tuple(a[0].item() for a in arrays)
        if dtype.numpy.kind == "f" and any(float(v) % 1 for v in (*starts, step)):
            return None
        lengths = Size(tuple(len(a) for a in arrays)) if len({len(a) for a in arrays}) > 1 else len(arrays[0])
        zero, one = g.constant(np.int64(0)), g.constant(np.int64(1))
        count = g.op("Range", zero, g.op("Squeeze", g.size(lengths), [0]), one)
        if int(step) != 1:
            count = g.op("Mul", count, g.constant(np.int64(step)))
        if any(starts):
            start = int(starts[0]) if len(set(starts)) == 1 else Size(tuple(map(int, starts)))
            count = g.op("Add", count, g.size(start))
        return g.cast(count, dtype)


class _Program:
    """The translation of one list of steps: of the program itself, or of an op's twin."""

    def __init__(self, lowering: Lowering, steps: list[Step], inputs: list[Place]) -> None:
        self.lowering, self.g, self.steps = lowering, lowering.g, steps
        self.given = iter(inputs)
        self.places: dict[Node, Any] = {}  # a place, or several
        self.of: dict[Node, Step] = {step.node: step for step in steps}
        self.items: dict[Node, dict[int, Step]] = {}  # the results of a step that has several
        for step in steps:
            if getattr(step.node.target, "__name__", "") == "getitem":
                self.items.setdefault(step.args[0], {})[step.args[1]] = step

    def run(self) -> list[Place]:
        results: list[Place] = []
        for i, step in enumerate(self.steps):
            if i % _TOLD == 0:
                say(f"translating operation {i + 1} of {len(self.steps)}")
            node = step.node
            if node.op == "output":
                results = [self.places[n] for n in self._tensors(step.args)]
                break
            try:
                with self.g.coming_from(node):
                    self._step(step)
            except OnnxExporterError as error:
                if getattr(error, "located", False):
                    raise
                located = type(error)(f"onnx.export(): {_name(node)}{step.where and ' ' + step.where}: {error}")
                located.located = True  # type: ignore[attr-defined]
                raise located from error
        return results

    def _tensors(self, value: Any) -> Iterator[Node]:
        """The nodes of tensors in a result, in order: through the calls that make containers of them."""
        if isinstance(value, Node):
            if self.places.get(value) is not None:
                yield value
            elif value.op == "call_function":
                yield from self._tensors((self.of[value].args, self.of[value].kwargs))
        elif isinstance(value, tuple | list):
            for v in value:
                yield from self._tensors(v)
        elif isinstance(value, dict):
            yield from self._tensors(tuple(value.values()))

    # --- steps -------------------------------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        node = step.node
        if node.op == "placeholder":
            self.places[node] = next(self.given)
        elif node.op == "get_attr":
            if isinstance(step.constants[0], Tensor):
                constant = str(node.target).startswith("_constant")
                value = self.lowering.constant(step) if constant else self.lowering.parameter(step)
                self.places[node] = Place(value)
        elif hasattr(node.target, "op"):
            self._row(step, node.target.op)
        else:
            self._other(step)

    def _other(self, step: Step) -> None:
        """What is recorded beside the ops (capture/steps.py)."""
        node, target = step.node, step.node.target
        name = getattr(target, "__name__", "")
        if name == "getitem":
            places = self.places.get(step.args[0])
            if places is not None:
                self.places[node] = places[step.args[1]]
        elif name == "detach":
            self.places[node] = self.places[step.args[0]]
        elif target is steps.empty:
            value = self.g.expand(self.g.constant(np.zeros((), step.args[1].numpy), step.args[1]), step.args[0])
            value.shapes = step.shapes
            self.places[node] = Place(value)
        elif target is steps.write:
            self._write(self.places[step.args[0]], self._value(step.args[1]), self.of[step.args[0]])
        elif target is steps.add_to:
            place, made = self.places[step.args[0]], self.of[step.args[0]]
            self.g.near = []
            before = value_of(place)
            self._write(place, self.g.op("Add", before, self.g.operand(self._value(step.args[1]), before.dtype)), made)
        elif target is steps.view_of_memory:
            self.places[node] = self._view_of_memory(step)
        elif target in (steps.check_shape, steps.check_values, steps.check_no_grad):
            return  # of values of this run only: reads of the program's have raised an error
        elif name in self.lowering.custom or name in TABLE:
            args = tuple(self._value(a) for a in step.args)
            self._made(step, lambda: self._translated(step, name, args, {}))
        elif not any(True for _ in self._tensors(step.args)) or node.meta.get("val") is None:
            if getattr(target, "__module__", "") == steps.__name__:
                raise UnsupportedOperatorError("gradients, optimizers and seeds cannot be exported")
        else:
            raise UnsupportedOperatorError("there is no translation to ONNX")

    def _row(self, step: Step, op: Any) -> None:
        args = self._bound(op, step)
        if op.kind in ("view", "views") and op.name not in self.lowering.custom:
            place = self.places[step.args[0]]
            if place.root.value is not None and op.name != "real":
                if op.name == "alias":
                    self.places[step.node] = place
                    return
                self._view(step, op, place, args)
                return
        self._made(step, lambda: self._computed(step, op, args))

    def _view(self, step: Step, op: Any, place: Place, args: dict[str, Any]) -> None:
        first = op.params[0].name

        def make(parent: Value) -> Any:
            with self.g.coming_from(step.node):
                return self._computed(step, op, {**args, first: parent})

        if op.kind == "view":
            made = Place(None, place, make)
            made.version = -1
            self.places[step.node] = made
            return
        count = len(step.node.meta["val"]) if "val" in step.node.meta else self._parts(step, op, args)
        parts = []
        for i in range(count):
            part = Place(None, place, lambda parent, i=i: _one(make, parent, i, memory))
            part.version = -1
            parts.append(part)
        memory: dict[str, list] = {}
        self.places[step.node] = parts

    def _parts(self, step: Step, op: Any, args: dict[str, Any]) -> int:
        if op.name == "unbind":
            size = args["input"].shape[args["dim"]]
            if isinstance(size, Size):
                raise SymbolicValueError("the number of parts depends on a dynamic dimension")
            return int(size)
        if isinstance(args["sizes"], Varying):
            raise SymbolicValueError("the number of parts depends on a dynamic dimension")
        return len(args["sizes"])

    def _made(self, step: Step, make: Callable[[], Any]) -> None:
        made = make()
        if "start" in step.node.meta:  # of a loop: not known to be a constant in it
            shape = made.shapes or [made.array.shape] * self.g.recordings
            made = self.g.op("Identity", made)
            made.shapes = shape
        if "choice" in step.node.meta:
            meta = step.node.meta
            self.g.choices[made.name] = Choice(meta["choice"], meta["loop"], element_type(made.dtype))
        if step.node in self.items and not isinstance(made, tuple | list):
            made = (made, *[None] * max(self.items[step.node]))  # the others are not used, but for derivatives
        if isinstance(made, tuple | list):
            self.places[step.node] = [None if v is None else Place(v) for v in made]
        else:
            self.places[step.node] = Place(made)

    def _bound(self, op: Any, step: Step) -> dict[str, Any]:
        given: dict[str, Any] = dict(zip((p.name for p in op.params), step.args, strict=False))
        given.update(step.kwargs)
        for p in op.params:
            if p.name not in given:
                given[p.name] = literal_eval(p.default) if p.default else None
        return {name: self._value(value) for name, value in given.items()}

    def _value(self, argument: Any) -> Any:
        if isinstance(argument, Node):
            place = self.places.get(argument)
            if isinstance(place, Place):
                return value_of(place)
            step = self.of[argument]
            if step.constants:
                return step.constants[0]
            raise UnsupportedOperatorError(f"{argument.name} is not a tensor")
        if isinstance(argument, tuple | list):
            return tuple(self._value(a) for a in argument)
        return argument

    # --- values ------------------------------------------------------------------------------------------------------

    def _computed(self, step: Step, op: Any, args: dict[str, Any]) -> Any:
        """The result of a row: folded, translated, or by its twin."""
        folded = self._folded(step, op, args)
        if folded is not None:
            return folded
        if op.name in self.lowering.custom or op.name in TABLE:
            try:
                return self._translated(step, op.name, (), args)
            except NotImplementedError as error:
                reason = f": {error}"
        else:
            reason = ""
        if op.twin is not None:
            return self._by_twin(step, op, args)
        raise UnsupportedOperatorError(f"{op.name} has no translation to ONNX{reason}")

    def _folded(self, step: Step, op: Any, args: dict[str, Any]) -> Any:
        """The result of a row whose tensors are all constants; of weights, if it is less than half as large.

        Parts of a floating-point weight stay parts of it, by its name: they may be all of it together.
        """
        given = [v for a in args.values() for v in (a if isinstance(a, tuple) else (a,))]
        tensors = [v for v in given if isinstance(v, Value)]
        arrays = {id(v): self.lowering.values_of(v) for v in tensors}
        if (
            not tensors
            or any(array is None for array in arrays.values())
            or op.kind == "sample"
            or op.name in self.lowering.custom
        ):
            return None
        if any(isinstance(v, Varying) for v in _leaves(tuple(args.values()))):
            return None
        shapes = self._result_shapes(step)
        weights = [arrays[id(v)].size for v in tensors if v.array is None]  # type: ignore[union-attr]
        largest = min(LARGEST_FOLDED, max(weights) // 2) if weights else LARGEST_FOLDED
        if any(s is not None and (any(d != s[0] for d in s) or np.prod(s[0]) > largest) for s in shapes):
            return None
        if weights and (not any(shapes) or (op.kind in ("view", "views") and tensors[0].dtype.is_floating_point)):
            return None
        import tensorgrad

        def tensor(value: Any) -> Any:
            if isinstance(value, Value):
                return tensorgrad.from_numpy(np.array(arrays[id(value)]))
            return tuple(tensor(v) for v in value) if isinstance(value, tuple) else value

        with no_grad():
            made = op.compiled.plain(*[tensor(args[p.name]) for p in op.params])
        if isinstance(made, tuple | list):
            return tuple(self.g.constant(_array(t), t.dtype) for t in made)
        return self.g.constant(_array(made), made.dtype)

    def _result_shapes(self, step: Step) -> list:
        return [shapes for _, shapes in self._results(step)]

    def _results(self, step: Step) -> list[tuple[Dtype | None, list | None]]:
        if step.node not in self.items:
            return [(step.dtype, step.shapes)]
        items = self.items[step.node]
        found = [items.get(i) for i in range(max(max(items) + 1, 3))]
        return [(None, None) if item is None else (item.dtype, item.shapes) for item in found]

    def _translated(self, step: Step, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        g = self.g
        before = g.results, g.near
        g.results = self._results(step)
        if name == "unbind":
            g.results = [(None, None)] * int(kwargs["input"].shape[kwargs["dim"]])
        g.near = [v for v in _leaves((*args, *kwargs.values())) if isinstance(v, Value)]
        try:
            custom = self.lowering.custom.get(name)
            if custom is not None:
                made = custom(g, *args, *kwargs.values())
            else:
                made = TABLE[name](g, *args, **kwargs)
        finally:
            g.results, g.near = before
        results = self._results(step)
        single = not isinstance(made, tuple | list)
        for value, (dtype, shapes) in zip((made,) if single else made, results, strict=False):
            if value is not None and dtype is not None:
                value.dtype = dtype
                if value.array is None and value.shapes is None:
                    value.shapes = shapes
        return made

    def _by_twin(self, step: Step, op: Any, args: dict[str, Any]) -> Any:
        """The result of a row by its twin, which is recorded at the same sizes."""
        import tensorgrad

        values = [args[p.name] for p in op.params]
        tensors = [v for v in values if isinstance(v, Value)]
        recordings = []
        for i in range(self.g.recordings):

            def example(value: Any, i: int = i) -> Any:
                if isinstance(value, Value):
                    if value.array is not None:
                        return tensorgrad.from_numpy(np.array(value.array))
                    return tensorgrad.zeros(value.shapes[i], dtype=value.dtype)  # type: ignore[index]
                if isinstance(value, Varying):
                    return value.values[i]
                return tuple(example(v) for v in value) if isinstance(value, tuple) else value

            examples = [example(v) for v in values]
            with no_grad():
                recordings.append(record(op.twin, *examples, on_read="note"))
        return self._inlined(recordings, tensors)

    def _inlined(self, recordings: list, tensors: list[Value]) -> Any:
        program = _Program(self.lowering, unified(recordings), [Place(v) for v in tensors])
        made = [value_of(p) for p in program.run()]
        return tuple(made) if isinstance(recordings[0].result, tuple | list) else made[0]

    # --- writes ------------------------------------------------------------------------------------------------------

    def _write(self, place: Place, value: Any, step: Step) -> None:
        """Gives a place another value, and with it all that share its memory."""
        g = self.g
        g.near = []
        before = value_of(place)
        given = g.operand(value, before.dtype)
        if not isinstance(value, Value) or value.shapes != before.shapes:
            g.near = [before]
            given = g.expand(given, before.shape)
        if given.shapes is None and given.array is None:
            given = Value(given.name, given.dtype, before.shapes)
        root = place.root
        if place is not root:
            whole = value_of(root)
            g.near = [whole]
            at = self._positions(place, whole)
            flat = g.reshape(whole, (-1,)) if whole.array is not None else g.op("Reshape", whole, [-1])
            made = g.op("ScatterElements", flat, at, g.op("Reshape", given, [-1]), axis=0)
            made = g.op("Reshape", made, self._shape_of(whole))
            made.shapes = whole.shapes or [whole.array.shape] * g.recordings  # type: ignore[union-attr]
            root.value = made
        else:
            root.value = given
        root.version += 1
        place.version, place.value = root.version, given

    def _shape_of(self, value: Value) -> Value:
        return self.g.ints(value.shape)

    def _positions(self, place: Place, whole: Value) -> Value:
        """Where the elements of a view are in its root: what the same view of their numbers shows."""
        g = self.g
        if not any(isinstance(d, Size) for d in whole.shape):
            numbers = g.constant(np.arange(int(np.prod(whole.shape)), dtype=np.int64).reshape(whole.shape))  # type: ignore[arg-type]
        else:
            count = g.op("Squeeze", g.op("ReduceProd", self._shape_of(whole), [0], keepdims=1), [0])
            numbers = g.op("Range", g.constant(np.int64(0)), count, g.constant(np.int64(1)))
            numbers = g.op("Reshape", numbers, self._shape_of(whole))
            numbers.shapes = whole.shapes
        chain = []
        while place.parent is not None:
            chain.append(place)
            place = place.parent
        for view in reversed(chain):
            numbers = view.make(numbers)  # type: ignore[misc]
        if numbers.array is not None:
            return g.constant(numbers.array.reshape(-1))
        return g.op("Reshape", numbers, [-1])

    def _view_of_memory(self, step: Step) -> Place:
        """A view by strides: of a tensor in rows it is found by the positions of its elements."""
        source, shape, strides, offset, dtype = step.args
        of = self.of[source].node.meta["val"]
        place = self.places[source]
        if any(isinstance(v, Varying) for v in _leaves((shape, strides, offset))) or dtype is not of.dtype:
            raise UnsupportedOperatorError("a view by strides, of dynamic dimensions or another dtype")
        if not of.is_contiguous():
            raise UnsupportedOperatorError("a view by strides, of a tensor that is not in rows")
        at: Any = np.int64(offset // dtype.itemsize)
        for size, stride in zip(shape, strides, strict=True):
            at = np.asarray(at)[..., None] + np.arange(size) * (stride // dtype.itemsize)
        at = np.asarray(at, dtype=np.int64)
        if at.size and (at.min() < 0 or at.max() >= of.numel()):
            raise UnsupportedOperatorError("a view by strides that reaches beyond its tensor")

        def make(parent: Value) -> Value:
            if parent.array is not None:
                return self.g.constant(parent.array.reshape(-1)[at], parent.dtype)
            with self.g.coming_from(step.node):
                made = self.g.op("Gather", self.g.op("Reshape", parent, [-1]), at, axis=0)
            made.shapes = step.shapes
            return made

        made = Place(None, place, make)
        made.version = -1
        return made


def _one(make: Callable, parent: Value, i: int, memory: dict[str, list]) -> Value:
    """Part `i` of what a split makes of a value: one node for all parts."""
    key = parent.name or str(id(parent))
    if key not in memory:
        memory[key] = [parent, list(make(parent))]
    return memory[key][1][i]


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for v in value:
            yield from _leaves(v)
    elif isinstance(value, slice):
        yield from (value.start, value.stop, value.step)
    else:
        yield value


def _name(node: Node) -> str:
    op = getattr(node.target, "op", None)
    return op.name if op is not None else getattr(node.target, "__name__", str(node.target))


def _array(tensor: Tensor) -> np.ndarray:
    return np.asarray(tensor.detach().cpu()._array, order="C")
