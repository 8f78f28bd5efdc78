"""The workflow on graphs: `prepare_fx` a model, show it data, and `convert_fx` it; `prepare_qat_fx` to train it."""

from __future__ import annotations

import copy
from typing import Any

from tensorgrad import fx
from tensorgrad.ao.nn.intrinsic import _FusedModule
from tensorgrad.ao.quantization.fx import custom_config as custom
from tensorgrad.ao.quantization.fx.convert import convert
from tensorgrad.ao.quantization.fx.fuse import fuse
from tensorgrad.ao.quantization.fx.prepare import STATE, prepare
from tensorgrad.ao.quantization.qconfig_mapping import QConfigMapping
from tensorgrad.nn import Module, Sequential

__all__ = ["QuantizationTracer", "convert_fx", "fuse_fx", "prepare_fx", "prepare_qat_fx"]


class QuantizationTracer(fx.Tracer):
    """Traces a model. Steps are the library's modules, fused ones, and those that the user names."""

    def __init__(self, skipped_module_names: list[str], skipped_module_classes: list[type]):
        super().__init__()
        self.skipped_module_names, self.skipped_module_classes = skipped_module_names, skipped_module_classes

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Returns whether a call of a module is one step."""
        ours = type(m).__module__.startswith(("tensorgrad.nn", "tensorgrad.ao.nn")) and not isinstance(m, Sequential)
        skipped = module_qualified_name in self.skipped_module_names or type(m) in self.skipped_module_classes
        return ours or skipped or isinstance(m, _FusedModule)


def _kept(model: Module, names: list[str]) -> dict[str, Any]:
    return {name: getattr(model, name) for name in names if hasattr(model, name)}


def _with(model: fx.GraphModule, attributes: dict[str, Any]) -> fx.GraphModule:
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


def _native(function: str, backend_config: Any) -> None:
    if backend_config is not None:
        raise NotImplementedError(f"{function}: the only backend is the native one; leave out backend_config")


def fuse_fx(model: Module, fuse_custom_config: Any = None, backend_config: Any = None) -> fx.GraphModule:
    """Returns a graph of a model with modules in a row made one: convolution, batch normalization and relu.

    Args:
        model: in eval mode; its modules are used, and changed: pass a copy to keep it.
        fuse_custom_config: a FuseCustomConfig.

    >>> from tensorgrad.ao.quantization.quantize_fx import fuse_fx
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()).eval()
    >>> [node.name for node in fuse_fx(model).graph.nodes]
    ['input_1', '_0', 'output']
    """
    _native("fuse_fx", backend_config)
    kept = _kept(model, (fuse_custom_config or custom.FuseCustomConfig()).preserved_attributes)
    return _with(fuse(fx.symbolic_trace(model), False), kept)


def _prepared(model: Module, mapping: Any, is_qat: bool, given: custom.PrepareCustomConfig | None) -> fx.GraphModule:
    settings = given or custom.PrepareCustomConfig()
    mapping = QConfigMapping.from_dict(mapping) if isinstance(mapping, dict) else copy.deepcopy(mapping)
    if not isinstance(mapping, QConfigMapping):
        raise AssertionError(f"qconfig_mapping must be a QConfigMapping, got {type(mapping).__name__}")
    kept = _kept(model, settings.preserved_attributes)
    tracer = QuantizationTracer(settings.non_traceable_module_names, settings.non_traceable_module_classes)
    graph = fuse(fx.GraphModule(model, tracer.trace(model)), is_qat)
    return _with(prepare(graph, mapping, is_qat, tracer.node_name_to_scope, settings), kept)


def prepare_fx(
    model: Module, qconfig_mapping: Any, example_inputs: Any, prepare_custom_config: Any = None,
    _equalization_config: Any = None, backend_config: Any = None,
) -> fx.GraphModule:  # fmt: skip
    """Returns a graph of a model with observers; run it on typical data, and then `convert_fx` it.

    Unlike `prepare`, this needs no stubs, no `FloatFunctional` and no list of what is fused: the graph shows where
    tensors become integers and where they end to be.

    Args:
        model: in eval mode; its modules are used, and changed: pass a copy to keep it.
        qconfig_mapping: which parts are quantized, and how: a QConfigMapping.
        example_inputs: inputs of the model, a tuple.
        prepare_custom_config: a PrepareCustomConfig.

    Raises:
        torch.fx.proxy.TraceError: If the model's code depends on values.

    >>> from tensorgrad.ao.quantization import get_default_qconfig_mapping
    >>> from tensorgrad.ao.quantization.quantize_fx import convert_fx, prepare_fx
    >>> model, x = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()).eval(), torch.rand(3, 2)
    >>> ready = prepare_fx(model, get_default_qconfig_mapping(), (x,))
    >>> _ = ready(x)
    >>> [node.name for node in convert_fx(ready).graph.nodes if node.op.startswith("call")]
    ['quantize_per_tensor', '_0', 'dequantize_1']
    """
    _native("prepare_fx", backend_config)
    if _equalization_config is not None:
        raise NotImplementedError("prepare_fx: weights cannot be equalized; leave out _equalization_config")
    return _prepared(model, qconfig_mapping, False, prepare_custom_config)


def prepare_qat_fx(
    model: Module, qconfig_mapping: Any, example_inputs: Any, prepare_custom_config: Any = None,
    backend_config: Any = None,
) -> fx.GraphModule:  # fmt: skip
    """Returns a graph of a model with rounded weights and results; train it, and then `convert_fx` it in eval mode.

    Args:
        model: in train mode; its modules are used, and changed: pass a copy to keep it.
        qconfig_mapping: which parts are quantized, and how: a QConfigMapping.
        example_inputs: inputs of the model, a tuple.
        prepare_custom_config: a PrepareCustomConfig.
    """
    _native("prepare_qat_fx", backend_config)
    return _prepared(model, qconfig_mapping, True, prepare_custom_config)


def convert_fx(
    graph_module: fx.GraphModule, convert_custom_config: Any = None, _remove_qconfig: bool = True,
    qconfig_mapping: Any = None, backend_config: Any = None, keep_original_weights: bool = False,
) -> fx.GraphModule:  # fmt: skip
    """Returns the graph that computes with integers for one that `prepare_fx` or `prepare_qat_fx` made.

    Args:
        graph_module: the graph with observers, which have seen data; it is used up: pass a copy to keep it.
        convert_custom_config: a ConvertCustomConfig.
        qconfig_mapping: as was given to `prepare_fx`, with None for what is to stay in floating point after all.

    Raises:
        ValueError: For a module that is not a GraphModule.
        AssertionError: For another GraphModule, or a mapping that changes a setting to something else than None.
    """
    _native("convert_fx", backend_config)
    if not isinstance(graph_module, fx.GraphModule):
        raise ValueError(
            f"input model must be a GraphModule, Got type:{type(graph_module)} Please make sure to follow the "
            "tutorials."
        )
    settings = convert_custom_config or custom.ConvertCustomConfig()
    kept = _kept(graph_module, settings.preserved_attributes)
    if qconfig_mapping is not None and STATE in graph_module.meta:
        state = graph_module.meta[STATE]
        mapping = QConfigMapping.from_dict(qconfig_mapping) if isinstance(qconfig_mapping, dict) else qconfig_mapping
        state.restrict(graph_module, copy.deepcopy(mapping))
    return _with(convert(graph_module), kept)
