"""The agent of a process: it sends calls to other processes, and runs those that arrive.

Processes tell each other in the job's store where they listen, and a secret that whoever connects must know. A message
is a number, by which the answer finds the call, and a pickle: of a function and its arguments, or of the answer.
"""

from __future__ import annotations

import itertools
import json
import pickle
import secrets
import socket
import struct
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import (
    Client,
    Connection,
    Listener,
    answer_challenge,
    deliver_challenge,
)
from typing import Any, NamedTuple

from tensorgrad.distributed.rpc.functions import RETURNS_FUTURE
from tensorgrad.distributed.stores.store import Store
from tensorgrad.futures import Future
from tensorgrad.system import forks

__all__ = ["Agent", "Reply", "WorkerInfo"]

_NUMBER = struct.Struct(">Q")
_WAITED = timedelta(minutes=30)  # for the other processes of the job


class WorkerInfo(NamedTuple):
    """A process of the job: its name and its rank."""

    name: str
    id: int

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, name={self.name})"


class Failed(NamedTuple):
    """The answer of a call that raised an exception."""

    type: type
    text: str


class Reply(Future):
    """The answer of a call. Waiting for it ends with an error after `seconds`."""

    seconds: float | None = None

    def wait(self) -> Any:
        """Waits for the answer, and returns it. Raises: what the function raised; RuntimeError after too long."""
        with self._condition:
            if not self._condition.wait_for(lambda: self._is_set, self.seconds):
                raise RuntimeError(
                    f"RPC ran for more than set timeout ({round(1000 * (self.seconds or 0))} ms) and will now be "
                    "marked with an error"
                )
        return self.value()

    def answer(self, value: Any) -> None:
        """Sets the answer."""
        if self._is_set:
            return
        if not isinstance(value, Failed):
            self.set_result(value)
            return
        try:
            error = value.type(value.text)
        except Exception as problem:  # its class wants other arguments
            error = RuntimeError(f"Failed to create original exception type ({problem}): {value.text}")
        self.set_exception(error)


class _Peer:
    """The connection to another process."""

    def __init__(self, who: WorkerInfo, connection: Connection) -> None:
        self.who, self.connection = who, connection
        self.lock = forks.lock()
        self.waiting: dict[int, Reply] = {}
        threading.Thread(target=self._read, name=f"answers of {who.name}", daemon=True).start()

    def send(self, number: int, data: bytes, reply: Reply) -> None:
        """Sends a call, whose answer is `reply`."""
        self.waiting[number] = reply
        try:
            with self.lock:
                self.connection.send_bytes(_NUMBER.pack(number) + data)
        except OSError:
            self.waiting.pop(number, None)
            reply.answer(Failed(RuntimeError, f"{self.who} has ended"))

    def _read(self) -> None:
        while True:
            try:
                message = self.connection.recv_bytes()
            except (EOFError, OSError):
                break
            (number,) = _NUMBER.unpack_from(message)
            reply = self.waiting.pop(number, None)
            if reply is not None:
                reply.answer(_unpickled(message[_NUMBER.size :]))
        for number in list(self.waiting):
            self.waiting.pop(number).answer(Failed(RuntimeError, f"{self.who} has ended"))


class Agent:
    """What sends and runs the calls of a process.

    Args:
        name: of the process.
        rank: of the process.
        size: how many processes there are.
        store: the job's store.
        threads: how many calls are run at the same time.
        seconds: how long a call may run; None for any time.
        reachable: an address of this machine that the others can connect to.

    Raises:
        RuntimeError: If two processes have the same name.
    """

    def __init__(
        self, name: str, rank: int, size: int, store: Store, threads: int, seconds: float | None, reachable: str
    ) -> None:
        self.info, self.size, self.store, self.seconds = WorkerInfo(name, rank), size, store, seconds
        self._secret = store.compare_set("secret", "", secrets.token_hex(32))
        self._listener = Listener((reachable, 0), "AF_INET", backlog=size + 8)
        store.set(f"worker/{rank}", json.dumps([name, *self._listener.address]))
        keys = [f"worker/{other}" for other in range(size)]
        store.wait(keys, _WAITED)
        found = [json.loads(store.get(key)) for key in keys]
        self.workers = {each[0]: WorkerInfo(each[0], at) for at, each in enumerate(found)}
        if len(self.workers) != size:
            self._listener.close()
            raise RuntimeError(f"RPC worker name {name} is not unique: there are {size} processes named "
                               f"{', '.join(each[0] for each in found)}")  # fmt: skip
        self._addresses = {each[0]: (each[1], each[2]) for each in found}
        self._peers: dict[str, _Peer] = {}
        self._connecting = forks.lock()
        self._numbers = itertools.count()
        self._open: set[Reply] = set()
        self.values: dict[tuple[int, int], Any] = {}  # that this process keeps for references (references.py)
        self._pool = ThreadPoolExecutor(threads, f"calls to {name}")
        threading.Thread(target=self._accept, name="remote calls", daemon=True).start()

    def worker(self, to: Any) -> WorkerInfo:
        """The process of a name, of a rank, or itself. Raises: ValueError if there is none."""
        if isinstance(to, WorkerInfo):
            return to
        found = self.workers.get(to) if isinstance(to, str) else None
        if isinstance(to, int):
            found = next((worker for worker in self.workers.values() if worker.id == to), None)
        if found is None:
            raise ValueError(f"Unknown worker {to!r}; there are {', '.join(self.workers)}")
        return found

    # --- calls that this process makes ---

    def call(self, to: Any, function: Callable, args: tuple, kwargs: dict[str, Any], seconds: float | None) -> Reply:
        """Has another process run a function."""
        worker = self.worker(to)
        reply = Reply()
        reply.seconds = seconds
        data = pickle.dumps((function, args, kwargs), pickle.HIGHEST_PROTOCOL)
        self._open.add(reply)
        reply._when_done(lambda: self._open.discard(reply))
        if worker == self.info:
            self._pool.submit(self._run, data, lambda made: reply.answer(_unpickled(made)))
        else:
            self._peer(worker).send(next(self._numbers), data, reply)
        return reply

    def _peer(self, worker: WorkerInfo) -> _Peer:
        with self._connecting:
            peer = self._peers.get(worker.name)
            if peer is None:
                connection: Any = Client(self._addresses[worker.name], "AF_INET", authkey=self._secret)
                peer = self._peers[worker.name] = _Peer(worker, connection)
        return peer

    # --- calls that others make ---

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(connection,), name="calls of a process", daemon=True).start()

    def _serve(self, connection: Any) -> None:
        """Runs the calls of one process, which has to know the secret."""
        lock = forks.lock()
        try:
            deliver_challenge(connection, self._secret)
            answer_challenge(connection, self._secret)
            while True:
                message = connection.recv_bytes()
                number, data = message[: _NUMBER.size], message[_NUMBER.size :]

                def answer(made: bytes, number: bytes = number) -> None:
                    with suppress(OSError), lock:
                        connection.send_bytes(number + made)

                self._pool.submit(self._run, data, answer)
        except Exception:  # it has ended, or we have, or it does not know the secret
            connection.close()

    def _run(self, data: bytes, answer: Callable[[bytes], None]) -> None:
        """Runs a call, and passes on its pickled answer: at once, or when the future that it returns is done."""
        try:
            function, args, kwargs = pickle.loads(data)
            made = function(*args, **kwargs)
            if not hasattr(function, RETURNS_FUTURE):
                answer(_pickled(made))
                return
        except Exception as error:
            answer(_pickled(self._failed(error)))
            return

        def done(future: Future) -> None:
            try:
                answer(_pickled(future.value()))
            except Exception as error:
                answer(_pickled(self._failed(error)))

        made.add_done_callback(done)

    def _failed(self, error: Exception) -> Failed:
        return Failed(type(error), f"On {self.info}:\n{error!r}\n{traceback.format_exc()}")

    # --- the end ---

    def leave(self, graceful: bool, timeout: timedelta | None) -> None:
        """Ends the connections: if `graceful`, when all processes want to."""
        if graceful:
            for reply in list(self._open):
                with suppress(Exception):
                    reply.wait()
            self.store.set(f"done/{self.info.id}", "")
            self.store.wait([f"done/{rank}" for rank in range(self.size)], timeout or _WAITED)
            self.store.set(f"left/{self.info.id}", "")
            if not self.info.id:  # whose process has the store
                self.store.wait([f"left/{rank}" for rank in range(self.size)], timeout or _WAITED)
        self._listener.close()
        for peer in self._peers.values():
            with suppress(OSError):
                peer.connection.close()
        self._pool.shutdown(wait=False)


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        return pickle.dumps(Failed(RuntimeError, f"the answer cannot be sent: {type(error).__name__}: {error}"))


def _unpickled(data: bytes) -> Any:
    try:
        return pickle.loads(data)
    except Exception as error:
        return Failed(RuntimeError, f"the answer cannot be read: {type(error).__name__}: {error}")


def address_towards(host: str, port: int) -> str:
    """Returns the address of this machine from which another one is reached; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, port or 1))
            return probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
