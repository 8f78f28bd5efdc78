"""Adam."""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorgrad.optim import flags
from tensorgrad.optim.checks import check_settings
from tensorgrad.optim.elementwise import Elementwise, descent, shrink_and_decay
from tensorgrad.optim.functional import functional
from tensorgrad.optim.state import counts_and_zeros
from tensorgrad.tensor import Tensor

__all__ = ["Adam", "adam"]


class Coefficients(NamedTuple):
    """The coefficients of a step, p -= rate · m / (√v + eps): `rate` and `eps` include the bias corrections."""

    rate: float
    eps: float
    shrink: float | None  # the factor of decoupled weight decay on p
    decay: float | None  # weight_decay otherwise
    take1: float  # 1 - β₁
    beta2: float
    take2: float  # 1 - β₂
    maximize: bool


class Adam(Elementwise):
    """Moves each element by its mean gradient divided by the root of its mean squared gradient.

    m = β₁ m + (1 - β₁) g and v = β₂ v + (1 - β₂) g², then p -= lr · m̂ / (√v̂ + eps), where m̂ = m / (1 - β₁ᵗ) and
    v̂ = v / (1 - β₂ᵗ) correct for the start at zero (Kingma and Ba, 2014, *Adam: A Method for Stochastic Optimization*).

    Args:
        params: the parameters to optimize, see `tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        betas: (β₁, β₂).
        eps: prevents division by zero.
        weight_decay: adds weight_decay · p to the gradient (L2 regularization).
        amsgrad: use the maximum of v so far (Reddi et al., 2018, *On the Convergence of Adam and Beyond*).
        maximize: move along the gradient instead of against it.
        decoupled_weight_decay: shrink the parameter itself instead, as in `AdamW`.
        foreach, fused: accepted and ignored: there is only one implementation.
        capturable: accepted for parameters on CUDA, as in PyTorch.
        differentiable: let autograd differentiate through the step.

    Raises:
        ValueError: a setting is out of range.

    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.Adam([w], lr=0.5)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.5000, 0.5000], requires_grad=True)
    """

    _kernel_name = "adam_step"
    _skips = True
    _refuses_sparse = "Adam does not support sparse gradients, please consider SparseAdam instead"
    _flags = flags.ADAM

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
        one_by_one = bool(foreach) and not capturable  # PyTorch does not support tensor settings here
        if isinstance(lr, Tensor) and one_by_one:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        check_settings(lr, betas, eps, weight_decay)
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

    def _initial_state(self, group: dict[str, Any]) -> dict[str, Any]:
        largest = ["max_exp_avg_sq"] if group["amsgrad"] else []
        return counts_and_zeros(group, "exp_avg", "exp_avg_sq", *largest)

    @staticmethod
    def _coefficients(group: dict[str, Any], t: float) -> Coefficients:
        beta1, beta2 = group["betas"]
        root = (1 - beta2**t) ** 0.5
        rate, eps = group["lr"] * root / (1 - beta1**t), group["eps"] * root
        return Coefficients(rate, eps, *shrink_and_decay(group), 1 - beta1, beta2, 1 - beta2, group["maximize"])

    @staticmethod
    def _update(
        xp: Any, x: Any, g: Any, exp_avg: Any, exp_avg_sq: Any, max_exp_avg_sq: Any, n: Coefficients, s: Any, r: Any
    ) -> None:
        m, v = exp_avg, exp_avg_sq
        if n.shrink is not None:
            xp.multiply(x, n.shrink, x)
        g = descent(xp, x, g, n, s, r)
        xp.add(m, xp.multiply(xp.subtract(g, m, s), n.take1, s), m)  # m = β₁ m + (1 - β₁) g
        xp.multiply(xp.multiply(g, g, s), n.take2, s)
        xp.add(xp.multiply(v, n.beta2, v), s, v)  # v = β₂ v + (1 - β₂) g²
        if max_exp_avg_sq is not None:
            v = xp.maximum(max_exp_avg_sq, v, out=max_exp_avg_sq)
        xp.divide(m, xp.add(xp.sqrt(v, s), n.eps, s), s)
        xp.subtract(x, xp.multiply(s, n.rate, s), x)  # p -= rate · m / (√v + eps)


adam = functional(Adam, "adam", ["exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step"])
