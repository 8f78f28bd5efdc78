"""`torch.backends.cudnn`: whether and how convolutions on GPUs use cuDNN.

The settings (`enabled`, `benchmark`, `benchmark_limit`, `deterministic`, `allow_tf32`) are attributes of this module.
"""

from __future__ import annotations

import contextlib
import sys
import types

from tensorgrad.kernels.cuda.runtime import libraries as _libraries
from tensorgrad.kernels.cuda.runtime.switches import Cudnn as _Cudnn
from tensorgrad.kernels.cuda.runtime.switches import cudnn as _switches

enabled: bool
benchmark: bool
benchmark_limit: int
deterministic: bool
allow_tf32: bool


class _Module(types.ModuleType):
    """The class of this module, whose settings are stored where the kernels read them."""

    def __getattr__(self, name):
        if name in _Cudnn.__slots__:
            return getattr(_switches, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __setattr__(self, name, value):
        if name in _Cudnn.__slots__:
            setattr(_switches, name, value)
        else:
            super().__setattr__(name, value)

    def __dir__(self):
        return [*super().__dir__(), *_Cudnn.__slots__]


sys.modules[__name__].__class__ = _Module


def is_available() -> bool:
    """Returns whether cuDNN is found. Without it convolutions on GPUs are computed as matrix products.

    >>> torch.backends.cudnn.is_available() in (True, False)
    True
    """
    return _libraries.present("cudnn")


def version() -> int | None:
    """Returns the version of cuDNN (91900 is 9.19.0), or None if it is not found.

    >>> (torch.backends.cudnn.version() is None) == (not torch.backends.cudnn.is_available())
    True
    """
    if not is_available():
        return None
    from tensorgrad.kernels.cuda.runtime import cudnn

    return cudnn.version()


def is_acceptable(tensor) -> bool:
    """Returns whether cuDNN can be used: the tensor is floating-point and on a GPU, and cuDNN is found and enabled.

    >>> torch.backends.cudnn.is_acceptable(torch.ones(1))
    False
    """
    accepted = ("float16", "float32", "float64")  # PyTorch's list, though bfloat16 convolutions are supported too
    return _switches.enabled and tensor.is_cuda and tensor.dtype.numpy.name in accepted and is_available()


def set_flags(_enabled=None, _benchmark=None, _benchmark_limit=None, _deterministic=None, _allow_tf32=None):
    """Changes the given settings, and returns the previous values of all settings.

    >>> torch.backends.cudnn.set_flags(_benchmark=False)
    (True, False, 10, False, True)
    """
    names = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32")
    before = tuple(getattr(_switches, name) for name in names)
    given = (_enabled, _benchmark, _benchmark_limit, _deterministic, _allow_tf32)
    for name, value in zip(names, given, strict=True):
        if value is not None:
            setattr(_switches, name, value)
    return before


@contextlib.contextmanager
def flags(enabled=False, benchmark=False, benchmark_limit=10, deterministic=False, allow_tf32=True):
    """A context manager that changes the settings temporarily.

    >>> with torch.backends.cudnn.flags(benchmark=True):
    ...     torch.backends.cudnn.benchmark
    True
    """
    before = set_flags(enabled, benchmark, benchmark_limit, deterministic, allow_tf32)
    try:
        yield
    finally:
        set_flags(*before)
