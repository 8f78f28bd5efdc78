"""Memory formats of results: what is computed from images in channels_last is in channels_last too.

Rows name the inputs that decide (`format_of=`). Their generated functions call this file when the strides suggest it.
"""

from __future__ import annotations

from functools import lru_cache

from tensorgrad.layouts import channels_last, channels_last_3d, memory_format, memory_strides
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.rows.strides import RULES

rows = RULES["rows"]


@lru_cache(maxsize=1024)
def format_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> memory_format | None:
    """The memory format that PyTorch sees in these strides: channels_last, channels_last_3d, or None for any other.

    With sizes of 1 several formats are possible: the strides then decide, from the channels outwards, as in PyTorch.

    >>> from tensorgrad.dispatch.memory_formats import format_of
    >>> format_of((2, 3, 4, 5), (60, 1, 15, 3))
    torch.channels_last
    """
    rank = len(shape)
    if rank not in (4, 5) or 0 in shape or not strides[1]:
        return None
    last, order = channels_last if rank == 4 else channels_last_3d, (1, *range(rank - 1, 1, -1), 0)
    least = 0
    for d in order:
        if strides[d] < least or (d == 0 and strides[1] == least):
            break
        least = strides[d] * shape[d]
    else:
        return last
    # NumPy chooses other strides for dimensions of size 1; the remaining ones may leave only one format.
    # A view of one image of several has a stride of its own there, and is in no format.
    long = [d for d in order if shape[d] > 1]
    if shape[0] == 1 and strides[0] not in (min(strides), strides[long[-1]] * shape[long[-1]] if long else 0):
        return None
    steps = [strides[d] for d in long]
    in_rows = [strides[d] for d in range(rank - 1, -1, -1) if shape[d] > 1]
    dense = all(b == a * shape[d] for a, b, d in zip(steps, steps[1:], long, strict=False))
    return last if dense and 0 not in steps and in_rows != sorted(in_rows) else None


def in_format_of(inputs: tuple, results):
    """The results, in channels_last if an input is: those with as many dimensions as the first input. Else in rows."""
    if all(format_of(x.shape, x.strides) is None for x in inputs):
        if isinstance(results, tuple | list):
            return tuple([rows(None, a) for a in results])
        return rows(None, results)
    if isinstance(results, tuple | list):
        return tuple([in_channels_last(a) if a.ndim == inputs[0].ndim else a for a in results])
    return in_channels_last(results)


def in_channels_last(array):
    """The array in channels_last: itself if it is already, else a copy."""
    if array.strides == _strides_in_channels_last(array.shape, array.dtype.itemsize):
        return array
    kernels = OPS["clone_copy"].compiled.kernels
    return (kernels if array.size < kernels.large_from else kernels.large)[array.__class__](array, "channels_last")


@lru_cache(maxsize=256)
def _strides_in_channels_last(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """NumPy's strides of an array in channels_last."""
    steps = memory_strides(shape, channels_last if len(shape) == 4 else channels_last_3d)
    return tuple([s * itemsize for s in steps])
