"""What kernels are written with. Here are placeholders: the program runs finished machine code and needs no compiler.

Numba's decorators and types, and functions that emit LLVM's instructions, take their place where kernels are compiled
(tools/kernels/dialect.py in the repository). In the program the decorators return functions unchanged, and the
functions to be compiled are never called.
"""

from __future__ import annotations

from functools import partial
from typing import Any


class _Nothing:
    """A placeholder for a part of Numba or LLVM in the program, which only names it."""

    def __getattr__(self, name: str) -> _Nothing:
        return self

    def __call__(self, *given: Any, **options: Any) -> _Nothing:
        return self


def _left(function: Any = None, **options: Any) -> Any:
    """A decorator, with or without options, that returns the function unchanged."""
    return (lambda function: function) if function is None else function


njit: Any = _left
intrinsic: Any = _left
ir: Any = _Nothing()
types: Any = _Nothing()
to_fixed_tuple: Any = _Nothing()
# Building blocks of LLVM IR (tools/kernels/internals.py).
array_at: Any = _Nothing()
counted: Any = _Nothing()
data_of: Any = _Nothing()
declared: Any = _Nothing()
length_of: Any = _Nothing()
nothing: Any = _Nothing()
truth: Any = _Nothing()


def _any(*given: Any, **options: Any) -> Any:
    return njit(*given, **options)


# For functions that only kernels call: it omits the Python wrappers, which take time to compile. Division by zero gives
# inf, as in NumPy.
inner = partial(_any, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)

# For functions of scalars inside loops, which are vectorized only if nothing is called. LLVM inlines them: Numba would
# type and translate them again for every call.
inlined = partial(inner, forceinline=True, fastmath={"contract"})

# In the signature of a kernel: a float32 array of any shape and strides, as the memory from its first element on.
MEMORY = "Array(float32, 1, 'C', True)"
# A row-major array of any shape, of numbers of two or four bytes, as its memory in words of two bytes.
STORED = "Array(uint16, 1, 'C', False, None, False)"
MATRIX = "float32[:,::1]"

__all__ = [
    "MATRIX", "MEMORY", "STORED", "array_at", "counted", "data_of", "declared", "inlined", "inner", "intrinsic",
    "ir", "length_of", "nothing", "to_fixed_tuple", "truth", "types",
]  # fmt: skip
