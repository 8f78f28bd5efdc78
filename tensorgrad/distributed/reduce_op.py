"""How values of several processes are combined: `ReduceOp`, and what each means for an array of a given dtype."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

from tensorgrad.storage import STORAGES

__all__ = ["RedOpType", "ReduceOp", "prepared", "supports_complex"]


class RedOpType(Enum):
    """The operations; `PREMUL_SUM(factor)` makes a `ReduceOp` with a factor."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8
    UNUSED = 9

    def __call__(self, factor: Any) -> ReduceOp:
        if self is not RedOpType.PREMUL_SUM:
            raise TypeError(f"ReduceOp.{self.name} takes no factor; only ReduceOp.PREMUL_SUM does")
        op = ReduceOp(self)
        op.factor = factor
        return op

    def __str__(self) -> str:
        return f"RedOpType.{self.name}"


RedOpType.__qualname__ = "ReduceOp.RedOpType"


class ReduceOp:
    """How a collective combines the values of all processes.

    `SUM`, `PRODUCT`, `MIN`, `MAX`; `AVG` (the sum divided by the number of processes); `BAND`, `BOR` and
    `BXOR` (bitwise, for integers and bools); `PREMUL_SUM(factor)` (each value is multiplied by the factor first).

    >>> import tensorgrad.distributed as dist
    >>> dist.ReduceOp.SUM
    <RedOpType.SUM: 0>
    >>> dist.ReduceOp.PREMUL_SUM(0.5).factor
    0.5
    """

    RedOpType = RedOpType
    SUM, AVG, PRODUCT, MIN, MAX = RedOpType.SUM, RedOpType.AVG, RedOpType.PRODUCT, RedOpType.MIN, RedOpType.MAX
    BAND, BOR, BXOR = RedOpType.BAND, RedOpType.BOR, RedOpType.BXOR
    PREMUL_SUM, UNUSED = RedOpType.PREMUL_SUM, RedOpType.UNUSED

    def __init__(self, op: Any) -> None:
        if not isinstance(op, ReduceOp.RedOpType):
            raise TypeError(f"ReduceOp(): expected one of ReduceOp.SUM, ..., got {type(op).__name__}")
        self.op, self.factor = op, None

    def __eq__(self, other: object) -> bool:
        other = other.op if isinstance(other, ReduceOp) else other
        return self.op is other if isinstance(other, RedOpType) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.op)


def _make_nccl_premul_sum(factor: Any) -> ReduceOp:
    """PyTorch's other name of `ReduceOp.PREMUL_SUM(factor)`."""
    return RedOpType.PREMUL_SUM(factor)


def kind_of(op: Any) -> RedOpType:
    """The operation of a `ReduceOp` or one of its members. Raises: TypeError if it is neither."""
    op = op.op if isinstance(op, ReduceOp) else op
    if not isinstance(op, RedOpType):
        raise TypeError(f"expected a torch.distributed.ReduceOp, got {type(op).__name__}")
    return op


def supports_complex(reduceOp: Any) -> bool:
    """Returns whether an operation works on complex tensors.

    >>> import tensorgrad.distributed as dist
    >>> dist.supports_complex(dist.ReduceOp.SUM), dist.supports_complex(dist.ReduceOp.MAX)
    (True, False)
    """
    return kind_of(reduceOp) in (RedOpType.SUM, RedOpType.AVG, RedOpType.PREMUL_SUM, RedOpType.UNUSED)


_MPI_NAMES = {
    RedOpType.SUM: "SUM", RedOpType.AVG: "SUM", RedOpType.PREMUL_SUM: "SUM", RedOpType.PRODUCT: "PROD",
    RedOpType.MIN: "MIN", RedOpType.MAX: "MAX", RedOpType.BAND: "BAND", RedOpType.BOR: "BOR", RedOpType.BXOR: "BXOR",
}  # fmt: skip
# On bools, held as bytes that are 0 or 1.
_OF_BOOLS = {
    RedOpType.SUM: "MAX", RedOpType.MAX: "MAX", RedOpType.BOR: "BOR", RedOpType.PRODUCT: "MIN", RedOpType.MIN: "MIN",
    RedOpType.BAND: "BAND", RedOpType.BXOR: "BXOR",
}  # fmt: skip


def prepared(array: Any, op: Any, size: int) -> tuple[Any, str, Callable[[Any], Any]]:
    """What MPI or NCCL is to reduce: an array of a type that it adds, the name of the operation, and what to do then.

    float16 and bfloat16 are added in float32; bools are bytes. The array returned may share memory with `array`.
    The last function returns an array whose values are to be cast to the dtype of `array`.

    Raises: RuntimeError if the operation does not exist for this dtype.
    """
    kind, dtype = kind_of(op), array.dtype
    if kind in (RedOpType.BAND, RedOpType.BOR, RedOpType.BXOR) and dtype.kind not in "iub":
        raise RuntimeError(f"Cannot use ReduceOp.{kind.name} with non-integral dtype")
    if kind is RedOpType.AVG and dtype.kind in "iub":
        name = "Bool" if dtype.kind == "b" else {"int32": "Int", "int64": "Long"}.get(dtype.name, dtype.name)
        raise RuntimeError(f"result type Float can't be cast to the desired output type {name}")
    if kind is RedOpType.UNUSED or (dtype.kind == "b" and kind not in _OF_BOOLS):
        raise RuntimeError(f"Cannot use ReduceOp.{kind.name} with dtype {dtype.name}")
    if dtype.kind == "b":
        return array.view(np.uint8), _OF_BOOLS[kind], lambda result: result
    if dtype.itemsize == 2 and dtype.kind in "fV":
        array = STORAGES[array.__class__].cast(array, np.dtype(np.float32))
    if kind is RedOpType.PREMUL_SUM:
        factor = op.factor.item() if hasattr(op.factor, "item") else op.factor
        array = (array * factor).astype(array.dtype)
    if kind is RedOpType.AVG:
        return array, "SUM", lambda result: result.__itruediv__(size)
    return array, _MPI_NAMES[kind], lambda result: result


# PyTorch's former way to write them: `torch.distributed.reduce_op.SUM`.
SUM, PRODUCT, MIN, MAX = ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX
