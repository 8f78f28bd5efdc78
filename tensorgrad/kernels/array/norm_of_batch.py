"""Normalizations of the samples of a batch (vmap), and their gradients for each sample.

`whole` is the kernel for one sample. As it normalizes each row (or image) by itself, it does so for all samples at
once; only what parameters contribute has to be kept apart, in their gradients, or where each sample has its own.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np


def layer_norm(xp, whole, input, weight, bias, axes, eps, mapped):
    """Layer normalization of each sample: `(out, mean, rstd)`."""
    return _normalized(whole, input, {"weight": weight, "bias": bias}, (axes, eps), mapped, partial(_on_rows, input))


def rms_norm(xp, whole, input, weight, axes, eps, mapped):
    """Root-mean-square normalization of each sample: `(out, rrms)`."""
    return _normalized(whole, input, {"weight": weight}, (axes, eps), mapped, partial(_on_rows, input))


def group_norm(xp, whole, input, weight, bias, groups, eps, mapped):
    """Group normalization of the images of each sample: `(out, mean, rstd)`."""

    def kernel(x, *given):
        out, *statistics = whole(_all_images(x), *given)
        return (out.reshape(x.shape), *statistics)

    given = {"weight": weight, "bias": bias}
    return _normalized(kernel, input, given, (groups, eps), mapped, partial(_on_channels, input))


def _normalized(kernel, input, parameters, options, mapped, beside):
    """The results of the kernel. If samples have parameters of their own, they are applied after it."""
    if "input" not in mapped:
        return NotImplemented
    if not mapped & {*parameters}:
        return kernel(input, *parameters.values(), *options)
    if input.dtype.itemsize == 2:
        return NotImplemented  # they are to be applied in float32
    out, *statistics = kernel(input, *[None] * len(parameters), *options)
    with np.errstate(all="ignore"):
        for name, parameter in parameters.items():
            if parameter is not None:
                parameter = beside(parameter if name in mapped else parameter[None])
                out = out * parameter if name == "weight" else out + parameter
    return (out, *statistics)


def _on_rows(input, parameter):
    """The parameters of all samples, to be broadcast against their rows."""
    return parameter.reshape(len(parameter), *(1,) * (input.ndim - parameter.ndim), *parameter.shape[1:])


def _on_channels(input, parameter):
    """The parameters of all samples, to be broadcast against their images."""
    return parameter.reshape(len(parameter), 1, parameter.shape[1], *(1,) * (input.ndim - 3))


def layer_norm_backward(xp, whole, g, input, weight, mean, rstd, axes, needs, size, mapped):
    """The gradients of input, weight and bias of each sample."""
    if input.dtype.itemsize == 2:
        return NotImplemented  # they are to be summed in float32
    if "input" not in mapped:
        input, mean, rstd = _for_each(xp, size, input, mean, rstd)
    with np.errstate(all="ignore"):
        g, given = _for_kernel(xp, g, weight, size, mapped, partial(_on_rows, input))
        first = whole(given[0], input, given[1], mean, rstd, axes, (True, False, False))[0] if needs[0] else None
        second = _over_rows(g * ((input - mean) * rstd), axes) if needs[1] else None
        return first, second, _over_rows(g, axes) if needs[2] else None


def rms_norm_backward(xp, whole, g, input, weight, rrms, axes, needs, size, mapped):
    """The gradients of input and weight of each sample."""
    if input.dtype.itemsize == 2:
        return NotImplemented
    if "input" not in mapped:
        input, rrms = _for_each(xp, size, input, rrms)
    with np.errstate(all="ignore"):
        g, given = _for_kernel(xp, g, weight, size, mapped, partial(_on_rows, input))
        first = whole(given[0], input, given[1], rrms, axes, (True, False))[0] if needs[0] else None
        return first, _over_rows(g * (input * rrms), axes) if needs[1] else None


def group_norm_backward(xp, whole, g, input, weight, mean, rstd, groups, needs, size, mapped):
    """The gradients of input, weight and bias of each sample."""
    if input.dtype.itemsize == 2:
        return NotImplemented
    if "input" not in mapped:
        input, mean, rstd = _for_each(xp, size, input, mean, rstd)
        mean, rstd = _all_images(mean), _all_images(rstd)
    with np.errstate(all="ignore"):
        g, (scaled, weight) = _for_kernel(xp, g, weight, size, mapped, partial(_on_channels, input))
        first = second = third = None
        if needs[0]:
            given = _all_images(scaled), _all_images(input), weight, mean, rstd, groups, (True, False, False)
            first = whole(*given)[0].reshape(input.shape)
        images, channels, length = input.shape[1], input.shape[2], math.prod(input.shape[3:])
        shape = size, images, channels, length
        if needs[1]:
            centre, scale = (
                s.reshape(size * images, groups).repeat(channels // groups, 1).reshape(*shape[:3], 1)
                for s in (mean, rstd)
            )
            second = (g.reshape(shape) * ((input.reshape(shape) - centre) * scale)).sum((1, 3))
        if needs[2]:
            third = g.reshape(shape).sum((1, 3))
        return first, second, third


def _for_each(xp, size, *arrays):
    """What one call outside of the vmap kept, for each of the samples whose gradients go back through it."""
    return [xp.ascontiguousarray(xp.broadcast_to(a, (size, *a.shape))) for a in arrays]


def _for_kernel(xp, g, weight, size, mapped, beside):
    """The gradients of all samples; and them and the weight for the kernel, multiplied if samples have their own."""
    if "g" not in mapped:
        g = xp.ascontiguousarray(xp.broadcast_to(g, (size, *g.shape)))
    return g, (g * beside(weight), None) if "weight" in mapped else (g, weight)


def _over_rows(values, axes):
    """The sums over all rows of each sample."""
    rows = tuple(range(1, values.ndim - len(axes)))
    return values.sum(rows) if rows else values


def _all_images(x):
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
