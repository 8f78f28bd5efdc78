"""`torch.export.load`: a program from a `.pt2` archive, as PyTorch or this library saved it.

Nothing in a file is executed: a graph may call the operators of PyTorch's registry that are here, and arithmetic on
sizes; names, structures, and the memory of tensors are checked before anything is made of them.
"""

from __future__ import annotations

import ast
import io
import json
import keyword
import math
import operator
import os
import re
from collections.abc import Callable
from typing import Any

import tensorgrad
from tensorgrad._ops import _overloads, ops
from tensorgrad.capture.masks import described
from tensorgrad.control_flow import OPERATORS as HIGHER_ORDER
from tensorgrad.control_flow import HigherOrderOperator, cond_op
from tensorgrad.export.dynamic_shapes import Constraint
from tensorgrad.export.exported_program import (
    Dynamic,
    ExportedProgram,
    ModuleCallEntry,
    ModuleCallSignature,
    UnliftedModule,
    ValueRanges,
)
from tensorgrad.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from tensorgrad.export.schemas import DTYPES, MEMORY_FORMATS, OPERATORS, STRIDED, SYMBOLIC
from tensorgrad.fx import Graph, GraphModule, Node
from tensorgrad.nn import Module, Parameter
from tensorgrad.serialization import archive
from tensorgrad.serialization.reading import opened
from tensorgrad.serialization.unpickler import UnpicklingError
from tensorgrad.storage.meta import MetaArray
from tensorgrad.tensor import Tensor, share
from tensorgrad.utils import _pytree

MAJOR = 8  # of the format
LIMIT = 1 << 40  # of sizes
DEEPEST = 8  # graphs of branches and loops within each other
_REFUSED = frozenset(("from_file", "record_stream", "set_", "data"))  # reads a file; reaches into memory
# Python's operators on bits, which PyTorch's programs spell in their own way.
_SPELLED = {
    f"__{short}{name}__": f"bitwise_{full}{end}"
    for name, full in {**{n: n for n in ("and", "or", "xor")}, "lshift": "left_shift", "rshift": "right_shift"}.items()
    for short, end in (("", ""), ("i", "_"))
}
# Checks that PyTorch puts into programs: the guards do the same.
_CHECKS = frozenset(
    (
        "_assert_tensor_metadata",
        "_assert_scalar",
        "_assert_async",
        "sym_constrain_range",
        "sym_constrain_range_for_size",
    )
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class _Refused(Exception):
    """What a file says is not what a program has."""


def load(
    f: str | os.PathLike | io.IOBase | Any,
    *,
    extra_files: dict[str, Any] | None = None,
    expected_opset_version: dict[str, int] | None = None,
) -> ExportedProgram:
    """Loads an exported program, which `torch.export.save` of this library or of PyTorch saved.

    Nothing in the file is executed.

    Args:
        f: a path, or an object with `read` and `seek`.
        extra_files: names of texts in the file, as keys; the values are set to the texts.
        expected_opset_version: accepted for compatibility.

    Raises:
        RuntimeError: If the file is not a program, is damaged, or has something that a program cannot have; or if it
            calls an operator that is not here.

    >>> import io
    >>> file = io.BytesIO()
    >>> torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)), file)
    >>> _ = file.seek(0)
    >>> torch.export.load(file).module()(torch.tensor([-1.0, 1.0]))
    tensor([0., 1.])
    """
    with opened(f) as file:
        try:
            reader = archive.Reader(file)
            if not reader.has("archive_format") or bytes(reader.read("archive_format")) != b"pt2":
                raise _Refused("it is not a .pt2 archive")
            program = _Loader(reader).program()
            for name in extra_files or {}:
                extra_files[name] = bytes(reader.read(f"extra/{name}")).decode()  # type: ignore[index]
            return program
        except (
            _Refused, UnpicklingError, KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError,
            OverflowError, RuntimeError, NotImplementedError, SyntaxError, MemoryError, AssertionError,
        ) as error:  # fmt: skip
            what = str(error) if isinstance(error, _Refused | UnpicklingError) else f"{type(error).__name__}: {error}"
            raise RuntimeError(f"export.load(): the file cannot be loaded as a program: {what[:500]}") from None


class _Loader:
    def __init__(self, reader: archive.Reader) -> None:
        self.reader = reader
        order = bytes(reader.read("byteorder")) if reader.has("byteorder") else b"little"
        if order != b"little":
            raise _Refused("its byte order is not little-endian")
        self.graph = Graph()
        self.nodes: dict[str, Node] = {}
        self.metas: dict[str, Any] = {}
        self.symbols: dict[str, str] = {}
        self.modules: dict[str, GraphModule] = {}  # graphs of branches and loops
        self.depth = 0  # of the graph that is read, in such graphs

    def program(self) -> ExportedProgram:
        """The program."""
        models = [n for n in self.reader.entries if re.fullmatch(r"[^/]*/models/[^/]*\.json", n)]
        if len(models) != 1:
            raise _Refused(f"it has {len(models)} programs; one was expected")
        entry = models[0].removeprefix(self.reader.prefix)
        self.model = entry.removeprefix("models/").removesuffix(".json")
        data = self._json(entry)
        version = data["schema_version"]["major"]
        if version != MAJOR:
            raise _Refused(f"its format is version {version!r}; {MAJOR} is what PyTorch 2.13 writes")
        module = data["graph_module"]
        signature = self._signature(module["signature"])
        stored = {
            folder: self._tensors(folder, signature) for folder in ("weights", "constants")
        }  # fmt: skip
        self._metas(module["graph"])
        self._inputs(module["graph"]["inputs"], signature, stored)
        for node in module["graph"]["nodes"]:
            self._node(node)
        self.graph.output(tuple(self._argument(o) for o in module["graph"]["outputs"]))
        self._check_outputs(signature)
        self.graph.lint()
        calls, dynamic = self._calls(module["module_call_graph"], signature), self._dynamic(data, signature)
        dialects = data["verifiers"]
        return ExportedProgram(
            self.modules, self.graph, signature, stored["weights"], dict(dynamic.ranges), calls, self._example(),
            stored["constants"], dynamic=dynamic, dialect="ATEN" if dialects == ["ATEN"] else "TRAINING",
        )  # fmt: skip

    def _json(self, entry: str) -> Any:
        return json.loads(bytes(self.reader.read(entry)))

    # --- tensors -----------------------------------------------------------------------------------------------------

    def _tensors(self, folder: str, signature: ExportGraphSignature) -> dict[str, Tensor]:
        config = self._json(f"data/{folder}/{self.model}_{folder}_config.json")["config"]
        memories: dict[tuple, Tensor] = {}
        found = {}
        for name, entry in config.items():
            _checked_path(name)
            path = _text(entry["path_name"])
            if not _NAME.match(path) or not path.startswith(("weight_", "tensor_")):
                raise _Refused(f"a tensor is at {path!r}")
            made = self._pickled(folder, path) if entry["use_pickle"] else self._raw(folder, path, entry, memories)
            if entry["is_param"]:
                made = Parameter(made, requires_grad=_flag(entry["tensor_meta"]["requires_grad"]))
            found[name] = made
        return found

    def _raw(self, folder: str, path: str, entry: dict, memories: dict) -> Tensor:
        meta = entry["tensor_meta"]
        dtype = _dtype(meta["dtype"])
        sizes, strides = ([_whole(s["as_int"]) for s in meta[part]] for part in ("sizes", "strides"))
        offset = _whole(meta["storage_offset"]["as_int"])
        if len(sizes) != len(strides) or len(sizes) > 64:
            raise _Refused(f"a tensor has {len(sizes)} sizes and {len(strides)} strides")
        if 0 in sizes:
            return tensorgrad.empty(sizes, dtype=dtype)
        flat = memories.get((path, dtype))
        if flat is None:
            content = self.reader.read(f"data/{folder}/{path}")
            size = content.nbytes // dtype.itemsize
            if content.nbytes % dtype.itemsize:
                raise _Refused(f"the entry {path} has a part of a number")
            flat = memories[path, dtype] = tensorgrad.from_numpy(content).view(dtype) if size else None
        last = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
        if flat is None or last >= flat.numel():
            raise _Refused(f"a tensor of shape {sizes} reaches beyond the end of {path}")
        return flat.as_strided(sizes, strides, offset)

    def _pickled(self, folder: str, path: str) -> Tensor:
        content = bytes(self.reader.read(f"data/{folder}/{path}"))
        value = tensorgrad.load(io.BytesIO(content), weights_only=True)
        if not isinstance(value, Tensor):
            raise _Refused(f"the entry {path} is not a tensor")
        return value

    def _example(self) -> Any:
        entry = f"data/sample_inputs/{self.model}.pt"
        content = bytes(self.reader.read(entry)) if self.reader.has(entry) else b""
        if not content:
            return None
        value = tensorgrad.load(io.BytesIO(content), weights_only=True)
        if not (isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict)):
            raise _Refused("its example inputs are not a tuple and a dict")
        return value

    # --- the signature -----------------------------------------------------------------------------------------------

    def _signature(self, data: dict) -> ExportGraphSignature:
        inputs = []
        for spec in data["input_specs"]:
            kind, entry = _only(spec)
            if kind == "parameter":
                target = _checked_path(entry["parameter_name"])
                inputs.append(InputSpec(InputKind.PARAMETER, _tensor_argument(entry), target))
            elif kind == "buffer":
                target = _checked_path(entry["buffer_name"])
                inputs.append(InputSpec(InputKind.BUFFER, _tensor_argument(entry), target, _flag(entry["persistent"])))
            elif kind == "tensor_constant":
                target = _checked_path(entry["tensor_constant_name"])
                inputs.append(InputSpec(InputKind.CONSTANT_TENSOR, _tensor_argument(entry), target))
            elif kind == "user_input":
                inner, value = _only(entry["arg"])
                if inner != "as_tensor":
                    raise _Refused(f"an input is {inner}")
                inputs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(_name(value["name"])), None))
            elif kind == "constant_input":
                value = self._argument(entry["value"])
                inputs.append(InputSpec(InputKind.USER_INPUT, ConstantArgument(_name(entry["name"]), value), None))
            else:
                raise _Refused(f"it has an input of the kind {kind!r}")
        outputs = []
        for spec in data["output_specs"]:
            kind, entry = _only(spec)
            if kind == "user_output":
                outputs.append(OutputSpec(OutputKind.USER_OUTPUT, self._output_argument(entry["arg"]), None))
                continue
            name = {"buffer_mutation": "buffer_name", "parameter_mutation": "parameter_name",
                    "user_input_mutation": "user_input_name"}.get(kind)  # fmt: skip
            if name is None:
                raise _Refused(f"it has an output of the kind {kind!r}")
            outputs.append(OutputSpec(OutputKind[kind.upper()], _tensor_argument(entry), _checked_path(entry[name])))
        known = {s.target for s in inputs if s.target} | {
            s.arg.name for s in inputs if s.kind is InputKind.USER_INPUT
        }  # fmt: skip
        for output in outputs:
            if output.target is not None and output.target not in known:
                raise _Refused(f"it writes to {output.target!r}, which is not an input")
        return ExportGraphSignature(inputs, outputs)

    def _output_argument(self, data: dict) -> Any:
        kind, value = _only(data)
        if kind == "as_tensor":
            return TensorArgument(_name(value["name"]))
        if kind == "as_sym_int" and "as_name" in value:
            return SymIntArgument(_name(value["as_name"]))
        return ConstantArgument("", self._argument(data))

    def _check_outputs(self, signature: ExportGraphSignature) -> None:
        results: Any = self.graph.output_node().args[0]
        if len(results) != len(signature.output_specs):
            raise _Refused("its graph and its signature have different outputs")

    # --- the graph ---------------------------------------------------------------------------------------------------

    def _metas(self, graph: dict) -> None:
        for name, meta in graph["tensor_values"].items():
            self.metas[_name(name)] = self._meta(meta)
        for name, value in (*graph["sym_int_values"].items(), *graph.get("sym_float_values", {}).items()):
            kind, value = _only(value)
            text = None
            if kind == "as_expr":
                text = self._expression(value["expr_str"])
                value = _only(value["hint"])[1] if value.get("hint") else 1
            if not isinstance(value, int | float):
                raise _Refused(f"a size is {value!r}")
            self.metas[_name(name)] = value, text

    def _meta(self, meta: dict) -> tuple[Tensor, tuple | None]:
        if meta["layout"] != STRIDED:
            raise _Refused("a tensor has a layout that is not strided")
        sizes, shown = [], []
        for size in meta["sizes"]:
            kind, value = _only(size)
            if kind == "as_expr":
                shown.append(self._expression(value["expr_str"]))
                value = _only(value["hint"])[1] if value.get("hint") else 2
            else:
                shown.append(value)
            sizes.append(_whole(value))
        if len(sizes) > 64:
            raise _Refused("a tensor has more than 64 dimensions")
        dtype = _dtype(meta["dtype"])
        strides = []
        for stride in meta["strides"]:
            kind, value = _only(stride)
            hint = value.get("hint") if kind == "as_expr" else None
            strides.append(_whole(value) if kind == "as_int" else _whole(_only(hint)[1]) if hint else None)
        if None in strides or len(strides) != len(sizes):
            strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
        steps = tuple(s * dtype.itemsize for s in strides)
        made = share(MetaArray.empty(tuple(sizes), dtype.numpy, steps), None)
        return made, tuple(shown) if any(isinstance(s, str) for s in shown) else None

    def _expression(self, text: Any) -> str:
        """A size that SymPy's `srepr` wrote, as this library writes it."""
        text = _text(text)
        if len(text) > 10_000:
            raise _Refused("a size has a very long expression")
        return self._shown(ast.parse(text, mode="eval").body)[0]

    def _shown(self, node: Any) -> tuple[str, bool]:
        """An expression, and whether it is a sum or quotient, which needs brackets in a product."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return str(node.value), False
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return f"-{self._shown(node.operand)[0]}", True
        if isinstance(node, ast.Name):
            return self.symbols.setdefault(_name(node.id), node.id), False
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise _Refused("a size has an expression that is not one of sizes")
        name, given = node.func.id, node.args
        if name == "Symbol":
            symbol = _name(given[0].value)  # type: ignore[attr-defined]
            self.symbols.setdefault(symbol, symbol)
            return symbol, False
        if name in ("Integer", "Float"):
            value = given[0].operand if isinstance(given[0], ast.UnaryOp) else given[0]
            minus = "-" if isinstance(given[0], ast.UnaryOp) else ""
            return f"{minus}{value.value}", False  # type: ignore[attr-defined]
        parts = [self._shown(a) for a in given]
        if name == "Add":
            text = " + ".join(p for p, _ in parts).replace("+ -", "- ")
            return text, True
        inner = [f"({p})" if compound else p for p, compound in parts]
        if name == "Mul":
            return "*".join(inner), False
        if name in ("FloorDiv", "CleanDiv"):
            return "//".join(inner), True
        return f"{name}({', '.join(p for p, _ in parts)})", False

    def _enter(self, name: str, node: Node) -> Node:
        if name in self.nodes:
            raise _Refused(f"it has two results of the name {name!r}")
        self.nodes[name] = node
        found = self.metas.get(name)
        if found is not None:
            node.meta["val"] = found[0]
            if found[1] is not None:
                node.meta["sizes" if isinstance(found[0], Tensor) else "expression"] = found[1]
        return node

    def _inputs(self, inputs: list, signature: ExportGraphSignature, stored: dict) -> None:
        if len(inputs) != len(signature.input_specs):
            raise _Refused("its graph and its signature have different inputs")
        for spec, data in zip(signature.input_specs, inputs, strict=True):
            kind, value = _only(data)
            name = spec.arg.name
            if kind == "as_tensor" and value["name"] != name:
                raise _Refused("its graph and its signature have different inputs")
            node = self.graph.placeholder(_name(name))
            node.name = name
            if isinstance(spec.arg, ConstantArgument):
                self._enter(name, node).meta["val"] = spec.arg.value
                continue
            if kind != "as_tensor":
                raise _Refused(f"the input {name!r} is {kind}")
            self._enter(name, node)
            if spec.kind is InputKind.USER_INPUT:
                if not isinstance(node.meta.get("val"), Tensor):
                    raise _Refused(f"the sizes of the input {name!r} are missing")
                continue
            apart = spec.kind is InputKind.CONSTANT_TENSOR or spec.persistent is False
            tensor = stored["constants" if apart else "weights"].get(spec.target)
            if tensor is None:
                raise _Refused(f"the tensor {spec.target!r} is missing")
            if spec.kind is InputKind.PARAMETER and not isinstance(tensor, Parameter):
                raise _Refused(f"{spec.target!r} is not a parameter")
            node.meta["val"] = described(tensor._array)

    def _within(self, data: dict) -> Node:
        """The graph of a branch or loop: becomes a module, and the node that takes it."""
        name, graph = _checked_path(data["name"]), data["graph"]
        if "." in name or name in self.modules or self.depth >= DEEPEST:
            raise _Refused(f"it has a graph {name!r} in a place where none can be")
        outside = self.graph, self.nodes, self.metas, self.modules
        self.graph, self.nodes, self.metas, self.modules = Graph(), {}, {}, {}
        self.depth += 1
        self._metas(graph)
        for value in graph["inputs"]:
            kind, entry = _only(value)
            if kind != "as_tensor":
                raise _Refused(f"an input of a graph within it is {kind}")
            node = self.graph.placeholder(_name(entry["name"]))
            node.name = entry["name"]
            self._enter(node.name, node)
        for node_data in graph["nodes"]:
            self._node(node_data)
        results = tuple(self._argument(o) for o in graph["outputs"])
        single = _flag(graph["is_single_tensor_return"])
        if not all(isinstance(r, Node) for r in results) or (single and len(results) != 1):
            raise _Refused("a graph within it returns something else than tensors")
        self.graph.output(results[0] if single else results)
        self.graph.lint()
        module = GraphModule(self.modules, self.graph, "GraphModule")
        self.graph, self.nodes, self.metas, self.modules = outside
        self.depth -= 1
        self.modules[name] = module
        return self.graph.create_node("get_attr", name, (), {}, name)

    def _higher_order(self, target: HigherOrderOperator, inputs: list) -> tuple:
        """The arguments of an operator that has graphs."""
        given = [_only(entry["arg"]) for entry in inputs]
        first = int(target is cond_op)
        kinds = ["as_tensor"] * first + ["as_graph"] * 2 + ["as_tensors"] * (2 - first)
        if [kind for kind, _ in given] != kinds or any(entry.get("kind") == 2 for entry in inputs):
            raise _Refused(f"it calls {target} with {[kind for kind, _ in given]}")
        args = [
            self._within(value) if kind == "as_graph" else self._argument({kind: value}) for kind, value in given
        ]  # fmt: skip
        args = [tuple(a) if isinstance(a, list) else a for a in args]
        count = sum(len(a) for a in args if isinstance(a, tuple))
        for node in args[first : first + 2]:
            graph = self.modules[str(node.target)].graph
            if len([n for n in graph.nodes if n.op == "placeholder"]) != count:
                raise _Refused(f"a graph of {target} takes another number of tensors than it is given")
        return tuple(args)

    def _node(self, data: dict) -> None:
        target = _target(_text(data["target"]))
        if target is None:
            return
        higher = isinstance(target, HigherOrderOperator)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        if isinstance(target, HigherOrderOperator):
            args += self._higher_order(target, data["inputs"])
        for given in () if higher else data["inputs"]:
            value = self._argument(given["arg"])
            if given.get("kind") == 2:
                kwargs[_identifier(given["name"])] = value
            else:
                args.append(value)
        if target is ops.aten.to.dtype_layout:
            kwargs.pop("layout", None)  # strided, as all are; `Tensor.to` has no such argument
        outputs = [_only(o) for o in data["outputs"]]
        name = data.get("name") or (_result(outputs[0]) if outputs else "") or "call"
        node = self.graph.create_node("call_function", target, tuple(args), kwargs, _name(name))
        if node.name != name:
            node.name = name  # a name that only other nodes may not have
        trace = data.get("metadata", {}).get("stack_trace")
        if isinstance(trace, str):
            node.meta["stack_trace"] = "\n".join(f"  {line}" for line in trace.splitlines()) + "\n"
        calls = data.get("metadata", {}).get("nn_module_stack")
        if isinstance(calls, str):
            node.meta["nn_module_stack"] = _calls_of(calls)
        if len(outputs) == 1 and outputs[0][0] != "as_tensors" and not higher:
            kind = outputs[0][0]
            if kind not in ("as_tensor", "as_sym_int", "as_sym_float", "as_none"):
                raise _Refused(f"the result of {data['target']} is {kind}")
            if kind != "as_none":
                self._enter(_result(outputs[0]), node)
            return
        several = len(outputs) == 1 and outputs[0][0] == "as_tensors"
        parts = [("as_tensor", t) for t in outputs[0][1]] if several else outputs
        values: list[Any] = []
        for i, part in enumerate(parts):
            if part[0] == "as_none":
                values.append(None)
                continue
            if part[0] != "as_tensor":
                raise _Refused(f"a result of {data['target']} is {part[0]}")
            label = _result(part)
            values.append(self.metas.get(label, (None,))[0])
            if label.startswith(f"{name}_unused_"):
                continue
            item = self.graph.create_node("call_function", operator.getitem, (node, i), {}, label)
            item.name = label
            self._enter(label, item)
        node.meta["val"] = tuple(values)

    def _argument(self, data: Any) -> Any:
        kind, value = _only(data)
        if kind == "as_none":
            return None
        if kind == "as_tensor":
            return self._known(value["name"])
        if kind in ("as_sym_int", "as_sym_float", "as_sym_bool"):
            inner, value = _only(value)
            return self._known(value) if inner == "as_name" else _number(value)
        if kind == "as_tensors":
            return [self._known(v["name"]) for v in value]
        if kind in ("as_optional_tensors", "as_sym_ints", "as_sym_floats"):
            prefix = {"as_sym_ints": "as_sym_int", "as_sym_floats": "as_sym_float"}.get(kind)
            return [self._argument({prefix: v} if prefix else v) for v in value]
        if kind == "as_optional_tensor":
            return self._argument(value)
        convert = _VALUES.get(kind)
        if convert is not None:
            return convert(value)
        inner_kind = _VALUES.get(kind[:-1])
        if inner_kind is not None and isinstance(value, list):
            return [inner_kind(v) for v in value]
        raise _Refused(f"it has an argument of the kind {kind!r}")

    def _known(self, name: Any) -> Node:
        found = self.nodes.get(_name(name))
        if found is None:
            raise _Refused(f"{name!r} is used before it is made")
        return found

    # --- how it is called --------------------------------------------------------------------------------------------

    def _calls(self, entries: list, signature: ExportGraphSignature) -> list[ModuleCallEntry]:
        """How the program is called, and which modules it had."""
        calls = [self._call(entries, signature)]
        for entry in entries:
            if entry["fqn"] == "":
                continue
            path, _, number = _text(entry["fqn"]).partition("@")
            _checked_path(path)
            if number and not (number.isascii() and number.isdecimal()):
                raise _Refused(f"{number[:80]!r} is not the number of a call")
            found = entry.get("signature")
            if found is None:
                calls.append(ModuleCallEntry(entry["fqn"]))
                continue
            in_spec, out_spec = (_pytree.treespec_loads(_text(found[part])) for part in ("in_spec", "out_spec"))
            inputs, outputs = ([self._called_with(a) for a in found[part]] for part in ("inputs", "outputs"))
            if (in_spec.num_leaves, out_spec.num_leaves) != (len(inputs), len(outputs)):
                raise _Refused(f"the structure of the arguments of {path} is not that of its call")
            if in_spec.type is not tuple or [c.type for c in in_spec.children()] != [tuple, dict]:
                raise _Refused(f"the structure of the arguments of {path} is not a tuple and a dict")
            calls.append(ModuleCallEntry(entry["fqn"], ModuleCallSignature(inputs, outputs, in_spec, out_spec)))
        return calls

    def _called_with(self, entry: dict) -> Any:
        """An argument or result of a module."""
        kind, value = _only(entry)
        if kind == "as_tensor":
            return TensorArgument(_name(value["name"]))
        if kind == "as_sym_int" and "as_name" in value:
            return SymIntArgument(_name(value["as_name"]))
        return ConstantArgument("", None if kind == "as_none" else self._argument(entry))

    def _call(self, entries: list, signature: ExportGraphSignature) -> ModuleCallEntry:
        found = next(e["signature"] for e in entries if e["fqn"] == "")
        in_spec, out_spec = (_pytree.treespec_loads(_text(found[part])) for part in ("in_spec", "out_spec"))
        users = [s for s in signature.input_specs if s.kind is InputKind.USER_INPUT]
        results = [s for s in signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
        if in_spec.num_leaves != len(users) or out_spec.num_leaves != len(results):
            raise _Refused("the structure of its arguments or results is not that of its graph")
        if in_spec.type is not tuple or [c.type for c in in_spec.children()] != [tuple, dict]:
            raise _Refused("the structure of its arguments is not a tuple and a dict")
        names = found.get("forward_arg_names")
        return ModuleCallEntry("", ModuleCallSignature([], [], in_spec, out_spec, names))

    def _dynamic(self, data: dict, signature: ExportGraphSignature) -> Dynamic:
        ranges = {}
        for name, entry in data["range_constraints"].items():
            low, high = (None if entry[p] is None else int(entry[p]) for p in ("min_val", "max_val"))
            ranges[_name(name)] = ValueRanges(max(low or 0, 0), high)
        constraints = []
        users = [s for s in signature.input_specs if s.kind is InputKind.USER_INPUT]
        for leaf, spec in enumerate(users):
            for axis, size in enumerate(self.nodes[spec.arg.name].meta.get("sizes") or ()):
                if isinstance(size, str):
                    root, factor, shift = _affine(size)
                    bounds = ranges.get(root, ValueRanges(0, None))
                    constraints.append(Constraint(leaf, axis, root, factor, shift, bounds.lower, bounds.upper))
        symbols = {c.root: c.root for c in constraints}
        return Dynamic(constraints, symbols, {s: r for s, r in ranges.items() if s in symbols})


# --- checks ----------------------------------------------------------------------------------------------------------


def _only(value: Any) -> tuple[str, Any]:
    """The kind and the value of a union: a dict with one entry."""
    if not isinstance(value, dict) or len(value) != 1:
        raise _Refused(f"one value of one kind was expected, but there is {str(value)[:80]}")
    return next(iter(value.items()))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Refused(f"a text was expected, but there is {str(value)[:80]}")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Refused(f"true or false was expected, but there is {str(value)[:80]}")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < LIMIT:
        raise _Refused(f"a size was expected, but there is {str(value)[:80]}")
    return value


def _integer(value: Any) -> int:
    if type(value) is not int or abs(value) >= 1 << 64:
        raise _Refused(f"an integer was expected, but there is {str(value)[:80]}")
    return value


def _number(value: Any) -> float:
    if value in ("Infinity", "-Infinity", "NaN"):
        return float(value)
    if type(value) not in (int, float):
        raise _Refused(f"a number was expected, but there is {str(value)[:80]}")
    return value


def _identifier(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.match(value) or keyword.iskeyword(value) or value.startswith("__"):
        raise _Refused(f"{str(value)[:80]!r} is not a name")
    return value


def _name(value: Any) -> str:
    """A name that a node may have."""
    _identifier(value)
    if value in _RESERVED:
        raise _Refused(f"{value!r} is not a name of a node")
    return value


_RESERVED = ("self", "torch", "device", "inf", "nan", "NoneType", "fx_pytree", "pytree")
_TAKEN = frozenset((*dir(UnliftedModule), *vars(Module())))


def _checked_path(value: Any) -> str:
    """The dotted name of a tensor in a module."""
    if value in _RESERVED:
        raise _Refused(f"{value!r} is not a name of a tensor")
    for part in _text(value).split("."):
        if not re.fullmatch(r"[A-Za-z0-9_-]+", part) or part.startswith("__") or part in _TAKEN or part == "_guards_fn":
            raise _Refused(f"{value[:80]!r} is not a name of a tensor")
    return value


def _dtype(number: Any) -> Any:
    name = DTYPES.get(_integer(number))
    if name is None:
        raise _Refused(f"the dtype number {number} is not known")
    return getattr(tensorgrad, name)


def _calls_of(text: str) -> dict[str, tuple[str, str]]:
    """The calls of modules that a node belongs to: `key,path,type;...`."""
    found = {}
    for part in text.split(";"):
        key, path, kind = (part.split(",", 2) + ["", ""])[:3]
        if path:
            _checked_path(path.partition("@")[0])
        found[key] = path, kind
    return found


def _tensor_argument(entry: dict) -> TensorArgument:
    return TensorArgument(_name(entry["arg"]["name"]))


def _result(output: tuple[str, Any]) -> str:
    kind, value = output
    return "" if kind == "as_none" else _name(value["name"] if kind == "as_tensor" else value["as_name"])


def _target(text: str) -> Callable | None:
    """What a node calls; None for a check that PyTorch put in."""
    found = re.fullmatch(r"torch\.ops\.aten\.(\w+)\.(\w+)", text)
    if found:
        name, overload = found.groups()
        if name in _CHECKS:
            return None
        if name in _SPELLED:
            name = _SPELLED[name]
            overload = "Tensor_Scalar" if "shift" in name and overload == "Scalar" else overload
        if name in _REFUSED or name not in _overloads() or overload not in _overloads()[name]:
            raise _Refused(f"it calls the operator aten.{name}.{overload}, which is not here")
        return getattr(getattr(ops.aten, name), overload)
    module, _, name = text.rpartition(".")
    if module == "torch.ops.higher_order" and name in HIGHER_ORDER:
        return HIGHER_ORDER[name]
    if module == "_operator" and name in OPERATORS:
        return getattr(operator, name)
    if module == "torch" and name in SYMBOLIC:
        return getattr(tensorgrad, name)
    raise _Refused(f"it calls {text[:80]!r}, which is not an operator that programs may call")


def _device(value: Any) -> Any:
    index = value.get("index")
    return tensorgrad.device(_text(value["type"]), *(() if index is None else (_integer(index),)))


def _layout(value: Any) -> Any:
    if value != STRIDED:
        raise _Refused("it has a layout that is not strided")
    return tensorgrad.strided


_VALUES: dict[str, Callable[[Any], Any]] = {
    "as_int": _integer,
    "as_float": lambda v: float(_number(v)),
    "as_bool": _flag,
    "as_string": _text,
    "as_complex": lambda v: complex(_number(v["real"]), _number(v["imag"])),
    "as_scalar_type": _dtype,
    "as_memory_format": lambda v: getattr(tensorgrad, MEMORY_FORMATS[_integer(v)]),
    "as_layout": _layout,
    "as_device": _device,
}


def _affine(text: str) -> tuple[str, int, int]:
    """A size as a root, a factor and a shift; another expression is a root of its own."""
    found = re.fullmatch(r"(?:(\d+)\*)?([A-Za-z_]\w*)(?:\*(\d+))?(?: ([+-]) (\d+))?", text)
    if not found:
        return text, 1, 0
    before, root, after, sign, shift = found.groups()
    return root, int(before or after or 1), int(shift or 0) * (-1 if sign == "-" else 1)
