"""The predecessor of `torch.vmap`, for programs that still import it.

It takes less: dimensions are counted from the front, each result has its own, and results are tensors or one tuple of
them. Gradients within `torch.autograd.grad` may be None (`allow_none_pass_through`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tensorgrad._functorch import vmap as steps
from tensorgrad.errors import warn
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch_map import Batch
from tensorgrad.utils._pytree import tree_leaves


def vmap(func: Callable, in_dims: Any = 0, out_dims: Any = 0) -> Callable:
    """`torch.vmap`, which is to be used instead."""
    warn("Please use `torch.vmap` instead of `torch._vmap_internals.vmap`.", FutureWarning)
    return _vmap(func, in_dims, out_dims)


def _vmap(func: Callable, in_dims: Any = 0, out_dims: Any = 0, allow_none_pass_through: bool = False) -> Callable:
    name = steps._get_name(func)

    @functools.wraps(func, updated=())
    def wrapped(*args: Any) -> Any:
        if not all(isinstance(d, int) for d in (out_dims if isinstance(out_dims, tuple) else (out_dims,))):
            raise ValueError(
                f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must be an int or a tuple of int representing "
                "where in the outputs the vmapped dimension should appear."
            )
        size, dims, values, spec = steps._process_batched_inputs(in_dims, args, func)
        _check_from_front(name, in_dims, values)
        with Batch(size, "error") as level:
            made = func(*steps._create_batched_inputs(dims, values, level, spec))
            outputs = made if isinstance(made, tuple) else (made,)
            if not allow_none_pass_through:
                _check_tensors(name, made, outputs)
            places = out_dims if isinstance(out_dims, tuple) else (out_dims,) * len(outputs)
            if len(places) != len(outputs):
                raise ValueError(
                    f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must have one dim per output (got "
                    f"{len(outputs)} outputs) of {name}."
                )
            with level.off():
                found = tuple(
                    [None if o is None else steps._taken(name, o, level, size, d) for o, d in zip(outputs, places)]
                )
        return found if isinstance(made, tuple) else found[0]

    return wrapped


def _check_from_front(name: str, in_dims: Any, values: list) -> None:
    """Raises: ValueError for a dimension that is counted from the end."""
    for dim in tree_leaves(in_dims):
        if isinstance(dim, int) and dim < 0:
            rank = next(v.dim() for v in values if isinstance(v, Tensor))
            raise ValueError(
                f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): Got in_dim={dim} for some input, but that input is a "
                f"Tensor of dimensionality {rank} so expected in_dim to satisfy 0 <= in_dim < {rank}."
            )


def _check_tensors(name: str, made: Any, outputs: tuple) -> None:
    """Raises: ValueError unless a function returned a tensor or a tuple of them."""
    for i, output in enumerate(outputs):
        if not isinstance(output, Tensor):
            where = f"for return {i}" if isinstance(made, tuple) else "as the return"
            raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(output)} {where}.")
