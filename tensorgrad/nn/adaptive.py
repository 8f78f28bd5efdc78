"""Adaptive softmax: an efficient softmax over many classes of very different frequency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.nn.container import ModuleList, Sequential
from tensorgrad.nn.linear import Linear
from tensorgrad.nn.module import Module
from tensorgrad.tensor import Tensor


class _ASMoutput(NamedTuple):
    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log softmax over classes sorted by decreasing frequency, with smaller layers for less frequent classes.

    The head scores the most frequent classes and one entry per cluster of the others. Only the clusters that are
    needed are computed (Grave et al., 2016, *Efficient softmax approximation for GPUs*).

    Args:
        in_features: the size of each sample.
        n_classes: the number of classes.
        cutoffs: the first class of each cluster, ascending; classes below the first cutoff are scored by the head.
        div_value: the hidden layer of cluster i has in_features / div_value^(i + 1) features.
        head_bias: whether the head has a bias.

    Called with samples (N, in_features) and class indices (N), or with one of each, it returns `output`, the
    log-probability of each sample's class, and `loss`, the negated mean of `output`.

    Raises:
        ValueError: `cutoffs` is empty, or not ascending integers from 1 to n_classes - 1.
        RuntimeError: the shapes of samples and classes do not match.

    >>> layer = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 100, cutoffs=[10, 50])
    >>> layer(torch.zeros(2, 16), torch.tensor([0, 99])).output
    tensor([-2.4849, -6.3969], grad_fn=<AddBackward0>)
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        ascending = cutoffs == sorted(set(cutoffs)) and all(int(c) == c for c in cutoffs)
        if not ascending or cutoffs[0] < 1 or cutoffs[-1] > n_classes - 1:
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                "value is between 1 and n_classes-1"
            )
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size = cutoffs[0]
        self.n_clusters = len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        made = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **made)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(self._clusters()):
            width = int(in_features // div_value ** (i + 1))
            self.tail.append(
                Sequential(
                    Linear(in_features, width, bias=False, **made), Linear(width, high - low, bias=False, **made)
                )
            )

    def _clusters(self) -> list[tuple[int, int]]:
        """Returns the clusters as (first class, end)."""
        return list(zip(self.cutoffs[:-1], self.cutoffs[1:], strict=True))

    def reset_parameters(self) -> None:
        """Draws new initial values."""
        self.head.reset_parameters()
        for layers in self.tail:
            for layer in layers:
                layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        input, target = input_, target_
        batched = _check(input, target)
        if not batched:
            input, target = input.unsqueeze(0), target.unsqueeze(0)
        if target.numel() and not target.is_meta and not 0 <= int(target.min()) <= int(target.max()) < self.n_classes:
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{int(target.min())}, {int(target.max())}] were found. "
            )
        entry = target.clamp(max=self.shortlist_size)  # the head's entry: the class itself, or its cluster
        for low, _ in self._clusters()[1:]:
            entry = entry + (target >= low)
        output = F.log_softmax(self.head(input), dim=1).gather(1, entry.unsqueeze(1)).squeeze(1)
        inside = torch.zeros_like(output)
        for layers, (low, high) in zip(self.tail, self._clusters(), strict=True):
            rows = ((target >= low) & (target < high)).nonzero().squeeze(1)
            if rows.numel():
                scores = F.log_softmax(layers(input[rows]), dim=1)
                inside = inside.index_copy(0, rows, scores.gather(1, target[rows].unsqueeze(1) - low).squeeze(1))
        output = output + inside
        loss = (-output).mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """Returns the log-probabilities of all classes: (N, n_classes) for samples (N, in_features)."""
        head = F.log_softmax(self.head(input), dim=1)
        tails = [
            F.log_softmax(layers(input), dim=1) + head[:, self.shortlist_size + i].unsqueeze(1)
            for i, layers in enumerate(self.tail)
        ]
        return torch.cat([head[:, : self.shortlist_size], *tails], dim=1)

    def predict(self, input: Tensor) -> Tensor:
        """Returns the most probable class of each sample, (N) for samples (N, in_features).

        The same as `log_prob(input).argmax(1)`, but clusters are computed only for samples whose best entry of the
        head is a cluster.
        """
        best = self.head(input).argmax(dim=1)
        rows = (best >= self.shortlist_size).nonzero().squeeze(1)
        if rows.numel():
            best[rows] = self.log_prob(input[rows]).argmax(dim=1)
        return best


def _check(input: Tensor, target: Tensor) -> bool:
    """Returns whether there is a batch. Raises: RuntimeError if the shapes of samples and classes do not match."""
    if target.dim() == 1:
        if input.shape[0] != target.shape[0]:
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        if input.dim() != 2:
            raise RuntimeError(f"1D target tensor expects 2D input tensors, but found inputs with size {input.size()}")
        return True
    if target.dim() == 0:
        if input.dim() != 1:
            raise RuntimeError(f"0D target tensor expects 1D input tensors, but found inputs with size {input.size()}")
        return False
    raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
