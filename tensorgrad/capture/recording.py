"""`record`: runs a function, and returns what it did."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

from tensorgrad.capture.nodes import Effect
from tensorgrad.capture.recorder import Recorder
from tensorgrad.capture.values import mapped, tensors
from tensorgrad.fx import GraphModule, Node
from tensorgrad.nn import Module
from tensorgrad.tensor import Tensor


class Recording:
    """What a function did when it was recorded.

    Attributes:
        graph_module: an `fx.GraphModule` of the program on arrays. It takes the tensors among the arguments, in order.
        result: what the function returned.
        lifted: the tensors from outside that it used, and other objects, by their names in the graph.
        effects: writes, gradients, random draws, reads of values (a list of `Effect`).

    Call it to run the graph on other tensors of the same shapes, strides and dtypes.

    >>> from tensorgrad.capture import record
    >>> w = torch.tensor([2.0, 3.0])
    >>> recording = record(lambda x: (x * w).sum(), torch.tensor([1.0, 2.0]))
    >>> recording.result
    tensor(8.)
    >>> print(recording.graph_module.code.strip())
    def forward(self, x):
        _tensor = self._tensor
        mul = torch.mul(x, _tensor);  x = _tensor = None
        sum_1 = torch.sum(mul);  mul = None
        return sum_1
    >>> recording(torch.tensor([10.0, 20.0]))
    tensor(80.)
    """

    def __init__(
        self, module: GraphModule, result: Any, lifted: dict[str, Any], effects: list[Effect], inputs: Any
    ) -> None:
        self.graph_module, self.result, self.lifted, self.effects = module, result, lifted, effects
        self._inputs = inputs
        self._described = [_metadata(t) for t in tensors(inputs)]
        self._same = _same(list(tensors(inputs)))
        self._plain = mapped(inputs, lambda t: None)

    @property
    def graph(self) -> Any:
        """The graph."""
        return self.graph_module.graph

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the graph.

        Raises:
            ValueError: If the arguments differ from those that were recorded in more than the values of tensors.
        """
        given = list(tensors((args, kwargs)))
        if mapped((args, kwargs), lambda t: None) != self._plain:
            raise ValueError("the program was recorded with other arguments that are not tensors")
        found = [_metadata(t) for t in given]
        if found != self._described or _same(given) != self._same:
            raise ValueError(f"the program was recorded for tensors {self._described}, but got {found}")
        return self.graph_module(*given)

    def __str__(self) -> str:
        lines = [self.graph_module.code.strip(), "", "effects:"]
        lines += [f"    {e.kind}: {e.detail}" for e in self.effects] or ["    none"]
        lines += ["", "from outside:"]
        lines += [f"    {name}: {_shown(value)}" for name, value in self.lifted.items()] or ["    nothing"]
        return "\n".join(lines)


def record(
    function: Callable,
    *args: Any,
    on_read: str = "raise",
    on_node: Callable[[Node], None] | None = None,
    **kwargs: Any,
) -> Recording:
    """Runs a function once, and records what it does on arrays: ops, writes, gradients, random draws.

    Args:
        function: the function, module or method.
        args, kwargs: its arguments. The tensors among them become the inputs of the graph, all else stays as it is.
        on_read: what happens if the program reads a value (`x.item()`, `bool(x)`, `x.tolist()`, `x.numpy()`):
            "raise" an error, or "note" it, and have the graph check that the value is the same.
        on_node: called with each node that calls a function, when the program has just done that.

    Raises:
        ReadError: If the program reads a value, unless reads are noted.
        NotImplementedError: If it does what is not recorded: sparse tensors, hooks on saved tensors.
        RuntimeError: If it writes to memory in a way that is not seen.

    >>> from tensorgrad.capture import record
    >>> x = torch.ones(2, requires_grad=True)
    >>> recording = record(lambda x: (x * x).sum().backward(), x)
    >>> [effect.kind for effect in recording.effects], x.grad
    (['write', 'read', 'grad'], tensor([2., 2.]))
    """
    recorder = Recorder(on_read)
    recorder.on_node = on_node
    for module in _modules_of(function, (args, kwargs)):
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            recorder.names.setdefault(id(tensor), name)
            recorder.watch(tensor)
    inputs = list(tensors((args, kwargs)))
    with recorder:
        for name, tensor in zip(_names(function, args, kwargs), inputs, strict=True):
            recorder.placeholder(name, tensor)
        result = function(*args, **kwargs)
        recorder.settle_gradients()
        recorder.check_versions()

        def call(target: Any, *given: Any, **named: Any) -> Node:
            return recorder.call(target, tuple(recorder.argument(v) if not _is_node(v) else v for v in given), named)

        output = mapped(result, recorder.returned, call)
        for i, tensor in enumerate(tensors(result)):
            for j, other in enumerate(inputs):
                if tensor is other:
                    recorder.note("return", recorder.node_of(tensor), f"result {i} is argument {j}")
        recorder.graph.output(output)
        recorder.finish()
    # What a loop changes is needed though no result depends on it: the loop may end by it.
    recorder.graph.eliminate_dead_code(lambda node: node.is_impure() or node.meta.get("loop", False))
    used = {str(n.target) for n in recorder.graph.nodes if n.op == "get_attr"}
    lifted = {name: value for name, value in recorder.attributes.items() if name in used}
    module = GraphModule(lifted, recorder.graph, "Recorded")
    return Recording(module, result, lifted, recorder.effects, (args, kwargs))


def _is_node(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_is_node(v) for v in value)
    return isinstance(value, Node)


def _metadata(tensor: Tensor) -> tuple:
    return tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad


def _same(given: list[Tensor]) -> list[int]:
    """For each tensor, the first that is the same object or shares its memory."""
    return [next(j for j, u in enumerate(given) if u is t or u._storage is t._storage) for t in given]


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{type(value).__name__} {list(value.shape)} {value.dtype}"
    return type(value).__name__


def _names(function: Any, args: tuple, kwargs: dict) -> Iterator[str]:
    """A name for each tensor among the arguments."""
    try:
        signature = inspect.signature(function.forward if isinstance(function, Module) else function)
        bound = signature.bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        bound = {}
    names: dict[int, str] = {}
    for name, value in bound.items():
        found = list(tensors(value))
        for i, t in enumerate(found):
            names.setdefault(id(t), name if len(found) == 1 else f"{name}_{i}")
    for i, t in enumerate(tensors((args, kwargs))):
        yield names.get(id(t), f"arg{i}")


def _modules_of(function: Any, values: Any) -> list[Module]:
    """The modules that a call can be seen to use: the function itself, its object, its closure, and its arguments."""
    found: dict[int, Module] = {}

    def look(value: Any, depth: int = 0) -> None:
        if isinstance(value, Module):
            found.setdefault(id(value), value)
        elif isinstance(value, types.MethodType):
            look(value.__self__, depth)
            look(value.__func__, depth)
        elif isinstance(value, types.FunctionType) and depth < 3:
            for cell in value.__closure__ or ():
                try:
                    look(cell.cell_contents, depth + 1)
                except ValueError:  # an empty cell
                    continue
            for name in value.__code__.co_names:
                if name in value.__globals__ and isinstance(value.__globals__[name], Module | types.FunctionType):
                    look(value.__globals__[name], depth + 1)
        elif isinstance(value, list | tuple) and depth < 3:
            for v in value:
                look(v, depth + 1)
        elif isinstance(value, dict) and depth < 3:
            for v in value.values():
                look(v, depth + 1)

    look(function)
    look(values)
    return list(found.values())
