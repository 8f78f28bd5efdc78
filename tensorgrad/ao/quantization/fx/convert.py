"""A graph with observers becomes one that computes with integers.

First, every observer becomes a pair: quantize, and dequantize again. Such a graph computes in floating point what
integers stand for. Then each step between a dequantization and a quantization becomes one that takes integers, and the
pair around it goes. What is left over (a result that leaves the graph, a step without such a kernel) stays.
"""

from __future__ import annotations

import operator
from typing import Any

import tensorgrad as torch
from tensorgrad.ao.nn.quantized import arithmetic
from tensorgrad.ao.nn.quantized import modules as quantized
from tensorgrad.ao.quantization.fx import patterns
from tensorgrad.ao.quantization.fx.prepare import STATE, State
from tensorgrad.ao.quantization.quantize import DYNAMIC, STATIC
from tensorgrad.fx import GraphModule, Node
from tensorgrad.nn import Module

_SUMS: dict[Any, Any] = {operator.add: arithmetic.add, torch.add: arithmetic.add, operator.mul: arithmetic.mul,
         torch.mul: arithmetic.mul, torch.matmul: arithmetic.matmul}  # fmt: skip
_SUMS_AND_RELU: dict[Any, Any] = {arithmetic.add: arithmetic.add_relu, arithmetic.mul: arithmetic.mul_relu}


def _dequantizes(node: Any) -> bool:
    return isinstance(node, Node) and node.op == "call_method" and node.target == "dequantize"


class _Converting:
    """Changes a graph, and the modules that it calls."""

    def __init__(self, model: GraphModule, state: State):
        self.model, self.graph, self.state = model, model.graph, state
        self.modules = dict(model.named_modules(remove_duplicate=False))

    def key(self, node: Any) -> Any:
        return patterns.key_of(node, self.modules)

    def replace(self, node: Node, module: Module) -> None:
        before = self.modules[str(node.target)]
        self.model.set_submodule(str(node.target), module.train(before.training))
        self.modules[str(node.target)] = module

    # --- pairs ---------------------------------------------------------------------------------------------------

    def pairs(self) -> None:
        inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
        for number in self.state.custom.input_quantized_indexes:
            with self.graph.inserting_after(inputs[number]):
                after = self.graph.call_method("dequantize", (inputs[number],))
            inputs[number].replace_all_uses_with(after)
            after.args = (inputs[number],)
        for node in list(self.graph.nodes):
            if patterns.is_observer(node, self.modules):
                self._pair(node)

    def _pair(self, node: Node) -> None:
        observer, value = self.modules[str(node.target)], node.args[0]
        around = [value, *node.users]
        wanted = any(self.state.qconfigs.get(each.name) is not None for each in around)
        made: Any = value
        if wanted and patterns.static(observer):
            scale, zero_point = observer.calculate_qparams()
            prefix = self._prefix(node)
            with self.graph.inserting_before(node):
                kept = [
                    self._kept(f"{prefix}_scale_", float(scale)),
                    self._kept(f"{prefix}_zero_point_", int(zero_point)),
                ]
                made = self.graph.call_function(torch.quantize_per_tensor, (value, *kept, observer.dtype))
                made = self.graph.call_method("dequantize", (made,))
        node.replace_all_uses_with(made)
        self.graph.erase_node(node)

    def _prefix(self, node: Node) -> str:
        """What the scale is named after: the step whose result it is of, or else the first that has it as an input."""
        named: Any = node.args[0]
        if self.state.qconfigs.get(named.name, ...) is None:
            named = next(iter(node.users), None)
            return f"{self._path(named)}_input"
        return self._path(named)

    def _path(self, node: Any) -> str:
        return self.state.scopes[node.name][0].replace(".", "_") if node and node.name in self.state.scopes else ""

    def _kept(self, prefix: str, value: float) -> Node:
        number = 0
        while hasattr(self.model, f"{prefix}{number}"):
            number += 1
        self.model.register_buffer(f"{prefix}{number}", torch.tensor(value))
        return self.graph.create_node("get_attr", f"{prefix}{number}")

    # --- steps on integers ---------------------------------------------------------------------------------------

    def lower(self) -> None:
        for node in list(self.graph.nodes):
            if node.op == "call_module" and self._observed(node):
                self._weights(node)
        for lower in (self._static, self._sum, self._special):
            for node in list(self.graph.nodes):
                if node.op == "call_function" and node.target is torch.quantize_per_tensor:
                    lower(node)
        for node in self.graph.nodes:
            asks = node.op == "call_method" and node.target == "size"
            if (asks or (node.target is getattr and node.args[1] == "shape")) and _dequantizes(node.args[0]):
                node.args = (node.args[0].args[0], *node.args[1:])

    def _observed(self, node: Node) -> bool:
        return node.name in self.state.observed and self.state.qconfigs[node.name] is not None

    def _weights(self, node: Node) -> None:
        """Modules whose results stay in floating point: their weights are integers, and perhaps their inputs."""
        key, module = self.key(node), self.modules[str(node.target)]
        of_weights = key in patterns.EMBEDDINGS | patterns.RECURRENT
        qconfig = self.state.qconfigs[node.name]
        if of_weights or (key in DYNAMIC and patterns.dynamic(qconfig.activation())):
            module.qconfig = qconfig
            self.replace(node, DYNAMIC[key].from_float(module))

    def _parameters(self, node: Node) -> tuple[float, int]:
        """The scale and the zero point that a quantization has."""
        scale, zero_point = (getattr(self.model, str(arg.target)) for arg in node.args[1:3])
        return float(scale), int(zero_point)

    def _drop(self, node: Node, by: Node) -> None:
        """Removes a quantization; its users take another node."""
        _, *kept, _ = node.args
        node.replace_all_uses_with(by)
        for each in (node, *kept):
            if not each.users:
                self.graph.erase_node(each)

    def _static(self, node: Node) -> None:
        """A module with weights between a dequantization and a quantization."""
        step: Any = node.args[0]
        key = self.key(step)
        if key not in patterns.LINEAR | patterns.CONVOLUTIONS or not self._observed(step):
            return
        if not _dequantizes(step.args[0]):
            return
        module = self.modules[str(step.target)]
        module.qconfig = self.state.qconfigs[step.name]
        made = STATIC[key].from_float(module)
        made.scale, made.zero_point = self._parameters(node)
        self.replace(step, made)
        step.args = (step.args[0].args[0], *step.args[1:])
        self._drop(node, step)

    def _sum(self, node: Node) -> None:
        """A sum or product, perhaps with a relu behind it, between dequantizations and a quantization."""
        last: Any = node.args[0]
        relu = self.key(last) in patterns.RELUS
        step = last.args[0] if relu else last
        if not isinstance(step, Node) or step.op != "call_function" or step.target not in _SUMS:
            return
        tensors = [arg for arg in step.args[:2] if isinstance(arg, Node)]
        if not tensors or not all(map(_dequantizes, tensors)) or self.state.qconfigs[step.name] is None:
            return
        function = _SUMS[step.target]
        function = _SUMS_AND_RELU.get(function, function) if relu else function
        args = [arg.args[0] if isinstance(arg, Node) else arg for arg in step.args]
        if len(tensors) == 2:
            args += node.args[1:3]
        with self.graph.inserting_after(node):
            made = self.graph.call_function(function, tuple(args))
        node.replace_all_uses_with(made)
        self.graph.erase_node(node)
        if relu:
            self.graph.erase_node(last)
        self.graph.erase_node(step)

    def _special(self, node: Node) -> None:
        """A step whose own code takes quantized tensors, or whose module has a counterpart that does."""
        step: Any = node.args[0]
        key = self.key(step)
        of_numbers = key in patterns.OF_NUMBERS or key is torch.nn.Softmax
        if not of_numbers and key not in patterns.FIXED and key not in patterns.SHARED:
            return
        first = step.args[0] if step.args else next(iter(step.kwargs.values()))
        given = list(first) if isinstance(first, list | tuple) else [first]
        if not given or not all(map(_dequantizes, given)):
            return
        if of_numbers:
            made = quantized.OfNumbers.from_float(self.modules[str(step.target)], *self._parameters(node))
            self.replace(step, made)
        for each in given:
            step.replace_input_with(each, each.args[0])
        self._drop(node, step)

    def outputs(self) -> None:
        """Results that were asked for as quantized tensors are not dequantized."""
        output = next(node for node in self.graph.nodes if node.op == "output")
        result = output.args[0]
        several = isinstance(result, list | tuple)
        for number in self.state.custom.output_quantized_indexes:
            each = result[number] if several else result
            if _dequantizes(each):
                output.replace_input_with(each, each.args[0])


def convert(model: GraphModule) -> GraphModule:
    """Returns the graph on integers for one with observers. Raises: AssertionError for another."""
    state = model.meta.get(STATE)
    if state is None:
        raise AssertionError("incoming model must be produced by prepare_fx")
    work = _Converting(model, state)
    work.pairs()
    work.outputs()
    work.graph.eliminate_dead_code()
    work.lower()
    work.graph.eliminate_dead_code()
    work.graph.lint()
    made = GraphModule(model, model.graph)
    for module in made.modules():
        module.__dict__.pop("qconfig", None)
    made.delete_all_unused_submodules()
    return made
