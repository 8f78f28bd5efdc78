"""`autocast`: inside, products of matrices and convolutions run in a shorter dtype, and losses in float32.

Which ops are cast to what is a table of names; losses that are composed of several ops (kl_div, the margin losses)
follow their inputs. The cast is an ordinary op, so gradients come back in the dtype of the
parameters.
"""

from __future__ import annotations

import copy
import functools
import warnings
from typing import Any

from tensorgrad import devices, dtypes
from tensorgrad.ops import callpath, slowpath
from tensorgrad.tensor import Tensor

# What PyTorch's CPU casts, by the rows that its functions come down to here (measured on 2.13).
SHORTER = {
    "matmul", "mm", "bmm", "linear", "addmm", "addbmm", "baddbmm", "conv", "conv_transpose", "attention",
    "lstm_layer", "gru_layer", "rnn_layer",
}  # fmt: skip
FULL = {
    "mse_", "l1_", "smooth_l1_", "huber_", "cross_entropy_", "nll_", "bce_", "bce_with_logits_", "prod_", "ctc",
    "euclidean_distances", "svd_", "inverse_", "solve_", "det", "grid_sampler_2d", "grid_sampler_3d",
}  # fmt: skip
WIDEST = {"cat", "stack", "index_copy"}  # all tensors in the widest of their dtypes


class _State:
    """What `autocast` stands at in one thread: a dtype, or None while it is off."""

    __slots__ = ("device", "dtype")

    def __init__(self, device: str, dtype):
        self.device, self.dtype = device, dtype

    def cast(self, op, args: tuple) -> tuple:
        """The arguments of an op as they should be: called by the slow path before every op."""
        name = op.name
        if self.dtype is None:
            return args
        if name in SHORTER:
            return _all(args, self, self.dtype)
        if name in FULL:
            return _all(args, self, dtypes.float32)
        if name in WIDEST:
            found = {t.dtype for t in slowpath._tensors(args) if _castable(t, self)}
            if len(found) > 1:
                return _all(args, self, functools.reduce(dtypes.promote_types, found))
        return args


def _castable(tensor: Tensor, state: _State) -> bool:
    return tensor.is_floating_point() and tensor.dtype is not dtypes.float64 and tensor.device.type == state.device


def _all(values, state: _State, dtype):
    cast = [
        (v if v.dtype is dtype or not _castable(v, state) else v.to(dtype))
        if isinstance(v, Tensor)
        else _all(v, state, dtype)
        if isinstance(v, list | tuple) and any(isinstance(x, Tensor) for x in v)
        else v
        for v in values
    ]
    return tuple(cast) if isinstance(values, tuple) else cast


def _default_dtype(device: str) -> dtypes.dtype:
    return dtypes.float16 if device == "cuda" else dtypes.bfloat16


class autocast:
    """A `with` block (or decorator) in which ops run in the dtype that suits them.

    Args:
        device_type: "cpu" or "cuda": only tensors there are cast.
        dtype: the shorter dtype; bfloat16 on the CPU and float16 on a GPU unless told otherwise.
        enabled: False switches an outer `autocast` off inside.

    Raises: RuntimeError for a device of unknown type.

    >>> import tensorgrad as torch
    >>> a = torch.ones(2, 2)
    >>> with torch.autocast("cpu", dtype=torch.float16):
    ...     (a @ a).dtype, (a + a).dtype
    (torch.float16, torch.float32)
    """

    def __init__(self, device_type: str, dtype=None, enabled: bool = True, cache_enabled: bool | None = None):
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.device = device_type
        self.fast_dtype = dtype or _default_dtype(device_type)
        if device_type not in devices.TYPES:
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        if enabled and device_type == "cuda":
            from tensorgrad import cuda

            if not cuda.is_available():
                warnings.warn("User provided device_type of 'cuda', but CUDA is not available. Disabling", stacklevel=2)
                enabled = False
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
        local = slowpath.LOCAL
        self._before = (local.autocast, self._before)  # a list: one object may be entered again inside itself
        local.autocast = _State(self.device, self.fast_dtype if self._enabled else None)
        callpath.rare(+1)
        return self

    def __exit__(self, *exception) -> None:
        callpath.rare(-1)
        slowpath.LOCAL.autocast, self._before = self._before

    def __call__(self, function):
        @functools.wraps(function)
        def decorated(*args: Any, **kwargs: Any):
            with copy.copy(self):
                return function(*args, **kwargs)

        return decorated


def is_autocast_available(device_type: str) -> bool:
    """Whether `autocast` knows the device.

    >>> import tensorgrad as torch
    >>> torch.amp.is_autocast_available("cpu"), torch.amp.is_autocast_available("meta")
    (True, False)
    """
    return device_type in ("cpu", "cuda")


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether the ops of this thread are cast now.

    >>> import tensorgrad as torch
    >>> with torch.autocast("cpu"):
    ...     torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")
    (True, False)
    """
    state = slowpath.LOCAL.autocast
    return state is not None and state.dtype is not None and state.device == device_type


def is_autocast_cpu_enabled() -> bool:
    """Whether the ops of this thread on the CPU are cast now.

    >>> import tensorgrad as torch
    >>> with torch.autocast("cpu"):
    ...     torch.is_autocast_cpu_enabled()
    True
    """
    return is_autocast_enabled("cpu")


def get_autocast_dtype(device_type: str) -> dtypes.dtype:
    """The shorter dtype of a device.

    >>> import tensorgrad as torch
    >>> torch.get_autocast_dtype("cpu")
    torch.bfloat16
    >>> with torch.autocast("cpu", dtype=torch.float16):
    ...     torch.get_autocast_dtype("cpu")
    torch.float16
    """
    state = slowpath.LOCAL.autocast
    if state is not None and state.dtype is not None and state.device == device_type:
        return state.dtype
    return _default_dtype(device_type)


def custom_fwd(fwd=None, *, device_type: str = "cuda", cast_inputs=None):
    """Decorates the `forward` of an `autograd.Function`: with `cast_inputs` it runs outside of `autocast`, its
    floating-point inputs cast to that dtype.

    >>> import tensorgrad as torch
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
        args[0]._fwd_used_autocast = is_autocast_enabled(device_type)
        if cast_inputs is None or not is_autocast_enabled(device_type):
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(*_all(args, _State(device_type, cast_inputs), cast_inputs), **kwargs)

    return decorated


def custom_bwd(bwd=None, *, device_type: str = "cuda"):
    """Decorates the `backward` of an `autograd.Function`: it runs with the `autocast` that its `forward` ran with.

    >>> import tensorgrad as torch
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
        with autocast(device_type, enabled=getattr(args[0], "_fwd_used_autocast", False)):
            return bwd(*args, **kwargs)

    return decorated
