"""Runs a graph node by node: `torch.fx.Interpreter`; or builds another one on the way: `Transformer`."""

from __future__ import annotations

from typing import Any

from tensorgrad.fx._symbolic_trace import Tracer
from tensorgrad.fx.graph import Graph
from tensorgrad.fx.graph_module import GraphModule
from tensorgrad.fx.node import Argument, Node, Target, map_aggregate, map_arg
from tensorgrad.fx.proxy import Proxy
from tensorgrad.fx.traceback import preserve_node_meta, set_current_meta
from tensorgrad.nn import Module

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a graph module node by node. A subclass may do something else for each kind of node.

    Args:
        module: the module that nodes refer to.
        garbage_collect_values: drops each value after its last use.
        graph: the graph; by default the module's.

    >>> class Names(torch.fx.Interpreter):
    ...     def run_node(self, n):
    ...         print(n.name)
    ...         return super().run_node(n)
    >>> Names(torch.fx.symbolic_trace(lambda x: x + 1)).run(torch.ones(2))
    x
    add
    output
    tensor([2., 2.])
    """

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module = module
        self.submodules = dict(module.named_modules())
        self.graph: Graph = graph if graph is not None else module.graph
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.user_to_last_uses: dict[Node, list[Node]] = {}
        seen: set[Node] = set()
        for user in reversed(self.graph.nodes):
            for node in user._input_nodes:
                if node not in seen:
                    seen.add(node)
                    self.user_to_last_uses.setdefault(user, []).append(node)

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """Runs the graph and returns its result.

        Args:
            args: the inputs.
            initial_env: values of nodes that are known.
            enable_io_processing: whether the code generator's `process_inputs` and `process_outputs` apply.
        """
        self.env = dict(initial_env or {})
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    message = f"While executing {node.format_node()}"
                    message = f"{error.args[0]}\n\n{message}" if error.args else message
                    message += f"\nOriginal traceback:\n{node.stack_trace}"
                    error.args = (message, *error.args[1:])
                    if isinstance(error, KeyError):
                        raise RuntimeError(*error.args) from error
                raise
            if self.garbage_collect_values:
                for done in self.user_to_last_uses.get(node, ()):
                    self.env.pop(done, None)
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def run_node(self, n: Node) -> Any:
        """Runs one node: calls the method named like its kind."""
        with set_current_meta(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the next input, or its default."""
        if str(target).startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Returns an attribute of the module."""
        return self.fetch_attr(str(target))

    def call_function(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a function."""
        return target(*args, **kwargs)

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a method of the first argument."""
        return getattr(args[0], str(target))(*args[1:], **kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a submodule."""
        return self.fetch_attr(str(target))(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the result."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """Returns an attribute of a dotted name of the module. Raises: RuntimeError if there is none."""
        found: Any = self.module
        parts = target.split(".")
        for i, part in enumerate(parts):
            if not hasattr(found, part):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(parts[: i + 1])}")
            found = getattr(found, part)
        return found

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple, dict]:
        """Returns the arguments of a node, with the values of other nodes in their places."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Argument, n: Node) -> Any:
        """Returns nested arguments with values in place of nodes. Raises: RuntimeError if a node has not run."""

        def value(node: Node) -> Any:
            if node not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to diagnose such issues"
                )
            return self.env[node]

        return map_arg(args, value)


class Transformer(Interpreter):
    """Runs a graph with proxies, and so builds another one. A subclass may do something else for each kind of node.

    >>> class Tanh(torch.fx.Transformer):
    ...     def call_function(self, target, args, kwargs):
    ...         return super().call_function(torch.tanh if target is torch.relu else target, args, kwargs)
    >>> print(Tanh(torch.fx.symbolic_trace(lambda x: torch.relu(x))).transform().code.strip())
    def forward(self, x):
        tanh = torch.tanh(x);  x = None
        return tanh
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)

        class TransformerTracer(Tracer):
            def __init__(self, graph: Graph) -> None:
                super().__init__()
                self.graph = graph
                self.tensor_attrs: dict[Any, str] = {}

            def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
                return True

        self.tracer = TransformerTracer(self.new_graph)
        self.tracer.root = module

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """Adds an input."""
        default = args[0] if args else ...
        return Proxy(self.new_graph.placeholder(str(target), default_value=default), self.tracer)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """Adds a node that fetches an attribute."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Adds a call of a submodule."""
        submodule = self.fetch_attr(str(target))
        return self.tracer.call_module(submodule, submodule.forward, args, kwargs)

    def call_function(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Adds a call of a function."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """Returns the new module."""
        with preserve_node_meta():
            result = super().run(enable_io_processing=False)
        if result is not None:
            made = self.new_graph.output(map_aggregate(result, lambda a: a.node if isinstance(a, Proxy) else a))
            made.meta.update(list(self.graph.nodes)[-1].meta)
        return GraphModule(self.module, self.new_graph)
