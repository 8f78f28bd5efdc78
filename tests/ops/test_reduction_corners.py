"""Corners of reductions that PyTorch's own tests look into: as in torch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tensorgrad as tg
from tests.support.alike import alike

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests and is not installed")

CALLS = """
l.all(x, []), l.any(x, dim=()), x.all(dim=[], keepdim=True), x.any(dim=[]).shape
l.all(x, 1, out=l.ones(2))
l.any(x, (0, 1), out=l.ones(()))
l.all(x, (), out=l.ones(2, 3))
l.any(x, out=l.ones((), dtype=l.int32))
l.all(x, 1, out=l.ones(2, dtype=l.uint8)), l.any(x, 1, out=l.zeros(2, dtype=l.bool))
l.all(b, 1, out=l.ones(2, dtype=l.bool)), l.any(b, 1, out=l.ones(2, dtype=l.uint8)), l.all(b), l.any(b, [])
l.histc(t, 4, 5, 5), l.histc(t, 4, -1, -1), l.histc(t, 4), l.histc(t, 4, 0, 3)
l.histc(l.tensor([3.0, 3.0]), 4, 1, 1), l.histc(l.tensor([3.0, 3.0]), 4)
l.histc(l.tensor([]), 4), l.histc(l.tensor([]), 4, 3, 3)
l.histc(t, 4, float("inf"), float("inf"))
l.histc(t, 4, 0, float("inf")), l.histc(t, 4, float("-inf"), 0), l.histc(l.tensor([]), 4, 0, float("inf"))
l.histc(t, 4, float("nan"), float("nan"))
l.histc(t, 4, 0, float("nan"))
l.histc(t, 4, 5, 1)
l.histc(t.int(), 4, 5, 1)
l.histc(t.int(), 4, 1, 5)
l.histc(t, 0, 5, 1)
l.histc(l.tensor([float("nan")]), 4)
""".strip().splitlines()


@pytest.mark.parametrize("call", CALLS)
def test_corners_of_reductions(call):
    def story(l):
        x, t = l.tensor([[1.0, 0.0, 2.0], [3.0, 4.0, 5.0]]), l.tensor([1.0, 2.0, 1.0])
        try:
            return str(eval(call, {"l": l, "x": x, "b": x.to(l.uint8), "t": t})).replace("tensorgrad", "torch")
        except Exception as error:
            return type(error), str(error)[:60]

    assert story(tg) == story(torch)


def test_running_logarithms_of_complex_numbers():
    """Of every pair of infinite, finite and unknown parts. What has no sure angle is compared by its size."""
    parts = (float("inf"), float("-inf"), 1.0, float("nan"))
    numbers = [complex(a, b) for a in parts for b in (0.0, 2.0, *parts)]
    pairs = list(itertools.product(numbers, numbers))
    for dtype in ("complex64", "complex128"):
        found, expected = (l.logcumsumexp(l.tensor(pairs, dtype=getattr(l, dtype)), 1) for l in (tg, torch))
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)


@pytest.mark.parametrize("name", ["median", "nanmedian", "kthvalue", "mode", "aminmax", "nansum"])
@pytest.mark.parametrize("dtype", ["bool", "complex64", "int32"])
def test_dtypes_without_an_order(name, dtype):
    def story(l):
        x = l.ones(2, 3, dtype=getattr(l, dtype))
        arguments = {"kthvalue": (1, 0), "aminmax": (), "nansum": ()}.get(name, (0,))
        try:
            found = getattr(l, name)(x, *arguments)
            return [t.tolist() for t in (found if isinstance(found, tuple) else (found,))]
        except (NotImplementedError, RuntimeError) as error:
            return type(error), str(error)

    assert story(tg) == story(torch)


@alike
def test_integers_may_be_tensors_of_one_element(torch):
    v, x, one = torch.arange(5.0), torch.arange(24.0).reshape(2, 3, 4), torch.tensor(1)
    return [
        torch.kthvalue(v, one)[0], v.kthvalue(torch.tensor([2]))[0], torch.topk(v, one)[0], torch.histc(v, one + 2),
        x.var(one), x.std(one, keepdim=True), torch.var_mean(x, one), x.sum(one), x.logsumexp(one), x.norm(2, one),
        torch.linalg.vector_norm(x, 2, one), x.amax(one), x.mean(one), torch.count_nonzero(x, one), x.nansum(one),
    ]  # fmt: skip
