"""`cupy.cuda.nccl`: several processes of emulated GPUs, which exchange bytes by sockets.

The process that makes a unique id serves it: it hands messages on and combines what the ranks of a collective send. As
with NCCL, all of them must call the same operations in the same order with the same counts: here that is checked.
Everything is done at once; a group of calls is done at its end.
"""

from __future__ import annotations

import ctypes
import threading
import types
from collections import defaultdict
from multiprocessing.connection import Client, Listener
from queue import SimpleQueue

import numpy as np

NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN = range(4)
COMBINE = {NCCL_SUM: np.add, NCCL_PROD: np.multiply, NCCL_MAX: np.maximum, NCCL_MIN: np.minimum}
DTYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
KEY = b"emulated NCCL"


class NcclError(RuntimeError):
    """What NCCL complains about."""

    def __init__(self, status, message="unhandled system error"):
        self.status = status
        super().__init__(f"NCCL_ERROR_SYSTEM_ERROR: {message}")


class _Server:
    """Serves one unique id."""

    def __init__(self):
        self.listener = Listener(("127.0.0.1", 0), backlog=16, authkey=KEY)
        self.messages = defaultdict(SimpleQueue)  # (sender, receiver) -> what was sent and not received yet
        self.rounds = defaultdict(dict)  # number of a collective -> what each rank gave, then the results
        self.changed = threading.Condition()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            threading.Thread(target=self.serve, args=(self.listener.accept(),), daemon=True).start()

    def serve(self, client):
        rank, size = client.recv()
        number = 0
        while True:
            try:
                what, *arguments = client.recv()
            except (EOFError, OSError):
                return
            if what == "send":
                receiver, data = arguments
                self.messages[rank, receiver].put(data)
            elif what == "recv":
                client.send_bytes(self.messages[arguments[0], rank].get())
            else:
                client.send_bytes(self.collective(number, rank, size, what, arguments))
                number += 1

    def collective(self, number, rank, size, what, arguments):
        with self.changed:
            round_ = self.rounds[number]
            round_[rank] = (what, *arguments)
            if len(round_) == size:
                calls = {call[:-1] for call in round_.values()}
                assert len(calls) == 1, f"ranks call different operations: {calls}"
                data = [round_[other][-1] for other in range(size)]
                round_["results"] = _results(what, arguments[:-1], data)
                self.changed.notify_all()
            self.changed.wait_for(lambda: "results" in round_)
            return round_["results"][rank]


def _results(what, parameters, data):
    """What each rank receives."""
    size = len(data)
    if what == "broadcast":
        return [data[parameters[-1]]] * size
    if what == "allGather":
        return [b"".join(data)] * size
    dtype, op = parameters[1:3]
    values = np.stack([np.frombuffer(part, DTYPES[dtype]) for part in data])
    with np.errstate(all="ignore"):
        total = COMBINE[op].reduce(values, axis=0, dtype=values.dtype).tobytes()
    if what == "reduceScatter":
        part = len(total) // size
        return [total[rank * part : (rank + 1) * part] for rank in range(size)]
    return [total] * size


_SERVERS = []


def get_unique_id():
    """128 numbers from -128 to 127: here, the port of a server."""
    _SERVERS.append(_Server())
    text = str(_SERVERS[-1].listener.address[1]).encode().ljust(128, b"\0")
    return tuple(np.frombuffer(text, np.int8).tolist())


class _Group(threading.local):
    depth = 0

    def __init__(self):
        self.calls = []  # (whether it is a collective, function)


_GROUP = _Group()


def groupStart():
    _GROUP.depth += 1


def groupEnd():
    _GROUP.depth -= 1
    if not _GROUP.depth:
        calls, _GROUP.calls = _GROUP.calls, []
        for _, call in sorted(calls, key=lambda item: item[0]):
            call()


def _call(order, function):
    """Calls now, or at the end of the group: messages are sent first, then received, then come collectives."""
    if _GROUP.depth:
        _GROUP.calls.append((order, function))
    else:
        function()


def _bytes(pointer, count, datatype):
    return ctypes.string_at(pointer, count * np.dtype(DTYPES[datatype]).itemsize)


class NcclCommunicator:
    """`cupy.cuda.nccl.NcclCommunicator`"""

    def __init__(self, ndev, commId, rank):
        assert len(commId) == 128 and all(-128 <= number < 128 for number in commId)
        assert 0 <= rank < ndev
        port = int(np.array(commId, np.int8).tobytes().rstrip(b"\0"))
        try:
            self._server = Client(("127.0.0.1", port), authkey=KEY)
        except OSError as error:
            raise NcclError(2, str(error)) from None
        self._server.send((rank, ndev))
        self._rank, self._size = rank, ndev
        self._server.send(("allGather", 0, 0, b""))  # waits for all ranks
        self._server.recv_bytes()

    def _collective(self, what, sendbuf, count, parameters, recvbuf):
        def call():
            self._server.send((what, *parameters, _bytes(sendbuf, count, parameters[1])))
            data = self._server.recv_bytes()
            if recvbuf is not None:
                ctypes.memmove(recvbuf, data, len(data))

        _call(2, call)

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):
        self._collective("allReduce", sendbuf, count, (count, datatype, op), recvbuf)

    def reduce(self, sendbuf, recvbuf, count, datatype, op, root, stream):
        target = recvbuf if root == self._rank else None
        self._collective("reduce", sendbuf, count, (count, datatype, op, root), target)

    def broadcast(self, sendbuf, recvbuf, count, datatype, root, stream):
        self._collective("broadcast", sendbuf, count, (count, datatype, root), recvbuf)

    def allGather(self, sendbuf, recvbuf, count, datatype, stream):
        self._collective("allGather", sendbuf, count, (count, datatype), recvbuf)

    def reduceScatter(self, sendbuf, recvbuf, recvcount, datatype, op, stream):
        self._collective("reduceScatter", sendbuf, recvcount * self._size, (recvcount, datatype, op), recvbuf)

    def send(self, sendbuf, count, datatype, peer, stream):
        data = _bytes(sendbuf, count, datatype)  # what the memory holds now
        _call(0, lambda: self._server.send(("send", peer, data)))

    def recv(self, recvbuf, count, datatype, peer, stream):
        def call():
            self._server.send(("recv", peer))
            data = self._server.recv_bytes()
            assert len(data) == count * np.dtype(DTYPES[datatype]).itemsize, "the message has another length"
            ctypes.memmove(recvbuf, data, len(data))

        _call(1, call)

    def check_async_error(self):
        """Nothing fails."""

    def abort(self):
        self._server.close()

    destroy = abort

    def rank_id(self):
        return self._rank

    def size(self):
        return self._size


def module():
    """The module `cupy.cuda.nccl`."""
    made = types.ModuleType("cupy.cuda.nccl")
    for number, name in enumerate(DTYPES):
        setattr(made, f"NCCL_{name.upper()}", number)
    made.__dict__.update(
        available=True, NcclError=NcclError, NcclCommunicator=NcclCommunicator, get_unique_id=get_unique_id,
        groupStart=groupStart, groupEnd=groupEnd, get_version=lambda: 22809, get_build_version=lambda: 22809,
        NCCL_SUM=NCCL_SUM, NCCL_PROD=NCCL_PROD, NCCL_MAX=NCCL_MAX, NCCL_MIN=NCCL_MIN,
    )  # fmt: skip
    return made
