"""`nn.summary`: the layers of a model with their output shapes, parameters, multiply-adds and memory.

The model runs once, on the meta device if possible: its parameters and buffers are replaced by shapes, so nothing is
computed and nothing changes. The counts are those of the ops that ran, not estimates from the classes of modules.
"""

from __future__ import annotations

import os
import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorgrad as torch
from tensorgrad.autograd.graph import Node
from tensorgrad.nn.call_hooks import Listener, ignore, listen
from tensorgrad.nn.module import Module
from tensorgrad.nn.parameter import Parameter, is_lazy
from tensorgrad.nn.utils.stateless import _functional_call
from tensorgrad.random import default_generators
from tensorgrad.rows import switches
from tensorgrad.system.per_thread import PerThread
from tensorgrad.tensor import Tensor
from tensorgrad.utils._pytree import tree_leaves, tree_map_only
from tensorgrad.utils.flop_counter import FlopCounterMode
from tensorgrad.viz import picture, summary_page
from tensorgrad.viz.summary_table import Shape, shape_text, text


class Layer:
    """One module in a summary, including everything inside it. Shared parameters are counted in the first module only.

    Attributes:
        path: its name within the model.
        kind: the name of its class.
        depth: its depth within the model, which has depth 0.
        output: the result of its first call, with shapes in place of tensors; None if it was not called.
        calls: the number of its calls.
        used: whether an op used one of its own parameters, in its calls or elsewhere.
        parameters, trainable, shared: numbers of elements; `shared` are those counted in an earlier layer.
        multiply_adds: the number of multiply-adds in all its calls.
        made: the size of the results of its ops, in bytes.
        kept: the size of what the graph keeps for the backward pass, in bytes.
    """

    def __init__(self, path: str, module: Module):
        self.path, self.kind, self.depth = path, type(module).__name__, path.count(".") + bool(path)
        self.has_own = any(p is not None for p in module._parameters.values())
        self.output: Any = None
        self.used = False
        self.calls = self.parameters = self.trainable = self.shared = self.parameter_bytes = self.gradient_bytes = 0
        self.multiply_adds = self.made = self.kept = 0

    def __repr__(self) -> str:
        return f"<Layer {self.path or self.kind}: {self.parameters} parameters, output {shape_text(self.output)}>"


class Summary:
    """The result of `nn.summary`: a table as text (`str` and `repr`) and as HTML (in notebooks).

    Attributes:
        layers: all layers, starting with the model itself.
        device: where the model ran: "meta", the device of the inputs, or None if it did not run.
        input: the shapes of the inputs.
        input_bytes, buffer_bytes: the sizes of the inputs and of the model's buffers.
        parameters, trainable, multiply_adds, made, kept: the totals of the model; see `Layer`.
    """

    def __init__(self, layers: list[Layer], depth: int, device: str | None, inputs: Any, buffer_bytes: int):
        self.layers, self.depth, self.device, self.buffer_bytes = layers, depth, device, buffer_bytes
        self.input = tree_map_only(Tensor, Shape.of, inputs)
        self.input_bytes = sum(t._array.nbytes for t in tree_leaves(inputs) if isinstance(t, Tensor))
        whole = layers[0]
        self.parameters, self.trainable, self.parameter_bytes = whole.parameters, whole.trainable, whole.parameter_bytes
        self.multiply_adds, self.made, self.kept = whole.multiply_adds, whole.made, whole.kept
        self.gradient_bytes = whole.gradient_bytes

    def shown(self) -> list[Layer]:
        """Returns the layers down to the requested depth."""
        return [layer for layer in self.layers if layer.depth <= self.depth]

    def __str__(self) -> str:
        return text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return summary_page.fragment(self)

    def save(self, path: str | os.PathLike) -> Path:
        """Writes the summary as a page (`.html`) or as text (`.txt`).

        Raises:
            ValueError: If the file has another extension.
        """
        kind = Path(path).suffix.lower()
        if kind not in (".html", ".txt"):
            raise ValueError(f"expected a path that ends with .html or .txt, but got {str(path)!r}")
        return picture.write(path, summary_page.page(self) if kind == ".html" else f"{self}\n")

    def show(self) -> None:
        """Opens the page in the browser."""
        picture.open_page(summary_page.page(self))


def summary(
    model: Module,
    input: Any = None,
    *,
    depth: int = 3,
    dtypes: Any = None,
    kwargs: dict[str, Any] | None = None,
) -> Summary:
    """Summarizes the layers of `model`: their outputs, parameters, multiply-adds and memory for a call with `input`.

    The model runs once in its current mode (`train` or `eval`). If possible, it runs on the meta device, where nothing
    is computed. If it needs actual values, or creates tensors on another device, it runs on the inputs instead, with
    copies of its buffers. In both cases its parameters, buffers and attributes, and the random number generators, are
    unchanged afterwards.

    Args:
        model: the model.
        input: a tensor; a shape, such as `(1, 3, 224, 224)`; several of either in a list or tuple; or a dict of
            keyword arguments. Without it, the model does not run and only parameters are counted.
        depth: the depth of the printed table; `layers` always has all layers.
        dtypes: the dtype, or one dtype for each, of inputs given as shapes; by default the default dtype.
        kwargs: further keyword arguments, passed on unchanged.

    Multiply-adds are half of what `utils.flop_counter` counts for matrix products, convolutions, attention and
    recurrent layers. Memory kept for the backward pass is measured on the graph, counting each storage once, without
    parameters and inputs; inside `torch.no_grad()` nothing is kept.

    Returns:
        A `Summary`, which is printed as a table.

    Raises:
        TypeError: If `model` is not a module.
        ValueError: If it has parameters without a shape (lazy modules), or `dtypes` does not match the shapes.

    Errors of the model itself are raised as well.

    >>> from tensorgrad import nn
    >>> model = nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.Flatten(), nn.Linear(3456, 10))
    >>> print(nn.summary(model, (2, 1, 28, 28)))
    Layer          Output          Parameters  Multiply-adds  Kept for backward
    ---------------------------------------------------------------------------
    Sequential     [2, 10]             34,726          242 k           27.0 KiB
    ├─ 0: Conv2d   [2, 6, 24, 24]         156          173 k                  –
    ├─ 1: ReLU     [2, 6, 24, 24]           –              –           27.0 KiB
    ├─ 2: Flatten  [2, 3456]                –              –                  –
    └─ 3: Linear   [2, 10]             34,570         69.1 k                  –
    ---------------------------------------------------------------------------
    Parameters             34,726 (all trainable), 136 KiB
    Input                  [2, 1, 28, 28], 6.12 KiB
    Multiply-adds          242 k
    Results of all ops     54.1 KiB
    Kept for backward      27.0 KiB
    A training step holds  304 KiB (parameters, gradients, buffers, input, kept)
    Measured               by shapes alone
    """
    if not isinstance(model, Module):
        raise TypeError(f"summary(): expected model to be a Module, but got {type(model).__name__}")
    lazy = [name for name, p in model.named_parameters() if is_lazy(p)]
    if lazy:
        raise ValueError(f"summary(): {lazy[0]} has no shape yet; call the model once to initialize its lazy modules")
    layers = {module: Layer(path, module) for path, module in model.named_modules()}
    _count_parameters(layers)
    args, named = _arguments(model, input, dtypes)
    device = None
    if input is not None or kwargs:
        device = _run(model, layers, args, {**named, **(kwargs or {})})
    buffers = sum(b._array.nbytes for b in model.buffers())
    return Summary(list(layers.values()), depth, device, (*args, *named.values()), buffers)


# --- parameters ----------------------------------------------------------------------------------------------------


def _count_parameters(layers: dict[Module, Layer]) -> None:
    """Counts parameters, each in the first layer that has it and in the layers around that one."""
    seen: set[int] = set()
    for module, layer in layers.items():
        inside = {id(p): p for p in module.parameters()}
        layer.shared = sum(p.numel() for key, p in inside.items() if key in seen)
        own = [p for key, p in inside.items() if key not in seen]
        layer.parameters = sum(p.numel() for p in own)
        layer.trainable = sum(p.numel() for p in own if p.requires_grad)
        layer.parameter_bytes = sum(p._array.nbytes for p in own)
        layer.gradient_bytes = sum(p._array.nbytes for p in own if p.requires_grad)
        seen.update(id(p) for p in module._parameters.values() if p is not None)


# --- the run -------------------------------------------------------------------------------------------------------


def _is_shape(value: Any) -> bool:
    return isinstance(value, torch.Size) or (
        isinstance(value, list | tuple) and bool(value) and all(isinstance(n, int) for n in value)
    )


def _arguments(model: Module, input: Any, dtypes: Any) -> tuple[tuple, dict[str, Any]]:
    """Returns the model's positional and keyword arguments; shapes become tensors on the meta device.

    Raises: ValueError if the number of dtypes differs from the number of shapes.
    """
    single = isinstance(input, Tensor) or _is_shape(input) or not isinstance(input, list | tuple | dict)
    values = list(input.values()) if isinstance(input, dict) else [] if input is None else [input] if single else input
    shapes = sum(map(_is_shape, values))
    kinds: Sequence = dtypes if isinstance(dtypes, list | tuple) else [dtypes] * shapes
    if len(kinds) != shapes:
        raise ValueError(f"summary(): expected one dtype for each of the {shapes} shapes, but got {len(kinds)} dtypes")
    following = iter(kinds)
    made = [torch.empty(tuple(v), dtype=next(following), device="meta") if _is_shape(v) else v for v in values]
    return ((), dict(zip(input, made))) if isinstance(input, dict) else (tuple(made), {})


def _run(model: Module, layers: dict[Module, Layer], args: tuple, kwargs: dict) -> str:
    """Runs the model and fills in the layers with the measurements. Returns the device."""
    try:
        state = {name: _on_meta(tensor) for name, tensor in _state(model)}
        _measure(model, layers, state, *tree_map_only(Tensor, _on_meta, (args, kwargs)))
        return "meta"
    except Exception:  # if the model itself is at fault, the error occurs again below
        for layer in layers.values():
            layer.output, layer.used = None, False
            layer.calls = layer.multiply_adds = layer.made = layer.kept = 0
    device = next((t.device for _, t in _state(model)), torch.device("cpu"))
    args, kwargs = tree_map_only(Tensor, lambda t: _zeros_like(t, device) if t.is_meta else t, (args, kwargs))
    state = {name: buffer.clone() for name, buffer in model.named_buffers()}
    _measure(model, layers, state, args, kwargs)
    return str(device)


def _zeros_like(tensor: Tensor, device: Any) -> Tensor:
    return torch.zeros(tuple(tensor.shape), dtype=tensor.dtype, device=device)


def _state(model: Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _on_meta(tensor: Tensor) -> Tensor:
    """Returns a tensor with the same shape, strides and dtype, but without data."""
    made = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="meta")
    if isinstance(tensor, Parameter):
        return Parameter(made, requires_grad=tensor.requires_grad)
    return made.requires_grad_() if tensor.requires_grad else made


@contextmanager
def _unchanged(model: Module) -> Iterator[None]:
    """Restores the modules' attributes and the random number generators at the end of the block."""
    attributes = [(module, dict(module.__dict__)) for module in model.modules()]
    random = default_generators.places()
    try:
        yield
    finally:
        default_generators.go_to(random)
        for module, before in attributes:
            module.__dict__.clear()
            module.__dict__.update(before)


def _measure(model: Module, layers: dict[Module, Layer], state: dict, args: tuple, kwargs: dict) -> None:
    counter = FlopCounterMode(display=False)
    root = counter.mod_tracker.name_of(model)
    not_kept = [*(t for _, t in _state(model)), *state.values(), *tree_leaves((args, kwargs))]
    stands_for = {id(p): id(state.get(name, p)) for name, p in model.named_parameters()}
    watch = _Watch(layers, counter.mod_tracker)
    with _unchanged(model), counter, watch:
        result = _functional_call(model, state, args, kwargs)
        made, kept = watch.bytes([t for t in not_kept if isinstance(t, Tensor)])
    del result
    counts = counter.flop_counts
    for module, layer in layers.items():
        name = f"{root}.{layer.path}" if layer.path else root
        layer.multiply_adds = sum(counts[name].values()) // 2
        layer.made, layer.kept = made[name], kept[name]
        layer.used = any(stands_for[id(p)] in watch.taken for p in module._parameters.values() if p is not None)


class _Result:
    """The result of an op: its start time, its modules, the size of new memory in bytes, and its node."""

    __slots__ = ("modules", "new", "node", "start")

    def __init__(self, start: float, modules: tuple[str, ...], new: int, node: weakref.ref | None):
        self.start, self.modules, self.new, self.node = start, modules, new, node


class _Results(PerThread):
    def __init__(self) -> None:
        self.list: list[_Result] = []


class _Watch(Listener):
    """Records the results of modules and ops."""

    def __init__(self, layers: dict[Module, Layer], tracker: Any):
        self.layers, self.tracker = layers, tracker
        self.results = _Results()
        self.all: list[list[_Result]] = []
        self.taken: set[int] = set()  # ids of the tensors used by ops; parameters stay alive, so theirs are not reused

    def __enter__(self) -> None:
        listen(self)
        switches.observe(self._op, "summary")

    def __exit__(self, *exception: Any) -> None:
        switches.unobserve(self._op, "summary")
        ignore(self)

    def leave(self, module: Module, result: Any) -> None:
        layer = self.layers.get(module)
        if layer is not None:
            layer.calls += 1
            if layer.calls == 1:
                layer.output = tree_map_only(Tensor, Shape.of, result)

    def _op(self, op: Any, args: tuple, result: Any, start: float, seconds: float) -> None:
        for arg in args:
            self.taken.update(map(id, arg if isinstance(arg, list | tuple) else (arg,)))
        tensors = [t for t in (result if isinstance(result, tuple) else (result,)) if isinstance(t, Tensor)]
        new = sum(t._array.nbytes for t in tensors if t._view is None and not any(t is a for a in args))
        nodes = [t._edge[0] for t in tensors if t._edge is not None and isinstance(t._edge[0], Node)]
        if nodes and nodes[0].op is not op:  # its twin ran in its place to record gradients, and was observed itself
            return
        mine = self.results.list
        if not any(mine is known for known in self.all):
            self.all.append(mine)
        while mine and mine[-1].start >= start:  # the op's twin ran inside it: its results are internal
            mine.pop()
        mine.append(_Result(start, self.tracker.stack, new, weakref.ref(nodes[0]) if nodes else None))

    def bytes(self, not_kept: list[Tensor]) -> tuple[dict[str, int], dict[str, int]]:
        """Returns, by module, the size of its ops' results, and of what the graph keeps apart from `not_kept`."""
        made: dict[str, int] = defaultdict(int)
        kept: dict[str, int] = defaultdict(int)
        seen = {id(t._storage) for t in not_kept}
        for result in (r for results in self.all for r in results):
            node = result.node() if result.node is not None else None
            saved = sum(_saved_bytes(node.saved, seen)) if node is not None else 0
            for name in dict.fromkeys(result.modules):
                made[name] += result.new
                kept[name] += saved
        return made, kept


def _saved_bytes(saved: Any, seen: set[int]) -> Iterator[int]:
    """Yields the sizes of the storages that a node keeps, except those already seen."""
    if isinstance(saved, tuple) and len(saved) == 3 and hasattr(saved[1], "nbytes") and hasattr(saved[1], "version"):
        if id(saved[1]) not in seen:
            seen.add(id(saved[1]))
            yield saved[1].nbytes()
    elif isinstance(saved, list | tuple):
        for value in saved:
            yield from _saved_bytes(value, seen)
    elif hasattr(saved, "nbytes") and id(saved) not in seen:  # an array that a kernel keeps for its own gradient
        seen.add(id(saved))
        yield saved.nbytes
