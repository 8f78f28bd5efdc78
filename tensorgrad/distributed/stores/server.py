"""The server of a `TCPStore`: one daemon thread that answers all clients of a job."""

from __future__ import annotations

import hmac
import ipaddress
import os
import selectors
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from tensorgrad.distributed.stores import wire
from tensorgrad.distributed.stores.key_table import Table

__all__ = ["StoreServer"]

HANDSHAKE_TIMEOUT = 10.0  # seconds
GRACE = 1.0  # seconds for which a connection without a proof is kept in any case
REST = 0.2  # seconds for which nobody is let in after the system refused a connection, or there were too many
MOST_STRANGERS = 128  # connections without a proof
MOST_UNREAD = 1 << 20  # bytes of unread answers, from which on a client's further requests wait
LONGEST_PAUSE = 3600.0  # seconds; the system counts milliseconds in 32 bits
_SERVERS: weakref.WeakSet[StoreServer] = weakref.WeakSet()


class Client:
    """One connection: its unread input, its unsent output, and the wait it is in."""

    def __init__(self, connection: socket.socket, since: float) -> None:
        self.connection, self.nonce, self.since = connection, os.urandom(wire.NONCE), since
        self.input, self.output = bytearray(), bytearray(wire.hello(self.nonce))
        self.trusted = False
        self.keys: list[bytes] = []  # waited for ...
        self.deadline = 0.0  # ... until then


class StoreServer:
    """Listens on a port, and holds the keys. Raises: OSError if the port is taken.

    `listener`, `selector` and `clock` are what it would otherwise make itself. Nothing that clients do ends its thread,
    and each of them can fill a bounded amount of memory: one message, and one answer.
    """

    def __init__(
        self,
        port: int,
        listener: socket.socket | None = None,
        host: str = "",
        selector: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.table = Table()
        self.secret = wire.secret()
        self.users = 0  # stores of this process
        local = loopback(host)
        self.listener = listener or _listen(port, local)
        self.address = local if local and listener is None else "127.0.0.1"  # for clients of this process
        self.port: int = self.listener.getsockname()[1]
        self.listener.setblocking(False)
        self.clients: set[Client] = set()
        self.strangers: dict[Client, None] = {}  # clients without a proof, the oldest first
        self.clock = clock
        self.resting = 0.0  # if not 0: until when the listener is left alone
        self.selector = selector or selectors.DefaultSelector()
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
        """Runs until `close`: no message, and no lack of memory or descriptors, ends the loop."""
        while self.open:
            try:
                self._turn()
            except Exception:
                time.sleep(0.01)  # what failed may fail again at once
        for client in list(self.clients):
            self._drop(client)
        self.selector.close()
        for holder in (self.listener, self.waker, self.wakened):
            holder.close()

    def _turn(self) -> None:
        for key, events in self.selector.select(self._pause()):
            if key.fileobj is self.listener:
                self._accept()
            elif key.data is not None:
                self._handle(key.data, events)
        self._expire()

    def _pause(self) -> float | None:
        """Seconds until something expires."""
        now = self.clock()
        ends = [client.deadline for client in self.clients if client.keys]
        ends += [client.since + HANDSHAKE_TIMEOUT for client in self.strangers]
        ends += [self.resting] if self.resting else []
        return min(max(0.0, min(ends) - now), LONGEST_PAUSE) if ends else None

    def _expire(self) -> None:
        now = self.clock()
        if self.resting and self.resting <= now:
            self.resting = 0.0
            self.selector.register(self.listener, selectors.EVENT_READ)
        for client in list(self.clients):
            if client.keys and client.deadline <= now:
                client.keys = []
                self._reply(client, [b"timeout"])
            elif not client.trusted and client.since + HANDSHAKE_TIMEOUT <= now:
                self._drop(client)

    def _rest(self) -> None:
        """Leaves the listener alone for a moment; those who want to connect wait in the system's queue."""
        self.resting = self.clock() + REST
        self.selector.unregister(self.listener)

    def _accept(self) -> None:
        now = self.clock()
        if len(self.strangers) >= MOST_STRANGERS:
            oldest = next(iter(self.strangers))
            if now - oldest.since < GRACE:
                self._rest()
                return
            self._drop(oldest)
        try:
            connection = self.listener.accept()[0]
        except (BlockingIOError, InterruptedError, ConnectionError):  # it has gone again
            return
        except OSError:  # no descriptor is left, for example
            self._rest()
            return
        client = Client(connection, now)
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.selector.register(connection, selectors.EVENT_READ, client)
        except (OSError, ValueError):  # a connection that has ended
            connection.close()
            return
        self.clients.add(client)
        self.strangers[client] = None
        self._flush(client)

    def _handle(self, client: Client, events: int) -> None:
        """Whatever a client does wrong costs it the connection, and nothing else."""
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(client)
                self._parse(client)  # what waited until the answers before it were read
            if events & selectors.EVENT_READ and len(client.output) < MOST_UNREAD:
                data = client.connection.recv(1 << 20 if client.trusted else 1 << 12)
                if not data:
                    raise ConnectionError
                client.input += data
                self._parse(client)
        except BlockingIOError:
            pass
        except Exception:
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
            self.strangers.pop(client, None)
            client.output += wire.proof(self.secret, b"server", client.nonce, nonce)
            self._flush(client)
        while len(client.input) >= 4 and client in self.clients and len(client.output) < MOST_UNREAD:
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
                client.keys, client.deadline = keys, self.clock() + wire.integer(milliseconds) / 1000
            return
        try:
            answer = wire.pack([b"ok", *self.table.apply(operation.decode("ascii"), arguments)])
        except ValueError as error:
            self._reply(client, [b"error", str(error).encode()])
            return
        client.output += answer
        self._flush(client)  # first: the thread of a waiting client may then keep this one waiting
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
        if client not in self.clients:
            return
        events = selectors.EVENT_WRITE if client.output else 0
        if len(client.output) < MOST_UNREAD:
            events |= selectors.EVENT_READ
        if self.selector.get_key(client.connection).events != events:
            self.selector.modify(client.connection, events, client)

    def _drop(self, client: Client) -> None:
        if client in self.clients:
            self.clients.discard(client)
            self.strangers.pop(client, None)
            self.selector.unregister(client.connection)
            client.connection.close()


def loopback(host: str) -> str:
    """The address of this machine's own network that a host stands for; empty if other machines may know it, too.

    A host name that resolves to such an address here may stand for another one elsewhere, so only "localhost" does.

    >>> from tensorgrad.distributed.stores.server import loopback
    >>> loopback("localhost"), loopback("::1"), loopback("192.0.2.1"), loopback("host.example")
    ('127.0.0.1', '::1', '', '')
    """
    if host == "localhost":
        return "127.0.0.1"
    try:
        return host if ipaddress.ip_address(host).is_loopback else ""
    except ValueError:
        return ""


def _listen(port: int, host: str) -> socket.socket:
    """A socket that listens on an address, or if it is empty on all, IPv6 too where the system has it."""
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=1024)
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
