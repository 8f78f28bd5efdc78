"""`ExportedProgram.run_decompositions`: a program of core operators alone, without writes in place.

The program runs again, under a tracer that sees what its operators are made of (library/dispatch_classes.py), writes
some in the form of PyTorch's core operators, and keeps writes out of the graph: what is written is a new value, from
which the values of the tensors that share its memory are made.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import tensorgrad
from tensorgrad._ops import OpOverload, OpOverloadPacket, ops
from tensorgrad.autograd.modes import no_grad
from tensorgrad.export.exported_program import DECOMPOSED, ExportedProgram, ModuleCallEntry, argument_of
from tensorgrad.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from tensorgrad.export.module_calls import NodeStacks
from tensorgrad.export.trace import kept, traces
from tensorgrad.export.tracer import Tracer, name_of, traced_call
from tensorgrad.fx import Graph, Interpreter, Node
from tensorgrad.library.operators_of_rows import ROWS
from tensorgrad.nn import Module
from tensorgrad.rows.switches import LOCAL
from tensorgrad.tensor import Tensor
from tensorgrad.utils import _pytree

aten = ops.aten


def decomposed(program: ExportedProgram, table: dict[Any, Callable]) -> ExportedProgram:
    """The program by core operators."""
    signature = program.graph_signature
    order = {InputKind.PARAMETER: 0, InputKind.CONSTANT_TENSOR: 1, InputKind.BUFFER: 2, InputKind.USER_INPUT: 3}
    specs = sorted(signature.input_specs, key=lambda spec: order[spec.kind])
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    stored = {**program.state_dict, **program.constants}
    lifted = [(spec.arg.name, stored[str(spec.target)]) for spec in specs if spec.kind is not InputKind.USER_INPUT]
    names = [spec.arg.name for spec in specs if spec.kind is InputKind.USER_INPUT]
    users = list(zip(names, _example(program, [nodes[name] for name in names]), strict=True))
    before = [spec.arg.name for spec in signature.input_specs]
    mutations = [spec for spec in signature.output_specs if spec.kind is not OutputKind.USER_OUTPUT]

    inner = {n.name for n in program.graph.nodes if n.op != "placeholder"}
    calls = [e.signature for e in program.module_call_graph if e.signature is not None]
    named = {getattr(spec, "name", "") for call in calls for spec in (*call.inputs, *call.outputs)}
    stacks = NodeStacks(named & inner)
    run = Rerun(program.graph_module, stacks)

    def call(given: list[Any]) -> Any:
        values = {**dict(lifted), **dict(zip(names, given, strict=True))}
        results = traced_call(run.run, tuple(values[name] for name in before), {})
        targets = {str(spec.target): values[spec.arg.name] for spec in signature.input_specs}
        for spec, value in zip(mutations, results, strict=False):
            target = str(spec.target)
            (targets[target] if target in targets else values[target]).copy_(value)
        return results[len(mutations) :]

    expanded = {key: rule for key, rule in table.items() if isinstance(key, OpOverload)}
    for key, rule in table.items():
        if isinstance(key, OpOverloadPacket):
            expanded |= {getattr(key, overload): rule for overload in key.overloads()}
    with kept([t for _, t in lifted]):
        traced, _ = traces(call, lifted, users, program._dynamic.constraints, lambda: Functional(expanded, stacks))
    placeholders = [n for n in traced.graph.nodes if n.op == "placeholder"]
    by_name = {spec.arg.name: spec for spec in specs}
    constants = dict(program.constants)
    inputs = []
    for node in placeholders:
        if node.name in by_name:
            spec = by_name[node.name]
            inputs.append(InputSpec(spec.kind, spec.arg, spec.target, spec.persistent))
        else:
            constants[node.meta["constant"]] = traced.tracer.constants[node.meta["constant"]]
            inputs.append(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), node.meta["constant"]))
    results: Any = traced.graph.output_node().args[0]
    outputs = []
    places = [*traced.lifted, *traced.users]
    for i, result in enumerate(results):
        if i >= len(traced.written):
            outputs.append(OutputSpec(OutputKind.USER_OUTPUT, argument_of(result), None))
            continue
        spec = by_name[places[traced.written[i][0]].name]
        kind = {
            InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
            InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
        }.get(spec.kind, OutputKind.BUFFER_MUTATION)
        target = spec.arg.name if spec.kind is InputKind.USER_INPUT else spec.target
        outputs.append(OutputSpec(kind, argument_of(result), target))
    return ExportedProgram(
        traced.tracer.modules, traced.graph, ExportGraphSignature(inputs, outputs), program.state_dict,
        program.range_constraints, [_with_names(e, stacks, traced.graph) for e in program.module_call_graph],
        program.example_inputs, constants,
        dynamic=program._dynamic, dialect="ATEN",
    )  # fmt: skip


DECOMPOSED.append(decomposed)


class Rerun(Interpreter):
    """Runs the graph of a program, and tells which calls of modules each node belonged to."""

    def __init__(self, module: Module, stacks: NodeStacks) -> None:
        super().__init__(module)
        self.stacks = stacks

    def run_node(self, n: Node) -> Any:
        """Runs a node."""
        self.stacks.current = dict(n.meta.get("nn_module_stack") or {})
        result = super().run_node(n)
        self.stacks.made(n.name, result)
        return result


def _with_names(entry: ModuleCallEntry, stacks: NodeStacks, graph: Graph) -> ModuleCallEntry:
    """How a module is called, by the nodes of the graph that was made."""
    call = entry.signature
    if call is None or not entry.fqn:
        return entry
    nodes = set(graph.nodes)

    def renamed(spec: Any) -> Any:
        if isinstance(spec, ConstantArgument):
            return spec
        found = next((n for noted in stacks.noted if (n := noted.get(spec.name)) in nodes), None)
        return spec if spec.name not in stacks.names else argument_of(found)

    return ModuleCallEntry(
        entry.fqn, replace(call, inputs=list(map(renamed, call.inputs)), outputs=list(map(renamed, call.outputs)))
    )


def _example(program: ExportedProgram, nodes: list[Node]) -> list[Any]:
    """Inputs to trace with: those of the example, or ones."""
    if program.example_inputs is not None:
        return _pytree.tree_leaves(program.example_inputs)
    values = [n.meta.get("val") for n in nodes]
    return [tensorgrad.ones(v.shape, dtype=v.dtype) if isinstance(v, Tensor) else v for v in values]


# --- operators -------------------------------------------------------------------------------------------------------


def _transpose(x: Tensor, one: int, other: int) -> Any:
    dims = list(range(x.ndim))
    if dims:
        dims[one], dims[other] = dims[other], dims[one]
    return aten.permute.default(x, dims)


def _stack(tensors: list[Tensor], dim: int = 0) -> Any:
    first = tensors[0]
    dim %= first.ndim + 1
    if dim == first.ndim:
        return aten.cat.default([aten.unsqueeze.default(t, dim) for t in tensors], dim)
    shape = list(first.shape)
    return aten.view.default(aten.cat.default(list(tensors), dim), [*shape[:dim], len(tensors), *shape[dim:]])


def _split(x: Tensor, size: int, dim: int = 0) -> Any:
    total = x.shape[dim]
    sizes = [min(size, total - at) for at in range(0, total, size)] or [0]
    return aten.split_with_sizes.default(x, sizes, *(() if dim == 0 else (dim,)))


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    if mean is None or var is None:
        return NotImplemented
    if not training:
        return aten._native_batch_norm_legit_no_training.default(x, weight, bias, mean, var, momentum, eps)
    made = aten._native_batch_norm_legit_functional.default(x, weight, bias, mean, var, True, momentum, eps)
    aten.copy_.default(mean, made[3])
    aten.copy_.default(var, made[4])
    return made[:3]


def _softmax(name: str) -> Callable:
    def rule(x: Any, dim: int, dtype: Any = None) -> Any:
        x = x if dtype in (None, x.dtype) else aten._to_copy.default(x, dtype=dtype)
        return getattr(aten, name).default(x, dim, False)

    return rule


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """With dropout, whose random numbers are drawn within the kernel. Others are taken apart as they are."""
    if not dropout_p or enable_gqa:
        return NotImplemented
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = ROWS["matmul"](aten.mul.Tensor(query, scale), aten.transpose.int(key, -2, -1))
    if is_causal:
        n, m = scores.shape[-2:]
        attn_mask = tensorgrad.ones(n, m, dtype=tensorgrad.bool).tril()
    if attn_mask is not None and attn_mask.dtype is tensorgrad.bool:
        scores = aten.masked_fill.Scalar(scores, aten.logical_not.default(attn_mask), float("-inf"))
    elif attn_mask is not None:
        scores = aten.add.Tensor(scores, attn_mask)
    weights = aten.native_dropout.default(aten._softmax.default(scores, -1, False), dropout_p, True)[0]
    return ROWS["matmul"](weights, value)


def _mse_loss(x: Any, target: Any, reduction: int = 1) -> Any:
    squares = aten.pow.Tensor_Scalar(aten.sub.Tensor(x, target), 2)
    return [lambda v: v, aten.mean.default, aten.sum.default][reduction](squares)


def _full(value: int) -> Callable:
    def rule(size: Any, *, dtype: Any = None, **options: Any) -> Any:
        return aten.full.default(size, value, dtype=dtype or tensorgrad.get_default_dtype(), **options)

    return rule


def _view(x: Tensor, size: list[int]) -> Any:
    """A view, also where an operator that was taken apart has left its result in another layout."""
    try:
        with no_grad():
            Tracer.quietly(lambda: x.view(size), (), {})
    except RuntimeError:
        return aten.view.default(aten.clone.default(x, memory_format=tensorgrad.contiguous_format), size)
    return NotImplemented


def _dropout(x: Any, p: float = 0.5, train: bool | None = True) -> Any:
    return aten.native_dropout.default(x, p, True)[0] if train and p else aten.clone.default(x)


# Operators, and the core operators that compute them.
RULES: dict[str, Callable] = {
    "_unsafe_view.default": lambda x, size: aten.view.default(x, size),
    "dropout.default": _dropout,
    "linear.default": lambda *args: ROWS["linear"](*args),
    "log_softmax.int": _softmax("_log_softmax"),
    "matmul.default": lambda one, other: ROWS["matmul"](one, other),
    "mse_loss.default": _mse_loss,
    "scaled_dot_product_attention.default": _attention,
    "softmax.int": _softmax("_softmax"),
    "view.default": _view,
    "to.dtype": lambda x, dtype: x if x.dtype is dtype else aten._to_copy.default(x, dtype=dtype),
    "lift_fresh_copy.default": lambda x: aten.clone.default(x),
    "native_batch_norm.default": _batch_norm,
    "ones.default": _full(1),
    "rsub.Scalar": lambda x, other, alpha=1: aten.sub.Tensor(other, x) if alpha == 1 else NotImplemented,
    "split.Tensor": _split,
    "squeeze.dim": lambda x, dim: aten.squeeze.dims(x, [dim]),
    "stack.default": _stack,
    "t.default": lambda x: aten.permute.default(x, [1, 0]) if x.ndim == 2 else aten.alias.default(x),
    "transpose.int": _transpose,
    "zeros.default": _full(0),
}
# Operators whose result is their first argument, for what a graph without gradients and writes computes.
_IDENTITIES = frozenset(("alias", "detach", "detach_"))


# --- writes ----------------------------------------------------------------------------------------------------------


@dataclass
class View:
    """How a tensor is made of another one that has its memory.

    Attributes:
        of: the tensor.
        again: makes the node, given that of `of`.
        back: makes the node of `of` after a write, given its node and that of the new values.
        stamp: how many writes to the memory the node has seen.
    """

    of: Tensor
    again: Callable[[Node], Node]
    back: Callable[[Node, Node], Node]
    stamp: int = 0


@dataclass
class Family:
    """The tensors that share memory: how often it was written to, and the views among them."""

    writes: int = 0
    views: dict[int, View] = field(default_factory=dict)


_RESHAPES = frozenset(("as_strided", "resize", "set", "squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze"))


class Functional(Tracer):
    """A tracer of core operators, whose graph does not write."""

    def __init__(self, table: dict[Any, Callable], calls: NodeStacks | None = None) -> None:
        super().__init__((), False, calls)
        self.table = table
        self._families: dict[int, tuple[Any, Family]] = {}  # id of a storage -> it, and its family

    def inner(self) -> Tracer:
        """A tracer of the same kind, for a graph within this one."""
        return Functional(self.table)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operator, by others or without its writes."""
        kwargs = kwargs or {}
        rule = self._rule(func)
        if rule is not None:
            modes, LOCAL.dispatch_modes = LOCAL.dispatch_modes, (*LOCAL.dispatch_modes, self)
            try:
                made = rule(*args, **kwargs)
            finally:
                LOCAL.dispatch_modes = modes
            if made is not NotImplemented:
                return made
        name = name_of(func)
        if name in _IDENTITIES:
            result = self.quietly(func, args, kwargs)
            if result is not args[0]:
                self._view(args[0], result, lambda node: node, lambda of, value: value)
            return result
        if isinstance(func, OpOverload) and name[-1] == "_" and name[-2:] != "__":
            return self._write(func, args, kwargs)
        result = super().__torch_dispatch__(func, types, args, kwargs)
        for i, made in enumerate(result if isinstance(result, tuple | list) else [result]):
            of: Any = args[0] if args else None
            tensors = isinstance(made, Tensor) and isinstance(of, Tensor) and made is not of
            if tensors and made._storage is of._storage:
                self._keep_view(func, args, kwargs, made, i if isinstance(result, tuple | list) else None)
        return result

    def keeps(self, operator: OpOverload) -> bool:
        """Whether there is a rule for an operator."""
        return self._rule(operator) is not None

    def _rule(self, func: Any) -> Callable | None:
        own = RULES.get(func.__name__) if isinstance(func, OpOverload) and func.namespace == "aten" else None
        return self.table.get(func) or own

    # --- views -------------------------------------------------------------------------------------------------------

    def _family(self, tensor: Tensor) -> Family:
        storage: Any = tensor._storage
        storage = getattr(storage, "real", storage)
        return self._families.setdefault(id(storage), (storage, Family()))[1]

    def _view(self, of: Tensor, made: Tensor, again: Callable, back: Callable) -> None:
        node = self.node_of(of)
        family = self._family(of)
        family.views[id(made)] = View(of, again, back, family.writes)
        if id(made) not in self._nodes or again(node) is node:
            self.enter(made, node)

    def _keep_view(self, func: Any, args: tuple, kwargs: dict, made: Tensor, item: int | None) -> None:
        of, rest = args[0], tuple(self.argument(a) for a in args[1:])
        shape, name = list(of.shape), name_of(func)

        def call(target: Any, *given: Any) -> Node:
            return self._add(target, given, {}, name_of(target))

        def again(node: Node) -> Node:
            new = self._add(func, (node, *rest), dict(kwargs), name)
            return new if item is None else self._add(operator.getitem, (new, item), {}, "getitem")

        dim = rest[0] if rest else 0
        back: Callable[[Node, Node], Node] | None = {
            "view": lambda of, v: call(aten.view.default, v, shape),
            "squeeze": lambda of, v: call(aten.view.default, v, shape),
            "unsqueeze": lambda of, v: call(aten.squeeze.dims, v, [dim]),
            "permute": lambda of, v: call(aten.permute.default, v, _inverse(rest[0], len(shape))),
            "select": lambda of, v: call(aten.select_scatter.default, of, v, *rest),
            "slice": lambda of, v: call(aten.slice_scatter.default, of, v, *rest),
            "diagonal": lambda of, v: call(aten.diagonal_scatter.default, of, v, *rest),
            "as_strided": lambda of, v: call(aten.as_strided_scatter.default, of, v, *rest),
            "split_with_sizes": lambda of, v: call(
                aten.slice_scatter.default, of, v, rest[1] if len(rest) > 1 else 0, sum(rest[0][: item or 0]),
                sum(rest[0][: (item or 0) + 1]),
            ),
            "unbind": lambda of, v: call(aten.select_scatter.default, of, v, dim, item),
        }.get(name)  # fmt: skip
        if back is None:

            def back(of: Node, value: Node) -> Node:
                raise NotImplementedError(f"run_decompositions(): a write to what {func} returns")

        family = self._family(of)
        family.views[id(made)] = View(of, again, back, family.writes)

    def node_of(self, tensor: Tensor) -> Node:
        """The node of a tensor's present values."""
        family = self._family(tensor)
        view = family.views.get(id(tensor))
        if view is not None and view.stamp != family.writes:
            self.enter(tensor, view.again(self.node_of(view.of)))
            view.stamp = family.writes
        return super().node_of(tensor)

    # --- writes ------------------------------------------------------------------------------------------------------

    def _write(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        target = args[0]
        before = self.node_of(target)
        value = self._value(func, args, kwargs)
        result = self.quietly(func, args, kwargs)
        if value is not before:
            self._set(target, value)
        return result

    def _value(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Node:
        """The node of what an operator that writes would leave in its first argument."""
        target, name = args[0], name_of(func)[:-1]
        if name in _RESHAPES:
            raise NotImplementedError(f"run_decompositions(): {func} changes the shape of a tensor in place")
        modes, LOCAL.dispatch_modes = LOCAL.dispatch_modes, (*LOCAL.dispatch_modes, self)
        try:
            if name == "requires_grad":
                return self.node_of(target)
            if name == "copy":
                made = args[1]
            elif name in ("fill", "zero"):
                made = aten.full_like.default(target, args[1] if name == "fill" else 0)
                if name == "fill" and isinstance(args[1], Tensor):
                    made = args[1]
            else:
                found = getattr(getattr(aten, name, None), func._overloadname, None)
                if found is None:
                    raise NotImplementedError(f"run_decompositions(): {func} has no form that does not write")
                made = found(*args, **kwargs)
            if made.dtype is not target.dtype:
                made = aten._to_copy.default(made, dtype=target.dtype)
            if made.shape != target.shape:
                made = aten.expand.default(made, list(target.shape))
            return self.node_of(made)
        finally:
            LOCAL.dispatch_modes = modes

    def _set(self, tensor: Tensor, value: Node) -> None:
        """Makes a node the values of a tensor, and of those whose memory it shares."""
        family = self._family(tensor)
        fresh: dict[int, tuple[Tensor, Node]] = {id(tensor): (tensor, value)}
        view = family.views.get(id(tensor))
        while view is not None:
            value = view.back(self.node_of(view.of), value)
            fresh[id(view.of)] = view.of, value
            view = family.views.get(id(view.of))
        family.writes += 1
        for key, (t, node) in fresh.items():
            self.enter(t, node)
            if key in family.views:
                family.views[key].stamp = family.writes

    def written(self, inputs: list[Any]) -> list[tuple[int, Node]]:
        """The inputs that were written to, with their new values."""
        found = []
        for i, tensor in enumerate(inputs):
            if isinstance(tensor, Tensor) and self._family(tensor).writes:
                node = self.node_of(tensor)
                if node.op != "placeholder":
                    found.append((i, node))
        return found


def _inverse(dims: list[int], count: int) -> list[int]:
    found = [0] * count
    for i, d in enumerate(dims):
        found[d % count] = i
    return found
