"""Normalizations of very many elements, of none, and of two dtypes at once."""

import numpy as np
import pytest

import tensorgrad as torch
from tests.support.alike import alike

MILLIONS = 4 << 20


F = torch.nn.functional
LAYERS = {
    "layer_norm": lambda x: F.layer_norm(x, (MILLIONS,)),
    "rms_norm": lambda x: F.rms_norm(x, (MILLIONS,), eps=1e-5),
    "group_norm": lambda x: F.group_norm(x.view(1, 2, -1), 1),
    "group_norm of short channels": lambda x: F.group_norm(x.view(1, 65536, 64), 1),
    "group_norm of points": lambda x: F.group_norm(x.view(1, 256, 256, 64).permute(0, 3, 1, 2), 1).permute(0, 2, 3, 1),
    "batch_norm": lambda x: F.batch_norm(x.view(1, 1, -1), None, None, training=True),
    "batch_norm of short channels": lambda x: F.batch_norm(x.view(65536, 1, 64), None, None, training=True),
    "instance_norm": lambda x: F.instance_norm(x.view(1, 1, -1)),
}


@pytest.mark.parametrize("offset", [0.0, 3.0])
@pytest.mark.parametrize("layer", LAYERS)
def test_many_elements_cost_no_digits(layer, offset):
    """Results and gradients against float64: sums of millions of float32 are not added up one by one."""
    random = np.random.default_rng(0)
    numbers, slopes = random.standard_normal((2, MILLIONS), np.float32) + np.float32(offset)
    x = torch.from_numpy(numbers).requires_grad_()
    made = LAYERS[layer](x).reshape(-1)
    made.backward(torch.from_numpy(slopes))
    exact, g = numbers.astype(np.float64), slopes.astype(np.float64)
    if layer != "rms_norm":
        exact -= exact.mean()
        g -= g.mean()
    rstd = 1 / np.sqrt((exact * exact).mean() + 1e-5)
    exact *= rstd
    assert abs(made.detach().numpy() - exact).max() < 4e-6
    assert abs(x.grad.numpy() - rstd * (g - exact * (g * exact).mean())).max() < 4e-6


@alike
def test_gradients_of_an_empty_batch(torch):
    """The statistics of nothing are nan, but nothing contributes nothing to a gradient."""
    seen = []
    nn = torch.nn
    for layer in (
        nn.BatchNorm2d(3), nn.BatchNorm2d(3).eval(), nn.BatchNorm2d(3, track_running_stats=False), nn.GroupNorm(3, 3),
        nn.LayerNorm((3, 4, 4)), nn.RMSNorm((3, 4, 4)), nn.BatchNorm1d(3),
    ):  # fmt: skip
        shape = (0, 3, 4) if isinstance(layer, nn.BatchNorm1d) else (0, 3, 4, 4)
        x = torch.zeros(shape, requires_grad=True)
        layer(x).sum().backward()
        seen += [type(layer).__name__, x.grad.shape, [p.grad for p in layer.parameters()]]
    return seen


@alike(tolerance=1e-4)
def test_parameters_of_float32_and_input_of_bfloat16(torch):
    """Gradients have the precision of what they are for: those of float32 parameters are not rounded to bfloat16."""
    seen = []
    nn = torch.nn
    x = torch.linspace(-2, 3, 6 * 4 * 50).view(6, 4, 50).sin().to(torch.bfloat16)
    g = torch.linspace(-1, 1, 50).to(torch.bfloat16)
    for layer in (nn.GroupNorm(2, 4), nn.LayerNorm(50), nn.BatchNorm1d(4)):
        leaf = x.clone().requires_grad_()
        y = layer(leaf)
        (y * g).sum().backward()
        seen += [type(layer).__name__, y.dtype, leaf.grad.dtype, [p.grad.dtype for p in layer.parameters()]]
        if not isinstance(layer, nn.LayerNorm):  # PyTorch itself adds up the gradients of that one in bfloat16
            seen += [p.grad for p in layer.parameters()]
    return seen
