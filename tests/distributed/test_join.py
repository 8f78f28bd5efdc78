"""Training with different numbers of inputs gives what PyTorch's gives."""

import numpy as np
import pytest

from tests.distributed.launch import HERE, needs_mpi, run

pytestmark = pytest.mark.together

OWN = ("norms", "no buffers", "not enabled")  # results with these words are not the same on all ranks


@needs_mpi
def test_results_are_those_of_pytorch(tmp_path, size=2):
    printed = {
        lib: [output for _, output, _ in run(size, [HERE / "joins.py", lib, tmp_path / lib])]
        for lib in ("torch", "tensorgrad")
    }
    assert printed["tensorgrad"] == printed["torch"]
    for rank in range(size):
        expected, found = (np.load(tmp_path / f"{lib}{rank}.npz") for lib in ("torch", "tensorgrad"))
        for name in expected.files:
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-12, err_msg=name)


@needs_mpi
def test_at_the_end_all_have_the_same_model(tmp_path, size=3):
    run(size, [HERE / "joins.py", "tensorgrad", tmp_path / "rank"])
    first, *others = (np.load(tmp_path / f"rank{rank}.npz") for rank in range(size))
    for other in others:
        for name in first.files:
            if not any(word in name for word in OWN):
                np.testing.assert_array_equal(other[name], first[name], err_msg=name)
