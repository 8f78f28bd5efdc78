"""`TCPStore`: a store that processes on several machines share; one of them runs the server."""

from __future__ import annotations

import hmac
import os
import socket
import struct
import time
import weakref
from datetime import timedelta

from tensorgrad.distributed.errors import DistNetworkError, DistStoreError
from tensorgrad.distributed.stores import wire
from tensorgrad.distributed.stores.server import StoreServer
from tensorgrad.distributed.stores.store import DEFAULT_TIMEOUT, Store
from tensorgrad.system import forks
from tensorgrad.system.clock import SYSTEM, Clock

__all__ = ["TCPStore"]

_SHARED: weakref.WeakValueDictionary[int, StoreServer] = weakref.WeakValueDictionary()  # by port: `multi_tenant`
_SHARED_LOCK = forks.lock()


class Connections:
    """A client's connections. Each is used by one thread at a time, so that a long wait delays no other thread."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.free: list[socket.socket] = []
        self.lock = forks.lock()
        self.process = os.getpid()

    def take(self, timeout: float) -> socket.socket:
        with self.lock:
            if self.process != os.getpid():  # forked: these belong to the parent
                for connection in self.free:
                    connection.close()
                self.free, self.process = [], os.getpid()
            if self.free:
                return self.free.pop()
        return connect(self.host, self.port, timeout)

    def give_back(self, connection: socket.socket) -> None:
        with self.lock:
            self.free.append(connection)

    def close(self) -> None:
        with self.lock:
            while self.free:
                self.free.pop().close()


def connect(host: str, port: int, timeout: float, clock: Clock = SYSTEM) -> socket.socket:
    """A connection to a server that has the same secret; tries again until the time is over.

    Raises: DistNetworkError if there is no server, or its secret is another one.
    """
    end, pause = clock.now() + timeout, 0.01
    while True:
        try:
            connection = socket.create_connection((host, port), wire.socket_timeout(max(0.01, end - clock.now())))
            break
        except OSError as error:
            if clock.now() + pause >= end:
                raise DistNetworkError(
                    f"The client socket has timed out after {round(timeout * 1000)}ms while trying to connect to "
                    f"({host}, {port})."
                ) from error
            clock.sleep(pause)
            pause = min(pause * 2, 0.5)
    try:
        connection.settimeout(wire.socket_timeout(max(1.0, end - clock.now())))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = wire.receive_exactly(connection, wire.HELLO)
        server_nonce, nonce, key = greeting[-wire.NONCE :], os.urandom(wire.NONCE), wire.secret()
        if greeting != wire.hello(server_nonce):
            raise ValueError
        connection.sendall(nonce + wire.proof(key, b"client", server_nonce, nonce))
        answer = wire.receive_exactly(connection, wire.PROOF)
        if not hmac.compare_digest(answer, wire.proof(key, b"server", server_nonce, nonce)):
            raise ValueError
    except (OSError, ValueError) as error:
        connection.close()
        raise DistNetworkError(
            f"({host}, {port}) is not a store of this job: it speaks another protocol, or {wire.SECRET} differs"
        ) from error
    return connection


class TCPStore(Store):
    """A store over TCP. One process, the master, runs the server; the others connect to it.

    If the environment variable `TENSORGRAD_JOB_SECRET` is set, both sides must prove that they have it.

    Args:
        host_name: where the server is. With "localhost" or an address such as 127.0.0.1 only processes of the same
            machine can connect.
        port: its port; 0 lets the system choose (see `port`).
        world_size: how many processes use the store; None if not known.
        is_master: whether this process runs the server.
        timeout: how long to wait for the connection, and in `get` and `wait`.
        wait_for_workers: whether the master waits until all processes have connected.
        multi_tenant: whether all stores of this process on the same port share one server.
        master_listen_fd: a listening socket for the server to use.
        use_libuv: accepted; changes nothing.

    Raises:
        DistNetworkError: there is no server, or the port is taken.
        DistStoreError: not all processes connected in time.

    >>> import tensorgrad.distributed as dist
    >>> server = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    >>> client = dist.TCPStore("127.0.0.1", server.port)
    >>> server.set("key", "value")
    >>> client.get("key")
    b'value'
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        self.set_timeout(timeout)
        self._host, self._server = host_name, None
        if is_master:
            self._server = _server(host_name, port, multi_tenant, master_listen_fd)
            port = self._server.port
            self._server.users += 1
            weakref.finalize(self, _leave, self._server).atexit = False
        self._connections = Connections(self._server.address if self._server is not None else host_name, port)
        weakref.finalize(self, Connections.close, self._connections).atexit = False
        self._connections.give_back(self._connections.take(timeout.total_seconds()))
        joined = self.add("init/", 1)
        if is_master and wait_for_workers and world_size is not None:
            self._wait_for_workers(joined, world_size, timeout)

    def _wait_for_workers(self, joined: int, world_size: int, timeout: timedelta) -> None:
        end = time.monotonic() + timeout.total_seconds()
        while joined < world_size:
            if time.monotonic() >= end:
                raise DistStoreError(
                    f"Timed out after {round(timeout.total_seconds())} seconds waiting for clients. "
                    f"{joined}/{world_size} clients joined."
                )
            time.sleep(0.005)
            joined = self.add("init/", 0)

    def _exchange(self, parts: list[bytes], timeout: timedelta) -> list[bytes]:
        """Sends one request and returns the answer."""
        message = wire.pack(parts)
        connection = self._connections.take(self.timeout.total_seconds())
        try:
            connection.settimeout(wire.socket_timeout(timeout.total_seconds() + 5))
            connection.sendall(message)
            (length,) = struct.unpack(">I", wire.receive_exactly(connection, 4))
            if length > wire.MAX_FRAME:
                raise ConnectionError("a message is too long")
            answer = wire.unpack(wire.receive_exactly(connection, length))
        except BaseException as error:
            connection.close()  # half a message may be on its way
            if isinstance(error, (OSError, ValueError)):
                raise DistNetworkError(
                    f"the store at ({self._host}, {self.port}) does not answer: {error or type(error).__name__}. "
                    "Its process has probably ended"
                ) from None
            raise
        self._connections.give_back(connection)
        return answer

    def _call(self, operation: str, *arguments: bytes) -> list[bytes]:
        status, *result = self._exchange([operation.encode(), *arguments], self.timeout)
        if status != b"ok":
            raise ValueError(result[0].decode() if result else operation)
        return result

    def _wait(self, keys: list[str], timeout: timedelta) -> None:
        milliseconds = max(0, round(timeout.total_seconds() * 1000))
        request = [b"wait", str(milliseconds).encode(), *(key.encode() for key in keys)]
        if self._exchange(request, timeout)[0] != b"ok":
            names = ", ".join(f"/{key}" for key in keys)
            raise DistStoreError(f"wait timeout after {milliseconds}ms, keys: {names}")

    @property
    def host(self) -> str:
        """Where the server is.

        >>> import tensorgrad.distributed as dist
        >>> dist.TCPStore("127.0.0.1", 0, 1, True).host
        '127.0.0.1'
        """
        return self._host

    @property
    def port(self) -> int:
        """The server's port.

        >>> import tensorgrad.distributed as dist
        >>> dist.TCPStore("127.0.0.1", 0, 1, True).port > 0
        True
        """
        return self._connections.port

    def clone(self) -> Store:
        copy = TCPStore.__new__(TCPStore)
        copy._host, copy._server, copy._timeout = self._host, self._server, self._timeout
        copy._connections = self._connections
        return copy

    def __repr__(self) -> str:
        return f"TCPStore(host={self.host!r}, port={self.port}, is_master={self._server is not None})"


def _leave(server: StoreServer) -> None:
    """One store less uses this server; it ends with the last."""
    server.users -= 1
    if not server.users:
        server.close()


def _server(host: str, port: int, shared: bool, descriptor: int | None) -> StoreServer:
    """A server on this port: a new one, or the one that is there, if it may be shared."""
    with _SHARED_LOCK:
        server = _SHARED.get(port) if shared and port else None
        if server is not None and server.open:
            return server
        try:
            server = StoreServer(port, None if descriptor is None else socket.socket(fileno=descriptor), host)
        except OSError as error:
            raise DistNetworkError(
                f"The server socket has failed to listen on any local network address. port: {port}, useIpv6: "
                f"{str(socket.has_ipv6).lower()}, code: -{error.errno}, message: {os.strerror(error.errno or 0)}"
            ) from None
        if shared:
            _SHARED[server.port] = server
        return server
