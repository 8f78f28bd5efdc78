"""Losses: the error of a prediction as a scalar (or one value per sample, with `reduction="none"`).

All take `reduction`: `"mean"`, `"sum"` or `"none"`; `size_average` and `reduce` are deprecated forms of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from tensorgrad.nn import functional as F
from tensorgrad.nn.distance import PairwiseDistance
from tensorgrad.nn.module import Module
from tensorgrad.tensor import Tensor


class _Loss(Module):
    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__()
        if size_average is not None or reduce is not None:
            if isinstance(size_average, Tensor) or isinstance(reduce, Tensor):
                name = type(self).__name__
                raise RuntimeError(
                    f"Boolean value of Tensor with more than one value is ambiguous: {name}() takes options, and its "
                    f"result takes the tensors, as in {name}()(input, target)"
                )
            reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
            warnings.warn(
                f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.",
                stacklevel=3,
            )
        self.reduction = reduction


class _WeightedLoss(_Loss):
    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class L1Loss(_Loss):
    """The mean of |input - target|.

    Input and target have the same shape (other shapes are broadcast, with a warning). The result is a scalar, or has
    their shape with `reduction="none"`.

    Args:
        reduction: `mean`, `sum` or `none`.

    >>> torch.nn.L1Loss()(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 2.0]))
    tensor(1.)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """The mean of (input - target)².

    Input and target have the same shape (other shapes are broadcast, with a warning). The result is a scalar, or has
    their shape with `reduction="none"`.

    Args:
        reduction: `mean`, `sum` or `none`.

    >>> torch.nn.MSELoss()(torch.zeros(3), torch.ones(3))
    tensor(1.)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """d²/(2 beta) where d = |input - target| < beta, else d - beta/2 (Girshick, 2015). Shapes as in `L1Loss`.

    Args:
        reduction: `mean`, `sum` or `none`.
        beta: the d at which the quadratic part ends, not negative; with 0 the loss is `L1Loss`.

    Raises:
        RuntimeError: when called, if `beta` is negative.

    >>> torch.nn.SmoothL1Loss()(torch.tensor([0.0, 0.0]), torch.tensor([0.5, 3.0]))
    tensor(1.3125)
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """d²/2 where d = |input - target| < delta, else delta (d - delta/2) (Huber, 1964). Shapes as in `L1Loss`.

    Args:
        reduction: `mean`, `sum` or `none`.
        delta: the d at which the quadratic part ends, greater than 0.

    Raises:
        TypeError: `delta` is not a number.
        RuntimeError: when called, if `delta` is not positive.

    >>> torch.nn.HuberLoss()(torch.tensor([0.0, 0.0]), torch.tensor([0.5, 3.0]))
    tensor(1.3125)
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        if not isinstance(delta, float | int):
            raise TypeError(f"delta must be a float or int, got: {type(delta)}")
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class CrossEntropyLoss(_WeightedLoss):
    """-log softmax(input)[target]: the negative log-likelihood of the target class, from unnormalized scores (logits).

    The softmax and its logarithm are computed together, which is exact also where the softmax itself would be 0 or
    overflow: pass scores, not probabilities.

    Args:
        weight: a factor per class, (C).
        ignore_index: the target value to ignore.
        reduction: `mean` (weighted), `sum` or `none`.
        label_smoothing: the fraction of the target that is spread evenly over all classes.

    Called with scores (N, C) or (N, C, d₁, ...) and class indices (N) or (N, d₁, ...), or probabilities of the
    scores' shape.

    >>> torch.nn.CrossEntropyLoss()(torch.zeros(3, 4), torch.tensor([0, 1, 2]))
    tensor(1.3863)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )  # fmt: skip


class NLLLoss(_WeightedLoss):
    """-weight[t]·input[t] for the target t, like `CrossEntropyLoss`, but from log-probabilities.

    The input is (C), (N, C) or (N, C, d₁, ...); the target has class indices (), (N) or (N, d₁, ...).

    Args:
        weight: a factor per class, (C).
        ignore_index: the target value to ignore: it adds nothing to the sum, nor to what the mean divides by.
        reduction: `mean` (divides by the sum of the weights), `sum` or `none`.

    >>> scores = torch.log_softmax(torch.zeros(1, 2), dim=1)
    >>> torch.nn.NLLLoss()(scores, torch.tensor([1]))
    tensor(0.6931)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(
            input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction
        )  # fmt: skip


class NLLLoss2d(NLLLoss):
    """Deprecated: the same as `NLLLoss`, which also accepts images.

    >>> import warnings
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> scores = torch.log_softmax(torch.zeros(1, 2, 1, 1), dim=1)
    >>> torch.nn.NLLLoss2d()(scores, torch.tensor([[[1]]]))
    tensor(0.6931)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        warnings.warn(
            "`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead as a drop-in replacement and see "
            "https://pytorch.org/docs/main/nn.html#torch.nn.NLLLoss for more details.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__(weight, size_average, ignore_index, reduce, reduction)


class BCELoss(_WeightedLoss):
    """-(t log p + (1 - t) log(1 - p)) for probabilities p and targets t in [0, 1] of the same shape.

    Args:
        weight: a factor per element, of a shape that broadcasts to theirs.
        reduction: `mean`, `sum` or `none`.

    Logarithms are clamped to at least -100, which keeps the loss finite.

    Raises:
        RuntimeError: when called, if the input is not between 0 and 1.
        ValueError: when called, if the shapes differ.

    >>> torch.nn.BCELoss()(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]))
    tensor(0.6931)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """-(pos_weight · t log σ(x) + (1 - t) log(1 - σ(x))): sigmoid and `BCELoss`, computed without overflow.

    Args:
        weight: a factor per element, of a shape that broadcasts to the input's.
        reduction: `mean`, `sum` or `none`.
        pos_weight: a factor for t, for example (number of 0s) / (number of 1s) of each class.

    >>> torch.nn.BCEWithLogitsLoss()(torch.tensor([0.0, 0.0]), torch.tensor([0.0, 1.0]))
    tensor(0.6931)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )  # fmt: skip


class KLDivLoss(_Loss):
    """target · (log target - input), where `input` has log-probabilities; with `log_target`, so does `target`.

    `reduction="batchmean"` divides by the batch size, which gives the mathematical KL divergence.

    Args:
        reduction: `batchmean` (the divergence per sample), `mean` (over all elements), `sum` or `none`.
        log_target: the target is given as log-probabilities, too.

    >>> p, q = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.25, 0.75]])
    >>> torch.nn.KLDivLoss(reduction="batchmean")(q.log(), p)
    tensor(0.1438)
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class PoissonNLLLoss(_Loss):
    """e^input - target·input: the negative Poisson log-likelihood of counts, without the constant log target!.

    Args:
        log_input: the input is the logarithm of the rate; if False, it is the rate: input - target·log(input + eps).
        full: add Stirling's approximation of log target!, t log t - t + log(2πt)/2, where the target t exceeds 1.
        eps: keeps the logarithm finite.
        reduction: `mean`, `sum` or `none`.

    Input and target have the same shape.

    >>> torch.nn.PoissonNLLLoss(log_input=False)(torch.tensor([2.0, 4.0]), torch.tensor([2.0, 3.0]))
    tensor(0.2274)
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-08,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(
            log_input, target, log_input=self.log_input, full=self.full, eps=self.eps, reduction=self.reduction
        )  # fmt: skip


class CTCLoss(_Loss):
    """-log of the probability that a sequence of distributions over labels and a blank spells the target.

    Args:
        blank: the class index of the blank.
        reduction: `"mean"` first divides each loss by the length of its target.
        zero_infinity: use a loss of 0 instead of infinity for targets that are too long for their inputs.

    The arguments of a call are explained at `tensorgrad.nn.functional.ctc_loss`.

    >>> log_probs = torch.zeros(4, 1, 3).log_softmax(2)  # 15 paths of 81 spell "1 2"
    >>> torch.nn.CTCLoss(reduction="sum")(log_probs, torch.tensor([[1, 2]]), (4,), (2,)).neg().exp() * 81
    tensor(15.0000)
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(
        self,
        log_probs: Tensor,
        targets: Tensor,
        input_lengths: Tensor | Sequence[int],
        target_lengths: Tensor | Sequence[int],
    ) -> Tensor:
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )  # fmt: skip


class GaussianNLLLoss(_Loss):
    """(log v + (input - target)² / v) / 2, where v = max(`var`, `eps`) (Nix and Weigend, 1994).

    This is the negative log-density of the target under a normal distribution of mean `input` and variance `var`.

    Args:
        full: add the constant log(2π) / 2.
        eps: the lower bound of the variance.
        reduction: `mean`, `sum` or `none`.

    `var` has the input's shape, or that shape with a last size of 1, or without the last dimension, or is a scalar.

    Raises:
        ValueError: when called, if `var` has negative values or another shape.

    >>> torch.nn.GaussianNLLLoss()(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
    tensor(0.8466)
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-06, reduction: str = "mean") -> None:
        super().__init__(None, None, reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class HingeEmbeddingLoss(_Loss):
    """x where the target is 1, max(0, margin - x) where it is -1; x is a distance.

    Input and target have the same shape.
    `reduction` is `mean`, `sum` or `none`; with `none`, the result has the shape of the losses.

    Args:
        margin: the distance from which dissimilar pairs add nothing.
        reduction: `mean`, `sum` or `none`.

    >>> torch.nn.HingeEmbeddingLoss()(torch.tensor([0.5, 0.25]), torch.tensor([1.0, -1.0]))
    tensor(0.6250)
    """

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class SoftMarginLoss(_Loss):
    """log(1 + e^(-target·input)) for targets 1 and -1; input and target have the same shape.

    `reduction` is `mean`, `sum` or `none`; with `none`, the result has the shape of the losses.

    Args:
        reduction: `mean`, `sum` or `none`.

    >>> torch.nn.SoftMarginLoss()(torch.tensor([0.0, 2.0]), torch.tensor([1.0, -1.0]))
    tensor(1.4100)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class CosineEmbeddingLoss(_Loss):
    """1 - cos(x₁, x₂) where the target is 1, max(0, cos(x₁, x₂) - margin) where it is -1.

    x₁ and x₂ are vectors (N, D) with targets (N), or (D) with a zero-dimensional target; the losses are (N) or ().

    Args:
        margin: cosines up to this one cost nothing, between -1 and 1; 0 to 0.5 is recommended.
        reduction: `mean`, `sum` or `none`.

    >>> a, b = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.0, 1.0], [3.0, 4.0]])
    >>> torch.nn.CosineEmbeddingLoss(reduction="none")(a, b, torch.tensor([1, -1]))
    tensor([1.0000, 0.6000])
    """

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class MarginRankingLoss(_Loss):
    """max(0, -target · (x₁ - x₂) + margin): x₁ should be larger where the target is 1, smaller where it is -1.

    All three have the same shape. `margin` is the required difference;
    `reduction` is `mean`, `sum` or `none`; with `none`, the result has the shape of the losses.

    Args:
        margin: by how much the better one must be greater to add nothing.
        reduction: `mean`, `sum` or `none`.

    >>> loss = torch.nn.MarginRankingLoss(margin=0.5, reduction="none")
    >>> loss(torch.tensor([2.0, 2.0]), torch.tensor([1.0, 1.0]), torch.tensor([1.0, -1.0]))
    tensor([0.0000, 1.5000])
    """

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class MultiLabelMarginLoss(_Loss):
    """Σ max(0, 1 - (x[right] - x[wrong])) / C over all pairs of a right and a wrong class.

    Scores x are (N, C) or (C). So are the targets, which list the right classes first, terminated by -1.
    The losses are (N) or ().

    `reduction` is `mean`, `sum` or `none`; with `none`, the result has the shape of the losses.

    Args:
        reduction: `mean`, `sum` or `none`.

    >>> torch.nn.MultiLabelMarginLoss()(torch.tensor([0.1, 0.2, 0.4, 0.8]), torch.tensor([3, 0, -1, 1]))
    tensor(0.8500)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """-Σ (t log σ(x) + (1 - t) log(1 - σ(x))) / C over the classes: the mean of their `BCEWithLogitsLoss`.

    Scores x and targets t, 0 or 1, are (N, C) or (C); the losses are (N) or (). `weight` is a factor per class.

    `reduction` is `mean`, `sum` or `none`; with `none`, the result has the shape of the losses.

    Args:
        weight: a factor per class, (C).
        reduction: `mean`, `sum` or `none`.

    >>> torch.nn.MultiLabelSoftMarginLoss()(torch.tensor([[2.0, -1.0, 0.0]]), torch.tensor([[1.0, 0.0, 1.0]]))
    tensor(0.3778)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, weight=self.weight, reduction=self.reduction)


class MultiMarginLoss(_WeightedLoss):
    """Σ max(0, margin - x[t] + x[i])ᵖ / C over the classes i other than the target t: a multi-class hinge loss.

    Scores x are (N, C) or (C); targets and losses are (N) or ().

    Args:
        p: 1 or 2.
        margin: the required lead of the right class.
        weight: (C), a factor for each target class, outside the power.
        reduction: `mean`, `sum` or `none`.

    Raises:
        ValueError: `p` is neither 1 nor 2, or `weight` is not one-dimensional.

    >>> torch.nn.MultiMarginLoss()(torch.tensor([[0.1, 0.2, 0.4, 0.8]]), torch.tensor([3]))
    tensor(0.3250)
    """

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError("only p == 1 and p == 2 supported")
        if weight is not None and weight.dim() != 1:
            raise ValueError(f"MultiMarginLoss: expected weight to be None or 1D tensor, got {weight.dim()}D instead")
        self.p, self.margin = p, margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(
            input, target, p=self.p, margin=self.margin, weight=self.weight, reduction=self.reduction
        )  # fmt: skip


class TripletMarginLoss(_Loss):
    """max(0, ‖anchor - positive‖ - ‖anchor - negative‖ + margin), for vectors (N, D) or (D); the losses are (N) or ().

    Args:
        margin: how much closer the positive should be.
        p, eps: those of the distance, see `tensorgrad.nn.PairwiseDistance`.
        swap: use ‖positive - negative‖ if it is smaller than ‖anchor - negative‖ (Balntas et al., 2016).
        reduction: `mean`, `sum` or `none`.

    Raises:
        ValueError: `margin` is not greater than 0.

    >>> loss = torch.nn.TripletMarginLoss(margin=1.0)
    >>> loss(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 1.5]]))
    tensor(0.5000)
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-06,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise ValueError(f"TripletMarginLoss: expected margin to be greater than 0, got {margin} instead")
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor, positive, negative, margin=self.margin, p=self.p, eps=self.eps, swap=self.swap,
            reduction=self.reduction,
        )  # fmt: skip


class TripletMarginWithDistanceLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin): `TripletMarginLoss` with any distance d.

    Args:
        distance_function: d, a function of two tensors; by default `tensorgrad.nn.PairwiseDistance`.
        margin: how much closer the positive should be.
        swap: use d(positive, negative) if it is smaller than d(anchor, negative).
        reduction: `mean`, `sum` or `none`.

    Raises:
        ValueError: `margin` is not greater than 0.

    >>> loss = torch.nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: (a - b).abs().amax(-1))
    >>> loss(torch.zeros(1, 2), torch.tensor([[3.0, 1.0]]), torch.tensor([[2.0, 2.5]]))
    tensor(1.5000)
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        if margin <= 0:
            raise ValueError(
                f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, got {margin} instead"
            )
        self.distance_function: Any = PairwiseDistance() if distance_function is None else distance_function
        self.margin, self.swap = margin, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function, margin=self.margin, swap=self.swap,
            reduction=self.reduction,
        )  # fmt: skip
