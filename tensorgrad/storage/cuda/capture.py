"""Captures of CUDA graphs that are running: what they allocate from, what they keep alive, and what they forbid.

While a stream is captured, its work is recorded instead of run. So the host cannot read results, and what it computes
happens once, not at each replay. Everything that depends on this asks `current()`, which costs the check of an empty
list as long as nothing is captured. `tensorgrad/cuda/graphs.py` begins and ends captures.

CUDA refuses "unsafe" calls, such as cudaMalloc, while a stream is captured, unless the thread says that it knows what
it does. The capturing thread does: its calls concern other streams, or new memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from typing import Any

from tensorgrad.errors import AcceleratorError
from tensorgrad.storage.cuda import State

NOT_PERMITTED = "CUDA error: operation not permitted when stream is capturing"
MODES = {"global": 0, "thread_local": 1, "relaxed": 2}  # cudaStreamCaptureMode

RUNNING: list[Capture] = []  # usually empty
PRIVATE: list[Any] = []  # CuPy's pools of graphs' memory


_SIDES: dict[int, Any] = {}  # for each GPU, a stream for work that is not recorded


class Pool:
    """Memory of graphs, from which nothing else is allocated while one of them exists.

    What a graph frees while it is captured can be allocated again by the same graph, and by later ones of the pool:
    graphs that share a pool must be replayed in the order of their captures, one after the other.

    Attributes:
        id: The token by which programs name it.
        graphs: The number of graphs that use it.
        workspaces: cuBLAS's workspaces, by stream (kernels/cuda/runtime/cublas.py).
    """

    def __init__(self, id: tuple[int, int]):
        import cupy

        self.id, self.graphs = id, 0
        self.memory = cupy.cuda.MemoryPool()
        self.workspaces: dict[int, Any] = {}
        PRIVATE.append(self.memory)

    def leave(self) -> None:
        """Ends the use by a graph. The last one releases the memory, except where tensors are left in it."""
        self.graphs -= 1
        if not self.graphs:
            self.workspaces.clear()
            POOLS.pop(self.id, None)
            release_unused()


POOLS: dict[tuple[int, int], Pool] = {}


def release_unused() -> None:
    """Returns memory that no graph uses any longer to the driver; later, if something is being captured."""
    if RUNNING:
        return
    import cupy

    used = {id(pool.memory) for pool in POOLS.values()}
    for memory in [memory for memory in PRIVATE if id(memory) not in used]:
        left = 0
        for device in range(cupy.cuda.runtime.getDeviceCount()):
            with cupy.cuda.Device(device):
                memory.free_all_blocks()
                left += memory.total_bytes()
        if not left:
            PRIVATE.remove(memory)


class Capture:
    """One capture, from `capture_begin` to `capture_end`.

    Attributes:
        kept: What must exist as long as the graph: memory that the recorded work reads or writes.
        numbers: Scalars on the GPU, by dtype and bytes.
        draws: For each generator, where the graph's random numbers begin (`Draws`).
    """

    def __init__(self, cuda, stream, pool: Pool, draws: dict):
        self.cuda, self.stream, self.pool, self.draws = cuda, stream, pool, draws
        self.kept: list[Any] = []
        self.undo: Any = None  # what ends the capture's changes
        self.relax: Any = None  # allows unsafe calls in the calling thread; returns the mode before
        self.numbers: dict[tuple, Any] = {}
        self.thread = threading.get_ident()
        device = cuda.get_device_id()
        if device not in _SIDES:
            _SIDES[device] = cuda.Stream(non_blocking=True)
        self.side = _SIDES[device]

    @contextlib.contextmanager
    def unrecorded(self):
        """A context in which work is done at once instead of being recorded. It is finished when the context ends."""
        before = self.cuda.get_current_stream()
        self.side.use()  # as a context, CuPy's stream would end with the default one
        try:
            yield
        finally:
            before.use()
        self.side.synchronize()

    def constant(self, array):
        """Returns a host array on the GPU, copied there now: for what kernels read at each replay."""
        import cupy

        with self.unrecorded():
            made = cupy.asarray(array)
        self.kept.append(made)
        return made

    def number(self, value):
        """Returns a NumPy scalar on the GPU."""
        key = value.dtype, value.tobytes()
        if key not in self.numbers:
            self.numbers[key] = self.constant(value)
        return self.numbers[key]


def current() -> Capture | None:
    """Returns the capture that the current stream belongs to, or None."""
    if not RUNNING:
        return None
    cuda = RUNNING[-1].cuda
    stream = cuda.get_current_stream().ptr
    for capture in RUNNING:
        if capture.stream.ptr == stream:
            return capture
    if stream in (0, 1, 2) or not cuda.runtime.streamIsCapturing(stream):
        return None
    # A stream that waits for a captured one, and so is captured with it.
    own = [capture for capture in RUNNING if capture.thread == threading.get_ident()]
    return (own or RUNNING)[-1]


def refuse(what: str) -> None:
    """Raises: AcceleratorError if the current stream is being captured; `what` names what cannot be captured."""
    if RUNNING and current() is not None:
        raise AcceleratorError(f"{NOT_PERMITTED}\n({what})")


def explain(name: str, error: Exception) -> None:
    """Raises: AcceleratorError if an op (`name`) failed because of the capture of the current stream.

    Such errors come from CuPy, where an op reads values on the host, or copies from it.
    """
    said = str(error)
    if said.startswith(NOT_PERMITTED):
        if f"({name}: " in said:
            raise error
        raise AcceleratorError(said.replace("\n(", f"\n({name}: ", 1)) from None
    if "captur" in said.lower() and not isinstance(error, AcceleratorError) and current() is not None:
        raise AcceleratorError(f"{NOT_PERMITTED}\n({name}: {said})") from error


def place_of_work() -> Any:
    """Returns the calling thread's GPU and stream, for a thread that continues its work; None after a fork."""
    if State.forked:
        return None
    import cupy

    return cupy.cuda.Device(), cupy.cuda.get_current_stream()


def work_at(place: Any) -> None:
    """Continues another thread's work: on its GPU, in its stream, and in its capture."""
    if place is None:
        return
    device, stream = place
    device.use()
    stream.use()
    found = current()
    if found is not None:
        found.relax()


# --- the driver's mode of this thread --------------------------------------------------------------------------------


def exchange_mode(driver, mode: int) -> int:
    """Sets how the calling thread treats unsafe calls while a stream is captured; returns the mode before."""
    value = ctypes.c_int(mode)
    status = driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(value))
    if status:
        raise AcceleratorError(f"CUDA error: cuThreadExchangeStreamCaptureMode: status {status}")
    return value.value
