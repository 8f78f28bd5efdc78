"""The PMI-1 server that makes ordinary Python processes one MPI world, with the standard library alone.

MPI libraries of the MPICH family ask their launcher for keys and barriers in a line protocol, PMI-1. Rank 0 starts this
file as a process of its own, because `MPI_Init` blocks the whole interpreter that calls it. Each rank opens two
authenticated connections: one is handed to MPI as PMI_FD, over the other (the watch) the server reports ranks that
ended, and agrees on a common end. The server ends when the last connection closes.

Settings arrive as one line of JSON on standard input; the port is printed on standard output.
"""

import hashlib
import hmac
import json
import os
import select
import selectors
import signal
import socket
import sys
import time

MAX_LINE = 8192  # bytes of one request
MAX_KEYS = 1 << 20
MAX_NAME, MAX_KEY, MAX_VALUE = 256, 64, 1024  # characters, as MPI is told
MOST_STRANGERS = 128  # connections without a proof
PATIENCE = 30.0  # seconds that a connection without a proof has
GRACE = 1.0  # seconds for which it is kept in any case
REST = 0.2  # seconds for which nobody is let in after the system refused a connection, or there were too many
NONCE = 16  # bytes


class Peer:
    """One connection: first unknown, then `pmi` (MPI's own) or `watch` (Python's)."""

    def __init__(self, connection: socket.socket, since: float) -> None:
        self.connection, self.nonce, self.data, self.since = connection, os.urandom(NONCE), b"", since
        self.role, self.rank, self.finalized, self.bye = "", -1, False, False

    def send(self, text: str) -> None:
        self.connection.sendall(text.encode() + b"\n")


def parent_ended() -> bool:
    """Whether rank 0 has closed its end of standard input."""
    if sys.platform == "win32":
        return False
    return bool(select.select([0], [], [], 0)[0]) and not os.read(0, 1)


class Server:
    """The keys of one job, and who takes part in it.

    `listener`, `selector`, `clock` and `abandoned` (whether rank 0 has ended) are what it would otherwise use itself.
    Nothing that peers do ends the loop, and each of them can fill a bounded amount of memory.
    """

    def __init__(
        self, size: int, name: str, mapping: str, secret: bytes, host: str, timeout: float,
        listener=None, selector=None, clock=time.monotonic, abandoned=parent_ended,
    ) -> None:  # fmt: skip
        self.size, self.name, self.secret = size, name, secret
        self.keys = {"PMI_process_mapping": mapping}
        self.peers: set[Peer] = set()
        self.strangers: dict[Peer, None] = {}  # peers without a proof, the oldest first
        self.waiting: list[Peer] = []
        self.gone: set[int] = set()
        self.end = ""  # how the job ends, once that is decided: see `agree`
        self.clock, self.abandoned = clock, abandoned
        self.deadline, self.resting = clock() + timeout, 0.0  # `resting`: until when the listener is left alone
        self.selector = selector or selectors.DefaultSelector()
        self.listener = listener or socket.create_server((host, 0), backlog=max(128, 2 * size))
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ)

    def serve(self) -> None:
        joined = False
        while True:
            try:
                self.turn()
            except Exception:
                time.sleep(0.01)  # memory is full, for example; what failed may fail again at once
            joined = joined or any(p.role == "pmi" for p in self.peers)
            if joined and not any(p.role for p in self.peers):
                return
            if not joined and (self.clock() > self.deadline or self.abandoned()):
                return

    def turn(self) -> None:
        for key, _ in self.selector.select(REST if self.resting else 1.0):
            if key.fileobj is self.listener:
                self.accept()
            else:
                self.read(key.data)
        now = self.clock()
        if self.resting and self.resting <= now:
            self.resting = 0.0
            self.selector.register(self.listener, selectors.EVENT_READ)
        for peer in [p for p in self.strangers if now - p.since > PATIENCE]:
            self.drop(peer)

    def rest(self) -> None:
        """Leaves the listener alone for a moment; those who want to connect wait in the system's queue."""
        self.resting = self.clock() + REST
        self.selector.unregister(self.listener)

    def accept(self) -> None:
        now = self.clock()
        if len(self.strangers) >= MOST_STRANGERS:
            oldest = next(iter(self.strangers))
            if now - oldest.since < GRACE:
                self.rest()
                return
            self.drop(oldest)
        try:
            connection = self.listener.accept()[0]
        except (BlockingIOError, InterruptedError, ConnectionError):  # it has gone again
            return
        except OSError:  # no descriptor is left, for example
            self.rest()
            return
        peer = Peer(connection, now)
        try:
            connection.settimeout(10)
            self.selector.register(connection, selectors.EVENT_READ, peer)
        except (OSError, ValueError):  # a connection that has ended
            connection.close()
            return
        self.peers.add(peer)
        self.strangers[peer] = None
        self.safely(peer, lambda: peer.send(peer.nonce.hex()))

    def read(self, peer: Peer) -> None:
        def receive() -> None:
            data = peer.connection.recv(65536)
            if not data:
                raise ConnectionError
            *lines, peer.data = (peer.data + data).split(b"\n")
            for line in lines:
                if len(line) > MAX_LINE:
                    raise ValueError
                self.answer(peer, line.decode("ascii"))
            if len(peer.data) > MAX_LINE:
                raise ValueError

        self.safely(peer, receive)

    def safely(self, peer: Peer, action) -> None:
        """Whatever a peer does wrong costs it the connection, and nothing else."""
        try:
            action()
        except Exception:
            self.drop(peer)

    def drop(self, peer: Peer) -> None:
        if peer not in self.peers:
            return
        self.peers.discard(peer)
        self.strangers.pop(peer, None)
        self.selector.unregister(peer.connection)
        peer.connection.close()
        if peer in self.waiting:
            self.waiting.remove(peer)
        if peer.role and not peer.finalized and peer.rank not in self.gone:
            self.gone.add(peer.rank)
            self.tell(f"gone {peer.rank}")

    def tell(self, text: str) -> None:
        for watcher in [p for p in self.peers if p.role == "watch"]:
            self.safely(watcher, lambda watcher=watcher: watcher.send(text))

    def answer(self, peer: Peer, line: str) -> None:
        if not peer.role:
            self.admit(peer, line)
        elif peer.role == "watch":
            self.agree(peer, line)
        else:
            fields = dict(part.split("=", 1) for part in line.split())
            reply = self.command(peer, fields)
            if reply:
                peer.send(reply)

    def agree(self, peer: Peer, line: str) -> None:
        """A rank is ready to end MPI ("bye"), or no longer waits until all are ("apart").

        The first decision holds: all end MPI together, or none does.
        """
        if line not in ("bye", "apart"):
            raise ValueError
        peer.bye = peer.finalized = True
        all_ready = sum(p.bye for p in self.peers) == self.size and not self.gone
        if not self.end and (line == "apart" or all_ready):
            self.end = "end" if line == "bye" else "apart"
            if self.end == "end":
                for other in self.peers:
                    other.finalized = True
            self.tell(self.end)

    def admit(self, peer: Peer, line: str) -> None:
        """A peer proves that it has the job's secret, and says which rank it is and what the connection is for."""
        proof, role, rank = line.split()
        expected = hmac.new(self.secret, peer.nonce + f"{role} {rank}".encode(), hashlib.sha256).hexdigest()
        if not hmac.compare_digest(proof, expected) or role not in ("pmi", "watch") or not 0 <= int(rank) < self.size:
            raise ValueError
        if any((p.role, p.rank) == (role, int(rank)) for p in self.peers):
            raise ValueError
        peer.role, peer.rank = role, int(rank)
        self.strangers.pop(peer, None)
        peer.send("ok")
        for gone in sorted(self.gone) if role == "watch" else ():
            peer.send(f"gone {gone}")

    def command(self, peer: Peer, fields: dict) -> str:
        command = fields["cmd"]
        if command == "init":
            return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
        if command == "get_maxes":
            return f"cmd=maxes kvsname_max={MAX_NAME} keylen_max={MAX_KEY} vallen_max={MAX_VALUE}"
        if command == "get_appnum":
            return "cmd=appnum appnum=0"
        if command == "get_my_kvsname":
            return f"cmd=my_kvsname kvsname={self.name}"
        if command == "get_universe_size":
            return f"cmd=universe_size size={self.size}"
        if command == "put":
            if len(self.keys) >= MAX_KEYS:
                return "cmd=put_result rc=-1 msg=too_many_keys"
            if len(fields["key"]) > MAX_KEY or len(fields["value"]) > MAX_VALUE:
                return "cmd=put_result rc=-1 msg=too_long"
            self.keys[fields["key"]] = fields["value"]
            return "cmd=put_result rc=0 msg=success"
        if command == "get":
            value = self.keys.get(fields["key"])
            if value is None:
                return f"cmd=get_result rc=-1 msg=key_{fields['key']}_not_found value=unknown"
            return f"cmd=get_result rc=0 msg=success value={value}"
        if command == "barrier_in":
            if peer in self.waiting:
                raise ValueError("it waits already")
            self.waiting.append(peer)
            if len(self.waiting) == self.size:
                arrived, self.waiting = self.waiting, []
                for other in arrived:
                    self.safely(other, lambda other=other: other.send("cmd=barrier_out"))
            return ""
        if command == "finalize":
            peer.finalized = True
            return "cmd=finalize_ack"
        raise ValueError(command)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the ranks; the server ends after them
    with open(0, "rb", buffering=0, closefd=False) as settings:
        given = json.loads(settings.readline())
    secret = bytes.fromhex(given.pop("secret"))
    server = Server(secret=secret, **given)
    print(server.listener.getsockname()[1], flush=True)
    sys.stdout.close()
    server.serve()


if __name__ == "__main__":
    main()
