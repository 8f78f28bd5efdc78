"""On which device the results of a call with fake tensors are.

They are computed on the meta device: arguments that name a device are replaced by that one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tensorgrad import devices
from tensorgrad._subclasses.fake_exceptions import FakeTensorDeviceMismatchError
from tensorgrad.dtypes import NUMBERS, dtype
from tensorgrad.tensor import Tensor

# Functions whose first argument says where the result is, whatever devices the others are on.
_OF_THE_FIRST = frozenset((
    "_getitem", "__setitem__", "copy_", "index_put", "index_put_", "set_", "backward", "requires_grad_", "view_as",
    "reshape_as", "expand_as", "type_as", "is_same_size", "zeros_like", "ones_like", "empty_like", "full_like",
    "rand_like", "randn_like", "randint_like",
))  # fmt: skip
_MOVES = ("cpu", "cuda")  # methods that are named for a device


class Call(NamedTuple):
    """A call on the meta device."""

    function: Any
    args: tuple
    kwargs: dict[str, Any]
    device: devices.device | None  #: that the call named


def with_index(device: Any) -> devices.device:
    """Returns a device; a GPU's always with an index, as tensors have it.

    >>> from tensorgrad._subclasses.fake_devices import with_index
    >>> with_index("cuda"), with_index("cpu")
    (device(type='cuda', index=0), device(type='cpu'))
    """
    made = devices.device(device)
    return devices.device(made.type, 0) if made.type == "cuda" and made.index is None else made


def on_meta(function: Any, name: str, args: tuple, kwargs: dict[str, Any]) -> Call:
    """Returns a call as it is to be made on the meta device, and the device that it named."""
    device = None
    if kwargs.get("device") is not None:
        device, kwargs = with_index(kwargs["device"]), {**kwargs, "device": devices.META}
    if name in _MOVES and args and isinstance(args[0], Tensor):
        given = kwargs.pop("device", None) is not None
        index = args[1] if len(args) > 1 else None
        if not given:
            device = with_index(name if index is None else index)
        elif device is None:
            device = with_index(name)
        function, args = Tensor.to, (args[0], devices.META)
        kwargs = {key: value for key, value in kwargs.items() if key in ("non_blocking", "memory_format")}
    elif name == "to" and len(args) > 1:
        first, *rest = args[1:]
        if isinstance(first, Tensor):
            device, args = first.device, (args[0], devices.META, first.dtype, *rest)
        elif first is not None and first.__class__ is not dtype and first not in NUMBERS:
            device, args = with_index(first), (args[0], devices.META, *rest)
    if device is not None and function is Tensor.to and device != args[0].device:
        kwargs = {**kwargs, "copy": True}
        args = args[: _before_flags(args)]
    return Call(function, args, kwargs, device)


def _before_flags(args: tuple) -> int:
    """How many arguments of `to` are not flags."""
    return next((n for n, value in enumerate(args) if isinstance(value, bool)), len(args))


def common(function: Any, name: str, tensors: Iterable[Tensor]) -> devices.device | None:
    """Returns the device of all tensors; those with a single value may be on the CPU. None if there are none.

    Raises:
        FakeTensorDeviceMismatchError: If they are on different devices.
    """
    found, of_number = None, False
    for tensor in tensors:
        device, number = tensor.device, tensor.device.type == "cpu" and not tensor.ndim
        if found is None:
            found, of_number = device, number
            if name in _OF_THE_FIRST:
                break
        elif device == found:
            of_number = of_number and number
        elif of_number:
            found, of_number = device, number
        elif not number:
            raise FakeTensorDeviceMismatchError(function, found, device)
    return found
