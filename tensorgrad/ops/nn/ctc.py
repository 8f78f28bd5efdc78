"""Connectionist temporal classification (Graves et al., 2006): a loss for sequences whose alignment is unknown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index as as_int

from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dtypes import scalar_type
from tensorgrad.ops.nn.loss import checked_loss
from tensorgrad.tensor import Tensor


def _prepare(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
    if log_probs.dtype.name not in ("float32", "float64"):
        raise NotImplementedError(f"\"ctc_loss_cpu\" not implemented for '{scalar_type(log_probs)}'")
    if log_probs.ndim != 3:
        raise _wrong(f"Expected 3-dimensional tensor, but got {log_probs.ndim}-dimensional tensor", 1, "log_probs")
    if targets.ndim not in (1, 2):
        raise _wrong(f"Expected 1 to 2 dimensions, but got {targets.ndim}-dimensional tensor", 2, "targets")
    steps, count, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    for name, lengths in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        if len(lengths) != count:
            raise RuntimeError(f"{name} must be of size batch_size")
        if (low := min(lengths)) < 0:
            raise _wrong(f"Expected {name} to have value at least 0, but got value {low}")
    if (longest := max(input_lengths)) > steps:
        raise _wrong(f"Expected input_lengths to have value at most {steps}, but got value {longest}")
    needed, atleast, at = max(target_lengths), "at least ", 1
    if targets.ndim == 1:
        needed, atleast, at = sum(target_lengths), "", 0
    elif targets.shape[0] != count:
        raise _wrong(
            f"Expected tensor to have size {count} at dimension 0, but got size {targets.shape[0]}", 2, "targets"
        )
    size = targets.shape[at]
    if size < needed or (size > needed and not atleast):
        what = f"Expected tensor to have size {atleast}{needed} at dimension {at}, but got size {size}"
        raise _wrong(what, 2, "targets")
    if targets.dtype.kind not in "iu":
        targets = targets.real.astype("int64")
    return log_probs, targets, input_lengths, target_lengths, blank, zero_infinity


def _wrong(what: str, number: int = 0, name: str = "") -> RuntimeError:
    argument = f" for argument #{number} '{name}'" if name else ""
    return RuntimeError(f"{what}{argument} (while checking arguments for ctc_loss)")


def _no_second_derivative(g):
    raise RuntimeError("derivative for aten::_ctc_loss_backward is not implemented")


_ctc_grad = op(
    "ctc_grad(g, log_probs, losses, alpha, targets, input_lengths: any, target_lengths: any, blank: int, "
    "zero_infinity: bool)", "ctc.ctc_grad", where=(),
    shape=lambda g, log_probs, *rest: (log_probs.shape, log_probs.dtype),
    g=_no_second_derivative, log_probs=_no_second_derivative,
)  # fmt: skip
_ctc = op(
    "ctc(log_probs, targets, input_lengths: any, target_lengths: any, blank: int, zero_infinity: bool)",
    "ctc.ctc", prepare=_prepare, where=(), outputs=("losses", "alpha"), backward_name="CtcLossBackward0",
    shape=lambda log_probs, targets, input_lengths, target_lengths, *rest: [
        (log_probs.shape[1:2], log_probs.dtype),
        ((*log_probs.shape[:2], 2 * max(target_lengths) + 1), log_probs.dtype),
    ],
    log_probs=lambda g, log_probs, losses, alpha, targets, input_lengths, target_lengths, blank, zero_infinity:
    _ctc_grad(g, log_probs, losses, alpha, targets, input_lengths, target_lengths, blank, zero_infinity),
)  # fmt: skip


def _lengths(name: str, lengths: Tensor | Sequence[int]) -> tuple[int, ...]:
    """Returns lengths as Python ints."""
    if not isinstance(lengths, Tensor):
        if not isinstance(lengths, Sequence):
            raise TypeError(f"ctc_loss(): {name} must be a tensor or a tuple of ints, not {type(lengths).__name__}")
        return tuple(as_int(n) for n in lengths)
    if lengths._array.dtype.kind not in "iu":
        raise RuntimeError(f"{name} must be integral")
    return tuple(lengths.reshape(-1).tolist())


@composite("functional")
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Computes -log of the probability that a sequence of distributions over labels and a blank spells the target.

    A path chooses a label or the blank at each time step; it spells the sequence that remains after merging repeated
    labels and then removing the blanks. The loss sums over all paths (Graves et al., 2006, *Connectionist Temporal
    Classification*).

    Args:
        log_probs: (T, N, C) or, for one sample, (T, C): log-probabilities, as returned by `log_softmax`.
        targets: class indices without blanks: (N, S), with any padding; or those of all samples in one dimension.
        input_lengths, target_lengths: the N lengths of the samples.
        blank: the class index of the blank.
        reduction: "none"; "sum"; or "mean", of losses divided by the lengths of their targets.
        zero_infinity: whether targets that are too long for their inputs have the loss 0 instead of infinity.

    The gradient is that with respect to the input of `log_softmax`: probabilities minus those given the target. It is
    not differentiable itself.

    Raises:
        RuntimeError: If shapes or lengths do not fit.
        IndexError: If a class index is out of range.

    >>> log_probs = torch.full((2, 1, 3), 1 / 3).log()  # two steps spell "1" as 1-1, 1-blank or blank-1
    >>> torch.nn.functional.ctc_loss(log_probs, torch.tensor([[1]]), (2,), (1,)).exp()
    tensor(3.)
    """
    reduction = checked_loss(reduction)
    if isinstance(input_lengths, Tensor) != isinstance(target_lengths, Tensor):
        raise TypeError("ctc_loss(): input_lengths and target_lengths must both be tensors, or both tuples of ints")
    input_lengths = _lengths("input_lengths", input_lengths)
    target_lengths = _lengths("target_lengths", target_lengths)
    if not log_probs._array.size:
        raise RuntimeError("log_probs tensor must not be empty")
    batched = log_probs.ndim != 2
    if not batched:
        log_probs = log_probs.unsqueeze(1)
    losses, _ = _ctc(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)
    if zero_infinity:
        losses = losses.masked_fill(losses == math.inf, 0)
    if reduction == "mean":
        return (losses / losses.new_tensor([max(n, 1) for n in target_lengths])).mean()
    if reduction == "sum":
        return losses.sum()
    return losses if batched else losses.squeeze(0)
