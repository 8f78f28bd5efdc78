"""A traced program: `torch.fx.Graph`, a list of nodes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from tensorgrad.fx.codegen import CodeGen, Namespace, PythonCode
from tensorgrad.fx.codegen import magic_methods as magic_methods
from tensorgrad.fx.codegen import reflectable_magic_methods as reflectable_magic_methods
from tensorgrad.fx.node import Argument, Node, Target, map_arg, nodes_in
from tensorgrad.fx.pytree_codegen import _PyTreeCodeGen as _PyTreeCodeGen
from tensorgrad.fx.pytree_codegen import _PyTreeInfo as _PyTreeInfo
from tensorgrad.fx.torch_functions import node_name

__all__ = ["CodeGen", "Graph", "PythonCode"]


class _node_list:
    """The nodes of a graph, in order. They may be changed while they are iterated over."""

    def __init__(self, graph: Graph, direction: str = "_next") -> None:
        self.graph, self.direction = graph, direction

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        node = getattr(self.graph._root, self.direction)
        while node is not self.graph._root:
            if not node._erased:
                yield node
            node = getattr(node, self.direction)

    def __reversed__(self) -> _node_list:
        return _node_list(self.graph, "_prev" if self.direction == "_next" else "_next")


class _InsertPoint:
    """Where a graph adds nodes, from its creation until the end of the `with` block, if there is one."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]):
        self._graph, self._before = graph, graph._insert
        graph._insert = insert

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: Any) -> None:
        self._graph._insert = self._before


class Graph:
    """A program as a list of nodes, from its inputs to its output.

    >>> graph = torch.fx.Graph()
    >>> x = graph.placeholder("x")
    >>> result = graph.output(graph.call_function(torch.relu, (x,)))
    >>> print(graph)
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})
        return relu
    >>> torch.fx.GraphModule(torch.nn.Module(), graph)(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def __init__(self, owning_module: Any = None, tracer_cls: type | None = None, tracer_extras: Any = None) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._graph_namespace = Namespace()
        self._owning_module = owning_module
        self._tracer_cls, self._tracer_extras = tracer_cls, tracer_extras
        self._codegen = CodeGen()

    @property
    def owning_module(self) -> Any:
        """The GraphModule that this is the graph of; None if there is none."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, mod: Any) -> None:
        self._owning_module = mod

    @property
    def nodes(self) -> Any:
        """The nodes, in order."""
        return _node_list(self)

    def output_node(self) -> Node:
        """Returns the node that returns the result."""
        return next(iter(self.find_nodes(op="output")))

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """Returns the nodes of a kind, or those among them that call one target."""
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    # --- new nodes ---------------------------------------------------------------------------------------------------

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Adds a node, at the end or where `inserting_before` or `inserting_after` says.

        Args:
            op: its kind.
            target: what it calls, or the name of what it is.
            args: its arguments.
            kwargs: its arguments by keyword.
            name: a suggestion for its name.
            type_expr: the annotation of its result.
        """
        args, kwargs = args or (), kwargs or {}
        if not isinstance(args, tuple) or not isinstance(kwargs, dict):
            raise AssertionError("args must be a tuple, and kwargs a dict")
        candidate = name if name is not None else self._target_to_str(target)
        node = Node(self, self._graph_namespace.create_name(candidate, None), op, target, args, kwargs, type_expr)
        if self.owning_module is not None and getattr(self.owning_module, "_create_node_hooks", None):
            for hook in self.owning_module._create_node_hooks:
                hook(node)
        self._graph_namespace.associate_name_with_obj(node.name, node)
        self._insert(node)
        self._len += 1
        return node

    def _target_to_str(self, target: Any) -> str:
        """What a node is called after."""
        if isinstance(target, str):
            name = target
        else:
            name = node_name(target, getattr(target, "__name__", type(target).__name__))
        if name.startswith("__") and name.endswith("__"):
            name = name[2:-2]
        return _snake_case(name)

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """Adds an input. (`...` as the default value means that there is none.)"""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args=args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """Adds a node that fetches a parameter, buffer, module or other attribute of the module."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self, module_name: str, args: tuple | None = None, kwargs: dict[str, Any] | None = None, type_expr: Any = None
    ) -> Node:
        """Adds a call of a submodule."""
        if self.owning_module is not None and not _has(self.owning_module, module_name):
            import warnings

            warnings.warn(
                "Attempted to insert a call_module Node with no underlying reference in the owning GraphModule! Call "
                "GraphModule.add_submodule to add the necessary submodule",
                stacklevel=2,
            )
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self, method_name: str, args: tuple | None = None, kwargs: dict[str, Any] | None = None, type_expr: Any = None
    ) -> Node:
        """Adds a call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        """Adds a call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name=name, type_expr=type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """Adds the node that returns the result."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x) -> Node:
        """Adds a copy of a node of another graph. `arg_transform` maps the nodes among its arguments to this graph."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Adds copies of all nodes of another graph, and to `val_map` which copy is whose.

        Returns:
            What is in the place of the other graph's result; None if it has no output.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return result if not return_output_node else (result, node)
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: dict | None = None) -> Graph:
        from copy import copy

        made = Graph(tracer_cls=self._tracer_cls)
        values: dict[Node, Node] = {}
        found = made.graph_copy(self, values, return_output_node=True)
        made._codegen = copy(self._codegen)
        if found is not None:
            result, old = found
            node = made.output(result, type_expr=old.type)
            node.meta = dict(old.meta)
        return made

    # --- where, and fewer --------------------------------------------------------------------------------------------

    def inserting_before(self, n: Node | None = None) -> Any:
        """From now on, or in a `with` block, new nodes are added before a node; without one, at the start."""
        if n is None:
            return self.inserting_after(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return _InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> Any:
        """From now on, or in a `with` block, each new node is added right after a node; without one, at the end."""
        if n is None:
            return self.inserting_before(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert after is not in graph.")
        return _InsertPoint(self, n.append)

    def erase_node(self, to_erase: Node) -> None:
        """Removes a node. Raises: RuntimeError if another node uses it."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: "
                f"{to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            return
        if self.owning_module is not None:
            for hook in getattr(self.owning_module, "_erase_node_hooks", ()):
                hook(to_erase)
        to_erase._remove_from_list()
        to_erase._erased = True
        self._len -= 1
        to_erase.args, to_erase.kwargs = (), {}

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Removes the nodes whose result is not used and that do nothing else. Returns whether there were any."""
        impure = is_impure_node or (lambda node: node.is_impure())
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not impure(node):
                self.erase_node(node)
                changed = True
        return changed

    # --- checks and text ---------------------------------------------------------------------------------------------

    def lint(self) -> None:
        """Raises: RuntimeError if the graph is not in order: a use before its definition, a target that is missing."""
        seen: set[Node] = set()
        names: set[str] = set()
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this graph")
            for used in node._input_nodes:
                if used.graph is not self:
                    raise RuntimeError(
                        f"Argument '{used}' of Node '{node}' does not belong to this Graph, but was used as an "
                        "argument!"
                    )
                if used not in seen:
                    raise RuntimeError(
                        f"Argument '{used}' of Node '{node}' was used before it has been defined! Please check that "
                        f"Nodes in the graph are topologically ordered\n{self}"
                    )
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen.add(node)
            names.add(node.name)
            if self.owning_module is None or node.op not in ("get_attr", "call_module"):
                continue
            if not _has(self.owning_module, str(node.target)):
                raise RuntimeError(
                    f"Node {node} target {node.target} references nonexistent attribute of "
                    f"{type(self.owning_module).__name__}"
                )

    def python_code(
        self,
        root_module: str,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
    ) -> PythonCode:
        """Returns the code of the graph as a function. `root_module` is the name of the module in it, "self"."""
        namespace = Namespace()
        for node in self.nodes:
            node._repr_fn = lambda n: namespace.create_name(n.name, n)
        try:
            return self._codegen._gen_python_code(self.nodes, root_module, namespace)
        finally:
            for node in self.nodes:
                node._repr_fn = None

    def set_codegen(self, codegen: CodeGen) -> None:
        """Sets how the graph becomes code."""
        self._codegen = codegen

    @contextlib.contextmanager
    def on_generate_code(self, make_transformer: Callable) -> Iterator[None]:
        """A context in which the lines of generated code pass through a function.

        Args:
            make_transformer: is given the function before (or None), and returns the new one: lines to lines.
        """
        before = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(before)
        try:
            yield
        finally:
            self._codegen._body_transformer = before

    def process_inputs(self, *args: Any) -> Any:
        """Turns the arguments of a call into values of the placeholders."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """Turns the value of the output node into the result of the call."""
        return self._codegen.process_outputs(out)

    def print_tabular(self) -> None:
        """Prints the nodes as a table."""
        rows = [["opcode", "name", "target", "args", "kwargs"]]
        rows += [[n.op, n.name, str(n.target), str(n.args), str(n.kwargs)] for n in self.nodes]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        rows.insert(1, ["-" * width for width in widths])
        for row in rows:
            print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())

    def __str__(self) -> str:
        lines = [node.format_node() for node in self.nodes]
        return "graph():" + "".join(f"\n    {line}" for line in lines if line)


def _snake_case(name: str) -> str:
    """A name in small letters: `ReLU` is `re_lu`, as PyTorch's nodes are called."""
    return re.sub("(?<=[a-z])([A-Z])", r"_\1", name).lower()


def _has(module: Any, target: str) -> bool:
    """Whether a module has an attribute of a dotted name."""
    for part in target.split("."):
        if not hasattr(module, part):
            return False
        module = getattr(module, part)
    return True


__all__ += ["map_arg", "nodes_in"]
