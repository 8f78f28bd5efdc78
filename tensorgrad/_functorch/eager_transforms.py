"""The functions of `torch.func` under the name of PyTorch's file, and a helper that libraries import from there."""

from __future__ import annotations

from typing import Any

from tensorgrad.func.derivatives import ArgNums, grad, grad_and_value, jacrev, picked, vjp
from tensorgrad.func.forward import hessian, jacfwd, jvp, linearize
from tensorgrad.func.utilities import debug_unwrap, functionalize

__all__ = [
    "debug_unwrap", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "vjp",
]  # fmt: skip


def _slice_argnums(args: tuple, argnums: ArgNums, as_tuple: bool = True) -> Any:
    """The arguments at these positions: a tuple, also of one unless `as_tuple` is false.

    >>> from tensorgrad._functorch.eager_transforms import _slice_argnums
    >>> _slice_argnums((1, 2, 3), (0, -1)), _slice_argnums((1, 2, 3), 1)
    ((1, 3), (2,))
    """
    found = picked(args, argnums)
    return (found,) if as_tuple and isinstance(argnums, int) else found
