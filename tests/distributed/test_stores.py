"""Stores: what they answer is what PyTorch's answer, from threads and processes, and hostile clients change nothing."""

import os
import socket
import struct
import threading
from datetime import timedelta

import pytest

import tensorgrad.distributed as dist
from tensorgrad.distributed.stores import wire
from tensorgrad.distributed.stores.tcp_store import Connections
from tests.distributed.jobs import eventually
from tests.distributed.launch import HANG, end, start

torch_dist = pytest.importorskip("torch.distributed")
SHORT, LONG = timedelta(milliseconds=50), timedelta(seconds=HANG)
KINDS = ["hash", "file", "tcp", "prefix", "prefix of tcp"]


def make(library, kind, folder):
    if kind == "file":
        return library.FileStore(str(folder / library.__name__), 1)
    if kind.endswith("tcp"):
        store = library.TCPStore("127.0.0.1", 0, 1, True, LONG)
        return library.PrefixStore("p", store) if kind.startswith("prefix") else store
    return library.PrefixStore("p", library.HashStore()) if kind == "prefix" else library.HashStore()


def answers(store, kind):
    """What a store answers to a row of questions; errors by type, for those that both libraries share."""
    results = []

    def ask(function, message=True):
        try:
            results.append(function())
        except Exception as error:
            first = str(error).split("\n")[0]
            results.append((type(error).__name__, first if message else ""))

    store.set_timeout(SHORT)
    ask(lambda: store.timeout)
    store.set_timeout(LONG)  # for what is there
    ask(lambda: store.set("a", "1"))
    ask(lambda: store.get("a"))
    ask(lambda: store.set("b", b"\x00\xff"))
    ask(lambda: store.get("b"))
    ask(lambda: [store.add("n", amount) for amount in (3, -1, 0)])
    ask(lambda: store.get("n"))
    ask(lambda: store.compare_set("c", "", "v"))
    ask(lambda: store.compare_set("c", "bad", "w"))
    ask(lambda: store.compare_set("c", "v", "w"))
    ask(lambda: store.check(["a", "n"]))
    ask(lambda: store.check(["a", "missing"]))
    ask(lambda: store.delete_key("a"))
    ask(lambda: store.check(["a"]))
    ask(lambda: store.append("b", "zz"))
    ask(lambda: store.multi_set(["d", "e"], ["1", "2"]))
    ask(lambda: store.multi_get(["d", "e", "b"]))
    ask(lambda: store.wait(["d", "e"]))
    if kind != "file":  # PyTorch raises a plain RuntimeError there, and has no queues
        store.set_timeout(SHORT)
        ask(lambda: store.get("missing"))
        store.set_timeout(LONG)
        ask(lambda: store.wait(["missing", "more"], SHORT))
        ask(lambda: store.num_keys())
        ask(lambda: store.delete_key("a"))
        ask(lambda: (store.queue_push("q", "v"), store.queue_len("q"), store.queue_pop("q")))
        ask(lambda: store.queue_pop("q", False))
        store.set_timeout(SHORT)
        ask(lambda: store.queue_pop("q"), message=False)
        store.set_timeout(LONG)
    ask(lambda: store.set("b", 3), message=False)
    return results


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_pytorch(kind, tmp_path):
    mine, theirs = (answers(make(library, kind, tmp_path), kind) for library in (dist, torch_dist))
    assert mine == theirs


@pytest.mark.parametrize("kind", KINDS)
def test_threads_share_a_store(kind, tmp_path):
    store = make(dist, kind, tmp_path)
    found = []

    def wait():
        found.append(store.get("late"))

    waiting = [threading.Thread(target=wait) for _ in range(3)]
    adding = [threading.Thread(target=lambda: [store.add("n", 1) for _ in range(50)]) for _ in range(3)]
    for thread in (*waiting, *adding):
        thread.start()
    for thread in adding:
        thread.join(HANG)
    assert store.add("n", 0) == 150
    store.set("late", "x")
    for thread in waiting:
        thread.join(HANG)
    assert found == [b"x"] * 3


CLIENT = """
import sys
import tensorgrad.distributed as dist
kind, place = sys.argv[1:]
store = dist.FileStore(place) if kind == "file" else dist.TCPStore("127.0.0.1", int(place))
for _ in range(100):
    store.add("n", 1)
store.wait(["go"])
store.append("answers", "x")
"""


@pytest.mark.parametrize("kind", ["file", "tcp"])
def test_processes_share_a_store(kind, tmp_path):
    store = make(dist, kind, tmp_path)
    place = store.path if kind == "file" else store.port
    clients = [start(["-c", CLIENT, kind, place]) for _ in range(2)]
    try:
        assert eventually(lambda: store.add("n", 0) == 200)
        store.set("go", "1")
        assert [client.wait(HANG) for client in clients] == [0, 0]
        assert store.get("answers") == b"xx" and store.get("n") == b"200"
    finally:
        for client in clients:
            end(client)


def test_a_file_that_was_cut_short_is_mended(tmp_path):
    path = str(tmp_path / "store")
    dist.FileStore(path).set("a", "1")
    with open(path, "ab") as file:
        file.write(b"\x00\x00\x00\x10abc")  # a record that a killed process did not finish
    second = dist.FileStore(path)
    second.set("b", "2")
    assert dist.FileStore(path).multi_get(["a", "b"]) == [b"1", b"2"]


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "store"
    path.write_bytes(b"\x00\x00\x00\x04abcd")
    with pytest.raises(dist.DistStoreError, match="is not the file of a store"):
        dist.FileStore(str(path)).set("a", "1")


def raw(port) -> tuple[socket.socket, bytes]:
    """A connection and the server's nonce."""
    connection = socket.create_connection(("127.0.0.1", port), HANG)
    return connection, wire.receive_exactly(connection, wire.HELLO)[-wire.NONCE :]


def trusted(port) -> socket.socket:
    connection, nonce = raw(port)
    mine = b"n" * wire.NONCE
    connection.sendall(mine + wire.proof(wire.secret(), b"client", nonce, mine))
    wire.receive_exactly(connection, wire.PROOF)
    return connection


BEFORE = [b"", b"GET / HTTP/1.1\r\n\r\n" + b"x" * 100, b"\x00" * 48, os.urandom(1000)]
AFTER = [
    struct.pack(">I", 0),  # no parts
    struct.pack(">I", wire.MAX_FRAME + 1),  # too long
    struct.pack(">I", 0xFFFFFFFF) + b"x",
    struct.pack(">IH", 2, 65535),  # parts that do not come
    struct.pack(">IHI", 6, 1, 100),  # a part longer than the message
    struct.pack(">IHI", 7, 1, 0) + b"x",  # a message longer than its parts
    wire.pack([]),
    wire.pack([b"wait", b"soon", b"key"]),  # not a number
    wire.pack([b"wait", b"60000", b"never"]) * 2,  # a request during a wait
]


def closed(connection) -> bool:
    connection.settimeout(HANG)
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("data", BEFORE, ids=range(len(BEFORE)))
def test_what_strangers_send_is_not_listened_to(data):
    store = dist.TCPStore("127.0.0.1", 0, 1, True)
    connection, _ = raw(store.port)
    connection.sendall(data)
    if data:
        assert closed(connection)
    connection.close()
    store.set("a", "1")
    assert store.get("a") == b"1"


@pytest.mark.parametrize("data", AFTER, ids=range(len(AFTER)))
def test_malformed_messages_cost_the_connection(data):
    store = dist.TCPStore("127.0.0.1", 0, 1, True)
    connection = trusted(store.port)
    connection.sendall(data)
    assert closed(connection)
    connection.close()
    store.set("a", "1")
    assert store.get("a") == b"1"


@pytest.mark.parametrize(
    "request_", [[b"nothing"], [b"\xff\xfe"], [b"set", b"a"], [b"get", b"a"], [b"__init__"], [b"add", b"b", b"x"]]
)
def test_unknown_operations_are_errors(request_):
    store = dist.TCPStore("127.0.0.1", 0, 1, True)
    connection = trusted(store.port)
    connection.sendall(wire.pack(request_))
    (length,) = struct.unpack(">I", wire.receive_exactly(connection, 4))
    assert wire.unpack(wire.receive_exactly(connection, length))[0] == b"error"
    connection.close()


def test_a_client_needs_the_secret(monkeypatch):
    monkeypatch.setenv(wire.SECRET, "right")
    store = dist.TCPStore("127.0.0.1", 0, 1, True)
    assert dist.TCPStore("127.0.0.1", store.port).check([]) is True
    monkeypatch.setenv(wire.SECRET, "wrong")
    with pytest.raises(dist.DistNetworkError, match=f"not a store of this job: .* {wire.SECRET} differs"):
        dist.TCPStore("127.0.0.1", store.port)


def test_a_server_that_ends_is_reported():
    store = dist.TCPStore("127.0.0.1", 0, 1, True)
    client = dist.TCPStore("127.0.0.1", store.port, timeout=LONG)
    server = store._server
    del store
    server.thread.join(HANG)
    assert not server.thread.is_alive()  # it ends with the last store that uses it
    with pytest.raises(dist.DistNetworkError):
        client.set("a", "1")


def test_ports_that_are_taken():
    store = dist.TCPStore("127.0.0.1", 0, 1, True, multi_tenant=True)
    with pytest.raises(dist.DistNetworkError, match="failed to listen on any local network address"):
        dist.TCPStore("127.0.0.1", store.port, 1, True)
    other = dist.TCPStore("127.0.0.1", store.port, 1, True, multi_tenant=True)
    other.set("a", "1")
    assert store.get("a") == b"1"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_connections_of_its_own():
    store = dist.TCPStore("127.0.0.1", 0, 1, True)
    child = os.fork()
    if not child:
        try:
            store.set("child", "1")
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert store.get("child") == b"1"
    assert isinstance(store._connections, Connections)


def test_rendezvous_errors(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    urls = [
        "env://",
        "tcp://127.0.0.1",
        "tcp://127.0.0.1:1",
        "tcp://127.0.0.1:1?rank=0",
        "file://",
        "file:///x",
        "odd://",
    ]
    for url in urls:
        errors = []
        for library in (dist, torch_dist):
            with pytest.raises(Exception) as caught:
                next(library.rendezvous(url))
            errors.append((type(caught.value).__name__, str(caught.value)))
        assert errors[0] == errors[1], url
