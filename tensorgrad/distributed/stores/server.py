"""The server of a `TCPStore`: one daemon thread that answers all clients of a job."""

from __future__ import annotations

import hmac
import os
import selectors
import socket
import struct
import threading
import time
import weakref

from tensorgrad.distributed.stores import wire
from tensorgrad.distributed.stores.key_table import Table

__all__ = ["StoreServer"]

HANDSHAKE_TIMEOUT = 10.0  # seconds
_SERVERS: weakref.WeakSet[StoreServer] = weakref.WeakSet()


class Client:
    """One connection: its unread input, its unsent output, and the wait it is in."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.nonce = connection, os.urandom(wire.NONCE)
        self.input, self.output = bytearray(), bytearray(wire.hello(self.nonce))
        self.trusted = False
        self.since = time.monotonic()
        self.keys: list[bytes] = []  # waited for ...
        self.deadline = 0.0  # ... until then


class StoreServer:
    """Listens on a port, and holds the keys. Raises: OSError if the port is taken."""

    def __init__(self, port: int, listener: socket.socket | None = None) -> None:
        self.table = Table()
        self.secret = wire.secret()
        self.users = 0  # stores of this process
        self.listener = listener or _listen(port)
        self.port: int = self.listener.getsockname()[1]
        self.listener.setblocking(False)
        self.clients: set[Client] = set()
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.waker, self.wakened = socket.socketpair()
        self.selector.register(self.wakened, selectors.EVENT_READ)
        self.open = True
        self.thread = threading.Thread(target=self._serve, name="tensorgrad-store", daemon=True)
        self.thread.start()
        _SERVERS.add(self)

    def close(self) -> None:
        """Ends the thread, which closes all connections."""
        self.open = False
        try:
            self.waker.send(b"x")
        except OSError:
            return
        if threading.current_thread() is not self.thread:
            self.thread.join(5)

    def forget(self) -> None:
        """In a forked child, which has no thread: closes the copies of the sockets."""
        self.open = False
        for holder in (self.listener, self.waker, self.wakened, *(client.connection for client in self.clients)):
            holder.close()

    def _serve(self) -> None:
        while self.open:
            for key, events in self.selector.select(self._pause()):
                if key.fileobj is self.listener:
                    self._accept()
                elif key.data is not None:
                    self._handle(key.data, events)
            self._expire()
        for client in list(self.clients):
            self._drop(client)
        self.selector.close()
        for holder in (self.listener, self.waker, self.wakened):
            holder.close()

    def _pause(self) -> float | None:
        """Seconds until something expires."""
        now = time.monotonic()
        ends = [client.deadline for client in self.clients if client.keys]
        ends += [client.since + HANDSHAKE_TIMEOUT for client in self.clients if not client.trusted]
        return max(0.0, min(ends) - now) if ends else None

    def _expire(self) -> None:
        now = time.monotonic()
        for client in list(self.clients):
            if client.keys and client.deadline <= now:
                client.keys = []
                self._reply(client, [b"timeout"])
            elif not client.trusted and client.since + HANDSHAKE_TIMEOUT <= now:
                self._drop(client)

    def _accept(self) -> None:
        try:
            connection = self.listener.accept()[0]
        except OSError:
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = Client(connection)
        self.clients.add(client)
        self.selector.register(connection, selectors.EVENT_READ, client)
        self._flush(client)

    def _handle(self, client: Client, events: int) -> None:
        """Whatever a client does wrong costs it the connection, and nothing else."""
        try:
            if events & selectors.EVENT_READ:
                data = client.connection.recv(1 << 20)
                if not data:
                    raise ConnectionError
                client.input += data
                self._parse(client)
            if events & selectors.EVENT_WRITE:
                self._flush(client)
        except BlockingIOError:
            pass
        except (OSError, ValueError):
            self._drop(client)

    def _parse(self, client: Client) -> None:
        if not client.trusted:
            if len(client.input) < wire.NONCE + wire.PROOF:
                return
            nonce, given = bytes(client.input[: wire.NONCE]), bytes(client.input[wire.NONCE :][: wire.PROOF])
            if not hmac.compare_digest(given, wire.proof(self.secret, b"client", client.nonce, nonce)):
                raise ValueError("the client does not have the job's secret")
            del client.input[: wire.NONCE + wire.PROOF]
            client.trusted = True
            client.output += wire.proof(self.secret, b"server", client.nonce, nonce)
            self._flush(client)
        while len(client.input) >= 4 and client in self.clients:
            (length,) = struct.unpack_from(">I", client.input)
            if length > wire.MAX_FRAME:
                raise ValueError("a message is too long")
            if len(client.input) < 4 + length:
                return
            body = bytes(client.input[4 : 4 + length])
            del client.input[: 4 + length]
            self._answer(client, wire.unpack(body))

    def _answer(self, client: Client, request: list[bytes]) -> None:
        if not request or client.keys:
            raise ValueError("a message without an operation, or during a wait")
        operation, *arguments = request
        if operation == b"wait":
            milliseconds, *keys = arguments
            if self.table.has(keys):
                self._reply(client, [b"ok"])
            else:
                client.keys, client.deadline = keys, time.monotonic() + int(milliseconds) / 1000
            return
        try:
            result = self.table.apply(operation.decode("ascii"), arguments)
        except ValueError as error:
            self._reply(client, [b"error", str(error).encode()])
            return
        self._reply(client, [b"ok", *result])  # first: the thread of a waiting client may then keep this one waiting
        for other in [c for c in self.clients if c.keys and self.table.has(c.keys)]:
            other.keys = []
            self._reply(other, [b"ok"])

    def _reply(self, client: Client, parts: list[bytes]) -> None:
        client.output += wire.pack(parts)
        self._flush(client)

    def _flush(self, client: Client) -> None:
        try:
            while client.output:
                del client.output[: client.connection.send(client.output)]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(client)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.output else 0)
        if self.selector.get_key(client.connection).events != events:
            self.selector.modify(client.connection, events, client)

    def _drop(self, client: Client) -> None:
        if client in self.clients:
            self.clients.discard(client)
            self.selector.unregister(client.connection)
            client.connection.close()


def _listen(port: int) -> socket.socket:
    """A socket that listens on all addresses, IPv6 too where the system has it."""
    dual = socket.has_dualstack_ipv6()
    try:
        return socket.create_server(
            ("", port), family=socket.AF_INET6 if dual else socket.AF_INET, dualstack_ipv6=dual, backlog=1024
        )
    except OSError:
        if not dual or port:
            raise
        return socket.create_server(("", port), backlog=1024)


def _in_child() -> None:
    for server in list(_SERVERS):
        server.forget()
    _SERVERS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
