"""`torch.export.unflatten`: an exported program as the tree of modules that it was.

The nodes of a program say which calls of modules they belong to. Nodes in a row that belong to one call become the
graph of a module, with an input for each value that it takes from outside, and an output for each that is used there.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

from tensorgrad._ops import ops
from tensorgrad.export.exported_program import ExportedProgram, Guards, ModuleCallSignature
from tensorgrad.export.graph_signature import ConstantArgument, InputKind, OutputKind
from tensorgrad.fx import Graph, Interpreter, Node
from tensorgrad.fx.immutable_collections import immutable_dict
from tensorgrad.nn import Module, Parameter
from tensorgrad.tensor import Tensor
from tensorgrad.utils import _pytree

__all__ = ["FlatArgsAdapter", "InterpreterModule", "InterpreterModuleDispatcher", "UnflattenedModule", "unflatten"]

Call = tuple[str, int]  # the path of a module, and the number of its call


class FlatArgsAdapter:
    """Makes the arguments of a program of others: override `adapt`.

    >>> class Reversed(torch.export.FlatArgsAdapter):
    ...     def adapt(self, target_spec, input_spec, input_args, metadata=None, obj=None):
    ...         return input_args[::-1]
    """

    def adapt(
        self,
        target_spec: Any,
        input_spec: Any,
        input_args: list[Any],
        metadata: dict[str, Any] | None = None,
        obj: Any | None = None,
    ) -> list[Any]:
        """Returns the arguments of the program, flat.

        Args:
            target_spec, input_spec: The structures that the program takes, and that it was given.
            input_args: What it was given, flat.
            metadata: The `meta` of the program.
            obj: The arguments as they were given.
        """
        raise NotImplementedError("adapt")


class InterpreterModule(Module):
    """A module that runs a graph, node by node.

    >>> program = torch.export.export(torch.nn.Sequential(torch.nn.ReLU()), (torch.ones(2),))
    >>> tree = torch.export.unflatten(program)
    >>> isinstance(tree.get_submodule("0"), torch.export.InterpreterModule)
    True
    """

    def __init__(self, graph: Graph, ty: str | None = None) -> None:
        super().__init__()
        self.graph, self._ty = graph, ty
        graph.owning_module = self

    def type_name(self) -> str | None:
        """The name of the class that the module had."""
        return self._ty

    @property
    def arg_names(self) -> list[str]:
        """The names of the inputs."""
        return [str(n.target) for n in self.graph.nodes if n.op == "placeholder"]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the graph."""
        names = self.arg_names[len(args) :]
        if set(names) != set(kwargs):
            raise TypeError(f"expected the arguments {names}, but got {list(kwargs)}")
        given = (*args, *(kwargs[name] for name in names))
        return Interpreter(self, graph=self.graph).run(*given, enable_io_processing=False)


class InterpreterModuleDispatcher(Module):
    """A module of which each call in a run did something else: the calls take turns.

    >>> torch.export.unflatten.__name__
    'unflatten'
    """

    def __init__(self, call_modules: list[InterpreterModule]) -> None:
        super().__init__()
        first = call_modules[0]
        for table in ("_modules", "_parameters", "_buffers"):
            object.__setattr__(self, table, getattr(first, table))
        self._ty, self._num_calls = first._ty, 0
        object.__setattr__(self, "_call_modules", call_modules)

    def type_name(self) -> str | None:
        """The name of the class that the module had."""
        return self._ty

    def call_modules(self) -> list[InterpreterModule]:
        """The calls, in order."""
        return self._call_modules

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the next call."""
        number, self._num_calls = self._num_calls, (self._num_calls + 1) % len(self._call_modules)
        try:
            return self._call_modules[number](*args, **kwargs)
        except Exception:
            self._num_calls = 0
            raise


class UnflattenedModule(Module):
    """An exported program as the tree of modules that it was: what `unflatten` returns.

    >>> program = torch.export.export(torch.nn.Sequential(torch.nn.Linear(2, 1)), (torch.ones(3, 2),))
    >>> torch.export.unflatten(program)
    UnflattenedModule(
      (0): InterpreterModule()
    )
    """

    def __init__(self, export_module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None) -> None:
        super().__init__()
        self.graph, self._ty = Graph(), None
        self.graph.owning_module = self
        self.graph_signature = export_module.graph_signature
        self.module_call_graph = export_module.module_call_graph
        self.range_constraints = export_module.range_constraints
        self.flat_args_adapter = flat_args_adapter
        self.meta = export_module.graph_module.meta
        self.check_input_constraints = True
        outline = _Outline(export_module, self)
        inputs = [n for n in self.graph.nodes if n.op == "placeholder"]
        guards = Guards([(n.name, n.meta.get("val")) for n in inputs], export_module._dynamic)
        object.__setattr__(self, "_guards", guards)
        self._ty = outline.kinds.get("")
        self.graph.lint()

    def type_name(self) -> str | None:
        """The name of the class that the module had."""
        return self._ty

    def process_forward_inputs(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Returns the arguments, flat. Raises: TypeError if they have another structure, and there is no adapter."""
        signature = self.module_call_graph[0].signature
        assert signature is not None
        wanted = signature.in_spec.children()[1].context or []
        if set(kwargs) == set(wanted):
            kwargs = {name: kwargs[name] for name in wanted}
        leaves, found = _pytree.tree_flatten((tuple(args), kwargs))
        if found != signature.in_spec:
            if self.flat_args_adapter is None:
                raise TypeError(
                    "There is no flat args adapter specified. Are you sure you are calling this with the right "
                    f"arguments? expected {signature.in_spec}, but got {found}"
                )
            leaves = self.flat_args_adapter.adapt(
                target_spec=signature.in_spec, input_spec=found, input_args=leaves, metadata=self.meta, obj=args
            )
            if len(leaves) != signature.in_spec.num_leaves:
                raise TypeError(
                    "Flat args adaption failed, number of args mismatch "
                    f"Adapted: {len(leaves)} Exported module: {signature.in_spec.num_leaves}"
                )
        if self.check_input_constraints:
            self._guards(*leaves)
        return leaves

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program."""
        leaves = self.process_forward_inputs(*args, **kwargs)
        results = Interpreter(self, graph=self.graph).run(*leaves, enable_io_processing=False)
        signature = self.module_call_graph[0].signature
        assert signature is not None
        return _pytree.tree_unflatten(results, signature.out_spec)


def unflatten(module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None) -> UnflattenedModule:
    """Returns an exported program as the tree of modules that was exported, with the same names of parameters.

    Each module runs the part of the program that its calls were; a further call that does something else is a module of
    its own, `name@1`. A module takes and returns the tensors that this part needs, flat, but for those in
    `preserve_module_call_signature` of `export`, which are called as they were, and can be replaced by another module.

    Args:
        module: The program. Its parameters and buffers are copied.
        flat_args_adapter: Makes arguments of the program of those with another structure.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())
    >>> tree = torch.export.unflatten(torch.export.export(model, (torch.ones(1, 2),)))
    >>> list(tree.state_dict()), torch.equal(tree(torch.ones(1, 2)), model(torch.ones(1, 2)))
    (['0.weight', '0.bias'], True)
    """
    return UnflattenedModule(module, flat_args_adapter)


def flat_arguments(tree: Any, spec: Any) -> list[Any]:
    """The leaves of arguments or results, whose structure is as it was exported. Raises: ValueError."""
    if isinstance(tree, tuple) and len(tree) == 2 and isinstance(tree[1], immutable_dict):
        tree = tree[0], dict(tree[1])  # the named arguments, which are part of a node
    leaves, found = _pytree.tree_flatten(tree)
    if found != spec:
        raise ValueError(f"expected arguments of the structure {spec}, but got {found}")
    return leaves


# --- from the flat graph to modules ----------------------------------------------------------------------------------


class _Outline:
    """Makes the modules of a program within the outermost one.

    Attributes:
        kinds: the class that each module had, by its path.
        state: the names of the tensor that an input is.
        place: where a node stands among those that belong to modules.
    """

    def __init__(self, program: ExportedProgram, root: UnflattenedModule) -> None:
        self.program, self.root = program, root
        self.kinds: dict[str, str] = {}
        graph = _without_mutations(program)
        self.nodes = [n for n in graph.nodes if n.op not in ("placeholder", "output")]
        self.place = {node: i for i, node in enumerate(self.nodes)}
        before: tuple[Call, ...] = ()
        self.calls: dict[Node, tuple[Call, ...]] = {}
        for node in self.nodes:
            before = self.calls[node] = self._calls(node, before)
        stored = {**program.state_dict, **program.constants}
        names: dict[int, list[str]] = {}
        for name, tensor in stored.items():
            names.setdefault(id(tensor), []).append(name)
        inputs = dict(zip((n for n in graph.nodes if n.op == "placeholder"), program.graph_signature.input_specs))
        self.users = [node for node, spec in inputs.items() if spec.kind is InputKind.USER_INPUT]
        self.state = {
            node: names[id(stored[str(spec.target)])]
            for node, spec in inputs.items()
            if spec.kind is not InputKind.USER_INPUT
        }
        self.signatures = {e.fqn: e.signature for e in program.module_call_graph if e.fqn and e.signature}
        self.made: dict[str, InterpreterModule] = {}  # by the path and number of its call
        self.places: list[tuple[str, Module, str, Node]] = []  # path, module around it, name, node that calls it
        frame = _Frame(self, "", root, None, None, len(self.nodes))
        for node in self.users:
            frame.made[node] = root.graph.node_copy(node)
        frame.fill(0)
        root.graph.output(tuple(_mapped(r, frame.value) for r in graph.output_node().args[0]))
        self._share()
        self._dispatch()
        self._assign(names, stored)
        _order(root, [e.fqn for e in program.module_call_graph])

    def _calls(self, node: Node, before: tuple[Call, ...]) -> tuple[Call, ...]:
        """The calls that a node belongs to. One that says nothing belongs to those of the node before it."""
        stack = node.meta.get("nn_module_stack")
        if not stack:
            return before
        made: list[Call] = []
        for key, (path, kind) in stack.items():
            path = path.partition("@")[0]
            self.kinds.setdefault(path, kind)
            if not path:
                continue
            if made and not path.startswith(f"{made[-1][0]}."):
                break  # called by a module that it is not in
            number = key.rpartition("@")[2] if "@" in key else "0"
            made.append((path, int(number)))
        return tuple(made)

    def _share(self) -> None:
        """Removes calls that do what another call of the module does."""
        self.redirected: dict[str, str] = {}
        for path, around, name, call in sorted(self.places, key=lambda p: -p[0].count(".")):
            base = name.partition("@")[0]
            module = around._modules[name]
            for other in (n for n in list(around._modules) if n.partition("@")[0] == base):
                if other == name:
                    break
                seen = around._modules[other]
                if isinstance(seen, InterpreterModule) and _text(seen) == _text(module):
                    del around._modules[name]
                    call.target = f"{str(call.target).rpartition('.')[0]}.{other}".lstrip(".")
                    prefix = path.rpartition(".")[0]
                    self.redirected[f"{prefix}.{name}".lstrip(".")] = f"{prefix}.{other}".lstrip(".")
                    break

    def _dispatch(self) -> None:
        """Puts one module in the place of several calls whose signature is kept: it is called by its own name."""
        for path in dict.fromkeys(fqn.partition("@")[0] for fqn in self.signatures):
            calls = [fqn for fqn in self.signatures if fqn.partition("@")[0] == path]
            modules = [self.made[self.redirected.get(fqn, fqn)] for fqn in calls]
            prefix, _, last = path.rpartition(".")
            around: Any = self.root.get_submodule(prefix)
            if len(modules) > 1:
                for fqn in calls:
                    around._modules.pop(fqn.rpartition(".")[2], None)
                around._modules[last] = InterpreterModuleDispatcher(modules)
            for where, _, _, call in self.places:
                if where == path:
                    call.target = str(call.target).partition("@")[0]

    def _assign(self, names: dict[int, list[str]], stored: dict[str, Tensor]) -> None:
        """Gives the modules their parameters, buffers and constants: copies, one for each tensor."""
        signature = self.program.graph_signature
        apart = set(signature.non_persistent_buffers)
        copies: dict[int, Tensor] = {}
        for name, tensor in stored.items():
            if id(tensor) not in copies:
                plain = tensor.detach().clone()
                grad = tensor.requires_grad
                copies[id(tensor)] = Parameter(plain, grad) if isinstance(tensor, Parameter) else plain
            made = copies[id(tensor)]
            path, _, last = name.rpartition(".")
            for owner in self._owners(path):
                if isinstance(made, Parameter):
                    owner.register_parameter(last, made)
                elif name in self.program.state_dict or name in apart:
                    owner.register_buffer(last, made, persistent=name not in apart)
                elif not hasattr(owner, last):
                    setattr(owner, last, made)

    def _owners(self, path: str) -> Iterator[Module]:
        """The module of a path, and its further calls; plain modules where there are none."""
        found: list[Module] = [self.root]
        for part in path.split(".") if path else ():
            inner: list[Module] = []
            for module in found:
                if part not in module._modules:
                    module._modules[part] = Module()
                inner += [m for n, m in module._modules.items() if n.partition("@")[0] == part and m is not None]
            found = inner
        yield from {id(m): m for m in found}.values()
        for module in list(found):
            yield from getattr(module, "_call_modules", ())[1:]


class _Frame:
    """A call of a module: the graph that it becomes.

    Args:
        path: of the module.
        parent: the frame that it is called from, and `call` the node that does.
        end: the place of the first node after it.
    """

    def __init__(
        self, outline: _Outline, path: str, module: Any, parent: _Frame | None, call: Node | None, end: int
    ) -> None:
        self.outline, self.path, self.module, self.parent, self.call = outline, path, module, parent, call
        self.graph: Graph = module.graph
        self.end, self.depth = end, 0 if parent is None else parent.depth + 1
        self.made: dict[Node, Any] = {}
        self.first: Node | None = None  # the first that is not an input
        self.call_name = ""

    def value(self, node: Node) -> Any:
        """The node here for one of the flat graph."""
        if node in self.made:
            return self.made[node]
        names = self.outline.state.get(node)
        inside = [n for n in names or () if not self.path or n.startswith(f"{self.path}.")]
        if inside:
            name = inside[0].removeprefix(self.path and f"{self.path}.")
            with self._before(self.first):
                made = self.made[node] = self.graph.get_attr(name)
            made.meta = copy(node.meta)
            return made
        if self.parent is None:
            raise RuntimeError(f"{node} is used before it is made")
        if self.call is not None and not self._takes():
            return self._again(node)
        with self._before(next(iter(self.graph.nodes), None)):
            made = self.made[node] = self.graph.placeholder(node.name)
        made.meta = copy(node.meta)
        assert self.call is not None
        self.call.args = (self.parent.value(node), *self.call.args)
        return made

    def _takes(self) -> bool:
        return self.call_name not in self.outline.signatures

    def _before(self, node: Node | None) -> Any:
        return self.graph.inserting_before(node) if node is not None else self.graph.inserting_after(None)

    def _again(self, node: Node) -> Any:
        """Computes a size here which the module is not given: its arguments are those that it had."""
        if not isinstance(node.meta.get("val"), int):
            raise RuntimeError(
                f"{self.path} uses {node}, which is not among its arguments: leave it out of "
                "preserve_module_call_signature"
            )
        self.made[node] = made = self.graph.node_copy(node, self.value)
        return made

    def fill(self, at: int) -> None:
        """Copies the nodes of the call, from a place on, and makes the calls within it."""
        outline = self.outline
        while at < self.end:
            node = outline.nodes[at]
            calls = outline.calls[node]
            if len(calls) == self.depth:
                made = self.graph.node_copy(node, self.value)
                self.made[node], self.first = made, self.first or made
                if node.op == "get_attr":  # the graph of a branch or loop
                    self.module._modules[str(node.target)] = getattr(outline.program.graph_module, str(node.target))
                at += 1
                continue
            call, end = calls[self.depth], at + 1
            while end < self.end and outline.calls[outline.nodes[end]][self.depth :][:1] == (call,):
                end += 1
            self._inner(call, at, end)
            at = end

    def _inner(self, call: Call, at: int, end: int) -> None:
        """Makes a call within this one of the nodes between two places."""
        outline, (path, number) = self.outline, call
        name = f"{path}@{number}" if number else path
        module = outline.made.get(name)
        if module is not None:  # the second part of a call, between whose parts something else ran
            number = next(n for n in range(1, 1 << 30) if f"{path}@{n}" not in outline.made)
            name = f"{path}@{number}"
        module = outline.made[name] = InterpreterModule(Graph(), outline.kinds.get(path))
        accessor = name.removeprefix(self.path and f"{self.path}.")
        around = self.module
        *prefix, last = accessor.split(".")
        for part in prefix:
            if part not in around._modules:
                inside = ".".join([self.path, *prefix[: prefix.index(part) + 1]]).lstrip(".")
                around._modules[part] = InterpreterModule(Graph(), outline.kinds.get(inside))
            around = around._modules[part]
        base = around._modules.get(last.partition("@")[0])
        if base is not None:
            object.__setattr__(module, "_modules", base._modules)
        around._modules[last] = module
        node = self.graph.call_module(accessor)
        self.first = self.first or node
        outline.places.append((path, around, last, node))
        frame = _Frame(outline, path, module, self, node, end)
        frame.call_name = name
        signature = outline.signatures.get(name)
        if signature is not None:
            frame.take_arguments(signature)
        frame.fill(at)
        if signature is None:
            frame.give_results(at)
        else:
            frame.return_results(signature)

    def give_results(self, at: int) -> None:
        """Returns what is used outside."""
        outline, parent, call = self.outline, self.parent, self.call
        assert parent is not None and call is not None
        results = [
            n for n in outline.nodes[at : self.end] if any(outline.place.get(u, self.end) >= self.end for u in n.users)
        ]
        results.sort(key=lambda n: n not in self.made)
        values = [self.value(n) for n in results]
        self.graph.output(values[0] if len(values) == 1 else values)
        for i, result in enumerate(results):
            made = call if len(results) == 1 else parent.graph.call_function(operator.getitem, (call, i))
            made.meta["val"] = result.meta.get("val")
            parent.made[result] = made

    # --- with the module's own signature -----------------------------------------------------------------------------

    def take_arguments(self, signature: ModuleCallSignature) -> None:
        """Takes what the module took, and is given that."""
        parent, call = self.parent, self.call
        assert parent is not None and call is not None
        args_spec, kwargs_spec = signature.in_spec.children()
        args = tuple(self.graph.placeholder(f"_positional_arg_{i}") for i in range(args_spec.num_children))
        kwargs = {name: self.graph.placeholder(name) for name in kwargs_spec.context or ()}
        leaves = _in_tree(self, flat_arguments, (args, kwargs), signature.in_spec)
        by_name = {n.name: n for n in (*self.outline.nodes, *self.outline.state, *self.outline.users)}
        given: list[Any] = []
        for i, argument in enumerate(signature.inputs):
            if isinstance(argument, ConstantArgument):
                given.append(argument.value)
                continue
            node = by_name.get(argument.name)
            made = self.graph.create_node("call_function", operator.getitem, (leaves, i), {}, argument.name)
            if node is not None:
                made.meta = copy(node.meta)
                self.made[node] = made
            with parent.graph.inserting_before(call):
                given.append(None if node is None else parent.value(node))
        with parent.graph.inserting_before(call):
            tree = _in_tree(parent, _pytree.tree_unflatten, given, signature.in_spec)
            positional, named = (parent.graph.call_function(operator.getitem, (tree, i)) for i in (0, 1))
            call.args = tuple(
                parent.graph.call_function(operator.getitem, (positional, i)) for i in range(args_spec.num_children)
            )
            call.kwargs = {name: parent.graph.call_function(operator.getitem, (named, name)) for name in kwargs}

    def return_results(self, signature: ModuleCallSignature) -> None:
        """Returns what the module returned."""
        parent, call = self.parent, self.call
        assert parent is not None and call is not None
        by_name = {n.name: n for n in (*self.made, *self.outline.nodes)}
        results: list[Any] = []
        values: list[Any] = []
        for result in signature.outputs:
            node = None if isinstance(result, ConstantArgument) else by_name.get(result.name)
            results.append(node)
            values.append(getattr(result, "value", None) if node is None else self.value(node))
        self.graph.output(_in_tree(self, _pytree.tree_unflatten, values, signature.out_spec))
        leaves = _in_tree(parent, flat_arguments, call, signature.out_spec)
        for i, node in enumerate(results):
            if node is not None:
                made = parent.graph.call_function(operator.getitem, (leaves, i))
                made.meta["val"] = node.meta.get("val")
                parent.made[node] = made


def _in_tree(frame: _Frame, function: Callable, values: Any, spec: Any) -> Node:
    """Adds a node that flattens values or puts them into a structure, which the module has as an attribute."""
    number = 0
    while hasattr(frame.module, f"_spec_{number}"):
        number += 1
    setattr(frame.module, f"_spec_{number}", spec)
    node = frame.graph.get_attr(f"_spec_{number}")
    frame.first = frame.first or node
    return frame.graph.call_function(function, (values, node))


def _mapped(value: Any, of: Callable[[Node], Any]) -> Any:
    return of(value) if isinstance(value, Node) else value


def _without_mutations(program: ExportedProgram) -> Graph:
    """The graph, with writes in the place of outputs that are new values of buffers and inputs."""
    graph = Graph()
    made: dict[Node, Node] = {}
    result = graph.graph_copy(program.graph, made)
    specs = program.graph_signature.output_specs
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    for old, new in made.items():
        new.meta = copy(old.meta)
        new.name = old.name
    by_target = {
        str(s.target if s.kind is not InputKind.USER_INPUT else s.arg.name): n
        for n, s in zip(inputs, program.graph_signature.input_specs, strict=True)
    }
    returned: list[Any] = []
    for spec, value in zip(specs, result, strict=True):
        if spec.kind is OutputKind.USER_OUTPUT:
            returned.append(value)
            continue
        with graph.inserting_after(value):
            write = graph.create_node("call_function", ops.aten.copy_.default, (by_target[str(spec.target)], value), {})
        write.meta = copy(value.meta)
        value.replace_all_uses_with(write, lambda user, write=write: user is not write)
        returned = [write if r is value else r for r in returned]
    graph.output(tuple(returned))
    return graph


def _text(module: Any) -> str:
    """What a module does, without the names of its nodes."""
    numbers = {node: i for i, node in enumerate(module.graph.nodes)}

    def of(value: Any) -> Any:
        return _pytree.tree_map(lambda v: f"%{numbers[v]}" if isinstance(v, Node) else v, value)

    return "\n".join(
        f"{n.op} {n.target if n.op != 'placeholder' else ''} {of(tuple(n.args))} {of(dict(n.kwargs))}"
        for n in module.graph.nodes
    )


def _order(root: Module, paths: list[str]) -> None:
    """Puts the modules into the order that they had, with plain ones for those that were not called."""
    for path in paths:
        module = root
        for part in path.partition("@")[0].split(".") if path else ():
            if part not in module._modules:
                module._modules[part] = Module()
            module = module._modules[part]  # type: ignore[assignment]
    at = {path: i for i, path in reversed(list(enumerate(paths)))}

    def sort(module: Module, prefix: str) -> None:
        def key(name: str) -> tuple[int, str]:
            base = prefix + name.partition("@")[0]
            return at.get(prefix + name, at.get(base, len(at)) if "@" not in name else len(at)), ""

        found = sorted(module._modules.items(), key=lambda item: key(item[0]))
        for name, _ in found:
            del module._modules[name]
        for name, inner in found:
            module._modules[name] = inner
            if inner is not None and "@" not in name:
                sort(inner, f"{prefix}{name}.")

    sort(root, "")
