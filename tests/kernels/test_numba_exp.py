"""exp of float32, of whole registers of AVX-512 and by the scalar function that serves elsewhere: error and limits."""

import numpy as np
import pytest

from tests.support.kernels import absent

if absent():
    pytest.skip(absent(), allow_module_level=True)

from tensorgrad.kernels.compiled import functions_avx512
from tensorgrad.kernels.compiled.runtime import library


def inputs() -> np.ndarray:
    """Numbers of all magnitudes; many whose result is as large or as small as possible, or has fewer digits."""
    rng = np.random.default_rng(0)
    any_bits = rng.integers(0, 1 << 32, 500_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    limits = (-104.5, -86.0), (-90.0, 90.0), (87.9, 89.5), (-0.7, 0.7)
    ends = [rng.uniform(low, high, 200_000) for low, high in limits]
    steps = [np.float32(v) for v in (88.72283, 88.72284, -87.33654, -87.33655, -103.97208, -103.97209, 1e38, -1e38)]
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45, 3.4e38, -3.4e38, 1.18e-38, *steps]
    with np.errstate(invalid="ignore"):  # some nans are signals
        return np.concatenate([any_bits, *ends, special]).astype(np.float32)


def largest_error(kernel, x: np.ndarray) -> float:
    """Returns the largest error in units of the last place. Raises: AssertionError for a wrong nan, infinity or 0."""
    with np.errstate(all="ignore"):
        found, true = kernel(x), np.exp(x.astype(np.float64))
        rounded = true.astype(np.float32)
        ends = ~np.isfinite(rounded) | (rounded == 0)
        np.testing.assert_array_equal(found[ends], rounded[ends])
        error = np.abs(found[~ends] - true[~ends]) / np.spacing(rounded[~ends]).astype(np.float64)
    return float(error.max())


@pytest.fixture(scope="module")
def exp():
    return library.load("pointwise.exp")


def test_error(exp):
    assert largest_error(exp, inputs()) < (0.9 if functions_avx512.exp else 1.01)


@pytest.mark.parametrize("size", [*range(1, 36), 47, 48, 63, 64, 65, 97])
def test_every_length(exp, size):
    """The last registers are loaded and stored under a mask; nothing beside the array is written."""
    memory = np.linspace(-3, 3, size + 40, dtype=np.float32)
    whole = exp(memory)
    for start in (1, 16, 20):
        np.testing.assert_array_equal(exp(memory[start : start + size].copy()), whole[start : start + size])
        held = memory.copy()
        here = held[start : start + size]
        exp(here, here)
        np.testing.assert_array_equal(here, whole[start : start + size])
        np.testing.assert_array_equal(held[:start], memory[:start])
        np.testing.assert_array_equal(held[start + size :], memory[start + size :])
