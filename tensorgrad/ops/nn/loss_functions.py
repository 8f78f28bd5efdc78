"""The losses that are in `torch` itself: those of `torch.nn.functional`, with an integer code for the reduction.

The codes are PyTorch's: 0 is "none", 1 "mean", 2 "sum". Any other integer means "none", too.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorgrad.dispatch.kinds import composite
from tensorgrad.ops.nn import ctc, loss
from tensorgrad.ops.nn import margin as margins
from tensorgrad.tensor import Tensor


def _named(reduction: int, function: str) -> str:
    """Returns the reduction for an integer code. Raises: TypeError if it is not an integer."""
    if not isinstance(reduction, int) or isinstance(reduction, bool):
        raise TypeError(f"{function}(): argument 'reduction' must be int, not {type(reduction).__name__}")
    return {1: "mean", 2: "sum"}.get(reduction, "none")


@composite("function", name="binary_cross_entropy_with_logits")
def _binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    """`torch.nn.functional.binary_cross_entropy_with_logits`; `reduction`: 0 none, 1 mean, 2 sum.

    `input` may be smaller than `target` if it broadcasts.

    >>> torch.binary_cross_entropy_with_logits(torch.zeros(2), torch.ones(2), reduction=2)
    tensor(1.3863)
    """
    reduction_name = _named(reduction, "binary_cross_entropy_with_logits")
    if input._array.shape != target._array.shape:
        input = input.expand(target._array.shape)
    return loss.binary_cross_entropy_with_logits(
        input, target, weight, reduction=reduction_name, pos_weight=pos_weight
    )  # fmt: skip


@composite("function", name="kl_div")
def _kl_div(input: Tensor, target: Tensor, reduction: int = 1, *, log_target: bool = False) -> Tensor:
    """`torch.nn.functional.kl_div`; `reduction`: 0 none, 1 mean, 2 sum.

    >>> p = torch.tensor([0.5, 0.5])
    >>> torch.kl_div(p.log(), p, reduction=2)
    tensor(0.)
    """
    each = loss.kl_div(input, target, reduction="none", log_target=log_target)
    return loss.reduced_loss(each, _named(reduction, "kl_div"))


@composite("function", name="poisson_nll_loss")
def _poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int
) -> Tensor:  # fmt: skip
    """`torch.nn.functional.poisson_nll_loss` without defaults; `reduction`: 0 none, 1 mean, 2 sum.

    >>> torch.poisson_nll_loss(torch.tensor([0.0]), torch.tensor([2.0]), True, False, 1e-8, 1)
    tensor(1.)
    """
    return margins.poisson_nll_loss(
        input, target, log_input, full, eps=eps, reduction=_named(reduction, "poisson_nll_loss")
    )  # fmt: skip


@composite("function", name="hinge_embedding_loss")
def _hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 1) -> Tensor:
    """`torch.nn.functional.hinge_embedding_loss`; `reduction`: 0 none, 1 mean, 2 sum.

    >>> torch.hinge_embedding_loss(torch.tensor([0.25, 0.5]), torch.tensor([1.0, -1.0]), reduction=0)
    tensor([0.2500, 0.5000])
    """
    name = _named(reduction, "hinge_embedding_loss")
    return margins.hinge_embedding_loss(input, target, margin, reduction=name)


@composite("function", name="cosine_embedding_loss")
def _cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 1
) -> Tensor:
    """`torch.nn.functional.cosine_embedding_loss`; `reduction`: 0 none, 1 mean, 2 sum.

    >>> a, b = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> torch.cosine_embedding_loss(a, b, torch.tensor([1.0]))
    tensor(1.)
    """
    name = _named(reduction, "cosine_embedding_loss")
    return margins.cosine_embedding_loss(input1, input2, target, margin, reduction=name)


@composite("function", name="margin_ranking_loss")
def _margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 1
) -> Tensor:
    """`torch.nn.functional.margin_ranking_loss`; `reduction`: 0 none, 1 mean, 2 sum.

    >>> torch.margin_ranking_loss(torch.tensor([1.0]), torch.tensor([3.0]), torch.tensor([1.0]))
    tensor(2.)
    """
    name = _named(reduction, "margin_ranking_loss")
    return margins.margin_ranking_loss(input1, input2, target, margin, reduction=name)


@composite("function", name="triplet_margin_loss")
def _triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6,
    swap: bool = False, reduction: int = 1,
) -> Tensor:  # fmt: skip
    """`torch.nn.functional.triplet_margin_loss`, for any `margin`; `reduction`: 0 none, 1 mean, 2 sum.

    >>> a, p, n = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 1.5]])
    >>> torch.triplet_margin_loss(a, p, n, 2.0)
    tensor(1.5000)
    """
    name = _named(reduction, "triplet_margin_loss")
    margins._check_triplet(anchor, positive, negative, 1)
    nearer = margins.pairwise_distance(anchor, positive, p, eps)
    farther = margins.pairwise_distance(anchor, negative, p, eps)
    between = margins.pairwise_distance(positive, negative, p, eps) if swap else None
    return margins._triplet(nearer, farther, between, margin, name)


@composite("function", name="ctc_loss")
def _ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor | Sequence[int], target_lengths: Tensor | Sequence[int],
    blank: int = 0, reduction: int = 1, zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """`torch.nn.functional.ctc_loss`; `reduction`: 0 none, 1 mean (of losses by target length), 2 sum.

    >>> torch.ctc_loss(torch.full((1, 1, 2), 0.5).log(), torch.tensor([[1]]), (1,), (1,), reduction=2)
    tensor(0.6931)
    """
    name = _named(reduction, "ctc_loss")
    return ctc.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, name, zero_infinity)
