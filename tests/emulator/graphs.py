"""CUDA graphs of the emulated GPU: what a stream is given while it is captured can be run again.

A real GPU runs nothing of a capture. Here all is run, since shapes and values of what follows depend on it, and undone
when the capture ends: memory is again as it was, and what was allocated meanwhile is garbage. A replay runs the same
functions on the same memory; it fails if one of them reads or writes memory that was freed.

As CUDA, it refuses what cannot be captured, which ends the capture as invalid; as CuPy, what its methods refuse first.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading

import numpy as np

from tests.emulator import runtime
from tests.emulator.runtime import CURRENT, LIVE, CUDARuntimeError, _pinned

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
CAPTURES: list[Capture] = []  # those that are running
GRAPHS: dict[int, list] = {}
EXECUTABLES: dict[int, list] = {}
_handles = itertools.count(0x6000_0000, 16)


def refused(status: int) -> CUDARuntimeError:
    words = {
        900: "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing",
        901: "cudaErrorStreamCaptureInvalidated: operation failed due to a previous error during capture",
        903: "cudaErrorStreamCaptureUnmatched: stream capture has no matching begin",
        904: "cudaErrorStreamCaptureUnjoined: capturing stream has unjoined work",
        908: "cudaErrorStreamCaptureWrongThread: attempt to terminate a thread-local capture from another thread",
    }
    return CUDARuntimeError(status, words[status])


class Capture:
    """A capture that is running."""

    def __init__(self, stream: int, mode: int):
        self.stream, self.mode, self.thread = stream, mode, threading.get_ident()
        self.streams = {stream: False}  # those that are captured: whether the first one has to wait for them
        self.work: list = []
        self.valid = True
        self.before = {at: ctypes.string_at(at, size) for at, size in (*LIVE.items(), *_pinned.items()) if size}
        self.outside: set[int] = set()  # memory for work that is not captured

    def undo(self):
        """Undoes what was run."""
        for at, size in (*LIVE.items(), *_pinned.items()):
            if at in self.outside:
                continue
            if len(self.before.get(at, b"")) == size:
                ctypes.memmove(at, self.before[at], size)
            else:
                ctypes.memset(at, 0xFF, size)


def capture_of(stream: int) -> Capture | None:
    return next((capture for capture in CAPTURES if stream in capture.streams), None)


def current() -> Capture | None:
    """The capture that the current stream belongs to."""
    if not CAPTURES:
        return None
    return capture_of(here())


def here() -> int:
    """The current stream."""
    from tests.emulator.streams import get_current_stream

    return get_current_stream().ptr


def invalid(capture: Capture) -> CUDARuntimeError:
    capture.valid = False
    return refused(900)


def check_host_waits(words: str) -> None:
    """Raises: RuntimeError, as CuPy's methods do, where the current stream is captured."""
    if current() is not None:
        raise RuntimeError(f"the current stream is capturing, so {words} are disallowed")


def check_stream(stream: int) -> None:
    """Raises: CUDARuntimeError for what no stream allows while it is captured, such as waiting for it."""
    capture = capture_of(stream)
    if capture is not None:
        raise invalid(capture)


def check_sorted() -> None:
    """Raises: CUDARuntimeError where Thrust would wait for the current stream."""
    check_stream(here())


def check_device() -> None:
    """Raises: CUDARuntimeError where the host would wait for a whole device with a captured stream."""
    if CAPTURES:
        raise invalid(CAPTURES[-1])


def check_unsafe() -> None:
    """Raises: CUDARuntimeError for calls such as cudaMalloc during a capture, unless the thread is relaxed."""
    for capture in CAPTURES:
        own = capture.thread == threading.get_ident()
        forbids = capture.mode == GLOBAL or (own and capture.mode == THREAD_LOCAL)
        if forbids and getattr(CURRENT, "capture_mode", GLOBAL) != RELAXED:
            raise invalid(capture)


def check_library() -> None:
    """Raises: NotImplementedError, as CuPy's calls of cuBLAS, cuSOLVER and cuFFT's kind do in a capture."""
    if current() is not None:
        raise NotImplementedError("calling this API during stream capture is currently unsupported")


# --- recording -------------------------------------------------------------------------------------------------------


def launch(run, stream: int | None = None):
    """Runs a piece of work, and records it where its stream is captured."""
    made = run()
    if CAPTURES and not getattr(CURRENT, "recording", 0):
        capture = current() if stream is None else capture_of(stream)
        if capture is not None:
            _add(capture, run)
    return made


def _add(capture: Capture, run):
    if here() in capture.streams and here() != capture.stream:
        capture.streams[here()] = True
    capture.work.append(run)


def recorded(function, only_copies: bool = False):
    """A function of device arrays that is recorded while the current stream is captured.

    `only_copies`: it may return views of its arguments, which is not work.
    """

    @functools.wraps(function)
    def call(*args, **kwargs):
        capture = current() if CAPTURES and not getattr(CURRENT, "recording", 0) else None
        if capture is None:
            return function(*args, **kwargs)
        CURRENT.recording = 1
        try:
            result = function(*args, **kwargs)
        finally:
            CURRENT.recording = 0
        given = list(arrays_in((args, kwargs)))
        made = list(arrays_in(result))
        if not (only_copies and all(any(a._memory is b._memory for b in given) for a in made)):
            _add(capture, _Call(function, args, kwargs, result))
        return result

    return call


def arrays_in(value):
    """All device arrays in nested arguments or results."""
    from tests.emulator.arrays import ndarray

    if isinstance(value, ndarray):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from arrays_in(each)
    elif isinstance(value, dict):
        yield from arrays_in(list(value.values()))


class Borrowed:
    """Memory as a graph knows it: an address. The graph keeps nothing alive."""

    def __init__(self, memory):
        self.ptr, self.size, self.bytes = memory.ptr, memory.size, memory.bytes
        self.device_id, self.device = memory.device_id, memory.device

    def check(self):
        at, end = self.ptr, self.ptr + self.size
        live = LIVE.copy().items()
        if self.size and not any(start <= at and end <= start + size for start, size in live):
            raise RuntimeError("emulator: a graph uses memory that was freed")


def borrowed(value):
    """Arguments or results, with device arrays that do not keep their memory alive."""
    from tests.emulator.arrays import _made, ndarray

    if isinstance(value, ndarray):
        return _made(value._host, Borrowed(value._memory))
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(borrowed, value))
    if isinstance(value, tuple | list):
        return type(value)([borrowed(v) for v in value])
    if isinstance(value, dict):
        return {key: borrowed(v) for key, v in value.items()}
    return value


class _Call:
    """A call of a function of arrays, to be repeated on the same memory."""

    def __init__(self, function, args, kwargs, result):
        self.function = function
        self.args, self.kwargs, self.result = borrowed(args), borrowed(kwargs), borrowed(result)

    def __call__(self):
        for array in arrays_in((self.args, self.kwargs, self.result)):
            array._memory.check()
        with runtime.Device(next((a._memory.device_id for a in arrays_in((self.args, self.result))), 0)):
            again = self.function(*self.args, **self.kwargs)
        for old, new in zip(arrays_in(self.result), arrays_in(again), strict=True):
            if old._host.ctypes.data != new._host.ctypes.data:
                old._host[...] = new._host


# --- cupy.cuda.runtime -----------------------------------------------------------------------------------------------


def streamBeginCapture(stream, mode=RELAXED):
    if stream in (0, 1) or capture_of(stream) is not None:
        raise refused(900)
    CAPTURES.append(Capture(stream, mode))


def streamEndCapture(stream):
    capture = capture_of(stream)
    if capture is None or capture.stream != stream:
        raise refused(903)
    if capture.mode != RELAXED and capture.thread != threading.get_ident():
        raise refused(908)
    CAPTURES.remove(capture)
    capture.undo()
    if not capture.valid:
        raise refused(901)
    if any(capture.streams.values()):
        raise refused(904)
    handle = next(_handles)
    GRAPHS[handle] = capture.work
    return handle


def streamIsCapturing(stream):
    capture = capture_of(stream)
    if capture is not None and not capture.valid:
        raise RuntimeError("the stream was capturing, but an error has invalidated the capture sequence")
    return capture is not None


def graphInstantiate(graph):
    check_unsafe()
    handle = next(_handles)
    EXECUTABLES[handle] = list(GRAPHS[graph])
    return handle


def graphLaunch(executable, stream):
    work = EXECUTABLES[executable]

    def run():
        for each in work:
            each()

    launch(run, stream)


def graphUpload(executable, stream):
    assert executable in EXECUTABLES


def graphDestroy(graph):
    del GRAPHS[graph]


def graphExecDestroy(executable):
    del EXECUTABLES[executable]


def graphDebugDotPrint(graph, path, flags):
    nodes = "\n".join(f'  "node_{i}"' for i in range(len(GRAPHS[graph])))
    with open(path, "w") as file:
        file.write(f"digraph dot {{\n{nodes}\n}}\n")


TO_DEVICE, TO_HOST = 1, 2  # cudaMemcpyKind


def memcpyAsync(target, source, size, kind, stream):
    """Copies between the device and memory of the host, which must be pinned in a capture."""
    at = source if kind == TO_DEVICE else target
    pinned = any(start <= at and at + size <= start + length for start, length in _pinned.items())
    capture = capture_of(stream)
    if capture is not None and not pinned:
        raise invalid(capture)

    def run():
        live = [*LIVE.copy().items(), *_pinned.copy().items()]
        for place in (source, target):
            if capture is not None and not any(a <= place and place + size <= a + n for a, n in live):
                raise RuntimeError("emulator: a graph copies to or from memory that was freed")
        ctypes.memmove(target, source, size)

    launch(run, stream)


class Driver:
    """The functions of the driver's library."""

    @staticmethod
    def cuThreadExchangeStreamCaptureMode(mode):
        value = mode._obj
        before = getattr(CURRENT, "capture_mode", GLOBAL)
        CURRENT.capture_mode, value.value = value.value, before
        return 0

    @staticmethod
    def cuGraphGetNodes(graph, nodes, count):
        assert nodes is None
        count._obj.value = len(GRAPHS[graph.value])
        return 0


RUNTIME = {
    function.__name__: function
    for function in (
        streamBeginCapture, streamEndCapture, streamIsCapturing, graphInstantiate, graphLaunch, graphUpload,
        graphDestroy, graphExecDestroy, graphDebugDotPrint, memcpyAsync,
    )
} | {"memcpyHostToDevice": TO_DEVICE, "memcpyDeviceToHost": TO_HOST, "streamCaptureModeGlobal": GLOBAL,
     "streamCaptureModeThreadLocal": THREAD_LOCAL, "streamCaptureModeRelaxed": RELAXED}  # fmt: skip
