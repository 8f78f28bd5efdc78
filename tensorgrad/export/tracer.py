"""The tracer: runs a program, and notes the operators of PyTorch's registry that it calls, in an `fx.Graph`.

It is a dispatch mode (library/dispatch_modes.py), above autograd: a graph can be differentiated as the program can. A
recorder (capture/) runs below, for what it refuses: reads of values, writes that are not ops, unknown layouts.
"""

from __future__ import annotations

import builtins
import linecache
import re
import sys
from collections.abc import Callable, Iterable
from operator import getitem
from typing import Any

import numpy as np

import tensorgrad
from tensorgrad._ops import OpOverload, OpOverloadPacket, ops
from tensorgrad.autograd.modes import is_grad_enabled
from tensorgrad.capture.masks import described, real_array
from tensorgrad.capture.recorder import ReadError, Recorder
from tensorgrad.capture.traced import TracedArray
from tensorgrad.control_flow import (
    HigherOrderOperator,
    check_branches,
    check_carried,
    check_condition,
    cond_op,
)
from tensorgrad.export.errors import UserError
from tensorgrad.export.module_calls import ModuleCalls, NodeStacks
from tensorgrad.export.operators import form_of
from tensorgrad.fx import Graph, GraphModule, Node
from tensorgrad.library import dispatch_classes
from tensorgrad.overriding.function_classes import without_defaults
from tensorgrad.random.generator import Generator, default_generator
from tensorgrad.rows.switches import DISPATCH, LOCAL
from tensorgrad.tensor import Tensor
from tensorgrad.utils._python_dispatch import TorchDispatchMode


class Tracer(TorchDispatchMode):
    """Notes what runs within its `with` block.

    Attributes:
        graph: the graph.
        constants: tensors that the program used and that are not its inputs, by name.

    Args:
        constants: names of tensors that may turn out to be constants.
        composite: whether functions that PyTorch's tracer leaves whole stay one operator (operators.py).
        calls: says which calls of modules are running.
    """

    def __init__(
        self,
        constants: Iterable[tuple[str, Tensor]] = (),
        composite: bool = True,
        calls: ModuleCalls | NodeStacks | None = None,
    ) -> None:
        super().__init__()
        self.calls = calls
        self.graph = Graph()
        self.composite = composite
        self.constants: dict[str, Tensor] = {}
        self._names = {id(t): (t, name) for name, t in constants}
        self._nodes: dict[int, tuple[Tensor, Node]] = {}  # id of a tensor -> it, and its node
        self._arrays: dict[int, tuple[Any, Tensor]] = {}  # id of an array -> it, and a tensor with a node that has it
        self._recorder = Recorder("raise")
        self._first: Node | None = None  # the first node that is not an input
        self.modules: dict[str, GraphModule] = {}  # graphs of branches and loops
        self._outer: Tracer | None = None  # of such a graph, the tracer of the program around it
        self.captured: list[tuple[Tensor, Node]] = []  # of such a graph, what it uses of the program around it

    # --- the mode ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Tracer:
        if LOCAL.transforms:
            raise RuntimeError("export(): cannot begin inside of vmap, jvp or a recording")
        self._recorder.__enter__()
        super().__enter__()
        DISPATCH.insert(0, self._seen)
        self._grad = is_grad_enabled()
        if self.calls is not None:
            self.calls.begin(lambda leaf: self.node_of(leaf) if isinstance(leaf, Tensor) else leaf)
        return self

    def __exit__(self, *exception: Any) -> None:
        if self.calls is not None:
            self.calls.end()
        DISPATCH.remove(self._seen)
        super().__exit__(*exception)
        self._recorder.__exit__(*exception)
        if exception[0] is not None and issubclass(exception[0], ReadError):
            read = str(exception[1]).removeprefix("record(): ").partition(": what the program does")[0]
            raise UserError(
                f"Could not guard on data-dependent expression: {read}.\n\nThe program decides by a value that it "
                "computes, or goes on with one. What is exported has to do the same for all values: use torch.where, "
                "or keep this part out of the module."
            ) from exception[1]

    def _seen(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Called in place of each function that is not below another one."""
        modes = LOCAL.dispatch_modes
        if not modes or modes[-1] is not self:
            return dispatch_classes.dispatch(function, args, kwargs)
        row = None if isinstance(function, OpOverload | OpOverloadPacket) else getattr(function, "op", None)
        if isinstance(function, OpOverload) and function.namespace == "aten" and self.keeps(function):
            return dispatch_classes.call(function, args, kwargs)
        if self.composite and not isinstance(function, OpOverload | OpOverloadPacket):
            given, named = without_defaults(function, args, kwargs)
            form = form_of(function, function.__name__ if row is None else row.name, row)
            if form is not None:
                made = form(*given, **named)
                if made is not NotImplemented:
                    return made
            if row is not None and row.twin is not None and not self._known(row.name):
                return self.__torch_dispatch__(function, (), *without_defaults(function, args, kwargs))
        made = dispatch_classes.dispatch(function, args, kwargs)
        if made is NotImplemented and row is not None:
            return self.__torch_dispatch__(function, (), *without_defaults(function, args, kwargs))
        return made

    def keeps(self, operator: OpOverload) -> bool:
        """Whether an operator is handled as it is, though PyTorch makes it of others."""
        return self.composite

    @staticmethod
    def _known(name: str) -> bool:
        """Whether a row is written as operators in PyTorch's registry that compute just what it does."""
        return name in dispatch_classes.ROWS or hasattr(ops.aten, name)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operator, and adds its node."""
        kwargs = kwargs or {}
        if tensorgrad.is_autocast_enabled("cpu"):
            raise NotImplementedError(f"export(): autocast within a program is not exported {_where()}")
        given, named = tuple(self.argument(a) for a in args), self.argument(dict(kwargs))
        result = self.quietly(func, args, kwargs)
        name = name_of(func)
        node = self._add(func, given, named, name)
        if isinstance(result, Tensor):
            self.enter(result, node)
            if self._grad and not is_grad_enabled() and result.is_floating_point() and name[-1] != "_":
                self.enter(result, self._add(ops.aten.detach.default, (node,), {}, "detach"))
        elif isinstance(result, tuple | list):
            node.meta["val"] = tuple(None if r is None else _meta(r) for r in result)
            for i, r in enumerate(result):
                if isinstance(r, Tensor):
                    self.enter(r, self._add(getitem, (node, i), {}, "getitem"))
        return result

    @staticmethod
    def quietly(func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Calls a function that the mode does not see."""
        modes, LOCAL.dispatch_modes = LOCAL.dispatch_modes, ()
        try:
            return func(*args, **kwargs)
        finally:
            LOCAL.dispatch_modes = modes

    def written(self, inputs: list[Tensor]) -> list[tuple[int, Node]]:
        """The inputs whose new values are outputs of their own, by number, with these: none, as writes are in place."""
        return []

    # --- nodes -------------------------------------------------------------------------------------------------------

    def _add(self, target: Any, args: tuple, kwargs: dict, name: str) -> Node:
        node = self.graph.create_node("call_function", target, args, kwargs, name)
        self._first = self._first or node
        stack = _stack()
        if stack:
            node.meta["stack_trace"] = stack
        if self.calls is not None:
            node.meta["nn_module_stack"] = self.calls.stack()
        return node

    def placeholder(self, name: str, value: Any) -> Node:
        """Adds an input."""
        node = self._before(name)
        if hasattr(builtins, name) and not any(n.name == name for n in self.graph.nodes):
            node.name = name  # as PyTorch names inputs, but no other nodes
        if isinstance(value, Tensor):
            if self._outer is None:
                self._recorder.placeholder(node.name, value)
            self.enter(value, node)
        else:
            node.meta["val"] = value
        return node

    def _before(self, name: str) -> Node:
        if self._first is None:
            return self.graph.placeholder(name)
        with self.graph.inserting_before(self._first):
            return self.graph.placeholder(name)

    def enter(self, tensor: Tensor, node: Node) -> None:
        """Makes a node the one of a tensor."""
        self._nodes[id(tensor)] = tensor, node
        array = real_array(tensor)
        self._arrays[id(array)] = array, tensor
        node.meta["val"] = _meta(tensor)

    def node_of(self, tensor: Tensor) -> Node:
        """The node of a tensor; one from outside becomes a constant."""
        found = self._nodes.get(id(tensor))
        if found is not None:
            return found[1]
        array = real_array(tensor)
        same = self._arrays.get(id(array))
        if same is not None:  # `x.data`
            self.enter(tensor, self._add(ops.aten.detach.default, (self._nodes[id(same[1])][1],), {}, "detach"))
            return self._nodes[id(tensor)][1]
        if self._outer is not None:
            return self._capture(tensor, self._outer.node_of(tensor))
        if tensor._array.__class__ is TracedArray:
            made = getattr(tensor._array.node, "target", None)
            raise NotImplementedError(
                f"export(): a tensor of shape {list(tensor.shape)} was made by {getattr(made, '__name__', made)}, "
                f"which is not exported {_where()}"
            )
        fresh = id(tensor) not in self._names and id(array) in self._recorder._fresh
        lifted = len([n for n in self.constants if n.startswith("lifted_tensor_")])
        name = self._names.get(id(tensor), (None, f"lifted_tensor_{lifted}"))[1]
        self.constants[name] = self.quietly(lambda t: t.detach().clone(), (tensor,), {}) if fresh else tensor
        node = self._before("c_" + re.sub(r"[^a-z0-9]", "_", name.lower().removeprefix("self_")))
        node.meta["constant"] = name
        self.enter(tensor, node)
        if fresh and self.composite:
            copy = self._add(ops.aten.lift_fresh_copy.default, (node,), {}, "lift_fresh_copy")
            copy.meta["val"] = node.meta["val"]
            self.enter(tensor, self._add(ops.aten.detach_.default, (copy,), {}, "detach_"))
        elif fresh:
            self.enter(tensor, self._add(ops.aten.clone.default, (node,), {}, "clone"))
        return self._nodes[id(tensor)][1]

    def _capture(self, tensor: Tensor, outer: Node) -> Node:
        """Adds an input for a tensor of the program around the graph."""
        self.captured.append((tensor, outer))
        self.enter(tensor, self._before(outer.name))
        return self._nodes[id(tensor)][1]

    # --- branches and loops ------------------------------------------------------------------------------------------

    def inner(self) -> Tracer:
        """A tracer of the same kind, for a graph within this one."""
        return Tracer((), self.composite)

    def higher_order(self, operator: HigherOrderOperator, args: tuple) -> tuple:
        """Traces the functions of an operator, each as a graph of its own, and adds its node.

        Their inputs are the operands, and what the functions use besides.
        """
        first = int(operator is cond_op)
        functions, operands = args[first : first + 2], tuple(t for given in args[first + 2 :] for t in given)
        if not all(isinstance(t, Tensor) for t in operands):
            raise UserError(f"export(): an operand of {operator} is not a tensor; expected tensors {_where()}")
        given = [self.node_of(t) for t in operands]
        tracers: list[Tracer] = []
        results: list[Any] = []
        captured: list[tuple[Tensor, Node]] = []
        head: tuple[Node, ...] = ()
        for function in functions:
            tracer = self.inner()
            tracer._outer, tracer._recorder, tracer._grad = self, self._recorder, self._grad
            result = tracer._trace(function, list(zip(operands, given, strict=True)), captured)
            captured, results, tracers = tracer.captured, [*results, result], [*tracers, tracer]
        for tracer in tracers:
            for tensor, outer in captured[len(tracer.captured) :]:
                tracer._capture(tensor, outer)
        if operator is cond_op:
            check_branches(*results)
            made, head = results[0], (self.node_of(args[0]),)
            tail: tuple[tuple[Node, ...], ...] = ((*given, *(n for _, n in captured)),)
        else:
            check_condition(results[0])
            carried = len(args[2])
            check_carried(results[1], operands[:carried])
            made = results[1]
            tail = tuple(given[:carried]), (*given[carried:], *(n for _, n in captured))
        graphs = []
        for kind, tracer in zip(operator.graphs, tracers, strict=True):
            number = 0
            while (name := f"{kind}_{number}") in self.modules:
                number += 1
            tracer.graph.eliminate_dead_code()
            tracer.graph.lint()
            self.modules[name] = GraphModule(tracer.modules, tracer.graph, "GraphModule")
            graphs.append(self.graph.create_node("get_attr", name, (), {}, name))
            self._first = self._first or graphs[0]
        node = self._add(operator, (*head, *graphs, *tail), {}, operator.__name__)
        node.meta["val"] = tuple(_meta(r) for r in made)
        for i, r in enumerate(made):
            self.enter(r, self._add(getitem, (node, i), {}, "getitem"))
        return tuple(made)

    def _trace(self, function: Callable, operands: list[tuple[Tensor, Node]], captured: list) -> Any:
        """Traces a function within a program. Returns what it does."""
        for tensor, outer in operands:
            self.enter(tensor, self.graph.placeholder(outer.name))
        for tensor, outer in captured:
            self._capture(tensor, outer)
        versions = [(t, t._version) for t, _ in operands]
        modes, LOCAL.dispatch_modes = LOCAL.dispatch_modes, (self,)
        DISPATCH.insert(0, self._seen)
        try:
            result = function(*(t for t, _ in operands))
            values = result if isinstance(result, tuple) else (result,)
            for value in values:
                if not isinstance(value, Tensor):
                    raise UserError(f"export(): a branch or loop returns a {type(value).__name__}; expected tensors")
            nodes = [self.node_of(t) for t in values]
        finally:
            DISPATCH.remove(self._seen)
            LOCAL.dispatch_modes = modes
        if any(t._version != version for t, version in versions) or self._captured_is_written():
            raise UserError(f"Higher order ops do not support input mutation {_where()}")
        if any(n.op == "placeholder" for n in nodes):
            raise UserError(
                "Higher order ops do not support aliasing. Replace `return input` with `return input.clone()` to avoid "
                f"aliasing. {_where()}"
            )
        self.graph.output(tuple(nodes) if isinstance(result, tuple) else nodes[0])
        return result

    def _captured_is_written(self) -> bool:
        """Whether an operator of the graph writes to a tensor of the program around it."""
        inputs = {n for _, n in self._nodes.values() if n.op == "placeholder"}
        return any(
            isinstance(n.target, OpOverload) and name_of(n.target)[-1] == "_" and n.args and n.args[0] in inputs
            for n in self.graph.nodes
        )

    def argument(self, value: Any) -> Any:
        """A value as the argument of a node: sizes are lists."""
        if isinstance(value, Tensor):
            return self.node_of(value)
        if value.__class__ is dict:
            return {k: self.argument(v) for k, v in value.items()}
        if value.__class__ is slice:
            return slice(*(self.argument(v) for v in (value.start, value.stop, value.step)))
        if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
            return [self.argument(v) for v in value]
        if value is default_generator:
            return None
        if isinstance(value, Generator):
            raise NotImplementedError(f"export(): a generator of random numbers as an argument {_where()}")
        return value.item() if isinstance(value, np.generic) else value


def name_of(func: Any) -> str:
    """What a node that calls a function is called."""
    packet = getattr(func, "overloadpacket", None)
    return packet.__name__ if packet is not None else func.__name__


def _meta(value: Any) -> Any:
    return described(real_array(value)) if isinstance(value, Tensor) else value


def _frames() -> Iterable[Any]:
    frame: Any = sys._getframe(1)
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith("tensorgrad."):
            yield frame
        elif frame.f_globals.get("__name__") == __name__ and frame.f_code.co_name == "traced_call":
            return
        frame = frame.f_back


def traced_call(function: Callable, args: Any, kwargs: Any) -> Any:
    """Calls the program. What is below it on the stack is not the program's."""
    return function(*args, **kwargs)


def _stack() -> str:
    """The lines of the program that are running, in the form of a traceback."""
    lines = []
    for frame in _frames():
        code = frame.f_code
        text = linecache.getline(code.co_filename, frame.f_lineno).strip()
        lines.append(f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}\n    {text}\n')
    return "".join(reversed(lines))


def _where() -> str:
    for frame in _frames():
        return f"({frame.f_code.co_filename}, line {frame.f_lineno})"
    return ""
