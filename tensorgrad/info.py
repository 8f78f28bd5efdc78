"""Questions about tensors and the library: `is_tensor`, `result_type`, `get_num_threads`."""

from __future__ import annotations

import os

from tensorgrad import dtypes
from tensorgrad.size import Size
from tensorgrad.tensor import Tensor

__all__ = [
    "broadcast_shapes", "get_default_device", "get_num_threads", "is_complex", "is_floating_point", "is_nonzero",
    "is_storage", "is_tensor", "numel", "result_type", "set_default_device", "set_default_tensor_type",
    "set_num_threads", "use_deterministic_algorithms", "are_deterministic_algorithms_enabled", "typename",
]  # fmt: skip


def is_tensor(obj) -> bool:
    """Whether `obj` is a tensor."""
    return isinstance(obj, Tensor)


def is_storage(obj) -> bool:
    """Whether `obj` is the memory of a tensor."""
    from tensorgrad.storage.stubs import Storage

    return isinstance(obj, Storage)


def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a floating-point one."""
    return input.is_floating_point()


def is_complex(input: Tensor) -> bool:
    """Whether the dtype is complex."""
    return input.is_complex()


def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero. Raises: RuntimeError if there is not exactly one element."""
    return bool(input)


def numel(input: Tensor) -> int:
    """The number of elements."""
    return input.numel()


def typename(obj) -> str:
    """PyTorch's name of the object's type."""
    if isinstance(obj, Tensor):
        return obj.type()
    return f"{type(obj).__module__}.{type(obj).__qualname__}".removeprefix("builtins.")


def result_type(tensor1, tensor2) -> dtypes.dtype:
    """The dtype of an op on two operands, each a tensor or a number.

    >>> import tensorgrad as torch
    >>> torch.result_type(torch.tensor([1, 2]), 1.0)
    torch.float32
    """
    return dtypes.result_type_of([t._array if isinstance(t, Tensor) else t for t in (tensor1, tensor2)])


def broadcast_shapes(*shapes) -> Size:
    """The shape that tensors of these shapes broadcast to. Raises: RuntimeError if they do not."""
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
    """The device of tensors made without `device=`; None for the CPU."""
    from tensorgrad import devices
    from tensorgrad.ops.create import DEFAULT_DEVICE

    DEFAULT_DEVICE.device = devices.CPU if device is None else devices.device(device)


def get_default_device():
    """The device of tensors made without `device=`."""
    from tensorgrad.ops.create import DEFAULT_DEVICE

    return DEFAULT_DEVICE.device


def set_default_tensor_type(t) -> None:
    """PyTorch's legacy way to set the default dtype: "torch.DoubleTensor"."""
    names = {"Float": dtypes.float32, "Double": dtypes.float64, "Half": dtypes.float16, "BFloat16": dtypes.bfloat16}
    spoken = str(getattr(t, "__name__", t)).rpartition(".")[2].removesuffix("Tensor")
    if spoken not in names:
        raise TypeError(f"only floating-point types are supported as the default type, got {t}")
    dtypes.set_default_dtype(names[spoken])


class _Settings:
    """What the setters below were given; NumPy decides about threads itself (its BLAS reads OMP_NUM_THREADS)."""

    threads = os.cpu_count() or 1
    deterministic = False


def get_num_threads() -> int:
    """The number of threads last set, or that of the processors."""
    return _Settings.threads


def set_num_threads(n: int) -> None:
    """Limits the threads of matrix products, if the package threadpoolctl is installed.

    Raises: RuntimeError if `n` is not positive.
    """
    if n < 1:
        raise RuntimeError(f"set_num_threads expects a positive integer, got {n}")
    _Settings.threads = n
    try:
        import threadpoolctl
    except ImportError:
        return
    threadpoolctl.threadpool_limits(n, user_api="blas")


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Accepted for PyTorch's sake: every op here is deterministic already."""
    _Settings.deterministic = mode


def are_deterministic_algorithms_enabled() -> bool:
    """What `use_deterministic_algorithms` was last told."""
    return _Settings.deterministic
