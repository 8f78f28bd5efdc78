"""Both servers of a job, against whatever may arrive: thousands of random messages and failures of the system.

There are no sockets: the servers get connections, a selector and a clock that a script moves, so each case is repeated
by its seed. After every step a client that behaves is answered as always, and the bounds on memory hold.
"""

import contextlib
import errno
import hashlib
import hmac
import random
import selectors
import socket
import struct
import sys
import threading
from collections import namedtuple
from types import SimpleNamespace

import pytest

import tensorgrad.distributed as dist
from tensorgrad.distributed.mpi import pmi_server
from tensorgrad.distributed.stores import server as store_server
from tensorgrad.distributed.stores import wire

Key = namedtuple("Key", "fileobj fd events data")
SECRET = b"s" * 32


class Connection:
    """The server's end of a connection."""

    def __init__(self, hello=b""):
        self.incoming, self.sent = bytearray(hello), bytearray()
        self.reads = True  # whether the other side reads what is sent
        self.failure = None  # what the next use raises
        self.open = True

    def _fail(self):
        if not self.open:
            raise OSError(errno.EBADF, "closed")
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure

    def recv(self, most):
        self._fail()
        if not self.incoming:
            return b""
        data = bytes(self.incoming[:most])
        del self.incoming[:most]
        return data

    def send(self, data):
        self._fail()
        if not self.reads:
            raise BlockingIOError
        self.sent += data[:65536]
        return min(len(data), 65536)

    def sendall(self, data):
        self._fail()
        if not self.reads:
            raise TimeoutError
        self.sent += data

    def setblocking(self, *arguments):
        pass

    settimeout = setsockopt = setblocking

    def close(self):
        self.open = False

    def taken(self) -> bytes:
        data = bytes(self.sent)
        self.sent.clear()
        return data


class Listener(Connection):
    def __init__(self):
        super().__init__()
        self.queue = []

    def getsockname(self):
        return ("127.0.0.1", 1)

    def accept(self):
        self._fail()
        if not self.queue:
            raise BlockingIOError
        return self.queue.pop(0), ("127.0.0.1", 2)


class Selector:
    """Calls a generator for each wait: it lets things happen, and the wait ends with what can then be done."""

    def __init__(self):
        self.keys, self.script, self.ready, self.over = {}, None, threading.Event(), None

    def register(self, fileobj, events, data=None):
        if fileobj in self.keys:
            raise KeyError("registered already")
        self.keys[fileobj] = Key(fileobj, 0, events, data)

    def unregister(self, fileobj):
        del self.keys[fileobj]

    def modify(self, fileobj, events, data=None):
        self.keys[fileobj] = Key(fileobj, 0, events, data)

    def get_key(self, fileobj):
        return self.keys[fileobj]

    def close(self):
        pass

    def select(self, timeout):
        if timeout is not None and not 0 <= timeout * 1000 <= 2**31 - 1:
            raise OverflowError("timeout is too large")  # as epoll's
        self.ready.wait(60)
        try:
            next(self.script)
        except StopIteration:
            self.over()
        found = []
        for key in self.keys.values():
            read = key.fileobj.queue if isinstance(key.fileobj, Listener) else getattr(key.fileobj, "incoming", None)
            events = (key.events & selectors.EVENT_READ) if read or getattr(key.fileobj, "failure", None) else 0
            if getattr(key.fileobj, "reads", False):
                events |= key.events & selectors.EVENT_WRITE
            if events:
                found.append((key, events))
        return found


class World:
    """A server with a script of what happens to it."""

    def __init__(self, seed):
        self.random, self.now = random.Random(seed), 1000.0
        self.listener, self.selector = Listener(), Selector()
        self.failures, self.wrong = [], []

    def clock(self):
        return self.now

    def played(self, script):
        """A generator that ends with the script, and keeps an error of it."""
        try:
            yield from script
        except BaseException as error:
            self.wrong.append(error)

    def sleep(self, seconds):
        """In place of `time.sleep`, which a server calls when something failed that nobody foresaw."""
        self.failures.append(sys.exc_info()[1])

    def arrive(self):
        connection = Connection()
        self.listener.queue.append(connection)
        return connection

    def garbage(self):
        r = self.random
        return r.choice((
            b"", b"\0" * 48, b"GET / HTTP/1.1\r\n\r\n" + b"x" * 99, r.randbytes(r.randint(1, 200)),
            struct.pack(">I", r.choice((0, 1, wire.MAX_FRAME, wire.MAX_FRAME + 1, 2**32 - 1))) + r.randbytes(9),
        ))  # fmt: skip

    def trouble(self):
        return self.random.choice((
            OSError(errno.EMFILE, "too many"), OSError(errno.ENFILE, "too many"), OSError(errno.ENOBUFS, "no memory"),
            MemoryError(), ConnectionAbortedError(), BlockingIOError(), OSError(errno.EPERM, "by a firewall"),
        ))  # fmt: skip


# --- the store -------------------------------------------------------------------------------------------------------

NUMBERS = (
    b"0", b"1", b"-1", b"3000000000", b"9" * 18, b"9" * 19, b"9" * 400, b"9" * 5000, b"-" + b"9" * 400, b"1e400",
    b"nan", b"", b" 7 ", b"\xff", b"1_0", "\u0663".encode(),
)  # fmt: skip
WORDS = (b"", b"a", b"b", b"c", b"\xff\xfe", b"x" * 3000, *NUMBERS)


def played_store(world, script):
    """Runs a script against a store's server, and asserts that it outlived the script."""
    selector = world.selector
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_server, "time", SimpleNamespace(sleep=world.sleep))  # threads of others sleep, too
        server = store_server.StoreServer(1, world.listener, "", selector, world.clock)
        try:
            selector.script = world.played(script(server))
            selector.over = lambda: setattr(server, "open", False)
        finally:
            selector.ready.set()
            server.thread.join(60)
    if world.wrong:
        raise world.wrong[0]
    assert not server.thread.is_alive() and not server.open
    return server


def proven(world, server, connection):
    """Makes a connection a trusted one."""
    for _ in range(50):
        world.now += 0.01 if not server.resting else store_server.REST
        yield
        if len(connection.sent) >= wire.HELLO:
            break
    nonce, mine = connection.taken()[-wire.NONCE :], b"n" * wire.NONCE
    connection.incoming += mine + wire.proof(server.secret, b"client", nonce, mine)
    yield
    assert connection.taken() == wire.proof(server.secret, b"server", nonce, mine)


def asked(connection, *parts):
    connection.incoming += wire.pack(list(parts))
    for _ in range(5):
        yield
        if connection.sent:
            break
    return wire.unpack(connection.taken()[4:])


def message(world):
    r = world.random
    operation = r.choice((*dist_operations(), b"wait", b"wait", b"wait", b"nothing", b"__init__", b"\xff"))
    packed = bytearray(wire.pack([operation, *(r.choice(WORDS) for _ in range(r.randint(0, 4)))]))
    if r.random() < 0.2:
        packed[r.randrange(len(packed))] ^= 1 << r.randrange(8)
    if r.random() < 0.1:
        del packed[r.randrange(len(packed)) :]
    return bytes(packed) * r.choice((1, 1, 1, 30))


def dist_operations():
    from tensorgrad.distributed.stores.key_table import Table

    return [name.encode() for name in Table.OPERATIONS]


@pytest.mark.parametrize("seed", range(12))
def test_a_store_answers_whatever_else_arrives(seed):
    world = World(seed)
    r = world.random

    def script(server):
        witness = world.arrive()
        yield from proven(world, server, witness)
        others = []
        for step in range(150):
            act = r.randrange(9)
            if act == 0 or not others:
                others.append(world.arrive())
            elif act == 1:
                r.choice(others).incoming += world.garbage()
            elif act == 2 and len(others) < 30:
                others.append(world.arrive())
                yield from proven(world, server, others[-1])
            elif act == 3:
                r.choice(others).failure = world.trouble()
            elif act == 4:
                world.listener.failure = world.trouble()
                world.arrive()
            elif act == 5:
                other = r.choice(others)
                other.reads = not other.reads
            elif act == 6:
                world.now += r.choice((0.001, 1, 11, 86400, 1e9))
            else:
                r.choice(others).incoming += message(world)
            yield
            others = [other for other in others if other.open]
            assert (yield from asked(witness, b"set", b"witness", b"%d" % step)) == [b"ok"]
            assert (yield from asked(witness, b"get", b"witness")) == [b"ok", b"%d" % step]
            assert len(server.strangers) <= store_server.MOST_STRANGERS
            for client in server.clients:
                assert len(client.output) <= store_server.MOST_UNREAD + wire.MAX_FRAME
        # A wait of any length, and the connections that were refused.
        late = world.arrive()
        world.now += store_server.REST
        yield from proven(world, server, late)

    played_store(world, script)
    assert [type(failure) for failure in world.failures if not isinstance(failure, MemoryError)] == []


@pytest.mark.parametrize("milliseconds", [b"2592000000", b"9" * 18, b"9" * 400, b"-" + b"9" * 400, b"9" * 5000])
def test_no_number_ends_a_store(milliseconds):
    world = World(0)

    def script(server):
        client, witness = world.arrive(), world.arrive()
        for each in (client, witness):
            yield from proven(world, server, each)
        client.incoming += wire.pack([b"wait", milliseconds, b"never"])
        yield
        assert client.open == (len(milliseconds) < 20)
        assert (yield from asked(witness, b"add", b"n", b"1")) == [b"ok", b"1"]

    played_store(world, script)
    assert world.failures == []


def test_clients_wait_while_there_is_no_descriptor():
    """The listener is left alone for a moment: the loop does not spin, and goes on with the clients it has."""
    world = World(0)

    def script(server):
        witness = world.arrive()
        yield from proven(world, server, witness)
        world.listener.failure, late = OSError(errno.EMFILE, "too many"), world.arrive()
        yield
        yield
        assert server.listener not in world.selector.keys and not late.sent
        assert (yield from asked(witness, b"count")) == [b"ok", b"0"]
        world.now += store_server.REST
        yield from proven(world, server, late)
        assert server.listener in world.selector.keys

    played_store(world, script)
    assert world.failures == []


def test_strangers_do_not_keep_others_out():
    """Of too many connections without a proof, the oldest go, though none before it could have proved itself."""
    world = World(0)

    def script(server):
        strangers = [world.arrive() for _ in range(store_server.MOST_STRANGERS)]
        for _ in strangers:
            yield
        assert len(server.strangers) == len(strangers) and all(each.open for each in strangers)
        late = world.arrive()
        yield
        yield
        assert not late.sent and all(each.open for each in strangers)
        world.now += store_server.GRACE
        yield from proven(world, server, late)
        assert [each.open for each in strangers].count(False) == 1 and not strangers[0].open
        world.now += store_server.HANDSHAKE_TIMEOUT
        yield
        yield
        assert not any(each.open for each in strangers) and late.open

    played_store(world, script)


def test_unread_answers_are_bounded():
    world = World(0)

    def script(server):
        client, witness = world.arrive(), world.arrive()
        for each in (client, witness):
            yield from proven(world, server, each)
        assert (yield from asked(witness, b"set", b"big", b"x" * 300_000)) == [b"ok"]
        client.reads = False
        client.incoming += wire.pack([b"get", b"big"]) * 200
        for _ in range(10):
            yield
        (held,) = [each for each in server.clients if each.connection is client]
        assert len(held.output) < store_server.MOST_UNREAD + 400_000
        assert (yield from asked(witness, b"count")) == [b"ok", b"1"]
        client.reads, total = True, 0
        for _ in range(2000):
            yield
            total += len(client.taken())
        assert total == 200 * (300_000 + 4 + 2 + 4 + 2 + 4)  # each is answered in the end

    played_store(world, script)
    assert world.failures == []


def test_lists_that_no_message_holds_are_errors():
    world = World(0)

    def script(server):
        client = world.arrive()
        yield from proven(world, server, client)
        server.table.values.update((b"%d" % i, b"") for i in range(70_000))
        assert (yield from asked(client, b"keys"))[0] == b"error"
        assert (yield from asked(client, b"count")) == [b"ok", b"70000"]

    played_store(world, script)


def test_an_unforeseen_failure_does_not_end_the_loop(monkeypatch):
    world = World(0)
    failed = []

    def script(server):
        client = world.arrive()
        yield from proven(world, server, client)
        expire = server._expire

        def fail():
            failed.append(1)
            server._expire = expire
            raise RuntimeError("a mistake of ours")

        server._expire = fail
        yield
        assert (yield from asked(client, b"count")) == [b"ok", b"0"]

    played_store(world, script)
    assert failed == [1] and [type(failure) for failure in world.failures] == [RuntimeError]


@pytest.mark.parametrize("host, address", [
    ("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("127.1.2.3", "127.1.2.3"), ("", None), ("0.0.0.0", None),
])  # fmt: skip
def test_a_store_for_this_machine_listens_to_no_other(host, address):
    if address and sys.platform != "linux" and address != "127.0.0.1":
        pytest.skip("only Linux has all addresses of 127.0.0.0/8")
    store = dist.TCPStore(host, 0, 1, True)
    found = store._server.listener.getsockname()[0]
    assert found == address if address else found in ("::", "0.0.0.0")
    store.set("a", "1")
    assert dist.TCPStore(host or "127.0.0.1", store.port).get("a") == b"1"


def test_an_ipv6_store_for_this_machine():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    store = dist.TCPStore("::1", 0, 1, True)
    assert store._server.listener.getsockname()[0] == "::1"
    store.set("a", "1")
    assert dist.TCPStore("::1", store.port).get("a") == b"1"


def test_waits_longer_than_the_system_counts():
    """30 days are more milliseconds than fit into 32 bits, at the server and in the clients' sockets."""
    from datetime import timedelta

    for timeout in (timedelta(days=30), timedelta(days=50), timedelta(days=100_000), timedelta.max):
        store = dist.TCPStore("127.0.0.1", 0, 1, True, timeout)
        other = dist.TCPStore("127.0.0.1", store.port, 1, False, timeout)
        waiting = threading.Thread(target=other.wait, args=(["late"],), daemon=True)
        waiting.start()
        store.set("a", "1")
        assert other.get("a") == b"1"
        store.set("late", "1")
        waiting.join(60)
        assert not waiting.is_alive()


# --- the server of an MPI world --------------------------------------------------------------------------------------


class Over(BaseException):
    """The script has ended."""


def played_pmi(world, script, size=2):
    def over():
        raise Over

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pmi_server, "time", SimpleNamespace(sleep=world.sleep))
        server = pmi_server.Server(
            size,
            "name",
            "(vector,(0,1,2))",
            SECRET,
            "",
            60.0,
            world.listener,
            world.selector,
            world.clock,
            lambda: False,
        )
        world.selector.script, world.selector.over = world.played(script(server)), over
        world.selector.ready.set()
        with contextlib.suppress(Over):
            server.serve()
    if world.wrong:
        raise world.wrong[0]
    return server


def joined(world, server, role, rank):
    connection = world.arrive()
    for _ in range(50):
        world.now += 0.01 if not server.resting else pmi_server.REST
        yield
        if connection.sent:
            break
    nonce = bytes.fromhex(connection.taken().decode())
    proof = hmac.new(SECRET, nonce + f"{role} {rank}".encode(), hashlib.sha256).hexdigest()
    connection.incoming += f"{proof} {role} {rank}\n".encode()
    yield
    assert connection.taken().startswith(b"ok\n")
    return connection


def told(connection, line):
    connection.incoming += line + b"\n"
    yield
    return connection.taken()


LINES = (
    b"", b"\n", b"a\n", b"x y z\n", b"\xff" * 100 + b"\n", b"a" * 9000, b"a" * 9000 + b"\n", b"cmd=init\n",
    b"cmd=get\n",
    b"cmd=put key=a\n", b"cmd=put key=" + b"k" * 65 + b" value=1\n", b"cmd=put key=a value=" + b"v" * 1025 + b"\n",
    b"cmd=put key=a value=1\n", b"cmd=barrier_in\n", b"cmd=barrier_in\ncmd=barrier_in\n", b"cmd=spawn\n", b"=\n",
    b"bye\n", b"apart\n",
    b"cmd=finalize\n", b"\0 pmi 0\n", b"0 pmi " + b"9" * 5000 + b"\n", b"0 pmi " + b"9" * 400 + b"\n", b"0 watch -1\n",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_the_pmi_server_answers_whatever_else_arrives(seed):
    world = World(seed)
    r = world.random

    def script(server):
        witness = yield from joined(world, server, "pmi", 0)
        others, member = [], None
        for step in range(150):
            act = r.randrange(7)
            if act == 0 or not others:
                others.append(world.arrive())
            elif act == 1:
                r.choice(others).incoming += world.garbage()
            elif act == 2 and (member is None or not member.open):
                member = yield from joined(world, server, "pmi", 1)
                others.append(member)
            elif act == 3:
                r.choice(others).failure = world.trouble()
            elif act == 4:
                world.listener.failure = world.trouble()
                world.arrive()
            elif act == 5:
                world.now += r.choice((0.001, 1, 11, 86400))
            else:
                r.choice(others).incoming += r.choice(LINES) * r.choice((1, 1, 3))
            yield
            others = [other for other in others if other.open]
            assert (yield from told(witness, b"cmd=put kvsname=x key=w value=%d" % step)).endswith(b"msg=success\n")
            assert (yield from told(witness, b"cmd=get kvsname=x key=w")).endswith(b"value=%d\n" % step)
            assert len(server.strangers) <= pmi_server.MOST_STRANGERS
            assert all(len(peer.data) <= pmi_server.MAX_LINE for peer in server.peers)

    played_pmi(world, script)
    assert [type(failure) for failure in world.failures if not isinstance(failure, MemoryError)] == []


def test_the_pmi_server_outlives_many_idle_connections():
    """More than there may be without a proof, and than there are descriptors for."""
    world = World(0)

    def script(server):
        first = yield from joined(world, server, "pmi", 0)
        strangers = [world.arrive() for _ in range(pmi_server.MOST_STRANGERS)]
        for _ in strangers:
            yield
        world.arrive()
        world.listener.failure = OSError(errno.EMFILE, "too many")
        yield
        world.now += pmi_server.GRACE
        for _ in range(3):
            world.now += pmi_server.REST
            yield
        assert world.listener.failure is None  # the server met it
        second = yield from joined(world, server, "pmi", 1)
        first.incoming += b"cmd=barrier_in\n"
        assert (yield from told(second, b"cmd=barrier_in")) == b"cmd=barrier_out\n" == first.taken()
        for each in (first, second):
            each.failure = ConnectionResetError()
        yield
        raise AssertionError("strangers keep the server")  # not reached: it ended with the last rank

    played_pmi(world, script)
    assert world.failures == []
