"""The server that makes ordinary processes one MPI world: who may join it, and when it ends."""

import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from tensorgrad.distributed.errors import DistNetworkError
from tensorgrad.distributed.mpi import pmi, world
from tensorgrad.distributed.mpi.pmi import Connection, process_mapping
from tests.distributed.launch import HANG, needs_mpi, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="MPI's launchers on Windows have another protocol")
SECRET = b"s" * 32


@pytest.fixture
def server():
    """The address of a server for two ranks, and its process."""
    port = pmi._start_server(2, process_mapping(["a", "a"]), SECRET, "127.0.0.1", timedelta(seconds=HANG))
    process = pmi._SERVERS[-1]
    yield ("127.0.0.1", port), process
    process.kill()
    process.wait()


def join(address, role, rank, secret=SECRET):
    connection = Connection(address, secret, role, rank, HANG).socket
    connection.settimeout(HANG)
    return connection


def ask(connection, line):
    connection.sendall(line.encode() + b"\n")
    return connection.recv(4096).decode()


def test_it_answers_what_mpi_asks(server):
    address, process = server
    ranks = [join(address, "pmi", rank) for rank in range(2)]
    assert "rc=0" in ask(ranks[0], "cmd=init pmi_version=1 pmi_subversion=1")
    assert "PMI" not in ask(ranks[0], "cmd=get_my_kvsname")
    assert ask(ranks[0], "cmd=put kvsname=x key=a value=1=2") == "cmd=put_result rc=0 msg=success\n"
    assert ask(ranks[1], "cmd=get kvsname=x key=a") == "cmd=get_result rc=0 msg=success value=1=2\n"
    assert "rc=-1" in ask(ranks[1], "cmd=get kvsname=x key=missing")
    assert "(vector,(0,1,2))" in ask(ranks[1], "cmd=get kvsname=x key=PMI_process_mapping")
    ranks[0].sendall(b"cmd=barrier_in\n")
    assert ask(ranks[1], "cmd=barrier_in") == ranks[0].recv(100).decode() == "cmd=barrier_out\n"
    for rank in ranks:
        assert ask(rank, "cmd=finalize") == "cmd=finalize_ack\n"
        rank.close()
    assert process.wait(HANG) == 0  # it ends with the last connection


def test_the_secret_is_needed(server):
    address, _ = server
    with pytest.raises(DistNetworkError, match="cannot join the MPI world"):
        join(address, "pmi", 0, b"wrong")
    with pytest.raises(DistNetworkError):
        join(address, "pmi", 2)  # there is no such rank
    with pytest.raises(DistNetworkError):
        join(address, "spy", 0)
    first = join(address, "pmi", 0)
    with pytest.raises(DistNetworkError):
        join(address, "pmi", 0)  # there is one already
    assert "size=2" in ask(first, "cmd=get_universe_size")
    first.close()


@pytest.mark.parametrize("data", [b"\n", b"x y z\n", b"\xff" * 100 + b"\n", b"a" * 100_000, b"cmd=init\n", b"1 2\n"])
def test_strangers_are_not_listened_to(server, data):
    address, _ = server
    with socket.create_connection(address, HANG) as stranger:
        stranger.sendall(data)
        stranger.settimeout(HANG)
        try:
            while stranger.recv(4096):
                pass
        except ConnectionError:
            pass
    join(address, "pmi", 1).close()


@pytest.mark.parametrize("line", ["nonsense", "cmd=spawn", "cmd=get", "key=a", "cmd=" + "x" * 10_000])
def test_what_a_member_does_wrong_costs_it_the_connection(server, line):
    address, _ = server
    watch, member = join(address, "watch", 0), join(address, "pmi", 1)
    assert ask(member, line) == ""
    assert watch.recv(100) == b"gone 1\n"
    watch.close()


def test_members_that_end_are_reported_until_all_say_goodbye(server):
    address, process = server
    watches, members = ([join(address, role, rank) for rank in range(2)] for role in ("watch", "pmi"))
    for watch in watches:
        watch.sendall(b"bye\n")
    assert [watch.recv(100) for watch in watches] == [b"end\n"] * 2
    for connection in (*members, *watches):
        connection.close()
    assert process.wait(HANG) == 0


def test_one_that_does_not_wait_any_longer_is_told_so_and_nobody_ends_with_it(server):
    address, _ = server
    for watch in [join(address, "watch", rank) for rank in range(2)]:
        watch.sendall(b"bye\n")
        watch.shutdown(socket.SHUT_WR)
        assert watch.recv(100) == b""
        watch.close()


@pytest.mark.parametrize(("told", "ends"), [(b"end\n", True), (b"", False)])
def test_a_rank_that_does_not_wait_any_longer_asks_whether_all_end(told, ends, monkeypatch):
    """The others may have said goodbye when it stops waiting: they would wait for it for ever."""
    monkeypatch.setattr(world, "GOODBYE", 0.0)
    monkeypatch.setattr(world, "ANSWER", HANG)
    ours, theirs = socket.socketpair()
    theirs.settimeout(HANG)
    rank = object.__new__(world.MPIWorld)  # of which nothing is to happen when this process ends
    vars(rank).update(rank=0, connections=(-1, ours), _gone=set(), _ended=False, _text=b"")
    with ours, theirs, ThreadPoolExecutor(1) as pool:
        asks = pool.submit(rank._all_end, ours)
        said = b"".join(iter(lambda: theirs.recv(100), b""))
        theirs.sendall(told)
        theirs.shutdown(socket.SHUT_WR)
        assert said == b"bye\n" and asks.result(HANG) is ends


ENDS_EARLY = """
import atexit, os, sys, time
from pathlib import Path
import tensorgrad.distributed as dist
from tensorgrad.distributed.mpi import world

rank, folder = int(os.environ["RANK"]), Path(sys.argv[1])

def wait_for(name):
    while not (folder / name).exists():
        time.sleep(0.01)

def last():
    (folder / str(rank)).touch()
    wait_for(str(1 - rank))

atexit.register(last)  # runs after MPI's end
world.GOODBYE = 0.1
dist.init_process_group("gloo")
if rank == 1:
    wait_for("0")  # which does not wait any longer, and has not ended
"""


@needs_mpi
def test_who_says_goodbye_when_another_does_not_wait_any_longer_ends_too(tmp_path):
    run(2, ["-c", ENDS_EARLY, tmp_path])


def test_it_ends_when_no_process_connects():
    pmi._start_server(2, "(vector,(0,1,2))", SECRET, "127.0.0.1", timedelta(seconds=0.1))
    assert pmi._SERVERS[-1].wait(HANG) == 0


def test_it_ends_when_rank_0_ends_before_it_joins(server):
    _, process = server
    process.stdin.close()
    assert process.wait(HANG) == 0
