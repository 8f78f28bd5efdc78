"""How ordinary processes become one MPI world: the job's PMI server is started, found through a store, and joined."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

from tensorgrad.distributed.errors import DistBackendError, DistNetworkError, DistStoreError, ranks_named
from tensorgrad.distributed.stores import wire
from tensorgrad.distributed.stores.store import Store
from tensorgrad.system import processes

__all__ = ["PMI_VARIABLES", "Connection", "join", "leave"]

PMI_VARIABLES = ("PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_PORT", "PMI_ID", "PMI_SPAWNED", "PMI_PROCESS_MAPPING")


class Connection:
    """An authenticated connection to the PMI server; `role` is "pmi" or "watch"."""

    def __init__(self, address: tuple[str, int], secret: bytes, role: str, rank: int, timeout: float) -> None:
        try:
            self.socket = socket.create_connection(address, wire.socket_timeout(timeout))
            nonce = bytes.fromhex(self._line())
            statement = f"{role} {rank}"
            proof = hmac.new(secret, nonce + statement.encode(), hashlib.sha256).hexdigest()
            self.socket.sendall(f"{proof} {statement}\n".encode())
            if self._line() != "ok":
                raise ValueError("refused")
        except (OSError, ValueError) as error:
            raise DistNetworkError(f"cannot join the MPI world at {address[0]}:{address[1]}: {error}") from None
        self.socket.settimeout(None)

    def _line(self) -> str:
        """One line, read byte by byte: what follows belongs to MPI."""
        line = bytearray()
        while not line.endswith(b"\n"):
            byte = self.socket.recv(1)
            if not byte or len(line) > 256:
                raise ValueError("the server closed the connection")
            line += byte
        return line[:-1].decode("ascii")


def process_mapping(hosts: list[str]) -> str:
    """Which ranks share a machine, in PMI's notation: blocks of (first machine, number of machines, ranks on each).

    >>> from tensorgrad.distributed.mpi.pmi import process_mapping
    >>> process_mapping(["a", "a", "b"])
    '(vector,(0,1,2),(1,1,1))'
    """
    order = {host: number for number, host in enumerate(dict.fromkeys(hosts))}
    blocks: list[list[int]] = []
    for host in hosts:
        if blocks and blocks[-1][0] == order[host]:
            blocks[-1][2] += 1
        else:
            blocks.append([order[host], 1, 1])
    return "(vector," + ",".join(f"({node},{nodes},{count})" for node, nodes, count in blocks) + ")"


def machine() -> str:
    """What identifies this machine: ranks with the same text share memory."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot}"


def _claim(store: Store, rank: int, size: int) -> None:
    """Makes this process the only one with its rank. Raises: DistBackendError if there is another."""
    mine = f"process {os.getpid()} on {socket.gethostname()}"
    holder = store.compare_set(f"process/{rank}", "", mine).decode()
    if holder != mine:
        raise DistBackendError(
            f"{mine} cannot be rank {rank} of {size}: {holder} has joined the job with the same rank"
        )


def _wait(store: Store, keys: list[str], rank: int, timeout: timedelta) -> None:
    """Waits for the keys of ranks, or of rank 0. Raises: DistBackendError with the ranks that are missing."""
    try:
        store.wait(keys, timeout)
    except DistNetworkError as error:
        raise DistBackendError(f"rank {rank} cannot join the job: {error}") from None
    except DistStoreError:
        missing = [int(key.partition("/")[2] or 0) for key in keys if not store.check([key])]
        raise DistBackendError(
            f"rank {rank} has waited {timeout.total_seconds():g} seconds for {ranks_named(missing)} to join the job"
        ) from None


def join(store: Store, rank: int, size: int, host: str, timeout: timedelta) -> tuple[int, socket.socket]:
    """Connects to the job's PMI server, which rank 0 starts, and sets the environment that MPI reads.

    Every rank must call it, and then initialize MPI. `host` is where the others reach rank 0.

    Returns: the file descriptor that MPI uses, even after `MPI_Finalize`, so that Python must not close it; the watch.
    """
    _claim(store, rank, size)
    store.set(f"machine/{rank}", machine())
    if rank == 0:
        _wait(store, [f"machine/{other}" for other in range(size)], rank, timeout)
        machines = [store.get(f"machine/{other}").decode() for other in range(size)]
        alone = len(set(machines)) == 1
        secret = os.urandom(32)
        port = _start_server(size, process_mapping(machines), secret, "127.0.0.1" if alone else "", timeout)
        address = {"host": "127.0.0.1" if alone else host, "port": port, "secret": secret.hex()}
        store.set("server", json.dumps(address))
    else:
        _wait(store, ["server"], rank, timeout)
    found: dict[str, Any] = json.loads(store.get("server"))
    key, seconds = bytes.fromhex(found["secret"]), timeout.total_seconds()
    place = (str(found["host"]), int(found["port"]))
    watch = Connection(place, key, "watch", rank, seconds)
    pmi = Connection(place, key, "pmi", rank, seconds)
    # MPI's initialization stops the whole interpreter, and with it a store that this process serves: only when
    # every rank has what it needs from the store may rank 0 go on.
    store.set(f"ready/{rank}", "1")
    if rank == 0:
        _wait(store, [f"ready/{other}" for other in range(size)], rank, timeout)
    for name in PMI_VARIABLES:
        os.environ.pop(name, None)
    descriptor = pmi.socket.detach()
    os.environ.update(PMI_FD=str(descriptor), PMI_RANK=str(rank), PMI_SIZE=str(size))
    return descriptor, watch.socket


def leave(descriptor: int) -> None:
    """Puts a connection in the place of MPI's connection to the server, on which the last answer lies ready.

    MPI takes its leave when the C library ends the process. If the server has ended by then, MPICH reads before the
    beginning of its buffer; and if the descriptor belongs to another file by then, MPICH writes into that.
    """
    ours, theirs = socket.socketpair()
    ours.sendall(b"cmd=finalize_ack\n")
    os.dup2(theirs.fileno(), descriptor, inheritable=False)
    theirs.close()
    ours.detach()  # open until the process has ended


def _start_server(size: int, mapping: str, secret: bytes, host: str, timeout: timedelta) -> int:
    """Starts the server process and returns its port. It ends when all its connections are closed."""
    file = Path(__file__).with_name("pmi_server.py")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "TENSORGRAD_JOB"))}
    server = subprocess.Popen(
        processes.python("-S", str(file)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert server.stdin is not None and server.stdout is not None
    settings = {
        "size": size,
        "name": f"tensorgrad_{os.getpid()}_{os.urandom(4).hex()}",  # the names of MPI's shared memory begin with it
        "mapping": mapping,
        "secret": secret.hex(),
        "host": host,
        "timeout": timeout.total_seconds(),
    }
    server.stdin.write(json.dumps(settings).encode() + b"\n")
    server.stdin.flush()  # stays open: when it closes before anyone has joined, the server ends
    line = server.stdout.readline()
    server.stdout.close()
    if not line:
        raise DistNetworkError("the PMI server did not start; its own output says why")
    _SERVERS.append(server)
    return int(line)


_SERVERS: list[Any] = []  # referenced while they run, or Python warns
