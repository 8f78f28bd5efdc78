"""Losses of `torch.nn.functional`, written in TorchScript: see `functional.py`."""

from __future__ import annotations

import math
from typing import Optional, Union

import tensorgrad as torch
from tensorgrad.tensor import Tensor

# ruff: noqa: UP007, UP045
# mypy: ignore-errors


def reduction_number(reduction: str, size_average: Optional[bool], reduce: Optional[bool]) -> int:
    if size_average is not None or reduce is not None:  # the older arguments
        averaged = size_average is None or bool(size_average)
        if reduce is not None and not reduce:
            return 0
        return 1 if averaged else 2
    if reduction == "none":
        return 0
    if reduction == "mean":
        return 1
    assert reduction == "sum", "reduction is none, mean or sum"
    return 2


def reduced(loss: Tensor, number: int) -> Tensor:
    if number == 0:
        return loss
    if number == 1:
        return loss.mean()
    return loss.sum()


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Optional[Tensor] = None,
    size_average: Optional[bool] = None,
    ignore_index: int = -100,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    return torch.ops.aten.cross_entropy_loss(
        input, target, weight, reduction_number(reduction, size_average, reduce), ignore_index, label_smoothing
    )


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Optional[Tensor] = None,
    size_average: Optional[bool] = None,
    ignore_index: int = -100,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    return torch.ops.aten.nll_loss_nd(
        input, target, weight, reduction_number(reduction, size_average, reduce), ignore_index
    )


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    return torch.ops.aten.mse_loss(input, target, reduction_number(reduction, size_average, reduce))


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    return torch.ops.aten.l1_loss(input, target, reduction_number(reduction, size_average, reduce))


def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    return torch.ops.aten.soft_margin_loss(input, target, reduction_number(reduction, size_average, reduce))


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    return torch.ops.aten.multilabel_margin_loss(input, target, reduction_number(reduction, size_average, reduce))


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    number = reduction_number(reduction, size_average, reduce)
    if beta == 0.0:
        return torch.ops.aten.l1_loss(input, target, number)
    return torch.ops.aten.smooth_l1_loss(input, target, number, beta)


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Optional[Tensor] = None,
) -> Tensor:
    number = reduction_number(reduction, None, None)
    if weight is not None:
        return reduced(torch.ops.aten.huber_loss(input, target, 0, delta) * weight, number)
    return torch.ops.aten.huber_loss(input, target, number, delta)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Optional[Tensor] = None,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    if target.size() != input.size():
        raise ValueError(f"a target of size {target.size()} that is not the input's, {input.size()}")
    if weight is not None:
        weight = torch.ops.aten.expand_as(weight, input)
    return torch.ops.aten.binary_cross_entropy(input, target, weight, reduction_number(reduction, size_average, reduce))


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Optional[Tensor] = None,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
    pos_weight: Optional[Tensor] = None,
) -> Tensor:
    return torch.ops.aten.binary_cross_entropy_with_logits(
        input, target, weight, pos_weight, reduction_number(reduction, size_average, reduce)
    )


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    if reduction == "batchmean" and size_average is None and reduce is None:
        total = torch.ops.aten.kl_div(input, target, 2, log_target=log_target)
        return total / input.size(0) if input.dim() > 0 else total
    number = reduction_number(reduction, size_average, reduce)
    return torch.ops.aten.kl_div(input, target, number, log_target=log_target)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: Optional[bool] = None,
    eps: float = 1e-8,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    return torch.ops.aten.poisson_nll_loss(
        input, target, log_input, full, eps, reduction_number(reduction, size_average, reduce)
    )


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Union[Tensor, float],
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    spread = torch.ones_like(input)
    if isinstance(var, float):
        spread = spread * var
    else:
        spread = var.clone()
    if bool((spread < 0).any()):
        raise ValueError("var has negative entry/entries")
    if spread.dim() == input.dim() - 1:
        spread = spread.unsqueeze(-1)
    with torch.no_grad():
        spread.clamp_(min=eps)
    loss = 0.5 * (torch.log(spread) + (input - target) ** 2 / spread)
    if full:
        loss = loss + 0.5 * math.log(2.0 * math.pi)
    return reduced(loss, reduction_number(reduction, None, None))


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    return torch.ops.aten.hinge_embedding_loss(input, target, margin, reduction_number(reduction, size_average, reduce))


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    return torch.ops.aten.margin_ranking_loss(
        input1, input2, target, margin, reduction_number(reduction, size_average, reduce)
    )


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    return torch.ops.aten.cosine_embedding_loss(
        input1, input2, target, margin, reduction_number(reduction, size_average, reduce)
    )


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    number = reduction_number(reduction, size_average, reduce)
    return torch.ops.aten.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, number)


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Optional[Tensor] = None,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    return torch.ops.aten.multi_margin_loss(
        input, target, p, margin, weight, reduction_number(reduction, size_average, reduce)
    )


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Optional[Tensor] = None,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    loss = -(target * torch.ops.aten.log_sigmoid(input) + (1 - target) * torch.ops.aten.log_sigmoid(-input))
    if weight is not None:
        loss = loss * weight
    return reduced(loss.sum(-1) / input.size(-1), reduction_number(reduction, size_average, reduce))


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    return torch.ops.aten.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, reduction_number(reduction, None, None), zero_infinity
    )


LOSSES = (
    cross_entropy, nll_loss, mse_loss, l1_loss, soft_margin_loss, multilabel_margin_loss, smooth_l1_loss,
    huber_loss, binary_cross_entropy, binary_cross_entropy_with_logits, kl_div, poisson_nll_loss, gaussian_nll_loss,
    hinge_embedding_loss, margin_ranking_loss, cosine_embedding_loss, triplet_margin_loss, multi_margin_loss,
    multilabel_soft_margin_loss, ctc_loss,
)  # fmt: skip
