"""Groups of two and three processes: results and errors are those of PyTorch's gloo group."""

import json
import subprocess
import sys

import pytest

from tests.distributed.launch import HERE, ROOT, free_port, needs_mpi, run

pytest.importorskip("torch")


def compare(name, mine, theirs):
    if name != "errors":
        assert mine == theirs
        return
    for got, wanted in zip(mine, theirs, strict=True):
        first = wanted[1].split(" (expected TensorOptions")[0]  # PyTorch prints its own structure there
        assert got[0] == wanted[0] and got[1].startswith(first), (got, wanted)


@needs_mpi
@pytest.mark.parametrize("size", [2, 3])
def test_every_collective_is_as_in_pytorch(size):
    wanted = [json.loads(output) for _, output, _ in run(size, [HERE / "table.py", "torch"])]
    results = run(size, [HERE / "table.py", "tensorgrad", free_port()])
    assert not [errors for _, _, errors in results if "Traceback" in errors or "PMIU" in errors]
    for rank in range(size):
        found = json.loads(results[rank][1])
        assert list(found) == list(wanted[rank])
        for name in found:
            compare(name, found[name], wanted[rank][name])


def test_import_brings_no_mpi():
    program = "import sys, tensorgrad.distributed; sys.exit('mpi4py' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0
