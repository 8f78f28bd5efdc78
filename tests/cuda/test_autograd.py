"""Gradients on the GPU: random programs of views, writes and ops, and what needs the graph to be right."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")

import tensorgrad as tg
from tests.autograd.test_autograd_programs import PROGRAMS, agree, run


@settings(max_examples=60)
@given(PROGRAMS, st.booleans())
def test_random_programs(program, second):
    expected = run(torch, program, second)
    with tg.device("cuda"):
        found = run(tg, program, second)
    agree(expected, found)


def both(function, *shapes, dtype="float32"):
    """A function's results and the gradients of its inputs, in torch and here on the GPU; they must agree."""
    given = [np.random.default_rng(i).standard_normal(shape).astype(dtype) for i, shape in enumerate(shapes)]
    theirs = [torch.tensor(v, requires_grad=True) for v in given]
    ours = [tg.tensor(v, device="cuda", requires_grad=True) for v in given]
    results = [function(library, *values) for library, values in ((torch, theirs), (tg, ours))]
    np.testing.assert_allclose(results[1].detach().cpu().numpy(), results[0].detach().numpy(), rtol=1e-4, atol=1e-5)
    for result in results:
        result.sum().backward()
    for a, b in zip(theirs, ours, strict=True):
        assert b.grad.device == b.device
        np.testing.assert_allclose(b.grad.cpu().numpy(), a.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_a_leaf_takes_several_gradients():
    both(lambda lib, x, y: (x @ y).relu() + (x * x) @ y, (3, 4), (4, 5))


def test_broadcasting_is_summed_away():
    both(lambda lib, x, y: (x / (y.abs() + 1)).exp(), (3, 1, 4), (5, 1))


def test_second_derivatives():
    def penalty(lib, x):
        (g,) = lib.autograd.grad((x**3).sum(), x, create_graph=True)
        return (g * g).sum()

    both(penalty, (2, 3), dtype="float64")


def test_in_place_writes_are_recorded():
    def program(lib, x):
        y = x * 2
        y[:, 0] = x[:, 1]
        y[1:] *= x[1:]
        return y.clamp_(min=-1).t().contiguous()

    both(program, (3, 3))


def test_saved_values_are_watched():
    x = tg.ones(3, device="cuda", requires_grad=True)
    y = x.exp()
    y += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_custom_function():
    def program(lib, x):
        class Cube(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x**3

            @staticmethod
            def backward(ctx, g):
                (x,) = ctx.saved_tensors
                return 3 * x * x * g

        return Cube.apply(x).sum()

    both(program, (4,))


def test_checkpoint():
    both(
        lambda lib, x, w: lib.utils.checkpoint.checkpoint(lambda a: (a @ w).tanh(), x, use_reentrant=False),
        (2, 3),
        (3, 3),
    )


def test_hooks_see_device_tensors():
    seen = []
    x = tg.ones(2, device="cuda", requires_grad=True)
    (x * 3).register_hook(lambda g: seen.append(g.device.type))
    y = x * 3
    y.register_hook(lambda g: seen.append(g.device.type) or g * 2)
    y.sum().backward()
    assert seen == ["cuda"] and x.grad.tolist() == [6, 6]


def test_mixed_devices_are_named():
    with pytest.raises(RuntimeError, match="at least two devices, cuda:0 and cpu"):
        tg.ones(2, device="cuda") + tg.ones(2)
