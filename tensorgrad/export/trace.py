"""`torch.export.export`: traces a program, at several sizes if it has dynamic dimensions, and puts it together."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorgrad
from tensorgrad.autograd.modes import no_grad
from tensorgrad.capture.masks import real_array
from tensorgrad.export.dynamic_shapes import Constraint, ShapesCollection, constraints_of
from tensorgrad.export.errors import OtherStepsError, UserError
from tensorgrad.export.exported_program import (
    Dynamic,
    ExportedProgram,
    ModuleCallEntry,
    ModuleCallSignature,
    ValueRanges,
    argument_of,
)
from tensorgrad.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from tensorgrad.export.module_calls import ModuleCalls
from tensorgrad.export.sizes import Sizes
from tensorgrad.export.tracer import Tracer, traced_call
from tensorgrad.fx import Node
from tensorgrad.nn import Module
from tensorgrad.onnx.dimensions import TRIALS
from tensorgrad.system.exporting import exporting
from tensorgrad.system.progress import progress, say
from tensorgrad.tensor import Tensor
from tensorgrad.utils import _pytree


def export(
    mod: Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: dict[str, Any] | tuple[Any, ...] | list[Any] | ShapesCollection | None = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """Exports a module: what it does with these arguments, as a graph of operators of PyTorch's registry.

    The module runs; nothing is analysed. So the program holds for the branches that were taken, and a module that
    decides by the values of tensors cannot be exported. With dynamic dimensions it runs at several sizes, and what
    differs becomes part of the graph. The module, its buffers, and the random generator stay as they were; the program
    shares the module's parameters and buffers.

    Args:
        mod: the module.
        args: its positional arguments.
        kwargs: its other arguments.
        dynamic_shapes: which dimensions may have other sizes: for each argument, by position or by name, None or a
            structure like the argument's, with a dict from dimension to `Dim`, or a list, for each tensor.
        strict, prefer_deferred_runtime_asserts_over_guards: accepted for compatibility.
        preserve_module_call_signature: paths of modules that are called in their own way in what `unflatten` makes.

    Raises:
        AttributeError: If there is no such module.
        UserError: If the module decides by the value of a tensor, or needs other sizes than `dynamic_shapes` allows;
            the message names the line.
        NotImplementedError: If it does what is not exported.

    >>> class Scaled(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x * x.shape[0]
    >>> batch = torch.export.Dim("batch")
    >>> program = torch.export.export(Scaled(), (torch.ones(2, 3),), dynamic_shapes=({0: batch},))
    >>> print(program.graph_module.code.strip())
    def forward(self, x):
        sym_size_int = torch.ops.aten.sym_size.int(x, 0)
        mul = torch.ops.aten.mul.Tensor(x, sym_size_int);  x = sym_size_int = None
        return (mul,)
    >>> program.module()(torch.ones(5, 3))[0]
    tensor([5., 5., 5.])
    """
    if not isinstance(mod, Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise UserError(f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    kwargs = dict(kwargs or {})
    if isinstance(dynamic_shapes, ShapesCollection):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(mod, args, kwargs)
    names, values = _arguments(mod, args, kwargs)
    leaves, in_spec = _pytree.tree_flatten((args, kwargs))
    constraints = constraints_of(dynamic_shapes, names, values, leaves)
    state = _state(mod)
    lifted = [*state, *_attributes(mod, state)]

    def call(given: list[Any]) -> Any:
        a, k = _pytree.tree_unflatten(given, in_spec)
        return traced_call(mod, a, k)

    inputs = [(_placeholder_name(kind, name), t) for kind, name, t in state]
    users = _input_names(names, values)
    constants = [(name, t) for kind, name, t in lifted if kind == "c"]

    def tracer() -> Tracer:
        return Tracer(constants, calls=ModuleCalls(mod, tuple(preserve_module_call_signature)))

    with kept([t for _, _, t in lifted]), progress("export"), exporting("export"):
        traced, dynamic = traces(call, inputs, list(zip(users, leaves, strict=True)), constraints, tracer)
    return _program(mod, traced, state, (args, kwargs), in_spec, dynamic)


def draft_export(
    mod: Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    preserve_module_call_signature: tuple[str, ...] = (),
    strict: bool = False,
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """Exports a module as `export` does, with the sizes of the example where dynamic ones do not work.

    >>> class Narrow(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x + torch.ones(2)
    >>> program = torch.export.draft_export(Narrow(), (torch.ones(2),), dynamic_shapes=({0: torch.export.Dim("n")},))
    >>> program.range_constraints
    {}
    """
    options: dict[str, Any] = {
        "preserve_module_call_signature": preserve_module_call_signature,
        "strict": strict,
    }
    if dynamic_shapes is None:
        return export(mod, args, kwargs, **options)
    try:
        return export(mod, args, kwargs, dynamic_shapes=dynamic_shapes, **options)
    except UserError:
        return export(mod, args, kwargs, **options)


# --- arguments and attributes ----------------------------------------------------------------------------------------


def _arguments(mod: Module, args: tuple, kwargs: dict[str, Any]) -> tuple[list[str], list[Any]]:
    """The names and values of the arguments that are given. Arguments of `*args` are one tuple, as in PyTorch."""
    try:
        bound = inspect.signature(mod.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise UserError(f"the arguments do not fit {type(mod).__name__}.forward: {error}") from None
    names: list[str] = []
    values: list[Any] = []
    for name, value in bound.arguments.items():
        if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            names += value
            values += value.values()
        else:
            names.append(name)
            values.append(value)
    order = {name: i for i, name in enumerate(kwargs)}  # the leaves are in the order of the call
    at = sorted(range(len(names)), key=lambda i: order.get(names[i], -1))
    return [names[i] for i in at], [values[i] for i in at]


def _given_names(mod: Module, args: tuple, kwargs: dict[str, Any]) -> list[str]:
    """The names of the arguments that are given: those of `*args` have numbers."""
    signature = inspect.signature(mod.forward)
    names: list[str] = []
    for name, value in signature.bind_partial(*args).arguments.items():
        several = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        names += [f"{name}_{i}" for i in range(len(value))] if several else [name]
    return [*names, *kwargs]


def _input_names(names: list[str], values: list[Any]) -> list[str]:
    """A name for each leaf of the arguments: `x`, or `x_0` and `x_key` within one."""
    found = []
    for name, value in zip(names, values, strict=True):
        for path, _ in _pytree.tree_leaves_with_path(value):
            parts = [str(getattr(k, "idx", getattr(k, "key", getattr(k, "name", k)))) for k in path]
            found.append(re.sub(r"[^a-z0-9]", "_", "_".join([name, *parts]).lower()))
    return found


def _state(mod: Module) -> list[tuple[str, str, Tensor]]:
    """Parameters and buffers: their kind ("p", "b" or, if not persistent, "n"), name and tensor."""
    apart = {
        f"{prefix}.{name}" if prefix else name
        for prefix, module in mod.named_modules(remove_duplicate=False)
        for name in module._non_persistent_buffers_set
    }
    found: list[tuple[str, str, Tensor]] = [("p", name, t) for name, t in mod.named_parameters(remove_duplicate=False)]
    found += [("n" if name in apart else "b", name, t) for name, t in mod.named_buffers(remove_duplicate=False)]
    return found


def _attributes(mod: Module, state: list) -> Iterator[tuple[str, str, Tensor]]:
    """Tensors that are plain attributes of modules: constants, if the program uses them."""
    known = {id(t) for _, _, t in state}
    for prefix, module in mod.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and id(value) not in known:
                known.add(id(value))
                yield "c", f"{prefix}.{name}" if prefix else name, value


def _placeholder_name(kind: str, name: str) -> str:
    return f"{'p' if kind == 'p' else 'b'}_{_flat(name)}"


def _flat(name: str) -> str:
    """A name as PyTorch writes it in that of an input."""
    return re.sub(r"[^a-z0-9]", "_", name.lower().removeprefix("self_"))


@contextmanager
def kept(tensors: list[Tensor]) -> Iterator[None]:
    """Gives tensors, and the generator, what they were: tracing a program runs it."""
    state = tensorgrad.get_rng_state()
    before = [(t, t.detach().clone(), t._version, t.grad) for t in tensors]
    try:
        yield
    finally:
        tensorgrad.set_rng_state(state)
        with no_grad():
            for tensor, values, version, grad in before:
                if tensor._version != version:
                    tensor.copy_(values)
                tensor.grad = grad


# --- traces ----------------------------------------------------------------------------------------------------------


class Traced:
    """A trace: the tracer with its graph, the nodes of the user's inputs, and the result's leaves and structure."""

    def __init__(self, call: Callable, lifted: list, users: list, make: Callable[[], Tracer]) -> None:
        users = [(name, _apart(value)) for name, value in users]
        self.tracer = make()
        with self.tracer as tracer:
            self.lifted = [tracer.placeholder(name, t) for name, t in lifted]
            self.users = [tracer.placeholder(name, value) for name, value in users]
            result = call([value for _, value in users])
            leaves, self.out_spec = _pytree.tree_flatten(result)
            for leaf in leaves:
                if not isinstance(leaf, Tensor | int | float | str | bool | None):
                    raise UserError(f"export(): the program returns a {type(leaf).__name__}; expected tensors")
            results = [tracer.node_of(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            self.written = tracer.written([value for _, value in (*lifted, *users)])
            self.results = [*(node for _, node in self.written), *results]
        self.graph = tracer.graph
        self.graph.output(tuple(self.results))

    def finish(self) -> None:
        """Puts the constants before the user's inputs, and removes what nothing uses."""
        constants = [n for n in self.graph.nodes if n.op == "placeholder" and "constant" in n.meta]
        if self.users:
            for node in constants:
                self.users[0].prepend(node)
        self.graph.eliminate_dead_code()
        self.graph.lint()


def traces(
    call: Callable, lifted: list, users: list, constraints: list[Constraint], make: Callable[[], Tracer]
) -> tuple[Traced, Dynamic]:
    """Traces a program; with dynamic dimensions, at several sizes.

    Args:
        call: takes the user's inputs, flat, and runs the program.
        lifted: names and tensors of the inputs that are the program's.
        users: names and values of the user's inputs.
        constraints: dynamic dimensions.
        make: makes a tracer.

    Raises: UserError if the program does not allow the sizes.
    """
    problem: Exception | None = None
    for chosen in _choices(constraints, users):
        if not chosen:
            say("running the model")
            traced = Traced(call, lifted, users, make)
            traced.finish()
            return traced, Dynamic()
        roots = {c.root: _size(c, users) for c in reversed(chosen)}
        for sizes in _trials(chosen, roots):
            say(f"running the model at {len(sizes)} sizes")
            try:
                found = [Traced(call, lifted, _resized(users, chosen, given), make) for given in sizes]
                return _merged(found, chosen, sizes)
            except OtherStepsError as error:  # whatever other sizes would show
                problem = problem or error
                break
            except (UserError, RuntimeError, ValueError, IndexError, TypeError, AssertionError) as error:
                problem = problem or error
    named = ", ".join(dict.fromkeys(c.root for c in constraints if not c.automatic))
    raise UserError(
        f"Constraints violated ({named})! The program does not hold for other sizes of these dimensions: {problem}\n"
        "Leave them out of dynamic_shapes, or use Dim.AUTO, which is dynamic only where the program allows it."
    ) from problem


def _choices(constraints: list[Constraint], users: list) -> Iterator[list[Constraint]]:
    """Yields sets of dynamic dimensions to try: all; those without a name and of one size as one; without automatic
    ones."""
    yield constraints
    if not constraints:
        return
    unnamed = [c for c in constraints if not c.named]
    fixed = [c for c in constraints if c.named]
    groups: dict[int, list[Constraint]] = {}
    for c in unnamed:
        groups.setdefault(_size(c, users), []).append(c)
    joined = [
        [Constraint(c.leaf, c.axis, group[0].root, 1, 0, c.least, c.most, c.automatic, False) for c in group]
        for group in groups.values()
    ]
    if len(unnamed) > 1:
        yield [*fixed, *(c for group in joined for c in group)]
    automatic = [group for group in joined if all(c.automatic for c in group)]
    if automatic:
        needed = [*fixed, *(c for group in joined if group not in automatic for c in group)]
        for group in automatic if len(automatic) > 1 or needed else ():
            yield [*needed, *group]
        yield needed


def _size(c: Constraint, users: list) -> int:
    return (users[c.leaf][1].shape[c.axis] - c.shift) // c.factor


def _trials(chosen: list[Constraint], roots: dict[str, int]) -> Iterator[list[dict[str, int]]]:
    """Yields lists of sizes at which to trace: the example's, each dimension changed alone, and all together."""
    least = {r: max([1, *(c.least for c in chosen if c.root == r)]) for r in roots}
    bounds = {r: [c.most for c in chosen if c.root == r and c.most is not None] for r in roots}
    base = {r: max(n, 2) if all(b >= 2 for b in bounds[r]) else n for r, n in roots.items()}
    for alone, together in TRIALS:
        one = {r: alone(n, i) for i, (r, n) in enumerate(base.items())}
        both = {r: together(n, i) for i, (r, n) in enumerate(base.items())}
        sizes = [base, *({**base, r: one[r]} for r in base), both]
        if all(least[r] <= given[r] and all(given[r] <= b for b in bounds[r]) for given in sizes for r in base):
            yield sizes


def _resized(users: list, chosen: list[Constraint], sizes: dict[str, int]) -> list:
    """The inputs with other sizes: rows are repeated, or left out."""
    made = [list(user) for user in users]
    for c in chosen:
        value, size = made[c.leaf][1], c.factor * sizes[c.root] + c.shift
        if value.shape[c.axis] != size:
            if not value.shape[c.axis]:
                raise UserError("export(): a dynamic dimension is 0 in the example; give a larger one")
            at = tensorgrad.arange(size) % value.shape[c.axis]
            grad = value.requires_grad
            made[c.leaf][1] = value.detach().index_select(c.axis, at).requires_grad_(grad)
    return [tuple(user) for user in made]


def _merged(found: list[Traced], chosen: list[Constraint], sizes: list[dict[str, int]]) -> tuple[Traced, Dynamic]:
    first = found[0]
    for other in found[1:]:
        if [i for i, _ in other.written] != [i for i, _ in first.written]:
            raise UserError("the program writes to other tensors at another size of its dynamic dimensions")
        if other.out_spec != first.out_spec:
            raise UserError("the program returns another structure at another size of its dynamic dimensions")
        if _codes(first.tracer.modules) != _codes(other.tracer.modules):
            raise UserError("a branch or loop does something else at another size of the dynamic dimensions")
        one, two = first.tracer.constants, other.tracer.constants
        if one.keys() != two.keys() or not all(_same(one[n], two[n]) for n in one):
            raise UserError("a constant of the program is another one at another size of its dynamic dimensions")
    merger = Sizes([t.graph for t in found])
    symbols: dict[str, str] = {}
    ranges: dict[str, ValueRanges] = {}
    for c in chosen:
        symbol = symbols.setdefault(c.root, f"s{len(symbols)}")
        low, high = c.least, c.most
        if symbol in ranges:
            low = max(low, ranges[symbol].lower)
            tops = [b for b in (high, ranges[symbol].upper) if b is not None]
            high = min(tops) if tops else None
        ranges[symbol] = ValueRanges(low, high)
        values = tuple(given[c.root] for given in sizes)
        merger.dimension(symbol, values, (first.users[c.leaf], c.axis), c.factor, c.shift)
    merger.merge()
    first.results = list(first.graph.output_node().args[0])
    first.finish()
    return first, Dynamic(chosen, symbols, ranges)


def _codes(modules: dict[str, Any]) -> list:
    """What the graphs of branches and loops do."""
    return [(name, m.code, _codes(dict(m.named_children()))) for name, m in modules.items()]


def _same(a: Tensor, b: Tensor) -> bool:
    x, y = real_array(a), real_array(b)
    return a is b or (x.shape == y.shape and x.dtype == y.dtype and x.tobytes() == y.tobytes())


def _apart(value: Any) -> Any:
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value


# --- the program -----------------------------------------------------------------------------------------------------


def _program(
    mod: Module, traced: Traced, state: list, example: tuple, in_spec: Any, dynamic: Dynamic
) -> ExportedProgram:
    kinds = {node.name: (kind, name) for node, (kind, name, _) in zip(traced.lifted, state, strict=True)}
    inputs = []
    for node in traced.graph.nodes:
        if node.op != "placeholder":
            continue
        if node.name in kinds:
            kind, target = kinds[node.name]
            which = InputKind.PARAMETER if kind == "p" else InputKind.BUFFER
            inputs.append(InputSpec(which, TensorArgument(node.name), target, None if kind == "p" else kind == "b"))
        elif "constant" in node.meta:
            inputs.append(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), node.meta["constant"]))
        else:
            value = node.meta.get("val")
            arg = TensorArgument(node.name) if isinstance(value, Tensor) else argument_of(value, node.name)
            inputs.append(InputSpec(InputKind.USER_INPUT, arg, None))
    returned: Any = traced.graph.output_node().args[0]
    outputs = [OutputSpec(OutputKind.USER_OUTPUT, argument_of(r), None) for r in returned]
    constants = {name: t for kind, name, t in state if kind == "n"} | traced.tracer.constants
    persistent = {name: t for kind, name, t in state if kind in "pb"}
    entry = ModuleCallEntry("", ModuleCallSignature([], [], in_spec, traced.out_spec, _given_names(mod, *example)))
    return ExportedProgram(
        traced.tracer.modules, traced.graph, ExportGraphSignature(inputs, outputs), persistent, dict(dynamic.ranges),
        [entry, *_calls(mod, traced)], example, constants, dynamic=dynamic,
    )  # fmt: skip


def _calls(mod: Module, traced: Traced) -> Iterator[ModuleCallEntry]:
    """An entry for each module, and for each call of those whose signatures are kept."""
    calls = traced.tracer.calls
    assert isinstance(calls, ModuleCalls)
    nodes = set(traced.graph.nodes)

    def arguments(values: list) -> list:
        return [argument_of(None if isinstance(v, Node) and v not in nodes else v) for v in values]

    for path, _ in mod.named_modules(remove_duplicate=False):
        if path and path not in calls.preserved:
            yield ModuleCallEntry(path)
        elif path:
            for call in (c for c in calls.signatures if c.partition("@")[0] == path):
                inputs, in_spec, outputs, out_spec = calls.signatures[call]
                yield ModuleCallEntry(
                    call, ModuleCallSignature(arguments(inputs), arguments(outputs), in_spec, out_spec)
                )
