"""Groups of two and three processes: results and errors are those of PyTorch's gloo group."""

import json
import subprocess
import sys
from functools import cache

import pytest

from tensorgrad.system.ports import ReservedPort
from tests.distributed.launch import (
    HERE,
    MPIEXEC,
    ROOT,
    environment,
    finished,
    needs_mpi,
    needs_mpiexec,
    run,
    start_command,
)

pytestmark = pytest.mark.together

pytest.importorskip("torch")


def compare(name, mine, theirs):
    if name != "errors":
        assert mine == theirs
        return
    for got, wanted in zip(mine, theirs, strict=True):
        first = wanted[1].split(" (expected TensorOptions")[0]  # PyTorch prints its own structure there
        assert got[0] == wanted[0] and got[1].startswith(first), (got, wanted)


@cache
def found_by_pytorch(size):
    """What each rank of PyTorch's gloo group finds."""
    return [json.loads(output) for _, output, _ in run(size, [HERE / "table.py", "torch"])]


def compare_with_pytorch(size, **variables):
    with ReservedPort() as second:
        results = run(size, [HERE / "table.py", "tensorgrad", second.number], **variables)
    assert not [errors for _, _, errors in results if "Traceback" in errors or "PMIU" in errors]
    for (_, output, _), wanted in zip(results, found_by_pytorch(size)):
        found = json.loads(output.replace('"nccl"', '"gloo"'))  # the name that `get_backend` returns
        assert list(found) == list(wanted)
        for name in found:
            compare(name, found[name], wanted[name])


@needs_mpi
@pytest.mark.parametrize("size", [2, 3])
def test_every_collective_is_as_in_pytorch(size):
    compare_with_pytorch(size)


@needs_mpi
@pytest.mark.parametrize("size", [2, 3])
def test_every_collective_by_nccl(size):
    """Tensors on emulated GPUs, in groups of the backend "nccl"."""
    compare_with_pytorch(size, DEVICE="emulator")


SUM = """
import tensorgrad as torch, tensorgrad.distributed as dist
dist.init_process_group("mpi")
x = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(x)
dist.new_group([0, 1]).get_group_store().add("n", 1)
assert x.item() == 3.0 and dist.get_world_size() == 2
"""


@needs_mpi
@needs_mpiexec
def test_under_a_launcher_of_mpi():
    command = [MPIEXEC, "-n", "2", sys.executable, "-c", SUM]
    code, _, errors = finished(start_command(command, env=environment()))
    assert code == 0, errors


@needs_mpi
def test_on_several_machines():
    """Ranks that take themselves for different machines use the network, through the address of rank 0."""
    program = "from tensorgrad.distributed.mpi import pmi; import os; pmi.machine = lambda: os.environ['RANK']" + SUM
    run(2, ["-c", program.replace('"mpi"', '"gloo"')])


def test_import_brings_no_mpi():
    program = "import sys, tensorgrad.distributed; sys.exit('mpi4py' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0
