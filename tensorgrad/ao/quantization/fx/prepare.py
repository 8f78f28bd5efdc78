"""A graph gets observers: where numbers will become integers, and behind steps that will compute with integers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import tensorgrad as torch
from tensorgrad.ao.nn.intrinsic import _FusedModule
from tensorgrad.ao.quantization.fx import patterns
from tensorgrad.ao.quantization.fx.custom_config import PrepareCustomConfig
from tensorgrad.ao.quantization.fx.patterns import Step
from tensorgrad.ao.quantization.observer import PlaceholderObserver, ReuseInputObserver
from tensorgrad.ao.quantization.qconfig_mapping import QConfigMapping
from tensorgrad.ao.quantization.quantize import QAT
from tensorgrad.fx import GraphModule, Node
from tensorgrad.fx.node import map_arg
from tensorgrad.nn import Module

STATE = "_observed_graph_module_attrs"


@dataclass
class State:
    """What `convert` needs to know of a graph with observers."""

    qconfigs: dict[str, Any]  # of each node, by its name
    scopes: dict[str, tuple[str, Any]]  # the module that each node is in, by its name
    custom: PrepareCustomConfig
    mapping: QConfigMapping
    is_qat: bool
    observed: set[str] = field(default_factory=set)  # names of the nodes that will compute with integers

    def restrict(self, model: GraphModule, mapping: QConfigMapping) -> None:
        """Takes back what a second mapping sets to None. Raises: AssertionError if it says something else than None."""
        settings_of_fused_modules(model, mapping)
        before = {node: module.qconfig for node, module in model.named_modules() if hasattr(module, "qconfig")}
        for name, qconfig in qconfigs_of(model, mapping, self.scopes).items():
            if qconfig is None:
                self.qconfigs[name] = None
            elif repr(self.qconfigs[name]) != repr(qconfig):
                raise AssertionError(
                    f"Expected k {name} to have the same value in prepare and convert QConfigMappings, but "
                    f"{self.qconfigs[name]} was updated to {qconfig}"
                )
        for path, kept in before.items():
            model.get_submodule(path).qconfig = kept


def qconfigs_of(model: GraphModule, mapping: QConfigMapping, scopes: dict[str, tuple[str, Any]]) -> dict[str, Any]:
    """The configuration of each node, by its name. Modules that are called get theirs as an attribute."""
    modules = dict(model.named_modules(remove_duplicate=False))
    calls: dict[tuple[str, Any], int] = defaultdict(int)
    found: dict[str, Any] = {}
    for node in model.graph.nodes:
        qconfig = None
        if node.op == "get_attr":
            path = str(node.target).rpartition(".")[0]
            qconfig = mapping.of(type(modules[path]), path)
        elif node.op in ("call_function", "call_method"):
            path, kind = scopes[node.name]
            qconfig = mapping.of(kind, path, mapping.object_type_qconfigs.get(node.target, mapping.global_qconfig))
            if node.op == "call_function":
                qconfig = _in_order(mapping, calls, path, node.target, qconfig)
        elif node.op == "call_module":
            if patterns.is_observer(node, modules):
                continue
            module, path = modules[str(node.target)], scopes[node.name][0]
            qconfig = mapping.of(type(module), str(node.target))
            qconfig = _in_order(mapping, calls, path.rpartition(".")[0], scopes[node.name][1], qconfig)
            module.qconfig = qconfig
        found[node.name] = qconfig
    return found


def _in_order(mapping: QConfigMapping, calls: dict, path: str, kind: Any, otherwise: Any) -> Any:
    number = calls[path, kind]
    calls[path, kind] += 1
    return mapping.module_name_object_type_order_qconfigs.get((path, kind, number), otherwise)


def settings_of_fused_modules(model: GraphModule, mapping: QConfigMapping) -> None:
    """A module that was fused has the setting of the types of its parts. Raises: LookupError if they differ."""
    known = mapping.object_type_qconfigs
    for module in model.modules():
        if isinstance(module, _FusedModule) and known:
            first, *rest = module._modules.values()
            qconfig = known.get(type(first))
            if any(repr(known.get(type(part))) != repr(qconfig) for part in rest):
                raise LookupError(
                    f"During fusion, we need to specify the same qconfigs for all module types in {type(module)}"
                )
            if qconfig is not None:
                known[type(module)] = qconfig


class _Observing:
    """Puts observers into a graph."""

    def __init__(self, model: GraphModule, state: State):
        self.model, self.graph, self.state = model, model.graph, state
        self.modules = dict(model.named_modules(remove_duplicate=False))
        self.steps = patterns.steps(self.graph, self.modules)
        # What the inputs and the result of each node will be: observers that were never run, or None for no tensors.
        self.wanted: dict[Node, Any] = {}
        self.made: dict[Node, Any] = {}
        inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
        for node in self.graph.nodes:
            number = inputs.index(node) if node in inputs else -1
            quantized = number in state.custom.input_quantized_indexes
            self.wanted[node] = self.made[node] = PlaceholderObserver(torch.quint8 if quantized else torch.float32)
            if node.op.startswith("call") and patterns.never_a_tensor(node, self.modules):
                self.wanted[node] = self.made[node] = None
            elif self.suited(node):
                self.wanted[node] = self.made[node] = self.qconfig(node).activation()

    def qconfig(self, node: Node) -> Any:
        return self.state.qconfigs[node.name]

    def suited(self, node: Node) -> bool:
        step = self.steps.get(node)
        return step is not None and self.qconfig(node) is not None and patterns.suits(step, self.qconfig(node))

    def run(self) -> None:
        for node in list(self.graph.nodes):
            if not self.suited(node) or self.wanted[node] is None:
                continue
            step = self.steps[node]
            self.state.observed |= {step.first.name, step.last.name}
            if node is step.first:
                observed = partial(self._input, node)
                node.args, node.kwargs = map_arg(node.args, observed), map_arg(node.kwargs, observed)
            if node is step.last:
                self._result(step)

    def _observer_after(self, node: Node, observer: Module) -> Node:
        number = 0
        while hasattr(self.model, f"activation_post_process_{number}"):
            number += 1
        name = f"activation_post_process_{number}"
        self.model.add_module(name, observer)
        self.modules[name] = observer
        with self.graph.inserting_after(node):
            return self.graph.create_node("call_module", name, (node,), {})

    def _input(self, node: Node, arg: Node) -> Node:
        """What a node takes instead of an argument: its observer, if the argument is to become integers."""
        wanted = self.qconfig(node).activation()
        observed = arg.args[0] if patterns.is_observer(arg, self.modules) else arg
        made = self.made[observed]
        if patterns.dynamic(wanted):
            needed = arg is node.args[0]
        else:
            floating = made is not None and made.dtype is torch.float32
            needed = patterns.static(wanted) and floating and not isinstance(wanted, ReuseInputObserver)
        if not needed:
            return arg
        for user in arg.users:
            if patterns.is_observer(user, self.modules):
                other = self.modules[str(user.target)]
                if type(other) is type(wanted) and other.dtype is wanted.dtype:
                    return user
        return self._observer_after(arg, wanted)

    def _result(self, step: Step) -> None:
        node, observer = step.last, self.qconfig(step.last).activation()
        if not patterns.static(observer):
            return
        users = list(node.users)
        after = self._observer_after(node, observer)
        for user in users:
            user.replace_input_with(node, after)
        given = node.args[0] if node.args else None
        outside = isinstance(given, Node) and given.op == "placeholder"
        shared = patterns.shares(step, self.modules) and not outside
        if (shared or isinstance(observer, ReuseInputObserver)) and not self._share(step, after):
            after.replace_all_uses_with(node)
            self.graph.erase_node(after)

    def _source(self, value: Any) -> Node | None:
        """The observer that a value comes from."""
        while not patterns.is_observer(value, self.modules):
            if not isinstance(value, Node) or value.op == "placeholder":
                return None
            value = next((arg for arg in value.args if isinstance(arg, Node)), None)
        return value

    def _share(self, step: Step, after: Node) -> bool:
        """Gives the inputs and the result of a step one observer, that of its first input, if it has one."""
        given = next((arg for arg in step.last.args if isinstance(arg, Node | list | tuple)), None)
        inputs = list(given) if isinstance(given, list | tuple) else [given]
        sources = [self._source(each) for each in inputs]
        if not sources or any(source is None for source in sources):
            return False
        observer = self.modules[str(sources[0].target)]  # type: ignore[union-attr]
        for each in (*sources[1:], after):
            self.modules[str(each.target)] = observer  # type: ignore[union-attr]
            self.model._modules[str(each.target)] = observer  # type: ignore[union-attr]
        return True


def prepare(
    model: GraphModule, mapping: QConfigMapping, is_qat: bool, scopes: dict, custom: PrepareCustomConfig
) -> GraphModule:
    """Returns a graph with observers; with rounded weights, if it is to be trained."""
    settings_of_fused_modules(model, mapping)
    state = State(qconfigs_of(model, mapping, scopes), scopes, custom, mapping, is_qat)
    if is_qat:
        for node in model.graph.nodes:
            module = model.get_submodule(node.target) if node.op == "call_module" else None
            if type(module) in QAT and state.qconfigs[node.name] is not None:
                made = QAT[type(module)].from_float(module)
                model.set_submodule(node.target, made.train(module.training))  # type: ignore[union-attr]
    _Observing(model, state).run()
    made = GraphModule(model, model.graph)
    made.meta[STATE] = state
    return made
