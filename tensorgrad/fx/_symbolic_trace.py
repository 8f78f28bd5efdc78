"""Traces programs: runs them with proxies in place of tensors, and records what happens. `torch.fx.Tracer`."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from itertools import chain
from types import CodeType, FunctionType, ModuleType
from typing import Any

import tensorgrad
from tensorgrad.fx import patching
from tensorgrad.fx.graph import Graph
from tensorgrad.fx.graph_module import GraphModule, _make_graph_module
from tensorgrad.fx.node import Argument, Node, Target, base_types
from tensorgrad.fx.proxy import ParameterProxy, Proxy, Scope, TracerBase
from tensorgrad.nn import Module, Parameter, Sequential

__all__ = ["PH", "ProxyableClassMeta", "Tracer", "is_fx_symbolic_tracing", "is_fx_tracing", "symbolic_trace", "wrap"]


class PHBase:
    """The class of `PH`: an argument that stays an input of the graph, in `concrete_args`."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()
_proxyable: dict[type, None] = {}


class ProxyableClassMeta(type):
    """A metaclass for classes whose constructor is recorded as a call if it is given a proxy.

    >>> class Pair(metaclass=torch.fx.ProxyableClassMeta):
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> traced = torch.fx.symbolic_trace(lambda x: Pair(x, 1).a + 2)
    >>> [node.name for node in traced.graph.nodes], traced(torch.tensor(3))
    (['x', 'pair', 'getattr_1', 'add', 'output'], tensor(5))
    """

    def __init__(cls, name: str, bases: tuple, attrs: dict) -> None:
        _proxyable.setdefault(cls)
        super().__init__(name, bases, attrs)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        found = patching.find_proxy((args, kwargs)) if is_fx_symbolic_tracing() else None
        if found is None:
            return super().__call__(*args, **kwargs)
        return found.tracer.create_proxy("call_function", cls, args, kwargs)


def is_fx_tracing() -> bool:
    """Returns whether a program is being traced in this thread.

    >>> torch.fx._symbolic_trace.is_fx_tracing()
    False
    """
    return bool(patching.LOCAL.tracers)


is_fx_symbolic_tracing = is_fx_tracing


def wrap(fn_or_name: str | Callable) -> str | Callable:
    """Records calls of a function as one step, instead of tracing into it. Call it at the top level of a module.

    Args:
        fn_or_name: the function, or the name of a global one, such as `"len"`.

    Returns:
        Its argument, so that it can be a decorator.

    Raises:
        RuntimeError: If the argument is something else.
        NotImplementedError: Within a function or class.

    >>> torch.fx.wrap(3)
    Traceback (most recent call last):
    RuntimeError: Unsupported type for global function! Must be either a callable or string name
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    if caller is None or caller.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    patching.wrapped[id(caller.f_globals), name] = caller.f_globals
    return fn_or_name


def _parameter_proxy(tracer: TracerBase, name: str, value: Any, node: Node) -> Proxy:
    return ParameterProxy(tracer, node, name, value)


class Tracer(TracerBase):
    """Traces functions and modules. A subclass may decide which modules are one step, and see every node.

    Args:
        autowrap_modules: modules whose functions are recorded as one step; by default `math`.
        autowrap_functions: further functions that are.
        param_shapes_constant: shapes of parameters are known numbers, not steps.

    >>> class Flat(torch.fx.Tracer):
    ...     def is_leaf_module(self, m, module_qualified_name):
    ...         return False
    >>> graph = Flat().trace(torch.nn.Sequential(torch.nn.ReLU()))
    >>> [node.op for node in graph.nodes]
    ['placeholder', 'call_function', 'output']
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable, ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__()
        named = (vars(module).items() for module in autowrap_modules)
        wanted = [f for name, f in chain.from_iterable(named) if not name.startswith("_") and callable(f)]
        self._autowrapped = {f: patching.recording_wrapped(f) for f in (*wanted, *autowrap_functions)}
        self._autowrap_search = list(autowrap_modules)
        self._autowrap_function_ids = set(map(id, self._autowrapped))
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Module, str] | None = None
        self.root_module_name = ""
        self.scope = Scope("", None)
        self.module_stack: dict[str, Any] = {}
        self.num_calls: dict[str, int] = {}
        self.node_name_to_scope: dict[str, tuple[str, Any]] = {}
        self.tensor_attrs: dict[Any, str] = {}
        self._attributes: dict[str, Proxy] = {}

    # --- what subclasses change --------------------------------------------------------------------------------------

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Returns whether a call of a module is one step. By default, modules of `torch.nn` are, but `Sequential`."""
        module = type(m).__module__
        return module.startswith(("torch.nn", "tensorgrad.nn", "torch.ao.nn")) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """Returns the name of a module within the root. Raises: NameError if it is not part of it."""
        if self.submodule_paths is not None and mod in self.submodule_paths:
            return self.submodule_paths[mod]
        for name, module in self.root.named_modules():
            if module is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Any:
        """Called where a module is called. Returns its result: a proxy for a step, or what `forward` returns."""
        name = self.path_of_module(m)
        before, self.scope = self.scope, Scope(name, type(m))
        number = self.num_calls.get(name, 0)
        self.num_calls[name] = number + 1
        key = name if number == 0 else f"{name}@{number}"
        stack = self.module_stack
        self.module_stack = {**stack, key: (name, type(m))}
        try:
            if self.is_leaf_module(m, name):
                return self.create_proxy("call_module", name, args, kwargs)
            return forward(*args, **kwargs)
        finally:
            self.scope, self.module_stack = before, stack

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Called where an attribute of a module is used. Returns a proxy for parameters."""
        if isinstance(attr_val, Parameter):
            return self._proxy_of(attr_val, self.root.named_parameters(), parameter_proxy_cache)
        if self.proxy_buffer_attributes and isinstance(attr_val, tensorgrad.Tensor):
            return self._proxy_of(attr_val, self.root.named_buffers(), parameter_proxy_cache)
        return attr_val

    def _proxy_of(self, value: Any, named: Any, cache: dict[str, Any]) -> Any:
        for name, other in named:
            if other is value:
                if name not in cache:
                    known = functools.partial(_parameter_proxy, self, name, value)
                    # Tracers of libraries, such as torchvision's, may create proxies without it.
                    taken = inspect.signature(self.create_proxy).parameters if self.param_shapes_constant else ()
                    more: dict[str, Any] = {"proxy_factory_fn": known} if "proxy_factory_fn" in taken else {}
                    cache[name] = self.create_proxy("get_attr", name, (), {}, **more)
                return cache[name]
        return value

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Adds a node to the graph, and remembers the module that it is in."""
        node = super().create_node(kind, target, args, kwargs, name, type_expr)
        self.node_name_to_scope[node.name] = self.scope.module_path, self.scope.module_type
        if self.module_stack:
            node.meta["nn_module_stack"] = dict(self.module_stack)
        if self.record_stack_traces:
            import traceback

            frames = [f for f in traceback.extract_stack() if "/tensorgrad/" not in f.filename]
            node.stack_trace = "".join(traceback.StackSummary.from_list(frames).format()).strip()
        return node

    def create_arg(self, a: Any) -> Argument:
        """Returns a value as an argument of a node: tensors become attributes of the module."""
        if isinstance(a, Parameter):
            for name, parameter in self.root.named_parameters():
                if a is parameter:
                    return self.create_node("get_attr", name, (), {})
            raise NameError("parameter is not a member of this module")
        if isinstance(a, tensorgrad.Tensor):
            for name, buffer in self.root.named_buffers():
                if a is buffer:
                    return self.create_node("get_attr", name, (), {})
            return self.create_node("get_attr", self._constant(a), (), {})
        if isinstance(a, Module):
            for name, module in self.root.named_modules():
                if a is module:
                    return self.create_node("get_attr", name, (), {})
        if type(a) in _proxyable:
            return self.create_node("get_attr", self._constant(a, f"_{type(a).__name__}_constant_"), (), {})
        return super().create_arg(a)

    def _constant(self, value: Any, prefix: str = "_tensor_constant") -> str:
        """The name of an attribute that holds a value, which becomes an attribute if it is none yet."""
        name = self.tensor_attrs.get(value)
        if name is None:
            i = 0
            while hasattr(self.root, f"{prefix}{i}"):
                i += 1
            name = self.tensor_attrs[value] = f"{prefix}{i}"
            object.__setattr__(self.root, name, value)
        return name

    # --- tracing -----------------------------------------------------------------------------------------------------

    def _module_called(self, module: Module, args: tuple, kwargs: dict[str, Any]) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            return patching.plain_call(module, *args, **kwargs)

        patching.replace_in(getattr(module.forward, "__globals__", {}), self._autowrapped)
        return self.call_module(module, forward, args, kwargs)

    def _module_attribute(self, name: str, value: Any) -> Any:
        return self.getattr(name, value, self._attributes) if isinstance(value, tensorgrad.Tensor) else value

    def trace(self, root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> Graph:
        """Returns the graph of a function or module.

        Args:
            root: the function or module. Afterwards `tracer.root` is the module with everything that nodes refer to.
            concrete_args: values of arguments that are not inputs of the graph.

        Raises:
            TraceError: If the program depends on values.
            NotImplementedError: If an argument of a step, or a concrete one, is of a type that code cannot hold.
        """
        if isinstance(root, Module):
            self.root = root
            name = self.traced_func_name
            if not hasattr(type(root), name):
                raise AssertionError(f"traced_func_name={name} doesn't exist in {type(root).__name__}")
            function = getattr(type(root), name)
            self.root_module_name = type(root).__name__
            self.submodule_paths = {module: path for path, module in root.named_modules()}
        else:
            self.root = Module()
            function = root
        self.graph = Graph(tracer_cls=getattr(self, "__class__", None))
        self.tensor_attrs = {}
        self._attributes = {}
        for prefix, module in self.root.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, tensorgrad.Tensor):
                    self.tensor_attrs[value] = f"{prefix}.{name}".lstrip(".")
        try:
            if not inspect.isroutine(function):  # an instance with `__call__`
                function = type(function).__call__.__get__(function)
            call, args = self.create_args_for_root(function, isinstance(root, Module), concrete_args)
            plain = getattr(function, "__func__", function)
            with patching.patched(self, self._autowrapped, tuple(self._autowrap_search)):
                patching.replace_in(getattr(inspect.unwrap(plain), "__globals__", {}), self._autowrapped)
                result = self.create_arg(call(*args))
                returns = _annotation(function, "return")
                self.create_node("output", "output", (result,), {}, type_expr=returns)
        finally:
            self.submodule_paths = None
        return self.graph

    def create_args_for_root(
        self, root_fn: Callable, is_module: bool, concrete_args: dict[str, Any] | None = None
    ) -> tuple[Callable, list[Any]]:
        """Adds the inputs to the graph. Returns the function, and the proxies to call it with."""
        analysed: Any = inspect.unwrap(root_fn)
        bound = inspect.ismethod(analysed)
        code = analysed.__code__
        signature = inspect.signature(analysed)
        names = iter(code.co_varnames)
        args: list[Any] = []
        count = code.co_argcount + code.co_kwonlyargcount
        if is_module or bound:
            if code.co_argcount == 0:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            args.append(self.root if is_module else analysed.__self__)
            next(names)
            count -= 1
        concrete = concrete_args or {}
        number = 0
        for name in [next(names) for _ in range(count)]:
            if name in concrete and concrete[name] is not PH:
                number += 1
                args.append(self._specialised(name, number, concrete[name], signature))
            else:
                args.append(self._input(name, signature.parameters.get(name), analysed))
        var = [f"*{next(names)}" for _ in range(bool(code.co_flags & inspect.CO_VARARGS))]
        var += [f"**{next(names)}" for _ in range(bool(code.co_flags & inspect.CO_VARKEYWORDS))]
        args += [self._input(name, None, analysed) for name in var]
        function = analysed.__func__ if bound else root_fn
        if var or code.co_kwonlyargcount:
            function = _all_positional(inspect.unwrap(function), len(args))
        return function, args

    def _input(self, name: str, parameter: Any, function: Any) -> Proxy:
        has_default = parameter is not None and parameter.default is not parameter.empty
        return self.create_proxy(
            "placeholder",
            name,
            (parameter.default,) if has_default else (),
            {},
            type_expr=_annotation(function, name.lstrip("*")),
        )

    def _specialised(self, name: str, number: int, value: Any, signature: inspect.Signature) -> Any:
        """Adds an input that must be a certain value: the graph checks it, and the program runs with the value."""
        if isinstance(value, list | tuple | dict | set):
            raise NotImplementedError(
                f"fx: the concrete argument {name!r} is a {type(value).__name__}; only single values can be concrete. "
                "Make it a default, or trace a function without that argument"
            )
        default = signature.parameters[name].default
        out = self.create_proxy("placeholder", f"{name}_{number}", () if default is inspect._empty else (default,), {})
        message = f"{name} has been specialized to have value {value} but got another value"
        if isinstance(value, base_types) and not isinstance(value, tensorgrad.Tensor):
            self.create_proxy("call_function", tensorgrad._assert, (out == value, message), {})
        elif value is None:
            self.create_proxy("call_function", _assert_is_none, (out, message), {})
        else:
            import warnings

            warnings.warn(
                f"Was not able to add assertion to guarantee correct input {name} to specialized function. It is up to "
                "the user to make sure that your inputs match the inputs you specialized the function with.",
                stacklevel=2,
            )
        return value


def _annotation(function: Any, name: str) -> Any:
    """The annotation of a parameter, or "return". (PyTorch's own modules have few, and here they are only texts.)"""
    found = getattr(function, "__annotations__", {}).get(name)
    ours = getattr(function, "__module__", None) or ""
    return None if isinstance(found, str) and ours.startswith("tensorgrad.") else found


def _assert_is_none(value: Any, msg: str) -> None:
    """Raises: AssertionError if the value is not None."""
    assert value is None, msg


def _all_positional(function: Any, count: int) -> Callable:
    """A function with all parameters positional, also `*args` and `**kwargs`: a proxy is passed for each as a whole."""
    code: CodeType = function.__code__
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    code = code.replace(co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=flags)
    return FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)


def symbolic_trace(root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """Traces a function or module. Returns a module with its graph, and code made from that.

    Args:
        root: the function or module.
        concrete_args: values of arguments that are not inputs of the graph.

    Raises:
        TraceError: If the program depends on values: `if x.sum() > 0`.

    >>> traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()))
    >>> print(traced.code.strip())
    def forward(self, input):
        input_1 = input
        _0 = getattr(self, "0")(input_1);  input_1 = None
        _1 = getattr(self, "1")(_0);  _0 = None
        return _1
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return _make_graph_module(tracer.root, graph, name)
