"""Compiled kernels on few numbers: layers, losses, and steps of optimizers, which are as frequent as large ones."""

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad.kernels.compiled import table
from tensorgrad.rows import kernel_tables
from tests.support.kernels import absent

if absent():
    pytest.skip(absent(), allow_module_level=True)
from tests.support.compare import assert_close
from tests.support.kernels import assert_like_numpy, numpy_only, record_used, used_for_any_size

F = torch.nn.functional
ROWS = [row for row in table.ROWS if row.elements == 1]


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Uses the kernels that are used for small arrays."""
    with used_for_any_size(ROWS):
        yield


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("rows, depth, columns", [(4, 2, 8), (1, 1, 1), (5, 37, 3), (32, 128, 10), (2, 0, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_layers(rows, depth, columns, bias):
    given = [drawn(rows, depth), drawn(columns, depth, seed=1), *([drawn(columns, seed=2)] if bias else [])]
    assert_like_numpy(F.linear, *given, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("needed", ["100", "010", "001", "110", "101", "011"])
def test_gradients_of_a_layer_that_are_not_all_needed(needed):
    def found():
        tensors = [torch.from_numpy(a.copy()) for a in (drawn(6, 5), drawn(3, 5, seed=1), drawn(3, seed=2))]
        for t, n in zip(tensors, needed, strict=True):
            t.requires_grad_(n == "1")
        F.linear(*tensors).sin().sum().backward()
        return [t.grad.numpy() for t in tensors if t.grad is not None]

    with numpy_only():
        expected = found()
    for a, b in zip(found(), expected, strict=True):
        assert_close(a, b, atol=1e-6)


def test_layers_of_arrays_that_kernels_do_not_take():
    x, w = torch.from_numpy(drawn(5, 4)).t(), torch.from_numpy(drawn(3, 5, seed=1))
    assert_close(F.linear(x, w).numpy(), x.numpy() @ w.numpy().T, atol=1e-6)
    x, w = torch.from_numpy(drawn(5, 4)).double(), torch.from_numpy(drawn(3, 4, seed=1)).double()
    assert F.linear(x, w).dtype is torch.float64
    with pytest.raises(RuntimeError):
        F.linear(torch.ones(2, 3), torch.ones(4, 2))


@pytest.mark.parametrize("classes", [1, 2, 10, 33])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("ignored", [False, True])
def test_cross_entropy(classes, reduction, ignored, monkeypatch):
    target = torch.from_numpy(np.random.default_rng(1).integers(0, classes, 7))
    if ignored:
        target[2] = -100
    used = record_used(monkeypatch, [kernel_tables.COMPILED["cross_entropy"]])
    loss = lambda x: F.cross_entropy(x, target, reduction=reduction)
    assert_like_numpy(loss, drawn(7, classes), rtol=1e-5, atol=1e-6)
    assert used == {"cross_entropy"}


def test_cross_entropy_of_targets_that_are_out_of_range_or_all_ignored_and_of_infinite_logits():
    x = torch.from_numpy(drawn(3, 4))
    with pytest.raises(IndexError):
        F.cross_entropy(x, torch.tensor([0, 4, 1]))
    with pytest.raises(IndexError):
        F.cross_entropy(x, torch.tensor([0, -1, 1]))
    assert F.cross_entropy(x, torch.full((3,), -100)).isnan()
    assert F.cross_entropy(x, torch.full((3,), -100), reduction="sum").item() == 0
    x[1, 2] = -torch.inf
    assert F.cross_entropy(x, torch.tensor([0, 1, 2])).isfinite()
    assert F.cross_entropy(x, torch.tensor([0, 2, 2])).item() == torch.inf


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
        lambda p: torch.optim.Adam(p, lr=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.1, amsgrad=True),
    ],
)
def test_steps_of_parameters_of_which_the_kernel_takes_only_some(make, monkeypatch):
    def moved():
        shapes = (3, 5), (4,), (), (0, 2), (6, 2), (2, 3)
        params = [torch.nn.Parameter(torch.from_numpy(drawn(*shape, seed=n))) for n, shape in enumerate(shapes)]
        params[1] = torch.nn.Parameter(params[1].detach().double())
        params[4] = torch.nn.Parameter(params[4].detach().t())  # not row-major
        optimizer = make(params)
        for step in range(3):
            for n, p in enumerate(params):
                p.grad = torch.from_numpy(drawn(*p.shape, seed=10 * step + n)).to(p.dtype)
            params[5].grad = torch.from_numpy(drawn(3, 2, seed=step)).t()  # its gradient has gaps
            if step == 1:
                params[0].grad = None  # it has taken fewer steps from now on
            optimizer.step()
        return [p.detach().numpy() for p in params]

    used = record_used(monkeypatch, [kernel_tables.COMPILED[name] for name in ("sgd_step", "adam_step")])
    found = moved()
    assert len(used) == 1
    with numpy_only():
        expected = moved()
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b, atol=1e-6)
