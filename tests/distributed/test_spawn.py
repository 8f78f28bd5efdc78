"""`multiprocessing.spawn` does what PyTorch's does, however the processes end."""

import importlib.util
import json
import sys

import pytest

from tests.distributed.jobs import finished
from tests.distributed.launch import HERE, start


@pytest.mark.skipif(sys.platform == "win32", reason="the cases fork, and send signals")
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="compares with PyTorch, which is not installed")
def test_processes_end_as_under_torch(tmp_path):
    names = ("torch", "tensorgrad")
    programs = [start([HERE / "spawning.py", name, tmp_path / name]) for name in names]
    results = [finished(program, 240) for program in programs]
    assert [code for code, _, _ in results] == [0, 0], results
    theirs, ours = (json.loads(output) for _, output, _ in results)
    assert list(ours) == list(theirs)
    for case, found in theirs.items():
        assert ours[case] == found, case
