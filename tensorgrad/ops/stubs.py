"""The interface of kernels that define their own derivative, under its public name: `tensorgrad.ops.stubs.Op`."""

from tensorgrad.rows.interface import Op

__all__ = ["Op"]
