"""What kernels are written with: Numba's decorators and types where kernels are compiled, placeholders in the program.

The program takes finished machine code from the cache (cache.py) and never imports Numba or LLVM: that alone takes
longer than reading every kernel. There the decorators return functions unchanged, and the functions to be compiled are
never called.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tensorgrad.kernels.numba.runtime import compiler, internals, native


class _Nothing:
    """A placeholder for a part of Numba or LLVM in the program, which only names it."""

    def __getattr__(self, name: str) -> _Nothing:
        return self

    def __call__(self, *given: Any, **options: Any) -> _Nothing:
        return self


def _left(function: Any = None, **options: Any) -> Any:
    """A decorator, with or without options, that returns the function unchanged."""
    return (lambda function: function) if function is None else function


COMPILING = compiler.compiles_here()
if COMPILING:
    import numba
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    numba.config.CPU_NAME, numba.config.CPU_FEATURES = native.cpu()
    njit: Any = partial(numba.njit, pipeline_class=internals.pipeline())
    to_fixed_tuple = internals.fixed_tuple()
else:
    njit = intrinsic = _left
    ir = types = to_fixed_tuple = _Nothing()

# For functions that only kernels call: it omits the Python wrappers, which take time to compile. Division by zero gives
# inf, as in NumPy.
inner = partial(njit, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)

# For functions of scalars inside loops, which are vectorized only if nothing is called. LLVM inlines them: Numba would
# type and translate them again for every call.
inlined = partial(inner, forceinline=True, fastmath={"contract"})

# In the signature of a kernel: a float32 array of any shape and strides, as the memory from its first element on.
MEMORY = "Array(float32, 1, 'C', True)"

__all__ = ["COMPILING", "MEMORY", "inlined", "inner", "intrinsic", "ir", "to_fixed_tuple", "types"]
