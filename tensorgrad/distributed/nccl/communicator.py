"""The communicator of a group of GPUs: NCCL's collectives on flat CuPy arrays, in a stream of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np

from tensorgrad.cuda.devices import module, module_or_none
from tensorgrad.distributed.errors import DistBackendError
from tensorgrad.distributed.stores.store import Store
from tensorgrad.system import forks

__all__ = ["NCCLCommunicator", "Request", "available"]

Launch = Callable[[Any, int], None]  # queues work, given a connection and the address of a stream
POLL = 2e-3  # seconds between looking for what another rank tells


def available() -> bool:
    """Whether there is a GPU, and a CuPy with NCCL.

    >>> from tensorgrad.distributed.nccl import communicator
    >>> torch.cuda.is_available() or not communicator.available()
    True
    """
    if find_spec("cupy") is None or module_or_none() is None:
        return False
    return bool(_library().available)


def _library() -> Any:
    from cupy.cuda import nccl

    return nccl


class Request:
    """An operation that is in the GPU's queue, or will be as soon as its members are connected."""

    __slots__ = ("arrays", "connection", "done", "error", "source")

    def __init__(self, source: int, arrays: Sequence[Any]) -> None:
        self.source, self.arrays = source, arrays  # which it keeps alive
        self.connection: Any = None
        self.done: Any = None  # the event behind it in the queue, once it is there
        self.error: BaseException | None = None

    def completed(self) -> bool:
        """Whether the GPU has done it. Raises: DistBackendError if NCCL reports an error."""
        if self.error is not None:
            raise DistBackendError(f"NCCL: {self.error}") from None
        if self.done is None:
            return False
        try:
            self.connection.check_async_error()
        except RuntimeError as error:
            raise DistBackendError(f"NCCL: {error}") from None
        return bool(self.done.done)


class _Link:
    """Some members that are connected, or become so: NCCL waits for all of them, in a thread that nobody waits for.

    Operations that begin before are queued by that thread, in their order. Each link has a stream of its own.
    """

    def __init__(self, device: int, connect: Callable[[], Any]) -> None:
        self.device, self.connect = device, connect
        self.connection: Any = None
        self.stream: Any = None
        self.error: BaseException | None = None
        self.waiting: list[tuple[Launch, list[Request], Any]] = []
        self.lock = forks.lock()
        threading.Thread(target=self.run, name="tensorgrad-nccl-init", daemon=True).start()

    def run(self) -> None:
        connection, error = None, None  # type: Any, BaseException | None
        with module().cuda.Device(self.device):
            try:
                connection = self.connect()
            except Exception as failure:
                error = failure
            with self.lock:
                self.stream = module().cuda.Stream(non_blocking=True)
                self.connection, self.error = connection, error
                for operation in self.waiting:
                    self._queue(*operation)
                self.waiting = []

    def begin(self, launch: Launch, requests: list[Request]) -> None:
        """Queues work for the GPU, behind what the current stream has in its queue now."""
        with module().cuda.Device(self.device):
            before = module().cuda.get_current_stream().record(_event())
            with self.lock:
                if self.connection is None and self.error is None:
                    self.waiting.append((launch, requests, before))
                else:
                    self._queue(launch, requests, before)

    def _queue(self, launch: Launch, requests: list[Request], before: Any) -> None:
        error = self.error
        if error is None:
            try:
                self.stream.wait_event(before)
                launch(self.connection, self.stream.ptr)
                done = self.stream.record(_event())
                for request in requests:
                    request.connection, request.done = self.connection, done
            except Exception as failure:
                error = failure
        for request in requests:
            request.error = error


class NCCLCommunicator:
    """Queues operations; `Request.completed` says when they are done. Arrays are flat and contiguous, on one GPU.

    The members connect when they first communicate, on the GPU of the first array: `torch.cuda.set_device` may come
    after `init_process_group`. Messages have a connection for each sender and receiver: only these two take part, and
    they need not agree on the order in which they send and receive.

    Args:
        store: where the first member of a link tells the others how to find it.
        rank, size: of this process within the group.
    """

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self.store, self.rank, self.size = store, rank, size
        self.device = -1  # the number of the GPU
        self.links: dict[tuple[int, ...], _Link] = {}
        self.batch: list[tuple[Launch, Request]] | None = None

    # --- collectives ---

    def all_reduce(self, array: Any, op: str) -> Request:
        array = _numbers(array)
        given, kind, combine = array.data.ptr, _dtype(array), _operation(op)
        return self._begin(lambda c, s: c.allReduce(given, given, array.size, kind, combine, s), array)

    def reduce(self, array: Any, op: str, root: int) -> Request:
        """The result is in the root's array; the arrays of the others do not change."""
        array = _numbers(array)
        given, kind, combine = array.data.ptr, _dtype(array), _operation(op)
        return self._begin(lambda c, s: c.reduce(given, given, array.size, kind, combine, root, s), array)

    def reduce_scatter(self, given: Any, received: Any, counts: list[int], op: str) -> Request:
        """Rank i receives the i-th part of the result; `counts` are the lengths of the parts."""
        counts = [count * (2 if given.dtype.kind == "c" else 1) for count in counts]
        given, received = _numbers(given), _numbers(received)
        kind, combine = _dtype(given), _operation(op)
        if len(set(counts)) == 1:
            return self._begin(
                lambda c, s: c.reduceScatter(given.data.ptr, received.data.ptr, counts[0], kind, combine, s),
                given,
                received,
            )
        starts = _starts(counts, given.itemsize)

        def launch(connection: Any, stream: int) -> None:
            for root, (start, count) in enumerate(zip(starts, counts)):
                part = given.data.ptr + start
                target = received.data.ptr if root == self.rank else part
                connection.reduce(part, target, count, kind, combine, root, stream)

        return self._begin(_grouped(launch), given, received)

    def broadcast(self, array: Any, root: int) -> Request:
        given, kind = array.data.ptr, _dtype(array)
        return self._begin(lambda c, s: c.broadcast(given, given, array.size, kind, root, s), array)

    def all_gather(self, given: Any, received: Any) -> Request:
        kind = _dtype(given)
        return self._begin(
            lambda c, s: c.allGather(given.data.ptr, received.data.ptr, given.size, kind, s), given, received
        )

    def gather(self, given: Any, received: Any | None, root: int) -> Request:
        sent = {root: (0, given.size)}
        expected = {rank: (rank * given.nbytes, given.size) for rank in range(self.size)} if self.rank == root else {}
        return self._exchange(given, sent, received, expected)

    def scatter(self, given: Any | None, received: Any, root: int) -> Request:
        sent = {rank: (rank * received.nbytes, received.size) for rank in range(self.size)} if given is not None else {}
        return self._exchange(given, sent, received, {root: (0, received.size)})

    def all_to_all(self, given: Any, given_counts: list[int], received: Any, received_counts: list[int]) -> Request:
        sent = dict(enumerate(zip(_starts(given_counts, given.itemsize), given_counts)))
        expected = dict(enumerate(zip(_starts(received_counts, received.itemsize), received_counts)))
        return self._exchange(given, sent, received, expected)

    # --- messages ---

    def send(self, array: Any, rank: int, tag: int) -> Request:
        """(NCCL has no tags: messages between two ranks arrive in their order.)"""
        given, kind = array.data.ptr, _dtype(array)
        peer = rank if self.batch is not None else 1  # a link of two has the sender first
        return self._begin(lambda c, s: c.send(given, array.size, kind, peer, s), array, between=(self.rank, rank))

    def receive(self, array: Any, rank: int | None, tag: int) -> Request:
        if rank is None:
            raise ValueError("NCCL cannot receive a message from any rank: name the source")
        given, kind = array.data.ptr, _dtype(array)
        peer = rank if self.batch is not None else 0
        return self._begin(lambda c, s: c.recv(given, array.size, kind, peer, s), array, between=(rank, self.rank))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Messages that begin in this context are queued at its end, as one: their order does not matter."""
        self.batch = []
        try:
            yield
        finally:
            operations, self.batch = self.batch, None

        def launch(connection: Any, stream: int) -> None:
            for each, _ in operations:
                each(connection, stream)

        if operations:
            self._link(()).begin(_grouped(launch), [request for _, request in operations])

    # --- how an operation is queued ---

    def _exchange(
        self, given: Any, sent: dict[int, tuple[int, int]], received: Any, expected: dict[int, tuple[int, int]]
    ) -> Request:
        """Sends parts to ranks and receives parts from ranks: (first byte, number of elements) for each."""

        def launch(connection: Any, stream: int) -> None:
            for rank, (start, count) in sent.items():
                if count:
                    connection.send(given.data.ptr + start, count, _dtype(given), rank, stream)
            for rank, (start, count) in expected.items():
                if count:
                    connection.recv(received.data.ptr + start, count, _dtype(received), rank, stream)

        return self._begin(_grouped(launch), *(array for array in (given, received) if array is not None))

    def _begin(self, launch: Launch, *arrays: Any, between: tuple[int, ...] = ()) -> Request:
        """Queues an operation of all members, or of a sender and a receiver."""
        self._check_device(arrays)
        request = Request(between[0] if between else -1, arrays)
        if between and self.batch is not None:
            self.batch.append((launch, request))
        else:
            self._link(between).begin(launch, [request])
        return request

    def _check_device(self, arrays: Sequence[Any]) -> None:
        """Raises: DistBackendError if the group has communicated on another GPU before."""
        device = arrays[0].data.device_id
        if self.device < 0:
            self.device = device
        if device != self.device:
            raise DistBackendError(
                f"NCCL: rank {self.rank} of this group communicates on cuda:{self.device}, and got a tensor on "
                f"cuda:{device}"
            )

    def _link(self, between: tuple[int, ...]) -> _Link:
        """The link of a sender and a receiver, or of all members, made when it is first needed."""
        if between not in self.links:
            self.links[between] = _Link(self.device, lambda: self._connected(between))
        return self.links[between]

    def _connected(self, between: tuple[int, ...]) -> Any:
        """A connection of the members. All of them must come."""
        members = between or tuple(range(self.size))
        library, key = _library(), "nccl/" + ("to".join(map(str, between)) or "all")
        if self.rank == members[0]:
            identity = library.get_unique_id()
            self.store.set(key, bytes(number % 256 for number in identity))
        else:
            while not self.store.check([key]):
                time.sleep(POLL)
            identity = tuple(np.frombuffer(self.store.get(key), np.int8).tolist())
        connection = library.NcclCommunicator(len(members), identity, members.index(self.rank))
        if self.rank == members[0]:  # all have it: NCCL has waited for them
            self.store.delete_key(key)
        return connection

    def abort(self) -> None:
        """Ends all operations, which may wait for members that have ended."""
        for link in self.links.values():
            if link.connection is not None:
                link.connection.abort()

    def free(self) -> None:
        """Gives the connections up."""
        for link in self.links.values():
            if link.connection is not None:
                link.connection.destroy()
        self.links = {}


def _event() -> Any:
    return module().cuda.Event(disable_timing=True)


def _grouped(launch: Launch) -> Launch:
    """Queues several calls as one: they may wait for each other."""

    def grouped(connection: Any, stream: int) -> None:
        _library().groupStart()
        try:
            launch(connection, stream)
        finally:
            _library().groupEnd()

    return grouped


def _starts(counts: list[int], itemsize: int) -> list[int]:
    """The first byte of each part."""
    return [sum(counts[:index]) * itemsize for index in range(len(counts))]


def _numbers(array: Any) -> Any:
    """Complex numbers as pairs of real ones, which NCCL can add."""
    return array.view(array.real.dtype) if array.dtype.kind == "c" else array


def _dtype(array: Any) -> int:
    """NCCL's number of a dtype. Raises: RuntimeError if it has none."""
    name = {"uint8": "UINT8", "int8": "INT8", "int32": "INT32", "uint32": "UINT32", "int64": "INT64",
            "uint64": "UINT64", "float16": "FLOAT16", "float32": "FLOAT32",
            "float64": "FLOAT64"}.get(array.dtype.name)  # fmt: skip
    if name is None:
        raise RuntimeError(f"NCCL cannot combine tensors of dtype {array.dtype.name}")
    return int(getattr(_library(), f"NCCL_{name}"))


def _operation(op: str) -> int:
    """NCCL's number of an operation. Raises: ValueError if it has none."""
    if op not in ("SUM", "PROD", "MIN", "MAX"):
        raise ValueError(f"Cannot use ReduceOp.{op} with NCCL")
    return int(getattr(_library(), f"NCCL_{op}"))
