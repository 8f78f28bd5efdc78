"""Layers whose weights are divided among the ranks."""

import pytest

from tests.distributed.launch import HERE, needs_mpi, run

pytestmark = pytest.mark.together


@needs_mpi
@pytest.mark.parametrize("size", [2, 3, 4])
def test_divided_layers_compute_the_same(size):
    run(size, [HERE / "tensor_parallel_cases.py"])
