"""Losses of `torch.nn.functional`.

The common ones are one op each, reduction included, with a backward kernel. The rest are composites.
"""

from __future__ import annotations

from tensorgrad import dtypes
from tensorgrad.dispatch.kernel_errors import check_broadcastable, check_real_floats
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dispatch.promotion import refuse_numbers
from tensorgrad.dtypes import F32, I64, scalar_type
from tensorgrad.errors import warn
from tensorgrad.ops.nn.activation import logsigmoid
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch_values import each

# --- reductions ----------------------------------------------------------------------------------------------------

_REDUCTIONS = ("none", "mean", "sum")


def legacy_reduction(size_average, reduce) -> str:
    """Converts the old arguments `size_average` and `reduce` to a reduction, with a warning."""
    size_average = True if size_average is None else size_average
    reduce = True if reduce is None else reduce
    reduction = "none" if not reduce else "mean" if size_average else "sum"
    warn(
        f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.",
    )
    return reduction


def checked_loss(reduction: str, size_average=None, reduce=None) -> str:
    if size_average is not None or reduce is not None:
        return legacy_reduction(size_average, reduce)
    if reduction not in _REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def reduced_loss(loss: Tensor, reduction: str) -> Tensor:
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _scaled(g: Tensor, shape_of: Tensor, reduction: str) -> Tensor:
    """Returns the gradient of each element's loss from that of the reduced loss."""
    return g / shape_of._array.size if reduction == "mean" else g


# --- functions of the difference -----------------------------------------------------------------------------------


def _difference_loss(name: str, value, backward_name: str):
    """Declares `name(input, target, knee, reduction)`: `value(d, knee)` of the difference d = input - target."""

    def twin(input, target, knee, reduction):
        return reduced_loss(value(input - target, knee), reduction)

    return op(
        f"{name}(input, target, knee: number, reduction: str)", f"loss.{name}", twin=twin, where=(),
        strides="operands", backward_kernel=f"loss.{name}_backward", backward_name=backward_name,
    )  # fmt: skip


def _quadratic_then_linear(d, knee, slope):
    """slope / knee · d² / 2 up to the knee, then linear with that slope."""
    size = d.abs()
    return (d * d * (0.5 * slope / knee)).where(size < knee, slope * (size - 0.5 * knee))


_mse = _difference_loss("mse", lambda d, knee: d * d, "MseLossBackward0")
_l1 = _difference_loss("l1", lambda d, knee: d.abs(), "MeanBackward0")
_smooth_l1 = _difference_loss("smooth_l1", lambda d, knee: _quadratic_then_linear(d, knee, 1), "SmoothL1LossBackward0")
_huber = _difference_loss("huber", lambda d, knee: _quadratic_then_linear(d, knee, knee), "HuberLossBackward0")


def _same(input: Tensor, target: Tensor):
    """Returns both in one dtype, warning if their sizes differ. Raises: RuntimeError if they do not broadcast."""
    x, y = input._array, target._array
    if x.shape != y.shape:
        warn(
            f"Using a target size ({target.size()}) that is different to the input size ({input.size()}). This will "
            "likely lead to incorrect results due to broadcasting. Please ensure they have the same size.",
        )
        check_broadcastable([x, y])
    if x.dtype is not y.dtype:
        dtype = dtypes.promote_types(input.dtype, target.dtype)  # expanded first, so neither is 0-dimensional
        input, target = input.to(dtype), target.to(dtype)
    return input, target


def _weighted(loss: Tensor, input: Tensor, weight: Tensor, reduction: str) -> Tensor:
    """Multiplies elementwise losses by `weight`; a mean divides by the sum of the weights."""
    if weight._array.shape != input._array.shape:
        raise ValueError("Weights and input must have the same size.")
    loss = loss * weight
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.sum() / weight.sum()


@composite("functional")
def mse_loss(
    input: Tensor, target: Tensor, size_average=None, reduce=None, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """Computes the squared error (input - target)², averaged, summed, or (`reduction="none"`) elementwise.

    With a `weight` per element, the mean divides by the sum of the weights.

    Args:
        target: of the shape of `input`.
        reduction: "mean", "sum", or "none" for a loss per element.
        weight: of that shape, too.

    >>> torch.nn.functional.mse_loss(torch.zeros(2), torch.tensor([1.0, 3.0]))
    tensor(5.)
    """
    if size_average is not None or reduce is not None or reduction not in _REDUCTIONS:
        reduction = checked_loss(reduction, size_average, reduce)
    x, y = input._array, target._array
    if x.dtype is not y.dtype or x.shape != y.shape:
        input, target = _same(input, target)
    if weight is not None:
        return _weighted(_mse(input, target, None, "none"), input, weight, reduction)
    return _mse(input, target, None, reduction)


@composite("functional")
def l1_loss(
    input: Tensor, target: Tensor, size_average=None, reduce=None, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """Computes |input - target|, averaged, summed, or elementwise; a `weight` per element works as in `mse_loss`.

    >>> torch.nn.functional.l1_loss(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 2.0]))
    tensor(1.)
    """
    reduction = checked_loss(reduction, size_average, reduce)
    input, target = _same(input, target)
    if weight is not None:
        return _weighted((input - target).abs(), input, weight, reduction)
    if not input.dtype.is_floating_point:
        return reduced_loss((input - target).abs(), reduction)
    return _l1(input, target, None, reduction)


@composite("functional")
def smooth_l1_loss(
    input: Tensor, target: Tensor, size_average=None, reduce=None, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """Computes d² / (2 beta) where d = |input - target| is below `beta`, else d - beta / 2.

    Args:
        target: of the shape of `input`.
        reduction: "mean", "sum", or "none" for a loss per element.
        beta: from which difference on the loss is linear; 0 makes it `l1_loss`.

    Raises:
        RuntimeError: If `beta` is negative.

    >>> torch.nn.functional.smooth_l1_loss(torch.tensor([0.0, 0.0]), torch.tensor([0.5, 3.0]), reduction="none")
    tensor([0.1250, 2.5000])
    """
    reduction = checked_loss(reduction, size_average, reduce)
    input, target = _same(input, target)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    return _smooth_l1(input, target, beta, reduction) if beta else _l1(input, target, None, reduction)


@composite("functional")
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """Computes d² / 2 where d = |input - target| is below `delta`, else delta (d - delta / 2).

    Losses are multiplied by `weight`, one per element, if given.

    Raises:
        RuntimeError: If `delta` is not positive.

    >>> torch.nn.functional.huber_loss(torch.tensor([0.0, 0.0]), torch.tensor([0.5, 3.0]), reduction="none")
    tensor([0.1250, 2.5000])
    """
    reduction = checked_loss(reduction)
    input, target = _same(input, target)
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    if weight is not None:
        if weight._array.shape != input._array.shape:
            raise ValueError("Weights and input must have the same size.")
        return reduced_loss(_huber(input, target, delta, "none") * weight, reduction)
    return _huber(input, target, delta, reduction)


# --- binary cross-entropy and divergences --------------------------------------------------------------------------


def _bce_twin(input, target, weight, reduction):
    loss = (target - 1) * (1 - input).log().clamp(min=-100) - target * input.log().clamp(min=-100)
    return reduced_loss(loss if weight is None else loss * weight, reduction)


def _bce_slope(g, input, target, weight, reduction):
    slope = (input - target) / ((1 - input) * input).clamp(min=1e-12) * _scaled(g, input, reduction)
    return slope if weight is None else slope * weight


def _bce_target_slope(g, input, target, weight, reduction):
    slope = ((1 - input).log().clamp(min=-100) - input.log().clamp(min=-100)) * _scaled(g, input, reduction)
    return slope if weight is None else slope * weight


_bce = op("bce(input, target, weight=None, reduction: str = 'mean')", "loss.bce", twin=_bce_twin, where=(),
          strides="input",
          input=_bce_slope, target=_bce_target_slope, backward_kernel="loss.bce_backward",
          backward_name="BinaryCrossEntropyBackward0")  # fmt: skip


@composite("functional")
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average=None, reduce=None, reduction: str = "mean"
) -> Tensor:
    """Computes -(t log p + (1 - t) log(1 - p)) for probabilities p, the `input`; logarithms are limited to -100.

    Raises:
        ValueError: If the sizes differ.
        RuntimeError: If a value is outside [0, 1].

    >>> torch.nn.functional.binary_cross_entropy(torch.tensor([0.5]), torch.tensor([1.0]))
    tensor(0.6931)
    """
    reduction = checked_loss(reduction, size_average, reduce)
    if input._array.shape != target._array.shape:
        raise ValueError(
            f"Using a target size ({target.size()}) that is different to the input size ({input.size()}) is "
            "deprecated. Please ensure they have the same size."
        )
    check_real_floats(input._array, "binary_cross_entropy")
    return _bce(input, target, weight, reduction)


def _logits_twin(input, target, weight, pos_weight, reduction):
    tail = (-input.abs()).exp().log1p() + (-input).clamp(min=0)
    if pos_weight is not None:
        tail = tail * ((pos_weight - 1) * target + 1)
    loss = (1 - target) * input + tail
    return reduced_loss(loss if weight is None else loss * weight, reduction)


def _logits_slope(g, input, target, weight, pos_weight, reduction):
    share = input.sigmoid()
    if pos_weight is None:
        slope = share - target
    else:
        slope = (pos_weight * target + (1 - target)) * share - pos_weight * target
    slope = slope * _scaled(g, slope, reduction)
    return slope if weight is None else slope * weight


def _logits_target_slope(g, input, target, weight, pos_weight, reduction):
    if pos_weight is None:
        slope = -input
    else:
        log_share = logsigmoid
        slope = log_share(-input) - pos_weight * log_share(input)
    slope = slope * _scaled(g, slope, reduction)
    return slope if weight is None else slope * weight


_bce_with_logits = op(
    "bce_with_logits(input, target, weight=None, pos_weight=None, reduction: str = 'mean')",
    "loss.bce_with_logits", twin=_logits_twin, where=(), backward_name="BinaryCrossEntropyWithLogitsBackward0",
    input=_logits_slope, target=_logits_target_slope, backward_kernel="loss.bce_with_logits_backward",
)  # fmt: skip


@composite("functional")
def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average=None, reduce=None,
    reduction: str = "mean", pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Computes `binary_cross_entropy` of sigmoid(input) without overflow; `pos_weight` multiplies the term of t.

    >>> torch.nn.functional.binary_cross_entropy_with_logits(torch.zeros(1), torch.ones(1))
    tensor(0.6931)
    """
    reduction = checked_loss(reduction, size_average, reduce)
    x, y = input._array, target._array
    if x.shape != y.shape:
        raise ValueError(f"Target size ({target.size()}) must be the same as input size ({input.size()})")
    if x.dtype.kind in "iub" and y.dtype.kind in "iub":
        check_real_floats(x, "log_sigmoid_cpu")
    if y.dtype.kind in "iub":
        raise RuntimeError(
            f"result type {scalar_type(x)} can't be cast to the desired output type {scalar_type(y)} "
            "(binary_cross_entropy_with_logits: the target must be of a floating-point dtype)"
        )
    if "c" in (x.dtype.kind, y.dtype.kind):
        raise NotImplementedError(f"\"log_sigmoid_cpu\" not implemented for '{scalar_type(x)}'")
    if x.dtype is not y.dtype:
        input, target = _same(input, target)
    for factor in (weight, pos_weight):
        if factor is not None:
            check_broadcastable([factor._array, x])
    return _bce_with_logits(input, target, weight, pos_weight, reduction)


@composite("functional")
def kl_div(
    input: Tensor, target: Tensor, size_average=None, reduce=None, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """Computes target (log target - input), for log-probabilities `input`; with `log_target`, the target is one, too.

    `reduction="batchmean"` divides the sum by the size of the first dimension, as in the definition of the divergence.

    >>> p = torch.tensor([[0.5, 0.5]])
    >>> torch.nn.functional.kl_div(p.log(), p, reduction="batchmean")
    tensor(0.)
    """
    if size_average is not None or reduce is not None:
        reduction = legacy_reduction(size_average, reduce)
    elif reduction == "mean":
        warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size.'batchmean' divides "
            "only by the batch size, and aligns with the KL div math definition.'mean' will be changed to behave the "
            "same as 'batchmean' in the next major release.",
        )
    elif reduction != "batchmean":
        checked_loss(reduction)
    refuse_numbers(input=input, target=target)
    if target.dtype.category < dtypes.FLOATING:
        raise RuntimeError("kl_div: Integral inputs not supported.")
    loss = target.exp() * (target - input) if log_target else target.xlogy(target) - target * input
    if reduction == "batchmean":
        return loss.sum() / input._array.shape[0] if input.ndim else loss.sum()
    return reduced_loss(loss, reduction)


# --- classes -------------------------------------------------------------------------------------------------------


def _check_classes(x, target, weight) -> None:
    """Checks shapes and dtypes, with PyTorch's errors."""
    if not x.ndim:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    if x.ndim == 1:
        if target.ndim > 1 or target.size != 1:
            raise ValueError(
                f"Expected target of one element for an input of shape {list(x.shape)}, got {list(target.shape)}"
            )
    elif not target.ndim or x.shape[0] != target.shape[0]:
        got = target.shape[0] if target.ndim else 0
        raise ValueError(f"Expected input batch_size ({x.shape[0]}) to match target batch_size ({got}).")
    elif x.ndim == 2 and target.ndim > 1:
        raise RuntimeError(
            "0D or 1D target tensor expected, multi-target not supported: the target must contain class indices, "
            f"of shape {list(x.shape[:1])}, but it has shape {list(target.shape)}"
        )
    elif x.shape[2:] != target.shape[1:]:
        raise RuntimeError(f"Expected target size {[x.shape[0], *x.shape[2:]]}, got {list(target.shape)}")
    if target.dtype not in (I64, "uint8"):
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {scalar_type(target)}")
    classes = x.shape[0 if x.ndim == 1 else 1]
    if weight is not None:
        if weight.shape != (classes,):
            raise RuntimeError(
                f"weight tensor should be defined either for all {classes} classes or no classes but got weight tensor "
                f"of shape: {list(weight.shape)}"
            )
        if weight.dtype != x.dtype:
            raise RuntimeError(f"expected scalar type {scalar_type(x)} but found {scalar_type(weight)}")


def _prepare_classes(x, target, weight, *rest):
    if x.dtype is not F32:
        check_real_floats(x, "nll_loss_out_frame")
    if not (x.ndim == 2 and target.dtype is I64 and target.shape == x.shape[:1] and weight is None):
        _check_classes(x, target, weight)
        if target.dtype != I64:
            target = target.astype(I64)
    return (x, target, weight, *rest)


def _prepare_logits(x, target, weight, ignore_index, smoothing, reduction):
    usual = x.dtype is F32 and target.dtype is I64 and weight is None and x.ndim == 2 and target.shape == x.shape[:1]
    if not usual:
        if x.dtype.kind not in "fV":
            raise NotImplementedError(f"\"log_softmax_lastdim_kernel_impl\" not implemented for '{scalar_type(x)}'")
        x, target, weight = _prepare_classes(x, target, weight)
    return x, target, weight, ignore_index, smoothing, reduction


def _nll_in_batch(input, target, weight, ignore_index, reduction, size, mapped):
    input, target = each(size, mapped, input=input, target=target)
    shape = target.shape
    if len(shape) > 1:  # all elements of all samples are one batch
        input, target = input.flatten(0, 1), target.flatten(0, 1)
    losses, weights = _nll(input, target, weight if "weight" not in mapped else None, ignore_index, "none")
    losses, weights = losses.reshape(shape), weights.reshape(shape)
    if "weight" in mapped:
        at = target.reshape(size, -1)
        factors = weight.gather(1, at.masked_fill(at == ignore_index, 0)).reshape(shape)
        losses, weights = losses * factors, weights * factors
    if reduction == "none":
        return losses, weights
    total = losses.reshape(size, -1).sum(1)
    return total if reduction == "sum" else total / weights.reshape(size, -1).sum(1), weights


def _nll_grad_in_batch(g, target, weights, shape, ignore_index, size, mapped):
    g, target, weights = each(size, mapped, g=g, target=target, weights=weights)
    g = g.reshape((*g.shape, *(1,) * (weights.ndim - g.ndim))).expand(weights.shape)
    if len(shape) == 1:
        return _nll_grad(g, target, weights, (size, *shape), ignore_index)
    g, target, weights = (x.flatten(0, 1) for x in (g, target, weights))
    return _nll_grad(g, target, weights, (size * shape[0], *shape[1:]), ignore_index).unflatten(0, (size, shape[0]))


_nll_grad = op(
    "nll_grad(g, target, weights, shape: shape, ignore_index: int)", "loss.nll_grad", linear="g", where=(),
    batch=_nll_grad_in_batch,
    shape=lambda g, target, weights, shape, ignore_index: (shape, g.dtype),
    g=lambda g, target, weights, g_shape, ignore_index: _of_each(
        _nll(g, target, None, ignore_index, "none")[0] * weights, g_shape
    ),
)  # fmt: skip
_nll = op(
    "nll(input, target, weight=None, ignore_index: int = -100, reduction: str = 'mean')", "loss.nll", linear="input",
    where=(), batch=_nll_in_batch, strides="rows rows",
    outputs=("out", "weights"), prepare=_prepare_classes, backward_name="NllLossBackward0",
    shape=lambda x, t, weight, ignore_index, reduction: [
        (t.shape if reduction == "none" else (), x.dtype), (t.shape, x.dtype)
    ],
    input=lambda g, weights, target, input_shape, ignore_index, reduction: _nll_grad(
        g / weights.sum() if reduction == "mean" else g, target, weights, input_shape, ignore_index
    ),
)  # fmt: skip


def _of_each(losses: Tensor, shape: tuple) -> Tensor:
    """Returns one gradient per element, or their sum if there was one gradient for all."""
    return losses if len(shape) == losses.ndim else losses.sum()


@composite("functional")
def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average=None, ignore_index: int = -100,
    reduce=None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Computes -input[target], for log-probabilities (N, C, ...) and class indices (N, ...); or (C) and one index.

    Args:
        target: class indices (int64) from 0 to C - 1.
        reduction: "mean", "sum", or "none" for a loss (N, ...) per element.
        weight: a factor per class; a mean divides by the weights of the targets.
        ignore_index: a class index to be ignored.

    Raises:
        IndexError: If a class index is out of range.
        ValueError, RuntimeError: If the shapes do not fit.

    >>> torch.nn.functional.nll_loss(torch.tensor([[-0.1, -2.0]]), torch.tensor([1]))
    tensor(2.)
    """
    reduction = checked_loss(reduction, size_average, reduce)
    return _nll(input, target, weight, ignore_index, reduction)[0]


def _cross_entropy_twin(input, target, weight, ignore_index, label_smoothing, reduction):
    dim = 0 if input.ndim == 1 else 1
    logp = input.log_softmax(dim)
    loss, weights = _nll(logp, target, weight, ignore_index, "none")
    if label_smoothing:
        spread = -(logp if weight is None else logp * _per_class(weight, input.ndim)).sum(dim)
        spread = spread.masked_fill(target.reshape(spread.shape) == ignore_index, 0) / input._array.shape[dim]
        loss = loss * (1 - label_smoothing) + spread * label_smoothing
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / weights.sum()


def _per_class(weight: Tensor, ndim: int) -> Tensor:
    return weight if ndim == 1 else weight.reshape((-1,) + (1,) * (ndim - 2))


_cross_entropy = op(
    "cross_entropy(input, target, weight=None, ignore_index: int = -100, label_smoothing: float = 0.0, "
    "reduction: str = 'mean')",
    "loss.cross_entropy", twin=_cross_entropy_twin, wrt=("input",), prepare=_prepare_logits, where=(),
    shape=lambda x, t, weight, ignore_index, smoothing, reduction: [
        (t.shape if reduction == "none" else (), x.dtype), (x.shape, x.dtype)
    ],
    cache=("shares",), backward_kernel="loss.cross_entropy_backward", backward_name="NllLossBackward0",
    batch_kernel="loss.cross_entropy_of_batch", batch_backward="loss.cross_entropy_of_batch_backward",
)  # fmt: skip


@composite("functional")
def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average=None, ignore_index: int = -100,
    reduce=None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """Computes -log softmax(input)[target], for scores (N, C, ...) and targets as class indices or probabilities.

    Class indices are (N, ...), probabilities of the shape of the scores. The softmax and its logarithm are computed
    together, without overflow, also where a probability is too small for the dtype.

    Args:
        target: class indices (int64), or probabilities.
        reduction: "mean", "sum", or "none" for a loss (N, ...) per element.
        weight: a factor per class; a mean over class indices divides by the weights of the targets.
        ignore_index: a class index to be ignored.
        label_smoothing: the share of the target that is spread evenly over the classes (Szegedy et al., 2015).

    Raises:
        IndexError: If a class index is out of range.
        ValueError, RuntimeError: If the arguments do not fit.

    >>> torch.nn.functional.cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3]))
    tensor(1.3863)
    """
    if size_average is not None or reduce is not None or reduction not in _REDUCTIONS:
        reduction = checked_loss(reduction, size_average, reduce)
    if label_smoothing and not 0 <= label_smoothing <= 1:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing:g}")
    if input._array.shape == target._array.shape:
        return _soft_cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)
    return _cross_entropy(input, target, weight, ignore_index, label_smoothing, reduction)


def _soft_cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing):
    """Cross-entropy with target probabilities for all classes."""
    if target.dtype.category < dtypes.FLOATING:
        raise RuntimeError(
            f"Expected floating point type for target with class probabilities, got {scalar_type(target)}"
        )
    if ignore_index >= 0:
        raise RuntimeError("ignore_index is not supported for floating point target")
    dim = 0 if input.ndim == 1 else 1
    classes = input.shape[dim]
    if weight is not None and weight._array.shape != (classes,):
        raise RuntimeError(
            f"cross_entropy: weight tensor should be defined either for all {classes} classes or no classes but got "
            f"weight tensor of shape: {list(weight.shape)}"
        )
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    loss = input.log_softmax(dim) * target
    if weight is not None:
        loss = loss * _per_class(weight, input.ndim)
    if reduction == "none":
        return -loss.sum(dim)
    total = -loss.sum()
    return total if reduction == "sum" else total / (input.numel() // classes if classes else 0)
