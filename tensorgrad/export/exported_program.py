"""`ExportedProgram`: a graph of operators, its signature, and the tensors that belong to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from tensorgrad._ops import ops
from tensorgrad.export.dynamic_shapes import Constraint
from tensorgrad.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    OutputKind,
    SymIntArgument,
    TensorArgument,
)
from tensorgrad.fx import Graph, GraphModule, Node
from tensorgrad.fx.node import map_arg
from tensorgrad.nn import Module, Parameter
from tensorgrad.tensor import Tensor
from tensorgrad.utils import _pytree

__all__ = ["CallSpec", "ExportedProgram", "ModuleCallEntry", "ModuleCallSignature", "ValueRanges"]


DECOMPOSED: list[Callable] = []  # what takes a program apart: decompositions.py puts it here


@dataclass(frozen=True)
class ValueRanges:
    """The sizes that a dynamic dimension may have.

    >>> from tensorgrad.export.exported_program import ValueRanges
    >>> ValueRanges(1, None)
    VR[1, int_oo]
    """

    lower: int
    upper: int | None

    def __repr__(self) -> str:
        return f"VR[{self.lower}, {'int_oo' if self.upper is None else self.upper}]"

    def __contains__(self, value: int) -> bool:
        return self.lower <= value and (self.upper is None or value <= self.upper)


@dataclass(frozen=True)
class CallSpec:
    """The structures of the arguments and of the result.

    >>> program = torch.export.export(torch.nn.Linear(2, 1), (torch.ones(3, 2),))
    >>> program.call_spec.in_spec.num_leaves
    1
    """

    in_spec: Any
    out_spec: Any


@dataclass
class ModuleCallSignature:
    """How a module is called.

    >>> program = torch.export.export(torch.nn.Linear(2, 1), (torch.ones(3, 2),))
    >>> program.module_call_graph[0].signature.in_spec.num_leaves
    1
    """

    inputs: list[Any]
    outputs: list[Any]
    in_spec: Any
    out_spec: Any
    forward_arg_names: list[str] | None = None


@dataclass
class ModuleCallEntry:
    """A call of a module: of the whole, whose name is empty.

    >>> torch.export.export(torch.nn.Linear(2, 1), (torch.ones(3, 2),)).module_call_graph[0].fqn
    ''
    """

    fqn: str
    signature: ModuleCallSignature | None = None


@dataclass
class Dynamic:
    """What is known of the dynamic dimensions of a program.

    Attributes:
        constraints: where they are; the number of a leaf counts the user's inputs.
        symbols: root -> the symbol that the graph has for it.
        ranges: symbol -> the sizes that it may have.
    """

    constraints: list[Constraint] = field(default_factory=list)
    symbols: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, ValueRanges] = field(default_factory=dict)


class ExportedProgram:
    """A program that was exported: call its `module()`, decompose it, save it, or change its graph.

    Attributes:
        graph_module: takes all parameters, buffers, constants and inputs, flat, and returns the outputs, flat.
        graph: its graph.
        graph_signature: what the inputs and outputs are.
        state_dict: parameters and persistent buffers, by name.
        constants: constants, and buffers that are not persistent, by name.
        range_constraints: the sizes that dynamic dimensions may have.
        example_inputs: the arguments with which it was exported: a tuple, and a dict.
        dialect: "TRAINING", or "ATEN" for a program of core operators.

    >>> program = torch.export.export(torch.nn.Linear(2, 1), (torch.ones(3, 2),))
    >>> [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    ['aten.linear.default']
    >>> program.module()(torch.ones(3, 2)).shape
    torch.Size([3, 1])
    """

    def __init__(
        self,
        root: Module | dict[str, Any],
        graph: Graph,
        graph_signature: ExportGraphSignature,
        state_dict: dict[str, Any],
        range_constraints: dict[str, ValueRanges],
        module_call_graph: list[ModuleCallEntry],
        example_inputs: tuple[tuple, dict[str, Any]] | None = None,
        constants: dict[str, Any] | None = None,
        *,
        dynamic: Dynamic | None = None,
        dialect: str = "TRAINING",
    ) -> None:
        self._graph_module = GraphModule(root, graph, "GraphModule")
        self._graph_signature = graph_signature
        self._state_dict = state_dict
        self._range_constraints = range_constraints
        self._module_call_graph = module_call_graph
        self._example_inputs = example_inputs
        self._constants = constants or {}
        self._dynamic = dynamic or Dynamic()
        self.dialect = dialect

    @property
    def graph_module(self) -> GraphModule:
        """Takes all parameters, buffers, constants and inputs, flat, and returns the outputs, flat."""
        return self._graph_module

    @property
    def graph(self) -> Graph:
        """The graph of `graph_module`."""
        return self._graph_module.graph

    @property
    def graph_signature(self) -> ExportGraphSignature:
        """What the inputs and outputs are."""
        return self._graph_signature

    @property
    def state_dict(self) -> dict[str, Any]:
        """Parameters and persistent buffers, by name."""
        return self._state_dict

    @property
    def range_constraints(self) -> dict[str, ValueRanges]:
        """The sizes that dynamic dimensions may have."""
        return self._range_constraints

    @property
    def module_call_graph(self) -> list[ModuleCallEntry]:
        """The call of the whole module."""
        return self._module_call_graph

    @property
    def constants(self) -> dict[str, Any]:
        """Constants, and buffers that are not persistent, by name."""
        return self._constants

    @property
    def tensor_constants(self) -> dict[str, Any]:
        """`constants`, by its older name."""
        return self._constants

    @property
    def example_inputs(self) -> tuple[tuple, dict[str, Any]] | None:
        """The arguments with which it was exported."""
        return self._example_inputs

    @example_inputs.setter
    def example_inputs(self, value: tuple[tuple, dict[str, Any]] | None) -> None:
        if value is not None and not (isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict)):
            raise ValueError("Example inputs should be a tuple of (args, kwargs)")
        self._example_inputs = value

    @property
    def call_spec(self) -> CallSpec:
        """The structures of the arguments and of the result."""
        signature = self._module_call_graph[0].signature
        assert signature is not None
        return CallSpec(signature.in_spec, signature.out_spec)

    def parameters(self) -> Iterator[Parameter]:
        """Yields the parameters."""
        for _, parameter in self.named_parameters():
            yield parameter

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yields the parameters with their names."""
        for name in self.graph_signature.parameters:
            yield name, self._state_dict[name]

    def buffers(self) -> Iterator[Tensor]:
        """Yields the buffers."""
        for _, buffer in self.named_buffers():
            yield buffer

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Yields the buffers with their names."""
        apart = set(self.graph_signature.non_persistent_buffers)
        for name in self.graph_signature.buffers:
            yield name, (self._constants if name in apart else self._state_dict)[name]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises: RuntimeError, as in PyTorch. Call `module()`."""
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` instead."
        )

    def validate(self) -> None:
        """Raises: RuntimeError if the signature does not fit the graph."""
        self.graph.lint()
        placeholders = [n.name for n in self.graph.nodes if n.op == "placeholder"]
        if placeholders != [spec.arg.name for spec in self.graph_signature.input_specs]:
            raise RuntimeError("the inputs of the graph are not those of the signature")
        outputs = self.graph.output_node().args[0]
        if len(outputs) != len(self.graph_signature.output_specs):
            raise RuntimeError("the outputs of the graph are not those of the signature")

    def run_decompositions(
        self, decomp_table: dict[Any, Callable] | None = None, decompose_custom_triton_ops: bool = False
    ) -> ExportedProgram:
        """Returns a program of core operators alone, without writes in place: what the program writes is an output.

        Its results may differ from the program's in the last bits, as fused kernels are taken apart.

        Args:
            decomp_table: operators and functions that compute them by others, which come first.
            decompose_custom_triton_ops: accepted for compatibility.

        >>> program = torch.export.export(torch.nn.Linear(2, 1), (torch.ones(3, 2),))
        >>> graph = program.run_decompositions().graph
        >>> [str(node.target) for node in graph.nodes if node.op == "call_function"]
        ['aten.permute.default', 'aten.addmm.default']
        """
        return DECOMPOSED[0](self, decomp_table or {})

    def module(self, check_guards: bool = True) -> GraphModule:
        """Returns a module that is called as the exported one was, and has its parameters and buffers.

        Args:
            check_guards: whether it checks that the inputs have the sizes for which the program holds.

        Raises (when called):
            AssertionError: If they have not.
            ValueError: If the structure of the arguments is another one.
        """
        return unlifted(self, check_guards)

    def __str__(self) -> str:
        body = "\n    ".join(readable(self.graph_module).splitlines())
        return (
            f"ExportedProgram:\n    {body}\n\nGraph signature: {self.graph_signature}\n"
            f"Range constraints: {self.range_constraints}\n"
        )


# --- the module ------------------------------------------------------------------------------------------------------


class Guards(Module):
    """Checks that inputs have the sizes for which a program holds."""

    def __init__(self, expected: list[tuple[str, Any]], dynamic: Dynamic) -> None:
        super().__init__()
        self.expected, self.dynamic = expected, dynamic

    def forward(self, *inputs: Any) -> None:
        """Raises: AssertionError if they do not."""
        places = {(c.leaf, c.axis): c for c in self.dynamic.constraints}
        roots: dict[str, tuple[int, str]] = {}
        for number, ((name, expected), value) in enumerate(zip(self.expected, inputs, strict=True)):
            if not isinstance(expected, Tensor):
                same = type(value) is type(expected) and (value == expected or value != value)
                _check(same, f"{name} == {expected!r}")
                continue
            _check(isinstance(value, Tensor), f"isinstance({name}, torch.Tensor)")
            _check(value.ndim == expected.ndim, f"len({name}.size()) == {expected.ndim}")
            for axis, size in enumerate(value.shape):
                at = f"{name}.size()[{axis}]"
                place = places.get((number, axis))
                if place is None:
                    _check(size == expected.shape[axis], f"{at} == {expected.shape[axis]}")
                    continue
                root, rest = divmod(size - place.shift, place.factor)
                _check(not rest, f"({at} - {place.shift}) % {place.factor} == 0")
                first, where = roots.setdefault(place.root, (root, at))
                _check(root == first, f"{at} == {place.factor} * {where} + {place.shift}")
                symbol = self.dynamic.symbols.get(place.root, place.root)
                bounds = self.dynamic.ranges.get(symbol)
                if bounds is not None:
                    _check(root >= bounds.lower, f"{at} >= {bounds.lower}")
                    _check(bounds.upper is None or root <= bounds.upper, f"{at} <= {bounds.upper}")


def _check(holds: bool, text: str) -> None:
    if not holds:
        raise AssertionError(f"Guard failed: {text}")


class UnliftedModule(GraphModule):
    """A program as a module: its graph takes the user's inputs alone."""

    _in_spec: Any
    _out_spec: Any

    def recompile(self) -> Any:
        """Makes `forward` of the graph; it is called with the program's arguments."""
        code = super().recompile()
        flat: Any = type(self).forward

        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            if "_in_spec" not in self.__dict__:
                return flat(self, *args, **kwargs)
            return _pytree.tree_unflatten(flat(self, *_flattened(self._in_spec, args, kwargs)), self._out_spec)

        type(self).forward = forward
        return code

    def train(self, mode: bool = True) -> Any:
        """Raises: NotImplementedError: the graph is what the module did in its mode."""
        raise NotImplementedError("Calling train() is not supported yet.")

    def eval(self) -> Any:
        """Raises: NotImplementedError: the graph is what the module did in its mode."""
        raise NotImplementedError("Calling eval() is not supported yet.")

    def __deepcopy__(self, memo: dict) -> Any:
        made: Any = super().__deepcopy__(memo)
        made._in_spec, made._out_spec = self._in_spec, self._out_spec
        made._non_persistent_buffers_set = set(self._non_persistent_buffers_set)
        return made


def _flattened(spec: Any, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
    """The arguments as leaves. Raises: ValueError if their structure is not the one that was exported."""
    wanted = spec.children()[1].context or []
    if set(kwargs) == set(wanted):
        kwargs = {name: kwargs[name] for name in wanted}
    leaves, found = _pytree.tree_flatten((tuple(args), kwargs))
    if found != spec:
        raise ValueError(
            f"Trying to flatten user inputs with exported input tree spec: \n{spec}\nbut actually got inputs with tree "
            f"spec of: \n{found}.\nPlease check that the inputs have the same number and type of args and kwargs as "
            "the ones you used when tracing."
        )
    return leaves


def unlifted(program: ExportedProgram, check_guards: bool) -> GraphModule:
    """The module of a program."""
    signature = program.graph_signature
    specs = {spec.arg.name: spec for spec in signature.input_specs}
    graph = Graph()
    made: dict[Node, Any] = {}
    attributes: dict[str, Any] = {}
    inputs: list[Node] = []
    for node in program.graph.nodes:
        if node.op == "placeholder":
            spec = specs[node.name]
            if spec.kind is InputKind.USER_INPUT:
                made[node] = graph.placeholder(node.name)
                inputs.append(node)
            else:
                target = str(spec.target)
                stored = program.state_dict if target in program.state_dict else program.constants
                attributes[target] = stored[target]
                made[node] = graph.get_attr(target)
            made[node].meta = copy(node.meta)
    if check_guards:
        expected = [(n.name, n.meta.get("val")) for n in inputs]
        attributes["_guards_fn"] = Guards(expected, program._dynamic)
        graph.create_node("call_module", "_guards_fn", tuple(made[n] for n in inputs), {}, "_guards_fn")
    for node in program.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if node.op == "get_attr":  # the graph of a branch or loop
            attributes[str(node.target)] = getattr(program.graph_module, str(node.target))
        made[node] = graph.node_copy(node, lambda n: made[n])
    results = map_arg(program.graph.output_node().args[0], lambda n: made[n])
    returned: list[Any] = []
    by_target = {str(s.target): n for n, s in zip(program.graph.nodes, signature.input_specs, strict=False)}
    for output, result in zip(signature.output_specs, results, strict=True):
        if output.kind is OutputKind.USER_OUTPUT:
            returned.append(result)
            continue
        written = by_target.get(str(output.target))
        if written is None:
            written = next(n for n in inputs if n.name == output.target)
        graph.create_node("call_function", ops.aten.copy_.default, (made[written], result), {}, "copy_")
    graph.output(tuple(returned))
    for name, value in attributes.items():  # GraphModule takes what nodes refer to
        assert value is not None, name
    module = UnliftedModule(attributes, graph, "GraphModule")
    call = program.call_spec
    module._in_spec, module._out_spec = call.in_spec, call.out_spec
    module.meta.update(program.graph_module.meta)
    for name in attributes:
        if name in program.constants:
            owner, _, last = name.rpartition(".")
            module.get_submodule(owner)._non_persistent_buffers_set.add(last)
    return module


# --- text ------------------------------------------------------------------------------------------------------------

_TYPES = {"bfloat16": "bf16", "bool": "b8"}


def _type_of(node: Node) -> str:
    """A node's dtype and sizes: `: "f32[2, 3]"`."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        return ""
    name = str(value.dtype).removeprefix("torch.")
    short = _TYPES.get(name) or re.sub(r"^(float|int|uint|complex)", lambda m: m[0][0], name)
    sizes = node.meta.get("sizes") or tuple(value.shape)
    return f': "{short}[{", ".join(map(str, sizes))}]"'


def readable(module: GraphModule, name: str = "GraphModule") -> str:
    """The code of a graph and of those within it, with the types of its nodes and the lines that they come from."""
    graph = module.graph
    nodes = {n.name: n for n in graph.nodes}
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    given = ", ".join(["self", *(n.name + _type_of(n) for n in placeholders)])
    lines = [f"class {name}(torch.nn.Module):", f"    def forward({given}):"]
    before = ""
    for line in graph.python_code("self").src.strip().splitlines()[1:]:
        found = re.match(r"    (\w+) = ", line)
        node = nodes.get(found[1]) if found else None
        if node is not None:
            where = _last_line(node.stack_trace or "")
            if where and where != before:
                lines += [""] * bool(before or len(lines) > 2) + [f"        # {where}"]
                before = where
            line = f"    {node.name}{_type_of(node)}{line[4 + len(node.name) :]}"
        lines.append(f"    {line}".rstrip())
    for inner in dict.fromkeys(str(n.target) for n in graph.nodes if n.op == "get_attr"):
        part = getattr(module, inner)
        if isinstance(part, GraphModule):
            lines += ["", *(f"    {line}".rstrip() for line in readable(part, inner).splitlines())]
    return "\n".join(lines) + "\n"


def _last_line(stack: str) -> str:
    found = re.findall(r'File "(.*?)", line (\d+), in (\S+)\n\s*(.*)', stack)
    if not found:
        return ""
    file, number, function, code = found[-1]
    return f"File: {file}:{number} in {function}, code: {code}"


def argument_of(value: Any, name: str = "") -> Any:
    """How a signature says what an input or output is."""
    if isinstance(value, Node):
        return (SymIntArgument if isinstance(value.meta.get("val"), int) else TensorArgument)(value.name)
    return ConstantArgument(name, value)
