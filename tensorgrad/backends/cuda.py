"""`torch.backends.cuda`: settings of matrix products and attention on GPUs."""

from __future__ import annotations

import contextlib
from importlib.util import find_spec

from tensorgrad.kernels.cuda.runtime.switches import matmul as matmul

_attention = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


def is_built() -> bool:
    """Returns whether GPU support is installed: it needs CuPy.

    >>> torch.backends.cuda.is_built() in (True, False)
    True
    """
    return find_spec("cupy") is not None


def flash_sdp_enabled() -> bool:
    """Returns the value last passed to `enable_flash_sdp`.

    >>> torch.backends.cuda.flash_sdp_enabled()
    True
    """
    return _attention["flash"]


def mem_efficient_sdp_enabled() -> bool:
    """Returns the value last passed to `enable_mem_efficient_sdp`.

    >>> torch.backends.cuda.mem_efficient_sdp_enabled()
    True
    """
    return _attention["mem_efficient"]


def math_sdp_enabled() -> bool:
    """Returns the value last passed to `enable_math_sdp`.

    >>> torch.backends.cuda.math_sdp_enabled()
    True
    """
    return _attention["math"]


def cudnn_sdp_enabled() -> bool:
    """Returns the value last passed to `enable_cudnn_sdp`.

    >>> torch.backends.cuda.cudnn_sdp_enabled()
    True
    """
    return _attention["cudnn"]


def enable_flash_sdp(enabled: bool) -> None:
    """Accepted for compatibility: there is only one implementation of attention.

    >>> torch.backends.cuda.enable_flash_sdp(True)
    """
    _attention["flash"] = bool(enabled)


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Accepted for compatibility: there is only one implementation of attention.

    >>> torch.backends.cuda.enable_mem_efficient_sdp(True)
    """
    _attention["mem_efficient"] = bool(enabled)


def enable_math_sdp(enabled: bool) -> None:
    """Accepted for compatibility: there is only one implementation of attention.

    >>> torch.backends.cuda.enable_math_sdp(True)
    """
    _attention["math"] = bool(enabled)


def enable_cudnn_sdp(enabled: bool) -> None:
    """Accepted for compatibility: there is only one implementation of attention.

    >>> torch.backends.cuda.enable_cudnn_sdp(True)
    """
    _attention["cudnn"] = bool(enabled)


@contextlib.contextmanager
def sdp_kernel(enable_flash=True, enable_math=True, enable_mem_efficient=True, enable_cudnn=True):
    """A context manager that changes these settings temporarily.

    >>> with torch.backends.cuda.sdp_kernel(enable_flash=False):
    ...     torch.backends.cuda.flash_sdp_enabled()
    False
    """
    before = dict(_attention)
    _attention.update(flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn)
    try:
        yield
    finally:
        _attention.update(before)
