"""Parameters and buffers whose shape is not known yet: they have a dtype and a device, and no elements."""

from __future__ import annotations

import sys
from typing import Any

import tensorgrad as torch
from tensorgrad.nn.parameter import Buffer, Parameter
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor, share

# The slot that stores a tensor's array. The classes below hide it, so that any use of the elements raises an error.
_ARRAY: Any = vars(Tensor)["_array"]
# Methods that work without elements; tensors that they return are uninitialized too.
_ALLOWED = (
    "char", "cpu", "cuda", "double", "float", "half", "int", "is_complex", "is_floating_point", "long", "short", "size",
    "to",
)  # fmt: skip


class UninitializedTensorMixin:
    """Base of uninitialized parameters and buffers.

    >>> isinstance(torch.nn.LazyLinear(2).weight, torch.nn.parameter.UninitializedTensorMixin)
    True
    """

    __slots__ = ()

    cls_to_become: type[Tensor]
    persistent: bool

    def _hidden(self: Any) -> Any:
        name = sys._getframe(1).f_code.co_name
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {name}. This error happens when you are using a "
            f"`LazyModule` or explicitly manipulating `torch.nn.parameter.{type(self).__name__}` objects. When using "
            "LazyModules Call `forward` with a dummy batch to initialize the parameters before calling torch functions"
        )

    _array = property(_hidden, lambda self, array: _ARRAY.__set__(self, array))

    def materialize(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Turns this object, in place, into an ordinary parameter or buffer of `shape`, with arbitrary values.

        Args:
            device, dtype: replace those given when the object was created.
        """
        self.data = torch.empty(shape, device=device or self.device, dtype=dtype or self.dtype)
        self.__class__ = self.cls_to_become

    @property
    def shape(self) -> Any:
        """Raises RuntimeError: there is no shape yet."""
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call `forward` "
            "to initialize the parameters before accessing their attributes."
        )

    @property
    def data(self) -> Tensor:
        """An empty tensor with the dtype and device; setting it gives this object an array."""
        return share(_ARRAY.__get__(self), None)

    @data.setter
    def data(self: Any, value: Tensor) -> None:
        self._array, self._memory = _ARRAY.__get__(value), value._memory

    @property
    def dtype(self) -> Any:
        """The dtype that the tensor will have."""
        return self.data.dtype

    @property
    def device(self) -> Any:
        """The device that the tensor will be on."""
        array = _ARRAY.__get__(self)
        return STORAGES[array.__class__].device_of(array)

    @property
    def requires_grad(self: Any) -> bool:
        """Whether the tensor will have gradients."""
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self: Any, value: bool) -> None:
        self._requires_grad = bool(value)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Raises ValueError. Set the attribute `requires_grad` instead."""
        return self._hidden()

    def share_memory_(self) -> Any:
        """Raises RuntimeError: there is no memory yet."""
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters "
            "before calling `module.share_memory()`."
        )

    def __repr__(self, **options: Any) -> str:
        return f"<{type(self).__name__}>"

    def __deepcopy__(self, memo: dict) -> Any:
        if id(self) not in memo:
            maker, arguments = self.__reduce_ex__(2)
            memo[id(self)] = maker(*arguments)
        return memo[id(self)]

    def __reduce_ex__(self: Any, protocol: Any) -> tuple:
        return type(self), (self.requires_grad, self.device, self.dtype)


def _without_elements(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        data = self.data
        given = getattr(data, name)(*args, **kwargs)
        if not isinstance(given, Tensor):
            return given
        if given is data:
            return self
        made = _made(type(self), given, self.requires_grad)
        made.__dict__.update(self.__dict__)
        return made

    method.__name__, method.__doc__ = name, getattr(Tensor, name).__doc__
    return method


for _name in _ALLOWED:
    setattr(UninitializedTensorMixin, _name, _without_elements(_name))


def _made(cls: Any, data: Tensor, requires_grad: bool) -> Any:
    made = share(_ARRAY.__get__(data), None, cls)
    made._requires_grad = requires_grad
    return made


class UninitializedParameter(UninitializedTensorMixin, Parameter, plain=True):  # type: ignore[misc]
    """A parameter without a shape: `materialize` gives it one and makes it a `tensorgrad.nn.Parameter`.

    Until then only its dtype and device can be read and changed; everything else raises ValueError (RuntimeError for
    `shape`).

    Args:
        requires_grad: whether the parameter will have gradients.
        device, dtype: those of the future parameter.

    >>> p = torch.nn.UninitializedParameter(dtype=torch.float64)
    >>> p
    <UninitializedParameter>
    >>> p.materialize((2, 3))
    >>> p.shape, p.dtype
    (torch.Size([2, 3]), torch.float64)
    """

    __slots__ = ()
    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return _made(cls, torch.empty(0, device=device, dtype=dtype), requires_grad)


class UninitializedBuffer(UninitializedTensorMixin, Buffer, plain=True):  # type: ignore[misc]
    """A buffer without a shape: `materialize` gives it one and makes it an ordinary tensor.

    Args:
        requires_grad: whether the buffer will have gradients.
        device, dtype: those of the future buffer.
        persistent: whether `state_dict` includes it.

    >>> b = torch.nn.UninitializedBuffer()
    >>> b
    <UninitializedBuffer>
    >>> b.materialize((2,))
    >>> b.shape
    torch.Size([2])
    """

    __slots__ = ()
    cls_to_become = Tensor

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> Any:
        made = _made(cls, torch.empty(0, device=device, dtype=dtype), requires_grad)
        made.persistent = persistent
        return made

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return type(self), (self.requires_grad, self.device, self.dtype, self.persistent)
