"""Functions for the families' calls: what is not a single function in PyTorch, or has results that may differ."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import tensorgrad as torch
from tensorgrad.ao.nn.quantized import products
from tensorgrad.ops.nn import small_weights
from tensorgrad.ops.pytorch import integer_products
from tensorgrad.ops.pytorch.quantized_tensors import from_integers
from tensorgrad.rows.kernel_tables import COMPILED

# What `pooled` runs: one kernel and its gradient, or the three with theirs.
POOLED = (
    "batch_norm_relu_pool", "batch_norm_relu_pool_grad", "batch_norm", "relu", "max_pool", "max_pool_grad",
    "relu.backward", "batch_norm.backward",
)  # fmt: skip


def seen(x: torch.Tensor) -> torch.Tensor:
    """Returns the tensor itself, for calls that return a tensor written in place."""
    return x


def chosen(x: torch.Tensor, dim: int, found) -> tuple:
    """Returns the values of topk, and the elements at its indices (any of several equal elements may be chosen)."""
    return found.values, torch.gather(x.detach(), dim, found.indices)


def distinct(shape: tuple, dim: int, size: int, device) -> torch.Tensor:
    """Returns distinct indices along a dimension."""
    dim %= len(shape)
    place = np.random.default_rng(0).permutation(size)[: shape[dim]]
    form = tuple(len(place) if d == dim else 1 for d in range(len(shape)))
    return torch.from_numpy(np.ascontiguousarray(np.broadcast_to(place.reshape(form), shape))).to(device)


def stepped(name: str, params: list, grads: list, steps: int, kernel: str = "", **settings) -> list:
    """Runs some steps of an optimizer, by another kernel if that is given, with the same gradients.

    Returns the parameters and its state.
    """
    leaves = [p.requires_grad_() for p in params]
    optimizer = getattr(torch.optim, name)(leaves, **settings)
    optimizer._kernel_name = kernel or optimizer._kernel_name
    for _ in range(steps):
        for p, g in zip(leaves, grads, strict=True):
            p.grad = g
        optimizer.step()
    state = [v for p in leaves for _, v in sorted(optimizer.state[p].items()) if isinstance(v, torch.Tensor)]
    return [*(p.detach() for p in leaves), *(v.cpu() if v.ndim == 0 else v for v in state)]


def clipped(params: list, grads: list, limit: float, norm: float) -> list:
    """Clips gradients by their norm. Returns them and the norm."""
    for p, g in zip(params, grads, strict=True):
        p.requires_grad_().grad = g.clone()
    total = torch.nn.utils.clip_grad_norm_(params, limit, norm)
    return [total, *(p.grad for p in params)]


def scaled(params: list, grads: list, scale: float) -> list:
    """Runs a step with a GradScaler. Returns the unscaled gradients, whether they are finite, and the new scale."""
    for p, g in zip(params, grads, strict=True):
        p.requires_grad_().grad = g.clone()
    scaler = torch.amp.GradScaler(params[0].device.type, init_scale=scale, growth_interval=1)
    scaler.scale(torch.ones((), device=params[0].device))
    optimizer = torch.optim.SGD(params, lr=0.5)
    scaler.unscale_(optimizer)
    unscaled = [p.grad.clone() for p in params]
    scaler.step(optimizer)
    scaler.update()
    return [*unscaled, *(p.detach() for p in params), torch.tensor(scaler.get_scale())]


def repeated(draw: Callable, inside: Callable) -> tuple:
    """Draws twice from one seed. Returns whether the values are the same, and in their range."""
    made = []
    for _ in range(2):
        torch.manual_seed(5)
        made.append(draw())
    return (made[0] == made[1]).all().cpu(), inside(made[0]).all().cpu()


def drawn(draw: Callable, inside: Callable, shape: tuple, dtype: str, device: str) -> tuple:
    """Like `repeated`, for functions that write into a tensor, which may have gaps: its layout must not matter."""
    kind = getattr(torch, dtype)
    wide = torch.zeros((*shape, 2), dtype=kind, device=device)
    torch.manual_seed(5)
    draw(wide[..., 0])
    torch.manual_seed(5)
    plain = draw(torch.zeros(shape, dtype=kind, device=device))
    return (wide[..., 0] == plain).all().cpu(), inside(plain).all().cpu(), (wide[..., 1] == 0).all().cpu()


def dropped(x: torch.Tensor, p: float) -> tuple:
    """Checks dropout of ones: every value is 0 or 1 / (1 - p), and the gradient is 0 at the same positions."""
    x = x.detach().requires_grad_()
    y = torch.nn.functional.dropout(x, p)
    (slope,) = torch.autograd.grad(y.sum(), x)
    expected = torch.where(y != 0, torch.full_like(y, 1 / (1 - p)), torch.zeros_like(y))
    return torch.isclose(y, expected, 2e-2).all().cpu(), (slope == y).all().cpu()


def integers(name: str, *given) -> torch.Tensor:
    """Runs an op on integers of 8 bits."""
    return getattr(integer_products, name)(*given)


def convolved(x, weight, bias, places, scale: float, zeros: tuple[int, int], relu: bool) -> torch.Tensor:
    """The integers of a convolution of integers; `zeros`: the zero points of the image and of the result."""
    image = from_integers(x.numpy(), 0.02, zeros[0], torch.quint8)
    rows = from_integers(weight.numpy(), 0.01, 0, torch.qint8)
    return products.conv(image, rows, bias, *places, 1, "zeros", scale, zeros[1], relu).int_repr()


def joint(name: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Runs arithmetic by the kernel that plans use for equal shapes, too, or by NumPy where it is not to be used."""
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide}[name]
    made = COMPILED[f"joint_{name}"].attempt(x.numel(), x.detach().numpy(), y.detach().numpy())
    return torch.from_numpy(function(x.detach().numpy(), y.detach().numpy()) if made is NotImplemented else made)


def pooled(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, g: torch.Tensor) -> tuple:
    """Batch norm, ReLU and the maxima of 2x2 windows, and the gradients, by one kernel or by those of the three.

    Both begin with the numbers of compiled kernels: rounding decides which of two almost equal numbers is the largest.
    """
    numbers, scale, shift, slopes = (np.array(t.detach().numpy(), order="C") for t in (x, weight, bias, g))
    kernels = {name: COMPILED[name] for name in POOLED}
    if not all(row.available() for row in kernels.values()):
        return ()
    windows, run = ((2, 2), (2, 2), (0, 0), (1, 1)), {name: row.ready for name, row in kernels.items()}
    needs = True, True, True
    if kernels["batch_norm_relu_pool"].large_from <= numbers.size:
        maxima, places, mean, var, rstd = run["batch_norm_relu_pool"](numbers, scale, shift, 0.05)
        given = run["batch_norm_relu_pool_grad"](slopes, maxima, places, numbers, scale, mean, rstd, needs)
    else:
        normal, mean, var, _, rstd = run["batch_norm"](numbers, scale, shift, None, None, True, 0.05)
        positive = run["relu"](normal)
        maxima, places = run["max_pool"](positive, *windows, False)
        slopes = run["max_pool_grad"](slopes, places, numbers.shape, windows)
        left = run["relu.backward"](slopes, positive)  # which declines a few numbers
        slopes = np.where(positive <= 0, np.float32(0), slopes) if left is NotImplemented else left
        given = run["batch_norm.backward"](slopes, numbers, scale, mean, rstd, True, needs)
    return tuple(torch.from_numpy(a) for a in (maxima, places, mean, var, rstd, *given))


def small(name: str, *given) -> torch.Tensor:
    """Runs an op on weights of 8 or 4 bits."""
    return getattr(small_weights, name)(*given)
