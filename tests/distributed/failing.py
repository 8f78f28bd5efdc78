"""What happens when ranks fail: `python failing.py CASE`. The last rank fails; the others print what they see."""

import os
import signal
import sys
import time
from datetime import timedelta

import tensorgrad as torch
import tensorgrad.distributed as dist

case = sys.argv[1]
dist.init_process_group("gloo", timeout=timedelta(seconds=3 if case == "late" else 60))
rank, last = dist.get_rank(), dist.get_world_size() - 1
dist.all_reduce(torch.ones(1))
start = time.monotonic()


def report(function):
    try:
        function()
    except Exception as error:
        print(f"{type(error).__name__}: {error} [{time.monotonic() - start:.1f} s]", flush=True)


if (case, rank) in (("killed", last), ("first killed", 0)):
    os.kill(os.getpid(), signal.SIGKILL)
elif case == "raises" and rank == last:
    raise ValueError("this rank fails")
elif case == "late" and rank == last:
    time.sleep(6)
elif case == "exits after sending":
    if rank == last:
        dist.send(torch.full((4,), 7.0), 0)
        sys.exit()
    if rank == 0:
        time.sleep(2)
        x = torch.zeros(4)
        dist.recv(x, last)
        print(x.tolist())
    sys.exit()
elif case == "monitored" and rank == last:
    time.sleep(3)
elif case == "monitored":
    report(lambda: dist.monitored_barrier(timeout=timedelta(seconds=1)))
elif case == "too long":
    if rank == 0:
        report(lambda: dist.recv(torch.zeros(2), 1))
    else:
        dist.send(torch.zeros(5), 0)
else:
    report(lambda: dist.all_reduce(torch.ones(100)))
    report(lambda: dist.all_reduce(torch.ones(100)))
