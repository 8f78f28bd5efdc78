"""Which steps of a graph can compute with integers, and what that asks of their inputs and results."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.ao.nn import intrinsic, qat
from tensorgrad.ao.quantization.fake_quantize import FakeQuantizeBase
from tensorgrad.ao.quantization.observer import ObserverBase
from tensorgrad.ao.quantization.qconfig_mapping import FROM_0_TO_1, FROM_MINUS_1_TO_1
from tensorgrad.fx import Node
from tensorgrad.nn import Module

F = nn.functional

LINEAR = {nn.Linear, intrinsic.LinearReLU, qat.Linear, qat.LinearReLU}
CONVOLUTIONS = {nn.Conv2d, intrinsic.ConvReLU2d, intrinsic.ConvBn2d, intrinsic.ConvBnReLU2d, qat.Conv2d,
                qat.ConvReLU2d, qat.ConvBn2d, qat.ConvBnReLU2d}  # fmt: skip
RECURRENT: set[Any] = {nn.LSTM, nn.GRU}
EMBEDDINGS = {nn.Embedding}
BINARY = {operator.add, torch.add, operator.mul, torch.mul, torch.matmul}
RELUS = {nn.ReLU, F.relu, torch.relu}
OF_NUMBERS = {nn.ELU, nn.LeakyReLU, nn.Hardswish, nn.Dropout, nn.BatchNorm2d}  # results have a range of their own
FIXED: dict[Any, tuple[float, int]] = {
    **dict.fromkeys(FROM_0_TO_1, (1 / 256, 0)), **dict.fromkeys(FROM_MINUS_1_TO_1, (2 / 256, 128)),
}  # fmt: skip
# Results have the scale and zero point of the (first) input.
SHARED = {
    nn.AdaptiveAvgPool2d, nn.AvgPool2d, nn.Hardtanh, nn.Identity, nn.MaxPool2d, nn.PixelShuffle, nn.ReLU, nn.ReLU6,
    F.adaptive_avg_pool2d, F.avg_pool2d, F.hardtanh, F.max_pool2d, F.pixel_shuffle, F.relu, F.relu6,
    torch.clamp, torch.cat, torch.flatten, torch.mean, torch.narrow, torch.repeat_interleave, torch.squeeze,
    torch.stack, torch.transpose, torch.unsqueeze, operator.floordiv,
    "contiguous", "clamp", "detach", "mean", "permute", "repeat", "repeat_interleave", "reshape", "relu", "relu_",
    "squeeze", "transpose", "unsqueeze", "view",
}  # fmt: skip


class Step(NamedTuple):
    """One or two nodes that are quantized as one: `first` has the inputs, `last` the result."""

    first: Node
    last: Node
    key: Any  # the type of the module, the function, or the name of the method


def key_of(node: Any, modules: dict[str, Module]) -> Any:
    """The type of the module that a node calls, or its function, or the name of its method; else None."""
    if isinstance(node, Node):
        if node.op == "call_module":
            return type(modules[str(node.target)])
        if node.op in ("call_function", "call_method"):
            return node.target
    return None


def is_observer(node: Any, modules: dict[str, Module]) -> bool:
    """Whether a node calls an observer or a fake quantization."""
    calls = isinstance(node, Node) and node.op == "call_module"
    return calls and isinstance(modules[str(node.target)], ObserverBase | FakeQuantizeBase)


def never_a_tensor(value: Any, modules: dict[str, Module]) -> bool:
    """Whether a value is known not to be a tensor: a size, or what is computed of sizes and constants."""
    if not isinstance(value, Node):
        return True
    if is_observer(value, modules):
        return never_a_tensor(value.args[0], modules)
    if value.op in ("placeholder", "get_attr", "call_module", "output"):
        return False
    if value.op == "call_method" and value.target == "size":
        return True
    if value.target is operator.getitem:
        return never_a_tensor(value.args[0], modules)
    if value.target is getattr and value.args[1] in ("ndim", "shape"):
        return True
    for arg in value.args:
        if isinstance(arg, list):
            if any(isinstance(each, Node) and not never_a_tensor(each, modules) for each in arg):
                return False
        elif not isinstance(arg, int) and not (isinstance(arg, Node) and never_a_tensor(arg, modules)):
            return False  # PyTorch's rule: what is neither an integer nor known counts as a tensor
    return True


def steps(graph: Any, modules: dict[str, Module]) -> dict[Node, Step]:
    """The steps that can compute with integers, by each of their nodes. A relu behind a sum is part of its step."""
    found: dict[Node, Step] = {}
    for node in reversed(list(graph.nodes)):
        if node in found:
            continue
        key = key_of(node, modules)
        before: Any = node.args[0] if node.args else None
        summed = isinstance(before, Node) and before.op == "call_function" and before.target in BINARY - {torch.matmul}
        if key in RELUS and summed and len(before.users) == 1:
            found[node] = found[before] = Step(before, node, before.target)
        elif key in _ALL:
            found[node] = Step(node, node, key)
    return found


_ALL: set = {*LINEAR, *CONVOLUTIONS, *RECURRENT, *EMBEDDINGS, *BINARY, *OF_NUMBERS, *FIXED, *SHARED}


def shares(step: Step, modules: dict[str, Module]) -> bool:
    """Whether the result has the scale of the input."""
    if step.key in BINARY and step.key is not torch.matmul:
        return sum(not never_a_tensor(arg, modules) for arg in step.first.args) == 1
    return step.key in SHARED


def static(observer: Any) -> bool:
    """Whether what an observer saw becomes integers with a scale that is known before the model runs."""
    return observer.dtype is torch.quint8 and not getattr(observer, "is_dynamic", False)


def dynamic(observer: Any) -> bool:
    """Whether a model takes the range of an input when it runs."""
    return observer.dtype is torch.quint8 and bool(getattr(observer, "is_dynamic", False))


def suits(step: Step, qconfig: Any) -> bool:
    """Whether there are kernels of the step for the dtypes of a configuration."""
    activation = qconfig.activation()
    if step.key in EMBEDDINGS:
        return activation.dtype is torch.float32 and qconfig.weight().dtype is torch.quint8
    if step.key in RECURRENT:
        return dynamic(activation) and qconfig.weight().dtype is torch.qint8
    if step.key in LINEAR or step.key in CONVOLUTIONS:
        allowed = static(activation) or (step.key in LINEAR and dynamic(activation))
        return allowed and qconfig.weight().dtype is torch.qint8
    if step.key in FIXED:
        if not static(activation) or "FixedQParams" not in type(activation).__name__:
            return False
        scale, zero_point = activation.calculate_qparams()
        return (float(scale), int(zero_point)) == FIXED[step.key]
    return static(activation)
