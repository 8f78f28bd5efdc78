"""The shape of a convolution's result, and what PyTorch says of arguments that do not fit together.

On the meta device this is all that a convolution computes.
"""

from __future__ import annotations

from functools import lru_cache

from tensorgrad.kernels.array import conv as kernels


@lru_cache(maxsize=256)
def conv_shape(x_shape, w_shape, stride, padding, dilation, groups):
    """The shape of `conv`'s result for `x` of (N, C, *S) and `w` of (O, C / groups, *K).

    Raises: RuntimeError, with PyTorch's message, if the arguments do not fit together.

    >>> from tensorgrad.ops.nn.conv_shape import conv_shape
    >>> conv_shape((1, 3, 32, 32), (16, 3, 5, 5), (2, 2), (0, 0), (1, 1), 1)
    (1, 16, 14, 14)
    """
    _check_parameters(stride, padding, dilation, groups)
    _check_weight(w_shape, groups)
    if x_shape[1] != w_shape[1] * groups:
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(w_shape)}, expected input{list(x_shape)} to have "
            f"{w_shape[1] * groups} channels, but got {x_shape[1]} channels instead"
        )
    padded = [s + 2 * p for s, p in zip(x_shape[2:], padding)]
    reach = [d * (k - 1) + 1 for k, d in zip(w_shape[2:], dilation)]
    if any(s < r for s, r in zip(padded, reach)):
        raise RuntimeError(
            f"Calculated padded input size per channel: ({_times(padded)}). Kernel size: ({_times(reach)}). "
            "Kernel size can't be greater than actual input size"
        )
    _check_sizes(x_shape, w_shape)
    points = kernels.conv_points(x_shape[2:], w_shape[2:], stride, padding, dilation)
    return (x_shape[0], w_shape[0] if x_shape[1] else 0, *points)  # PyTorch: no channels in, none out


@lru_cache(maxsize=256)
def conv_transpose_shape(x_shape, w_shape, stride, padding, output_padding, dilation, groups):
    """The shape of `conv_transpose`'s result for `x` of (N, C, *S) and `w` of (C, O / groups, *K).

    Raises: RuntimeError, with PyTorch's message, if the arguments do not fit together.

    >>> from tensorgrad.ops.nn.conv_shape import conv_transpose_shape
    >>> conv_transpose_shape((1, 8, 7, 7), (8, 4, 3, 3), (2, 2), (1, 1), (1, 1), (1, 1), 1)
    (1, 4, 14, 14)
    """
    _check_parameters(stride, padding, dilation, groups)
    if any(p < 0 for p in output_padding):
        raise RuntimeError("negative output_padding is not supported")
    _check_weight(w_shape, groups)
    if x_shape[1] != w_shape[0]:
        raise RuntimeError(
            f"Given transposed=1, weight of size {list(w_shape)}, expected input{list(x_shape)} to have "
            f"{w_shape[0]} channels, but got {x_shape[1]} channels instead"
        )
    _check_sizes(x_shape, w_shape)
    if any(p >= s and p >= d for p, s, d in zip(output_padding, stride, dilation)):
        # PyTorch names height and width in one dimension too
        groups_of = (("output_padding", output_padding, 0), ("stride", stride, 1), ("dilation", dilation, 1))
        words = " ".join(_named(name, values, fill, "_") for name, values, fill in groups_of)
        raise RuntimeError(f"output padding must be smaller than either stride or dilation, but got {words}")
    size = kernels.transposed_conv_points(x_shape[2:], w_shape[2:], stride, padding, output_padding, dilation)
    if any(s < (1 if x_shape[0] else 0) for s in size):  # PyTorch allows an empty batch to have empty images
        before, after = list(x_shape[2:]), list(size)
        if len(size) == 1:
            before, after = [1, *before], [1, *after]
        raise RuntimeError(
            f"Given input size per channel: ({_times(before)}). "
            f"Calculated output size per channel: ({_times(after)}). Output size is too small"
        )
    return (x_shape[0], w_shape[1] * groups, *size)


def _check_parameters(stride, padding, dilation, groups):
    if any(p < 0 for p in padding):
        raise RuntimeError("negative padding is not supported")
    if any(s <= 0 for s in stride):
        raise RuntimeError("non-positive stride is not supported")
    if any(d <= 0 for d in dilation):
        raise RuntimeError(f"dilation should be greater than zero, but got {list(dilation)}")
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")


def _check_weight(w_shape, groups):
    if w_shape[0] < groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, "
            f"but got weight of size {list(w_shape)} instead"
        )
    if w_shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
            f"but got weight of size [{list(w_shape)}] instead"
        )


def _check_sizes(x_shape, w_shape):
    if any(k <= 0 for k in w_shape[2:]):
        words = _named("kernel", w_shape[2:], 1, "_")
        raise RuntimeError(f"kernel size should be greater than zero, but got {words}")
    if x_shape[0] and x_shape[1] and 0 in x_shape[2:]:
        shown = list(x_shape) if len(x_shape) > 3 else [*x_shape[:2], 1, *x_shape[2:]]
        raise RuntimeError(f"Only zero batch or zero channel inputs are supported, but got input shape: {shown}")


def _named(name, values, fill, joint):
    """Formats `height: 1 width: 2` and the like; PyTorch runs one dimension as two, the first of them filled in."""
    values = (fill, *values) if len(values) == 1 else tuple(values)
    words = ("depth", "height", "width")[-len(values) :]
    return " ".join(f"{name}{joint}{word}: {value}" for word, value in zip(words, values))


def _times(sizes):
    return " x ".join(map(str, sizes))
