"""Training in several processes gives the gradients and weights of one process with the whole batch."""

import pytest

from tests.distributed.launch import HERE, needs_mpi, run

pytestmark = pytest.mark.together


@needs_mpi
@pytest.mark.parametrize("size", [2, 3, 4])
def test_data_parallel_training_is_training_on_the_whole_batch(size):
    assert [output for _, output, _ in run(size, [HERE / "ddp.py"])] == ["done\n"] * size
