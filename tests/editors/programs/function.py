"""An autograd function of one's own, gradients by hand, and a check of them."""

from typing import Any

import torch
from torch.autograd import Function, gradcheck
from torch.autograd.function import once_differentiable


class Cube(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return scale * x**3

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return 3 * ctx.scale * x.pow(2) * grads[0], None


class Clamp(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_non_differentiable(x)
        return x.clamp(min=0.0, max=1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0]


def cube(x: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = Cube.apply(x, 2.0)
    return out


def main() -> None:
    x = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    assert gradcheck(cube, (x,), eps=1e-6)
    (slope,) = torch.autograd.grad(cube(x).sum(), x, create_graph=True)
    slope.sum().backward()
    assert x.grad is not None
    print(slope.detach().numpy(), x.grad.tolist(), x.is_leaf, cube(x).grad_fn)
    with torch.enable_grad(), torch.autograd.set_detect_anomaly(True):
        y = cube(x)
    y.register_hook(lambda g: g * 2)
    y.retain_grad()
    torch.autograd.backward([y.sum()], retain_graph=False)
    jacobian = torch.autograd.functional.jacobian(cube, x.detach())
    print(jacobian, torch.is_grad_enabled())


if __name__ == "__main__":
    main()
