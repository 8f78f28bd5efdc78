"""Adafactor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad.optim.optimizer import Optimizer
from tensorgrad.optim.settings import as_scalar
from tensorgrad.optim.sparse_rows import refuse
from tensorgrad.optim.state import count, state_scalar
from tensorgrad.tensor import Tensor

__all__ = ["Adafactor"]


class Adafactor(Optimizer):
    """Divides each gradient by the root of its mean square, which is stored as its means over rows and columns only.

    For a matrix G, R = β R + (1 - β) mean(G², over columns) and C = β C + (1 - β) mean(G², over rows), where
    1 - β = t^beta2_decay in step t, and V = R C / mean(R) estimates the mean square. For a vector, V itself is stored.
    With U = G / √V, p -= α U / max(1, rms(U) / d), where α = max(eps₂, rms(p)) · min(lr, 1 / √t) makes the step
    proportional to the size of the parameter (Shazeer and Stern, 2018, *Adafactor: Adaptive Learning Rates with
    Sublinear Memory Cost*).

    Args:
        params: the parameters to optimize, see `tensorgrad.optim.Optimizer`.
        lr: the maximum learning rate.
        beta2_decay: the exponent of 1 - β.
        eps: (eps₁, eps₂): eps₁² is the minimum of V (`None`: eps₁ is the machine epsilon of the dtype), eps₂ that
            of rms(p).
        d: the maximum rms(U).
        weight_decay: shrinks the parameter: p *= 1 - lr · weight_decay.
        foreach: accepted and ignored: there is only one implementation.
        maximize: move along the gradient instead of against it.

    Raises:
        ValueError: a setting is out of range.
        RuntimeError: in `step`, if a parameter is complex.

    >>> w = torch.ones(2, 2, requires_grad=True)
    >>> optimizer = torch.optim.Adafactor([w], lr=0.5)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]], requires_grad=True)
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not lr >= 0.0:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        for i, value in enumerate(eps, 1):
            if value is not None and not value >= 0.0:
                raise ValueError(f"epsilon{i} should be >= 0 but is: {value}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        defaults = {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("foreach", None)
            for p in group["params"]:
                kept = self.state.get(p)
                if kept and not isinstance(kept["step"], Tensor):
                    kept["step"] = state_scalar(kept["step"], p, group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Moves the parameters that have a gradient by one step.

        Args:
            closure: computes the loss and its gradients, and returns the loss.

        Returns:
            The result of `closure`, or `None`.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                refuse(p.grad, "Adafactor")
                if p.is_complex():
                    raise RuntimeError("Adafactor does not support complex parameters")
                state = self.state[p]
                if not state:
                    _begin(state, p, group)
                _move(p, -p.grad if group["maximize"] else p.grad, state, group)
        return loss


def _begin(state: dict[str, Any], p: Tensor, group: dict[str, Any]) -> None:
    grad: Any = p.grad
    shape = list(grad.shape)
    state["step"] = state_scalar(0, p, group)
    if grad.dim() > 1:
        state["row_var"] = grad.new_zeros([*shape[:-1], 1])
        state["col_var"] = grad.new_zeros([*shape[:-2], 1, shape[-1]])
    else:
        state["variance"] = torch.zeros_like(grad)


def _move(p: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    lr, decay, (least, least_size) = as_scalar(group["lr"]), group["weight_decay"], group["eps"]
    if least is None:
        least = torch.finfo(p.dtype).eps
    step = count(state)
    rate = max(least_size, _rms(p)) * min(lr, 1 / step**0.5)
    if decay != 0:
        p.mul_(1 - lr * decay)
    taken = step ** group["beta2_decay"]
    if grad.dim() > 1:
        square = _mean_square(grad, state["row_var"], state["col_var"], taken, least)
    else:
        square = state["variance"].lerp_(grad * grad, taken).clone()
    update = square.clamp_(min=least * least).rsqrt_().mul_(grad)
    p.add_(update, alpha=-rate / max(1.0, _rms(update) / group["d"]))


def _mean_square(grad: Tensor, rows: Tensor, columns: Tensor, taken: float, least: float) -> Tensor:
    """Updates the means of `grad` squared over rows and columns, and returns the estimate of its mean."""
    for means, dim in ((rows, -1), (columns, -2)):
        norm = torch.norm(grad, dim=dim, keepdim=True)
        means.lerp_(norm.square_().div_(grad.size(dim)), taken)
    return (rows @ columns).div_(rows.mean(dim=-2, keepdim=True).clamp_(min=least))


def _rms(tensor: Tensor) -> float:
    return tensor.norm(2).item() / tensor.numel() ** 0.5
