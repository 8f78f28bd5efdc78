"""Images whose channels lie innermost give such results on the GPU, as on a CPU (tests/ops/test_memory_formats.py)."""

import pytest

import tensorgrad as torch

F = torch.nn.functional
CALLS = {
    "conv2d": lambda x: F.conv2d(x, torch.ones(5, 4, 3, 3, device=x.device), padding=1),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x, torch.ones(4, 5, 3, 3, device=x.device)),
    "max_pool2d": lambda x: F.max_pool2d(x, 2, return_indices=True),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "group_norm": lambda x: F.group_norm(x, 2),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "pad": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "flip": lambda x: x.flip(2),
    "lp_pool2d": lambda x: F.lp_pool2d(x, 2, 2),
    "local_response_norm": lambda x: F.local_response_norm(x, 2),
    **{
        name: lambda x, name=name: getattr(torch, name)(x)
        for name in ("sin", "abs", "neg", "square", "sign", "tan", "floor", "round", "sinh", "erfinv", "frac")
    },
    "add": lambda x: x + x.flip(3),
    "mul by channel": lambda x: x * torch.arange(1.0, 5, device=x.device).reshape(4, 1, 1),
    "a number first": lambda x: 3 - x,
    "mean of two": lambda x: torch.where(x > 0, x, x.square()),
    "power": lambda x: x.abs() ** 2.5,
    "fmod": lambda x: x.fmod(0.3),
    "atan2": lambda x: torch.atan2(x, x + 1),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "a transposed matrix": lambda x: (x[0, :, :, 0].t() + 1).exp(),
}


@pytest.mark.parametrize("name", CALLS)
def test_as_on_the_cpu(name):
    def observe(device):
        x = torch.linspace(-1, 1, 2 * 4 * 6 * 6, device=device).reshape(2, 4, 6, 6)
        x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
        results = CALLS[name](x)
        results = results if isinstance(results, tuple) else (results,)
        results[0].square().sum().backward()
        return [*(r.detach() for r in results), x.grad]

    for found, expected in zip(observe("cuda"), observe("cpu"), strict=True):
        assert found.stride() == expected.stride() and (expected.ndim != 4 or expected.stride()[1] == 1)
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)
