"""`torch.backends.cuda`: settings of matrix products and attention on GPUs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from importlib.util import find_spec

from tensorgrad.kernels.cuda.runtime.switches import matmul as matmul

_attention = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


def is_built() -> bool:
    """Returns whether GPU support is installed: it needs CuPy.

    >>> torch.backends.cuda.is_built() in (True, False)
    True
    """
    return find_spec("cupy") is not None


def _setting(name: str) -> tuple[Callable[[], bool], Callable[[bool], None]]:
    """Makes the functions that read and set which kind of attention may be used."""

    def read() -> bool:
        return _attention[name]

    def enable(enabled: bool) -> None:
        _attention[name] = bool(enabled)

    read.__name__ = read.__qualname__ = f"{name}_sdp_enabled"
    enable.__name__ = enable.__qualname__ = f"enable_{name}_sdp"
    read.__doc__ = f"""Returns the value last passed to `enable_{name}_sdp`.

    >>> torch.backends.cuda.{name}_sdp_enabled()
    True
    """
    enable.__doc__ = f"""Accepted for compatibility: there is only one implementation of attention.

    >>> torch.backends.cuda.enable_{name}_sdp(True)
    """
    return read, enable


flash_sdp_enabled, enable_flash_sdp = _setting("flash")
mem_efficient_sdp_enabled, enable_mem_efficient_sdp = _setting("mem_efficient")
math_sdp_enabled, enable_math_sdp = _setting("math")
cudnn_sdp_enabled, enable_cudnn_sdp = _setting("cudnn")


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
