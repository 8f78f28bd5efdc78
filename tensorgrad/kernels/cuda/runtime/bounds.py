"""Invalid indices and weights found on the GPU: kernels record them, and the host raises when it next checks.

To check indices before they are used, the host would have to wait for the GPU at every table lookup. So the kernels
check them. An index that is out of bounds reads and writes nothing invalid; it is recorded in host memory that the GPU
can reach, and the error is raised by the next op that takes indices, the next time a value is copied to the host
(`item()`, `cpu()`, `print`), or by `torch.cuda.synchronize()`, whichever comes first. (PyTorch's device assertions come
late too.) The error has the type that the op raises on the CPU: IndexError or RuntimeError.
"""

from __future__ import annotations

from functools import cache

import cupy
import numpy as np

from tensorgrad.kernels.cuda.runtime import program
from tensorgrad.storage.cuda import State

# What can be recorded: indices that raise IndexError, indices that raise RuntimeError, and weights of `multinomial`.
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
    """Returns the address of the record for one of KINDS, as kernels take it. Raises: any error already recorded."""
    look()
    return np.uint64(_memory()[KINDS.index(kind)].ctypes.data)


def look() -> None:
    """Raises: IndexError or RuntimeError if the GPU has recorded an error since the last call."""
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
    """Checks that indices are in [least, size) without waiting for the outcome. Raises: `error`, later."""
    address = note(error)
    if not index.size or index.dtype.kind not in "iu":
        return
    index = cupy.ascontiguousarray(index)
    if program.NAME[index.dtype] not in ("int64", "int32"):
        index = index.astype(np.int64)
    launch = program.function("index", "check", "int32", I="int" if index.dtype.itemsize == 4 else "long long",
                              C="int", PACK=1, SCALED=0)  # fmt: skip
    numbers = (np.int64(v) for v in (index.size, least, size, dim))
    launch((-(-index.size // 256),), (256,), (index, *numbers, address))
