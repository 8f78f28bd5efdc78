"""How tests of processes start them: with what ports, signals and clocks; and none is left."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from tensorgrad.distributed.errors import DistNetworkError
from tensorgrad.distributed.stores.server import StoreServer
from tensorgrad.distributed.stores.tcp_store import connect
from tensorgrad.system.ports import ReservedPort
from tests.distributed.jobs import eventually, living
from tests.distributed.launch import end, finished, no_signal_ignored, run, start
from tests.distributed.virtual_time import VirtualTime

posix = pytest.mark.skipif(os.name != "posix", reason="POSIX's signals")
linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one socket alone can be bound to a port")


@linux
def test_a_reserved_port_is_given_to_nobody_who_does_not_name_it():
    reserved = [ReservedPort() for _ in range(50)]
    numbers, others = {port.number for port in reserved}, []
    try:
        assert len(numbers) == 50
        for _ in range(500):
            other = socket.socket()
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("", 0))
            others.append(other)
        assert not numbers & {other.getsockname()[1] for other in others}
        for port in reserved[:5]:
            for host in ("127.0.0.1", ""):  # one server, and then no other
                with socket.create_server((host, port.number)), pytest.raises(OSError):
                    socket.create_server(("127.0.0.1", port.number))
    finally:
        for holder in (*reserved, *others):
            holder.close()


@posix
@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGQUIT"])
def test_signals_that_are_ignored_here_are_not_in_what_is_started(name):
    shows = "import signal; print([s.name for s in signal.Signals if signal.getsignal(s) == signal.SIG_IGN])"
    before = signal.signal(getattr(signal, name), signal.SIG_IGN)
    try:
        with no_signal_ignored():
            _, output, _ = finished(start(["-S", "-c", shows]))
        assert signal.getsignal(getattr(signal, name)) is signal.SIG_IGN
    finally:
        signal.signal(getattr(signal, name), before)
    assert "SIGPIPE" in output and name not in output


STARTS = """
import time
from tests.distributed.launch import start
sleeps = "import time; time.sleep(600)"
child = start(["-S", "-c", f'''
import subprocess, sys
print(subprocess.Popen([sys.executable, "-S", "-c", "{sleeps}"], start_new_session=True).pid, flush=True)
{sleeps}
'''])
print(child.pid, child.stdout.readline(), flush=True)
time.sleep(600)
"""


@posix
def test_what_tests_have_started_ends_when_they_are_killed():
    """Also what that has started, in a session of its own."""
    program = start(["-c", STARTS])
    try:
        pids = [int(pid) for pid in program.stdout.readline().split()]
        assert len(pids) == 2 and len(living(pids)) == 2
        program.kill()
        assert eventually(lambda: not living(pids))
    finally:
        end(program)


WRITES = """
import os, sys, time
while os.environ["RANK"] == "0" and not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
print("x" * 1_000_000)
open(sys.argv[1], "w").close()
"""


def test_ranks_that_write_much_do_not_wait_for_those_before_them(tmp_path):
    results = run(2, ["-S", "-c", WRITES, tmp_path / "written"])
    assert [len(output) for _, output, _ in results] == [1_000_001] * 2


ENDS = """
import __main__, os, pickle, sys, numpy

def named(): pass

rank = int(os.environ["RANK"])
assert pickle.loads(pickle.dumps(named)) is __main__.named and os.getsid(0) == os.getpid() and not sys.stdin.read()
print(sys.argv, sys.path[0] == "", numpy.random.rand(), flush=True)
if rank == 2:
    raise ValueError("this rank fails")
if rank == 3:
    os.kill(os.getpid(), 9)
sys.exit(rank)
"""


@posix
def test_ranks_that_are_forked_are_processes_like_others():
    results = run(4, ["-c", ENDS, "an argument"], check=False)
    assert [code for code, *_ in results] == [0, 1, 1, -9]
    assert all(output.startswith("['-c', 'an argument'] True 0.") for _, output, _ in results)
    assert len({output for _, output, _ in results}) == 4, "they draw the same random numbers"
    assert [errors.splitlines()[-1:] for *_, errors in results] == [[], [], ["ValueError: this rank fails"], []]


@posix
def test_a_rank_that_hangs_is_ended():
    sleeps = "import os, time; print(os.getpid(), flush=True); time.sleep(600 * int(os.environ['RANK']))"
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        run(2, ["-c", sleeps], timeout=1)
    assert eventually(lambda: not living([int(caught.value.output or 0)]))


def test_virtual_time():
    time, seen = VirtualTime(), []

    def sleeper(name, *pauses):
        for pause in pauses:
            time.sleep(pause)
            seen.append((time.time, name))
        return name

    a, b, error = time.run(lambda: sleeper("a", 10, 10), lambda: sleeper("b", 15), lambda: 1 // 0)
    assert (a, b) == ("a", "b") and isinstance(error, ZeroDivisionError)
    assert seen == [(10, "a"), (15, "b"), (20, "a")]

    def forever():
        while True:
            time.sleep(1000)

    with pytest.raises(AssertionError, match="1 functions still wait"):
        time.run(forever)


def test_a_client_tries_again_until_its_time_is_over():
    time = VirtualTime()
    with ReservedPort() as port, pytest.raises(DistNetworkError, match="timed out after 600000ms"):
        connect("127.0.0.1", port.number, 600, time.clock)
    assert 599 < time.time <= 600


def test_a_client_finds_a_server_that_comes_late():
    time, servers = VirtualTime(), []

    def sleep(seconds):
        time.sleep(seconds)
        if time.time > 300 and not servers:
            servers.append(StoreServer(port.number))

    with ReservedPort() as port:
        connection = connect("127.0.0.1", port.number, 600, time.clock._replace(sleep=sleep))
        connection.close()
        servers[0].close()
    assert 300 < time.time < 302
