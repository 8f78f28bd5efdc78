"""Adam with decoupled weight decay."""

from __future__ import annotations

from typing import Any

from tensorgrad.optim.adam import Adam, adam
from tensorgrad.tensor import Tensor

__all__ = ["AdamW", "adamw"]


class AdamW(Adam):
    """Adam with decoupled weight decay: p *= 1 - lr · weight_decay, independent of the gradient's statistics.

    Then m = β₁ m + (1 - β₁) g, v = β₂ v + (1 - β₂) g² and p -= lr · m̂ / (√v̂ + eps), where m̂ = m / (1 - β₁ᵗ) and
    v̂ = v / (1 - β₂ᵗ) (Loshchilov and Hutter, 2017, *Decoupled Weight Decay Regularization*).

    Args:
        params: the parameters to optimize, see `tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        betas: (β₁, β₂).
        eps: prevents division by zero.
        weight_decay: how much of the parameter a step with lr = 1 takes away.
        amsgrad: use the maximum of v so far (Reddi et al., 2018, *On the Convergence of Adam and Beyond*).
        maximize: move along the gradient instead of against it.
        foreach, fused: accepted and ignored: there is only one implementation.
        capturable: accepted for parameters on CUDA, as in PyTorch.
        differentiable: let autograd differentiate through the step.

    Raises:
        ValueError: a setting is out of range.

    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.AdamW([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.8990, 0.8990], requires_grad=True)
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


def adamw(params: list[Tensor], grads: list[Tensor], *lists: list[Tensor], **settings: Any) -> None:
    """Makes one step of `AdamW` on lists of tensors, like `tensorgrad.optim.adam.adam`."""
    adam(params, grads, *lists, **{**settings, "decoupled_weight_decay": True})
