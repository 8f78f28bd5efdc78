"""Fractional max pooling: the largest value of each window, with random distances between windows.

Source: B. Graham, "Fractional max-pooling" (2014).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.dispatch.kinds import export, op
from tensorgrad.errors import as_integers
from tensorgrad.ops.nn.pool import IN_PLANE
from tensorgrad.ops.random.sample import rand
from tensorgrad.tensor import Tensor

I64 = np.dtype("int64")

ROWS = {
    dims: op(
        f"fractional_max_pool{dims}d(input, samples, kernel_size: any, output_size: any)",
        "fractional.fractional_max_pool",
        batch="fold",
        outputs=("values", "indices"),
        selects=IN_PLANE,
        shape=lambda x, samples, kernel, size: [((*x.shape[:2], *size), x.dtype), ((*x.shape[:2], *size), I64)],
        doc="The maxima of windows at random distances, and their indices.",
        where=(),
    )
    for dims in (2, 3)
}


def _ints(name: str, parameter: str, value, dims: int) -> tuple[int, ...]:
    values = as_integers(value, parameter)
    if not isinstance(value, tuple | list):
        return values * dims
    if len(values) != dims:
        raise RuntimeError(f"{name}: {parameter} must either be a single Int or tuple of Ints")
    return values


def _size(name: str, input: Tensor, size, ratio, dims: int) -> tuple[int, ...]:
    """Returns the output size, given directly or as a ratio of the input's. Raises: ValueError if neither is given."""
    if size is not None:
        return _ints(name, "output_size", size, dims)
    if ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    ratios = tuple(ratio) if isinstance(ratio, tuple | list) else (ratio,) * dims
    if len(ratios) != dims:
        raise ValueError(f"{name} requires output_ratio to either be a single Int or tuple of Ints.")
    return tuple(int(input.size(d - dims) * r) for d, r in enumerate(ratios))


def _check(name: str, input: Tensor, samples: Tensor, kernel, size) -> None:
    """Raises: RuntimeError, with PyTorch's messages, for arguments that do not fit together."""
    shape, dims = input._array.shape, len(kernel)
    name = f"{name}()" if dims == 2 else f"{name}_out()"
    batched = len(shape) == dims + 2
    if len(shape) not in (dims + 1, dims + 2):
        raise RuntimeError(f"{name}: Expected {dims + 1}D or {dims + 2}D tensor, but got: {list(shape)}")
    for d in range(batched, len(shape)):
        if not shape[d]:
            raise RuntimeError(
                f"{name}: Expected input to have non-zero size for non-batch dimensions, but got{list(shape)} with "
                f"dimension {d} being empty."
            )
    if samples.dtype is not input.dtype:
        raise RuntimeError("Expect _random_samples to have the same dtype as input")
    given = samples._array.shape
    if len(given) != 3:
        raise RuntimeError(f"Expect _random_samples to have 3 dimensions, got {len(given)}")
    if given[0] < (shape[0] if batched else 1):
        raise RuntimeError("Expect _random_samples.size(0) no less then input batch size.")
    if given[1] != shape[-dims - 1]:
        raise RuntimeError("Expect _random_samples.size(1) equals to input channel size.")
    if given[2] != dims:
        raise RuntimeError(f"Expect _random_samples.size(2) equals to {dims}; got {given[2]}.")
    for what, n, k, m in zip(("time", "height", "width")[-dims:], shape[-dims:], kernel, size, strict=True):
        if k < 1 or m < 0:
            raise RuntimeError(f"{name}: pool {what} {k} must be positive, and output {what} {m} not negative")
        if m + k - 1 > n - (dims == 3):
            raise RuntimeError(f"{name}: pool {what} {k} too large relative to input {what} {n}")


def _fractional_max_pools(dims: int) -> None:
    name = f"fractional_max_pool{dims}d"

    def with_indices(
        input: Tensor,
        kernel_size,
        output_size=None,
        output_ratio=None,
        return_indices=False,
        _random_samples: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        size = _size(name, input, output_size, output_ratio, dims)
        samples = _random_samples
        if samples is None:
            batch = 1 if input.dim() == dims + 1 else input.size(0)
            samples = rand(batch, input.size(-dims - 1), dims, dtype=input.dtype, device=input.device)
        kernel = _ints(name, "kernel_size", kernel_size, dims)
        _check(name, input, samples, kernel, size)
        if input.dim() == dims + 2:
            return ROWS[dims](input, samples, kernel, size)
        values, indices = ROWS[dims](input.unsqueeze(0), samples, kernel, size)
        return values.squeeze(0), indices.squeeze(0)

    def fractional_max_pool(
        input: Tensor,
        kernel_size,
        output_size=None,
        output_ratio=None,
        return_indices=False,
        _random_samples: Tensor | None = None,
    ) -> Tensor:
        results: Any = with_indices(input, kernel_size, output_size, output_ratio, _random_samples=_random_samples)
        return results if return_indices else results[0]

    letters = ("H, W", "D, H, W")[dims - 2]
    fractional_max_pool.__doc__ = f"""Returns the largest value of windows at random distances in (N, C, {letters}).

    Args:
        kernel_size: the size of the windows, which may overlap; like the next two, one number or one per dimension.
        output_size: the number of windows.
        output_ratio: the number of windows as a fraction of the input's size, if `output_size` is not given.
        return_indices: whether to also return the indices of the maxima (int64, flat within an image plane).
        _random_samples: (N, C, {dims}) values between 0 and 1 that determine the window positions; drawn if not given.

    Raises:
        ValueError: If no size is given.
        RuntimeError: If the sizes do not fit.

    >>> torch.nn.functional.{name}(torch.zeros({", ".join(["2", "3", *["8"] * dims])}), 2, output_size=5).shape
    torch.Size([{", ".join(["2", "3", *["5"] * dims])}])
    """
    with_indices.__doc__ = f"""`{name}`, and the indices of the maxima (int64, flat within an image plane).

    >>> x = torch.zeros({", ".join(["2", "3", *["8"] * dims])})
    >>> values, indices = torch.nn.functional.{name}_with_indices(x, 2, output_size=5)
    >>> values.shape == indices.shape
    True
    """
    for function, public in ((fractional_max_pool, name), (with_indices, f"{name}_with_indices")):
        function.__name__ = function.__qualname__ = public
        export(public, function, "functional")


for _dims in (2, 3):
    _fractional_max_pools(_dims)
