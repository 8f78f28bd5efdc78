"""Sums in memory that the ranks of one machine share, with which DistributedDataParallel averages gradients."""

import re
import time

import pytest

from tests.distributed.launch import HERE, has_ended, needs_mpi, run

pytestmark = needs_mpi

STOPS = """
import os, signal, sys, time
from datetime import timedelta
import tensorgrad as torch, tensorgrad.distributed as dist
from tensorgrad.distributed.mpi.shared_sums import SharedSums

dist.init_process_group("gloo")
group = dist.new_group(timeout=timedelta(seconds=6 if sys.argv[1] == "hangs" else 100))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024), process_group=group)  # several chunks
announce, rank, moments = SharedSums._announce, dist.get_rank(), [0]

def and_stop(self, step):
    announce(self, step)
    moments[0] += 1
    if rank == 1 and moments[0] == 8:
        if sys.argv[1] == "hangs":
            time.sleep(8)
        os.kill(os.getpid(), signal.SIGKILL)

SharedSums._announce = and_stop
try:
    for _ in range(4):
        model.zero_grad()
        model(torch.ones(1, 1024)).sum().backward()
    print("no error")
except dist.DistBackendError as error:
    print(str(error).splitlines()[0])
"""


@pytest.mark.parametrize("size", [2, 3, 4])
def test_gradients_are_added_up_in_shared_memory(size):
    assert [output for _, output, _ in run(size, [HERE / "sums.py"])] == ["done\n"] * size


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    "how, told", [("ends", f"all_reduce: {has_ended(1)}"), ("hangs", "Timed out waiting")], ids=["ends", "hangs"]
)
def test_a_rank_that_stops_in_the_middle_of_a_sum_is_noticed(how, told, size):
    start = time.monotonic()
    ended = run(size, ["-c", STOPS, how], check=False)
    assert time.monotonic() - start < 90
    for rank, (_, output, errors) in enumerate(ended):
        assert (output == "") if rank == 1 else re.match(told, output), (output, errors)
