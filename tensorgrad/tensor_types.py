"""`torch.FloatTensor` and similar: PyTorch's oldest names for dtypes, which create, test and cast tensors.

torch.LongTensor([1, 2])                 a tensor of that dtype
torch.FloatTensor(2, 3)                  an uninitialized one of that shape
isinstance(x, torch.FloatTensor)         checks x.dtype and x.device
x.type(torch.DoubleTensor)               x.double()
"""

from __future__ import annotations

from typing import Any, Union

from tensorgrad import devices, dtypes
from tensorgrad.dtypes import SCALAR_TYPES, scalar_type
from tensorgrad.storage.stubs import storage_class
from tensorgrad.tensor import Tensor


class TensorType:
    """One of these names. (An instance, not a class: it implements `isinstance` and calls.)"""

    def __init__(self, dtype: dtypes.dtype, device: str = "cpu"):
        self.dtype, self.is_cuda = dtype, device == "cuda"
        self.__name__ = self.__qualname__ = f"{scalar_type(dtype)}Tensor"
        self.__module__ = "torch" if device == "cpu" else f"torch.{device}"
        self.device = devices.device(device)

    def __instancecheck__(self, instance: object) -> bool:
        if not isinstance(instance, Tensor):
            return False
        return instance.dtype is self.dtype and instance.device.type == self.device.type

    def __call__(self, *args: Any, device: Any = None) -> Tensor:
        """Creates a tensor from a sequence, another tensor's values, or sizes. Raises: TypeError for anything else;
        RuntimeError for another type of device than its own."""
        from tensorgrad.ops.create import check_legacy_device, legacy_tensor

        check_legacy_device(device, self.device.type)
        if self.is_cuda:
            storage_class(self.device)  # raises an error if CUDA is not available
        return legacy_tensor(args, self.device, self.dtype)

    def __or__(self, other: Any) -> Any:
        return Union[self, other]  # noqa: UP007 `|` would call this method again

    def __ror__(self, other: Any) -> Any:
        return Union[other, self]  # noqa: UP007

    def __repr__(self) -> str:
        return f"<class '{self.__module__}.{self.__name__}'>"

    def __reduce__(self):
        return _named, (self.dtype.name, self.device.type)


def _named(dtype: str, device: str) -> TensorType:
    return types(device)[f"{SCALAR_TYPES[dtype]}Tensor"]


_made: dict[str, dict[str, TensorType]] = {}


def types(device: str = "cpu") -> dict[str, TensorType]:
    """Returns the types of a device, by name.

    >>> torch.LongTensor([1, 2])
    tensor([1, 2])
    >>> isinstance(torch.zeros(1), torch.FloatTensor)
    True
    """
    if device not in _made:
        names = [
            name for name in SCALAR_TYPES
            if not name.startswith(("complex", "float8")) and dtypes.BY_NAME[name] not in dtypes.BITS
        ]  # fmt: skip
        made = [TensorType(dtypes.BY_NAME[name], device) for name in names]
        _made[device] = {t.__name__: t for t in made}
    return _made[device]
