"""The interface of kernels that bring their derivative, by its public name: `from tensorgrad.ops.stubs import Op`."""

from tensorgrad.dispatch.interface import Op

__all__ = ["Op"]
