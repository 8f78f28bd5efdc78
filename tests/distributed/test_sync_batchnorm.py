"""Batch norm over several processes is batch norm of the whole batch: results, gradients, running statistics."""

import pytest

from tests.distributed.launch import HERE, needs_mpi, run

pytestmark = pytest.mark.together


@needs_mpi
@pytest.mark.parametrize("size", [2, 3])
def test_batch_norm_over_processes_is_that_of_the_whole_batch(size):
    assert [output for _, output, _ in run(size, [HERE / "sync_batchnorm.py"])] == ["done\n"] * size
