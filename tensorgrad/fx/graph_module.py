"""A module whose `forward` is made from a graph: `torch.fx.GraphModule`."""

from __future__ import annotations

import itertools
import linecache
from copy import copy, deepcopy
from typing import Any

import tensorgrad
from tensorgrad.fx.codegen import PythonCode
from tensorgrad.fx.graph import Graph
from tensorgrad.fx.node import map_aggregate, map_arg
from tensorgrad.nn import Module, Parameter

__all__ = ["GraphModule", "reduce_graph_module"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_number = itertools.count()


def _forward_from_src(src: str, globals: dict[str, Any], co_fields: Any = None) -> Any:
    """Runs the text of a function, which is Python's to show in tracebacks. Returns the function."""
    name = f"<eval_with_key>.{next(_number)}"
    scope = dict(globals)
    linecache.cache[name] = len(src), None, src.splitlines(keepends=True), name
    exec(compile(src, name, "exec"), scope)
    return scope["forward"]


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Copies an attribute of a dotted name to another module, with plain modules on the way where there are none."""
    *prefix, field = target.split(".")
    for item in prefix:
        f, t = getattr(from_module, item), getattr(to_module, item, None)
        if f is t:  # the same module: the attribute is there
            return
        if t is None:
            t = Module()
            setattr(to_module, item, t)
        from_module, to_module = f, t
    _assign(getattr(from_module, field), to_module, field)


def _assign_attr(from_obj: Any, to_module: Module, target: str) -> None:
    """Sets an attribute of a dotted name, with plain modules on the way where there are none."""
    *prefix, field = target.split(".")
    for item in prefix:
        t = getattr(to_module, item, None)
        if t is None:
            t = Module()
            setattr(to_module, item, t)
        to_module = t
    _assign(from_obj, to_module, field)


def _assign(value: Any, module: Module, field: str) -> None:
    if isinstance(value, tensorgrad.Tensor) and not isinstance(value, Parameter):
        module.register_buffer(field, value)
    else:
        setattr(module, field, value)


class _CodeOnlyModule(Module):
    """The module with the attributes of another, while its code is traced again."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def reduce_graph_module(body: dict[str, Any], nodes: list[tuple], name: str) -> GraphModule:
    """Makes a graph module of its attributes and the description of its nodes: what `pickle` calls."""
    graph = Graph()
    made: dict[str, Any] = {}

    def of(values: Any) -> Any:
        return map_aggregate(values, lambda value: made[value.name] if isinstance(value, _Name) else value)

    for op, node_name, target, args, kwargs, kind, wrapped in nodes:
        node = made[node_name] = graph.create_node(op, target, of(args), of(kwargs), node_name, kind)
        if wrapped:
            node.meta["is_wrapped"] = True
    return _make_graph_module(_CodeOnlyModule(body), graph, name)


class _Name:
    """A node in the description of another."""

    def __init__(self, name: str) -> None:
        self.name = name


def _described(graph: Graph) -> list[tuple]:
    def of(values: Any) -> Any:
        return map_arg(values, lambda node: _Name(node.name))

    return [
        (n.op, n.name, n.target, of(n.args), of(n.kwargs), n.type, n.meta.get("is_wrapped", False)) for n in graph.nodes
    ]


class GraphModule(Module):
    """A module that computes what a graph says. Change the graph and call `recompile`, or assign a new one.

    Args:
        root: the module, or dict, that has what nodes of the graph refer to; only that is taken over.
        graph: the graph.
        class_name: what the module's class is called.

    Raises:
        RuntimeError: If `root` lacks something.

    >>> traced = torch.fx.symbolic_trace(lambda x: x + 1)
    >>> for node in traced.graph.nodes:
    ...     if node.op == "call_function":
    ...         node.target = torch.mul
    >>> traced.recompile().src.strip().splitlines()[1].strip()
    'add = torch.mul(x, 1);  x = None'
    >>> traced(torch.tensor([3.0]))
    tensor([3.])
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        for base in cls.__mro__:  # each instance has a class of its own, whose `forward` it sets
            if not base.__qualname__.endswith("GraphModuleImpl"):
                break
        return super().__new__(type("GraphModuleImpl", (base,), {"__module__": base.__module__}))

    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        if isinstance(root, Module):
            if hasattr(root, "training"):
                self.training = root.training
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    _copy_attr(root, self, str(node.target))
        elif isinstance(root, dict):
            using = [node for node in graph.nodes if node.op in ("get_attr", "call_module")]
            for node in using:
                if node.target not in root:
                    raise RuntimeError(
                        f"Node {node} referenced target {node.target} but that target was not provided in ``root``!"
                    )
            wanted = [str(node.target) for node in using]
            for target in sorted(wanted, key=lambda target: target.count(".")):
                _assign_attr(root[target], self, target)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        self._create_node_hooks: list[Any] = []
        self._erase_node_hooks: list[Any] = []
        self.meta: dict[str, Any] = {}
        self._tracer_cls = graph._tracer_cls
        self.graph = graph

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self._graph = g
        g.owning_module = self
        self.recompile()

    def recompile(self) -> PythonCode:
        """Makes `forward` of the graph. To be called after every change of the graph. Returns the code."""
        info = getattr(self._graph._codegen, "pytree_info", None)
        if info is not None:  # its code asks how arguments and results are nested
            self._in_spec, self._out_spec = info.in_spec, info.out_spec
        code = self._graph.python_code(root_module="self")
        self._code = code.src
        type(self).forward = _forward_from_src(code.src, code.globals)
        return code

    @property
    def code(self) -> str:
        """The code that was made of the graph."""
        if not hasattr(self, "_code"):
            raise RuntimeError("Code has not been generated! Please report a bug to PyTorch")
        return self._code

    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
    ) -> str:
        """Prints the code as a class. Returns its text."""
        lines = self._graph.python_code("self").src.strip("\n ").split("\n")
        traces = any(node.stack_trace for node in self._graph.nodes)
        note = [] if traces else ["    # No stacktrace found for following nodes"]
        body = [lines[0], *note, *lines[1:]]
        text = f"class {self._get_name()}(torch.nn.Module):\n"
        text += "".join(f"    {line}".rstrip() + "\n" for line in body)
        if print_output:
            print(text)
        return text

    def add_submodule(self, target: str, m: Module) -> bool:
        """Adds a submodule under a dotted name. Returns False if something on the way is not a module."""
        *prefix, field = target.split(".")
        module: Module = self
        for item in prefix:
            inner = getattr(module, item, None)
            if inner is None:
                inner = Module()
                setattr(module, item, inner)
            if not isinstance(inner, Module):
                return False
            module = inner
        module.add_module(field, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Removes a submodule. Returns False if there is none of that name."""
        prefix, _, field = target.rpartition(".")
        try:
            module = self.get_submodule(prefix)
        except AttributeError:
            return False
        if not isinstance(getattr(module, field, None), Module):
            return False
        delattr(module, field)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Removes all submodules that no node uses."""
        used: list[str] = []
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = str(node.target).split(".")
                used += [".".join(parts[: i + 1]) for i in range(len(parts))]
                if node.op == "call_module":
                    try:
                        inner = self.get_submodule(str(node.target))
                        used += [f"{node.target}.{name}" for name, _ in inner.named_modules() if name]
                    except AttributeError:
                        continue
        for name in [name for name, _ in self.named_modules()]:
            if name and name not in used:
                self.delete_submodule(name)

    def __reduce__(self) -> tuple:
        body = {k: v for k, v in vars(self).items() if k not in ("_graph", "_code", "_tracer_cls")}
        return reduce_graph_module, (body, _described(self._graph), type(self).__name__)

    def __deepcopy__(self, memo: dict) -> GraphModule:
        body = {k: v for k, v in vars(self).items() if k not in ("_graph", "_code", "meta")}
        other = _CodeOnlyModule(deepcopy(body, memo))
        made = _make_graph_module(other, deepcopy(self._graph, memo), type(self).__name__, type(self))
        memo[id(self)] = made  # it may be in its own `meta`
        for name in (*self.meta.get(_USER_PRESERVED_ATTRIBUTES_KEY, ()), "_state_dict_hooks"):
            if hasattr(other, name):
                setattr(made, name, getattr(other, name))
        made.meta = copy(self.meta)
        return made

    def __copy__(self) -> GraphModule:
        made = _make_graph_module(self, deepcopy(self._graph), type(self).__name__, type(self))
        made.meta = copy(self.meta)
        return made

    def __str__(self) -> str:
        hint = "# To see more debug info, please use `graph_module.print_readable()`"
        return f"{super().__str__()}\n{self._code}\n{hint}"


def _make_graph_module(root: Any, graph: Graph, name: str, cls: Any = None) -> GraphModule:
    for base in (cls or GraphModule).__mro__:
        if not base.__qualname__.endswith("GraphModuleImpl"):
            break
    return base(root, graph, name)
