"""`tensorgrad.onnx.load`: a model from an ONNX file, as an `fx.GraphModule` that runs and trains."""

from __future__ import annotations

import keyword
import operator
import os
import re
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from tensorgrad.autograd.modes import no_grad
from tensorgrad.fx import Graph as ProgramGraph
from tensorgrad.fx import GraphModule
from tensorgrad.nn import Module, Parameter
from tensorgrad.onnx.control import control_of
from tensorgrad.onnx.errors import InvalidModelError, UnsupportedOperatorError
from tensorgrad.onnx.model import MOVES, NARROW, Graph, Model, Node, TensorData, ValueInfo
from tensorgrad.onnx.operators import OPERATORS, SEVERAL, function_of
from tensorgrad.onnx.parsing import read_model

LARGEST = 2**31 - 1  # bytes of a model's file
DEEPEST = 32  # parts of a weight's name


def load(file: str | os.PathLike | Any) -> GraphModule:
    """Reads an ONNX file.

    Args:
        file: a path, or a file that is open for reading.

    Returns:
        A module whose `forward` takes the inputs of the model, in order. Floating-point weights are parameters with the
        names that they have in the file (all but letters, digits, `_` and `.` become `_`), other constants are buffers.
        It returns one tensor, or a tuple.

    Raises:
        InvalidModelError: If the file is not a model, or contradicts itself: values used before they are computed,
            tensors of the wrong size, weights outside of the model's folder.
        UnsupportedOperatorError: If an operator is not known here; the message names it.

    Nothing in the file is executed, and no memory is taken for what it only claims to contain.

    >>> program = torch.onnx.export(torch.nn.Linear(2, 1), (torch.ones(1, 2),))
    >>> import io
    >>> loaded = torch.onnx.load(io.BytesIO(bytes(program)))
    >>> [name for name, _ in loaded.named_parameters()], loaded(torch.ones(3, 2)).shape
    (['weight', 'bias'], torch.Size([3, 1]))
    """
    folder = None
    if hasattr(file, "read"):
        data = file.read(LARGEST + 1)
    else:
        path = Path(os.fspath(file))
        if path.stat().st_size > LARGEST:
            raise InvalidModelError(f"onnx.load(): {path} is larger than 2 GB")
        data, folder = path.read_bytes(), path.parent
    if len(data) > LARGEST:
        raise InvalidModelError("onnx.load(): the file is larger than 2 GB")
    model = read_model(data, _Folder(folder))
    return _module(model.graph, _checked(model))


def result_of(nodes: list[Node], initializers: list[TensorData], name: str, version: int) -> np.ndarray | None:
    """What nodes compute of initializers, by its name; None if an operator is not known here."""
    graph = Graph("part", nodes, initializers, outputs=[ValueInfo(name, 0, None)])
    try:
        _check_graph(graph, {""}, version)
        with no_grad():
            made = _module(graph, version)()
    except (InvalidModelError, UnsupportedOperatorError):
        return None
    return np.asarray(made._array, order="C")


class _Folder:
    """Gives the bytes of weights that are in files beside the model."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def __call__(self, place: dict[str, str]) -> Any:
        name = place.get("location", "")
        if self.folder is None:
            raise InvalidModelError(f"onnx.load(): weights are in {name!r}: load the model by its path")
        if not name or Path(name).name != name or name in (".", "..") or "\\" in name:
            raise InvalidModelError(
                f"onnx.load(): weights are said to be in {name!r}, which is not in the model's folder"
            )
        path = self.folder / name
        if path.is_symlink() or not path.is_file():
            raise InvalidModelError(f"onnx.load(): the file of weights {name!r} does not exist in the model's folder")
        size = path.stat().st_size
        try:
            offset, length = int(place.get("offset", 0)), int(place.get("length", size))
        except ValueError as error:
            raise InvalidModelError(f"onnx.load(): weights are said to be at {place}") from error
        if offset < 0 or length < 0 or offset + length > size:
            raise InvalidModelError(f"onnx.load(): weights at {offset} of {length} bytes; {name!r} has {size}")
        with open(path, "rb") as opened:
            opened.seek(offset)
            return opened.read(length)


OLDEST, NEWEST = 7, 28


def _checked(model: Model) -> int:
    """Returns the version of the operators. Raises: InvalidModelError for a graph that could not run."""
    version = model.opsets.get("", model.opsets.get("ai.onnx"))
    if version is None and model.opsets:  # only operators of other domains
        version = NEWEST
    if version is None or not OLDEST <= version <= NEWEST:
        raise InvalidModelError(f"onnx.load(): operators of version {version}: {OLDEST} to {NEWEST} are read")
    _check_graph(model.graph, {""}, version)
    return version


def _full_name(node: Node) -> str:
    """The name of an operator, with its domain unless that is ONNX's."""
    return node.operator if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.operator}"


def _check_graph(graph: Graph, known: set[str], version: int) -> None:
    """Raises: InvalidModelError if a graph uses values that are neither its own nor `known`, or has some twice."""
    known = set(known)
    for name in [*(t.name for t in graph.initializers), *graph.arguments]:
        if not name or name in known:
            raise InvalidModelError(f"onnx.load(): two values are called {name!r}")
        known.add(name)
    for node in graph.nodes:
        operator_name = _full_name(node)
        control = control_of(operator_name, version)
        if operator_name == "Constant":
            if node.inputs or len(node.outputs) != 1 or not node.outputs[0]:
                raise InvalidModelError("onnx.load(): a Constant has one output and no inputs")
        elif control is None and operator_name not in OPERATORS:
            raise UnsupportedOperatorError(f"onnx.load(): the operator {operator_name} is not read")
        for name in node.inputs:
            if name not in known:
                raise InvalidModelError(f"onnx.load(): {node.operator} uses {name!r} before it is computed")
        if control is not None:
            _check_control(node, control, known, version)
        for name in node.outputs:
            if name and name in known:
                raise InvalidModelError(f"onnx.load(): two values are called {name!r}")
            known.add(name)
    for value in graph.outputs:
        if not value.name or value.name not in known:
            raise InvalidModelError(f"onnx.load(): the output {value.name!r} is not computed")


def _graphs(node: Node) -> dict[str, Graph]:
    """The graphs that an operator has."""
    return {name: value for name, value in node.attributes.items() if isinstance(value, Graph)}


def _check_control(node: Node, control: Any, known: set[str], version: int) -> None:
    graphs = _graphs(node)
    needed = set(control.GRAPHS)
    if not needed <= set(graphs) <= needed | set(getattr(control, "OPTIONAL", ())):
        raise InvalidModelError(f"onnx.load(): {node.operator} has the attributes {sorted(node.attributes)}")
    for graph in graphs.values():
        _check_graph(graph, known, version)
    if not control.fits(node, list(graphs.values())):
        raise InvalidModelError(f"onnx.load(): {node.operator} and its graph have other inputs or outputs")


def _outer(graph: Graph) -> list[str]:
    """The names of the values of the graphs around it that a graph uses, in order."""
    own = {
        "",
        *(t.name for t in graph.initializers),
        *graph.arguments,
        *(n for node in graph.nodes for n in node.outputs),
    }
    used = [name for node in graph.nodes for name in _used(node)] + [value.name for value in graph.outputs]
    return [name for name in dict.fromkeys(used) if name not in own]


def _used(node: Node) -> list[str]:
    inner = [name for graph in _graphs(node).values() for name in _outer(graph)]
    return [*node.inputs, *inner]


def _module(graph: Graph, version: int, outer: list[str] | None = None) -> GraphModule:
    """The module of a graph; one within another graph takes that one's values, and returns a tuple."""
    import tensorgrad

    root, program = Module(), ProgramGraph()
    values: dict[str, Any] = {"": None}
    for name in [*graph.arguments, *(outer or ())]:
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
        values[name] = program.placeholder(f"x_{plain}" if _unusable(plain) else plain)
    taken: set[str] = set()
    narrow = {value.name: value.element_type for value in graph.inputs if value.element_type in NARROW}
    narrow |= {tensor.name: tensor.narrow for tensor in graph.initializers if tensor.narrow}
    for tensor in graph.initializers:
        made = tensorgrad.from_numpy(np.array(tensor.array))
        weight = made.is_floating_point() and made.ndim > 0
        values[tensor.name] = program.get_attr(_put(root, tensor.name, Parameter(made) if weight else made, taken))
    for node in graph.nodes:
        control = control_of(_full_name(node), version)
        if _full_name(node) == "Constant":
            made = tensorgrad.from_numpy(np.array(_constant(node)))
            values[node.outputs[0]] = program.get_attr(_put(root, node.outputs[0], made, taken))
        elif control is not None:
            _add_control(program, node, control, values, root, taken, version)
        else:
            _add(program, _with_narrow(node, narrow), values, root, taken, version)
    results = [values[v.name] for v in graph.outputs]
    program.output(results[0] if len(results) == 1 and outer is None else tuple(results))
    return GraphModule(root, program, "ONNXModel")


def _with_narrow(node: Node, narrow: dict[str, int]) -> Node:
    """An operator that says the type of its results, where another tensor has it: integers of a few bits are bytes
    here, which do not tell. `narrow` has the names of such values, and gets those of the results."""
    if not node.inputs or not node.outputs or _full_name(node) != node.operator:
        return node
    given = {"QuantizeLinear": 2, "CastLike": 1}.get(node.operator)
    kind = narrow.get(node.inputs[given], 0) if given is not None and len(node.inputs) > given else 0
    if kind and node.operator == "CastLike":
        node = Node("Cast", node.inputs[:1], node.outputs, {"to": kind})
    elif kind:
        node = Node(node.operator, node.inputs, node.outputs, {**node.attributes, "output_dtype": kind})
    name = {"Cast": "to", "QuantizeLinear": "output_dtype"}.get(node.operator)
    found = node.attributes.get(name) if name else narrow.get(node.inputs[0]) if node.operator in MOVES else None
    if isinstance(found, int) and found in NARROW:
        narrow.update(dict.fromkeys(node.outputs, found))
    return node


def _add_control(
    program: ProgramGraph, node: Node, control: Any, values: dict[str, Any], root: Module, taken: set[str], version: int
) -> None:
    graphs = _graphs(node)
    outer = list(dict.fromkeys(name for graph in graphs.values() for name in _outer(graph)))
    module = control.of(node, {name: _module(graph, version, outer) for name, graph in graphs.items()})
    given = [values[name] for name in (*node.inputs, *outer)]
    result = program.call_module(_put(root, node.operator, module, taken), tuple(given))
    _results(program, node, result, values)


def _constant(node: Node) -> np.ndarray:
    """The values of a `Constant`, which has one attribute."""
    for name, dtype in (("value", None), ("value_int", np.int64), ("value_ints", np.int64), ("value_float", np.float32),
                        ("value_floats", np.float32)):  # fmt: skip
        if name in node.attributes:
            value = node.attributes[name]
            if dtype is None and not isinstance(value, np.ndarray):
                break
            return np.asarray(value, dtype)
    raise UnsupportedOperatorError(f"onnx.load(): a Constant with the attributes {sorted(node.attributes)} is not read")


def _put(root: Module, name: str, value: Any, taken: set[str]) -> str:
    """Registers a weight under its name, or one that is like it. Returns the name."""
    parts = [re.sub(r"[^A-Za-z0-9_]", "_", part) or "_" for part in name.split(".")]
    if (
        len(parts) > DEEPEST
        or any(part in _TAKEN or keyword.iskeyword(part) or part[:2] == "__" for part in parts)
        or (len(parts) == 1 and _unusable(parts[0]))
    ):
        parts = ["w_" + "_".join(parts)]
    base, n = parts[-1], 0
    while _clashes(parts, taken):
        n += 1
        parts[-1] = f"{base}_{n}"
        if n > 1 and _clashes(parts[:1], taken):
            parts = ["w_" + "_".join(parts)]
    taken.add(".".join(parts))
    taken.update(".".join(parts[:i]) + "." for i in range(1, len(parts)))
    module = root
    for part in parts[:-1]:
        if part not in module._modules:
            module.add_module(part, Module())
        module = module._modules[part]  # type: ignore[assignment]
    if isinstance(value, Module):
        module.add_module(parts[-1], value)
    elif isinstance(value, Parameter):
        module.register_parameter(parts[-1], value)
    else:
        module.register_buffer(parts[-1], value)
    return ".".join(parts)


def _clashes(parts: list[str], taken: set[str]) -> bool:
    """Whether a weight has this name, or part of it, or a module has it."""
    name = ".".join(parts)
    return name in taken or name + "." in taken or any(".".join(parts[:i]) in taken for i in range(1, len(parts)))


def _add(
    program: ProgramGraph, node: Node, values: dict[str, Any], root: Module, taken: set[str], version: int
) -> None:
    import tensorgrad

    function = function_of(_full_name(node), version)
    given = tuple(values[name] for name in node.inputs)
    attributes = dict(node.attributes)
    known = signature(function)
    for name, value in attributes.items():  # names of attributes become code: only those that the function has may
        if name not in known.parameters or name.startswith("_"):
            raise UnsupportedOperatorError(f"onnx.load(): {node.operator} with the attribute {name!r} is not read")
        if isinstance(value, Graph):
            raise UnsupportedOperatorError(f"onnx.load(): {node.operator} with a graph of its own is not read")
        if isinstance(value, np.ndarray):
            made = tensorgrad.from_numpy(np.array(value))
            attributes[name] = program.get_attr(_put(root, f"{node.operator}_{name}", made, taken))
    if "count" in known.parameters:
        attributes["count"] = len(node.outputs)
    try:
        known.bind(*given, **attributes)
    except TypeError as error:
        raise InvalidModelError(f"onnx.load(): {node.operator}: {error}") from None
    result = program.call_function(function, given, attributes)
    if len(node.outputs) == 1 and _full_name(node) not in SEVERAL:
        values[node.outputs[0]] = result
    else:
        _results(program, node, result, values)


def _results(program: ProgramGraph, node: Node, result: Any, values: dict[str, Any]) -> None:
    """Takes a tuple apart."""
    for i, name in enumerate(node.outputs):
        if name:
            values[name] = program.call_function(operator.getitem, (result, i))


def _unusable(name: str) -> bool:
    """Whether the name of an input cannot be one of an argument."""
    return not name.isidentifier() or keyword.iskeyword(name) or name in ("self", "torch") or name[:2] == "__"


_TAKEN = frozenset((*dir(GraphModule), *vars(Module())))
