"""`x[i, j] = value` and `x[i, j] += value` for index arrays, beside torch."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is the oracle of these tests")

import torch

import tensorgrad as tg


@pytest.mark.parametrize("index", [(1,), (0, 1), (0, 1, 2)])
def test_assignment_to_whole_index_arrays(index):
    """These are written directly; what does not fit, or is recorded, takes the long way with the same result."""
    rng = np.random.default_rng(0)
    for shape in ((3,), (2, 4)):
        indices = [rng.integers(-4, 4, shape) for _ in index]
        for value in (2.5, rng.standard_normal((*shape, 4, 4, 4)[: len(shape) + 3 - len(index)])):
            found = []
            for lib in (tg, torch):
                x = lib.zeros(4, 4, 4, dtype=lib.float64)
                at = tuple(lib.tensor(i) for i in indices)
                part = value if isinstance(value, float) else lib.tensor(value)
                x[at] = part
                x[at[0] if len(at) == 1 else at] += 1.0
                x[at] = lib.ones(1, dtype=lib.float64) * 3 if isinstance(value, float) else part.float().double()
                found.append((x.numpy(), x._version, x[at].numpy()))
            assert np.array_equal(found[0][0], found[1][0])
            assert found[0][1] == found[1][1]
            assert np.array_equal(found[0][2], found[1][2])
    x = tg.zeros(4, 4, 4)
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 0 with size 4"):
        x[tuple(tg.tensor([7, 0]) for _ in index)] = 1.0
    assert not x.any()
