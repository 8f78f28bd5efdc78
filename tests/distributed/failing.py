"""What happens when ranks fail: `python failing.py CASE`. The last rank fails; the others print what they see."""

import os
import signal
import sys
import time
from datetime import timedelta

import tensorgrad as torch
import tensorgrad.distributed as dist
from tests.distributed.clocks import hurry
from tests.distributed.launch import HANG

case = sys.argv[1]
dist.init_process_group("gloo")
rank, last = dist.get_rank(), dist.get_world_size() - 1
group = dist.new_group(timeout=timedelta(seconds=1000))
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
dist.all_reduce(torch.ones(1))


def wait_for_others():
    """Ends when all ranks are here."""
    store.set(f"at the end {rank}", "")
    store.wait([f"at the end {other}" for other in range(last + 1)], timedelta(seconds=HANG))


def report(function):
    try:
        function()
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)


if (case, rank) in (("killed", last), ("first killed", 0)):
    os.kill(os.getpid(), signal.SIGKILL)
elif case == "raises" and rank == last:
    raise ValueError("this rank fails")
elif case == "exits after sending":
    if rank == last:
        dist.send(torch.full((4,), 7.0), 0)
        sys.exit()
    if rank == 0:
        while not dist.group.WORLD._missing():
            time.sleep(0.01)
        x = torch.zeros(4)
        dist.recv(x, last)
        print(x.tolist())
    sys.exit()
elif case == "monitored":
    if rank == 0:  # the others of which it will hear are there before its time begins
        there = [f"monitored{dist.group.WORLD.group_name}/1/{other}" for other in range(1, last)]
        dist.group.WORLD.store.wait(there, timedelta(seconds=HANG))
    if rank != last:
        report(lambda: dist.monitored_barrier(timeout=timedelta(seconds=0.5)))
    wait_for_others()
elif case == "hangs":
    if rank != last:  # time passes when all that take part have said so
        signs = [f"waits/{group.group_name}/{group.sequence + 1}/{other}" for other in range(last)]
        hurry(group, lambda: group.store.check(signs))
        report(lambda: dist.all_reduce(torch.ones(100), group=group))
    wait_for_others()
elif case == "silent":
    if rank == 0:
        hurry(group)
        report(lambda: dist.recv(torch.ones(1), last, group=group))
    wait_for_others()
elif case == "shapes":
    report(lambda: dist.all_reduce(torch.ones(2 + (rank == last))))
elif case == "operations":
    report(lambda: dist.broadcast(torch.ones(2), 0) if rank == 0 else dist.all_reduce(torch.ones(2)))
elif case == "without the secret":
    if rank == last:  # as if a stranger had got into MPI's connections
        os.environ["TENSORGRAD_JOB_SECRET"] = "guessed"
    mine = [None]
    report(lambda: dist.all_gather_object([None] * (last + 1), "a"))
    report(lambda: dist.broadcast_object_list(["b"], last))
    report(lambda: dist.scatter_object_list(mine, ["c"] * (last + 1), last))
    report(lambda: dist.gather_object("d", [None] * (last + 1) if rank == 0 else None))
    if rank == last:
        dist.send_object_list(["e"], 0)
    elif rank == 0:
        report(lambda: dist.recv_object_list([None], last))
    wait_for_others()
elif case == "too long":
    if rank == 0:
        report(lambda: dist.recv(torch.zeros(2), 1))
    else:
        dist.send(torch.zeros(5), 0)
else:
    report(lambda: dist.all_reduce(torch.ones(100)))
    report(lambda: dist.all_reduce(torch.ones(100)))
