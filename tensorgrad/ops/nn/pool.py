"""Pooling: the maximum, mean or p-norm of each window."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import FUNCTIONAL, FUNCTIONS, export, op
from tensorgrad.dispatch.out import store_out
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import SHORT_MAX, SHORT_MIN, as_integers, wrong_argument
from tensorgrad.kernels.array import pool as kernels
from tensorgrad.ops.copy import in_format_of
from tensorgrad.rows.op import Selection
from tensorgrad.rows.switches import GRAD
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch import whole

I64, U8 = np.dtype("int64"), np.dtype("uint8")


@lru_cache(maxsize=256)
def _pool_shape(*given):
    return kernels.pool_shape(*given)


# --- rows ----------------------------------------------------------------------------------------------------------

# The indices are within an image plane (int64), as PyTorch's, or what the kernel finds faster and keeps in an eighth of
# the memory: numbers of the taps of each window (uint8).
_max_pool = op(
    "max_pool(input, kernel_size: any, stride: any, padding: any, dilation: any, ceil_mode: bool)",
    "pool.max_pool",
    batch="fold",
    outputs=("values", "indices"),
    selects=Selection(
        lambda input, indices, kernel_size, stride, padding, dilation: max_pool_gather(
            input, _in_plane(indices, input._array.shape, (kernel_size, stride, padding, dilation))
        ),
        lambda g, indices, input_shape, kernel_size, stride, padding, dilation: max_pool_grad(
            g, indices, input_shape, (kernel_size, stride, padding, dilation)
        ),
    ),
    batch_backward="pool.max_pool_of_batch_backward",
    shape=lambda x, kernel, stride, padding, dilation, ceil_mode: [
        (shape := _pool_shape(x.shape, kernel, stride, padding, dilation, ceil_mode), x.dtype),
        (shape, I64),
    ],
    backward_name="MaxPool2DWithIndicesBackward0",
    format_of=("input",),
    where=(),
)
_max_pool_values = op(  # without indices, which would take twice the memory
    "max_pool_values(input, kernel_size: any, stride: any, padding: any, dilation: any, ceil_mode: bool)",
    "pool.max_pool_values",
    batch="fold",
    twin=lambda *given: _max_pool(*given)[0],
    shape=lambda x, *windows: _pool_shape(x.shape, *windows),
    format_of=("input",),
    where=(),
)
max_pool_grad = op(
    "max_pool_grad(grad, indices, shape: any, windows: any)",
    "pool.max_pool_grad",
    batch="fold",
    linear="grad",
    grad=lambda g, indices, shape, windows: max_pool_gather(g, _in_plane(indices, shape, windows)),
    shape=lambda g, indices, shape, windows: (tuple(shape), g.dtype),
    format_of=("indices",),
    where=(),
)
_max_pool_indices = op(
    "max_pool_indices(places, shape: any, windows: any)",
    "pool.indices_of",
    batch="fold",
    shape=lambda places, shape, windows: (places.shape, I64),
    format_of=("places",),
    where=(),
)
max_pool_gather = op(
    "max_pool_gather(input, indices)",
    "pool.max_pool_gather",
    batch="fold",
    linear="input",
    input=lambda g, indices, input_shape: max_pool_grad(g, indices, input_shape, None),
    shape=lambda x, indices: (indices.shape, x.dtype),
    where=(),
)


def _in_plane(indices: Tensor, shape, windows) -> Tensor:
    """The indices that a max pooling found as PyTorch's: those within an image plane."""
    return _max_pool_indices(indices, shape, windows) if indices._array.dtype == U8 else indices


IN_PLANE = Selection(
    lambda input, indices: max_pool_gather(input, indices),
    lambda g, indices, input_shape: max_pool_grad(g, indices, input_shape, None),
)

_adaptive_max_pool = op(
    "adaptive_max_pool(input, output_size: any)",
    "pool.adaptive_max_pool",
    batch="fold",
    outputs=("values", "indices"),
    selects=IN_PLANE,
    shape=lambda x, size: [((*x.shape[: -len(size)], *size), x.dtype), ((*x.shape[: -len(size)], *size), I64)],
    backward_name="AdaptiveMaxPool2DBackward0",
    format_of=("input",),
    format_ranks=(4,),
    where=(),
)


def _mean_kernel(xp, x, *parameters):
    if x.dtype.kind in "iu":  # PyTorch's integer division truncates
        return xp.trunc(kernels.avg_pool(xp, x.astype(np.float64), *parameters)).astype(x.dtype)
    return kernels.avg_pool(xp, x, *parameters)


_avg_pool = op(
    "avg_pool(input, kernel_size: any, stride: any, padding: any, ceil_mode: bool, include: bool, divisor: any)",
    _mean_kernel,
    batch="fold",
    linear="input",
    input=lambda g, input_shape, kernel_size, stride, padding, ceil_mode, include, divisor: _avg_pool_grad(
        g, input_shape, kernel_size, stride, padding, ceil_mode, include, divisor
    ),
    shape=lambda x, kernel, stride, padding, ceil_mode, include, divisor: _pool_shape(
        x.shape, kernel, stride, padding, (1,) * len(kernel), ceil_mode
    ),
    backward_name="AvgPool2DBackward0",
    format_of=("input",),
    format_ranks=(4,),
    where=(),
)
_avg_pool_grad = op(
    "avg_pool_grad(grad, shape: any, kernel_size: any, stride: any, padding: any, ceil_mode: bool, include: bool, "
    "divisor: any)",
    "pool.avg_pool_grad",
    batch="fold",
    linear="grad",
    grad=lambda g, kernel_size, stride, padding, ceil_mode, include, divisor: _avg_pool(
        g, kernel_size, stride, padding, ceil_mode, include, divisor
    ),
    shape=lambda g, shape, *rest: (tuple(shape), g.dtype),
    format_of=("grad",),
    format_ranks=(4,),
    where=(),
)
_adaptive_avg_pool = op(
    "adaptive_avg_pool(input, output_size: any)",
    "pool.adaptive_avg_pool",
    batch="fold",
    linear="input",
    input=lambda g, input_shape: _adaptive_avg_pool_grad(g, input_shape),
    shape=lambda x, size: (*x.shape[: -len(size)], *size),
    backward_name="AdaptiveAvgPool2DBackward0",
    format_of=("input",),
    format_ranks=(4,),
    where=(),
)
_adaptive_avg_pool_grad = op(
    "adaptive_avg_pool_grad(grad, shape: any)",
    "pool.adaptive_avg_pool_grad",
    batch="fold",
    linear="grad",
    grad=lambda g, grad_shape: _adaptive_avg_pool(g, grad_shape[2:]),
    shape=lambda g, shape: (tuple(shape), g.dtype),
    format_of=("grad",),
    format_ranks=(4,),
    where=(),
)

# --- arguments -----------------------------------------------------------------------------------------------------

WORDS = {1: "one int", 2: "two ints", 3: "three ints"}


def _ints(name: str, parameter: str, value, dims: int) -> tuple[int, ...]:
    """Returns a parameter as one int per dimension. Raises: RuntimeError for another number of values."""
    if value.__class__ is int and SHORT_MIN <= value <= SHORT_MAX:
        return (value,) * dims
    values = as_integers(value, parameter)
    if len(values) == dims:
        return values
    if len(values) == 1:
        return values * dims
    raise RuntimeError(f"{name}: {parameter} must either be a single int, or a tuple of {WORDS[dims]}")


def _batched(name: str, shape: tuple, dims: int) -> bool:
    """Returns whether there is a batch dimension. Raises: RuntimeError if other dimensions are wrong or empty."""
    ranks = f"{dims + 1}D or {dims + 2}D (batch mode)"
    if len(shape) not in (dims + 1, dims + 2):
        if dims == 1:
            raise RuntimeError(
                f"{name}: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for input, but got:"
                f"{list(shape)}"
            )
        raise RuntimeError(f"non-empty {ranks} tensor expected for input")
    if 0 in shape[-dims - 1 :]:
        raise RuntimeError(f"Expected {ranks} tensor with optional 0 dim batch size for input, but got:{list(shape)}")
    return len(shape) == dims + 2


def _check_dtype(name: str, input: Tensor, integers: bool) -> None:
    kind = input._array.dtype.kind
    if kind in "bc" or (kind in "iu" and not integers):
        raise NotImplementedError(f"\"{name}\" not implemented for '{scalar_type(input)}'")


def _run(row, input: Tensor, batched: bool, *parameters):
    """Calls a row, adding a batch dimension if there is none."""
    if batched:
        return row(input, *parameters)
    result = row(input.unsqueeze(0), *parameters)
    return tuple(r.squeeze(0) for r in result) if isinstance(result, tuple) else result.squeeze(0)


def _no_stride(stride) -> bool:
    return stride is None or (isinstance(stride, tuple | list) and not stride)


LETTERS = ("L", "H, W", "D, H, W")


def _last(n: int, dims: int) -> str:
    """Formats, for examples, a size that is 1 in all `dims` dimensions but the last: "2", "(1, 2)", "(1, 1, 2)"."""
    return str(n) if dims == 1 else f"({'1, ' * (dims - 1)}{n})"


# --- maxima --------------------------------------------------------------------------------------------------------


def _max_pool_in_plane(input: Tensor, *parameters: Any) -> tuple[Tensor, Tensor]:
    """The maxima, and their indices within an image plane."""
    values, indices = _max_pool(input, *parameters)
    return values, _in_plane(indices, input._array.shape, parameters[:4])


def _max_pools(dims: int) -> None:
    name = f"max_pool{dims}d"

    def windows(shape, kernel_size, stride, padding, dilation, ceil_mode):
        """Returns whether there is a batch dimension, and the parameters with one int per dimension."""
        batched = _batched(name, shape, dims)
        kernel = _ints(name, "kernel_size", kernel_size, dims)
        stride = kernel if _no_stride(stride) else _ints(name, "stride", stride, dims)
        padding, dilation = _ints(name, "padding", padding, dims), _ints(name, "dilation", dilation, dims)
        if dims == 1 and padding[0] < 0:
            raise RuntimeError(f"max_pool1d() padding must be non-negative, but got {padding[0]}")
        _pool_shape(shape, kernel, stride, padding, dilation, ceil_mode)
        return batched, kernel, stride, padding, dilation

    known = lru_cache(maxsize=256)(windows)  # for plain ints only: 2.0, which is an error, would equal 2

    def pooled(row, input, kernel_size, stride, padding, dilation, ceil_mode):
        plain = kernel_size.__class__ is stride.__class__ is padding.__class__ is dilation.__class__ is int
        checked = known if plain else windows
        batched, *parameters = checked(input._array.shape, kernel_size, stride, padding, dilation, ceil_mode)
        _check_dtype("max_pool1d_impl" if dims == 1 else name, input, dims > 1)
        return _run(row, input, batched, *parameters, ceil_mode)

    def with_indices(
        input: Tensor, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False
    ) -> tuple[Tensor, Tensor]:
        return pooled(_max_pool_in_plane, input, kernel_size, stride, padding, dilation, ceil_mode)

    def max_pool(
        input: Tensor, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False
    ) -> Tensor:
        given = input, kernel_size, stride, padding, dilation, ceil_mode
        if return_indices:
            return pooled(_max_pool_in_plane, *given)
        if input.requires_grad and GRAD.enabled:
            found: Any = pooled(_max_pool, *given)
            return found[0]
        return pooled(_max_pool_values, *given)

    letters = LETTERS[dims - 1]
    max_pool.__doc__ = f"""Returns the largest value of each window of (N, C, {letters}) or (C, {letters}).

    Args:
        kernel_size, stride, padding, dilation: an int, or one for each dimension; `stride` is
            `kernel_size` unless given.
        ceil_mode: whether to round the size of the result up, so that a window may extend beyond the border.
        return_indices: whether to also return the indices of the maxima (int64, flat within an image plane).

    Raises:
        RuntimeError: If the sizes do not fit.

    >>> x = torch.arange(4.0).reshape(1, {"1, " * (dims - 1)}4)
    >>> torch.nn.functional.{name}(x, {_last(2, dims)}).flatten()
    tensor([1., 3.])
    """
    with_indices.__doc__ = f"""`{name}`, and the indices of the maxima (int64, flat within an image plane).

    >>> x = torch.arange(4.0).reshape(1, {"1, " * (dims - 1)}4)
    >>> values, indices = torch.nn.functional.{name}_with_indices(x, {_last(2, dims)})
    >>> indices.flatten()
    tensor([1, 3])
    """
    for function, public in ((max_pool, name), (with_indices, f"{name}_with_indices")):
        function.__name__ = function.__qualname__ = public
        export(public, function, "functional")
    FUNCTIONS[name] = max_pool
    if dims == 1:
        FUNCTIONS[f"{name}_with_indices"] = with_indices


def _output_size(name: str, value, size: tuple[int, ...], dims: int) -> tuple[int, ...]:
    """Returns the output size of an adaptive pooling; None keeps the input's. Raises: RuntimeError if it is invalid."""
    if dims > 1 and isinstance(value, tuple | list) and len(size) <= len(value):
        raise ValueError(f"Input dimension should be at least {len(value) + 1}")
    given = value if isinstance(value, tuple | list) else (value,) * dims
    as_integers([v for v in given if v is not None], "output_size")
    values = [None if v is None else v.__index__() for v in given]
    if len(values) != dims:
        raise RuntimeError(f"{name}: output_size must be {dims}")
    wanted = tuple((size[d - dims] if len(size) >= dims else 0) if v is None else v for d, v in enumerate(values))
    if any(v < 0 for v in wanted):
        raise RuntimeError(
            f"{name}: elements of output_size must be greater than or equal to 0 but received "
            f"{{{', '.join(map(str, wanted))}}}"
        )
    return wanted


def _adaptive_batched(name: str, shape: tuple[int, ...], dims: int, channels: bool) -> bool:
    """Returns whether there is a batch dimension. Only that one may be empty and, with `channels`, the channels."""
    if len(shape) not in (dims + 1, dims + 2):
        raise RuntimeError(f"{name}(): Expected {dims + 1}D or {dims + 2}D tensor, but got {list(shape)}")
    for d in range(len(shape) - dims if channels else 1, len(shape)):
        if not shape[d]:
            raise RuntimeError(
                f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes "
                f"{list(shape)} with dimension {d} being empty"
            )
    return len(shape) == dims + 2


def _adaptive_checked(name: str, shape: tuple[int, ...], value, dims: int, channels: bool) -> tuple[tuple, bool]:
    """Returns the output size, and whether there is a batch dimension."""
    return _output_size(name, value, shape, dims), _adaptive_batched(name, shape, dims, channels)


_adaptive_known = lru_cache(maxsize=256)(_adaptive_checked)  # for plain ints only: 2.0 would equal 2


def _adaptive(name: str, shape: tuple[int, ...], value, dims: int, channels: bool = False) -> tuple[tuple, bool]:
    checked = _adaptive_known if value.__class__ is int else _adaptive_checked
    return checked(name, shape, value, dims, channels)


def _adaptive_max_pools(dims: int) -> None:
    name = f"adaptive_max_pool{dims}d"

    def with_indices(input: Tensor, output_size, return_indices=False) -> tuple[Tensor, Tensor]:
        size, batched = _adaptive(name, input._array.shape, output_size, dims)
        _check_dtype("adaptive_max_pool2d" if dims == 1 else name, input, False)
        return _run(_adaptive_max_pool, input, batched, size)

    def adaptive_max_pool(input: Tensor, output_size, return_indices=False) -> Tensor:
        if output_size is None:  # one of several sizes may be
            raise wrong_argument(output_size, "output_size", "tuple of ints")
        results: Any = with_indices(input, output_size)
        return results if return_indices else results[0]

    letters = LETTERS[dims - 1]
    adaptive_max_pool.__doc__ = f"""Returns the maxima of `output_size` windows that evenly cover (N, C, {letters}).

    Window i extends from floor(i · size / output_size) to ceil((i + 1) · size / output_size). A None in `output_size`
    keeps that dimension.

    Raises:
        RuntimeError: If the sizes do not fit.

    >>> x = torch.arange(5.0).reshape(1, {"1, " * (dims - 1)}5)
    >>> torch.nn.functional.{name}(x, {_last(2, dims)}).flatten()
    tensor([2., 4.])
    """
    with_indices.__doc__ = f"""`{name}`, and the indices of the maxima (int64, flat within an image plane).

    >>> x = torch.arange(5.0).reshape(1, {"1, " * (dims - 1)}5)
    >>> values, indices = torch.nn.functional.{name}_with_indices(x, {_last(2, dims)})
    >>> indices.flatten()
    tensor([2, 4])
    """
    for function, public in ((adaptive_max_pool, name), (with_indices, f"{name}_with_indices")):
        function.__name__ = function.__qualname__ = public
        export(public, function, "functional")
    if dims == 1:
        FUNCTIONS[name] = with_indices


# --- means ---------------------------------------------------------------------------------------------------------


def _avg_pools(dims: int) -> None:
    name = f"avg_pool{dims}d"

    def avg_pool(
        input: Tensor, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True,
        divisor_override: int | None = None, *, out=None,
    ) -> Tensor:  # fmt: skip
        if dims == 1 and input._array.ndim not in (2, 3):
            raise RuntimeError(
                f"Expected 2 to 3 dimensions, but got {input._array.ndim}-dimensional tensor for argument #1 'self' "
                "(while checking arguments for avg_pool1d)"
            )
        batched = _batched(name, input._array.shape, dims)
        _check_dtype("avg_pool2d" if dims == 1 else name, input, True)
        if divisor_override == 0:
            raise RuntimeError("divisor must be not zero")
        kernel = _ints(name, "kernel_size", kernel_size, dims)
        stride = kernel if _no_stride(stride) else _ints(name, "stride", stride, dims)
        padding = _ints(name, "padding", padding, dims)
        _pool_shape(input._array.shape, kernel, stride, padding, (1,) * dims, ceil_mode)
        result = _run(
            _avg_pool, input, batched, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
        )
        return store_out("avg_pool", out, result)

    letters, divisor = LETTERS[dims - 1], ""
    if dims == 1:

        def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
            return avg_pool(input, kernel_size, stride, padding, ceil_mode, count_include_pad)

        function = avg_pool1d
    else:
        function = avg_pool
        divisor = "\n        divisor_override: the divisor of each window's sum; by default the window's size."
    function.__doc__ = f"""Returns the mean of each window of (N, C, {letters}) or (C, {letters}).

    Args:
        kernel_size, stride, padding: an int, or one for each dimension; `stride` is `kernel_size` unless given.
        ceil_mode: whether to round the size of the result up, so that a window may extend beyond the border.
        count_include_pad: whether the zeros of the padding count in the mean.{divisor}

    Raises:
        RuntimeError: If the sizes do not fit.

    >>> x = torch.arange(4.0).reshape(1, {"1, " * (dims - 1)}4)
    >>> torch.nn.functional.{name}(x, {_last(2, dims)}).flatten()
    tensor([0.5000, 2.5000])
    """
    function.__name__ = function.__qualname__ = name
    export(name, function, "functional", *(("function",) if dims == 1 else ()))


def _adaptive_avg_pools(dims: int) -> None:
    name = f"adaptive_avg_pool{dims}d"

    def adaptive_avg_pool(input: Tensor, output_size) -> Tensor:
        size, batched = _adaptive(name, input._array.shape, output_size, dims, channels=dims < 3)
        _check_dtype("adaptive_avg_pool2d" if dims == 1 else name, input, False)
        return _run(_adaptive_avg_pool, input, batched, size)

    letters = LETTERS[dims - 1]
    adaptive_avg_pool.__doc__ = f"""Returns the means of `output_size` windows that evenly cover (N, C, {letters}).

    Window i extends from floor(i · size / output_size) to ceil((i + 1) · size / output_size). A None in `output_size`
    keeps that dimension.

    Raises:
        RuntimeError: If the sizes do not fit.

    >>> torch.nn.functional.{name}(torch.ones(2, 3, {", ".join("5" * dims)}), 1).shape
    torch.Size([2, 3, {", ".join("1" * dims)}])
    """
    adaptive_avg_pool.__name__ = adaptive_avg_pool.__qualname__ = name
    export(name, adaptive_avg_pool, "functional", *(("function",) if dims == 1 else ()))


for _dims in (1, 2, 3):
    _max_pools(_dims)
    _adaptive_max_pools(_dims)
    _avg_pools(_dims)
    _adaptive_avg_pools(_dims)


# --- power means ---------------------------------------------------------------------------------------------------


def _lp_pools(dims: int) -> None:
    name = f"lp_pool{dims}d"

    def lp_pool(input: Tensor, norm_type, kernel_size, stride=None, ceil_mode=False) -> Tensor:
        kernel = _ints(name, "kernel_size", kernel_size, dims)
        if norm_type in (math.inf, -math.inf):
            side = 1 if norm_type > 0 else -1
            return FUNCTIONAL[f"max_pool{dims}d"](input.abs() * side, kernel, stride, 0, 1, ceil_mode) * side
        count = 1
        for k in kernel:
            count *= k
        mean = FUNCTIONAL[f"avg_pool{dims}d"](input.pow(norm_type), kernel, stride, 0, ceil_mode)
        return (mean.sign() * mean.abs().relu() * count).pow(1.0 / norm_type)

    lp_pool.__doc__ = f"""The p-norm (Σ xᵖ)^(1/p) of each window of (N, C, {LETTERS[dims - 1]}), p = `norm_type`.

    Args:
        norm_type: p, not 0; of an infinite one the result is the largest |x|, or the smallest.
        kernel_size, stride: an int, or one for each dimension; `stride` is `kernel_size` unless given.
        ceil_mode: whether to round the size of the result up, so that a window may extend beyond the border.

    >>> x = torch.tensor([3.0, 4.0, 1.0, 1.0]).reshape(1, {"1, " * (dims - 1)}4)
    >>> torch.nn.functional.{name}(x, 2, {_last(2, dims)}).flatten()
    tensor([5.0000, 1.4142])
    """
    lp_pool.__name__ = lp_pool.__qualname__ = name
    export(name, lp_pool, "functional")


def _max_unpools(dims: int) -> None:
    name = f"max_unpool{dims}d"

    def max_unpool(input: Tensor, indices: Tensor, kernel_size, stride=None, padding=0, output_size=None) -> Tensor:
        if input._array.shape != indices._array.shape:
            raise RuntimeError(
                f"Expected shape of indices to be same as that of the input tensor ({list(input.shape)}) but got "
                "indices "
                f"tensor with shape: {list(indices.shape)}"
            )
        if indices.dtype is not dtypes.int64:
            raise RuntimeError(f"elements in indices should be type int64 but got: {scalar_type(indices)}")
        if input._array.ndim not in (dims + 1, dims + 2):
            raise RuntimeError(
                f"Input to {name} should be a {dims + 1}d or {dims + 2}d Tensor, but got a tensor with "
                f"{input._array.ndim} dimensions"
            )
        kernel = _ints(name, "kernel_size", kernel_size, dims)
        stride = kernel if stride is None else _ints(name, "stride", stride, dims)
        padding = _ints(name, "padding", padding, dims)
        size = _unpooled_size(input, kernel, stride, padding, output_size)
        shape = input._array.shape
        for d in range(1, len(shape)):
            if not shape[d]:
                raise RuntimeError(
                    f"{name}: Expected input to have non-zero size for non-batch dimensions, but got {list(shape)} "
                    f"with dimension {d} being empty."
                )
        lead, count = shape[:-dims], math.prod(size)
        flat_shape = (*lead, math.prod(shape[-dims:]))
        flat_indices = indices.reshape(flat_shape)
        every = whole(indices)
        if every.numel() and not every.is_meta and not 0 <= int(every.min()) <= int(every.max()) < count:
            raise RuntimeError(f"Found an invalid max index: {int(every.max())} (output volumes are of size {size})")
        flat = input.new_zeros((*lead, count)).scatter(-1, flat_indices, input.reshape(flat_shape))
        return flat.reshape((*lead, *size)) if dims != 2 else in_format_of(input, flat.reshape((*lead, *size)))

    max_unpool.__doc__ = f"""Writes the values of `{name.replace("un", "")}` to their original positions, else zeros.

    `output_size` selects one of the sizes that are pooled to the input's.

    Raises:
        RuntimeError, ValueError: If sizes or indices do not fit.

    >>> x = torch.tensor([1.0, 3.0, 2.0, 0.0]).reshape(1, {"1, " * (dims - 1)}4)
    >>> values, indices = torch.nn.functional.{name.replace("un", "")}(x, {_last(2, dims)}, return_indices=True)
    >>> torch.nn.functional.{name}(values, indices, {_last(2, dims)}).flatten()
    tensor([0., 3., 2., 0.])
    """
    max_unpool.__name__ = max_unpool.__qualname__ = name
    export(name, max_unpool, "functional")


def _unpooled_size(input: Tensor, kernel, stride, padding, output_size) -> tuple[int, ...]:
    dims = len(kernel)
    default = tuple(
        (n - 1) * s + k - 2 * p for n, k, s, p in zip(input._array.shape[-dims:], kernel, stride, padding, strict=True)
    )
    if output_size is None:
        return default
    size = tuple(output_size)
    if len(size) == dims + 2:
        size = size[2:]
    if len(size) != dims:
        raise ValueError(
            f"output_size should be a sequence containing {dims} or {dims + 2} elements, but it has a length of "
            f"'{len(size)}'"
        )
    for d in range(dims):
        low, high = default[d] - stride[d], default[d] + stride[d]
        if not low < size[d] < high:
            raise ValueError(f'invalid output_size "{list(size)}" (dim {d} must be between {low} and {high})')
    return size


for _dims in (1, 2, 3):
    _lp_pools(_dims)
    _max_unpools(_dims)
