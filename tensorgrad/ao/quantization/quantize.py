"""The workflow: `prepare` a model, show it data or train it, and `convert` it; or `quantize_dynamic` without data."""

from __future__ import annotations

import copy
from typing import Any

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.ao.nn import intrinsic, qat, quantized
from tensorgrad.ao.nn.quantized import dynamic
from tensorgrad.ao.quantization import qconfig as configs
from tensorgrad.ao.quantization.fake_quantize import FakeQuantizeBase
from tensorgrad.ao.quantization.stubs import DeQuantStub, QuantStub, QuantWrapper
from tensorgrad.nn import Module

STATIC: dict[type, Any] = {
    QuantStub: quantized.Quantize, DeQuantStub: quantized.DeQuantize, nn.Linear: quantized.Linear,
    nn.Conv2d: quantized.Conv2d, nn.ReLU6: quantized.ReLU6, quantized.FloatFunctional: quantized.QFunctional,
    nn.Embedding: quantized.Embedding, intrinsic.ConvReLU2d: quantized.ConvReLU2d,
    intrinsic.LinearReLU: quantized.LinearReLU, qat.Linear: quantized.Linear, qat.LinearReLU: quantized.LinearReLU,
    qat.Conv2d: quantized.Conv2d, qat.ConvReLU2d: quantized.ConvReLU2d, qat.ConvBn2d: quantized.Conv2d,
    qat.ConvBnReLU2d: quantized.ConvReLU2d,
}  # fmt: skip
DYNAMIC: dict[type, Any] = {
    nn.Linear: dynamic.Linear, nn.LSTM: dynamic.LSTM, nn.GRU: dynamic.GRU, nn.Embedding: quantized.Embedding,
    intrinsic.LinearReLU: dynamic.LinearReLU,
}  # fmt: skip
QAT: dict[type, Any] = {
    nn.Linear: qat.Linear, nn.Conv2d: qat.Conv2d, intrinsic.LinearReLU: qat.LinearReLU,
    intrinsic.ConvReLU2d: qat.ConvReLU2d, intrinsic.ConvBn2d: qat.ConvBn2d, intrinsic.ConvBnReLU2d: qat.ConvBnReLU2d,
}  # fmt: skip
_NOT_OBSERVED = (DeQuantStub, nn.Identity, nn.Dropout, nn.Embedding)


def get_default_static_quant_module_mappings() -> dict[type, Any]:
    """Returns which module `convert` puts in place of which."""
    return dict(STATIC)


def get_default_dynamic_quant_module_mappings() -> dict[type, Any]:
    """Returns which module `quantize_dynamic` puts in place of which."""
    return dict(DYNAMIC)


def get_default_qat_module_mappings() -> dict[type, Any]:
    """Returns which module `prepare_qat` puts in place of which."""
    return dict(QAT)


def propagate_qconfig_(module: Module, qconfig_dict: Any = None) -> None:
    """Gives each module the `qconfig` of the innermost module around it that has one, or of its name or type."""

    def give(module: Module, name: str, around: Any) -> None:
        known = qconfig_dict or {}
        own = known.get(name, known.get(type(module), getattr(module, "qconfig", around)))
        module.qconfig = own
        for child_name, child in module.named_children():
            give(child, f"{name}.{child_name}".lstrip("."), own)

    give(module, "", None)


def _swapped(module: Module, mapping: dict, make: Any) -> None:
    """Replaces the modules inside one, the innermost first; parts of a fused module stay."""
    for name, child in module.named_children():
        if not isinstance(child, intrinsic._FusedModule) and type(child) not in mapping:
            _swapped(child, mapping, make)
        if type(child) in mapping and getattr(child, "qconfig", None) is not None:
            module._modules[name] = make(child, mapping[type(child)])


def _with_hooks(made: Module, before: Module) -> Module:
    made.train(before.training)
    return made


def _observe(module: Module) -> None:
    """Gives modules that have a result of their own an observer of it."""
    for child in module.children():
        config = getattr(child, "qconfig", None)
        if isinstance(child, quantized.FloatFunctional):
            if config is not None:
                child.activation_post_process = config.activation()
            continue
        if isinstance(child, FakeQuantizeBase):
            continue
        known = type(child) in STATIC and not isinstance(child, _NOT_OBSERVED)
        if known and config is not None and not isinstance(child, nn.ReLU6):
            child.add_module("activation_post_process", config.activation())
            child.register_forward_hook(_observed)
        elif not isinstance(child, intrinsic._FusedModule):
            _observe(child)


def _observed(module: Any, given: Any, result: Any) -> Any:
    return module.activation_post_process(result)


def prepare(model: Module, inplace: bool = False, allow_list: Any = None, **_: Any) -> Module:
    """Returns the model with observers of its results; run it on typical data, and then `convert` it.

    Args:
        model: with a `qconfig`, or modules in it that have one.
        inplace: whether the model itself is changed, not a copy.
    """
    made = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(made)
    _observe(made)
    return made


def prepare_qat(model: Module, mapping: Any = None, inplace: bool = False) -> Module:
    """Returns the model with rounded weights and results; train it, and then `convert` it in eval mode.

    Raises: AssertionError if the model is not in train mode.
    """
    if not model.training:
        raise AssertionError("prepare_qat only works on models in training mode")
    made = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(made)
    _swapped(made, mapping or QAT, lambda child, cls: _with_hooks(cls.from_float(child), child))
    _observe(made)
    return made


def convert(
    module: Module, mapping: Any = None, inplace: bool = False, remove_qconfig: bool = True, **_: Any
) -> Module:
    """Returns the model with quantized modules in place of those that were observed."""
    made = module if inplace else copy.deepcopy(module)
    _swapped(made, mapping or STATIC, lambda child, cls: _with_hooks(cls.from_float(child), child))
    if remove_qconfig:
        for each in made.modules():
            each.__dict__.pop("qconfig", None)
    return made


def quantize(model: Module, run_fn: Any, run_args: Any, mapping: Any = None, inplace: bool = False) -> Module:
    """`prepare`, `run_fn(model, *run_args)` and `convert`."""
    made = prepare(model if inplace else copy.deepcopy(model), inplace=True)
    made.eval()
    run_fn(made, *run_args)
    return convert(made, mapping, inplace=True)


def quantize_dynamic(
    model: Module, qconfig_spec: Any = None, dtype: Any = torch.qint8, mapping: Any = None, inplace: bool = False
) -> Module:
    """Returns the model with weights in 8 bits; inputs are quantized when it runs, with the range that they have.

    Args:
        model: the model.
        qconfig_spec: which modules: a set of types or names, or a dictionary from these to a QConfig. Linear, LSTM and
            GRU if it is None.
        dtype: qint8.
        inplace: whether the model itself is changed, not a copy.

    Raises:
        ValueError: For another dtype.
    """
    if dtype is not torch.qint8 and not isinstance(qconfig_spec, dict):
        raise ValueError(f"quantize_dynamic: expected dtype torch.qint8, got {dtype}")
    if qconfig_spec is None:
        qconfig_spec = {nn.Linear, nn.LSTM, nn.GRU}
    if isinstance(qconfig_spec, set):
        if nn.Embedding in qconfig_spec:
            raise ValueError("Embedding quantization is only supported with float_qparams_weight_only_qconfig.")
        qconfig_spec = dict.fromkeys(qconfig_spec, configs.default_dynamic_qconfig)
    made = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(made, qconfig_spec)
    return convert(made, mapping or DYNAMIC, inplace=True)


def add_quant_dequant(module: Module) -> Module:
    """Returns the modules with a `qconfig` between stubs."""
    for name, child in module.named_children():
        module._modules[name] = add_quant_dequant(child)
    if not module._modules and getattr(module, "qconfig", None) is not None:
        return QuantWrapper(module)
    return module
