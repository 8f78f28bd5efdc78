"""Adam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import tensorgrad as torch
from tensorgrad.optim.elementwise import Elementwise, check, check_betas, check_lr, counter, descent
from tensorgrad.optim.functional import functional
from tensorgrad.tensor import Tensor

__all__ = ["Adam", "adam"]


def _adam(xp: Any, x: Any, arrays: Any, scratch: Any, constants: tuple) -> None:
    """x -= rate · m / (√v + eps), with both bias corrections already in ``rate`` and ``eps``."""
    (g, m, v, largest), (s, t) = arrays, scratch
    rate, eps, shrink, decay, take1, keep2, take2, maximize = constants
    if shrink is not None:
        xp.multiply(x, shrink, x)
    g = descent(xp, x, g, decay, maximize, s, t)
    xp.subtract(g, m, s)
    xp.add(m, xp.multiply(s, take1, s), m)
    xp.multiply(g, g, s)
    xp.multiply(s, take2, s)
    xp.multiply(v, keep2, v)
    xp.add(v, s, v)
    if largest is not None:
        v = xp.maximum(largest, v, out=largest)
    xp.sqrt(v, s)
    xp.add(s, eps, s)
    xp.divide(m, s, s)
    xp.multiply(s, rate, s)
    xp.subtract(x, s, x)


class Adam(Elementwise):
    """Moves each element by its mean gradient over the root of its mean squared gradient.

    m = β₁ m + (1 - β₁) g and v = β₂ v + (1 - β₂) g², then p -= lr · m̂ / (√v̂ + eps), where m̂ = m / (1 - β₁ᵗ) and
    v̂ = v / (1 - β₂ᵗ) make up for the start at zero (Kingma and Ba, 2014, *Adam: A Method for Stochastic Optimization*).

    Args:
        params: what to optimize, see :class:`~tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        betas: (β₁, β₂).
        eps: keeps the division finite.
        weight_decay: adds weight_decay · p to the gradient (an L2 penalty).
        amsgrad: use the largest v so far (Reddi et al., 2018, *On the Convergence of Adam and Beyond*).
        maximize: move along the gradient instead of against it.
        decoupled_weight_decay: shrink the parameter itself instead, as :class:`AdamW` does.
        foreach, fused: accepted and ignored: there is one implementation.
        capturable: accepted where PyTorch does, on CUDA.
        differentiable: let autograd look through the step.

    Raises:
        ValueError: a setting out of its range.

    Example::

        >>> import tensorgrad as torch
        >>> w = torch.ones(2, requires_grad=True)
        >>> optimizer = torch.optim.Adam([w], lr=0.5)
        >>> w.sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.5000, 0.5000], requires_grad=True)
    """

    _move = staticmethod(_adam)
    compiled = "step of Adam"
    scratch = 2
    older: ClassVar = {
        "amsgrad": False, "maximize": False, "foreach": None, "capturable": False, "differentiable": False,
        "decoupled_weight_decay": False, "fused": None,
    }  # fmt: skip

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        one_by_one = bool(foreach) and not capturable  # what PyTorch cannot do with tensors as settings
        if isinstance(lr, Tensor) and one_by_one:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        check_lr(lr)
        check("epsilon value", eps, eps >= 0.0)
        check_betas(betas)
        check("weight_decay value", weight_decay, bool(weight_decay >= 0.0))
        if not (all(isinstance(beta, float) for beta in betas) or all(isinstance(beta, Tensor) for beta in betas)):
            raise ValueError("betas must be either both floats or both Tensors")
        for i, beta in enumerate(betas):
            if isinstance(beta, Tensor) and one_by_one:
                raise ValueError(f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True")
            if isinstance(beta, Tensor) and beta.numel() != 1:
                raise ValueError(f"Tensor betas[{i}] must be 1-element")
        betas = tuple(b.squeeze() if isinstance(b, Tensor) else b for b in betas)  # type: ignore[assignment]
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, "foreach": foreach, "capturable": capturable, "differentiable": differentiable,
            "fused": fused, "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _begin(self, state: dict[str, Any], p: Tensor, group: dict[str, Any]) -> None:
        state["step"] = counter(0, p, group)
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = torch.zeros_like(p)

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        if group["foreach"] and isinstance(group["lr"], Tensor) and not group["capturable"]:
            raise RuntimeError("lr as a Tensor is not supported for capturable=False and foreach=True")
        return "exp_avg", "exp_avg_sq", "max_exp_avg_sq" if group["amsgrad"] else None

    def _time(self, state: dict[str, Any], group: dict[str, Any], fresh: bool) -> Any:
        if group["differentiable"] and state["step"].requires_grad:
            raise RuntimeError("`requires_grad` is not supported for `step` in differentiable mode")
        return super()._time(state, group, fresh)

    def _moving(self, time: float, group: dict[str, Any], read: Callable[[Any], Any]) -> tuple:
        beta1, beta2 = map(read, group["betas"])
        root = (1 - beta2**time) ** 0.5
        return read(group["lr"]) * root / (1 - beta1**time), group["eps"] * root

    def _fixed(self, group: dict[str, Any], read: Callable[[Any], Any]) -> tuple:
        beta1, beta2 = map(read, group["betas"])
        decay, shrink = read(group["weight_decay"]), None
        if decay == 0:
            decay = None
        elif group["decoupled_weight_decay"]:
            decay, shrink = None, 1 - read(group["lr"]) * decay
        return shrink, decay, 1 - beta1, beta2, 1 - beta2, group["maximize"]


adam = functional(Adam, "adam", ["exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step"])
