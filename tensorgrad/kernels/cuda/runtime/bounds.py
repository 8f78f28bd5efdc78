"""Indices out of bounds, and weights that are none: the GPU notes them, and the host raises when it next looks.

To look at indices before they are used, the host would have to wait for the GPU at every lookup of a table. So the
kernels look themselves. An index that is out of bounds reads and writes nothing wrong; it is written down in memory of
the host that the GPU can reach, and the error is raised by the next op that takes indices, when a value next comes to
the host (`item()`, `cpu()`, `print`), or by `torch.cuda.synchronize()`, whichever is first. (PyTorch's assertions on
the device come late too.) Its type is that which the op raises on the CPU: IndexError, or RuntimeError.
"""

from __future__ import annotations

from functools import cache

import cupy
import numpy as np

from tensorgrad.kernels.cuda.runtime import program
from tensorgrad.storage.cuda import State

# What may be noted: indices that are an IndexError, those that are a RuntimeError, and weights of `multinomial`.
KINDS = (IndexError, RuntimeError, "weights")
WEIGHTS = (
    "invalid multinomial distribution: probability tensor contains either `inf`, `nan` or element < 0, or a row's "
    "sum of probabilities <= 0; found on the GPU, by an op before this one"
)


@cache
def _memory() -> np.ndarray:
    import cupyx

    memory = cupyx.empty_pinned((len(KINDS), 5), np.int64)
    memory[...] = 0
    State.arrived = look
    return memory


def note(kind=IndexError) -> np.uint64:
    """The address of the note for one of KINDS, as kernels take it. Raises: what is noted."""
    look()
    return np.uint64(_memory()[KINDS.index(kind)].ctypes.data)


def look() -> None:
    """Raises: IndexError or RuntimeError for what the GPU has noted since the last look."""
    memory = _memory()
    if not (memory[0, 0] or memory[1, 0] or memory[2, 0]):
        return
    notes = memory.tolist()
    memory[...] = 0
    if notes[2][0]:
        raise RuntimeError(WEIGHTS)
    error, (_, index, least, size, dim) = (IndexError, notes[0]) if notes[0][0] else (RuntimeError, notes[1])
    negative = " (negative indices do not count from the end here)" if index < 0 and not least else ""
    raise error(
        f"index out of range in self: index {index} is out of bounds for dimension {dim} with size {size}{negative}; "
        "found on the GPU, by an op before this one"
    )


def check(index, least: int, size: int, dim: int, error: type[Exception] = IndexError) -> None:
    """Looks at indices, which belong in [least, size), without waiting for what is found. Raises: `error`, later."""
    address = note(error)
    if not index.size or index.dtype.kind not in "iu":
        return
    index = cupy.ascontiguousarray(index)
    if index.dtype.name not in ("int64", "int32"):
        index = index.astype(np.int64)
    launch = program.function("index", "check", "int32", I="int" if index.dtype.itemsize == 4 else "long long",
                              C="int", PACK=1, SCALED=0)  # fmt: skip
    numbers = (np.int64(v) for v in (index.size, least, size, dim))
    launch((-(-index.size // 256),), (256,), (index, *numbers, address))
