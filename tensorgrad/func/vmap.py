"""`vmap`: turns a function of one sample into a function of a batch.

The function runs once, on tensors that stand for one sample each and hold all of them (transforms/batch.py): every op
acts on the whole batch at once, by its rule (transforms/batch_rules.py). `_functorch/vmap.py` takes the arguments of
the call apart, and puts the results together.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad._functorch import vmap as steps
from tensorgrad.random import get_rng_state, set_rng_state
from tensorgrad.transforms.batch_map import Batch
from tensorgrad.utils._pytree import tree_flatten, tree_map, tree_unflatten


def vmap(
    func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Callable:
    """Maps `func` over a batch: returns a function whose arguments and results have an additional dimension.

    Args:
        func: Maps tensors, and any other arguments, to tensors; both may be nested in tuples, lists and dictionaries.
        in_dims: The batch dimension of the arguments: an integer for all of them, or nested like the arguments
            (a prefix of the nesting suffices); `None` for an argument that is the same for all samples.
        out_dims: The batch dimension of the results; `None` for a result that is the same for all samples.
        randomness: `"error"`: `func` may draw no random values (from the default generator); `"different"`: each
            sample gets its own; `"same"`: all get the same.
        chunk_size: How many samples are computed at once; all of them if it is None.

    Raises:
        ValueError: If arguments, `in_dims`, results and `out_dims` do not match; the message says which.
        RuntimeError: If random values were drawn that are not allowed.

    >>> batched_dot = torch.func.vmap(torch.dot)
    >>> batched_dot(torch.ones(2, 3), torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    tensor([ 6., 15.])
    >>> gradients = torch.func.vmap(torch.func.grad(lambda w, x: (w * x) ** 2), in_dims=(None, 0))
    >>> gradients(torch.tensor(2.0), torch.tensor([1.0, 3.0]))
    tensor([ 4., 36.])
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func, updated=())
    def mapped(*args: Any, **kwargs: Any) -> Any:
        _check_out_dims(out_dims, func)
        size, dims, values, spec = steps._process_batched_inputs(in_dims, args, func)

        def part(start: int, stop: int, numbers: Any = None) -> Any:
            if numbers is not None:  # of all chunks the same
                set_rng_state(numbers)
            given = [
                v if dim is None or stop - start == size else v.narrow(dim, start, stop - start)
                for v, dim in zip(values, dims, strict=True)
            ]
            with Batch(stop - start, randomness) as level:
                result = func(*steps._create_batched_inputs(dims, given, level, spec), **kwargs)
                return steps._unwrap_batched(result, out_dims, level, stop - start, func)

        if chunk_size is None or chunk_size >= size:
            return part(0, size)
        numbers = get_rng_state() if randomness == "same" else None
        parts = [part(start, min(start + chunk_size, size), numbers) for start in range(0, size, chunk_size)]
        columns = list(zip(*(tree_flatten(p)[0] for p in parts), strict=True))
        outer = tree_flatten(parts[0])[1]
        places = steps._places(parts[0], outer, out_dims, func)
        joined = [
            column[0] if place is None else torch.cat(column, place)
            for column, place in zip(columns, places, strict=True)
        ]
        return tree_unflatten(joined, outer)

    return mapped


def _check_out_dims(out_dims: Any, func: Callable) -> None:
    def check(dim: Any) -> None:
        if dim is not None and not isinstance(dim, int):
            raise ValueError(
                f"vmap({steps._get_name(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python "
                "collection of ints representing where in the outputs the vmapped dimension should appear."
            )

    if out_dims.__class__ is not int:
        tree_map(check, out_dims)
