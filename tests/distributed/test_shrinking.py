"""`shrink_group`: members leave a group, and others go on after one was killed."""

import pytest

from tests.distributed.launch import HERE, needs_mpi, run

pytestmark = pytest.mark.together


@needs_mpi
@pytest.mark.parametrize("how", ["left", "killed"])
def test_a_group_goes_on_without_some_members(how):
    ended = run(4, [HERE / "shrinking.py", how], check=how == "left")
    assert [output for _, output, _ in ended] == ["" if how == "killed" and k == 1 else "done\n" for k in range(4)]
