"""Integrals and slopes of samples, covariance, histograms of points, norms and hashes, beyond PyTorch's own tests."""

import numpy as np
import pytest

from tests.support.compare import outcome

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")

import tensorgrad as tg  # noqa: E402
from tests.conformance.opdb_bridge import to_tg  # noqa: E402

SQUARES = torch.arange(6.0).reshape(2, 3) ** 2
POINTS = torch.tensor([[0.0, 1], [1, 0], [2, 0], [2, 2]])
WEIGHT = torch.tensor([1.0, 2, 3, 4])
inf, nan = float("inf"), float("nan")


def printed(library, call, *tensors):
    """Returns the text of what a call returns, or the type and message of the exception that it raises."""
    arguments = tensors if library is torch else [to_tg(t) for t in tensors]
    found = outcome(lambda: str(call(library, *arguments)))
    if not isinstance(found, Exception):
        return found
    text = str(found)
    usage = "received an invalid combination" in text or "required positional argument" in text
    return f"{type(found).__name__} {'' if usage else text}"


def assert_prints_alike(call, *tensors):
    """Asserts that a call prints the same under both libraries, or raises the same."""
    assert printed(tg, call, *tensors) == printed(torch, call, *tensors)


CALLS = {
    "trapezoid": lambda l, x: l.trapezoid(x),
    "trapezoid along 0": lambda l, x: l.trapezoid(x, dim=0, dx=0.5),
    "trapezoid of places": lambda l, x: l.trapezoid(x, l.tensor([1.0, 2, 4])),
    "trapezoid of places of each row": lambda l, x: l.trapezoid(x, x),
    "trapezoid of too few places": lambda l, x: l.trapezoid(x, l.tensor([1.0, 2])),
    "trapezoid of integers": lambda l, x: l.trapezoid(x.int(), dx=2),
    "trapezoid of bytes": lambda l, x: l.trapezoid(l.tensor([200, 100, 250], dtype=l.uint8)),
    "trapezoid of booleans": lambda l, x: l.trapezoid(x > 1),
    "trapezoid with boolean places": lambda l, x: l.trapezoid(x, x > 1),
    "trapezoid of nothing": lambda l, x: l.trapezoid(x[:, :0]),
    "trapezoid of a number": lambda l, x: l.trapezoid(x[0, 0]),
    "trapezoid with an imaginary step": lambda l, x: l.trapezoid(x, dx=2j),
    "trapezoid along 3": lambda l, x: l.trapezoid(x, dim=3),
    "trapezoid of one place": lambda l, x: l.trapezoid(x[0, :2], x[0, 0]),
    "trapz": lambda l, x: l.trapz(x, x, dim=0),
    "trapz by steps": lambda l, x: l.trapz(x, dx=3),
    "cumulative_trapezoid": lambda l, x: l.cumulative_trapezoid(x, dim=0),
    "cumulative_trapezoid of places": lambda l, x: l.cumulative_trapezoid(x, l.tensor([1, 2, 4])),
    "cumulative_trapezoid of nothing": lambda l, x: l.cumulative_trapezoid(x[:, :0]),
    "cumulative_trapezoid of one": lambda l, x: l.cumulative_trapezoid(x[:, :1]),
    "cumulative_trapezoid of too many places": lambda l, x: l.cumulative_trapezoid(x, l.tensor([1, 2, 4, 5])),
    "gradient": lambda l, x: l.gradient(x),
    "gradient of integers": lambda l, x: l.gradient(x.int()),
    "gradient of bytes": lambda l, x: l.gradient(x.to(l.uint8)),
    "gradient by a number": lambda l, x: l.gradient(x, spacing=2, dim=(1, 0)),
    "gradient by a 0-dim tensor": lambda l, x: l.gradient(x, spacing=l.tensor(2.0), dim=1),
    "gradient by numbers": lambda l, x: l.gradient(x, spacing=(2, 3.0)),
    "gradient by too few numbers": lambda l, x: l.gradient(x, spacing=(2,)),
    "gradient by too many numbers": lambda l, x: l.gradient(x, spacing=(1, 2, 3), dim=(0, 1)),
    "gradient by coordinates": lambda l, x: l.gradient(x, spacing=[l.tensor([0.0, 1]), l.tensor([0, 1, 3])]),
    "gradient by a matrix": lambda l, x: l.gradient(x, spacing=[x], dim=1),
    "gradient by a vector": lambda l, x: l.gradient(x, spacing=x[0], dim=1),
    "gradient by tensors and numbers": lambda l, x: l.gradient(x, spacing=(x[0], 2.0)),
    "gradient with exact edges": lambda l, x: l.gradient(x, dim=1, edge_order=2),
    "gradient with exact edges of two": lambda l, x: l.gradient(x, dim=0, edge_order=2),
    "gradient by coordinates with exact edges": lambda l, x: l.gradient(
        x[:, :3].reshape(6), spacing=[l.tensor([0.0, 1, 3, 4, 6, 9])], edge_order=2
    ),
    "gradient of order 3": lambda l, x: l.gradient(x, edge_order=3),
    "gradient along one dimension twice": lambda l, x: l.gradient(x, dim=(0, 0)),
    "gradient along dimension 3": lambda l, x: l.gradient(x, dim=3),
    "gradient along none": lambda l, x: l.gradient(x, dim=()),
    "gradient of a number": lambda l, x: l.gradient(x[0, 0]),
    "gradient of nothing": lambda l, x: l.gradient(x[:0]),
    "gradient by an imaginary number": lambda l, x: l.gradient(x.cfloat(), spacing=1j, dim=1),
    "gradient by 0": lambda l, x: l.gradient(x, spacing=0),
    "cov": lambda l, x: l.cov(x),
    "cov of integers": lambda l, x: x.int().cov(),
    "cov of booleans": lambda l, x: l.cov(x > 1),
    "cov of a vector": lambda l, x: l.cov(x[0]),
    "cov of a number": lambda l, x: l.cov(x[0, 0]),
    "cov of nothing": lambda l, x: l.cov(x[:, :0]),
    "cov of no variables": lambda l, x: l.cov(x[:0]),
    "cov uncorrected": lambda l, x: l.cov(x, correction=0),
    "cov overcorrected": lambda l, x: l.cov(x, correction=5),
    "cov with counts": lambda l, x: l.cov(x, fweights=l.tensor([1, 2, 3])),
    "cov with weights": lambda l, x: l.cov(x, aweights=l.tensor([1, 2, 3.0])),
    "cov with both": lambda l, x: l.cov(x, fweights=l.tensor([1, 2, 3]), aweights=l.tensor([1, 2, 0.5])),
    "cov with wider weights": lambda l, x: l.cov(x, aweights=l.tensor([1, 2, 3.0], dtype=l.float64)),
    "cov with fractional counts": lambda l, x: l.cov(x, fweights=x[0]),
    "cov with complex weights": lambda l, x: l.cov(x, aweights=x[0].cfloat()),
    "cov with negative counts": lambda l, x: l.cov(x, fweights=l.tensor([1, -2, 3])),
    "cov with too few counts": lambda l, x: l.cov(x, fweights=l.tensor([1, 2])),
    "cov with counts of 0": lambda l, x: l.cov(x, fweights=l.tensor([0, 0, 0])),
    "corrcoef": lambda l, x: l.corrcoef(x),
    "corrcoef of integers": lambda l, x: x.int().corrcoef(),
    "corrcoef of a vector": lambda l, x: l.corrcoef(x[0]),
    "corrcoef of a number": lambda l, x: l.corrcoef(x[0, 0]),
    "corrcoef of constants": lambda l, x: l.corrcoef(l.ones_like(x)),
    "corrcoef of a cube": lambda l, x: l.corrcoef(x[None]),
    "renorm": lambda l, x: l.renorm(x, 2, 0, 5),
    "renorm in place": lambda l, x: x.clone().renorm_(1, -1, 5.0),
    "renorm of half precision": lambda l, x: x.half().renorm(2, 0, 5),
    "renorm by the largest": lambda l, x: x.renorm(inf, 0, 1),
    "renorm by half": lambda l, x: x.renorm(0.5, 0, 5),
    "renorm of infinities and nan": lambda l, x: (x * inf).renorm(2, 0, 5),
    "renorm to 0": lambda l, x: x.renorm(2, 0, 0),
    "renorm by order 0": lambda l, x: x.renorm(0, 0, 1),
    "renorm to less than 0": lambda l, x: x.renorm(2, 0, -1),
    "renorm to a complex number": lambda l, x: x.renorm(2, 0, 1j),
    "renorm by a complex order": lambda l, x: x.renorm(1j, 0, 1),
    "renorm of a vector": lambda l, x: x[0].renorm(2, 0, 1),
    "renorm along 2": lambda l, x: x.renorm(2, 2, 1),
    "frobenius_norm": lambda l, x: l.frobenius_norm(x, (0, 1), True),
    "frobenius_norm of rows": lambda l, x: l.frobenius_norm(x, 1),
    "frobenius_norm of all": lambda l, x: l.frobenius_norm(x, []),
    "frobenius_norm of a cube": lambda l, x: l.frobenius_norm(x[None], (0, 1, 2)),
    "frobenius_norm of integers": lambda l, x: l.frobenius_norm(x.int(), 1),
    "nuclear_norm": lambda l, x: l.nuclear_norm(x, True),
    "nuclear_norm of matrices": lambda l, x: l.nuclear_norm(x.repeat(3, 1, 1)),
    "nuclear_norm along 0 and 2": lambda l, x: l.nuclear_norm(x[:, None], (0, 2), keepdim=True),
    "nuclear_norm of integers": lambda l, x: l.nuclear_norm(x.int()),
    "nuclear_norm of a vector": lambda l, x: l.nuclear_norm(x[0]),
    "nuclear_norm along 1": lambda l, x: l.nuclear_norm(x, dim=(1,)),
    "norm_except_dim": lambda l, x: l.norm_except_dim(x, 2, 1),
    "norm_except_dim of all": lambda l, x: l.norm_except_dim(x, 2, -1),
    "norm_except_dim of order 0": lambda l, x: l.norm_except_dim(x[None], 0, 2),
    "norm_except_dim of a vector": lambda l, x: l.norm_except_dim(x[0]),
    "norm_except_dim of a number": lambda l, x: l.norm_except_dim(x[0, 0]),
    "norm_except_dim 5": lambda l, x: l.norm_except_dim(x, 2, 5),
    "norm_except_dim of integers": lambda l, x: l.norm_except_dim(x.int()),
    "hash_tensor": lambda l, x: l.hash_tensor(x),
    "hash_tensor of columns": lambda l, x: x.hash_tensor(0),
    "hash_tensor of rows": lambda l, x: l.hash_tensor(x, dim=[1], keepdim=True),
    "hash_tensor of all": lambda l, x: l.hash_tensor(x, (0, 1), keepdim=True),
    "hash_tensor of a number": lambda l, x: l.hash_tensor(x[0, 0]),
    "hash_tensor of nothing": lambda l, x: l.hash_tensor(x[:0]),
    "hash_tensor of no rows": lambda l, x: l.hash_tensor(x[:0], 0),
    "hash_tensor of empty rows": lambda l, x: l.hash_tensor(x[:, :0], 0),
    "hash_tensor in mode 1": lambda l, x: l.hash_tensor(x, mode=1),
    "hash_tensor along 3": lambda l, x: l.hash_tensor(x, 3),
    "hash_tensor along 0 twice": lambda l, x: l.hash_tensor(x, (0, 0)),
    "hash_tensor of complex": lambda l, x: l.hash_tensor(x.cfloat()),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_results_and_errors_read_as_in_torch(name):
    assert_prints_alike(CALLS[name], SQUARES)


HISTOGRAMS = {
    "numbers": lambda l, x, w: l.histogramdd(x, [3, 2]),
    "one number": lambda l, x, w: l.histogramdd(x, 2),
    "weights": lambda l, x, w: l.histogramdd(x, [3, 3], weight=w),
    "density": lambda l, x, w: l.histogramdd(x, (2, 3), density=True),
    "weights and density": lambda l, x, w: l.histogramdd(x, [2, 2], None, w, True),
    "range": lambda l, x, w: l.histogramdd(x, bins=[2, 3], range=[0.0, 1, 0, 1]),
    "edges": lambda l, x, w: l.histogramdd(x, [l.tensor([0.0, 1, 2]), l.tensor([0.0, 3])]),
    "more dimensions of points": lambda l, x, w: l.histogramdd(x.reshape(2, 2, 2), 2, weight=w.reshape(2, 2)),
    "equal points": lambda l, x, w: l.histogramdd(x * 0 + 5, [2, 2]),
    "no points": lambda l, x, w: l.histogramdd(x[:0], [2, 2]),
    "no dimensions": lambda l, x, w: l.histogramdd(x[:, :0], []),
    "nan": lambda l, x, w: l.histogramdd(x * nan, 2),
    "nan in a range": lambda l, x, w: l.histogramdd(x * nan, 2, range=[0.0, 1, 0, 1]),
    "infinite range": lambda l, x, w: l.histogramdd(x, 2, range=[0.0, inf, 0, 1]),
    "reversed range": lambda l, x, w: l.histogramdd(x, 2, range=[1.0, 0, 0, 1]),
    "short range": lambda l, x, w: l.histogramdd(x, 2, range=[1.0, 0]),
    "too few numbers": lambda l, x, w: l.histogramdd(x, [3]),
    "no bins": lambda l, x, w: l.histogramdd(x, [0, 3]),
    "vector": lambda l, x, w: l.histogramdd(x[0], [3, 3]),
    "integers": lambda l, x, w: l.histogramdd(x.int(), [3, 3]),
    "short weights": lambda l, x, w: l.histogramdd(x, 2, weight=w[:2]),
    "wide weights": lambda l, x, w: l.histogramdd(x, 2, weight=w.double()),
    "too few edges": lambda l, x, w: l.histogramdd(x, [w]),
    "wide edges": lambda l, x, w: l.histogramdd(x, [w.double(), w]),
    "one edge": lambda l, x, w: l.histogramdd(x, [w, w[:1]]),
    "empty edges": lambda l, x, w: l.histogramdd(x, [w[:0], w]),
    "edges in a matrix": lambda l, x, w: l.histogramdd(x, [w[None], w]),
}


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_histograms_of_points_read_as_in_torch(name):
    assert_prints_alike(HISTOGRAMS[name], POINTS, WEIGHT)


def test_large_histograms_are_torchs():
    points = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(0))
    for bins, options in (([5, 7, 3], {}), ([9, 2, 4], {"range": [-1.0, 1, -2, 2, 0, 3]}), (6, {"density": True})):
        expected, result = torch.histogramdd(points, bins, **options), tg.histogramdd(to_tg(points), bins, **options)
        np.testing.assert_allclose(result.hist.numpy(), expected.hist.numpy(), 1e-5)
        for ours, theirs in zip(result.bin_edges, expected.bin_edges, strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), 1e-6, 1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "int64", "uint8", "bool", "float32"])
def test_hashes_are_torchs_for_any_number_of_elements(dtype):
    for n in (1, 2, 3, 7, 8, 1001):
        x = (torch.randn(n, 3, generator=torch.Generator().manual_seed(n)) * 50).to(
            torch.uint8 if dtype[0] == "u" else getattr(torch, dtype)
        )
        if dtype != "bool":
            x[0, 0] = 0
        assert tg.hash_tensor(to_tg(x)).item() == torch.hash_tensor(x).item()
        assert tg.hash_tensor(to_tg(x).t(), 1).tolist() == torch.hash_tensor(x.t(), 1).tolist()
    assert tg.hash_tensor(tg.tensor([0.0])).item() != tg.hash_tensor(tg.tensor([-0.0])).item()


def test_the_places_of_samples_have_gradients_too():
    y = torch.tensor([1.0, 4, 2, 8], dtype=torch.float64, requires_grad=True)
    x = torch.tensor([0.0, 1, 3, 4], dtype=torch.float64, requires_grad=True)
    for call in (
        lambda l, y, x: l.trapezoid(y, x),
        lambda l, y, x: l.cumulative_trapezoid(y, x).prod(),
        lambda l, y, x: l.gradient(y, spacing=[x])[0].pow(2).sum(),
        lambda l, y, x: l.gradient(y, spacing=[x], edge_order=2)[0].pow(2).sum(),
        lambda l, y, x: l.cov(l.stack([y, x]), aweights=x.detach() + 1).sum(),
    ):
        expected = torch.autograd.grad(call(torch, y, x), (y, x))
        ours = [to_tg(t) for t in (y, x)]
        for e, r in zip(expected, tg.autograd.grad(call(tg, *ours), ours), strict=True):
            np.testing.assert_allclose(r.numpy(), e.numpy(), 1e-10)


def test_cov_warns_when_nothing_is_left_to_divide_by():
    with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
        assert tg.cov(tg.tensor([[1.0, 2.0]]), correction=2).item() == inf


def test_shapes_are_known_without_values():
    x = tg.empty(4, 3, device="meta")
    assert tg.trapezoid(x).shape == (4,) and tg.cov(x).shape == (4, 4) and tg.corrcoef(x).shape == (4, 4)
    assert tg.gradient(x)[1].shape == (4, 3) and x.renorm(2, 0, 1.0).shape == (4, 3)
    assert tg.histogramdd(x, [2, 3, 4]).hist.shape == (2, 3, 4)
    assert x.hash_tensor(0, keepdim=True).shape == (1, 3) and x.hash_tensor().dtype is tg.uint64
