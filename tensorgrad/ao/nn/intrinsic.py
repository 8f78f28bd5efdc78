"""Several modules that are quantized as one: what `fuse_modules` makes."""

from __future__ import annotations

from tensorgrad.nn import Module, Sequential


class _FusedModule(Sequential):
    """Modules in a row that are quantized as one."""


class ConvReLU2d(_FusedModule):
    """A Conv2d and a ReLU."""

    def __init__(self, conv: Module, relu: Module):
        super().__init__(conv, relu)


class LinearReLU(_FusedModule):
    """A Linear and a ReLU."""

    def __init__(self, linear: Module, relu: Module):
        super().__init__(linear, relu)


class ConvBn2d(_FusedModule):
    """A Conv2d and a BatchNorm2d, for training."""

    def __init__(self, conv: Module, bn: Module):
        super().__init__(conv, bn)


class ConvBnReLU2d(_FusedModule):
    """A Conv2d, a BatchNorm2d and a ReLU, for training."""

    def __init__(self, conv: Module, bn: Module, relu: Module):
        super().__init__(conv, bn, relu)
