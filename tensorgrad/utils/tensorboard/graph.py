"""The graph of a model for TensorBoard: the ops of one call, in boxes for the modules they ran in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from tensorgrad.autograd.modes import no_grad
from tensorgrad.nn.call_hooks import Listener, ignore, listen
from tensorgrad.nn.module import Module
from tensorgrad.rows import switches
from tensorgrad.tensor import Tensor
from tensorgrad.utils.tensorboard.messages import messages


def graph(model: Any, args: Any, verbose: bool = False) -> tuple[Any, Any]:
    """Records one call `model(*args)` in evaluation mode. Returns the messages `GraphDef` and `RunMetadata`.

    `args` is a tuple of arguments or a single argument.
    """
    traced = _Call(model)
    with traced:
        arguments = args if isinstance(args, tuple) else (args,)
        traced.inputs(arguments)
        traced.outputs(model(*arguments))
    types = messages()
    made = types.GraphDef(node=traced.nodes, versions=types.VersionDef(producer=22))
    steps = types.StepStats(dev_stats=[types.DeviceStepStats(device="/device:CPU:0", node_stats=traced.times)])
    if verbose:
        print(made)
    return made, types.RunMetadata(step_stats=steps)


class _Call(Listener):
    """A context in which every op of this thread becomes a node, named by the modules around it."""

    def __init__(self, model: Any):
        self.model, self.thread = model, threading.get_ident()
        self.nodes: list = []
        self.times: list = []
        self._sources: dict[int, str] = {}  # id of a tensor -> the node that it comes from
        self._memory: dict[int, str] = {}  # id of a storage -> the same, for views that were not made by an op
        self._alive: list = []  # keeps objects alive, so that their ids are not reused
        self._taken: dict[str, int] = {}
        self._scopes: list[str] = []
        self._paths = {id(module): name for name, module in model.named_modules()} if _is_module(model) else {}
        names = [*model.named_parameters(), *model.named_buffers()] if _is_module(model) else []
        self._named: dict[int, tuple[str, Any]] = {id(tensor): (name, tensor) for name, tensor in names}

    def __enter__(self) -> _Call:
        self._modes = [(m, m.training) for m in self.model.modules()] if _is_module(self.model) else []
        for module, _ in self._modes:
            module.training = False
        self._quiet = no_grad()
        self._quiet.__enter__()
        switches.observe(self._observe, "add_graph")
        listen(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        ignore(self)
        switches.unobserve(self._observe, "add_graph")
        self._quiet.__exit__(*exception)
        for module, training in self._modes:
            module.training = training

    # --- scopes ---

    def enter(self, module: Module) -> None:
        """Enters the module's box, named by its class and the attribute it is stored in."""
        if threading.get_ident() == self.thread:
            kind, path = type(module).__name__, self._paths.get(id(module), "")
            outer = f"{self._scopes[-1]}/" if self._scopes else ""
            self._scopes.append(f"{outer}{kind}[{path.rpartition('.')[2]}]" if path else f"{outer}{kind}")

    def leave(self, module: Module, result: Any) -> None:
        """Returns to the enclosing box."""
        if threading.get_ident() == self.thread:
            self._scopes.pop()

    # --- nodes ---

    def inputs(self, args: tuple) -> None:
        """Adds nodes for the model's arguments."""
        for i, tensor in enumerate(_tensors(args)):
            self._made(tensor, self._add(f"input/input.{i}", "IO Node", [], [tensor]))

    def outputs(self, result: Any) -> None:
        """Adds nodes for the model's results."""
        for i, tensor in enumerate(_tensors(result)):
            self._add(f"output/output.{i}", "IO Node", [self._source(tensor)], [tensor])

    def _observe(self, op: Any, args: Any, result: Any, start: float, seconds: float) -> None:
        if threading.get_ident() != self.thread:
            return
        inputs = [self._source(tensor) for tensor in _tensors(args)]
        results = list(_tensors(result))
        name = self._add("/".join([*self._scopes[-1:], op.name]), op.name, inputs, results)
        for tensor in results:
            self._made(tensor, name)
        types, begin = messages(), self.times[0].all_start_micros if self.times else int(start * 1e6)
        begin = max(begin, int(start * 1e6))
        self.times.append(types.NodeExecStats(
            node_name=name, all_start_micros=begin, all_end_rel_micros=max(1, int(seconds * 1e6))
        ))  # fmt: skip

    def _made(self, tensor: Tensor, name: str) -> None:
        storage = tensor._storage
        self._sources[id(tensor)] = self._memory[id(storage)] = name
        self._alive += [tensor, storage]

    def _source(self, tensor: Tensor) -> str:
        """Returns the node that a tensor comes from; parameters and constants get one on first use."""
        found = self._sources.get(id(tensor)) or self._memory.get(id(tensor._storage))
        if found is None:
            path = self._named[id(tensor)][0] if id(tensor) in self._named else ""
            scope = "/".join([*self._scopes[-1:], path.rpartition(".")[2] or "constant"])
            found = self._add(scope, "Parameter" if path else "Constant", [], [tensor], path)
            self._made(tensor, found)
        return found

    def _add(self, name: str, op: str, inputs: list[str], results: list[Tensor], about: str = "") -> str:
        """Adds a node. Returns its unique name."""
        count = self._taken[name] = self._taken.get(name, -1) + 1
        name = f"{name}_{count}" if count else name
        types = messages()
        shapes = [
            types.TensorShapeProto(dim=[types.TensorShapeProto.Dim(size=n) for n in tensor.shape]) for tensor in results
        ]
        attributes = {"_output_shapes": types.AttrValue(list=types.AttrValue.ListValue(shape=shapes))}
        about = " ".join([*([about] if about else []), *(str(tensor.dtype) for tensor in results)])
        attributes["attr"] = types.AttrValue(s=about.encode())
        device = f"/device:{results[0].device.type.upper()}:{results[0].device.index or 0}" if results else ""
        self.nodes.append(types.NodeDef(name=name, op=op, input=inputs, attr=attributes, device=device))
        return name


def _is_module(model: Any) -> bool:
    return isinstance(model, Module)


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yields the tensors in nested lists, tuples and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
