"""Programs that used compiled kernels end with the status they chose, whatever still runs (exits.py)."""

import os

import pytest

from tests.fuzz import exits


@pytest.mark.skipif(os.name != "posix", reason="the programs end by signals")
def test_programs_end_with_their_status():
    assert exits.all_ended(0) == []


def test_each_program_meets_each_allocator():
    for name in exits.PROGRAMS:
        met = {exits.environment(name, seed).get("PYTHONMALLOC", os.environ.get("PYTHONMALLOC")) for seed in range(3)}
        assert {"debug", "malloc"} < met
