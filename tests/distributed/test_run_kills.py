"""Whatever is killed, nothing stays behind; and training goes on as if nothing had happened."""

import os
import signal
import sys
from contextlib import contextmanager

import pytest

from tensorgrad.system.watchdog import table
from tests.distributed.jobs import eventually, launch, living, train_with_kills
from tests.distributed.launch import HANG, finished, needs_mpi, start

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="process groups and signals are POSIX's"),
    pytest.mark.together,
]

# A rank that does not listen to SIGTERM, with two children: one in its process group, one in a session of its own.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleep = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
children = [subprocess.Popen(sleep).pid, subprocess.Popen(sleep, start_new_session=True).pid]
folder = sys.argv[1]
with open(f"{folder}/{os.getpid()}.tmp", "w") as file:
    file.write(f"{os.getppid()} {os.getpid()} {children[0]} {children[1]}")
os.rename(f"{folder}/{os.getpid()}.tmp", f"{folder}/{os.getpid()}.pids")
time.sleep(600)
"""


@contextmanager
def stubborn(folder, as_python=False):
    """An agent with two such ranks, the processes of each ([agent, rank, child, child]), watchdogs, and all of them.

    `as_python`: the agent knows that it starts a Python program. (That imports tensorgrad, which takes longer.)
    """
    path = folder / "program.py"
    path.write_text(STUBBORN)
    command = (path, folder) if as_python else ("--no-python", sys.executable, "-S", path, folder)
    agent = launch("--standalone", "--nproc-per-node", 2, "--shutdown-timeout", 1, *command)
    everyone = []
    try:
        assert eventually(lambda: len(list(folder.glob("*.pids"))) == 2)
        ranks = [[int(pid) for pid in file.read_text().split()] for file in folder.glob("*.pids")]
        assert all(rank[0] == agent.pid for rank in ranks)
        watchdogs = [pid for pid, (parent, *_) in table().items() if parent == agent.pid]
        watchdogs = sorted(set(watchdogs) - {rank[1] for rank in ranks})
        everyone = [pid for rank in ranks for pid in rank] + watchdogs
        yield agent, ranks, watchdogs, everyone
    finally:
        agent.kill()
        finished(agent)
        for pid in living(everyone):
            os.kill(pid, signal.SIGKILL)


def test_a_killed_agent_takes_everything_with_it(tmp_path):
    with stubborn(tmp_path) as (agent, _, _, everyone):
        agent.kill()
        agent.wait()
        assert eventually(lambda: not living(everyone)), living(everyone)


def test_a_killed_watchdog_is_replaced_or_not_needed(tmp_path):
    with stubborn(tmp_path) as (agent, _, watchdogs, everyone):
        assert len(watchdogs) == 1
        os.kill(watchdogs[0], signal.SIGKILL)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(HANG) == 128 + signal.SIGTERM
        assert not living(everyone)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])  # Ctrl-C, a scheduler, a terminal that closes
def test_signals_end_everything(tmp_path, name):
    with stubborn(tmp_path, as_python=name == "SIGINT") as (agent, _, _, everyone):
        agent.send_signal(getattr(signal, name))
        code, _, errors = finished(agent)
        assert code == 128 + getattr(signal, name) and f"received {name}" in errors and "program.py" not in errors
        assert not living(everyone)


def test_a_killed_rank_ends_the_others_and_its_children(tmp_path):
    with stubborn(tmp_path) as (agent, ranks, _, everyone):
        os.kill(ranks[0][1], signal.SIGKILL)
        code, _, errors = finished(agent)
        assert code == 1 and "(SIGKILL)" in errors
        assert not living(everyone)


SPAWNS = """
import os, subprocess, sys, time
import tensorgrad as torch

def work(index, folder):
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
    with open(f"{folder}/{index}.tmp", "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    os.rename(f"{folder}/{index}.tmp", f"{folder}/{index}.pids")
    time.sleep(600)

if __name__ == "__main__":
    torch.multiprocessing.spawn(work, (sys.argv[1],), nprocs=2, start_method=sys.argv[2])
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_killed_program_takes_its_spawned_processes_with_it(tmp_path, method):
    (tmp_path / "program.py").write_text(SPAWNS)
    program = start([tmp_path / "program.py", tmp_path, method])
    try:
        assert eventually(lambda: len(list(tmp_path.glob("*.pids"))) == 2)
        everyone = [int(pid) for file in tmp_path.glob("*.pids") for pid in file.read_text().split()]
        assert len(living(everyone)) == 4
        program.kill()
        program.wait()
        assert eventually(lambda: not living(everyone)), living(everyone)
    finally:
        finished(program)


@needs_mpi
@pytest.mark.parametrize("size", [2, 3])  # of three numbers, the sum depends on the order
def test_training_goes_on_after_kills(size):
    done = train_with_kills(seed=2, kills=2, size=size)
    assert done.number == 2


HUNG = """
import datetime, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
group = dist.new_group()
group.set_timeout(datetime.timedelta(seconds=1))
if dist.get_rank() == 1:
    time.sleep(600)
dist.all_reduce(torch.ones(1), group=group)
"""


@needs_mpi
def test_a_rank_that_hangs_costs_the_timeout_and_a_restart(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(HUNG)
    code, _, errors = finished(launch("--standalone", "--nproc-per-node", 2, "--max-restarts", 1, path))
    lines = [line for line in errors.splitlines() if "restart 1 of 1" in line]
    assert code == 1 and len(lines) == 1, errors
    assert "rank 0" in lines[0] and "Timed out waiting" in lines[0]
