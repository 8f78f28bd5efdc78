"""Functional transforms: grad, vmap, jacobians, functional calls of a module."""

import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacrev, jvp, stack_module_state, vjp, vmap


def loss(weights: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x @ weights - y).square().mean()


def main() -> None:
    torch.manual_seed(0)
    w, x, y = torch.randn(3), torch.randn(5, 3), torch.randn(5)
    print(grad(loss)(w, x, y), grad_and_value(loss)(w, x, y))
    each = vmap(grad(loss), in_dims=(None, 0, 0))(w, x, y)
    print(each.shape, jacrev(torch.sin)(w).shape, hessian(loss)(w, x, y).shape)
    out, tangent = jvp(torch.sin, (w,), (torch.ones(3),))[:2]
    value, pull = vjp(torch.cos, w)[:2]
    print(out, tangent, value, pull(torch.ones(3)))
    models = [nn.Linear(3, 1) for _ in range(4)]
    parameters, buffers = stack_module_state(models)
    print({name: p.shape for name, p in parameters.items()}, buffers)
    single: dict[str, torch.Tensor] = dict(models[0].named_parameters())
    print(functional_call(models[0], single, (x,)).shape)

    @torch.compile
    def f(a: torch.Tensor) -> torch.Tensor:
        return torch.sin(a) + torch.cos(a)

    print(f(w), torch.vmap(torch.dot)(x, x).shape)


if __name__ == "__main__":
    main()
