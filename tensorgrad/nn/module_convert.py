"""Moving and casting a module: `to` and related methods."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import tensorgrad as torch
from tensorgrad.nn.compiled import _parse_to
from tensorgrad.nn.parameter import Parameter
from tensorgrad.tensor import Tensor


class Convertible:
    """The methods of `tensorgrad.nn.Module` that change the device or dtype of its tensors."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    children: Callable[[], Iterator[Any]]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Applies `fn` to the data of parameters, gradients and buffers. Parameters remain the same objects unless
        they move to or from the meta device.
        """
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, parameter in self._parameters.items():
            if parameter is None:
                continue
            with torch.no_grad():
                new = fn(parameter)
                if new is not parameter:
                    grad = parameter._grad  # removed first: its dtype must never differ from the parameter's
                    parameter._grad = None
                    if new.is_meta != parameter.is_meta or hasattr(parameter, "__torch_dispatch__"):
                        parameter = self._parameters[name] = Parameter(new, parameter.requires_grad)
                        if grad is not None:
                            parameter.grad = fn(grad).requires_grad_(grad.requires_grad)
                        continue
                    parameter.data = new
                    if grad is not None:  # it stays the same object, too
                        grad.data = fn(grad)
                        parameter.grad = grad
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Moves and casts parameters and buffers in place: `to(device)`, `to(dtype)`, `to(device, dtype)` or
        `to(tensor)`, which takes both from a tensor.

        Only floating-point and complex members are cast. `memory_format` applies to members of four and five
        dimensions. `non_blocking` is accepted.

        Raises:
            TypeError: the dtype is neither floating-point nor complex, or the arguments are none of these forms.
            RuntimeError: for `copy=True`: modules are changed in place.
        """
        device, dtype, _, memory_format = _parse_to(*args, **kwargs)
        elsewhere = device is not None and device.type != "meta"
        if dtype is not None:
            if not (dtype.is_floating_point or dtype.is_complex):
                raise TypeError(
                    f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
                )
            if dtype.is_complex:
                warnings.warn(
                    "Complex modules are a new feature under active development whose design may change, and some "
                    "modules might not work as expected when using complex tensors as parameters or buffers.",
                    stacklevel=2,
                )

        def convert(t: Tensor) -> Tensor:
            cast = dtype is not None and (t.is_floating_point() or t.is_complex())
            if memory_format is not None and t.dim() in (4, 5):
                return t.to(device=device, dtype=dtype if cast else None, memory_format=memory_format)
            if elsewhere and t.is_meta:
                raise NotImplementedError(
                    "Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead of "
                    "torch.nn.Module.to() when moving module from meta to a different device."
                )
            if device is None:
                return t.to(dtype=dtype) if cast else t
            return t.to(device=device, dtype=dtype) if cast else t.to(device=device)

        return self._apply(convert)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Any:
        """Moves to a device without copying values: the new memory is uninitialized."""
        return self._apply(lambda t: torch.empty_like(t, device=device), recurse=recurse)

    def cpu(self) -> Any:
        """Moves parameters and buffers to main memory."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device: Any = None) -> Any:
        """Moves parameters and buffers to a CUDA device."""
        return self._apply(lambda t: t.cuda(device))

    def xpu(self, device: Any = None) -> Any:
        """Raises AssertionError if there is anything to move: XPU devices are not supported."""
        return self._apply(lambda t: t.xpu(device))

    def mtia(self, device: Any = None) -> Any:
        """Raises AssertionError if there is anything to move: MTIA devices are not supported."""
        return self._apply(lambda t: t.mtia(device))

    def ipu(self, device: Any = None) -> Any:
        """Raises RuntimeError if there is anything to move: IPU devices are not supported."""
        return self._apply(lambda t: t.ipu(device))

    def type(self, dst_type: Any) -> Any:
        """Casts all parameters and buffers, integer ones too."""
        return self._apply(lambda t: t.type(dst_type))

    def float(self) -> Any:
        """Casts floating-point parameters and buffers to float32."""
        return self._apply(lambda t: t.float() if t.is_floating_point() else t)

    def double(self) -> Any:
        """Casts floating-point parameters and buffers to float64."""
        return self._apply(lambda t: t.double() if t.is_floating_point() else t)

    def half(self) -> Any:
        """Casts floating-point parameters and buffers to float16."""
        return self._apply(lambda t: t.half() if t.is_floating_point() else t)

    def bfloat16(self) -> Any:
        """Casts floating-point parameters and buffers to bfloat16."""
        return self._apply(lambda t: t.bfloat16() if t.is_floating_point() else t)

    def share_memory(self) -> Any:
        """Moves parameters and buffers to memory that is shared with other processes."""
        return self._apply(lambda t: t.share_memory_())


def typename(value: Any) -> str:
    """Returns the name of a value's type as in PyTorch's messages: `torch.FloatTensor`, `list`."""
    if isinstance(value, Tensor):
        return value.type()
    cls = type(value)
    if cls.__module__ in ("builtins", "__builtin__", ""):
        return cls.__name__
    return f"{cls.__module__}.{cls.__qualname__}"
