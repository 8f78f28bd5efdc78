"""What happens when ranks fail: `python failing.py CASE`. The last rank fails; the others print what they see."""

import os
import signal
import sys
import time
from datetime import timedelta

import tensorgrad as torch
import tensorgrad.distributed as dist

case = sys.argv[1]
dist.init_process_group("gloo")
rank, last = dist.get_rank(), dist.get_world_size() - 1
group = dist.new_group(timeout=timedelta(seconds=3))
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
dist.all_reduce(torch.ones(1))
start = time.monotonic()


def wait_for_others():
    """Ends when all ranks are here."""
    store.set(f"at the end {rank}", "")
    store.wait([f"at the end {other}" for other in range(last + 1)], timedelta(seconds=120))


def report(function):
    try:
        function()
    except Exception as error:
        print(f"{type(error).__name__}: {error} [{time.monotonic() - start:.1f} s]", flush=True)


if (case, rank) in (("killed", last), ("first killed", 0)):
    os.kill(os.getpid(), signal.SIGKILL)
elif case == "raises" and rank == last:
    raise ValueError("this rank fails")
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
elif case == "monitored":
    if rank != last:
        report(lambda: dist.monitored_barrier(timeout=timedelta(seconds=3)))
    wait_for_others()
elif case == "hangs":
    if rank != last:
        report(lambda: dist.all_reduce(torch.ones(100), group=group))
    wait_for_others()
elif case == "silent":
    if rank == 0:
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
