"""Normalizations. Each is one fused op with a backward kernel; its twin, in simple ops, defines its meaning.

The means and reciprocal standard deviations that a kernel computes are kept for its backward kernel.
"""

from __future__ import annotations

import math

from tensorgrad import dtypes
from tensorgrad.autograd.modes import no_grad
from tensorgrad.dispatch.kernel_errors import check_real_floats
from tensorgrad.dispatch.kinds import FUNCTIONAL, composite, op
from tensorgrad.dispatch.out import refuse_grad, store_out
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import as_integers
from tensorgrad.kernels.array import norm as kernels
from tensorgrad.ops.copy import in_format_of
from tensorgrad.ops.rearrange import pad
from tensorgrad.rows.kernel_tables import device_kernel
from tensorgrad.rows.switches import SLOW
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch import BatchedArray, Shared
from tensorgrad.transforms.transform import beside_ops

# --- shared parts --------------------------------------------------------------------------------------------------


def _check_mixed(x, *parameters) -> None:
    """Raises: RuntimeError for parameters of another dtype (16-bit inputs may have float32 parameters)."""
    for parameter in parameters:
        if parameter is None or parameter.dtype is x.dtype or parameter.dtype == x.dtype:
            continue
        if x.dtype.itemsize == 2 and parameter.dtype == dtypes.F32:
            continue
        if parameter.dtype.itemsize > x.dtype.itemsize:
            expected = "Float" if x.dtype.itemsize == 2 else scalar_type(x)
            raise RuntimeError(f"mixed dtype (CPU): expect parameter to have scalar type of {expected}")
        raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype.")


def _wide(x: Tensor) -> Tensor:
    return x.float() if x._array.dtype.itemsize == 2 else x


# --- over the last dimensions --------------------------------------------------------------------------------------


def _statistics(x: Tensor, axes, eps: float) -> tuple[Tensor, Tensor]:
    """Returns the means over some dimensions, and the reciprocal standard deviations 1 / √(var + eps)."""
    mean = x.mean(axes, True)
    return mean, ((x - mean).square().mean(axes, True) + eps).rsqrt()


def _statistics_dtype(x):
    return dtypes.float32.numpy if x.dtype.itemsize == 2 else x.dtype


def _per_row(x, axes) -> tuple:
    return (*x.shape[: x.ndim - len(axes)], *[1] * len(axes))


def _layer_norm_twin(input, weight, bias, axes, eps):
    x = _wide(input)
    mean, rstd = _statistics(x, axes, eps)
    out = (x - mean) * rstd
    out = out if weight is None else out * weight
    return (out if bias is None else out + bias).to(input.dtype)


_layer_norm = op(
    "layer_norm(input, weight=None, bias=None, axes: any = (), eps: float = 1e-5)",
    lambda xp, x, w, b, axes, eps: kernels.layer_norm(xp, x, axes, w, b, eps),
    twin=_layer_norm_twin,
    cache=("mean", "rstd"),
    backward_kernel=lambda xp, g, input, weight, mean, rstd, axes, needs: kernels.layer_norm_grad(
        xp, g, input, mean, rstd, weight, axes, needs
    ),
    jvp_kernel=lambda xp, input, weight, input_t, weight_t, bias_t, axes, eps: kernels.row_norm_tangent(
        xp, input, weight, input_t, weight_t, bias_t, axes, eps, True
    ),
    shape=lambda x, w, b, axes, eps: [(x.shape, x.dtype), *[(_per_row(x, axes), kernels.kept_dtype(x, w, b))] * 2],
    backward_name="NativeLayerNormBackward0",
    batch_kernel="norm_of_batch.layer_norm",
    batch_backward="norm_of_batch.layer_norm_backward",
    where=(),
)


def _normalized(name: str, input: Tensor, shape, weight, bias=None) -> tuple[int, ...]:
    """Returns `shape` as a tuple of trailing dimensions. Raises: RuntimeError if input or parameters do not fit."""
    if not isinstance(shape, tuple | list):
        raise TypeError(
            f"{name}(): argument 'normalized_shape' (position 2) must be tuple of ints, not {type(shape).__name__}"
        )
    shape = tuple(shape)
    have = input._array.shape
    if not shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got "
            "normalized_shape = []"
        )
    for parameter, what in ((weight, "weight"), (bias, "bias")):
        if parameter is not None and parameter._array.shape != shape:
            as_integers(shape, "normalized_shape")
            raise RuntimeError(
                f"Expected {what} to be of same shape as normalized_shape, but got {what} of shape "
                f"{list(parameter.shape)} and normalized_shape = {list(shape)}"
            )
    if have[len(have) - len(shape) :] != shape or len(have) < len(shape):
        as_integers(shape, "normalized_shape")
        star = "*, " if name == "layer_norm" else "*"
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [{star}{', '.join(map(str, shape))}], "
            "but "
            f"got input of size{list(have)}"
        )
    return tuple(range(len(have) - len(shape), len(have)))


@composite("functional")
def layer_norm(
    input: Tensor, normalized_shape, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Computes (x - mean) / √(var + eps) · weight + bias over the last dimensions, given by `normalized_shape`.

    Source: Ba, Kiros, Hinton, "Layer normalization", 2016.

    Raises:
        RuntimeError: If the input's shape does not end with `normalized_shape`, or that of a parameter differs from it.

    >>> torch.nn.functional.layer_norm(torch.tensor([[1.0, 3.0]]), (2,))
    tensor([[-1.0000,  1.0000]])
    """
    axes = _normalized("layer_norm", input, normalized_shape, weight, bias)
    check_real_floats(input._array, "LayerNormKernelImpl")
    _check_mixed(input._array, *(None if p is None else p._array for p in (weight, bias)))
    return _layer_norm(input, weight, bias, axes, eps)


@composite("function", name="layer_norm")
def _torch_layer_norm(
    input, normalized_shape, weight: Tensor | None = None, bias: Tensor | None = None, eps=1e-5, cudnn_enable=True
) -> Tensor:
    """Alias of `torch.nn.functional.layer_norm`; `cudnn_enable` has no effect.

    >>> torch.layer_norm(torch.tensor([[1.0, 3.0], [10.0, 30.0]]), (2,), eps=0.5)
    tensor([[-0.8165,  0.8165],
            [-0.9975,  0.9975]])
    """
    return layer_norm(input, normalized_shape, weight, bias, eps)


@composite("function")
def native_layer_norm(
    input: Tensor, normalized_shape, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the result of `layer_norm`, the means and the reciprocal standard deviations.

    >>> x = torch.tensor([[1.0, 3.0], [10.0, 30.0]])
    >>> result, mean, reciprocal_std = torch.native_layer_norm(x, (2,), None, None, 1e-5)
    >>> mean
    tensor([[ 2.],
            [20.]])
    """
    axes = _normalized("layer_norm", input, normalized_shape, weight, bias)
    check_real_floats(input._array, "LayerNormKernelImpl")
    mean, rstd = _statistics(_wide(input.detach()), axes, eps)
    kept = kept_dtype(input, weight, bias)
    return _layer_norm(input, weight, bias, axes, eps), mean.to(kept), rstd.to(kept)


def kept_dtype(input: Tensor, weight, bias):
    """The dtype in which the native functions return statistics: that of the parameters or, without them, the input."""
    return next((p.dtype for p in (weight, bias) if p is not None), input.dtype)


def _rms_norm_twin(input, weight, axes, eps):
    x = _wide(input)
    out = x * ((x * x).mean(axes, True) + eps).rsqrt()
    return (out if weight is None else out * weight).to(input.dtype)


_rms_norm = op(
    "rms_norm(input, weight=None, axes: any = (), eps: float = 0.0)",
    lambda xp, x, w, axes, eps: kernels.rms_norm(xp, x, axes, w, eps),
    twin=_rms_norm_twin,
    cache=("rrms",),
    backward_kernel=lambda xp, g, input, weight, rrms, axes, needs: kernels.rms_norm_grad(
        xp, g, input, rrms, weight, axes, needs
    ),
    jvp_kernel=lambda xp, input, weight, input_t, weight_t, axes, eps: kernels.row_norm_tangent(
        xp, input, weight, input_t, weight_t, None, axes, eps, False
    ),
    shape=lambda x, w, axes, eps: [(x.shape, x.dtype), (_per_row(x, axes), _statistics_dtype(x))],
    backward_name="FusedRmsNormBackward0",
    batch_kernel="norm_of_batch.rms_norm",
    batch_backward="norm_of_batch.rms_norm_backward",
    where=(),
)


@composite("functional", "function")
def rms_norm(input: Tensor, normalized_shape, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Computes x / √(mean(x²) + eps) · weight over the last dimensions, given by `normalized_shape`.

    `eps` defaults to the machine epsilon of the dtype of the computation (float32 for 16-bit floats).

    Source: Zhang, Sennrich, "Root mean square layer normalization", 2019.

    Raises:
        RuntimeError: If the input's shape does not end with `normalized_shape`, or that of `weight` differs from it.

    >>> torch.nn.functional.rms_norm(torch.tensor([[3.0, 4.0]]), (2,))
    tensor([[0.8485, 1.1314]])
    """
    axes = _normalized("rms_norm", input, normalized_shape, weight)
    if not input.is_complex():
        check_real_floats(input._array, "rms_norm")
    if eps is None:
        eps = dtypes.finfo(dtypes.float32 if input.dtype.itemsize == 2 else input.dtype).eps
    if input.is_complex():  # no fused kernel: use the definition
        square = (input * input).mean(axes, True)
        out = input * (square + eps).rsqrt()
        return out if weight is None else out * weight
    return _rms_norm(input, weight, axes, eps)


# --- per channel ---------------------------------------------------------------------------------------------------


def _channels(x: Tensor, like: Tensor) -> Tensor:
    """Reshapes a vector over channels to broadcast against (N, C, *)."""
    return x.reshape((1, -1, *[1] * (like.ndim - 2)))


def _channel_axes(x: Tensor) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def _batch_norm_kernel(xp, x, weight, bias, running_mean, running_var, training, eps):
    out, mean, rstd, var = kernels.batch_norm(xp, x, weight, bias, running_mean, running_var, training, eps)
    if training:
        return out, mean, var, kernels.kept(mean, x, weight, bias), kernels.kept(rstd, x, weight, bias)
    return out, mean, var, mean.copy(), rstd  # later updates must not reach what the graph keeps


def _batch_norm_twin(input, weight, bias, running_mean, running_var, training, eps):
    x = _wide(input)
    mean = x.mean(_channel_axes(x)) if training else _wide(running_mean)
    centred = x - _channels(mean, x)
    var = (centred * centred).mean(_channel_axes(x)) if training else _wide(running_var)
    rstd = (var + eps).rsqrt()
    out = centred * _channels(rstd if weight is None else rstd * weight, x)
    return (out if bias is None else out + _channels(bias, x)).to(input.dtype), mean, var


def _batch_norm_in_batch(input, weight, bias, running_mean, running_var, training, eps, size, mapped):
    """The channels of all samples side by side: each is normalized on its own."""
    if not mapped & {"input", "running_mean", "running_var"}:  # the statistics are those of the shared input
        out, mean, var = _batch_norm(input, None, None, running_mean, running_var, training, eps)
        scale, shift = (
            t if t is None else t.reshape(*t.shape[:-1], 1, -1, *(1,) * (input.ndim - 2)) for t in (weight, bias)
        )
        out = out if scale is None else out * scale
        return out if shift is None else out + shift, Shared(mean), Shared(var)
    if "input" not in mapped:
        input = input.expand(size, *input.shape)
    given = {"weight": weight, "bias": bias, "running_mean": running_mean, "running_var": running_var}
    channels = [None if t is None else t.flatten() if n in mapped else t.repeat(size) for n, t in given.items()]
    out, mean, var = _batch_norm(input.movedim(0, 1).flatten(1, 2), *channels, training, eps)
    shape = size, input.shape[2]
    return out.unflatten(1, shape).movedim(1, 0), mean.unflatten(0, shape), var.unflatten(0, shape)


def _batch_norm_shapes(x, weight, bias, running_mean, running_var, training, eps):
    used = _statistics_dtype(x)
    saved = kernels.kept_dtype(x, weight, bias) if training else used
    return [(x.shape, x.dtype), *[((x.shape[1],), dtype) for dtype in (used, used, saved, saved)]]


_batch_norm = op(  # also outputs the statistics, for updating the running ones
    "batch_norm(input, weight=None, bias=None, running_mean=None, running_var=None, training: bool = False, "
    "eps: float = 1e-5)",
    _batch_norm_kernel,
    twin=_batch_norm_twin,
    batch=_batch_norm_in_batch,
    wrt=("input", "weight", "bias"),
    outputs=("out", "used_mean", "used_var"),
    cache=("mean", "rstd"),
    backward_kernel=lambda xp, g, input, weight, mean, rstd, training, needs: kernels.batch_norm_grad(
        xp, g, input, mean, rstd, weight, training, needs
    ),
    shape=_batch_norm_shapes,
    backward_name="NativeBatchNormBackward0",
    format_of=("input",),
    where=(),
)  # fmt: skip


def _check_batch_norm(input, running_mean, running_var, weight, bias, training) -> None:
    """Raises: RuntimeError for parameters or statistics that are missing or do not fit."""
    x = input._array
    channels = x.shape[1] if x.ndim > 1 else 0
    if not training and (running_mean is None or running_var is None):
        raise RuntimeError(f"running_{'mean' if running_mean is None else 'var'} must be defined in evaluation mode")
    arrays = [t._array for t in (running_mean, running_var, weight, bias) if t is not None]
    wanted = (channels,)
    for array in arrays:
        if array.shape != wanted:
            named = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
            name = next(name for name, t in named.items() if t is not None and t._array is array)
            if array.size != channels:
                raise RuntimeError(f"{name} should contain {channels} elements not {array.size}")
            raise RuntimeError(f"batch_norm: expected {name} to have 1 dimension, got shape {list(array.shape)}")
    if x.ndim < 2 and x.size:
        raise RuntimeError(f"batch_norm: expected an input of at least 2 dimensions (N, C, *), got {list(x.shape)}")
    check_real_floats(x, "batch_norm")
    _check_mixed(x, *arrays)


def _like_running(input: Tensor, weight: Tensor | None, bias: Tensor | None, running: Tensor | None):
    """The weight; ones if running statistics alone say that statistics are kept in more digits than the input has."""
    if running is None or weight is not None or bias is not None or running.dtype is input.dtype:
        return weight
    return running.new_ones(running.shape) if input.dtype.itemsize == 2 else weight


def _update_each_running(running_mean, running_var, mean, var, count: int, momentum: float) -> None:
    """`_update_running` for each sample of a batch. Raises: RuntimeError if they are to share statistics."""
    unbiased = var * (count / (count - 1)) if count > 1 else var * float("nan")
    for running, new in ((running_mean, mean), (running_var, unbiased)):
        try:
            running.copy_(running * (1 - momentum) + new.detach().to(running.dtype) * momentum)
        except RuntimeError as error:
            if "vmap" not in str(error):
                raise
            raise RuntimeError(
                "Batch norm got a batched tensor as input while the running_mean or running_var, which will be updated "
                "in place, were not batched.\nIf you are using a module and do not need eval mode, please set "
                "`track_running_stats` to be False.If you are using a prebuilt module and do not need eval mode, "
                "please see the functorch website for resources on how to patch your module to work with vmap"
            ) from None


def _update_running(running_mean, running_var, mean, var, count: int, momentum: float) -> None:
    """Moves the running statistics towards those of the batch, in place."""
    if running_mean is None or running_var is None or running_mean.is_meta or not count:
        return
    if SLOW and any(t._array.__class__ is BatchedArray for t in (running_mean, running_var, mean, var)):
        _update_each_running(running_mean, running_var, mean, var, count, momentum)
        return
    if SLOW:
        given: tuple = (running_mean, running_var, mean, var, count, momentum)
        if beside_ops(_update_running, given, given[:2]) is not NotImplemented:
            return
    if running_mean._storage.xp is None:
        return
    old_mean, old_var, new_mean, new_var = (t._array for t in (running_mean, running_var, mean, var))
    storage, given = running_mean._storage, (old_mean, old_var, new_mean, new_var, count, momentum)
    own = device_kernel("move_running", storage.__class__)
    if own is not None and storage.guard(own)(*given) is not NotImplemented:
        running_mean._storage.bump()
        running_var._storage.bump()
        return
    updated = storage.guard(kernels.updated_running)(*given)
    for target, values in zip((running_mean, running_var), updated, strict=True):
        target._storage.write(target._array, values)
        target._storage.bump()


@composite("functional")
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Computes (x - mean) / √(var + eps) · weight + bias per channel of (N, C, *).

    In training, the statistics are those of the batch, and the running ones (if given) move towards them by
    `momentum`; otherwise the running ones are used.

    Source: Ioffe, Szegedy, "Batch normalization", 2015.

    Raises:
        RuntimeError: If parameters do not fit.
        ValueError: If there is a single value per channel in training, or `eps` is negative (in training: not
            positive).

    >>> x = torch.tensor([[1.0], [3.0]])
    >>> torch.nn.functional.batch_norm(x, None, None, training=True)
    tensor([[-1.0000],
            [ 1.0000]])
    """
    if eps <= 0.0 and (training or eps < 0.0):
        needed = "positive during training" if training else "non-negative"
        raise ValueError(f"batch_norm eps must be {needed}, but got {eps}")
    return _batch_normalized(input, running_mean, running_var, weight, bias, training, momentum, eps)


def _batch_normalized(input, running_mean, running_var, weight, bias, training, momentum, eps) -> Tensor:
    """`batch_norm` without the check of `eps`."""
    array = input._array
    if training:
        if not array.ndim:
            raise IndexError("tuple index out of range")
        if math.prod((array.shape[0], *array.shape[2:])) == 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.shape}")
        if (running_mean is None) is not (running_var is None):
            raise ValueError("running_mean and running_var must either both be None or neither be None")
    _check_batch_norm(input, running_mean, running_var, weight, bias, training)
    if array.ndim < 2:
        return input.clone()
    if not training:
        return _batch_norm(input, weight, bias, running_mean, running_var, False, eps)[0]
    weight = _like_running(input, weight, bias, running_mean)
    out, mean, var = _batch_norm(input, weight, bias, None, None, True, eps)
    if running_mean is not None:
        _update_running(running_mean, running_var, mean, var, array.size // max(array.shape[1], 1), momentum)
    return out


@composite("function", name="batch_norm")
def _torch_batch_norm(
    input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled=True
) -> Tensor:
    """`torch.nn.functional.batch_norm` with PyTorch's order of parameters.

    >>> x = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
    >>> torch.batch_norm(x, None, None, None, None, True, 0.1, 0.5, False)
    tensor([[-0.8165, -0.9975],
            [ 0.8165,  0.9975]])
    """
    use_batch = training or (running_mean is None and running_var is None)
    return _batch_normalized(input, running_mean, running_var, weight, bias, use_batch, momentum, eps)


@composite("function")
def native_batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    training: bool, momentum: float, eps: float, *, out=None,
):  # fmt: skip
    """Returns the result of `batch_norm`, and in training the means and reciprocal deviations (else empty tensors).

    >>> x = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
    >>> result, mean, reciprocal_std = torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
    >>> mean, reciprocal_std
    (tensor([ 2., 20.]), tensor([1.0000, 0.1000]))
    """
    if out is not None:  # checked before the running statistics are updated
        refuse_grad("native_batch_norm", (input, weight, bias, running_mean, running_var, out))
    _check_batch_norm(input, running_mean, running_var, weight, bias, training)
    used = (None, None) if training else (running_mean, running_var)
    weight = _like_running(input, weight, bias, running_mean) if training else weight
    result, mean, var = _batch_norm(input, weight, bias, *used, training, eps)
    if training:
        array = input._array
        _update_running(running_mean, running_var, mean, var, array.size // max(array.shape[1], 1), momentum)
        rstd = (var + eps).rsqrt()
    else:
        mean, rstd = input.new_empty(0), input.new_empty(0)
    kept = kept_dtype(input, weight, bias)
    results = (result, mean.to(kept, copy=True), rstd.to(kept))  # copy: the kernel's mean is kept for backward
    return store_out("native_batch_norm", out, results)


@composite("functional")
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Applies `batch_norm` to every sample of (N, C, *) separately; running statistics use the mean over samples.

    Source: Ulyanov, Vedaldi, Lempitsky, "Instance normalization", 2016.

    >>> torch.nn.functional.instance_norm(torch.tensor([[[1.0, 3.0]]]))
    tensor([[[-1.0000,  1.0000]]])
    """
    array = input._array
    if use_input_stats:
        spatial = array.size // max(array.shape[0] * array.shape[1], 1) if array.ndim > 2 and array.size else 1
        if array.ndim < 3 or (spatial == 1 and array.size):
            raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.shape}")
    elif running_mean is None or running_var is None:
        raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats is false")
    if (running_mean is None) is not (running_var is None):
        raise ValueError("running_mean and running_var must either both be None or neither be None")
    kept = (input if weight is None else weight).dtype
    if running_mean is not None and running_var is not None and running_mean.dtype is not kept:
        moved = running_mean.to(kept), running_var.to(kept)  # here they may be of any dtype, unlike those of batch_norm
        out = instance_norm(input, *moved, weight, bias, use_input_stats, momentum, eps)
        if use_input_stats:
            with no_grad():
                running_mean.copy_(moved[0])
                running_var.copy_(moved[1])
        return out
    n, c = array.shape[:2]
    mean0, var0, w, b = (None if t is None else t.repeat(n) for t in (running_mean, running_var, weight, bias))
    flat = input.reshape((1, n * c, *array.shape[2:]))
    _check_batch_norm(flat, mean0, var0, w, b, use_input_stats)
    used = (None, None) if use_input_stats else (mean0, var0)
    w = _like_running(flat, w, b, mean0) if use_input_stats else w
    out, mean, var = _batch_norm(flat, w, b, *used, use_input_stats, eps)
    if use_input_stats and running_mean is not None:
        mean, var = mean.reshape(n, c).mean(0), var.reshape(n, c).mean(0)
        _update_running(running_mean, running_var, mean, var, array.size // max(n * c, 1), momentum)
    return out.reshape(array.shape)


@composite("function", name="instance_norm")
def _torch_instance_norm(
    input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled=True
) -> Tensor:
    """`torch.nn.functional.instance_norm` with PyTorch's order of parameters.

    >>> x = torch.tensor([[[1.0, 3.0], [10.0, 30.0]]])
    >>> torch.instance_norm(x, None, None, None, None, True, 0.1, 0.5, False)
    tensor([[[-0.8165,  0.8165],
             [-0.9975,  0.9975]]])
    """
    return instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


# --- groups of channels --------------------------------------------------------------------------------------------


def _grouped(x: Tensor, groups: int) -> Tensor:
    n, channels, *spatial = x._array.shape
    return x.reshape((n, groups, channels // groups * math.prod(spatial)))


def _native_group_norm_twin(input, weight, bias, groups, eps):
    rows = _grouped(_wide(input), groups)
    mean, rstd = _statistics(rows, (2,), eps)
    out = ((rows - mean) * rstd).reshape(input.shape)
    out = out if weight is None else out * _channels(weight, input)
    out = out if bias is None else out + _channels(bias, input)
    return out.to(input.dtype), mean.squeeze(2), rstd.squeeze(2)


def _group_norm_twin(input, weight, bias, groups, eps):
    return _native_group_norm_twin(input, weight, bias, groups, eps)[0]


def _group_norm_kernel(xp, x, w, b, groups, eps):
    return kernels.group_norm(xp, x, groups, w, b, eps)


def _group_norm_shapes(x, weight, bias, groups, eps):
    return [(x.shape, x.dtype), *[((x.shape[0], groups), kernels.kept_dtype(x, weight, bias))] * 2]


def _group_norm_backward(xp, g, input, weight, mean, rstd, groups, needs):
    return kernels.group_norm_grad(xp, g, input, mean, rstd, weight, groups, needs)


_group_norm = op(
    "group_norm(input, weight=None, bias=None, groups: int = 1, eps: float = 1e-5)",
    _group_norm_kernel,
    twin=_group_norm_twin,
    cache=("mean", "rstd"),
    backward_kernel=_group_norm_backward,
    shape=_group_norm_shapes,
    backward_name="NativeGroupNormBackward0",
    format_of=("input",),
    batch_kernel="norm_of_batch.group_norm",
    batch_backward="norm_of_batch.group_norm_backward",
    where=(),
)


native_group_norm_row = op(  # the same, for when derivatives of the statistics are needed, too
    "native_group_norm(input, weight=None, bias=None, groups: int = 1, eps: float = 1e-5)",
    _group_norm_kernel,
    twin=_native_group_norm_twin,
    outputs=("out", "mean", "rstd"),
    differentiable_outputs=3,
    backward_kernel=_group_norm_backward,
    shape=_group_norm_shapes,
    backward_name="NativeGroupNormBackward0",
    format_of=("input",),
    where=(),
)


def check_groups(input: Tensor, channels: int, num_groups: int, weight, bias) -> None:
    """Raises: RuntimeError if the groups do not divide the channels, or parameters do not fit them."""
    shape = input._array.shape
    if num_groups < 0 or channels % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{list(shape)} and num_groups={num_groups}"
        )
    for value, name in ((weight, "weight"), (bias, "bias")):
        if value is not None and value._array.shape != (channels,):
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, but got {name} of "
                f"shape {list(value.shape)} and input of shape {list(shape)}"
            )
    check_real_floats(input._array, "GroupNormKernelImpl")
    _check_mixed(input._array, *(None if p is None else p._array for p in (weight, bias)))


@composite("functional")
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Applies `layer_norm` to each of `num_groups` groups of channels of (N, C, *), with weight and bias per channel.

    Source: Wu, He, "Group normalization", 2018.

    Raises:
        RuntimeError: If the groups do not divide the channels, or the parameters do not fit them.

    >>> x = torch.tensor([[1.0, 3.0, 10.0, 30.0]])
    >>> torch.nn.functional.group_norm(x, 2)
    tensor([[-1.0000,  1.0000, -1.0000,  1.0000]])
    """
    shape = input._array.shape
    if len(shape) < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {len(shape)}")
    count = shape[0] * shape[1] // num_groups
    for n in shape[2:]:
        count *= n
    if count == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {list(shape)}")
    check_groups(input, shape[1], num_groups, weight, bias)
    return _group_norm(input, weight, bias, num_groups, eps)


@composite("function", name="group_norm")
def _torch_group_norm(
    input, num_groups, weight: Tensor | None = None, bias: Tensor | None = None, eps=1e-5, cudnn_enabled=True
) -> Tensor:
    """Alias of `torch.nn.functional.group_norm`; `cudnn_enabled` has no effect.

    >>> torch.group_norm(torch.tensor([[1.0, 3.0, 10.0, 30.0]]), 2, eps=0.5)
    tensor([[-0.8165,  0.8165, -0.9975,  0.9975]])
    """
    return group_norm(input, num_groups, weight, bias, eps)


# --- others --------------------------------------------------------------------------------------------------------


@composite("functional")
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Computes x / (k + alpha · mean of x² over `size` neighboring channels)^beta for (N, C, *).

    Source: Krizhevsky, Sutskever, Hinton, "ImageNet classification with deep convolutional neural networks", 2012.

    Raises:
        ValueError: If there are fewer than three dimensions.

    >>> torch.nn.functional.local_response_norm(torch.tensor([[[1.0], [2.0], [3.0]]]), size=2, alpha=1.0).flatten()
    tensor([0.7378, 0.7816, 0.6620])
    """
    if input.dim() < 3:
        raise ValueError(
            f"Expected 3D or higher dimensionality                          input (got {input.dim()} dimensions)"
        )
    if not input.numel():
        return input
    if size < 1:
        raise RuntimeError(f"kernel size should be greater than zero, but got kH: {size} kW: 1")
    square = (input * input).reshape((input.shape[0], 1, input.shape[1], -1))
    padded = pad(square, (0, 0, size // 2, (size - 1) // 2))
    mean = FUNCTIONAL["avg_pool2d"](padded, (size, 1), stride=1).reshape(input.shape)
    return input / (in_format_of(input, mean) * alpha + k).pow(beta)


@composite("functional")
def normalize(input: Tensor, p: float = 2.0, dim=1, eps: float = 1e-12, out=None) -> Tensor:
    """Computes x / max(‖x‖ₚ, eps), with the norm over `dim`.

    >>> torch.nn.functional.normalize(torch.tensor([3.0, 4.0]), dim=0)
    tensor([0.6000, 0.8000])
    """
    result = input / input.norm(p, dim, keepdim=True).clamp_min(eps)
    return store_out("normalize", out, result)
