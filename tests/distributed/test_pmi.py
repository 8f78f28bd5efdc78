"""The server that makes ordinary processes one MPI world: who may join it, and when it ends."""

import socket
import sys
from datetime import timedelta

import pytest

from tensorgrad.distributed.errors import DistNetworkError
from tensorgrad.distributed.mpi import pmi
from tensorgrad.distributed.mpi.pmi import Connection, process_mapping
from tests.distributed.launch import HANG

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


def rest_of(watch):
    """What else the server says, until it drops a rank that says something wrong."""
    watch.sendall(b"wrong\n")
    return b"".join(iter(lambda: watch.recv(100), b""))


def test_who_gives_up_too_late_ends_with_the_others(server):
    first, second = (join(server[0], "watch", rank) for rank in range(2))
    first.sendall(b"bye\n")
    second.sendall(b"bye\n")
    assert second.recv(100) == b"end\n"
    first.sendall(b"apart\n")
    assert rest_of(first) == b"end\n" and rest_of(second) == b""


def test_nobody_ends_together_with_one_that_gave_up(server):
    first, second = (join(server[0], "watch", rank) for rank in range(2))
    first.sendall(b"bye\napart\n")
    assert first.recv(100) == second.recv(100) == b"apart\n"
    second.sendall(b"bye\n")
    assert rest_of(second) == rest_of(first) == b""


def test_it_ends_when_no_process_connects():
    pmi._start_server(2, "(vector,(0,1,2))", SECRET, "127.0.0.1", timedelta(seconds=0.1))
    assert pmi._SERVERS[-1].wait(HANG) == 0


def test_it_ends_when_rank_0_ends_before_it_joins(server):
    _, process = server
    process.stdin.close()
    assert process.wait(HANG) == 0
