"""`torch.Size` in sums: with tuples it stays a size, with NumPy's arrays and numbers it is an array."""

import numpy as np
import pytest

import tensorgrad
from tests.support.alike import alike

pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")


@alike
def test_sums_of_sizes(torch):
    size = torch.Size([3, 4])
    found = [size + (5,), (5,) + size, size + torch.Size([1]), size * 2]
    found += [
        size + np.array(1),
        size + np.array([1, 2]),
        np.array([1, 2]) + size,
        size + np.int64(2),
        size - np.array(1),
    ]
    return [(type(value).__name__, list(value)) for value in found]


@pytest.mark.parametrize("other", [2, [2], iter([2]), "ab", tensorgrad.tensor(2), None])
def test_what_is_not_a_tuple_is_refused(other):
    with pytest.raises(TypeError, match=r"can only concatenate tuple \(not \w+\) to torch.Size"):
        tensorgrad.Size([3, 4]) + other


@pytest.mark.parametrize("sizes", [(2, None), (2, 2.0), (2, "a"), (2, tensorgrad.float32), ((2, 2), 2)], ids=str)
def test_view_refuses_what_is_not_a_size(sizes):
    with pytest.raises(TypeError, match=r"size|integer"):
        tensorgrad.ones(4).view(*sizes)
