"""How `fully_shard` treats dtypes and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["CPUOffloadPolicy", "MixedPrecisionPolicy", "OffloadPolicy"]


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Which dtypes `fully_shard` uses. Parameters themselves, and the optimizer, keep theirs.

    Args:
        param_dtype: of the gathered parameters, and so of the computation.
        reduce_dtype: in which gradients are averaged; `param_dtype` if None.
        output_dtype: to which floating-point results of the module's forward are cast.
        cast_forward_inputs: whether floating-point arguments of forward are cast to `param_dtype`.

    >>> from tensorgrad.distributed.fsdp import MixedPrecisionPolicy
    >>> MixedPrecisionPolicy(param_dtype=torch.bfloat16).param_dtype
    torch.bfloat16
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Pieces of parameters stay on the device of the mesh.

    >>> from tensorgrad.distributed.fsdp import OffloadPolicy
    >>> OffloadPolicy()
    OffloadPolicy()
    """


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Pieces of parameters, gradients and optimizer state are kept in main memory. On the CPU they are there anyway.

    Args:
        pin_memory: accepted; changes nothing.

    >>> from tensorgrad.distributed.fsdp import CPUOffloadPolicy
    >>> CPUOffloadPolicy()
    CPUOffloadPolicy(pin_memory=True)
    """

    pin_memory: bool = True
