"""`autocast`: runs matrix products and convolutions in a lower-precision dtype, and losses in float32.

A table for each device lists which ops are cast (`dispatch/autocast_ops.py`). The cast is an ordinary op, so gradients
are returned in the dtype of the parameters; a parameter that is used several times is cast once.
"""

from __future__ import annotations

import copy
import functools
import warnings
from typing import Any

from tensorgrad import devices, dtypes
from tensorgrad.amp import autocast_state as state
from tensorgrad.amp.autocast_state import get_autocast_dtype, is_autocast_enabled


class autocast:
    """A context manager or decorator in which ops run in the dtype that suits them.

    Args:
        device_type: "cpu" or "cuda"; only tensors on this device are cast.
        dtype: The lower-precision dtype; by default bfloat16 on the CPU and float16 on GPUs.
        enabled: False disables an outer `autocast` inside.
        cache_enabled: Whether the cast copies of parameters are cached until the outermost `autocast` ends.

    Raises:
        RuntimeError: For an unknown device type, and for bfloat16 on a GPU that does not support it.

    >>> a = torch.ones(2, 2)
    >>> with torch.autocast("cpu", dtype=torch.float16):
    ...     (a @ a).dtype, (a + a).dtype
    (torch.float16, torch.float32)
    """

    def __init__(self, device_type: str, dtype=None, enabled: bool = True, cache_enabled: bool | None = None):
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.device = device_type
        if device_type not in devices.TYPES:
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self.fast_dtype = dtype or get_autocast_dtype(device_type)
        self._cache_enabled = cache_enabled
        if enabled and device_type == "cuda":
            from tensorgrad import cuda

            if not cuda.is_available():
                warnings.warn("CUDA is not available or torch_xla is imported. Disabling autocast.", stacklevel=2)
                enabled = False
            elif self.fast_dtype is dtypes.bfloat16 and not cuda.is_bf16_supported():
                raise RuntimeError("Current CUDA Device does not support bfloat16. Please switch dtype to float16.")
        elif enabled and self.fast_dtype not in (dtypes.bfloat16, dtypes.float16):
            warnings.warn(
                f"In {device_type} autocast, but the target dtype is not supported. Disabling autocast. Supported are "
                "torch.bfloat16 and torch.float16",
                stacklevel=2,
            )
            enabled = False
        self._enabled = enabled
        self._before: Any = None

    def __enter__(self) -> autocast:
        now = state.current()
        before = self.device in now.on, now.shorter(self.device), now.keeps
        self._before = (before, self._before)  # a linked list: the same object may be entered repeatedly
        keeps = now.keeps if self._cache_enabled is None else self._cache_enabled
        self._become(self._enabled, self.fast_dtype, keeps, +1)
        return self

    def __exit__(self, *exception) -> None:
        (enabled, dtype, keeps), self._before = self._before
        if state.current().nesting == 1:
            state.clear_autocast_cache()
        self._become(enabled, dtype, keeps, -1)

    def _become(self, enabled: bool, dtype, keeps: bool, nesting: int) -> None:
        now = state.current()
        on = now.on | {self.device} if enabled else now.on - {self.device}
        dtypes = state.with_dtype(self.device, dtype)
        state.change(on=on, dtypes=dtypes, keeps=keeps, nesting=now.nesting + nesting)

    def __call__(self, function):
        @functools.wraps(function)
        def decorated(*args: Any, **kwargs: Any):
            with copy.copy(self):
                return function(*args, **kwargs)

        return decorated


def is_autocast_available(device_type: str) -> bool:
    """Returns whether `autocast` supports a device type.

    >>> torch.amp.is_autocast_available("cpu"), torch.amp.is_autocast_available("meta")
    (True, False)
    """
    return device_type in ("cpu", "cuda")


def custom_fwd(fwd=None, *, device_type: str = "cuda", cast_inputs=None):
    """Decorates the `forward` of an `autograd.Function` for use with `autocast`.

    With `cast_inputs` it runs with `autocast` disabled, and its floating-point inputs are cast to that dtype.

    >>> class Square(torch.autograd.Function):
    ...     @staticmethod
    ...     @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x
    ...     @staticmethod
    ...     @torch.amp.custom_bwd(device_type="cpu")
    ...     def backward(ctx, grad):
    ...         (x,) = ctx.saved_tensors
    ...         return 2 * x * grad
    >>> with torch.autocast("cpu"):
    ...     Square.apply(torch.ones(1, dtype=torch.float16)).dtype
    torch.float32
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(*args: Any, **kwargs: Any):
        on = is_autocast_enabled(device_type)
        args[0]._dtype, args[0]._fwd_used_autocast = get_autocast_dtype(device_type), on and cast_inputs is None
        if cast_inputs is None or not on:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            values = state.all_to((*args, *kwargs.values()), device_type, cast_inputs)
            return fwd(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))

    return decorated


def custom_bwd(bwd=None, *, device_type: str = "cuda"):
    """Decorates the `backward` of an `autograd.Function` so that it runs with the `autocast` state of its `forward`.

    >>> class Product(torch.autograd.Function):
    ...     @staticmethod
    ...     @torch.amp.custom_fwd(device_type="cpu")
    ...     def forward(ctx, a, b):
    ...         ctx.save_for_backward(a, b)
    ...         return a @ b
    ...     @staticmethod
    ...     @torch.amp.custom_bwd(device_type="cpu")
    ...     def backward(ctx, grad):
    ...         a, b = ctx.saved_tensors
    ...         return grad @ b.T, a.T @ grad
    >>> a = torch.ones(2, 2, requires_grad=True)
    >>> Product.apply(a, torch.eye(2)).sum().backward()
    >>> a.grad
    tensor([[1., 1.],
            [1., 1.]])
    """
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(*args: Any, **kwargs: Any):
        ctx = args[0]
        with autocast(device_type, getattr(ctx, "_dtype", None), enabled=getattr(ctx, "_fwd_used_autocast", False)):
            return bwd(*args, **kwargs)

    return decorated
