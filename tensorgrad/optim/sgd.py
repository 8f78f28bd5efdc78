"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorgrad as torch
from tensorgrad.optim import flags
from tensorgrad.optim.checks import check, check_lr
from tensorgrad.optim.elementwise import Elementwise, descent
from tensorgrad.optim.functional import functional
from tensorgrad.tensor import Tensor

__all__ = ["SGD", "sgd"]


class Coefficients(NamedTuple):
    """The coefficients of a step. `None` means no change."""

    lr: float
    decay: float | None  # weight_decay
    momentum: float
    take: float | None  # 1 - dampening
    nesterov: bool
    maximize: bool
    first: bool  # whether there is no b yet


class SGD(Elementwise):
    """Moves each parameter against its gradient: p -= lr · g; with momentum, against a decaying sum of gradients.

    With momentum, g is replaced by b = momentum · b + (1 - dampening) · g (Polyak, 1964, *Some methods of speeding up
    the convergence of iteration methods*); the first b is g.

    Args:
        params: the parameters to optimize, see `tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        momentum: the factor on the sum in each step.
        dampening: each gradient is added with the factor 1 - dampening.
        weight_decay: adds weight_decay · p to the gradient (L2 regularization).
        nesterov: move along g + momentum · b instead of b (Sutskever et al., 2013, *On the importance of
            initialization and momentum in deep learning*).
        maximize: move along the gradient instead of against it.
        foreach, fused: accepted and ignored: there is only one implementation.
        differentiable: let autograd differentiate through the step.

    Raises:
        ValueError: a setting is negative, or `nesterov` is used without momentum or with dampening.

    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.SGD([w], lr=0.5)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.5000, 0.5000], requires_grad=True)
    """

    _kernel_name = "sgd_step"
    _skips = True
    _complex_as_pairs = False
    _flags = flags.SGD

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr, nan=True)  # as in PyTorch, where only SGD accepts NaN
        check("momentum value", momentum, not momentum < 0.0)
        check("weight_decay value", weight_decay, not weight_decay < 0.0)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _step_sparse(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        if group["weight_decay"] != 0:
            raise RuntimeError(
                "add(sparse, dense) is not supported. Use add(dense, sparse) instead. (SGD: weight_decay would make "
                "sparse gradients dense.)"
            )
        from tensorgrad.optim.sparse_rows import add

        with torch.no_grad():
            grad = -grad if group["maximize"] else grad
            if group["momentum"]:
                grad, state = grad.coalesce(), self.state[p]
                buffer = state.get("momentum_buffer")
                if buffer is None:
                    buffer = grad.clone()
                else:
                    buffer = buffer * group["momentum"] + grad * (1 - group["dampening"])
                state["momentum_buffer"] = buffer
                grad = grad + buffer * group["momentum"] if group["nesterov"] else buffer
        add(p, grad, -float(group["lr"]))

    def _initial_state(self, group: dict[str, Any]) -> dict[str, Any]:
        return {"momentum_buffer": lambda p: torch.empty_like(p.grad)} if group["momentum"] else {}

    @staticmethod
    def _coefficients(group: dict[str, Any], first: bool | None) -> Coefficients:
        lr, decay, dampening = group["lr"], group["weight_decay"], group["dampening"]
        return Coefficients(
            lr, decay if decay != 0 else None, group["momentum"], 1 - dampening if dampening else None,
            group["nesterov"], group["maximize"], bool(first),
        )  # fmt: skip

    @staticmethod
    def _update(xp: Any, x: Any, g: Any, momentum_buffer: Any, n: Coefficients, s: Any, r: Any) -> None:
        g, b = descent(xp, x, g, n, s, r), momentum_buffer
        if b is not None:
            if n.first:
                b[...] = g
            else:  # b = momentum · b + (1 - dampening) · g
                xp.multiply(b, n.momentum, b)
                xp.add(b, g if n.take is None else xp.multiply(g, n.take, s), b)
            g = xp.add(g, xp.multiply(b, n.momentum, s), r) if n.nesterov else b
        xp.subtract(x, xp.multiply(g, n.lr, s), x)  # p -= lr · g


sgd = functional(SGD, "sgd", ["momentum_buffer"])
