"""Muon."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.optim.optimizer import Optimizer
from tensorgrad.optim.settings import as_scalar
from tensorgrad.optim.sparse_rows import refuse
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor, wrap

__all__ = ["Muon"]


class Muon(Optimizer):
    """Moves matrices by their orthogonalized momentum, whose singular values are all close to 1.

    B = momentum · B + (1 - momentum) · G, M = B (or (1 - momentum) · G + momentum · B, if `nesterov`), X = M / ‖M‖,
    then `ns_steps` times X = a X + b (X Xᵀ) X + c (X Xᵀ)² X, which pushes the singular values towards 1, and
    p = (1 - lr · weight_decay) p - lr · ratio · X (Jordan et al., 2024, *Muon: An optimizer for hidden layers in neural
    networks*; Liu et al., 2025, *Muon is Scalable for LLM Training*).

    As in PyTorch, X is rounded to bfloat16 after every product.

    Args:
        params: the weights of hidden layers, see `tensorgrad.optim.Optimizer`. Use another optimizer for
            vectors and for the first and last layers.
        lr: the learning rate.
        weight_decay: the coefficient of the decoupled weight decay.
        momentum: the fraction of B that is kept.
        nesterov: mix the gradient into B a second time.
        ns_coefficients: (a, b, c).
        eps: the minimum of the norm that M is divided by.
        ns_steps: the number of iterations on X, less than 100.
        adjust_lr_fn: the ratio for a matrix of A × B: `"original"` (or `None`) is √max(1, A / B), and
            `"match_rms_adamw"` is 0.2 · √max(A, B), which allows the learning rate of `AdamW`.

    Raises:
        ValueError: a setting is out of range, or a parameter is not a matrix.
        RuntimeError: in `step`, if a parameter is complex.

    >>> w = torch.zeros(2, 2, requires_grad=True)
    >>> optimizer = torch.optim.Muon([w], lr=1.0, ns_steps=10)
    >>> (w * torch.tensor([[3.0, 0.0], [0.0, 0.5]])).sum().backward()
    >>> optimizer.step()
    >>> (w.diagonal() / w.diagonal().mean()).round()
    tensor([1., 1.], grad_fn=<RoundBackward0>)
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not lr >= 0.0:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not momentum >= 0.0:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        defaults = {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(
                        f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}"
                    )

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
                if p.grad is not None:
                    self._move(p, group)
        return loss

    def _move(self, p: Tensor, group: dict[str, Any]) -> None:
        refuse(p.grad, "Muon")  # type: ignore[arg-type]
        if p.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        grad: Any = p.grad
        momentum, state = group["momentum"], self.state[p]
        if grad.ndim != 2:
            raise ValueError("Param gradient must be a 2D matrix")
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(grad)
        buffer = state["momentum_buffer"].lerp_(grad, 1 - momentum)
        update = grad.lerp(buffer, momentum) if group["nesterov"] else buffer
        lr, (rows, columns) = as_scalar(group["lr"]), p.shape
        if group["adjust_lr_fn"] == "match_rms_adamw":
            ratio = 0.2 * math.sqrt(max(rows, columns))
        else:
            ratio = math.sqrt(max(1, rows / columns))
        xp = STORAGES[update._array.__class__].xp
        if xp is None:  # the meta device, which has nothing to compute
            return
        with np.errstate(all="ignore"):
            orthogonal = update._storage.guard(_orthogonal)
            array = orthogonal(xp, update._array, group["ns_coefficients"], group["ns_steps"], group["eps"])
        p.mul_(1 - lr * group["weight_decay"])
        if p.dtype is torch.float64:  # otherwise PyTorch also adds in float32
            array = array.astype("float64")
        p.add_(wrap(array), alpha=-lr * ratio)


def _orthogonal(xp: Any, x: Any, coefficients: tuple[float, float, float], steps: int, eps: float) -> Any:
    """Brings the singular values of a matrix close to 1 by Newton-Schulz steps, with bfloat16 values in float32."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = (np.float32(coefficient) for coefficient in coefficients)
    tall = x.shape[0] > x.shape[1]
    x = _rounded(xp, x.T if tall else x)  # so that X Xᵀ is the smaller of the two products
    x = _rounded(xp, x / xp.maximum(_rounded(xp, xp.sqrt((x * x).sum())), _rounded(xp, xp.asarray(eps))))
    for _ in range(steps):
        gram = _rounded(xp, x @ x.T)
        polynomial = _rounded(xp, b * gram + c * (gram @ gram))
        x = _rounded(xp, a * x + polynomial @ x)
    return x.T if tall else x


def _rounded(xp: Any, x: Any) -> Any:
    """Rounds float32 values to bfloat16, their upper 16 bits, with ties to even."""
    bits = xp.ascontiguousarray(x, dtype="float32").view("uint32")
    return ((bits + (((bits >> 16) & 1) + 0x7FFF)) & 0xFFFF0000).view("float32").reshape(x.shape)
