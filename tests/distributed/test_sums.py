"""Sums in memory that the ranks of one machine share, with which DistributedDataParallel averages gradients."""

import re

import pytest

from tests.distributed.launch import HERE, has_ended, needs_mpi, run

pytestmark = [needs_mpi, pytest.mark.together]

STOPS = """
import os, signal, sys
from datetime import timedelta
import tensorgrad as torch, tensorgrad.distributed as dist
from tensorgrad.distributed.mpi.shared_sums import SharedSums
from tests.distributed.clocks import hurry
from tests.distributed.launch import HANG

dist.init_process_group("gloo")
group = dist.new_group(timeout=timedelta(seconds=1000))
store = dist.group.WORLD.get_group_store()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024), process_group=group)  # several chunks
announce, rank, moments = SharedSums._announce, dist.get_rank(), [0]
given_up = [f"rank {other} has given up" for other in range(dist.get_world_size()) if other != 1]
if rank != 1:
    hurry(group, lambda: store.check(["rank 1 hangs"]))  # then time passes, and the others have waited too long

def and_stop(self, step):
    announce(self, step)
    moments[0] += 1
    if rank == 1 and moments[0] == 8:
        if sys.argv[1] == "hangs":
            store.set("rank 1 hangs", "")
            store.wait(given_up, timedelta(seconds=HANG))
        os.kill(os.getpid(), signal.SIGKILL)

SharedSums._announce = and_stop
try:
    for _ in range(4):
        model.zero_grad()
        model(torch.ones(1, 1024)).sum().backward()
    print("no error")
except dist.DistBackendError as error:
    print(str(error).splitlines()[0])
store.set(f"rank {rank} has given up", "")
if rank == 0:  # which serves the store
    store.wait(given_up, timedelta(seconds=HANG))
"""


@pytest.mark.parametrize("size", [2, 3, 4])
def test_gradients_are_added_up_in_shared_memory(size):
    assert [output for _, output, _ in run(size, [HERE / "sums.py"])] == ["done\n"] * size


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    "how, told", [("ends", f"all_reduce: {has_ended(1)}"), ("hangs", "Timed out waiting")], ids=["ends", "hangs"]
)
def test_a_rank_that_stops_in_the_middle_of_a_sum_is_noticed(how, told, size):
    ended = run(size, ["-c", STOPS, how], check=False)
    for rank, (_, output, errors) in enumerate(ended):
        assert (output == "") if rank == 1 else re.match(told, output), (output, errors)
