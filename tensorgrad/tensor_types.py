"""`torch.FloatTensor` and its like: PyTorch's oldest names for dtypes, which make, test and cast tensors.

torch.LongTensor([1, 2])                 a tensor of that dtype
torch.FloatTensor(2, 3)                  an uninitialised one of that shape
isinstance(x, torch.FloatTensor)         what x.dtype and x.device say
x.type(torch.DoubleTensor)               x.double()
"""

from __future__ import annotations

from typing import Any

from tensorgrad import devices, dtypes
from tensorgrad.dtypes import SPOKEN
from tensorgrad.storage.stubs import storage_class
from tensorgrad.tensor import Tensor, wrap


class TensorType:
    """One of the names. (An object: `isinstance` asks it, and calling it makes a tensor.)"""

    def __init__(self, dtype: dtypes.dtype, device: str = "cpu"):
        self.dtype, self.is_cuda = dtype, device == "cuda"
        self.__name__ = self.__qualname__ = f"{SPOKEN[dtype.name]}Tensor"
        self.__module__ = "torch" if device == "cpu" else f"torch.{device}"
        self.device = devices.device(device)

    def __instancecheck__(self, instance: object) -> bool:
        if not isinstance(instance, Tensor):
            return False
        return instance.dtype is self.dtype and instance.device.type == self.device.type

    def __call__(self, *args: Any) -> Tensor:
        """A tensor from a sequence, another tensor's values, or sizes. Raises: TypeError for anything else."""
        from tensorgrad.ops.create import tensor

        if self.is_cuda:
            storage_class(self.device)  # says what is missing
        if len(args) == 1 and not isinstance(args[0], int):
            (data,) = args
            if isinstance(data, Tensor) and data.dtype is not self.dtype:
                raise TypeError(
                    f"expected a tensor of {self.dtype}, but got one of {data.dtype}: convert it with .to()"
                )
            if isinstance(data, Tensor):
                return data.detach()
            if not isinstance(data, _size()):
                if isinstance(data, str | float | bool | dict | None) or not hasattr(data, "__len__"):
                    raise TypeError(f"new(): data must be a sequence (got {type(data).__name__})")
                return tensor(data, dtype=self.dtype, device=self.device)
            args = tuple(data)  # type: ignore[arg-type]
        if not all(isinstance(n, int) for n in args):
            raise TypeError(f"{self.__name__}(): expected a sequence, a tensor or sizes, but got {args!r:.60}")
        shape = args or (0,)
        return wrap(storage_class(self.device).empty(tuple(shape), self.dtype.numpy, self.device))

    def __repr__(self) -> str:
        return f"<class '{self.__module__}.{self.__name__}'>"

    def __reduce__(self):
        return _named, (self.dtype.name, self.device.type)


def _size() -> type:
    from tensorgrad.size import Size

    return Size


def _named(dtype: str, device: str) -> TensorType:
    return types(device)[f"{SPOKEN[dtype]}Tensor"]


_made: dict[str, dict[str, TensorType]] = {}


def types(device: str = "cpu") -> dict[str, TensorType]:
    """The types of a device, by name.

    >>> import tensorgrad as torch
    >>> torch.LongTensor([1, 2])
    tensor([1, 2])
    >>> isinstance(torch.zeros(1), torch.FloatTensor)
    True
    """
    if device not in _made:
        made = [TensorType(dtypes.BY_NAME[name], device) for name in SPOKEN if not name.startswith("complex")]
        _made[device] = {t.__name__: t for t in made}
    return _made[device]
