"""Checkpoints of several ranks: other jobs load them, and an error on one rank reaches all."""

import pytest

from tests.distributed.launch import HERE, needs_mpi, run

pytestmark = pytest.mark.together

pytest.importorskip("resource")


@needs_mpi
def test_four_ranks(tmp_path):
    results = run(4, [HERE / "checkpoint_cases.py", tmp_path])
    assert results[0][1].splitlines() == [
        "what_one_job_saved_any_other_loads", "replicated_tensors_are_written_once_by_all_together",
        "an_error_reaches_all_ranks", "ranks_that_disagree_get_an_error", "saving_in_the_background",
    ]  # fmt: skip
