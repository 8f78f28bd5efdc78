"""Modules in a row become one, which is quantized as a whole."""

from __future__ import annotations

import copy
from typing import Any

from tensorgrad import nn
from tensorgrad.ao.nn import intrinsic
from tensorgrad.nn import Module
from tensorgrad.nn.utils.fusion import fuse_conv_bn_eval

_C, _B, _R, _L = nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.Linear


def fused(parts: list[Any], is_qat: bool) -> Module:
    """The module for several in a row. Raises: NotImplementedError for what cannot be fused."""
    kinds = tuple(type(part) for part in parts)
    if len({part.training for part in parts}) > 1:
        raise AssertionError("fuse_modules: the modules must all be in train or all in eval mode")
    if is_qat and kinds in ((_C, _B), (_C, _B, _R)):
        return (intrinsic.ConvBn2d if len(kinds) == 2 else intrinsic.ConvBnReLU2d)(*parts)
    if kinds[:2] == (_C, _B):
        if parts[0].training:
            raise AssertionError("fuse_modules: a batch norm becomes part of a convolution in eval mode only")
        parts = [fuse_conv_bn_eval(*parts[:2]), *parts[2:]]
        kinds = (_C, *kinds[2:])
    if kinds == (_C,):
        return parts[0]
    if kinds in ((_C, _R), (_L, _R)):
        return (intrinsic.ConvReLU2d if kinds[0] is _C else intrinsic.LinearReLU)(*parts)
    raise NotImplementedError(f"Cannot fuse modules: {kinds}")


def _fuse(model: Module, names: list[str], is_qat: bool) -> None:
    parts = [model.get_submodule(name) for name in names]
    made = fused(parts, is_qat)
    for name, module in zip(names, [made, *(nn.Identity() for _ in parts[1:])], strict=True):
        parent, _, last = name.rpartition(".")
        module.train(parts[0].training)
        setattr(model.get_submodule(parent), last, module)


def _all(model: Any, modules_to_fuse: list, inplace: bool, is_qat: bool) -> Any:
    made = model if inplace else copy.deepcopy(model)
    several = bool(modules_to_fuse) and isinstance(modules_to_fuse[0], list | tuple)
    for names in modules_to_fuse if several else [modules_to_fuse]:
        _fuse(made, list(names), is_qat)
    return made


def fuse_modules(model: Module, modules_to_fuse: list, inplace: bool = False, **_: Any) -> Module:
    """Makes modules in a row one: Conv2d, BatchNorm2d and ReLU, Conv2d and BatchNorm2d, Conv2d or Linear and ReLU.

    Args:
        model: the model.
        modules_to_fuse: the names of modules in a row, or a list of such lists.
        inplace: whether the model itself is changed, not a copy.

    Raises:
        NotImplementedError: For other modules.

    >>> from tensorgrad.ao.quantization import fuse_modules
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    >>> [type(module).__name__ for module in fuse_modules(model, ["0", "1"])]
    ['LinearReLU', 'Identity']
    """
    return _all(model, modules_to_fuse, inplace, False)


def fuse_modules_qat(model: Module, modules_to_fuse: list, inplace: bool = False, **_: Any) -> Module:
    """`fuse_modules` for training: a BatchNorm2d stays one, beside the convolution."""
    return _all(model, modules_to_fuse, inplace, True)
