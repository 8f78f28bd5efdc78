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

MAX_LINE = 8192  # bytes of one request; MPI is told to keep values below 1,024
MAX_KEYS = 1 << 20
NONCE = 16  # bytes


class Peer:
    """One connection: first unknown, then `pmi` (MPI's own) or `watch` (Python's)."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.nonce, self.data = connection, os.urandom(NONCE), b""
        self.role, self.rank, self.finalized, self.bye = "", -1, False, False
        self.since = time.monotonic()

    def send(self, text: str) -> None:
        self.connection.sendall(text.encode() + b"\n")


class Server:
    """The keys of one job, and who takes part in it."""

    def __init__(self, size: int, name: str, mapping: str, secret: bytes, host: str, timeout: float) -> None:
        self.size, self.name, self.secret = size, name, secret
        self.keys = {"PMI_process_mapping": mapping}
        self.peers: set[Peer] = set()
        self.waiting: list[Peer] = []
        self.gone: set[int] = set()
        self.deadline = time.monotonic() + timeout
        self.selector = selectors.DefaultSelector()
        self.listener = socket.create_server((host, 0), backlog=max(128, 2 * size))
        self.selector.register(self.listener, selectors.EVENT_READ)

    def serve(self) -> None:
        joined = False
        while True:
            for key, _ in self.selector.select(1.0):
                if key.fileobj is self.listener:
                    self.accept()
                else:
                    self.read(key.data)
            now = time.monotonic()
            for peer in [p for p in self.peers if not p.role and now - p.since > 30]:
                self.drop(peer)
            joined = joined or any(p.role == "pmi" for p in self.peers)
            if (joined and not self.peers) or (not joined and (now > self.deadline or parent_ended())):
                return

    def accept(self) -> None:
        peer = Peer(self.listener.accept()[0])
        peer.connection.settimeout(10)
        self.peers.add(peer)
        self.selector.register(peer.connection, selectors.EVENT_READ, peer)
        self.safely(peer, lambda: peer.send(peer.nonce.hex()))

    def read(self, peer: Peer) -> None:
        def receive() -> None:
            data = peer.connection.recv(65536)
            if not data:
                raise ConnectionError
            *lines, peer.data = (peer.data + data).split(b"\n")
            for line in lines:
                self.answer(peer, line.decode("ascii"))
            if len(peer.data) > MAX_LINE:
                raise ValueError

        self.safely(peer, receive)

    def safely(self, peer: Peer, action) -> None:
        """Whatever a peer does wrong costs it the connection, and nothing else."""
        try:
            action()
        except (OSError, ValueError, KeyError):
            self.drop(peer)

    def drop(self, peer: Peer) -> None:
        if peer not in self.peers:
            return
        self.peers.discard(peer)
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
            if line != "bye":
                raise ValueError
            peer.bye = peer.finalized = True
            if sum(p.bye for p in self.peers) == self.size:
                for other in self.peers:
                    other.finalized = True
                self.tell("end")
        else:
            fields = dict(part.split("=", 1) for part in line.split())
            reply = self.command(peer, fields)
            if reply:
                peer.send(reply)

    def admit(self, peer: Peer, line: str) -> None:
        """A peer proves that it has the job's secret, and says which rank it is and what the connection is for."""
        proof, role, rank = line.split()
        expected = hmac.new(self.secret, peer.nonce + f"{role} {rank}".encode(), hashlib.sha256).hexdigest()
        if not hmac.compare_digest(proof, expected) or role not in ("pmi", "watch") or not 0 <= int(rank) < self.size:
            raise ValueError
        if any((p.role, p.rank) == (role, int(rank)) for p in self.peers):
            raise ValueError
        peer.role, peer.rank = role, int(rank)
        peer.send("ok")
        for gone in sorted(self.gone) if role == "watch" else ():
            peer.send(f"gone {gone}")

    def command(self, peer: Peer, fields: dict) -> str:
        command = fields["cmd"]
        if command == "init":
            return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
        if command == "get_maxes":
            return "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024"
        if command == "get_appnum":
            return "cmd=appnum appnum=0"
        if command == "get_my_kvsname":
            return f"cmd=my_kvsname kvsname={self.name}"
        if command == "get_universe_size":
            return f"cmd=universe_size size={self.size}"
        if command == "put":
            if len(self.keys) >= MAX_KEYS:
                return "cmd=put_result rc=-1 msg=too_many_keys"
            self.keys[fields["key"]] = fields["value"]
            return "cmd=put_result rc=0 msg=success"
        if command == "get":
            value = self.keys.get(fields["key"])
            if value is None:
                return f"cmd=get_result rc=-1 msg=key_{fields['key']}_not_found value=unknown"
            return f"cmd=get_result rc=0 msg=success value={value}"
        if command == "barrier_in":
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


def parent_ended() -> bool:
    """Whether rank 0 has closed its end of standard input."""
    if sys.platform == "win32":
        return False
    return bool(select.select([0], [], [], 0)[0]) and not os.read(0, 1)


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
