"""Large results begin at a cache line, and are like any other array."""

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad.kernels.compiled import table
from tensorgrad.storage.fresh import LARGE, LINE, fresh
from tests.support.kernels import absent

if absent():
    pytest.skip(absent(), allow_module_level=True)
from tests.support.kernels import load_kernels

ROWS = [row for row in table.ROWS if row.op in ("add", "mul")]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bool"])
@pytest.mark.parametrize("size", [0, 1, LARGE - 1, LARGE, LARGE + 13])
def test_new_memory(size, dtype):
    made = [fresh(size, np.dtype(dtype)) for _ in range(5)]
    assert all(m.shape == (size,) and m.dtype == dtype and m.flags.writeable for m in made)
    if size >= LARGE:
        assert all(m.ctypes.data % LINE == 0 for m in made)


def test_results_of_one_thread():
    load_kernels(ROWS)
    before = tg.get_num_threads()
    tg.set_num_threads(1)
    try:
        x, y = tg.randn(3, 50_001), tg.randn(3, 50_001)
        made = [x + y, x * y, x - y]
        a, b = x.numpy(), y.numpy()
        assert all(m.data_ptr() % LINE == 0 for m in made[:2])
        for m, expected in zip(made, (a + b, a * b, a - b), strict=True):
            np.testing.assert_array_equal(m.numpy(), expected)
            assert m.is_contiguous() and m.untyped_storage().nbytes() == 4 * m.numel() and m.storage_offset() == 0
        x.add_(y)
        np.testing.assert_array_equal(x.numpy(), made[0].numpy())
    finally:
        tg.set_num_threads(before)
