"""Convolution and its transpose, with one row each for one, two and three spatial dimensions.

`conv`, its gradient by the input and its gradient by the weights are the three partial derivatives of one trilinear
form: the gradients of each are the other two, so derivatives of any order stay within these rows.
"""

from __future__ import annotations

import math

from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dtypes import F32, c_type, scalar_type
from tensorgrad.errors import SHORT_MAX, SHORT_MIN, as_integers
from tensorgrad.kernels.array import fold as fold_kernels
from tensorgrad.ops.nn.conv_shape import conv_shape, conv_transpose_shape
from tensorgrad.ops.pointwise import conj
from tensorgrad.ops.rearrange import pad
from tensorgrad.tensor import Tensor


def _check_types(x, w, bias, transposed=False):
    """Raises: RuntimeError if the dtypes differ or the bias does not fit."""
    if x.dtype is not w.dtype and x.dtype != w.dtype and (transposed or bias is None or bias.dtype == x.dtype):
        raise RuntimeError(f"expected scalar type {scalar_type(x)} but found {scalar_type(w)}")
    if bias is not None and bias.dtype != x.dtype:
        raise RuntimeError(f"Input type ({c_type(x)}) and bias type ({c_type(bias)}) should be the same")
    if x.dtype.kind == "b":
        raise NotImplementedError("\"slow_conv2d_cpu\" not implemented for 'Bool'")


def _check_bias(w, bias, channels, what):
    if bias.shape != (channels,):
        raise RuntimeError(
            f"Given {what}weight of size {list(w.shape)}, expected bias to be 1-dimensional with {channels} elements, "
            f"but got bias of size {list(bias.shape)} instead"
        )


def _conv_prepare(x, w, bias, stride, padding, dilation, groups):
    if not (x.dtype is w.dtype is F32 and bias is None):
        _check_types(x, w, bias)
    conv_shape(x.shape, w.shape, stride, padding, dilation, groups)
    if bias is not None:
        _check_bias(w, bias, w.shape[0], "")
    return x, w, bias, stride, padding, dilation, groups


def _transpose_prepare(x, w, bias, stride, padding, output_padding, dilation, groups):
    _check_types(x, w, bias, transposed=True)
    conv_transpose_shape(x.shape, w.shape, stride, padding, output_padding, dilation, groups)
    if bias is not None:
        _check_bias(w, bias, w.shape[1] * groups, "transposed=1, ")
    return x, w, bias, stride, padding, output_padding, dilation, groups


def _bias_gradient(g, bias_shape):
    if g._array.shape[1:2] != bias_shape:  # in PyTorch, too, no input channels means no output channels
        return g.new_zeros(bias_shape)
    return g.sum((0, *range(2, g.ndim)))


def _cropped(x: Tensor, shape: tuple) -> Tensor:
    """Crops `x` at the end to `shape`: a stride may leave room for windows that the forward pass did not have."""
    for dim, n in enumerate(shape):
        if x._array.shape[dim] != n:
            x = x.narrow(dim, 0, n)
    return x


def _transposed_back(g: Tensor, weight: Tensor, shape: tuple, *settings) -> Tensor:
    """Returns the gradient of a transposed convolution for its input, which may be empty."""
    if not (math.prod(shape) and g.numel()):
        return g.new_zeros(shape)
    return _cropped(_conv(g, conj(weight), None, *settings), shape)


def _side_by_side(x: Tensor, mapped: bool, size: int) -> Tensor:
    """The channels (N, C, ...) of all samples beside each other: (N, size · C, ...)."""
    return (x.movedim(0, 1) if mapped else x.unsqueeze(1).expand(-1, size, *x.shape[1:])).flatten(1, 2)


def _apart(x: Tensor, size: int) -> Tensor:
    """The reverse of `_side_by_side`, with the batch first."""
    return x.unflatten(1, (size, x.shape[1] // size)).movedim(1, 0)


def _on_batch(row, input, weight, bias, settings, groups, size, mapped, transposed=False):
    """A convolution on values with a batch: with one weight, samples are more images; else each is a group."""
    if "weight" not in mapped:
        added, images = "bias" in mapped, input.flatten(0, 1) if "input" in mapped else input
        made = row(images, weight, None if added else bias, *settings, groups)
        if "input" in mapped:
            made = made.unflatten(0, (size, input.shape[1]))
        return made + bias.reshape(size, 1, -1, *(1,) * (weight.ndim - 2)) if added else made
    rank = weight.ndim - 3
    if "input" not in mapped and groups == 1 and not transposed:
        made = _apart(row(input, weight.flatten(0, 1), None, *settings, 1), size)
    else:
        beside = _side_by_side(input, "input" in mapped, size)
        made = _apart(row(beside, weight.flatten(0, 1), None, *settings, groups * size), size)
    return made if bias is None else made + bias.reshape(-1 if "bias" in mapped else 1, 1, bias.shape[-1], *(1,) * rank)


def _grad_input_of_batch(grad, weight, shape, stride, padding, dilation, groups, size, mapped):
    if "weight" not in mapped:
        made = _grad_input(grad.flatten(0, 1), weight, (size * shape[0], *shape[1:]), stride, padding, dilation, groups)
        return made.unflatten(0, (size, shape[0]))
    beside = _side_by_side(grad, "grad" in mapped, size)
    shape = (shape[0], size * shape[1], *shape[2:])
    return _apart(_grad_input(beside, weight.flatten(0, 1), shape, stride, padding, dilation, groups * size), size)


def _grad_weight_of_batch(grad, input, shape, stride, padding, dilation, groups, size, mapped):
    beside = [_side_by_side(x, name in mapped, size) for name, x in (("grad", grad), ("input", input))]
    made = _grad_weight(*beside, (size * shape[0], *shape[1:]), stride, padding, dilation, groups * size)
    return made.unflatten(0, (size, shape[0]))


_conv = op(
    "conv(input, weight, bias=None, stride: any = (), padding: any = (), dilation: any = (), groups: int = 1)",
    "conv.conv",
    linear="input * weight + bias",
    batch=lambda input, weight, bias, stride, padding, dilation, groups, size, mapped: _on_batch(
        _conv, input, weight, bias, (stride, padding, dilation), groups, size, mapped
    ),
    batch_kernel="conv.conv_of_batch",
    batch_backward="conv.conv_of_batch_backward",
    prepare=_conv_prepare,
    input=lambda g, weight, input_shape, stride, padding, dilation, groups: _grad_input(
        g, conj(weight), input_shape, stride, padding, dilation, groups
    ),
    weight=lambda g, input, weight_shape, stride, padding, dilation, groups: _grad_weight(
        g, conj(input), weight_shape, stride, padding, dilation, groups
    ),
    bias=_bias_gradient,
    shape=lambda x, w, bias, *rest: conv_shape(x.shape, w.shape, *rest),
    backward_name="ConvolutionBackward0",
    format_of=("input", "weight"),
    where=(),
)
_grad_input = op(
    "conv_grad_input(grad, weight, shape: any, stride: any, padding: any, dilation: any, groups: int)",
    "conv.conv_grad_input",
    linear="grad * weight",
    batch=_grad_input_of_batch,
    grad=lambda g, weight, grad_shape, stride, padding, dilation, groups: _cropped(
        _conv(g, conj(weight), None, stride, padding, dilation, groups), grad_shape
    ),
    weight=lambda g, grad, weight_shape, stride, padding, dilation, groups: _grad_weight(
        conj(grad), g, weight_shape, stride, padding, dilation, groups
    ),
    shape=lambda g, w, shape, *rest: tuple(shape),
    format_of=("grad", "weight"),
    where=(),
)
_grad_weight = op(
    "conv_grad_weight(grad, input, shape: any, stride: any, padding: any, dilation: any, groups: int)",
    "conv.conv_grad_weight",
    linear="grad * input",
    batch=_grad_weight_of_batch,
    grad=lambda g, input, grad_shape, stride, padding, dilation, groups: _cropped(
        _conv(conj(input), g, None, stride, padding, dilation, groups), grad_shape
    ),
    input=lambda g, grad, input_shape, stride, padding, dilation, groups: _grad_input(
        conj(grad), g, input_shape, stride, padding, dilation, groups
    ),
    shape=lambda g, x, shape, *rest: tuple(shape),
    where=(),
)
_conv_transpose = op(
    "conv_transpose(input, weight, bias=None, stride: any = (), padding: any = (), output_padding: any = (), "
    "dilation: any = (), groups: int = 1)",
    "conv.conv_transpose",
    linear="input * weight + bias",
    batch=lambda input, weight, bias, stride, padding, output_padding, dilation, groups, size, mapped: _on_batch(
        _conv_transpose, input, weight, bias, (stride, padding, output_padding, dilation), groups, size, mapped, True
    ),
    prepare=_transpose_prepare,
    input=lambda g, weight, input_shape, stride, padding, dilation, groups: _transposed_back(
        g, weight, input_shape, stride, padding, dilation, groups
    ),
    weight=lambda g, input, weight_shape, stride, padding, dilation, groups: _grad_weight(
        conj(input), g, weight_shape, stride, padding, dilation, groups
    ),
    bias=_bias_gradient,
    shape=lambda x, w, bias, *rest: conv_transpose_shape(x.shape, w.shape, *rest),
    backward_name="ConvolutionBackward0",
    format_of=("input", "weight"),
    where=(),
)

# --- PyTorch's functions -------------------------------------------------------------------------------------------


def _expanded(name: str, value, dims: int) -> tuple[int, ...]:
    """Returns a parameter as one int per spatial dimension. Raises: RuntimeError for another number of values."""
    if value.__class__ is int and SHORT_MIN <= value <= SHORT_MAX:
        return (value,) * dims
    if value.__class__ is tuple and len(value) == dims:
        for v in value:
            if v.__class__ is not int or not SHORT_MIN <= v <= SHORT_MAX:
                break
        else:
            return value
    values = as_integers(value, name)
    if len(values) == dims:
        return values
    if len(values) == 1:
        return values * dims
    raise RuntimeError(
        f"expected {name} to be a single integer value or a list of {dims} values to match the convolution dimensions, "
        f"but got {name}={list(values)}"
    )


def _batched(name: str, dims: int, input: Tensor) -> bool:
    """Returns whether the input has a batch dimension. Raises: RuntimeError for a wrong number of dimensions."""
    ndim = input._array.ndim
    if ndim not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to {name}, but got input of size: "
            f"{list(input.shape)}"
        )
    return ndim == dims + 2


def _spatial(input: Tensor, weight: Tensor, stride, dims: int) -> int:
    """Returns the number of the weight's spatial dimensions. Raises: RuntimeError unless the input has as many."""
    found = weight._array.ndim - 2
    if found != dims:
        given = [stride] * dims if stride.__class__ is int else stride
        _expanded("stride", given, found)
        raise RuntimeError(
            f"Expected {found + 2}-dimensional input for {found + 2}-dimensional weight {list(weight.shape)}, but got "
            f"{dims + 2}-dimensional input of size {list(input.shape)} instead"
        )
    return found


def _same_padding(input: Tensor, weight: Tensor, stride, dilation):
    """For `padding="same"`, returns the (padded) input, and the remaining padding for both sides."""
    if any(s != 1 for s in stride):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    totals = [d * (k - 1) for k, d in zip(weight._array.shape[2:], dilation, strict=True)]
    if any(t % 2 for t in totals):  # pad one more at the end
        amounts = [a for t in reversed(totals) for a in (0, t % 2)]
        input = pad(input, amounts)
    return input, tuple(t // 2 for t in totals)


def _forward(dims: int):
    name = f"conv{dims}d"

    def conv(
        input: Tensor, weight: Tensor, bias: Tensor | None = None, stride=1, padding=0, dilation=1, groups: int = 1
    ) -> Tensor:
        batched = _batched(name, dims, input)
        if weight._array.ndim != dims + 2:
            _spatial(input, weight, stride, dims)
        if not batched:
            input = input.unsqueeze(0)
        stride, dilation = _expanded("stride", stride, dims), _expanded("dilation", dilation, dims)
        if padding.__class__ is str:
            if padding not in ("same", "valid"):
                raise RuntimeError(f"Invalid padding string: '{padding}'")
            if padding == "same":
                input, padding = _same_padding(input, weight, stride, dilation)
            else:
                padding = 0
        result = _conv(input, weight, bias, stride, _expanded("padding", padding, dims), dilation, groups)
        return result if batched else result.squeeze(0)

    letters = ("L", "H, W", "D, H, W")[dims - 1]
    conv.__doc__ = f"""Convolves (cross-correlates) over {dims} spatial dimension{"s" * (dims > 1)}.

    Args:
        input: (N, C, {letters}), or (C, {letters}) without a batch dimension.
        weight: (out channels, C / groups, *kernel).
        bias: (out channels,) or None.
        stride, padding, dilation: an int, or one for each dimension; `padding` may also be "valid" (none) or "same"
            (enough to keep the size; stride 1 only).
        groups: the number of groups of channels that are convolved independently.

    Returns:
        A tensor (N, out channels, ...), of size ⌊(n + 2 padding - dilation (kernel - 1) - 1) / stride⌋ + 1 for each n.

    Raises:
        RuntimeError: If the sizes or dtypes do not fit together.

    >>> x, w = torch.ones(1, 3, {", ".join("8" * dims)}), torch.ones(4, 3, {", ".join("3" * dims)})
    >>> torch.nn.functional.{name}(x, w, padding=1).shape
    torch.Size([1, 4, {", ".join("8" * dims)}])
    """
    return composite("function", "functional", name=name)(conv)


def _transposed(dims: int):
    name = f"conv_transpose{dims}d"

    def conv(
        input: Tensor, weight: Tensor, bias: Tensor | None = None, stride=1, padding=0, output_padding=0,
        groups: int = 1, dilation=1,
    ) -> Tensor:  # fmt: skip
        batched = _batched(name, dims, input)
        if weight._array.ndim != dims + 2:
            _spatial(input, weight, stride, dims)
        if not batched:
            input = input.unsqueeze(0)
        result = _conv_transpose(
            input,
            weight,
            bias,
            _expanded("stride", stride, dims),
            _expanded("padding", padding, dims),
            _expanded("output_padding", output_padding, dims),
            _expanded("dilation", dilation, dims),
            groups,
        )
        return result if batched else result.squeeze(0)

    letters = ("L", "H, W", "D, H, W")[dims - 1]
    conv.__doc__ = f"""The transpose of `conv{dims}d`: every input element contributes to a window of the result.

    Args:
        input: (N, C, {letters}), or (C, {letters}) without a batch dimension.
        weight: (C, out channels / groups, *kernel).
        output_padding: added to the size of the result, at the end.
        (others as in `conv{dims}d`)

    Returns:
        A tensor (N, out channels, ...), of size (n - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1
        for each n.

    Raises:
        RuntimeError: If the sizes or dtypes do not fit together.

    >>> x, w = torch.ones(1, 3, {", ".join("4" * dims)}), torch.ones(3, 2, {", ".join("2" * dims)})
    >>> torch.nn.functional.{name}(x, w, stride=2).shape
    torch.Size([1, 2, {", ".join("8" * dims)}])
    """
    return composite("function", "functional", name=name)(conv)


for _function in (_forward, _transposed):
    for _dims in (1, 2, 3):
        _made = _function(_dims)
        _made.__name__ = _made.__qualname__ = f"{'conv' if _function is _forward else 'conv_transpose'}{_dims}d"
        globals()[_made.__name__] = _made


@composite("function")
def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups) -> Tensor:
    """The common implementation of `conv1d` ... `conv_transpose3d`; `input` (N, C, *S) has a batch dimension.

    >>> x, w = torch.ones(1, 1, 4), torch.ones(1, 1, 2)
    >>> torch.convolution(x, w, None, (2,), (0,), (1,), False, (0,), 1)
    tensor([[[2., 2.]]])
    """
    dims = weight.dim() - 2
    stride, padding, dilation = (
        _expanded(n, v, dims) for n, v in (("stride", stride), ("padding", padding), ("dilation", dilation))
    )
    if not transposed:
        return _conv(input, weight, bias, stride, padding, dilation, groups)
    extra = _expanded("output_padding", output_padding, dims)
    return _conv_transpose(input, weight, bias, stride, padding, extra, dilation, groups)


@composite("function", "functional")
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Computes `conv1d` in the layout (time, batch, channels): (T, N, C), weight (K, C, D), bias (D) to (T', N, D).

    Args:
        pad: the number of zeros before the first and after the last time step.

    Raises:
        RuntimeError: If the sizes do not fit together.

    >>> x = torch.tensor([1.0, 2.0, 4.0]).reshape(3, 1, 1)
    >>> torch.conv_tbc(x, torch.ones(2, 1, 1), torch.zeros(1)).flatten()
    tensor([3., 6.])
    """
    if input.ndim != 3:
        raise RuntimeError("Input must have 3 dims: time, batch, in_channel")
    if weight.ndim != 3:
        raise RuntimeError("Weight tensor must have 3 dims: kernel_width, in_channels, out_channels.")
    if bias.ndim != 1:
        raise RuntimeError("Bias must be 1-D")
    if input._array.shape[2] != weight._array.shape[1]:
        raise RuntimeError("Input dim 2 (input channels) is not == dim 1 in the weight tensor")
    if bias._array.shape[0] != weight._array.shape[2]:
        raise RuntimeError("Bias size must equal dim 2 in the weight tensor (output channels).")
    signals, kernel = input.permute(1, 2, 0), weight.permute(2, 1, 0)
    return _conv(signals, kernel, bias, (1,), (pad,), (1,), 1).permute(2, 0, 1).contiguous()


# --- windows as columns --------------------------------------------------------------------------------------------


def _check_columns(name: str):
    def check(x, *rest):
        if x.dtype.kind in "iu":
            raise NotImplementedError(f"\"{name}\" not implemented for '{scalar_type(x)}'")
        return (x, *rest)

    return check


def _unfold_shape(x, kernel, dilation, padding, stride):
    points = fold_kernels.blocks_of(x.shape[2:], kernel, dilation, padding, stride)
    taps, windows = 1, 1
    for k, p in zip(kernel, points, strict=True):
        taps, windows = taps * k, windows * p
    return x.shape[0], x.shape[1] * taps, windows


_unfold = op(
    "im2col(input, kernel_size: any, dilation: any, padding: any, stride: any)",
    "fold.unfold",
    batch="fold",
    linear="input",
    prepare=_check_columns("im2col_out_cpu"),
    input=lambda g, input_shape, kernel_size, dilation, padding, stride: _fold(
        g, input_shape[2:], kernel_size, dilation, padding, stride
    ),
    shape=_unfold_shape,
    where=(),
)
_fold = op(
    "col2im(input, output_size: any, kernel_size: any, dilation: any, padding: any, stride: any)",
    "fold.fold",
    batch="fold",
    linear="input",
    prepare=_check_columns("col2im_out_cpu"),
    input=lambda g, kernel_size, dilation, padding, stride: _unfold(g, kernel_size, dilation, padding, stride),
    shape=lambda x, size, kernel, *rest: (x.shape[0], x.shape[1] // (kernel[0] * kernel[1]), *size),
    where=(),
)


def _pairs(**parameters):
    """Returns each parameter as two ints. Raises: RuntimeError for another number of values, or values too small."""
    found = []
    for name, value in parameters.items():
        values = as_integers(value if isinstance(value, tuple | list) else (value, value), name)
        values = values * 2 if len(values) == 1 else values
        if len(values) != 2:
            raise RuntimeError(f"It is expected {name} equals to 2, but got size {len(values)}")
        if any(v < (0 if name == "padding" else 1) for v in values):
            least = "non-negative" if name == "padding" else "greater than zero"
            raise RuntimeError(
                f"{name} should be {least}, but got {name}_height: {values[0]} {name}_width: {values[1]}"
            )
        found.append(values)
    return found


def _described(kernel, dilation, padding) -> str:
    return f"kernel_size={kernel}, dilation={dilation}, padding={padding}"


@composite("functional")
def unfold(input: Tensor, kernel_size, dilation=1, padding=0, stride=1) -> Tensor:
    """Extracts the windows of images (N, C, H, W) as columns, (N, C · taps, windows). The batch dimension is optional.

    Raises:
        RuntimeError: If no window fits.

    >>> torch.nn.functional.unfold(torch.ones(1, 2, 4, 4), 2).shape
    torch.Size([1, 8, 9])
    """
    kernel, dilation, padding, stride = _pairs(
        kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride
    )
    if input.dim() == 2:
        raise IndexError("Dimension out of range (expected to be in range of [-2, 1], but got 2)")
    shape = tuple(input.shape)
    if input.dim() not in (3, 4) or 0 in shape[-3:]:
        raise RuntimeError(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, "
            f"but got: {list(shape)}"
        )
    points = fold_kernels.blocks_of(shape[-2:], kernel, dilation, padding, stride)
    if min(points) < 1:
        raise RuntimeError(
            f"Given input with spatial size {shape[-2:]}, {_described(kernel, dilation, padding)}, calculated shape of "
            f"the array of sliding blocks as {points}, but its components must be at least one."
        )
    batched = input.dim() == 4
    result = _unfold(input if batched else input.unsqueeze(0), kernel, dilation, padding, stride)
    return result if batched else result.squeeze(0)


@composite("functional")
def fold(input: Tensor, output_size, kernel_size, dilation=1, padding=0, stride=1) -> Tensor:
    """The transpose of `unfold`: sums columns (N, C · taps, windows) into images (N, C, *output_size).

    Raises:
        RuntimeError: If the number or size of the columns does not match the other arguments.

    >>> torch.nn.functional.fold(torch.ones(1, 4, 4), (3, 3), 2)[0, 0]
    tensor([[1., 2., 1.],
            [2., 4., 2.],
            [1., 2., 1.]])
    """
    kernel, dilation, padding, stride = _pairs(
        kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride
    )
    size = as_integers(output_size, "output_size")
    size = size * 2 if len(size) == 1 else size
    if input.dim() not in (2, 3) or 0 in input._array.shape[-2:]:
        raise RuntimeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions for "
            f"input, but got: {list(input.shape)}"
        )
    rows, columns = input._array.shape[-2:]
    first = input.dim() - 2
    if rows % (kernel[0] * kernel[1]):
        raise RuntimeError(
            f"Expected size of input's dimension {first} to be divisible by the product of kernel_size, but got "
            f"input.size({first})={rows} and kernel_size={kernel}."
        )
    points = fold_kernels.blocks_of(size, kernel, dilation, padding, stride)
    given = f"Given output_size={size}, {_described(kernel, dilation, padding)}, stride={stride}"
    if min(points) < 1:
        raise RuntimeError(f"{given}, which is too small (non-positive): the sliding blocks are {points}")
    if columns != points[0] * points[1]:
        raise RuntimeError(
            f"{given}, expected size of input's dimension {first + 1} to match the calculated number of sliding blocks "
            f"{points[0]} * {points[1]} = {points[0] * points[1]}, but got input.size({first + 1})={columns}."
        )
    batched = input.dim() == 3
    result = _fold(input if batched else input.unsqueeze(0), size, kernel, dilation, padding, stride)
    return result if batched else result.squeeze(0)
