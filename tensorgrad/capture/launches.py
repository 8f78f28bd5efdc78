"""From a graph to launches: which function is called on which arrays, in order.

A node of a row becomes a call of the function that the row has for arrays alone; that of a backward kernel a call of
the kernel. What computes on tensors (samplers, the update of running statistics) gets tensors made for the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tensorgrad.capture import steps
from tensorgrad.capture.history import Refused
from tensorgrad.capture.quick_steps import quick_step
from tensorgrad.capture.trace import Trace
from tensorgrad.dispatch import generate
from tensorgrad.dispatch.promotion import as_array
from tensorgrad.fx import Node
from tensorgrad.kernels.array.join import whole_of
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.rows.signature import LIST, arguments_of
from tensorgrad.storage.cpu import CPUStorage
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor, share

VIEW = "a view"  # what `Launch.of` is for these


class Launch(NamedTuple):
    """One call. `text` is the statement. `of` names the op, with ".backward" for gradients; "" for anything else.

    `plain` says that it runs no op on tensors, whatever it is.
    """

    name: str
    function: Any
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    text: str
    of: str = ""
    plain: bool = False


class Written(NamedTuple):
    """An argument that is text already."""

    text: str


class Launches:
    """The launches of a trace, in order, and what their texts refer to.

    Attributes:
        launches: the calls.
        values: name -> constant, function or tensor from outside.
        of: node -> the name of its array, or the names of several.
        arrays: (tensor from outside, its array), as the launches have them built in.
        no_grad, with_grad: leaves whose `.grad` has to be None, or (with its shape, strides and dtype) a tensor.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.launches: list[Launch] = []
        self.values: dict[str, Any] = {}
        self.of: dict[Node, Any] = {}
        self.arrays: list[tuple[Tensor, Any]] = []
        self.no_grad: list[Tensor] = []
        self.with_grad: list[tuple[Tensor, tuple]] = []
        self.inputs: list[str] = []
        self._set: set[Tensor] = set()  # whose gradients the launches have set by now
        self._grads: dict[Tensor, str | None] = {}  # the names of the arrays of gradients by now, as far as known
        self._tensors: dict[Node, str] = {}  # of what comes from outside: the name of the tensor itself
        self._objects: dict[Node, Any] = {}
        self._names: dict[int, str] = {}
        self._count = 0
        for node in trace.graph.nodes:
            self._lower(node)

    def shown(self, chains: dict[str, int]) -> list[str]:
        """The launches in words, one a line, with the number of the chain that each is in."""
        lines = []
        for launch in self.launches:
            name, chain = getattr(launch.function, "__name__", ""), chains.get(launch.name, 0)
            lines.append(f"    {launch.name:<23} {name or launch.text}" + (f" (chain {chain})" if chain else ""))
        return lines

    # --- names ---

    def constant(self, value: Any, prefix: str = "k") -> str:
        """The name of a constant."""
        known = self._names.get(id(value))
        if known is None:
            known = self._names[id(value)] = f"{prefix}{len(self.values)}"
            self.values[known] = value
        return known

    def fresh(self) -> str:
        """A name that no array has yet."""
        self._count += 1
        return f"v{self._count}"

    def written_out(self, value: Any) -> str:
        """An argument as text."""
        if value.__class__ is Written:
            return value.text
        if isinstance(value, Node):
            found = self.of[value]
            return found if isinstance(found, str) else f"({''.join(f'{name}, ' for name in found)})"
        if value is None or value.__class__ in (bool, int):
            return repr(value)
        if value.__class__ in (list, tuple):
            inner = "".join(f"{self.written_out(v)}, " for v in value)
            return f"[{inner}]" if value.__class__ is list else f"({inner})"
        if value.__class__ is dict:
            return "{" + "".join(f"{k!r}: {self.written_out(v)}, " for k, v in value.items()) + "}"
        if value.__class__ is slice:
            return f"slice({', '.join(self.written_out(v) for v in (value.start, value.stop, value.step))})"
        if isinstance(value, tuple | list | dict) and any(isinstance(v, Node) for v in value):
            raise Refused(f"an argument is a {value.__class__.__name__} of tensors")
        return self.constant(value)

    def _call(
        self, node: Node, function: Any, arguments: list[Any], several: int = 0, of: str = "", plain: bool = False
    ) -> Any:
        """Adds a call: returns the name of its result; or the names of the `several` in the tuple that it returns.

        Each has a name of its own, so that its memory is free after its own last use.
        """
        texts = tuple(self.written_out(a) for a in arguments)
        results = [self.fresh() for _ in range(several or 1)]
        call = f"{self.constant(function, 'f')}({', '.join(texts)})"
        left = ", ".join(results) + ("," if several == 1 else "")
        self.launches.append(Launch(node.name, function, texts, tuple(results), f"{left} = {call}", of, plain))
        return results if several else results[0]

    def described(self, name: str) -> Any:
        """The shape, strides and dtype of an array, as one of the meta device; None if they are not known."""
        value: Any = next((node.meta.get("val") for node, of in self.of.items() if of == name), None)
        return None if value is None else value._array

    def called(self, name: str, function: Any, arguments: tuple[str, ...], results: tuple[str, ...], of: str) -> Launch:
        """A call of a function that stands for launches, which is not added to them."""
        text = (
            f"{', '.join(results)}{',' * (len(results) == 1)} = {self.constant(function, 'f')}({', '.join(arguments)})"
        )
        return Launch(name, function, arguments, results, text, of)

    def _do(self, node: Node, text: str, function: Any = None, arguments: tuple[str, ...] = ()) -> None:
        self.launches.append(Launch(node.name, function, arguments, (), text, plain=True))

    # --- nodes ---

    def _lower(self, node: Node) -> None:
        if node.op == "placeholder":
            self.of[node] = f"v_in{len(self.inputs)}"
            self._tensors[node] = f"t_in{len(self.inputs)}"
            self.inputs.append(node.name)
        elif node.op == "get_attr":
            self._attribute(node)
        elif node.op == "call_function":
            self._function(node)
        elif node.op != "output":
            raise Refused(f"it has a node of the kind {node.op}")

    def _attribute(self, node: Node) -> None:
        value = self.trace.attributes[str(node.target)]
        if not isinstance(value, Tensor):
            self.of[node] = self._tensors[node] = self.constant(value)
            self._objects[node] = value
            return
        if value._array.__class__ is not np.ndarray:
            raise Refused(f"'{node.target}' is on the device {value.device}; plans run on the CPU so far", True)
        self._tensors[node] = self.constant(value, "t")
        self.of[node] = self.constant(value._array, "a")
        self._objects[node] = value
        if not str(node.target).startswith("_constant"):
            self.arrays.append((value, value._array))

    def _function(self, node: Node) -> None:
        target: Any = node.target
        if target is steps.detach:
            self.of[node] = self.of[node.args[0]]
        elif target is steps.getitem:
            values, i = self.of[node.args[0]], node.args[1]
            self.of[node] = f"{values}[{i}]" if isinstance(values, str) else values[i]
            if self.of[node] is None:
                raise Refused(f"{node.name} is a result that is not computed")
        elif target in _OWN:
            _OWN[target](self, node)
        elif getattr(target, "op", None) is not None:
            self._row(node, target.op, keeps=False)
        elif hasattr(target, "keeps"):
            self._row(node, OPS[target.keeps], keeps=True)
        elif hasattr(target, "backward_of"):
            self._backward(node, OPS[target.backward_of])
        elif node.kwargs:
            raise Refused(f"{node.name} is called with keywords")
        else:
            self.of[node] = self._call(node, OnTensors(target), list(node.args))

    def _needless(self, node: Node) -> bool:
        """Whether a copy, which the engine makes where others may know the memory, is of what nothing else knows."""
        source: Any = node.args[0]
        if not isinstance(source, Node) or not source.meta.get("owns", False) or list(source.users) != [node]:
            return False
        op = getattr(source.target, "op", None)
        makes = op is not None and op.kind != "views" and not op.cache and len(op.outputs) == 1
        return (
            (makes or (source.target is steps.getitem and hasattr(source.args[0].target, "backward_of")))
            and node.args[1:] == ("contiguous",) and source.meta["val"]._array.flags.c_contiguous
            and node.meta.get("owns", False)
        )  # fmt: skip

    def _row(self, node: Node, op: Any, keeps: bool) -> None:
        if op.name == "clone_copy" and self._needless(node):
            self.of[node] = self.of[node.args[0]]
            return
        given = list(node.args)
        for p in op.params[len(given) :]:
            if p.name in node.kwargs:
                given.append(node.kwargs[p.name])
            elif p.default:
                given.append(eval(p.default, vars(generate)))
            else:
                raise Refused(f"{op.name} is called without '{p.name}'")
        if op.kind == "views":  # its own function makes them
            used = 1 + max([user.args[1] for user in node.users if user.target is steps.getitem], default=0)
            self.of[node] = self._call(node, SomeOf(op.compiled.call, used), given, used, VIEW)
            return
        single, count = len(op.outputs) == 1, len(op.outputs) + len(op.cache)
        several = count if op.cache or not single else 0
        of = VIEW if op.kind == "view" else op.name
        function = op.compiled.on_arrays
        if op.name == "cat" and all(_only_used_by(node, part) for part in given[0]):
            function = Joined(function)
        found = self._call(node, function, given, several, of)
        self.of[node] = found[0] if several and single and not keeps else found

    def _backward(self, node: Node, op: Any) -> None:
        grads, saved, kept, needs = node.args
        given: dict[str, Any] = dict(zip(op.saved, saved, strict=True))
        given |= dict(zip(op.kept, kept, strict=True))
        given |= {"g": grads[0], "grads": list(grads), "needs": tuple(needs)}
        function, names, sized, more = generate.backward_kernel(op, CPUStorage)
        if any(p.kind is LIST for p in op.params):
            raise Refused(f"the gradients of {op.name} are computed in a form that plans do not have yet", True)
        wanted = [p for p in op.params if p.is_tensor and p.name in op.wrt]
        if function is None:
            self.of[node] = [
                self._formula(node, op, p.name, given) if needed else None
                for p, needed in zip(wanted, needs, strict=True)
            ]
            return
        if "grads" in names and any(g is None for g in grads):
            given["grads"] = [self._zeros(node, i) if g is None else g for i, g in enumerate(grads)]
            given["g"] = given["grads"][0]
        arguments = [given[name] for name in names]
        if sized is not None:
            value: Any = arguments[sized].meta.get("val")
            if value is None:
                raise Refused(f"the size of what {op.name} saves is not known")
            function = function if value._array.size < more["ROW"].large_from else more["LARGE_BACKWARD"]
        if op.format_of and op.through_twin:
            call: Any = OnArraysInFormat(function, op.name)
            arguments.insert(0, given[op.format_of[0]])
        else:
            call = OnArrays(function, op.name)
        self.of[node] = self._call(node, call, arguments, len(wanted), f"{op.name}.backward")

    def _zeros(self, node: Node, i: int) -> Any:
        """The gradient of an output for which none arrived."""
        shape, dtype, _ = self.trace.attributes[str(node.kwargs["outputs"].target)][i]
        return Written(self._call(node, np.zeros, [tuple(shape), dtype], plain=True))

    def _formula(self, node: Node, op: Any, name: str, given: dict[str, Any]) -> str:
        formula = op.formulas[name]
        of = VIEW if op.kind == "view" else f"{op.name}.{name}"
        return self._call(node, Formula(formula), [given[n] for n in arguments_of(formula)], of=of)

    # --- what is not an op ---

    def _write(self, node: Node) -> None:
        target, value = node.args
        adds = node.target is steps.add_to
        function = CPUStorage.add_to if adds else CPUStorage.write
        texts = (self.written_out(target), self.written_out(value))
        known = self.constant(_WRITES[adds], "f")
        self._do(node, f"{known}({', '.join(texts)})", function, texts)
        if target.target is steps.grad_of:  # its version; those of other tensors from outside are the plan's to set
            self._do(node, f"{self._leaf(target.args[0])[0]}._grad._storage.bump()")
        self.of[node] = self.of[target]

    def _empty(self, node: Node) -> None:
        shape, dtype, device = node.args
        if getattr(device, "type", "cpu") != "cpu":
            raise Refused("it makes tensors on another device", True)
        self.of[node] = self._call(node, _empty_array, [tuple(shape), dtype.numpy], plain=True)

    def _leaf(self, node: Any) -> tuple[str, Tensor | None]:
        if node not in self._tensors:
            raise Refused("it sets the gradient of a tensor that it made")
        return self._tensors[node], self._objects.get(node)

    def _set_grad(self, node: Node) -> None:
        name, leaf = self._leaf(node.args[0])
        if leaf is None:
            raise Refused("it computes gradients of an argument")
        self._set.add(leaf)
        value = node.args[1]
        self._grads[leaf] = None if value is None else self.written_out(value)
        made = "None" if value is None else f"share({self.written_out(value)}, None)"
        self._do(node, f"{name}._grad = {made}")

    def _grad_of(self, node: Node) -> None:
        name, leaf = self._leaf(node.args[0])
        if leaf is None:
            raise Refused("it reads the gradient of an argument")
        if leaf not in self._set:
            array = node.meta["val"]._array
            self.with_grad.append((leaf, (array.shape, array.strides, array.dtype)))
        self.of[node] = result = self.fresh()
        self._grads[leaf] = result
        self._do(node, f"{result} = {name}._grad._array")

    def _check_no_grad(self, node: Node) -> None:
        _, leaf = self._leaf(node.args[0])
        if leaf is None:
            raise Refused("it computes gradients of an argument")
        self.no_grad.append(leaf)

    def _step(self, node: Node) -> None:
        optimizer = self._objects[node.args[0]]
        grads = [self._grads.get(p) for group in optimizer.param_groups for p in group["params"]]
        step = None if None in grads else quick_step(optimizer)
        if step is None:
            self._do(node, f"{self.written_out(node.args[0])}.step()")
        else:
            self._do(node, f"{self.constant(step, 'f')}(({''.join(f'{name}, ' for name in grads)}))", step)

    def _plain(self, node: Node) -> None:
        self.of[node] = self._call(node, node.target, list(node.args))

    def _read(self, node: Node) -> None:
        raise Refused("it reads a value")


def _write_array(target: np.ndarray, values: Any) -> None:
    target[...] = values


def _add_array(target: np.ndarray, values: Any) -> None:
    np.add(target, values, target)


def _empty_array(shape: tuple, dtype: Any) -> np.ndarray:
    return CPUStorage.empty(shape, dtype, None)


_WRITES = (_write_array, _add_array)

_OWN: dict[Any, Callable[[Launches, Node], None]] = {
    steps.write: Launches._write,
    steps.add_to: Launches._write,
    steps.empty: Launches._empty,
    steps.set_grad: Launches._set_grad,
    steps.grad_of: Launches._grad_of,
    steps.check_no_grad: Launches._check_no_grad,
    steps.check_values: Launches._read,
    steps.check_shape: Launches._read,
    steps.optimizer_step: Launches._step,
    steps.seed_generator: Launches._plain,
    steps.generator_state: Launches._plain,
    steps.set_generator_state: Launches._plain,
}


class OnTensors:
    """A function on tensors, as one on arrays."""

    def __init__(self, function: Callable) -> None:
        self.function = function
        self.__name__ = getattr(function, "__name__", "function")

    def __call__(self, *args: Any) -> Any:
        return _arrays(self.function(*[_tensors(a) for a in args]))


class SomeOf(OnTensors):
    """The same of a function that returns several tensors, of which the first ones are used."""

    def __init__(self, function: Callable, count: int) -> None:
        super().__init__(function)
        self.count = count

    def __call__(self, *args: Any) -> Any:
        return super().__call__(*args)[: self.count]


class Joined:
    """The function that joins arrays which nothing else uses: parts of one array are that array (ops/split.py)."""

    def __init__(self, function: Callable) -> None:
        self.function, self.__name__ = function, "joined"

    def __call__(self, parts: Any, dim: int) -> Any:
        whole = whole_of(parts, dim, False)
        return self.function(parts, dim) if whole is None else whole


def _only_used_by(user: Node, part: Any) -> bool:
    """Whether an array, or what it is a view of, is used by one node and is a result of a backward kernel."""
    while isinstance(part, Node) and list(part.users) == [user]:
        if part.target is steps.getitem:
            return hasattr(part.args[0].target, "backward_of")
        if getattr(getattr(part.target, "op", None), "kind", "") != "view":
            return False
        user, part = part, part.args[0]
    return False


def _tensors(value: Any) -> Any:
    if value.__class__ in (list, tuple):
        return value.__class__([_tensors(v) for v in value])
    return share(value, None) if value.__class__ is np.ndarray else value


def _arrays(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value._array
    if isinstance(value, list | tuple):
        return [_arrays(v) for v in value]
    return value


class OnArrays:
    """A backward kernel, whose result is always a tuple of arrays."""

    def __init__(self, function: Callable, name: str) -> None:
        self.function, self.__name__ = function, f"{name}_backward"

    def __call__(self, *args: Any) -> tuple:
        arrays = self.function(*args)
        if arrays is NotImplemented:
            raise RuntimeError(f"{self.__name__}: the kernel of a plan declined arrays like those it was recorded with")
        if arrays.__class__ is not tuple:
            arrays = (arrays,)
        return tuple([a if a is None or a.__class__ in STORAGES else as_array(a) for a in arrays])


class OnArraysInFormat(OnArrays):
    """The same of an op whose gradients lie in memory as its input does, which comes first."""

    def __call__(self, x: Any, *args: Any) -> tuple:
        return generate.gradients_in_format_of(x, super().__call__(*args))


class Formula:
    """A formula of a row, on arrays."""

    def __init__(self, formula: Callable) -> None:
        self.formula, self.__name__ = formula, getattr(formula, "__name__", "formula")

    def __call__(self, *args: Any) -> Any:
        array = self.formula(*args)
        return array if array.__class__ in STORAGES else as_array(array)
