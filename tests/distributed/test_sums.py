"""Sums in memory that the ranks of one machine share, with which DistributedDataParallel averages gradients."""

import pytest

from tests.distributed.launch import HERE, needs_mpi, run


@needs_mpi
@pytest.mark.parametrize("size", [2, 3, 4])
def test_gradients_are_added_up_in_shared_memory(size):
    assert [output for _, output, _ in run(size, [HERE / "sums.py"])] == ["done\n"] * size
