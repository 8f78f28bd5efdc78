"""Functions that inspect objects and types, and the defaults of new tensors: `is_tensor`, `result_type`."""

from __future__ import annotations

import functools
import os

from tensorgrad import dtypes
from tensorgrad.ops.pytorch.storage_values import TypedStorage, UntypedStorage
from tensorgrad.size import Size
from tensorgrad.tensor import Tensor

__all__ = [
    "StorageBase", "TypedStorage", "UntypedStorage", "_has_compatible_shallow_copy_type", "broadcast_shapes",
    "compiled_with_cxx11_abi", "get_default_device", "get_device_module", "get_file_path", "is_storage", "is_tensor",
    "result_type", "set_default_device", "set_default_tensor_type", "typename",
]  # fmt: skip

StorageBase = UntypedStorage  # in PyTorch the base class of this class only


def is_tensor(obj) -> bool:
    """Returns whether `obj` is a tensor.

    Args:
        obj: any object.

    >>> torch.is_tensor(torch.ones(1)), torch.is_tensor([1.0])
    (True, False)
    """
    return isinstance(obj, Tensor)


def is_storage(obj) -> bool:
    """Returns whether `obj` is a storage.

    >>> torch.is_storage(torch.ones(1).untyped_storage()), torch.is_storage(torch.ones(1))
    (True, False)
    """
    return isinstance(obj, UntypedStorage | TypedStorage)


def typename(obj) -> str:
    """Returns PyTorch's type name of a tensor, the name of a class or function, or that of any other object's class.

    >>> torch.typename(torch.ones(1)), torch.typename([])
    ('torch.FloatTensor', 'list')
    """
    if isinstance(obj, Tensor):
        return obj.type()
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    module = "torch" if named is dtypes.dtype else getattr(named, "__module__", None) or ""
    return named.__qualname__ if module in ("", "builtins") else f"{module}.{named.__qualname__}"


def compiled_with_cxx11_abi() -> bool:
    """Returns True, as current PyTorch does; no C++ is involved.

    >>> torch.compiled_with_cxx11_abi()
    True
    """
    return True


def result_type(tensor1, tensor2) -> dtypes.dtype:
    """Returns the dtype of an op on two operands, each a tensor or a scalar.

    >>> torch.result_type(torch.tensor([1, 2]), 1.0)
    torch.float32
    """
    return dtypes.result_type_of([t._array if isinstance(t, Tensor) else t for t in (tensor1, tensor2)])


def broadcast_shapes(*shapes) -> Size:
    """Returns the shape that tensors of these shapes broadcast to.

    Raises:
        RuntimeError: If they do not broadcast.
    """
    shapes = tuple((s,) if isinstance(s, int) else tuple(s) for s in shapes)
    ndim = max((len(s) for s in shapes), default=0)
    result = [1] * ndim
    for shape in shapes:
        for i, n in enumerate(shape, ndim - len(shape)):
            if n < 0:
                raise RuntimeError(f"Trying to create tensor with negative dimension ({n}): ({n})")
            if n != 1 and result[i] not in (1, n):
                raise RuntimeError(
                    "Shape mismatch: objects cannot be broadcast to a single shape: "
                    f"{', '.join(str(list(s)) for s in shapes)} differ at dimension {i}"
                )
            if n != 1:
                result[i] = n
    return Size(result)


def set_default_device(device) -> None:
    """Sets the device of tensors created without `device=`; None for the CPU.

    >>> torch.set_default_device("meta")
    >>> torch.zeros(2).device
    device(type='meta')
    >>> torch.set_default_device(None)
    """
    from tensorgrad import devices
    from tensorgrad.ops.create import DEFAULT_DEVICE

    DEFAULT_DEVICE.device = devices.CPU if device is None else devices.device(device)


def get_default_device():
    """Returns the device of tensors created without `device=`.

    >>> torch.get_default_device()
    device(type='cpu')
    """
    from tensorgrad.ops.create import DEFAULT_DEVICE
    from tensorgrad.storage.stubs import storage_class

    device = DEFAULT_DEVICE.device
    return storage_class(device).current_device() if device.type == "cuda" and device.index is None else device


def _has_compatible_shallow_copy_type(input, from_) -> bool:
    """Returns whether `input.data = from_` may give a tensor the memory of another one: of the same device and layout.

    >>> torch._has_compatible_shallow_copy_type(torch.ones(2), torch.ones(3))
    True
    """
    return input._array.__class__ is from_._array.__class__


@functools.cache
def get_device_module(device=None):
    """Returns the module of a device's type, such as `torch.cuda`; for None that of the accelerator, or else the CPU.

    Raises:
        RuntimeError: If there is no such module, or if the argument is not a device.

    >>> torch.get_device_module("cpu").is_available()
    True
    """
    import tensorgrad

    if device is None:
        name = "cuda" if tensorgrad.cuda.is_available() else "cpu"
    elif isinstance(device, str | tensorgrad.device):
        name = tensorgrad.device(device).type
    else:
        raise RuntimeError(f"Invalid value of device '{device}', expect torch.device, str, or None")
    module = getattr(tensorgrad, name, None)
    if module is None:
        raise RuntimeError(f"Device '{name}' does not have a corresponding module registered as 'torch.{name}'.")
    return module


def get_file_path(*path_components: str) -> str:
    """Returns the path of a file relative to the folder that contains this package.

    >>> import os
    >>> os.path.isfile(torch.get_file_path("tensorgrad", "__init__.py"))
    True
    """
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), *path_components)


def set_default_tensor_type(t) -> None:
    """Sets the default dtype by PyTorch's legacy names, such as "torch.DoubleTensor".

    Raises:
        TypeError: If the type is not floating-point.

    >>> torch.set_default_tensor_type("torch.DoubleTensor")
    >>> torch.tensor(0.5).dtype
    torch.float64
    >>> torch.set_default_tensor_type("torch.FloatTensor")
    """
    names = {"Float": dtypes.float32, "Double": dtypes.float64, "Half": dtypes.float16, "BFloat16": dtypes.bfloat16}
    name = str(getattr(t, "__name__", t)).rpartition(".")[2].removesuffix("Tensor")
    if name not in names:
        raise TypeError(f"only floating-point types are supported as the default type, got {t}")
    dtypes.set_default_dtype(names[name])


def _assert(condition, message) -> None:
    """`assert` as a function. Raises: AssertionError with `message` if `condition` is false.

    >>> torch._assert(torch.ones(2).all(), "all ones")
    """
    if condition.__class__ not in (bool, Tensor):
        from tensorgrad.overrides import handle_torch_function, has_torch_function

        if has_torch_function((condition,)):
            return handle_torch_function(_assert, (condition,), condition, message)
    if not condition:
        raise AssertionError(message)
    return None
