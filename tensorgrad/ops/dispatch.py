"""The kernel registry under its public name: `from tensorgrad.ops.dispatch import OpDispatch`."""

from tensorgrad.rows.kernel_tables import OpDispatch

__all__ = ["OpDispatch"]
