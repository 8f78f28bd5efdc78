"""What kernels are written with: Numba's decorators and types where kernels are compiled, nothing in the program.

The program takes finished machine code from the cache (cache.py), and never imports Numba: the import alone takes
longer than reading every kernel. There the decorators leave functions as they are; those that are compiled are not
called.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tensorgrad.kernels.numba.runtime import compiler, internals


class _Nothing:
    """Stands for a part of Numba in the program, where it is only named."""

    def __getattr__(self, name: str) -> _Nothing:
        return self

    def __call__(self, *given: Any, **options: Any) -> _Nothing:
        return self


def _left(function: Any = None, **options: Any) -> Any:
    """A decorator, with options or without, that returns the function."""
    return (lambda function: function) if function is None else function


COMPILING = compiler.compiles_here()
if COMPILING:
    from numba import njit, types
    from numba.extending import intrinsic

    to_fixed_tuple = internals.fixed_tuple()
else:
    njit = intrinsic = _left
    types = to_fixed_tuple = _Nothing()

# A function that only kernels call: without what Python would need to call it, which takes time to compile. Division by
# zero gives inf, as NumPy's.
inner = partial(njit, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)

__all__ = ["COMPILING", "inner", "intrinsic", "njit", "to_fixed_tuple", "types"]
