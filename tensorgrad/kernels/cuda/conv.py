"""Convolution on GPUs: the counterpart of `kernels/array/conv.py`, with the same shapes and parameters.

There are four ways, in this order: depthwise convolutions by a kernel of our own; 1×1 windows as matrix products;
others by cuDNN; and, if that is missing, switched off or does not support the arguments (complex numbers), as a product
of the weights with the windows written out as columns. Integers use the general kernel.
"""

from __future__ import annotations

from math import prod

import cupy
import numpy as np

from tensorgrad.kernels.array.conv import conv_points, transposed_conv_points
from tensorgrad.kernels.cuda.matmul import product
from tensorgrad.kernels.cuda.runtime import cublas, cudnn, program, switches

COLUMNS_BYTES = 256 << 20  # columns are made for as many images at a time as fit
BLOCK = 256


def conv(x, w, bias, stride, padding, dilation, groups):
    """Computes the convolution of `x` (N, C, *S) with `w` (O, C / groups, *K) plus `bias`, (O,) or None."""
    if x.dtype not in cublas.TYPES:
        return NotImplemented
    points = conv_points(x.shape[2:], w.shape[2:], stride, padding, dilation)
    shape = (x.shape[0], w.shape[0] if x.shape[1] else 0, *points)
    if not prod(shape):
        return cupy.empty(shape, x.dtype)
    if depthwise(x.shape, w.shape, groups, x.dtype):
        return _depthwise(x, w, bias, shape, stride, padding, dilation)
    if pointwise(w.shape, stride, padding, groups):
        out = _mixed(x, w.reshape(w.shape[:2]))
    else:
        out = None
        if cudnn.serves(x):
            out = cudnn.convolve("forward", x, w, shape, stride, padding, dilation, groups)
        if out is None:
            out = _by_columns(x, w, shape, stride, padding, dilation, groups)
    if bias is not None:
        out += bias.reshape(-1, *[1] * len(points))
    return out


def conv_grad_input(g, w, x_shape, stride, padding, dilation, groups):
    """Computes the gradient of `conv` for its input, of shape `x_shape`, from the output's gradient and the weights."""
    if g.dtype not in cublas.TYPES:
        return NotImplemented
    if not g.size or not prod(x_shape):
        return cupy.zeros(x_shape, g.dtype)
    if depthwise(x_shape, w.shape, groups, g.dtype):
        return _depthwise_input(g, w, x_shape, stride, padding, dilation)
    if pointwise(w.shape, stride, padding, groups) and g.shape[2:] == tuple(x_shape[2:]):
        return _mixed(g, w.reshape(w.shape[:2]).T)
    if cudnn.serves(g) and conv_points(x_shape[2:], w.shape[2:], stride, padding, dilation) == g.shape[2:]:
        out = cudnn.convolve("input", w, g, tuple(x_shape), stride, padding, dilation, groups)
        if out is not None:
            return out
    return _from_columns(g, w, x_shape, stride, padding, dilation, groups)


def conv_grad_weight(g, x, w_shape, stride, padding, dilation, groups):
    """Computes the gradient of `conv` for its weights, of shape `w_shape`, from the output's gradient and the input."""
    if g.dtype not in cublas.TYPES:
        return NotImplemented
    if not g.size or not prod(w_shape) or not x.size:
        return cupy.zeros(w_shape, g.dtype)
    if depthwise(x.shape, w_shape, groups, g.dtype):
        return _depthwise_weight(g, x, w_shape, stride, padding, dilation)
    if pointwise(w_shape, stride, padding, groups) and _by_rows(g) and _by_rows(x) and g.shape[2:] == x.shape[2:]:
        left, right = _rows(g), _rows(x)
        return product(left.T, right, switches.cudnn.allow_tf32).reshape(w_shape)
    if cudnn.serves(x) and conv_points(x.shape[2:], w_shape[2:], stride, padding, dilation) == g.shape[2:]:
        out = cudnn.convolve("weight", x, g, tuple(w_shape), stride, padding, dilation, groups)
        if out is not None:
            return out
    return _against_columns(g, x, w_shape, stride, padding, dilation, groups)


def conv_transpose(x, w, bias, stride, padding, output_padding, dilation, groups):
    """Computes the transposed convolution of `x` (N, C, *S) with `w` (C, O / groups, *K) plus `bias`, (O,) or None."""
    if x.dtype not in cublas.TYPES:
        return NotImplemented
    size = transposed_conv_points(x.shape[2:], w.shape[2:], stride, padding, output_padding, dilation)
    out = conv_grad_input(x, w, (x.shape[0], w.shape[1] * groups, *size), stride, padding, dilation, groups)
    if bias is not None:
        out += bias.reshape(-1, *[1] * len(size))
    return out


# --- windows of one element ----------------------------------------------------------------------------------------


def pointwise(w_shape, stride, padding, groups) -> bool:
    """Returns whether a convolution only mixes channels."""
    return groups == 1 and prod(w_shape[2:]) == 1 and all(s == 1 for s in stride) and not any(padding)


def _by_rows(x) -> bool:
    """Returns whether the channels of an array (N, C, *S) are adjacent, so that its points are the rows of a matrix."""
    return cudnn.lies_last(x) or prod(x.shape[2:]) == 1


def _rows(x):
    return x.transpose(0, *range(2, x.ndim), 1).reshape(-1, x.shape[1])


def _mixed(x, w):
    """Multiplies every point's channels by `w` (O, C), in the layout of `x`."""
    tf32 = switches.cudnn.allow_tf32
    shape = (x.shape[0], w.shape[0], *x.shape[2:])
    if _by_rows(x):
        made = product(_rows(x), w.T, tf32).reshape(shape[0], *shape[2:], shape[1])
        return made.transpose(0, made.ndim - 1, *range(1, made.ndim - 1))
    return product(w, x.reshape(*x.shape[:2], -1), tf32).reshape(shape)


# --- windows as columns --------------------------------------------------------------------------------------------


def _three(values, fill):
    return (fill,) * (3 - len(values)) + tuple(values)


def _geometry(size, points, kernel, stride, padding, dilation):
    """Returns the trailing arguments that all functions of conv.cu share."""
    groups = (size, 1), (points, 1), (kernel, 1), (stride, 1), (padding, 0), (dilation, 1)
    return tuple(np.int32(n) for values, fill in groups for n in _three(values, fill))


def _launch(name, dtype, count, arguments):
    """Runs a function of conv.cu with one thread per element of `count`; complex numbers count as two."""
    parts, kind = (
        (2, "float32" if dtype.itemsize == 8 else "float64") if dtype.kind == "c" else (1, program.NAME[dtype])
    )
    count *= parts
    program.function("conv", name, kind, PARTS=parts, INDEX=program.index_type(count))(
        (-(-count // BLOCK),), (BLOCK,), (*arguments[:2], np.int64(count), *arguments[2:])
    )


def _parts(dtype) -> int:
    return 2 if dtype.kind == "c" else 1


def _wide(dtype):
    """Returns the dtype of sums."""
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype


def _fitting(images: int, bytes_each: int) -> int:
    return min(images, max(1, COLUMNS_BYTES // max(bytes_each, 1)))


def _columns(x, columns, image_step, row_step, geometry):
    """Fills `columns` with the windows of the images `x`; the steps count elements."""
    parts = _parts(x.dtype)
    points = prod(int(n) for n in geometry[3:6])
    arguments = (x, columns, np.int32(x.shape[1]), np.int64(image_step * parts), np.int64(row_step * parts), *geometry)
    _launch("gather", x.dtype, x.shape[0] * x.shape[1] * points, arguments)


def _by_columns(x, w, shape, stride, padding, dilation, groups):
    """Computes the convolution as a product of the weights and the columns of every image."""
    x, points, depth = cupy.ascontiguousarray(x), prod(shape[2:]), prod(w.shape[1:])
    weights = cupy.ascontiguousarray(w).reshape(groups, -1, depth)
    geometry = _geometry(x.shape[2:], shape[2:], w.shape[2:], stride, padding, dilation)
    out = cupy.empty(shape, x.dtype)
    flat = out.reshape(shape[0], groups, -1, points)
    some = _fitting(shape[0], groups * depth * points * x.itemsize)
    columns = cupy.empty((some, groups, depth, points), x.dtype)
    for first in range(0, shape[0], some):
        images = x[first : first + some]
        _columns(images, columns, groups * depth * points, points, geometry)
        part = flat[first : first + some]
        left = cupy.broadcast_to(weights, (len(images), *weights.shape))
        cublas.gemm(left, columns[: len(images)], part, tf32=switches.cudnn.allow_tf32)
    return out


def _against_columns(g, x, w_shape, stride, padding, dilation, groups):
    """Computes the gradient of the weights: the output's gradient times the columns of all images, side by side."""
    x, points, depth, own = cupy.ascontiguousarray(x), prod(g.shape[2:]), prod(w_shape[1:]), w_shape[0] // groups
    geometry = _geometry(x.shape[2:], g.shape[2:], w_shape[2:], stride, padding, dilation)
    total = cupy.empty((groups, own, depth), _wide(x.dtype))
    g = g.reshape(g.shape[0], groups, own, points)
    some = _fitting(len(x), groups * depth * points * x.itemsize)
    for first in range(0, len(x), some):
        images = x[first : first + some]
        columns = cupy.empty((groups, depth, len(images), points), x.dtype)
        _columns(images, columns, points, len(images) * points, geometry)
        slopes = cupy.ascontiguousarray(g[first : first + some].transpose(1, 2, 0, 3)).reshape(groups, own, -1)
        turned = columns.reshape(groups, depth, -1).swapaxes(1, 2)
        cublas.gemm(slopes, turned, total, beta=int(first > 0), tf32=switches.cudnn.allow_tf32)
    return total.reshape(w_shape).astype(g.dtype, copy=False)


def _from_columns(g, w, x_shape, stride, padding, dilation, groups):
    """Computes the gradient of the input.

    It is the transposed weights times the output's gradient, with each window's result added back at its position.
    """
    points, depth, inner = prod(g.shape[2:]), prod(w.shape[1:]), groups * prod(w.shape[1:])
    weights = cupy.ascontiguousarray(w).reshape(groups, -1, depth).swapaxes(1, 2)
    geometry = _geometry(x_shape[2:], g.shape[2:], w.shape[2:], stride, padding, dilation)
    out, kind = cupy.empty(x_shape, g.dtype), _wide(g.dtype)
    g = g.reshape(g.shape[0], groups, -1, points)
    some, parts = _fitting(len(g), inner * points * kind.itemsize), _parts(g.dtype)
    columns = cupy.empty((some, groups, depth, points), kind)
    for first in range(0, len(g), some):
        slopes, part = g[first : first + some], out[first : first + some]
        left = cupy.broadcast_to(weights, (len(slopes), *weights.shape))
        cublas.gemm(left, slopes, columns[: len(slopes)], tf32=switches.cudnn.allow_tf32)
        steps = np.int32(x_shape[1]), np.int64(inner * points * parts), np.int64(points * parts)
        _launch("collect", g.dtype, part.size, (columns, part, *steps, *geometry))
    return out


# --- depthwise -----------------------------------------------------------------------------------------------------


def depthwise(x_shape, w_shape, groups, dtype) -> bool:
    """Returns whether every channel is convolved separately, in a dtype that the kernels support."""
    return groups == x_shape[1] and groups > 1 and w_shape[1] == 1 and dtype.kind != "c"


def _depthwise(x, w, bias, shape, stride, padding, dilation):
    x, w, out = cupy.ascontiguousarray(x), cupy.ascontiguousarray(w), cupy.empty(shape, x.dtype)
    bias = np.uint64(0) if bias is None else cupy.ascontiguousarray(bias)
    channels = np.int32(x.shape[1]), np.int32(shape[1] // x.shape[1])
    geometry = _geometry(x.shape[2:], shape[2:], w.shape[2:], stride, padding, dilation)
    _program("depthwise", x.dtype, out.size)(
        (-(-out.size // BLOCK),), (BLOCK,), (x, w, bias, out, np.int64(out.size), *channels, *geometry)
    )
    return out


def _depthwise_input(g, w, x_shape, stride, padding, dilation):
    g, w, out = cupy.ascontiguousarray(g), cupy.ascontiguousarray(w), cupy.empty(x_shape, g.dtype)
    channels = np.int32(x_shape[1]), np.int32(g.shape[1] // x_shape[1])
    geometry = _geometry(x_shape[2:], g.shape[2:], w.shape[2:], stride, padding, dilation)
    _program("depthwise_input", g.dtype, out.size)(
        (-(-out.size // BLOCK),), (BLOCK,), (g, w, out, np.int64(out.size), *channels, *geometry)
    )
    return out


def _depthwise_weight(g, x, w_shape, stride, padding, dilation):
    g, x, out = cupy.ascontiguousarray(g), cupy.ascontiguousarray(x), cupy.empty(w_shape, g.dtype)
    sizes = np.int32(x.shape[0]), np.int32(x.shape[1]), np.int32(w_shape[0] // x.shape[1])
    geometry = _geometry(x.shape[2:], g.shape[2:], w_shape[2:], stride, padding, dilation)
    _program("depthwise_weight", g.dtype, g.size)((out.size,), (BLOCK,), (g, x, out, *sizes, *geometry))
    return out


def _program(name, dtype, count):
    return program.function("conv", name, program.NAME[dtype], PARTS=1, INDEX=program.index_type(count))
