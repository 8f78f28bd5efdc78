"""The interface of kernels that define their own derivative, under its public name: `tensorgrad.ops.stubs.Op`."""

from tensorgrad.dispatch.interface import Op

__all__ = ["Op"]
