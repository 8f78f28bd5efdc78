"""Cross-entropy of a linear layer's outputs, optionally in chunks of the batch to save memory.

With many classes (such as the vocabulary of a language model), the scores, batch × classes, are the largest tensor. In
chunks, only the scores of one chunk exist at a time: each chunk is a checkpoint, which backward computes again.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import tensorgrad as torch
from tensorgrad import dtypes
from tensorgrad.nn import functional as F
from tensorgrad.nn.linear import Linear
from tensorgrad.nn.loss import _WeightedLoss
from tensorgrad.tensor import Tensor

_POLICIES = ("accurate", "balanced", "compact", "auto")
_NARROW = (dtypes.float16, dtypes.bfloat16)


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """How `tensorgrad.nn.functional.linear_cross_entropy` splits a batch into chunks.

    Args:
        allow_retain_graph: accepted; backward may always run again.
        batch_chunk_size: the number of samples per chunk.
        chunking_method: determines the chunk size: `"aspect_ratio"` makes the scores of a chunk about as large as
            the whole input, `"aspect_ratio:N"` N times smaller; `"auto"` is one of these; `None` keeps all
            samples in one chunk.
        acc_policy: `"accurate"`, `"balanced"`, `"compact"` or `"auto"`: accepted; 16-bit inputs are always
            computed and summed in float32.
        acc_dtype: `None`, float32 for 16-bit inputs, or the input's dtype; accepted like `acc_policy`.

    Raises:
        ValueError: a value is not one of these; or, when the options are used, `batch_chunk_size` and
            `chunking_method` give different sizes.

    >>> options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=2)
    >>> x, words = torch.ones(5, 3), torch.zeros(100, 3)
    >>> loss = torch.nn.functional.linear_cross_entropy(x, words, torch.arange(5), options=options)
    >>> loss, torch.tensor(100.0).log()
    (tensor(4.6052), tensor(4.6052))
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        if self.acc_policy not in _POLICIES:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        if self.chunking_method not in (None, "auto") and not _factor(self.chunking_method):
            raise ValueError(f"invalid chunking_method: {self.chunking_method!r}")
        size = self.batch_chunk_size
        if size is not None and not (isinstance(size, int) and size > 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size!r}")
        if self.acc_dtype not in (None, *_NARROW, dtypes.float32, dtypes.float64):
            raise ValueError(
                "acc_dtype must be one of {None, torch.float16, torch.bfloat16, torch.float32, torch.float64}, got "
                f"{self.acc_dtype!r}. Pass acc_dtype=None to let the op pick automatically."
            )


def _factor(method: str | None) -> int:
    """Returns the N of "aspect_ratio:N", 1 for "aspect_ratio", and 0 for anything else."""
    name, colon, factor = str(method).partition(":")
    if name != "aspect_ratio" or (colon and not factor.isdigit()):
        return 0
    return int(factor) if colon else 1


def _chunk_size(options: Any, batch: int, in_features: int, classes: int, dtype: dtypes.dtype) -> int:
    """Returns the samples per chunk. Raises: ValueError if size and method are both given and disagree."""
    given, method = options.batch_chunk_size, options.chunking_method
    if method == "auto":
        method = None if given is not None else "aspect_ratio" if dtype in _NARROW else "aspect_ratio:2"
    if method is None:
        return max(1, batch if given is None else min(given, batch))
    wanted = math.ceil(batch / math.ceil(classes / in_features))
    size = min((1 << (wanted - 1).bit_length()) // _factor(method), batch)
    if given is not None and given != size:
        raise ValueError(
            f"batch_chunk_size (={given}) and chunking_method ('{method}') give different chunk sizes ({given} vs "
            f"{size}); pass only one."
        )
    return max(1, size)


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:
    """`cross_entropy(linear(input, linear_weight, linear_bias), target)`, optionally in chunks of the batch.

    Args:
        input: (N, in_features), or (in_features) for one sample.
        linear_weight: (C, in_features), or (C, d₁, ..., in_features) for K-dimensional targets.
        target: class indices (N, d₁, ...), or probabilities (N, C, d₁, ...).
        linear_bias: (C, d₁, ...).
        weight, reduction, ignore_index, label_smoothing: as in `tensorgrad.nn.functional.cross_entropy`.
        options: how to split the batch into chunks. Chunks need class indices without K dimensions and no label
            smoothing; otherwise the options are ignored with a warning.

    Raises:
        RuntimeError: the shapes do not match.

    >>> x, words = torch.tensor([[1.0, 0.0]]), torch.zeros(4, 2)
    >>> torch.nn.functional.linear_cross_entropy(x, words, torch.tensor([3]))
    tensor(1.3863)
    """
    outputs = _check_linear(input, linear_weight, linear_bias)
    classes, *points = outputs
    shape = (*input.shape[:-1], *outputs)
    if tuple(target.shape) == shape and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    ignore_index = -100 if ignore_index is None else ignore_index
    if options is not None:
        if not points and reduction in ("mean", "sum", "none") and not label_smoothing and target.dtype == dtypes.int64:
            return _chunked(input, linear_weight, target, linear_bias, weight, reduction, ignore_index, options)
        warnings.warn(
            "linear_cross_entropy: ``options`` ignored; chunked path needs reduction in {'mean','sum','none'}, "
            "label_smoothing == 0, target.dtype == int64, out_features == (). Got "
            f"reduction={reduction!r}, label_smoothing={label_smoothing}, target.dtype={target.dtype}, "
            f"out_features={tuple(points)}.",
            stacklevel=2,
        )
    total = math.prod(points, start=classes)
    bias = None if linear_bias is None else linear_bias.reshape(total)
    scores = F.linear(input, linear_weight.reshape(total, input.shape[-1]), bias).reshape(shape)
    return F.cross_entropy(
        scores, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )  # fmt: skip


def _check_linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[int, ...]:
    """Returns (C, d₁, ...). Raises: RuntimeError if the shapes do not match."""
    if input.dim() not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if weight.dim() < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {weight.dim()}")
    features = input.shape[-1]
    if features != weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{features} and {weight.shape[-1]}, respectively"
        )
    outputs = tuple(weight.shape[:-1])
    if bias is not None and tuple(bias.shape) != outputs:
        raise RuntimeError(f"expected linear_bias shape {outputs}, got {tuple(bias.shape)}")
    if len(outputs) > 1 and input.dim() == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(weight.shape)} requires batched input, "
            f"(N, {features}), got unbatched input with shape {tuple(input.shape)}"
        )
    return outputs


def _chunked(
    input: Tensor, linear_weight: Tensor, target: Tensor, bias: Tensor | None, weight: Tensor | None, reduction: str,
    ignore_index: int, options: Any,
) -> Tensor:  # fmt: skip
    from tensorgrad.utils.checkpoint import checkpoint  # rarely needed

    if input.dim() == 1:
        alone = _chunked(
            input.unsqueeze(0), linear_weight, target.unsqueeze(0), bias, weight, reduction, ignore_index, options
        )  # fmt: skip
        return alone.squeeze(0) if reduction == "none" else alone
    dtype = input.dtype
    wide = dtypes.float32 if dtype in _NARROW else dtype
    summed_in = str(options.acc_dtype or dtype).rpartition(".")[2]
    if summed_in not in (dtype.name, wide.name):
        raise RuntimeError(
            "linear_cross_entropy supports float32 acc_dtype with float16/bfloat16 inputs, but got "
            f"{options.acc_dtype} acc_dtype and {dtype} inputs."
        )
    linear_weight = linear_weight.to(wide)
    bias, weight = (None if t is None else t.to(wide) for t in (bias, weight))
    each = "none" if reduction == "none" else "sum"

    def loss(x, t, linear_weight, bias):
        return F.cross_entropy(
            F.linear(x.to(wide), linear_weight, bias), t, weight, ignore_index=ignore_index, reduction=each
        )  # fmt: skip

    size = _chunk_size(options, input.shape[0], input.shape[1], linear_weight.shape[0], dtype)
    parts = [
        checkpoint(loss, x, t, linear_weight, bias, use_reentrant=False, preserve_rng_state=False)
        for x, t in zip(input.split(size), target.split(size), strict=True)
    ]
    if reduction == "none":
        return torch.cat(parts).to(dtype)
    total = torch.stack(parts).sum()
    if reduction == "mean":
        ignored = target == ignore_index
        counted = ~ignored if weight is None else weight[target.masked_fill(ignored, 0)].masked_fill(ignored, 0)
        total = total / counted.sum()
    return total.to(dtype)


class LinearCrossEntropyLoss(_WeightedLoss):
    """A linear layer followed by `CrossEntropyLoss`: the last layer of a classifier and its loss in one.

    Args:
        in_features: the size of each sample.
        num_classes: the number of classes C.
        out_features: (d₁, ...) for K-dimensional targets.
        bias: whether the layer has a bias.
        weight, reduction, ignore_index, label_smoothing: as in `CrossEntropyLoss`.
        options: compute in chunks of the batch; see `LinearCrossEntropyOptions`.

    `linear` is the layer, with C · d₁ · ... outputs.

    Raises:
        RuntimeError: `weight` is not (C), or `label_smoothing` is not in [0, 1].

    >>> loss = torch.nn.LinearCrossEntropyLoss(8, 1000)
    >>> loss(torch.zeros(2, 8), torch.tensor([3, 999]))
    tensor(6.9078, grad_fn=<NllLossBackward0>)
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        super().__init__(weight, None, None, reduction)
        self.num_classes, self.out_features = num_classes, out_features
        self.ignore_index, self.label_smoothing, self.options = ignore_index, label_smoothing, options
        outputs = math.prod(out_features, start=num_classes)
        self.linear = Linear(in_features, outputs, bias=bias, device=device, dtype=dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        shape = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return linear_cross_entropy(
            input,
            self.linear.weight.reshape((*shape, self.linear.in_features)),
            target,
            linear_bias=None if bias is None else bias.reshape(shape),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, out_features={self.out_features}, "
            f"bias={self.linear.bias is not None}, reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )
