"""Margin losses, losses for counts, and losses between vectors; distances. All are made of simpler ops."""

from __future__ import annotations

import math

from tensorgrad import dtypes
from tensorgrad.autograd.modes import no_grad
from tensorgrad.dispatch.kernel_errors import check_real_floats
from tensorgrad.dispatch.kinds import composite
from tensorgrad.dispatch.promotion import refuse_numbers
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import check_string, wrong_argument
from tensorgrad.ops.nn.activation import logsigmoid
from tensorgrad.ops.nn.loss import checked_loss, legacy_reduction, reduced_loss
from tensorgrad.ops.pick import pick
from tensorgrad.ops.reduce import vector_norm
from tensorgrad.ops.shape import broadcast_tensors
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch import whole


def _positive(x: Tensor) -> Tensor:
    """max(0, x), with gradient 0 at 0; 0 for NaN."""
    return x.masked_fill(~(x > 0), 0)


def _any(condition: Tensor) -> bool:
    """Returns whether a condition holds anywhere; False on the meta device, which has no values."""
    return not condition.is_meta and bool(whole(condition).any())


# --- distances -----------------------------------------------------------------------------------------------------


@composite("function", "functional")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Computes x₁·x₂ / (max(‖x₁‖, eps) max(‖x₂‖, eps)) along `dim`, of vectors that broadcast.

    >>> torch.cosine_similarity(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0]), dim=0)
    tensor(0.7071)
    """
    dtype = dtypes.result_type_of((x1._array, x2._array))
    if dtype.category != dtypes.FLOATING:
        raise RuntimeError(f"expected common dtype to be floating point, yet common dtype is {scalar_type(dtype)}")
    if eps < 0:
        raise RuntimeError(f"eps must be non-negative, got: {eps:g}")
    if x1._array.shape != x2._array.shape:
        x1, x2 = broadcast_tensors(x1, x2)
    x1, x2 = x1.to(dtype), x2.to(dtype)
    return (x1 / _length(x1, dim, eps) * (x2 / _length(x2, dim, eps))).sum(dim)


def _length(x: Tensor, dim: int, eps: float) -> Tensor:
    """Returns the norm, but at least `eps`; its gradient is always that of the norm."""
    size = vector_norm(x, 2, dim, True)
    raised = size.detach()
    return size + (eps - raised).clamp(min=0)


@composite("function", "functional")
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """Computes the distance ‖x₁ - x₂ + eps‖ₚ along the last dimension.

    >>> torch.pairwise_distance(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]))
    tensor([5.0000])
    """
    refuse_numbers(x1=x1, x2=x2)
    return vector_norm(x1 - x2 + eps, p, -1 if x1.ndim or x2.ndim else None, keepdim)


# --- two or three vectors ------------------------------------------------------------------------------------------


@composite("functional")
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average=None, reduce=None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Computes 1 - cos(x₁, x₂) where `target` is 1, max(0, cos(x₁, x₂) - margin) where it is -1; for (N, D) or (D).

    >>> a, b = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> torch.nn.functional.cosine_embedding_loss(a, b, torch.tensor([1.0]))
    tensor(1.)
    """
    reduction = checked_loss(reduction, size_average, reduce)
    if target.ndim not in (0, 1):
        raise RuntimeError(
            f"0D or 1D target tensor expected, multi-target not supported: got a target of shape {list(target.shape)}"
        )
    if input1.ndim != target.ndim + 1 or input2.ndim != target.ndim + 1:
        raise RuntimeError(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found inputs with sizes "
            f"{list(input1.shape)} and {list(input2.shape)}."
        )
    tiny = 1e-12  # keeps the derivative of the square root finite at zero vectors
    size1, size2 = (input1 * input1).sum(-1) + tiny, (input2 * input2).sum(-1) + tiny
    cosine = (input1 * input2).sum(-1) / (size1 * size2).sqrt()
    apart = (cosine - margin).clamp(min=0)
    zeros = cosine.new_zeros(())
    return reduced_loss((1 - cosine).where(target == 1, zeros) + apart.where(target == -1, zeros), reduction)


@composite("functional")
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average=None, reduce=None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Computes max(0, -target (x₁ - x₂) + margin): x₁ should be larger where `target` is 1, smaller where it is -1.

    >>> torch.nn.functional.margin_ranking_loss(torch.tensor([1.0]), torch.tensor([3.0]), torch.tensor([1.0]))
    tensor(2.)
    """
    reduction = checked_loss(reduction, size_average, reduce)
    if input1.ndim != input2.ndim or input1.ndim != target.ndim:
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.size()}, input2: {input2.size()}, target: {target.size()} "
        )
    return reduced_loss((-target * (input1 - input2) + float(margin)).clamp(min=0), reduction)


def _triplet(nearer: Tensor, farther: Tensor, between, margin: float, reduction: str) -> Tensor:
    if between is not None:
        farther = farther.minimum(between)
    return reduced_loss((margin + nearer - farther).clamp(min=0), reduction)


def _check_triplet(anchor, positive, negative, margin) -> None:
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    a, p, n = anchor.ndim, positive.ndim, negative.ndim
    if not a == p == n:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {a}D, positive {p}D, and negative {n}D inputs"
        )


@composite("functional")
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6,
    swap: bool = False, size_average=None, reduce=None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Computes max(0, ‖anchor - positive‖ - ‖anchor - negative‖ + margin), in the `p`-norm of `pairwise_distance`.

    With `swap`, uses ‖positive - negative‖ instead where that is the smaller distance (Balntas et al., 2016).

    Raises:
        ValueError: If `margin` is not positive.
        RuntimeError: If the numbers of dimensions differ.

    >>> a, p, n = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 1.5]])
    >>> torch.nn.functional.triplet_margin_loss(a, p, n)
    tensor(0.5000)
    """
    reduction = checked_loss(reduction, size_average, reduce)
    _check_triplet(anchor, positive, negative, margin)
    between = pairwise_distance(positive, negative, p, eps) if swap else None
    nearer, farther = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    return _triplet(nearer, farther, between, margin, reduction)


@composite("functional")
def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *, distance_function=None, margin: float = 1.0,
    swap: bool = False, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """`triplet_margin_loss` with any distance: a function of two tensors, by default `pairwise_distance`.

    Computes max(0, d(anchor, positive) - d(anchor, negative) + margin); with `swap`, the smaller of
    d(anchor, negative) and d(positive, negative) is used.

    >>> anchor, positive, negative = torch.zeros(1, 2), torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 2.0]])
    >>> city_blocks = lambda x, y: (x - y).abs().sum(-1)
    >>> loss = torch.nn.functional.triplet_margin_with_distance_loss
    >>> loss(anchor, positive, negative, distance_function=city_blocks, margin=2.0)
    tensor(1.)
    """
    reduction = checked_loss(reduction)
    _check_triplet(anchor, positive, negative, margin)
    distance = pairwise_distance if distance_function is None else distance_function
    nearer, farther = distance(anchor, positive), distance(anchor, negative)
    return _triplet(nearer, farther, distance(positive, negative) if swap else None, margin, reduction)


# --- one input and its target --------------------------------------------------------------------------------------


@composite("functional")
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, size_average=None, reduce=None, reduction: str = "mean"
) -> Tensor:
    """Computes x where `target` is 1, max(0, margin - x) where it is -1; for distances x.

    >>> torch.nn.functional.hinge_embedding_loss(torch.tensor([0.3, 0.4]), torch.tensor([1.0, -1.0]))
    tensor(0.4500)
    """
    reduction = checked_loss(reduction, size_average, reduce)
    zeros = input.new_zeros(())
    apart = (input.new_full((), margin) - input).clamp(min=0)  # an integer for integers
    return reduced_loss(apart.where(target != 1, zeros) + input.where(target != -1, zeros), reduction)


@composite("functional")
def soft_margin_loss(input: Tensor, target: Tensor, size_average=None, reduce=None, reduction: str = "mean") -> Tensor:
    """Computes log(1 + exp(-target · input)), for targets 1 and -1; averaged, summed or neither (`reduction`).

    >>> torch.nn.functional.soft_margin_loss(torch.tensor([2.0, -1.0]), torch.tensor([1.0, 1.0]), reduction="none")
    tensor([0.1269, 1.3133])
    """
    reduction = checked_loss(reduction, size_average, reduce)
    refuse_numbers(input=input, target=target)
    loss = 0.0 - logsigmoid(input * target)
    if loss._array.shape != input._array.shape:
        raise RuntimeError(
            f"output with shape {list(input.shape)} doesn't match the broadcast shape {list(loss.shape)}"
        )
    return reduced_loss(loss, reduction)


@composite("functional")
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average=None, reduce=None, reduction: str = "mean"
) -> Tensor:
    """Computes the binary cross-entropy of sigmoid(input), averaged over the classes (last dimension) of each sample.

    `target` has the shape of the input, (*, C), and is 1 for the classes that apply; `weight` (C,) scales the classes.

    >>> torch.nn.functional.multilabel_soft_margin_loss(torch.tensor([[2.0, -1.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.2201)
    """
    if size_average is not None or reduce is not None:
        reduction = legacy_reduction(size_average, reduce)
    elif reduction not in ("none", "mean", "sum"):
        check_string(reduction, "reduction")
        raise ValueError(f"{reduction} is not valid")
    log_share = logsigmoid
    loss = -(target * log_share(input) + (1 - target) * log_share(-input))
    if weight is not None:
        loss = loss * weight
    return reduced_loss(loss.sum(-1) / input.size(-1), reduction)


@composite("functional")
def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, size_average=None,
    reduce=None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Computes Σ max(0, margin - x[target] + x[i])ᵖ / C over the other classes i; for scores (N, C) or (C).

    Raises:
        ValueError: If `p` is not 1 or 2.
        RuntimeError: If the targets do not fit.

    >>> torch.nn.functional.multi_margin_loss(torch.tensor([[0.1, 0.2, 0.8]]), torch.tensor([2]), reduction="none")
    tensor([0.2333])
    """
    reduction = checked_loss(reduction, size_average, reduce)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.ndim != 1:
        raise ValueError("weight must be one-dimensional")
    rows = input if input.ndim == 2 else input.reshape(1, -1)
    count, classes = rows._array.shape
    if target.ndim > 1 or target.numel() != count:
        raise RuntimeError(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch "
            f"size). Expected target size [{count}], but got {list(target.shape)}. Input has shape {list(input.shape)}."
        )
    if weight is not None and weight.numel() != classes:
        raise RuntimeError(f"inconsistent weight size, expected {classes} but got {list(weight.shape)}")
    if target.dtype is not dtypes.int64:
        raise RuntimeError(f"expected scalar type Long but found {scalar_type(target)}")
    check_real_floats(input._array, "multi_margin_loss_cpu_kernel")
    column = target.reshape(count, 1)
    if _any((column < 0) | (column >= classes)):
        raise RuntimeError("target out of range")
    short = _positive(margin - pick(rows, column, 1, False) + rows)
    loss = short * short if p == 2 else short
    if weight is not None:
        loss = loss * pick(weight, target.reshape(-1), 0, False).unsqueeze(1)
    each = input.new_tensor(range(classes), dtype=dtypes.int64)
    loss = loss.masked_fill(each == column, 0).sum(1) / classes
    return reduced_loss(loss if input.ndim == 2 else loss.reshape(()), reduction)


@composite("functional")
def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average=None, reduce=None, reduction: str = "mean"
) -> Tensor:
    """Computes Σ max(0, 1 - (x[right] - x[wrong])) / C over all pairs of a right and a wrong class of each sample.

    `target`, of the shape of the scores, (N, C) or (C), lists the right classes, terminated by -1.

    >>> torch.nn.functional.multilabel_margin_loss(torch.tensor([0.1, 0.2, 0.8]), torch.tensor([2, -1, 0]))
    tensor(0.2333)
    """
    reduction = checked_loss(reduction, size_average, reduce)
    if target._array.shape != input._array.shape:
        raise RuntimeError(f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}")
    check_real_floats(input._array, "multilabel_margin_loss_forward_out_frame")
    classes = input._array.shape[-1] if input.ndim else 1
    rows, labels = input.reshape(-1, classes), target.reshape(-1, classes)
    if _any((labels < -1) | (labels >= classes)):
        raise RuntimeError("argument #2 'target' is out of range")
    listed = (labels < 0).cumsum(1) == 0  # up to the first -1
    named = labels.clamp(min=0)
    each = input.new_tensor(range(classes), dtype=dtypes.int64)
    right = ((named.unsqueeze(2) == each) & listed.unsqueeze(2)).any(1)
    pairs = _positive(1 - pick(rows, named, 1, False).unsqueeze(2) + rows.unsqueeze(1))
    loss = pairs.masked_fill(~listed.unsqueeze(2), 0).masked_fill(right.unsqueeze(1), 0).sum((1, 2)) / classes
    return reduced_loss(loss if input.ndim == 2 else loss.reshape(()), reduction)


@composite("functional")
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, size_average=None, eps: float = 1e-8,
    reduce=None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Computes e^x - target·x, or without `log_input` x - target·log(x + eps): a Poisson negative log-likelihood.

    The rates are e^x (or x), and the counts are `target`. `full` adds Stirling's approximation of log target! for
    targets above 1.

    >>> torch.nn.functional.poisson_nll_loss(torch.tensor([0.0]), torch.tensor([2.0]))
    tensor(1.)
    """
    if size_average is None and reduce is None:
        check_string(reduction, "reduction")
    reduction = checked_loss(reduction, size_average, reduce)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + (target * (2 * math.pi)).log() * 0.5
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return reduced_loss(loss, reduction)


@composite("functional")
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """Computes (log var + (input - target)² / var) / 2, with `var` at least `eps`; `full` adds log(2π) / 2.

    `var` is a number, or a tensor of the input's shape, of that shape without the last dimension, or with one dimension
    of size 1.

    Raises:
        ValueError: If `var` has another shape or is negative.

    >>> torch.nn.functional.gaussian_nll_loss(torch.tensor([1.0]), torch.tensor([3.0]), torch.tensor([1.0]))
    tensor(2.)
    """
    if isinstance(var, Tensor):
        spread = var
    elif not isinstance(var, float):
        raise wrong_argument(var, "var", "Tensor or float")
    elif var < 0:
        raise ValueError("var has negative entry/entries")
    else:
        spread = input.new_full(tuple(input._array.shape), float(var))
    shape, given = input._array.shape, spread._array.shape
    if given != shape:
        if shape[:-1] == given:
            spread = spread.unsqueeze(-1)
        elif len(given) != len(shape) or [v for n, v in zip(shape, given, strict=True) if n != v] != [1]:
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        check_string(reduction, "reduction")
        raise ValueError(f"{reduction} is not valid")
    if _any(spread < 0):
        raise ValueError("var has negative entry/entries")
    spread = spread.clone()
    with no_grad():
        spread.clamp_(min=eps)  # clamped without changing the gradient
    loss = (spread.log() + (input - target) ** 2 / spread) * 0.5
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced_loss(loss, reduction)
