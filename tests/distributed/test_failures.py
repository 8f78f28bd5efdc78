"""A rank that ends or stalls: the others get an error in time, and no process is left behind."""

import os
import re
import socket

import pytest

from tests.distributed.jobs import eventually
from tests.distributed.launch import HANG, HERE, end, finished, has_ended, needs_mpi, run, start

pytestmark = [needs_mpi, pytest.mark.together]


def fail(case, size=3, **variables):
    """The return code, lines and errors of each rank."""
    results = run(size, [HERE / "failing.py", case], check=False, **variables)
    return [(code, output.splitlines(), errors) for code, output, errors in results]


@pytest.mark.parametrize(("case", "victim"), [("killed", 2), ("first killed", 0), ("raises", 2)])
def test_a_rank_that_ends_is_named(case, victim):
    results = fail(case)
    for rank, (code, lines, errors) in enumerate(results):
        if rank == victim:
            assert code != 0
            continue
        assert code == 0, errors
        assert re.match(f"DistBackendError: all_reduce: {has_ended(victim)}", lines[0]), lines
        assert lines[1].startswith("DistBackendError: an earlier operation of this process group failed")


def test_a_rank_that_hangs_is_named():
    results = fail("hangs")
    for _, lines, errors in results[:2]:
        assert lines, errors
        message = r"DistBackendError: Timed out waiting \d{7}ms for all_reduce operation to complete: rank 2 did not "
        assert re.match(message + "take part", lines[0]), lines


def test_a_sender_that_is_silent_is_named():
    results = fail("silent", 2)
    assert re.match(r"DistBackendError: Timed out waiting \d{7}ms for recv from rank 1 operation", results[0][1][0])


@pytest.mark.parametrize(
    ("case", "differ"),
    [
        ("shapes", "ranks 0, 1: all_reduce (number 2) of float32 (2,), op SUM; rank 2: all_reduce (number 2) of "
         "float32 (3,), op SUM"),
        ("operations", "rank 0: broadcast (number 2) of float32 (2,), from rank 0; ranks 1, 2: all_reduce (number 2)"),
    ],
)  # fmt: skip
def test_ranks_that_disagree_are_told_in_debug_mode(case, differ):
    results = fail(case, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    for _, lines, errors in results:
        assert lines, errors
        assert lines[0].startswith("RuntimeError: [Rank")
        assert f"Detected mismatch between collectives on ranks. They are about to call: {differ}" in lines[0]


def test_objects_of_a_process_without_the_secret_are_not_unpickled():
    results = fail("without the secret", TENSORGRAD_JOB_SECRET="long and random")
    told = "DistBackendError: an object was not unpickled: the sender does not have the job's secret"
    for rank, ((_, lines, errors), count) in enumerate(zip(results, (5, 3, 1))):  # rank 2 is the stranger
        assert len(lines) == count and all(line.startswith(told) for line in lines), (rank, lines, errors)


def test_what_was_sent_arrives_after_the_sender_has_ended():
    results = fail("exits after sending", 2)
    assert [code for code, _, _ in results] == [0, 0], results
    assert results[0][1] == ["[7.0, 7.0, 7.0, 7.0]"]


def test_a_monitored_barrier_names_who_is_missing():
    results = fail("monitored")
    assert "[Rank 0]: Rank 2 failed to pass monitoredBarrier in 500 ms" in results[0][1][0]
    assert "[Rank 1]: Successfully reached monitoredBarrier, but received errors" in results[1][1][0]


def test_a_message_that_is_too_long_is_an_error():
    results = fail("too long", 2)
    assert re.match(r"DistBackendError: MPI: .*truncat", results[0][1][0], re.IGNORECASE | re.DOTALL), results


# --- the job cannot begin --------------------------------------------------------------------------------------------

JOIN = """
import os, signal, sys
from datetime import timedelta
from importlib import import_module
import tensorgrad.distributed as dist
from tests.distributed.launch import HANG
case, seconds, *first = sys.argv[1:]
rendezvous = import_module("tensorgrad.distributed.rendezvous")
wait_for_ranks = rendezvous._wait_for_ranks

def wait_longer_for_some(store, size, timeout):
    store.wait([f"init/rank{rank}" for rank in first], timedelta(seconds=HANG))
    wait_for_ranks(store, size, timeout)

rendezvous._wait_for_ranks = wait_longer_for_some
if case == "rank 0 hangs":
    from tensorgrad.distributed.mpi import pmi
    wait = pmi._wait
    pmi._wait = lambda store, keys, rank, timeout: wait(store, keys, rank, timedelta(seconds=1))
    if os.environ["RANK"] == "0":
        pmi.join = lambda *arguments: sys.stdin.read()
elif case != "whole" and os.environ["RANK"] == "1":
    from tensorgrad.distributed.mpi.world import _Initialization
    run = _Initialization._run
    def ends(self):
        if case == "ends after MPI_Init":
            run(self)
        os.kill(os.getpid(), signal.SIGKILL)
    _Initialization._run = ends
dist.init_process_group("gloo", timeout=timedelta(seconds=float(seconds)))
print("joined", flush=True)
sys.stdin.read()
"""


def join(port, *ranks, size=2, seconds=HANG, case="whole", first=()):
    """Processes with these ranks, in this order. The seconds of rank 0 begin when those that come first have come."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": size}
    return [start(["-c", JOIN, case, seconds, *first], RANK=rank, **where) for rank in ranks]


def last_line(process):
    """The last line of what a process that fails writes: its exception."""
    code, _, errors = finished(process)
    assert code != 0, errors
    return errors.strip().splitlines()[-1]


def test_a_rank_that_never_comes(port):
    [first], [second] = join(port, 0, size=4, seconds=1, first=[2]), join(port, 2, size=4)
    first, second = last_line(first), last_line(second)
    assert first.endswith("Timed out after 1 seconds waiting for clients. 2/4 clients joined; missing: ranks 1, 3")
    assert re.search("rank 2 cannot join the job|Its process has probably ended$", second), second


def test_rank_0_never_comes_to_the_end(port):
    """It serves the store and does not go on: the others have a limit, too."""
    first, second = join(port, 0, size=2, case="rank 0 hangs"), join(port, 1, case="rank 0 hangs")
    try:
        assert "rank 1 has waited 1 seconds for rank 0 to join the job" in last_line(second[0])
    finally:
        end(first[0])


def test_a_rank_beyond_the_size_is_not_taken_for_another(port):
    too_high, first = join(port, 3, 0, seconds=3)
    assert last_line(too_high) == "ValueError: rank 3 is not in the interval [0, 1] of a world of 2"
    assert last_line(first).endswith("1/2 clients joined; missing: rank 1")


@pytest.mark.parametrize(("first", "second"), [(2, 3), (3, 2)])
def test_ranks_that_were_told_different_sizes(first, second, port):
    processes = [*join(port, 0, size=first), *join(port, 1, size=second)]
    try:  # the one that comes second is told, and ends; the other one waits
        assert eventually(lambda: any(process.poll() is not None for process in processes))
        line = last_line(next(process for process in processes if process.poll() is not None))
    finally:
        for process in processes:
            end(process)
    assert line in (
        f"ValueError: rank 1 was told a world size of {second}, but rank 0 was told {first}",
        f"ValueError: rank 0 was told a world size of {first}, but rank 1 was told {second}",
    )


def test_ranks_that_meet_in_a_file(tmp_path):
    program = (
        "import os, tensorgrad as torch, tensorgrad.distributed as dist\n"
        "rank = int(os.environ['RANK'])\n"
        f"dist.init_process_group('gloo', init_method='file://{tmp_path}/meet', rank=rank, world_size=3)\n"
        "x = torch.ones(2) * rank\n"
        "dist.all_reduce(x)\n"
        "print(x.tolist())"
    )
    assert [output for _, output, _ in run(3, ["-c", program])] == ["[3.0, 3.0]\n"] * 3


def test_two_processes_with_one_rank_and_a_late_one(port):
    members = join(port, 0, 1, 2, size=3)
    try:
        for process in members:
            assert process.stdout.readline() == "joined\n"
        late = join(port, 1, size=3)
        told = r"process \d+ on \S+ cannot be rank 1 of 3: process \d+ on \S+ has joined the job with the same rank"
        assert re.search(told, last_line(late[0]))
        assert all(process.poll() is None for process in members)
    finally:
        for process in members:
            process.stdin.close()
            process.stdin = None
        results = [finished(process) for process in members]
    assert [code for code, _, _ in results] == [0, 0, 0], results


def test_a_port_in_use():
    """By a program that is not a store: rank 0 cannot serve, and rank 1 finds something else there."""
    with socket.create_server(("", 0)) as server:
        ranks = join(server.getsockname()[1], 0, 1, seconds=1)
        first, second = map(last_line, ranks)
    assert re.search(r"failed to listen on any local network address. port: \d+, .*\(rank 0 of 2\)", first), first
    assert re.search(r"is not a store of this job.*\(rank 1 of 2\)", second), second


def test_no_server_at_the_address(port):
    [line] = map(last_line, join(port, 1, seconds=0.5))
    assert re.search(r"timed out after 500ms while trying to connect .*\(rank 1 of 2\)", line), line


@pytest.mark.parametrize("case", ["ends in MPI_Init", "ends after MPI_Init"])
def test_a_rank_that_ends_while_mpi_begins(case, port):
    first, second = join(port, 0, 1, case=case)
    try:
        assert first.wait(HANG) != 0
    finally:
        second.kill()
        ended = [finished(process) for process in (second, first)]
    assert "rank 0 of 2 could not join the MPI world: rank 1 ended" in ended[1][2], ended


ENDING = """
import atexit, os, sys, time
from pathlib import Path
ended = Path(sys.argv[1], "ended")

def last():  # after the end of MPI
    if os.environ["RANK"] == "0":
        pmi._SERVERS[0].kill()
        pmi._SERVERS[0].wait()
        ended.touch()
    while not ended.exists():
        time.sleep(0.01)

atexit.register(last)
import tensorgrad as torch, tensorgrad.distributed as dist
from tensorgrad.distributed.mpi import pmi
dist.init_process_group("gloo")
if os.fork() == 0:  # a child that opens a file and ends as programs do
    atexit.unregister(last)
    files = [open(Path(sys.argv[1], f"{os.environ['RANK']} {i}"), "w+b") for i in range(8)]
    sys.exit()
assert os.wait()[1] == 0
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_mpi_takes_its_leave_without_its_server(tmp_path):
    """As when rank 0 and its server end first: MPICH crashed then, and a forked child's files got its last words."""
    run(2, ["-c", ENDING, tmp_path])
    assert [file.stat().st_size for file in tmp_path.iterdir()] == [0] * 17


LEAVING = """
import atexit, os, sys, time
from pathlib import Path
rank, folder = os.environ["RANK"], Path(sys.argv[1])

def last():  # after the end of MPI: the rank that did not wait is still there when the others end
    (folder / rank).touch()
    while rank == "1" and len(list(folder.iterdir())) < 3:
        time.sleep(0.01)

atexit.register(last)
import tensorgrad.distributed as dist
from tensorgrad.distributed.mpi import world
dist.init_process_group("gloo")
dist.barrier()
if rank == "1":
    world.GOODBYE = 0
else:
    while not (folder / "1").exists():
        time.sleep(0.01)
"""


def test_nobody_waits_for_a_rank_that_did_not_wait(tmp_path):
    """Ranks 0 and 2 said goodbye while rank 1 was about to end without them, and waited for it in `MPI_Finalize`."""
    run(3, ["-c", LEAVING, tmp_path])
