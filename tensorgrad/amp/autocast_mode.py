"""`autocast`: inside, products of matrices and convolutions run in a shorter dtype, and losses in float32.

Which ops are cast to what is a table of names for each device (`ops/precision.py`). The cast is an ordinary op, so
gradients come back in the dtype of the parameters; a parameter that is used several times is cast once.
"""

from __future__ import annotations

import copy
import functools
import warnings
from typing import Any

from tensorgrad import devices, dtypes
from tensorgrad.autograd.modes import GRAD
from tensorgrad.ops import callpath, slowpath
from tensorgrad.ops.precision import ALONE, LISTS, TOLD
from tensorgrad.tensor import Tensor, tensors_in


class _State:
    """What `autocast` stands at in one thread: for each device a dtype, or None while it is off.

    `casts` holds the shorter copies of parameters, until the outermost `autocast` ends.
    """

    __slots__ = ("casts", "dtypes", "keeps")

    def __init__(self, dtypes: dict[str, Any], casts: dict | None = None, keeps: bool = True):
        self.dtypes, self.casts, self.keeps = dtypes, {} if casts is None else casts, keeps

    def cast(self, op, args: tuple) -> tuple:
        """The arguments of an op as they should be: called by the slow path before every op."""
        for device, dtype in self.dtypes.items():
            if dtype is not None:
                args = self._cast(op.name, device, dtype, args)
        return args

    def _cast(self, name: str, device: str, shorter, args):
        lists = LISTS[device]
        if name in lists.shorter:
            return _all(args, device, shorter, self)
        if name in lists.full:
            return _all(args, device, dtypes.float32)
        if name in lists.widest:
            found = {t.dtype for t in tensors_in(args) if _castable(t, device)}
            if len(found) > 1:
                return _all(args, device, functools.reduce(dtypes.promote_types, found))
        return args

    def composite(self, function, *args, **kwargs):
        """A function of several ops that is cast as a whole (called by its guard); inside, nothing is.

        Raises: RuntimeError if it is refused.
        """
        name = function.__name__
        device = next((t.device.type for t in tensors_in((*args, *kwargs.values()))), "")
        shorter = self.dtypes.get(device)
        if shorter is None or not _is_one(name, device, args, kwargs):
            return function(*args, **kwargs)
        if name in LISTS[device].refused:
            raise RuntimeError(LISTS[device].refused[name])
        values = self._cast(name, device, shorter, (*args, *kwargs.values()))
        slowpath.LOCAL.autocast = None
        try:
            return function(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))
        finally:
            slowpath.LOCAL.autocast = self

    def shortened(self, tensor: Tensor, dtype) -> Tensor:
        """A tensor in a shorter dtype; a parameter's copy is kept, as long as nobody writes to the parameter."""
        kept = self.keeps and tensor.requires_grad and tensor.is_leaf and tensor._view is None
        if not kept or tensor.dtype is not dtypes.float32:
            return tensor.to(dtype)
        key, version = (id(tensor), dtype, GRAD.enabled), tensor._version
        found = self.casts.get(key)
        if found is None or found[1] != version:
            found = self.casts[key] = tensor, version, tensor.to(dtype)
        return found[2]


def _is_one(name: str, device: str, args: tuple, kwargs: dict) -> bool:
    """Whether a composite, called with these arguments, is one op on a device's lists, or on none as PyTorch's is."""
    if name in TOLD:
        return any(isinstance(value, dtypes.dtype) for value in (*args, *kwargs.values()))
    return name in ALONE or any(name in names for names in LISTS[device])


def _castable(tensor: Tensor, device: str) -> bool:
    return tensor.is_floating_point() and tensor.dtype is not dtypes.float64 and tensor.device.type == device


def _all(values, device: str, dtype, state: _State | None = None):
    """All tensors of a device, among nested values, in a dtype; by the copies that `state` keeps, if it is given."""
    cast = [
        (v if v.dtype is dtype or not _castable(v, device) else state.shortened(v, dtype) if state else v.to(dtype))
        if isinstance(v, Tensor)
        else _all(v, device, dtype, state)
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
        cache_enabled: whether the shorter copies of parameters are kept until the outermost `autocast` ends.

    Raises: RuntimeError for a device of unknown type, and for bfloat16 on a GPU that has none.

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
        local = slowpath.LOCAL
        outer: _State | None = local.autocast
        self._before = (outer, self._before)  # a list: one object may be entered again inside itself
        kept, casts, keeps = (outer.dtypes, outer.casts, outer.keeps) if outer else ({}, {}, True)
        keeps = keeps if self._cache_enabled is None else self._cache_enabled
        local.autocast = _State({**kept, self.device: self.fast_dtype if self._enabled else None}, casts, keeps)
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


def _known(name: str, device_type: str) -> str:
    if not isinstance(device_type, str):
        raise TypeError(f"{name}(): argument 'device_type' (position 1) must be str, not {type(device_type).__name__}")
    return devices.device(device_type).type  # which says what types there are


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether the ops of this thread are cast now.

    Raises: TypeError or RuntimeError for what is no type of device.

    >>> import tensorgrad as torch
    >>> with torch.autocast("cpu"):
    ...     torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")
    (True, False)
    """
    state, device = slowpath.LOCAL.autocast, _known("is_autocast_enabled", device_type)
    return state is not None and state.dtypes.get(device) is not None


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

    Raises: TypeError or RuntimeError for what is no type of device.

    >>> import tensorgrad as torch
    >>> torch.get_autocast_dtype("cpu")
    torch.bfloat16
    >>> with torch.autocast("cpu", dtype=torch.float16):
    ...     torch.get_autocast_dtype("cpu")
    torch.float16
    """
    state, device = slowpath.LOCAL.autocast, _known("get_autocast_dtype", device_type)
    return (state and state.dtypes.get(device)) or _default_dtype(device)


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
        on = is_autocast_enabled(device_type)
        args[0]._dtype, args[0]._fwd_used_autocast = get_autocast_dtype(device_type), on and cast_inputs is None
        if cast_inputs is None or not on:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            values = _all((*args, *kwargs.values()), device_type, cast_inputs)
            return fwd(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))

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
        ctx = args[0]
        with autocast(device_type, getattr(ctx, "_dtype", None), enabled=getattr(ctx, "_fwd_used_autocast", False)):
            return bwd(*args, **kwargs)

    return decorated
