"""Variance and mean, or standard deviation and mean, of one call: one node of the graph with two outputs."""

import numpy as np
import pytest

import tensorgrad
from tests.support.alike import alike, of_torch

CALLS = ({}, {"dim": 1}, {"dim": (0, 2)}, {"dim": -1, "keepdim": True}, {"correction": 2}, {"unbiased": False})


@alike
def test_both_results_have_one_node(torch):
    found = []
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    for call in (torch.var_mean, torch.std_mean):
        spread, mean = call(x, 1)
        assert spread.grad_fn is mean.grad_fn
        node = spread.grad_fn
        handle = node.register_prehook(lambda grads: found.append([g is None for g in grads]))
        (spread * 2).sum().backward()
        handle.remove()
        saved = [name for name in dir(node) if name.startswith(("_saved", "_raw_saved"))]
        found += [node.name(), saved, mean.output_nr, spread.output_nr, x.grad]
    return found


@pytest.mark.parametrize("dtype", ("float64", "float32", "float16", "bfloat16", "complex64"))
@pytest.mark.parametrize("name", ("var_mean", "std_mean"))
def test_values_and_gradients(name, dtype):
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(0).standard_normal((3, 4, 5))
    if dtype == "complex64":
        values = values + 1j * values[::-1]
    for kwargs in CALLS:
        for weights in ((1, 0), (0, 1), (2, 3)):

            def both(library, kwargs=kwargs, weights=weights):
                x = library.tensor(values, dtype=getattr(library, dtype), requires_grad=True)
                results = getattr(library, name)(x.transpose(0, 2), **kwargs)
                loss = [
                    w * (r.abs() if r.is_complex() else r).sum() for w, r in zip(weights, results, strict=True) if w
                ]
                sum(loss).backward()
                return [*results, x.grad], [r.stride() for r in results]

            ours, strides = both(tensorgrad)
            theirs, expected = of_torch(lambda both=both: both(torch))
            assert strides == expected
            tolerance = {"float16": 4e-3, "bfloat16": 4e-2}.get(dtype, 1e-5)
            for a, b in zip(ours, theirs, strict=True):
                assert str(a.dtype) == str(b.dtype) and a.shape == b.shape
                wide = "complex128" if b.is_complex() else "float64"
                a, b = a.detach().to(getattr(tensorgrad, wide)), b.detach().to(getattr(torch, wide))
                assert np.allclose(a.numpy(), b.numpy(), tolerance, tolerance), (kwargs, weights)


@pytest.mark.parametrize("name", ("var_mean", "std_mean"))
def test_second_derivatives_and_shapes_on_meta(name):
    def call(x):
        return getattr(tensorgrad, name)(x, 1)

    x = tensorgrad.randn(3, 4, dtype=tensorgrad.float64, requires_grad=True)
    assert tensorgrad.autograd.gradcheck(call, (x,)) and tensorgrad.autograd.gradgradcheck(call, (x,))
    results = call(tensorgrad.empty(3, 4, dtype=tensorgrad.complex64, device="meta"))
    assert [(r.shape, r.dtype) for r in results] == [((3,), tensorgrad.float32), ((3,), tensorgrad.complex64)]


@alike
def test_no_dimensions_are_all(torch):
    x = torch.arange(6.0).reshape(2, 3)
    return torch.var_mean(x, []), torch.std_mean(x, (), keepdim=True)


@alike
def test_errors_and_warnings(torch):
    import warnings

    found = []
    for call in (torch.var_mean, torch.std_mean, torch.var, torch.std):
        for x, kwargs in ((torch.ones(2, 3, dtype=torch.int64), {}), (torch.ones(2, 3), {"dim": 5})):
            with pytest.raises((RuntimeError, IndexError)) as raised:
                call(x, **kwargs)
            found.append((raised.type.__name__, str(raised.value)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found.append(call(torch.ones(1)))
        found.append([str(w.message).partition(" (Trigg")[0] for w in caught])
    return found


@pytest.mark.parametrize("shape, dim", (((64, 256), 1), ((70000,), None), ((40, 3, 300), (1, 2)), ((300, 40), 0)))
def test_large_arrays(shape, dim):
    """Beyond the size from which a compiled kernel serves."""
    x = tensorgrad.randn(*shape)
    y = x.double()
    for name in ("var_mean", "std_mean"):
        for a, b in zip(getattr(tensorgrad, name)(x, dim), getattr(tensorgrad, name)(y, dim), strict=True):
            assert tensorgrad.allclose(a.double(), b, 1e-4, 1e-6)


@pytest.mark.parametrize("name", ("sum", "mean", "var", "std", "norm"))
def test_many_elements_cost_no_digits(name):
    """Sums of millions of float32 are not added up one by one."""
    numbers = np.random.default_rng(0).random(4 << 20, np.float32) + np.float32(0.5)
    found = getattr(tensorgrad.from_numpy(numbers), name)().item()
    assert found == pytest.approx(getattr(tensorgrad.from_numpy(numbers.astype(np.float64)), name)().item(), rel=1e-6)
