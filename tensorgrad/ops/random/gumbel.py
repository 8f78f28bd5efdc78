"""Differentiable categorical samples."""

from __future__ import annotations

from tensorgrad.dispatch.kinds import composite
from tensorgrad.errors import warn
from tensorgrad.tensor import Tensor


@composite("functional")
def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """Returns softmax((logits + noise) / tau) over `dim`, with Gumbel noise: its argmax is a sample of softmax(logits).

    Source: Jang, Gu, Poole, "Categorical reparameterization with Gumbel-Softmax", 2016.

    Args:
        tau: the temperature; lower values give results closer to one-hot.
        hard: whether to return one-hot samples, with the gradient of the soft ones.
        eps: deprecated, has no effect.

    >>> torch.nn.functional.gumbel_softmax(torch.zeros(2, 3), hard=True).sum(1)
    tensor([1., 1.])
    """
    if eps != 1e-10:
        warn("`eps` parameter is deprecated and has no effect.")
    noise = -logits.detach().new_empty(logits.shape).exponential_().log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.detach().argmax(dim, keepdim=True)
    return soft.new_zeros(soft.shape).scatter_(dim, index, 1.0) - soft.detach() + soft
