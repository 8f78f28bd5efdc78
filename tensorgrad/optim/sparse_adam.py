"""Adam for sparse gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.optim.checks import check
from tensorgrad.optim.optimizer import Optimizer
from tensorgrad.optim.sparse_rows import is_sparse, move, stored
from tensorgrad.storage.sparse import SparseArray
from tensorgrad.tensor import Tensor

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam for sparse gradients, such as those of `Embedding(sparse=True)`: only what a gradient stores is moved.

    The means of elements that a gradient does not store stay as they are, rather than decay as in `Adam`.

    Args:
        params: the parameters to optimize, which are dense, see `tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        betas: (β₁, β₂), the decay rates of the means of the gradient and of its square.
        eps: prevents division by zero.
        maximize: move along the gradient instead of against it.

    Raises:
        ValueError: a setting is out of range, or a parameter is sparse.
        RuntimeError: in `step`, if a gradient is dense.

    >>> table = torch.nn.Embedding.from_pretrained(torch.ones(3, 2), freeze=False, sparse=True)
    >>> optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.5)
    >>> table(torch.tensor([1, 1])).sum().backward()
    >>> optimizer.step()
    >>> table.weight
    Parameter containing:
    tensor([[1.0000, 1.0000],
            [0.5000, 0.5000],
            [1.0000, 1.0000]], requires_grad=True)
    """

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8, maximize: bool = False
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        check("learning rate", lr, lr > 0.0)
        check("epsilon value", eps, eps > 0.0)
        for i, beta in enumerate(betas):
            check(f"beta parameter at index {i}", beta, 0.0 <= beta < 1.0)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        sparse = [
            [i, k]
            for i, group in enumerate(self.param_groups)
            for k, p in enumerate(group["params"])
            if isinstance(p._array, SparseArray)
        ]
        if sparse:
            raise ValueError(f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Moves what the gradients store by one step.

        Args:
            closure: computes the loss and its gradients, and returns the loss.

        Returns:
            The result of `closure`, or `None`.

        Raises:
            RuntimeError: a gradient is dense.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            given = [p for p in group["params"] if p.grad is not None]
            if not all(is_sparse(p.grad) for p in given):
                raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
            for p in given:
                state = self.state[p]
                if not state:
                    state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
                state["step"] += 1
                _move(p, state, group)
        return loss


def _move(p: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    place, g = stored(p.grad)  # type: ignore[arg-type]
    if not g.size:
        return
    (beta1, beta2), t = group["betas"], state["step"]
    g = -g if group["maximize"] else g
    first, second = state["exp_avg"], state["exp_avg_sq"]
    old, old_square = first._array[place], second._array[place]
    change, change_of_square = (g - old) * (1 - beta1), (g * g - old_square) * (1 - beta2)
    move(first, place, change)
    move(second, place, change_of_square)
    rate = group["lr"] * math.sqrt(1 - beta2**t) / (1 - beta1**t)
    rate = rate.item() if isinstance(rate, Tensor) else rate
    move(p, place, -rate * ((change + old) / (np.sqrt(change_of_square + old_square) + group["eps"])))
