"""`torch.types`: type aliases for annotations."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import IO, TypeAlias, Union

from tensorgrad.devices import device as _device
from tensorgrad.dtypes import dtype as _dtype  # noqa: F401
from tensorgrad.layouts import layout as _layout  # noqa: F401
from tensorgrad.ops.pytorch.storage_values import UntypedStorage as Storage
from tensorgrad.size import Size
from tensorgrad.tensor import Tensor

_int: TypeAlias = builtins.int
_float: TypeAlias = builtins.float
_bool: TypeAlias = builtins.bool
_complex: TypeAlias = builtins.complex
_str: TypeAlias = builtins.str
_bytes: TypeAlias = builtins.bytes
_Number = (builtins.int, builtins.float, builtins.bool)
_TensorOrTensors: TypeAlias = Union[Tensor, Sequence[Tensor]]  # noqa: UP007
_TensorOrOptionalTensors: TypeAlias = Union[Tensor, Sequence[Union[Tensor, None]]]  # noqa: UP007
_size: TypeAlias = Union[Size, list[int], tuple[int, ...]]  # noqa: UP007

Device: TypeAlias = Union[_device, str, int, None]  # noqa: UP007
Number: TypeAlias = Union[int, float, bool]  # noqa: UP007
FileLike: TypeAlias = Union[str, os.PathLike, IO[bytes]]  # noqa: UP007

__all__ = ["Device", "FileLike", "Number", "Size", "Storage", "Tensor"]
