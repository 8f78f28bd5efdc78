"""`torch._C._nn`: where callers look for the compiled functions of `torch.nn.functional`, and for the rules of `to`."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.dtypes import as_dtype
from tensorgrad.errors import typename
from tensorgrad.nn import functional
from tensorgrad.system.lazy_modules import whole
from tensorgrad.tensor import Tensor

_WAYS = """
 * (torch.device device = None, torch.dtype dtype = None, bool non_blocking = False, bool copy = False, *, torch.memory_format memory_format = None)
 * (torch.dtype dtype, bool non_blocking = False, bool copy = False, *, torch.memory_format memory_format = None)
 * (Tensor tensor, bool non_blocking = False, bool copy = False, *, torch.memory_format memory_format = None)
"""  # noqa: E501


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """Returns what arguments of `to` mean: the device, the dtype, `non_blocking` and the memory format.

    Raises:
        TypeError: If they fit none of the forms of `to`.
        RuntimeError: For `copy=True`.

    >>> torch._C._nn._parse_to("cpu", dtype=torch.float64)
    (device(type='cpu'), torch.float64, False, None)
    """
    device, dtype, non_blocking, copy, memory_format = parts_of_to(*args, **kwargs)
    if copy:
        raise RuntimeError(".to() does not accept copy argument")
    return device, dtype, non_blocking, memory_format


def parts_of_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, bool, Any]:
    """The same with `copy`, in the fourth place. Raises: TypeError as there."""
    first = args[0] if args else None
    if isinstance(first, Tensor) or "tensor" in kwargs:
        names = ["tensor", "non_blocking", "copy"]
    elif isinstance(first, torch.dtype | type):
        names = ["dtype", "non_blocking", "copy"]
    else:
        names = ["device", "dtype", "non_blocking", "copy"]
    given = dict(zip(names, args))
    wrong = len(args) > len(names) or given.keys() & kwargs.keys() or kwargs.keys() - {*names, "memory_format"}
    given |= kwargs
    tensor, device, dtype = given.get("tensor"), given.get("device"), given.get("dtype")
    flags = [given.get(name, False) for name in ("non_blocking", "copy")]
    if (
        wrong
        or not (isinstance(dtype, torch.dtype | None) or dtype in (float, int, bool, complex))
        or not (device is None or isinstance(device, str | int | torch.device))
        or isinstance(device, bool)
        or not all(isinstance(flag, bool) for flag in flags)
        or ("tensor" in given and not isinstance(tensor, Tensor))
    ):
        types = [typename(value) for value in args] + [f"{name}={typename(value)}" for name, value in kwargs.items()]
        raise TypeError(
            f"to() received an invalid combination of arguments - got ({', '.join(types)}), but expected one of:{_WAYS}"
        )
    if tensor is not None:
        device, dtype = tensor.device, tensor.dtype
    found = None if device is None else torch.device(device)
    return found, None if dtype is None else as_dtype(dtype), flags[0], flags[1], given.get("memory_format")


def __getattr__(name: str) -> Any:
    return getattr(functional, name)


def __dir__() -> list[str]:
    return sorted({"_parse_to", *dir(functional)})


whole(__name__)
