"""What stands for values while a program is traced: `torch.fx.Proxy`. Whatever is done with one becomes a node."""

from __future__ import annotations

import dis
import inspect
import operator
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import tensorgrad
from tensorgrad.fx import traceback
from tensorgrad.fx.codegen import magic_methods, reflectable_magic_methods
from tensorgrad.fx.graph import Graph
from tensorgrad.fx.node import Argument, Node, Target, base_types, map_aggregate
from tensorgrad.fx.torch_functions import as_recorded
from tensorgrad.size import SYMBOLS

__all__ = ["Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "TraceError", "TracerBase"]

_ITERATED = (
    "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or **kwargs "
    "function argument. See the torch.fx docs on pytorch.org for a more detailed explanation of what types of control "
    "flow can be traced, and check out the Proxy docstring for help troubleshooting Proxy iteration errors"
)


class TraceError(ValueError):
    """What a program does cannot be traced: it depends on values, which are not there."""


class Scope:
    """The module that is being traced: its path and its class."""

    def __init__(self, module_path: str, module_type: Any) -> None:
        self.module_path, self.module_type = module_path, module_type


class TracerBase:
    """What every tracer does: it makes nodes and proxies, and arguments of values."""

    graph: Graph
    record_stack_traces = False
    check_mutable_operations = False
    trace_asserts = False
    proxy_buffer_attributes = False
    traced_func_name = "forward"
    scope: Any = None
    module_stack: Any = None

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Adds a node to the graph. A tracer of your own may check or change it here."""
        made = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        traceback.hand_over(made)
        return made

    def proxy(self, node: Node) -> Proxy:
        """Returns what stands for the value of a node."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Adds a node whose arguments are values, and returns what stands for its value."""
        args_, kwargs_ = self.create_arg(args), self.create_arg(kwargs)
        if not isinstance(args_, tuple) or not isinstance(kwargs_, dict):
            raise AssertionError("arguments must stay a tuple and a dict")
        node = self.create_node(kind, target, args_, kwargs_, name, type_expr)
        return proxy_factory_fn(node) if proxy_factory_fn is not None else self.proxy(node)

    def create_arg(self, a: Any) -> Argument:
        """Returns a value as an argument of a node.

        Raises:
            NotImplementedError: If its type cannot be written in code.
        """
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            values = [self.create_arg(value) for value in a]
            return type(a)(*values) if hasattr(a, "_fields") else tuple(values)
        if isinstance(a, list):
            return [self.create_arg(value) for value in a]
        if isinstance(a, dict):
            for key in a:
                if isinstance(key, Proxy | Node):
                    raise RuntimeError(
                        f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {key}"
                    )
            return {key: self.create_arg(value) for key, value in a.items()}
        if isinstance(a, slice):
            return slice(*(self.create_arg(value) for value in (a.start, a.stop, a.step)))
        if isinstance(a, range):
            return range(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if is_dataclass(a) and not isinstance(a, type):
            kwargs = {field.name: self.create_arg(getattr(a, field.name)) for field in fields(a)}
            return self.create_node("call_function", type(a), (), kwargs)
        if isinstance(a, base_types) or a is None or a is ... or isinstance(a, type) or _is_operator(a):
            return a
        if inspect.isfunction(a) or inspect.isbuiltin(a):
            return a
        import enum

        if isinstance(a, enum.Enum):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def to_bool(self, obj: Proxy) -> bool:
        """Called where the truth of a proxy is asked. Raises: TraceError, unless a tracer of your own knows it."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator:
        """Called where a proxy is iterated over. Raises: TraceError."""
        raise TraceError(_ITERATED)

    def keys(self, obj: Proxy) -> Any:
        """Called where the keys of a proxy are asked for, as by `**proxy`."""
        return Attribute(obj, "keys")()


def _is_operator(value: Any) -> bool:
    return type(value).__module__ == "tensorgrad._ops"


class GraphAppendingTracer(TracerBase):
    """Adds what is done with proxies to a graph that exists.

    >>> graph = torch.fx.Graph()
    >>> x = torch.fx.Proxy(graph.placeholder("x"), torch.fx.proxy.GraphAppendingTracer(graph))
    >>> (x + 1).node.args
    (x, 1)
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph


class Proxy:
    """Stands for the value of a node. Calls, operators and attributes of it become further nodes.

    >>> x = torch.fx.Proxy(torch.fx.Graph().placeholder("x"))
    >>> torch.relu(x + 1).sum(0).node
    sum_1
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.node = node
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Any:
        if k in ("_array", "_storage", "node", "tracer"):  # the package's own, of tensors; or not set yet
            raise AttributeError(k)
        return Attribute(self, k)

    def __getstate__(self) -> dict:
        return self.__dict__

    def __setstate__(self, d: dict) -> None:
        self.__dict__ = d

    def __deepcopy__(self, memo: dict) -> Proxy:
        from copy import deepcopy

        made = Proxy.__new__(type(self))
        made.__dict__ = {name: deepcopy(value, memo) for name, value in self.__dict__.items()}
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        """Records a call of the value."""
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Proxy]:
        frame = inspect.currentframe()
        caller = None if frame is None else frame.f_back
        if caller is not None:  # `a, b = proxy` says how many there are
            instructions = list(dis.get_instructions(caller.f_code))
            at = bisect_left([i.offset for i in instructions], caller.f_lasti)
            if instructions[at].opname == "UNPACK_SEQUENCE":
                return (self[i] for i in range(instructions[at].argval))  # type: ignore[index]
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def keys(self) -> Any:
        """Asks the tracer for the keys."""
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "torch.fx.wrap('len') at module scope"
        )

    @classmethod
    def __torch_function__(cls, orig_method: Any, types: Any, args: Any = None, kwargs: Any = None) -> Proxy:
        """Records a call of a function of torch, or of a method of a tensor, that was given a proxy."""
        args, kwargs = args or (), kwargs or {}
        tracers: dict[Any, None] = {}
        map_aggregate((args, kwargs), lambda a: tracers.setdefault(a.tracer) if isinstance(a, Proxy) else a)
        if len(tracers) > 1:
            raise RuntimeError(
                f"Found multiple different tracers {list(tracers)} while trying to trace operations {orig_method}"
            )
        tracer: TracerBase = next(iter(tracers))
        name = orig_method.__name__
        first = args[0] if args else None
        if isinstance(first, tensorgrad.Tensor) and getattr(tensorgrad.Tensor, name, None) is not None:
            return tracer.create_proxy("call_method", name, args, kwargs)
        args, kwargs = as_recorded(orig_method, args, kwargs)
        return tracer.create_proxy(
            "call_function", orig_method, args, kwargs, name=tracer.graph._target_to_str(orig_method)
        )


SYMBOLS.append(Proxy)


class Attribute(Proxy):
    """An attribute of a proxy. It becomes a node only where its value is used: `x.relu()` is one call of a method."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that fetches the attribute."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        """Records a call of the method."""
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """Stands for a parameter whose shape is known."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        """The parameter's shape."""
        return self.param.shape

    def size(self, *args: int) -> Any:
        """The parameter's size."""
        return self.param.size(*args)

    def dim(self) -> int:
        """The parameter's number of dimensions."""
        return self.param.dim()

    @property
    def ndim(self) -> int:
        """The parameter's number of dimensions."""
        return self.param.ndim

    def numel(self) -> int:
        """The parameter's number of elements."""
        return self.param.numel()

    def nelement(self) -> int:
        """The parameter's number of elements."""
        return self.param.nelement()


def _operator_method(name: str) -> Callable:
    function = getattr(operator, name)

    def method(*args: Any, **kwargs: Any) -> Proxy:
        tracer = args[0].tracer
        return tracer.create_proxy("call_function", function, args, kwargs)

    method.__name__ = f"__{name.strip('_')}__"
    return method


def _reflected_method(name: str) -> Callable:
    function = getattr(operator, name)

    def method(self: Proxy, rhs: Any) -> Proxy:
        return self.tracer.create_proxy("call_function", function, (rhs, self), {})

    method.__name__ = f"__r{name.strip('_')}__"
    return method


for _name in magic_methods:
    setattr(Proxy, f"__{_name.strip('_')}__", _operator_method(_name))
for _name in reflectable_magic_methods:
    setattr(Proxy, f"__r{_name.strip('_')}__", _reflected_method(_name))
Proxy.__hash__ = object.__hash__
