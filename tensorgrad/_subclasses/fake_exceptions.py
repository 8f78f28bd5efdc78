"""What is raised where a fake tensor cannot go on without values."""

from __future__ import annotations

from typing import Any

from tensorgrad._ops import ops

# Functions whose results have a size that depends on values: their operators. (So have indices that are masks.)
_SIZES = {
    "argwhere": ("nonzero", "default"),
    "bincount": ("bincount", "default"),
    "masked_select": ("masked_select", "default"),
    "nonzero": ("nonzero", "default"),
    "repeat_interleave": ("repeat_interleave", "Tensor"),
    "unique": ("_unique2", "default"),
    "unique_consecutive": ("unique_consecutive", "default"),
}
# Functions that return what values are.
_VALUES = {"allclose": ("allclose", "default"), "equal": ("equal", "default")}


class UnsupportedFakeTensorException(RuntimeError):
    """A tensor that cannot be made a fake one: a sparse or a quantized one."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class DynamicOutputShapeException(RuntimeError):
    """The result's size depends on values."""

    def __init__(self, func: Any) -> None:
        super().__init__(func)
        self.func = func


class DataDependentOutputException(RuntimeError):
    """What is asked for is a value."""

    def __init__(self, func: Any) -> None:
        super().__init__(func)
        self.func = func


class UnsupportedOperatorException(RuntimeError):
    """There is no way to know what an operator returns."""

    def __init__(self, func: Any) -> None:
        super().__init__(func)
        self.func = func


class FakeTensorDeviceMismatchError(RuntimeError):
    """Tensors of a call are on different devices."""

    def __init__(self, func: Any, common_device: Any, device: Any) -> None:
        super().__init__(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{common_device} and {device}!"
        )
        self.func, self.common_device, self.device = func, common_device, device


def needs_values(name: str, masks: bool) -> RuntimeError | None:
    """Returns the exception for a function that cannot be run without values; None for all others.

    Args:
        name: the function's name.
        masks: whether an index among its arguments is a mask.
    """
    if name in _VALUES:
        return DataDependentOutputException(_operator(*_VALUES[name]))
    if name in _SIZES:
        return DynamicOutputShapeException(_operator(*_SIZES[name]))
    if name == "_getitem" and masks:
        return DynamicOutputShapeException(_operator("nonzero", "default"))
    return None


def value_read() -> DataDependentOutputException:
    """Returns the exception for reading a value."""
    return DataDependentOutputException(_operator("_local_scalar_dense", "default"))


def _operator(name: str, overload: str) -> Any:
    """An operator of PyTorch's registry; its name if there is none here."""
    packet = getattr(ops.aten, name, None)
    return f"aten.{name}.{overload}" if packet is None else getattr(packet, overload)
