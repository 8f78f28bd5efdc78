"""`torch.sparse.FloatTensor` and the like: constructors of COO tensors that old programs use."""

from __future__ import annotations

from typing import Any

from tensorgrad import dtypes
from tensorgrad.errors import warn
from tensorgrad.ops.sparse.construct import legacy
from tensorgrad.tensor import Tensor

_warned: set[str] = set()


def _constructor(name: str, dtype: str) -> Any:
    def construct(*given: Any) -> Tensor:
        kind = getattr(dtypes, dtype)
        if name not in _warned:  # once, as PyTorch does
            _warned.add(name)
            warn(f"torch.sparse.{name}() is deprecated.  Please use torch.sparse_coo_tensor(..., dtype=torch.{dtype})")
        return legacy(*given, dtype=kind)

    construct.__name__ = construct.__qualname__ = name
    construct.__doc__ = f"""Returns a COO tensor: `{name}(indices, values, size)`, or an empty one of sizes.

    Use `torch.sparse_coo_tensor` in new programs.

    >>> torch.sparse.{name}(torch.tensor([[0, 1]]), torch.tensor([1, 2]), (3,)).dtype
    torch.{dtype}
    """
    return construct


BFloat16Tensor = _constructor("BFloat16Tensor", "bfloat16")
ByteTensor = _constructor("ByteTensor", "uint8")
CharTensor = _constructor("CharTensor", "int8")
DoubleTensor = _constructor("DoubleTensor", "float64")
FloatTensor = _constructor("FloatTensor", "float32")
HalfTensor = _constructor("HalfTensor", "float16")
IntTensor = _constructor("IntTensor", "int32")
LongTensor = _constructor("LongTensor", "int64")
ShortTensor = _constructor("ShortTensor", "int16")
