"""Adam, and Adam with decoupled weight decay."""

from __future__ import annotations

import math
from typing import Any

import tensorgrad as torch
from tensorgrad.optim.elementwise import Elementwise, check, check_fused, check_lr, number, scalars
from tensorgrad.tensor import Tensor


class Adam(Elementwise):
    """Moves each element by its mean gradient over the root of its mean squared gradient (Kingma and Ba, 2014).

    m = β₁ m + (1 - β₁) g and v = β₂ v + (1 - β₂) g², then p -= lr · m̂ / (√v̂ + eps), where m̂ = m / (1 - β₁ᵗ) and
    v̂ = v / (1 - β₂ᵗ) make up for the start at zero.

    Args:
        params: what to optimize, see :class:`~tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        betas: (β₁, β₂).
        eps: keeps the division finite.
        weight_decay: adds weight_decay · p to the gradient (an L2 penalty).
        amsgrad: use the largest v so far (Reddi et al., 2018).
        maximize: move along the gradient instead of against it.
        decoupled_weight_decay: shrink the parameter itself instead, as :class:`AdamW` does.
        foreach, fused: accepted and ignored: there is one implementation.
        capturable, differentiable: must be false.

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

    scratch = 2
    real = True

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
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
        check_lr(lr, foreach)
        check("epsilon value", eps, eps >= 0.0)
        for i, beta in enumerate(betas):
            check(f"beta parameter at index {i}", beta, 0.0 <= beta < 1.0)
        check("weight_decay value", weight_decay, weight_decay >= 0.0)
        if not (all(isinstance(beta, float) for beta in betas) or all(isinstance(beta, Tensor) for beta in betas)):
            raise ValueError("betas must be either both floats or both Tensors")
        defaults = {
            "lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, "foreach": foreach, "capturable": capturable, "differentiable": differentiable,
            "fused": fused, "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults)
        check_fused(fused, foreach)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, default in (("amsgrad", False), ("maximize", False), ("foreach", None), ("fused", None)):
                group.setdefault(name, default)
            group.setdefault("decoupled_weight_decay", False)
            for p in group["params"]:
                kept = self.state.get(p)
                if kept and not isinstance(kept["step"], Tensor):  # as old checkpoints have it
                    kept["step"] = torch.full((), float(kept["step"]))

    def _update(self, i: int, group: dict[str, Any]) -> None:
        lr, eps, decay = number(group["lr"]), group["eps"], group["weight_decay"]
        beta1, beta2 = (number(beta) for beta in group["betas"])
        amsgrad, maximize, decoupled = group["amsgrad"], group["maximize"], group["decoupled_weight_decay"]
        factor = 1 - lr * decay if decoupled else decay
        constants = self._constants_of(i, (beta1, beta2, factor))
        moving: dict[Any, tuple] = {}  # (step, dtype) -> the numbers that change from step to step
        for p in group["params"]:
            grad = p._grad
            if grad is None:
                continue
            x = p._array
            state = self.state[p]
            if not state:
                state["step"] = torch.zeros(())
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
                if amsgrad:
                    state["max_exp_avg_sq"] = torch.zeros_like(p)
            step = count(state)
            dtype = x.dtype
            now = moving.get((step, dtype))
            if now is None:
                root = math.sqrt(1 - beta2**step)
                now = moving[step, dtype] = scalars(x, lr * root / (1 - beta1**step), eps * root)
            fixed = constants.get(dtype)
            if fixed is None:
                shrink, *means = scalars(x, factor, 1 - beta1, beta2, 1 - beta2)
                fixed = constants[dtype] = (shrink if decay else None, *means)
            largest = state["max_exp_avg_sq"]._array if amsgrad else None
            arrays = grad._array, state["exp_avg"]._array, state["exp_avg_sq"]._array, largest
            self._advance(_adam, p, arrays, (*now, *fixed, maximize, decoupled))


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameter, p *= 1 - lr · weight_decay, apart from the gradient's statistics.

    Loshchilov and Hutter, 2017, *Decoupled Weight Decay Regularization*. The arguments are those of :class:`Adam`.

    >>> import tensorgrad as torch
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
        betas: tuple[float, float] = (0.9, 0.999),
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


def count(state: dict[str, Any]) -> float:
    """Adds one to the state's step count and returns it. The count is a tensor so that PyTorch can load it."""
    array = state["step"]._array
    step = array.item() + 1
    array[()] = step
    return step


def _adam(xp: Any, x: Any, arrays: Any, scratch: Any, constants: tuple) -> None:
    """x -= rate · m / (√v + eps), with both bias corrections already in ``rate`` and ``eps``."""
    (g, m, v, largest), (s, t) = arrays, scratch
    rate, eps, decay, take1, keep2, take2, maximize, decoupled = constants
    if maximize:
        g = xp.negative(g, t)
    if decay is not None:
        if decoupled:
            xp.multiply(x, decay, x)
        else:
            g = xp.add(g, xp.multiply(x, decay, s), t)
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
