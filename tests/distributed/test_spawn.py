"""`multiprocessing.spawn` does what PyTorch's does, however the processes end."""

import importlib.util
import json
import sys

import pytest

from tests.distributed.launch import HERE, finished, start
from tests.support.processes import environment, output_of

pytestmark = pytest.mark.together


@pytest.mark.skipif(sys.platform == "win32", reason="the cases fork, and send signals")
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="compares with PyTorch, which is not installed")
def test_processes_end_as_under_torch(tmp_path):
    names = ("torch", "tensorgrad")
    programs = [start([HERE / "spawning.py", name, tmp_path / name]) for name in names]
    results = [finished(program) for program in programs]
    assert [code for code, _, _ in results] == [0, 0], results
    theirs, ours = (json.loads(output) for _, output, _ in results)
    assert list(ours) == list(theirs)
    for case, found in theirs.items():
        assert ours[case] == found, case


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_files_of_errors_are_deleted(tmp_path):
    """Also if a process cannot be started; a fork of the program leaves those of its parent alone."""
    program = """
        import os, sys, tensorgrad as torch
        listed = lambda: len(os.listdir(os.environ["TMPDIR"]))
        spawn = torch.multiprocessing.start_processes
        try:
            spawn(lambda index: 0, nprocs=2)
        except Exception as error:
            print("pickle" in str(error).lower(), listed())
        context = spawn(divmod, args=(2,), nprocs=1, join=False, start_method="fork")
        if not (child := os.fork()):
            sys.exit()
        os.waitpid(child, 0)
        print(listed())
        context.join()
        del context
        print(listed())
    """
    assert output_of(program, env=environment(TMPDIR=str(tmp_path))).split() == ["True", "0", "1", "0"]
