"""`torch.export.save`: a program as a `.pt2` archive, PyTorch's format: JSON for the graph, bytes for the tensors."""

from __future__ import annotations

import ast
import io
import json
import math
import operator
import os
import sys
from collections.abc import Callable
from typing import Any

import tensorgrad
from tensorgrad._ops import OpOverload
from tensorgrad.control_flow import HigherOrderOperator
from tensorgrad.export.exported_program import ExportedProgram
from tensorgrad.export.graph_signature import ConstantArgument, InputKind, OutputKind, SymIntArgument
from tensorgrad.export.schemas import (
    LISTS,
    MEMORY_FORMATS,
    OPERATORS,
    STRIDED,
    SYMBOLIC,
    arguments_of,
    dtype_number,
)
from tensorgrad.fx import GraphModule, Node
from tensorgrad.layouts import layout, memory_format
from tensorgrad.serialization import archive
from tensorgrad.serialization.tables import bytes_of
from tensorgrad.system.progress import progress, say
from tensorgrad.tensor import Tensor
from tensorgrad.utils import _pytree
from tensorgrad.version import __version__ as torch_version

SCHEMA = {"major": 8, "minor": 20}
POSITIONAL, KEYWORD = 1, 2


def save(
    ep: ExportedProgram,
    f: str | os.PathLike | io.IOBase | Any,
    *,
    extra_files: dict[str, Any] | None = None,
    opset_version: dict[str, int] | None = None,
    pickle_protocol: int = 2,
) -> None:
    """Saves an exported program to a file, in PyTorch's format.

    A failed save writes nothing: an old file stays as it was.

    Args:
        ep: the program.
        f: a path (usually ending in ".pt2"), or an object with `write`.
        extra_files: texts or bytes to put into the file, by name.
        opset_version: versions of the namespaces of operators.
        pickle_protocol: of the example inputs.

    Raises:
        NotImplementedError: If a node calls something that is not an operator of PyTorch's registry.
        TypeError: If `ep` is not an exported program.

    >>> import io
    >>> file = io.BytesIO()
    >>> torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)), file)
    >>> torch.export.load(file).module()(torch.tensor([1.0, -1.0]))
    tensor([1., 0.])
    """
    if not isinstance(ep, ExportedProgram):
        raise TypeError(f"The 'ep' parameter must be an instance of 'ExportedProgram', got '{type(ep).__name__}'")
    entries = _entries(ep, opset_version, pickle_protocol)
    for name, value in (extra_files or {}).items():
        entries.append((f"extra/{name}", value.encode() if isinstance(value, str) else bytes(value)))
    entries += [("archive_format", b"pt2"), ("archive_version", b"0"), (".data/version", b"6\n")]
    entries += [("byteorder", sys.byteorder.encode())]
    if isinstance(f, str | os.PathLike):
        folder = os.path.basename(os.fspath(f)).partition(".")[0] or "archive"
        with archive.replacing(f) as file:
            _write(file, folder, entries)
    else:
        _write(f, "archive", entries)


def _write(file: Any, folder: str, entries: list[tuple[str, Any]]) -> None:
    with progress("export.save"), archive.Writer(file, folder) as writer:
        for name, content in entries:
            say(f"writing {name}")
            writer.add(name, content)


def _entries(ep: ExportedProgram, opset: dict[str, int] | None, protocol: int) -> list[tuple[str, Any]]:
    entries: list[tuple[str, Any]] = []
    parameters = set(ep.graph_signature.parameters)
    for folder, prefix, config, tensors in (
        ("weights", "weight_", "model_weights_config", ep.state_dict),
        ("constants", "tensor_", "model_constants_config", ep.constants),
    ):
        described: dict[str, Any] = {}
        paths: dict[int, str] = {}
        for name, tensor in tensors.items():
            tensor = tensor.detach() if name not in parameters else tensor
            storage = tensor._storage
            path = paths.get(id(storage))
            if path is None:
                path = paths[id(storage)] = f"{prefix}{len(paths)}"
                entries.append((f"data/{folder}/{path}", bytes_of(storage)))
            described[name] = {
                "path_name": path, "is_param": name in parameters, "use_pickle": False, "tensor_meta": _meta(tensor),
            }  # fmt: skip
        entries.append((f"data/{folder}/{config}.json", _json({"config": described})))
    entries.append(("models/model.json", _json(_program(ep, opset))))
    example = io.BytesIO()
    if ep.example_inputs is not None:
        tensorgrad.save(ep.example_inputs, example, pickle_protocol=protocol)
    entries.append(("data/sample_inputs/model.pt", example.getvalue()))
    return entries


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False).encode()


# --- the program -----------------------------------------------------------------------------------------------------


def _program(ep: ExportedProgram, opset: dict[str, int] | None) -> dict[str, Any]:
    nodes = _Nodes(ep.graph_module, {name for name, p in _placeholders(ep) if p.requires_grad})
    specs = {s.arg.name: s for s in ep.graph_signature.input_specs}
    inputs = []
    for node in ep.graph.nodes:
        if node.op == "placeholder":
            arg = specs[node.name].arg
            inputs.append(nodes.argument(arg.value) if isinstance(arg, ConstantArgument) else nodes.argument(node))
            nodes.value(node)
        else:
            nodes.add(node)
    outputs: Any = ep.graph.output_node().args[0]
    graph = nodes.graph(inputs, outputs)
    signature = {
        "input_specs": [_input(s, nodes) for s in ep.graph_signature.input_specs],
        "output_specs": [
            _output(s, nodes, value) for s, value in zip(ep.graph_signature.output_specs, outputs, strict=True)
        ],
    }
    ranges = {str(s): {"min_val": r.lower, "max_val": r.upper} for s, r in ep.range_constraints.items()}
    return {
        "graph_module": {
            "graph": graph, "signature": signature, "metadata": {},
            "module_call_graph": [
                {"fqn": e.fqn, "signature": None if e.signature is None else _called(e.signature, nodes)}
                for e in ep.module_call_graph
            ],
            "treespec_namedtuple_fields": {},
        },
        "opset_version": opset or {"aten": 10}, "range_constraints": ranges, "schema_version": SCHEMA,
        "verifiers": [ep.dialect], "torch_version": torch_version, "guards_code": [],
    }  # fmt: skip


def _called(call: Any, nodes: _Nodes) -> dict[str, Any]:
    """How a module is called."""

    def argument(spec: Any) -> dict[str, Any]:
        if isinstance(spec, ConstantArgument):
            return nodes.argument(spec.value)
        if isinstance(spec, SymIntArgument):
            return {"as_sym_int": {"as_name": spec.name}}
        return {"as_tensor": {"name": spec.name}}

    return {
        "inputs": list(map(argument, call.inputs)), "outputs": list(map(argument, call.outputs)),
        "in_spec": _pytree.treespec_dumps(call.in_spec), "out_spec": _pytree.treespec_dumps(call.out_spec),
        "forward_arg_names": call.forward_arg_names,
    }  # fmt: skip


def _input(spec: Any, nodes: _Nodes) -> dict[str, Any]:
    arg = {"name": spec.arg.name}
    if spec.kind is InputKind.PARAMETER:
        return {"parameter": {"arg": arg, "parameter_name": spec.target}}
    if spec.kind is InputKind.BUFFER:
        return {"buffer": {"arg": arg, "buffer_name": spec.target, "persistent": bool(spec.persistent)}}
    if spec.kind is InputKind.CONSTANT_TENSOR:
        return {"tensor_constant": {"arg": arg, "tensor_constant_name": spec.target}}
    if isinstance(spec.arg, ConstantArgument):
        return {"constant_input": {"name": spec.arg.name, "value": nodes.argument(spec.arg.value)}}
    return {"user_input": {"arg": {"as_tensor": arg}}}


def _output(spec: Any, nodes: _Nodes, value: Any) -> dict[str, Any]:
    arg = {"name": spec.arg.name}
    if spec.kind is OutputKind.BUFFER_MUTATION:
        return {"buffer_mutation": {"arg": arg, "buffer_name": spec.target}}
    if spec.kind is OutputKind.PARAMETER_MUTATION:
        return {"parameter_mutation": {"arg": arg, "parameter_name": spec.target}}
    if spec.kind is OutputKind.USER_INPUT_MUTATION:
        return {"user_input_mutation": {"arg": arg, "user_input_name": spec.target}}
    return {"user_output": {"arg": nodes.argument(value)}}


class _Nodes:
    """The nodes of a graph as PyTorch's format has them."""

    def __init__(self, module: GraphModule, grad: set[str]) -> None:
        self.module = module
        self.made: list[dict[str, Any]] = []
        self.tensors: dict[str, Any] = {}
        self.integers: dict[str, Any] = {}
        self.floats: dict[str, Any] = {}
        self._same: dict[str, str] = {}  # a node that takes a part of a result -> the first one that does
        self._grad = grad

    def graph(self, inputs: list, outputs: Any) -> dict[str, Any]:
        """The graph: an output that is not a tuple is the only one."""
        single = isinstance(outputs, Node)
        return {
            "inputs": inputs, "outputs": [self.argument(o) for o in ([outputs] if single else outputs)],
            "nodes": self.made, "tensor_values": self.tensors, "sym_int_values": self.integers, "sym_bool_values": {},
            "is_single_tensor_return": single, "custom_obj_values": {}, "sym_float_values": self.floats,
        }  # fmt: skip

    def _within(self, node: Node) -> dict[str, Any]:
        """The graph of a branch or loop as an argument."""
        name = str(node.target)
        nodes = _Nodes(getattr(self.module, name), set())
        inputs = []
        for one in nodes.module.graph.nodes:
            if one.op == "placeholder":
                inputs.append(nodes.argument(one))
                nodes.value(one)
            else:
                nodes.add(one)
        return {"as_graph": {"name": name, "graph": nodes.graph(inputs, nodes.module.graph.output_node().args[0])}}

    def value(self, node: Node) -> None:
        """Notes what is known of a node's result."""
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            self.tensors[node.name] = _meta(value, node.meta.get("sizes"), node.name in self._grad)
        elif isinstance(value, int) and not isinstance(value, bool) and node.op != "placeholder":
            self.integers[node.name] = _size(node.meta.get("expression"), value)
        elif isinstance(value, float) and node.op != "placeholder":
            self.floats[node.name] = {"as_float": value}

    def add(self, node: Node) -> None:
        """Adds a call."""
        if node.target is operator.getitem or node.op == "output":
            return  # it is among the results of the node that it takes from
        if node.op == "get_attr" and all(isinstance(u.target, HigherOrderOperator) for u in node.users):
            return  # it is an argument
        if node.op != "call_function":
            raise NotImplementedError(f"export.save(): the node {node.name} is a {node.op}")
        higher = isinstance(node.target, HigherOrderOperator)
        target, names, several = _target(node)
        inputs = []
        for i, value in enumerate(node.args):
            if i >= len(names):
                raise NotImplementedError(f"export.save(): {target} with {len(node.args)} arguments")
            inputs.append({"name": names[i], "arg": self.argument(value), "kind": POSITIONAL})
        for name, value in node.kwargs.items():
            inputs.append({"name": name, "arg": self.argument(value), "kind": KEYWORD})
        found = node.meta.get("val")
        if isinstance(found, tuple | list):
            parts = [self._part(node, i, v) for i, v in enumerate(found)]
            outputs = [{"as_tensors": [p["as_tensor"] for p in parts]}] if several else parts
        else:
            self.value(node)
            outputs = [self.argument(node)]
        metadata = {"stack_trace": node.stack_trace} if node.stack_trace else {}
        calls = node.meta.get("nn_module_stack")
        if calls and not any(";" in text or "," in text for key, call in calls.items() for text in (key, *call)):
            metadata["nn_module_stack"] = ";".join(f"{key},{path},{kind}" for key, (path, kind) in calls.items())
        self.made.append(
            {
                "target": target, "inputs": inputs, "outputs": outputs, "metadata": metadata,
                "is_hop_single_tensor_return": False if higher else None, "name": node.name,
            }
        )  # fmt: skip

    def _part(self, node: Node, index: int, value: Any) -> dict[str, Any]:
        if value is None:
            return {"as_none": True}
        users = [u for u in node.users if u.target is operator.getitem and u.args[1] == index]
        name = users[0].name if users else f"{node.name}_unused_{index}"
        for user in users[1:]:
            self._same[user.name] = name
        self.tensors[name] = _meta(value, users[0].meta.get("sizes") if users else None)
        return {"as_tensor": {"name": name}}

    def argument(self, value: Any) -> dict[str, Any]:
        """A value as an argument."""
        if isinstance(value, Node) and value.op == "get_attr":
            return self._within(value)
        if isinstance(value, Node):
            kind = value.meta.get("val")
            name = self._same.get(value.name, value.name)
            if isinstance(kind, int):
                return {"as_sym_int": {"as_name": name}}
            return {"as_sym_float": {"as_name": name}} if isinstance(kind, float) else {"as_tensor": {"name": name}}
        if value == ():  # no tensors, of a loop
            return {"as_tensors": []}
        if isinstance(value, list | tuple):
            return self._list(list(value))
        for test, name, change in _PLAIN:
            if isinstance(value, test):
                return {name: change(value)}
        raise NotImplementedError(f"export.save(): an argument is a {type(value).__name__}")

    def _list(self, values: list) -> dict[str, Any]:
        made = [self.argument(v) for v in values]
        kinds = {next(iter(m)) for m in made}
        if kinds == {"as_tensor"}:
            return {"as_tensors": [m["as_tensor"] for m in made]}
        if kinds <= {"as_tensor", "as_none"} and kinds:
            return {"as_optional_tensors": made}
        if "as_sym_int" in kinds and kinds <= {"as_sym_int", "as_int"}:
            return {"as_sym_ints": [m.get("as_sym_int", m) for m in made]}
        if kinds <= {"as_int"}:
            return {"as_ints": values}
        if kinds <= {"as_int", "as_float"}:
            return {"as_floats": [_float(float(v)) for v in values]}
        for kind in ("as_bool", "as_string"):
            if kinds == {kind}:
                return {kind + "s": values}
        raise NotImplementedError(f"export.save(): an argument is a list of {sorted(kinds)}")


def _placeholders(ep: ExportedProgram) -> list[tuple[str, Tensor]]:
    stored = {**ep.state_dict, **ep.constants}
    return [(s.arg.name, stored[s.target]) for s in ep.graph_signature.input_specs if s.target in stored]


def _target(node: Node) -> tuple[str, list[str], bool]:
    """What a node calls, the names of the arguments, and whether the result is a list."""
    target: Any = node.target
    if isinstance(target, HigherOrderOperator):
        return f"torch.ops.higher_order.{target.__name__}", [""] * len(node.args), False
    if isinstance(target, OpOverload):
        try:
            names = ["self", "dim"] if target.__name__ == "sym_size.int" else arguments_of(target.__name__)
        except KeyError:
            raise NotImplementedError(f"export.save(): {target} is not in the table of operators") from None
        return f"torch.ops.{target}", names, target.overloadpacket.__name__ in LISTS
    name = getattr(target, "__name__", "")
    if getattr(operator, name, None) is target and name in OPERATORS:
        return f"_operator.{name}", ["a", "b"], False
    if getattr(tensorgrad, name, None) is target and name in SYMBOLIC:
        return f"torch.{name}", ["a", "b"], False
    where = (node.stack_trace or "").strip().splitlines()
    raise NotImplementedError(
        f"export.save(): {name or target} is not an operator of PyTorch's registry "
        f"({where[-2].strip() if len(where) > 1 else 'of the graph'})"
    )


def _float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


_PLAIN: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
    (type(None), "as_none", lambda v: True),
    (bool, "as_bool", bool),
    (int, "as_int", int),
    (float, "as_float", _float),
    (complex, "as_complex", lambda v: {"real": v.real, "imag": v.imag}),
    (str, "as_string", str),
    (tensorgrad.dtype, "as_scalar_type", dtype_number),
    (tensorgrad.device, "as_device", lambda v: {"type": v.type, "index": v.index}),
    (layout, "as_layout", lambda v: STRIDED),
    (
        memory_format, "as_memory_format",
        lambda v: {name: n for n, name in MEMORY_FORMATS.items()}[str(v).removeprefix("torch.")],
    ),
)  # fmt: skip


# --- tensors and sizes -----------------------------------------------------------------------------------------------


def _meta(tensor: Tensor, sizes: tuple | None = None, grad: bool | None = None) -> dict[str, Any]:
    shown = sizes or tuple(tensor.shape)
    strides: list[Any] = [{"as_int": s} for s in tensor.stride()]
    if sizes is not None and tensor.is_contiguous():
        strides = [_product(shown[i + 1 :], tensor.stride()[i]) for i in range(tensor.ndim)]
    device = "cpu" if tensor.is_meta else tensor.device.type
    return {
        "dtype": dtype_number(tensor.dtype),
        "sizes": [_size(s if isinstance(s, str) else None, n) for s, n in zip(shown, tensor.shape, strict=True)],
        "requires_grad": tensor.requires_grad if grad is None else grad,
        "device": {"type": device, "index": None if device == "cpu" else tensor.device.index},
        "strides": strides, "storage_offset": {"as_int": tensor.storage_offset()}, "layout": STRIDED,
    }  # fmt: skip


def _product(sizes: tuple, stride: int) -> dict[str, Any]:
    varying = [s for s in sizes if isinstance(s, str)]
    if not varying:
        return {"as_int": stride}
    number = math.prod(s for s in sizes if not isinstance(s, str))
    return _size("*".join([f"({s})" for s in varying] + [str(number)]), stride)


def _size(text: str | None, hint: int) -> dict[str, Any]:
    expression = None if text is None else expression_of(text)
    if expression is None:
        return {"as_int": hint}
    return {"as_expr": {"expr_str": expression, "hint": {"as_int": hint}}}


def expression_of(text: str) -> str | None:
    """A size as SymPy's `srepr` writes it; None for the size of a tensor of the program, which has no symbol.

    >>> from tensorgrad.export.saving import expression_of
    >>> expression_of("2*s0 - 1")
    "Add(Mul(Integer(2), Symbol('s0', positive=True, integer=True)), Integer(-1))"
    """
    kinds = {ast.Add: "Add", ast.Mult: "Mul", ast.FloorDiv: "FloorDiv"}

    def of(node: Any) -> str:
        if isinstance(node, ast.Constant):
            return f"Integer({node.value!r})"
        if isinstance(node, ast.Name):
            return f"Symbol('{node.id}', positive=True, integer=True)"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            assert isinstance(node.right, ast.Constant)
            return f"Add({of(node.left)}, Integer({-node.right.value}))"  # type: ignore[operator]
        assert isinstance(node, ast.BinOp)
        return f"{kinds[type(node.op)]}({of(node.left)}, {of(node.right)})"

    return None if "size(" in text else of(ast.parse(text, mode="eval").body)
