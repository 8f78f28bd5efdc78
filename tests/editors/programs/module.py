"""A module of one's own: parameters, buffers, hooks, state."""

from collections import OrderedDict
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import Parameter


class Scale(nn.Module):
    running: torch.Tensor
    offset: torch.Tensor | None

    def __init__(self, size: int, *, affine: bool = True) -> None:
        super().__init__()
        self.weight = Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size), requires_grad=affine)
        self.register_buffer("running", torch.zeros(size))
        self.register_buffer("offset", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.weight, -0.1, 0.1)
        with torch.no_grad():
            self.bias.fill_(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.running.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x * self.weight + self.bias

    def extra_repr(self) -> str:
        return f"size={self.weight.numel()}"


def watch(module: nn.Module, args: tuple[Any, ...], output: torch.Tensor) -> None:
    print(type(module).__name__, args[0].shape, output.shape)


def main() -> None:
    model = nn.Sequential(OrderedDict([("scale", Scale(3)), ("act", nn.Tanh())]))
    handle = model.register_forward_hook(watch)
    out = model(torch.randn(5, 3))
    handle.remove()
    out.sum().backward()
    state = model.state_dict()
    print({name: tuple(value.shape) for name, value in state.items()})
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not missing and not unexpected
    for name, parameter in model.named_parameters():
        print(name, parameter.requires_grad, parameter.grad is None)
    for child in model.children():
        print(child, child.training)
    double = model.double().requires_grad_(False)
    print(next(iter(double.parameters())).dtype, isinstance(model[0], Scale))


if __name__ == "__main__":
    main()
