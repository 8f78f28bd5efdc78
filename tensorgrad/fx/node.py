"""One step of a traced program: `torch.fx.Node`."""

from __future__ import annotations

import builtins
import enum
import operator
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import tensorgrad
from tensorgrad.fx.immutable_collections import immutable_dict, immutable_list
from tensorgrad.fx.torch_functions import public_name

if TYPE_CHECKING:
    from tensorgrad.fx.graph import Graph

__all__ = ["Node", "has_side_effect", "map_aggregate", "map_arg"]

base_types: tuple[type, ...] = (
    str, int, float, bool, complex, tensorgrad.dtype, tensorgrad.Tensor, tensorgrad.device, tensorgrad.memory_format,
    tensorgrad.layout,
)  # fmt: skip
Target = Callable[..., Any] | str
Argument = Any

OPS = ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root")
# Functions that are called for what they do: steps that call them are not removed if nothing uses their result.
_side_effectful_functions: set[Callable] = {tensorgrad._assert, operator.setitem}


def has_side_effect(fn: Callable) -> Callable:
    """Marks a function as one that is called for what it does. `eliminate_dead_code` keeps its calls.

    >>> @torch.fx.has_side_effect
    ... def log(x):
    ...     print(x)
    """
    _side_effectful_functions.add(fn)
    return fn


def _writes(target: Any) -> bool:
    """Whether a target is an operator of PyTorch's registry that writes in place: `aten.add_.Tensor`."""
    packet = getattr(target, "overloadpacket", None)
    return packet is not None and packet.__name__[-1] == "_" and packet.__name__[-2:] != "__"


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """Applies a function to each node in nested arguments.

    >>> node = torch.fx.Graph().placeholder("x")
    >>> torch.fx.map_arg([node, {"a": 3}], lambda n: n.name)
    ['x', {'a': 3}]
    """
    return map_aggregate(a, lambda value: fn(value) if isinstance(value, Node) else value)


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """Applies a function to every value in nested tuples, lists, dicts and slices; lists and dicts become immutable.

    >>> from tensorgrad.fx.node import map_aggregate
    >>> map_aggregate((1, [2, slice(3, 4)]), lambda value: value and -value)
    (-1, [-2, slice(-3, -4, None)])
    """
    if isinstance(a, tuple):
        values = [map_aggregate(value, fn) for value in a]
        return type(a)(*values) if hasattr(a, "_fields") else tuple(values)
    if isinstance(a, list):
        return immutable_list([map_aggregate(value, fn) for value in a])
    if isinstance(a, dict):
        return immutable_dict((key, map_aggregate(value, fn)) for key, value in a.items())
    if isinstance(a, slice):
        return slice(*(map_aggregate(value, fn) for value in (a.start, a.stop, a.step)))
    return fn(a)


def _get_qualified_name(func: Any) -> str:
    """Returns how code refers to a function or class: PyTorch's name of its own, else the module and the name."""
    public = public_name(func)
    if public is not None:
        return public
    name = getattr(func, "__name__", "")
    if name and getattr(builtins, name, None) is func:
        return name
    if type(func).__module__ == "tensorgrad._ops" or hasattr(func, "overloadpacket"):
        return f"torch.ops.{func}"
    if isinstance(func, types.MethodDescriptorType | types.WrapperDescriptorType):
        return f"{func.__objclass__.__module__}.{func.__objclass__.__name__}.{func.__name__}"
    module = _torchs_module(getattr(func, "__module__", None) or "")
    name = func.__name__
    if module == "torch" or not module.startswith("torch."):
        return f"{module}.{name}"
    return f"{module}.{getattr(func, '__qualname__', name)}"


def _torchs_module(module: str) -> str:
    """The name of a module as users know it: `torch.nn` for `tensorgrad.nn`."""
    return "torch" + module.removeprefix("tensorgrad") if module.split(".")[0] == "tensorgrad" else module


def _type_repr(obj: Any) -> str:
    """Returns how code writes a type: `int`, `torch.Tensor`, `typing.Optional[int]`."""
    if isinstance(obj, type) and not isinstance(obj, types.GenericAlias):
        if obj is tensorgrad.Tensor:
            return "torch.Tensor"
        return (
            obj.__qualname__ if obj.__module__ == "builtins" else f"{_torchs_module(obj.__module__)}.{obj.__qualname__}"
        )
    if obj is ...:
        return "..."
    if isinstance(obj, types.FunctionType):
        return obj.__name__
    return repr(obj).replace("tensorgrad.tensor.Tensor", "torch.Tensor").replace("tensorgrad.", "torch.")


class Node:
    """One step of a graph: a call, an input, an attribute of the module, or the output.

    Attributes:
        op: "placeholder", "get_attr", "call_function", "call_method", "call_module" or "output".
        name: the variable that holds its result, unique in the graph.
        target: what it calls: a function, or the name of a method, module, attribute or argument.
        args, kwargs: its arguments, in which other nodes stand for their results. Assign new ones to change them.
        users: the nodes that use its result, as the keys of a dict.
        type: the annotation of the result; None if there is none.
        meta: a dict for your own use.

    >>> for node in torch.fx.symbolic_trace(lambda x: x + 1).graph.nodes:
    ...     print(node.op, node.name, node.args)
    placeholder x ()
    call_function add (x, 1)
    output output (add,)
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        return_type: Any = None,
    ) -> None:
        if op not in OPS:
            raise AssertionError(f"{op!r} is not a kind of node: {', '.join(OPS)}")
        if op == "call_function" and not callable(target):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but a Callable is "
                "expected"
            )
        if op not in ("call_function", "root") and not isinstance(target, str):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but a str is expected"
            )
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self._prev: Node = self
        self._next: Node = self
        self._erased = False
        self._input_nodes: dict[Node, None] = {}
        self.users: dict[Node, None] = {}
        self._repr_fn: Callable[[Node], str] | None = None
        self._sort_key: Any = ()
        self.meta: dict[str, Any] = {}
        self._args: tuple = ()
        self._kwargs: dict[str, Any] = {}
        self._set(args, kwargs)

    # --- arguments ---------------------------------------------------------------------------------------------------

    def _set(self, args: Any, kwargs: Any) -> None:
        """Sets both kinds of arguments, and tells the nodes among them that they are used here."""
        for node in self._input_nodes:
            node.users.pop(self, None)
        self._input_nodes = {}

        def use(node: Node) -> Node:
            self._input_nodes.setdefault(node)
            node.users.setdefault(self)
            return node

        self._args = map_arg(tuple(args), use)
        self._kwargs = map_arg(dict(kwargs), use)

    @property
    def args(self) -> tuple:
        """The positional arguments."""
        return self._args

    @args.setter
    def args(self, args: tuple) -> None:
        self._set(args, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Any]) -> None:
        self._set(self._args, kwargs)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, in order."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Any) -> None:
        """Replaces one positional argument."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Inserts a positional argument before another. Raises: AssertionError if there are fewer."""
        if not 0 <= idx <= len(self.args):
            raise AssertionError("insert_args index must be between 0 and len(self.args)")
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Replaces or adds one keyword argument."""
        self.kwargs = {**self.kwargs, key: arg}

    @property
    def stack_trace(self) -> str | None:
        """Where the step was recorded, if the tracer records that."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    # --- order -------------------------------------------------------------------------------------------------------

    @property
    def next(self) -> Node:
        """The next node in the graph; at the end, its root."""
        return self._next

    @property
    def prev(self) -> Node:
        """The previous node in the graph; at the start, its root."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Moves a node of the same graph before this one."""
        if self.graph is not x.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if self is x:
            return
        x._remove_from_list()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x

    def append(self, x: Node) -> None:
        """Moves a node of the same graph after this one."""
        self._next.prepend(x)

    def _remove_from_list(self) -> None:
        before, after = self._prev, self._next
        before._next, after._prev = after, before

    def __lt__(self, other: Node) -> bool:
        return self._position() < other._position()

    def __gt__(self, other: Node) -> bool:
        return self._position() > other._position()

    def _position(self) -> int:
        return next(i for i, node in enumerate(self.graph.nodes) if node is self)

    # --- changes -----------------------------------------------------------------------------------------------------

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Replaces this node by another in the arguments of all nodes that use it.

        Args:
            replace_with: the other node.
            delete_user_cb: whether to change a user.
            propagate_meta: copies `meta`, which must be empty in the other.

        Returns:
            The nodes that were changed.
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but replace_with already "
                    "has .meta keys"
                )
            replace_with.meta.update(self.meta)
        changed = [user for user in self.users if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Replaces a node by another in the arguments of this one."""

        def swap(node: Node) -> Node:
            return new_input if node is old_input else node

        self._set(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    def is_impure(self, impure_random: bool = True) -> bool:
        """Returns whether the step does something besides computing its result: inputs, outputs, asserts, writes."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            return self.target in _side_effectful_functions or _writes(self.target)
        if self.op == "call_module":
            return self.graph.owning_module is None or getattr(
                self.graph.owning_module.get_submodule(str(self.target)), "_is_impure", False
            )
        return False

    # --- text --------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return self._repr_fn(self) if self._repr_fn else self.name

    def _pretty_print_target(self, target: object) -> str:
        if isinstance(target, str):
            return target
        if hasattr(target, "__module__"):
            name = getattr(target, "__name__", None)
            if name is None:
                return _get_qualified_name(target) if hasattr(target, "__qualname__") else repr(target)
            if target.__module__ == "builtins":
                return f"builtins.{name}"
            if target.__module__ == "_operator":
                return f"operator.{name}"
        return _get_qualified_name(target)

    def format_node(
        self, placeholder_names: list[str] | None = None, maybe_return_typename: list[str] | None = None
    ) -> str | None:
        """Returns the line for this node that a graph is printed with.

        >>> list(torch.fx.symbolic_trace(lambda x: x + 1).graph.nodes)[1].format_node()
        '%add : [num_users=1] = call_function[target=operator.add](args = (%x, 1), kwargs = {})'
        """
        kind = f"{_type_repr(self.type)} " if self.type else ""
        left = f"%{self.name} : {kind}[num_users={len(self.users)}] = {self.op}"
        if self.op == "placeholder":
            if placeholder_names is not None:
                placeholder_names.append(str(self.target) + (f": {_type_repr(self.type)}" if self.type else ""))
            default = f"(default={self.args[0]})" if self.args else ""
            return f"{left}[target={self.target}]{default}"
        if self.op == "get_attr":
            return f"{left}[target={self._pretty_print_target(self.target)}]"
        if self.op == "output":
            if self.type and maybe_return_typename is not None:
                maybe_return_typename[0] = f" -> {_type_repr(self.type)}"
            return f"return {self.args[0]}"
        return (
            f"{left}[target={self._pretty_print_target(self.target)}](args = {_format_arg(self.args)}, "
            f"kwargs = {_format_arg(self.kwargs)})"
        )


def _format_arg(arg: object) -> str:
    """An argument as graphs print it: nodes with a `%`, and texts without quotes."""
    if isinstance(arg, list):
        return f"[{', '.join(map(_format_arg, arg))}]"
    if isinstance(arg, tuple) and not hasattr(arg, "_fields"):
        return f"({', '.join(map(_format_arg, arg))}{',' if len(arg) == 1 else ''})"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{key}: {_format_arg(value)}" for key, value in arg.items()) + "}"
    return f"%{arg}" if isinstance(arg, Node) else str(arg)


def is_enum(value: object) -> bool:
    """Whether a value is a member of an Enum."""
    return isinstance(value, enum.Enum)


def nodes_in(values: Any) -> Iterable[Node]:
    """Returns all nodes in nested arguments."""
    found: list[Node] = []
    map_arg(values, lambda node: found.append(node) or node)  # type: ignore[func-returns-value]
    return found
