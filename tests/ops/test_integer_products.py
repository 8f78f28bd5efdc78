"""Products of 8-bit integers are exact, as PyTorch's are."""

import numpy as np
import pytest

import tensorgrad
from tests.support.alike import alike, error


@alike
def test_products_of_8_bit_integers(torch):
    generator = np.random.default_rng(0)
    found = []
    for n, k, m in ((1, 1, 1), (3, 7, 2), (4, 600, 5), (2, 3000, 3), (0, 3, 2), (2, 0, 3)):
        signed = torch.from_numpy(generator.integers(-128, 128, (n, k), dtype=np.int8))
        unsigned = torch.from_numpy(generator.integers(0, 256, (n, k), dtype=np.uint8))
        other = torch.from_numpy(generator.integers(-128, 128, (m, k), dtype=np.int8)).t()
        out = torch.empty(n, m, dtype=torch.int32)
        found += [torch._int_mm(signed, other), torch._int_mm(signed, other, out=out) is out, out]
        if n and k:
            found.append(torch.ops.aten._int_mm.default(unsigned, other))
    return found


def test_the_largest_sums_are_exact():
    for k in (500, 520, 4000):
        a = tensorgrad.full((1, k), 255, dtype=tensorgrad.uint8)
        b = tensorgrad.full((k, 1), -128, dtype=tensorgrad.int8)
        assert tensorgrad._int_mm(a, b).item() == -128 * 255 * k


@pytest.mark.parametrize("case", ["a dtype", "dimensions", "sizes", "out"])
def test_what_does_not_fit_is_refused(case):
    def of(torch):
        a = torch.ones(2, 3, dtype=torch.int8)
        calls = {
            "a dtype": lambda: torch._int_mm(a, a.t().float()),
            "dimensions": lambda: torch._int_mm(a[0], a.t()),
            "sizes": lambda: torch._int_mm(a, a),
            "out": lambda: torch._int_mm(a, a.t(), out=torch.empty(2, 2)),
        }
        return error(calls[case]).partition(":")[0]

    torch = pytest.importorskip("torch")
    assert of(tensorgrad) == of(torch) == "RuntimeError"
