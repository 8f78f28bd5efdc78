"""`torch.cuda`: questions about NVIDIA GPUs, and their memory and random numbers.

Without CuPy or a GPU all questions have answers (`is_available()` is False, `device_count()` is 0, memory is 0) and
settings are accepted; what needs a GPU says what is missing.
"""

from __future__ import annotations

import contextlib
from typing import Any

from tensorgrad import devices, generator
from tensorgrad.tensor import Tensor

_LAZY = ("amp",)


def _cupy() -> Any:
    """CuPy, if it is installed and finds a GPU. Raises: RuntimeError that says what is missing."""
    from tensorgrad.storage.stubs import storage_class

    return storage_class(devices.device("cuda")).xp


def _cupy_or_none() -> Any:
    try:
        return _cupy()
    except RuntimeError:
        return None


def _index(device=None) -> int:
    """The number of the device that is meant: the current one for None."""
    if device is None:
        return int(_cupy().cuda.Device().id)
    if isinstance(device, int):
        return device
    found = devices.device(device)
    if found.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {found}")
    return current_device() if found.index is None else found.index


# --- what there is ---------------------------------------------------------------------------------------------------


def is_available() -> bool:
    """Whether tensors can be put on a GPU.

    >>> import tensorgrad as torch
    >>> device = "cuda" if torch.cuda.is_available() else "cpu"
    """
    return _cupy_or_none() is not None


def device_count() -> int:
    """The number of GPUs that can be used.

    >>> import tensorgrad as torch
    >>> for index in range(torch.cuda.device_count()):
    ...     _ = torch.cuda.get_device_name(index)
    """
    cupy = _cupy_or_none()
    return 0 if cupy is None else int(cupy.cuda.runtime.getDeviceCount())


def is_initialized() -> bool:
    """Whether a GPU is in use by this process.

    >>> import tensorgrad as torch
    >>> torch.cuda.is_initialized() and not torch.cuda.is_available()
    False
    """
    from tensorgrad.storage.stubs import BY_DEVICE

    return "cuda" in BY_DEVICE


def init() -> None:
    """Prepares the GPU. Raises: RuntimeError without one.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     torch.cuda.init()
    """
    _cupy()


def current_device() -> int:
    """The number of the current GPU. Raises: RuntimeError without one.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     index = torch.cuda.current_device()
    """
    return _index()


def set_device(device) -> None:
    """Makes a GPU the current one. Raises: RuntimeError without one.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     torch.cuda.set_device(0)
    """
    _cupy().cuda.Device(_index(device)).use()


def get_device_name(device=None) -> str:
    """The name of a GPU. Raises: RuntimeError without one.

    >>> import tensorgrad as torch
    >>> name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    """
    name = _cupy().cuda.runtime.getDeviceProperties(_index(device))["name"]
    return name.decode() if isinstance(name, bytes) else str(name)


def get_device_capability(device=None) -> tuple[int, int]:
    """The (major, minor) compute capability of a GPU. Raises: RuntimeError without one.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     major, minor = torch.cuda.get_device_capability()
    """
    properties = _cupy().cuda.runtime.getDeviceProperties(_index(device))
    return int(properties["major"]), int(properties["minor"])


class _Properties:
    """What `get_device_properties` tells: name, total_memory (bytes), major, minor, multi_processor_count."""

    def __init__(self, properties: dict):
        name = properties["name"]
        self.name = name.decode() if isinstance(name, bytes) else str(name)
        self.total_memory = int(properties["totalGlobalMem"])
        self.major, self.minor = int(properties["major"]), int(properties["minor"])
        self.multi_processor_count = int(properties["multiProcessorCount"])

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"_CudaDeviceProperties({fields})"


def get_device_properties(device=None) -> _Properties:
    """Name, memory and size of a GPU. Raises: RuntimeError without one.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     gigabytes = torch.cuda.get_device_properties().total_memory / 2**30
    """
    return _Properties(_cupy().cuda.runtime.getDeviceProperties(_index(device)))


def get_arch_list() -> list[str]:
    """The architectures that kernels were compiled for: none beforehand, they are compiled when they are needed.

    >>> import tensorgrad as torch
    >>> torch.cuda.get_arch_list()
    []
    """
    return []


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the GPU computes with bfloat16.

    >>> import tensorgrad as torch
    >>> dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    """
    return is_available() and get_device_capability()[0] >= (7 if including_emulation else 8)


def is_current_stream_capturing() -> bool:
    """Whether a graph of kernels is being recorded: never here.

    >>> import tensorgrad as torch
    >>> torch.cuda.is_current_stream_capturing()
    False
    """
    return False


class device(contextlib.AbstractContextManager):
    """A `with` block in which another GPU is the current one. Does nothing for a negative number.

    >>> import tensorgrad as torch
    >>> with torch.cuda.device(0 if torch.cuda.is_available() else -1):
    ...     x = torch.ones(2)
    """

    def __init__(self, device):
        self.wanted = device if isinstance(device, int) else _index(device)

    def __enter__(self):
        self.before = current_device() if self.wanted >= 0 and is_available() else -1
        if self.before >= 0:
            set_device(self.wanted)
        return self

    def __exit__(self, *exception):
        if self.before >= 0:
            set_device(self.before)


# --- time ------------------------------------------------------------------------------------------------------------


def synchronize(device=None) -> None:
    """Waits until the GPU has done everything it was given. Raises: RuntimeError without one.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     torch.cuda.synchronize()  # before the clock is read
    """
    cupy = _cupy()
    with cupy.cuda.Device(_index(device)):
        cupy.cuda.runtime.deviceSynchronize()


class Stream:
    """A queue of work on the GPU. Raises: RuntimeError without one.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     side = torch.cuda.Stream()
    ...     with torch.cuda.stream(side):
    ...         x = torch.ones(2, device="cuda")
    ...     side.synchronize()
    """

    def __init__(self, device=None, priority: int = 0, **options):
        self.stream = options.get("stream") or _cupy().cuda.Stream(non_blocking=True)

    def synchronize(self) -> None:
        """Waits until the queue is empty."""
        self.stream.synchronize()

    def wait_stream(self, stream: Stream) -> None:
        """What is queued from now on waits for everything in another queue."""
        self.stream.wait_event(stream.stream.record())


class Event:
    """A mark in a queue, to measure time or to wait for. Raises: RuntimeError without a GPU.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    ...     start.record()
    ...     x = torch.ones(2, device="cuda") * 2
    ...     end.record()
    ...     end.synchronize()
    ...     milliseconds = start.elapsed_time(end)
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        self.event = _cupy().cuda.Event(block=blocking, disable_timing=not enable_timing)

    def record(self, stream: Stream | None = None) -> None:
        """Puts the mark into a queue."""
        self.event.record(None if stream is None else stream.stream)

    def synchronize(self) -> None:
        """Waits until the mark is reached."""
        self.event.synchronize()

    def query(self) -> bool:
        """Whether it has been reached."""
        return bool(self.event.done)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this mark to another."""
        return float(_cupy().cuda.get_elapsed_time(self.event, end_event.event))


def current_stream(device=None) -> Stream:
    """The queue that work goes to. Raises: RuntimeError without a GPU.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     torch.cuda.current_stream().synchronize()
    """
    return Stream(stream=_cupy().cuda.get_current_stream())


def default_stream(device=None) -> Stream:
    """The queue that work goes to unless told otherwise. Raises: RuntimeError without a GPU.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     torch.cuda.default_stream().synchronize()
    """
    return Stream(stream=_cupy().cuda.Stream.null)


@contextlib.contextmanager
def stream(stream: Stream | None):
    """A `with` block whose work goes to another queue; None changes nothing.

    >>> import tensorgrad as torch
    >>> side = torch.cuda.Stream() if torch.cuda.is_available() else None
    >>> with torch.cuda.stream(side):
    ...     x = torch.ones(2)
    """
    if stream is None:
        yield
        return
    with stream.stream:
        yield


# --- memory ----------------------------------------------------------------------------------------------------------


def _pool(device=None) -> Any:
    cupy = _cupy_or_none()
    if cupy is None:
        return None
    with cupy.cuda.Device(_index(device)):
        return cupy.get_default_memory_pool()


def memory_allocated(device=None) -> int:
    """Bytes that tensors occupy on the GPU; 0 without one.

    >>> import tensorgrad as torch
    >>> megabytes = torch.cuda.memory_allocated() / 2**20
    """
    pool = _pool(device)
    return 0 if pool is None else int(pool.used_bytes())


def memory_reserved(device=None) -> int:
    """Bytes that the process holds on the GPU, used or not; 0 without one.

    >>> import tensorgrad as torch
    >>> megabytes = torch.cuda.memory_reserved() / 2**20
    """
    pool = _pool(device)
    return 0 if pool is None else int(pool.total_bytes())


max_memory_reserved = memory_cached = max_memory_cached = memory_reserved


def max_memory_allocated(device=None) -> int:
    """The most bytes that the process held. (CuPy keeps no count of the peak in use: this is what it has reserved.)

    >>> import tensorgrad as torch
    >>> megabytes = torch.cuda.max_memory_allocated() / 2**20
    """
    return memory_reserved(device)


def reset_peak_memory_stats(device=None) -> None:
    """Gives unused memory back, so that what is reserved starts from what is in use.

    >>> import tensorgrad as torch
    >>> torch.cuda.reset_peak_memory_stats()
    """
    empty_cache()


reset_max_memory_allocated = reset_peak_memory_stats


def memory_stats(device=None) -> dict[str, int]:
    """Bytes in use and reserved, under PyTorch's names; empty without a GPU.

    >>> import tensorgrad as torch
    >>> used = torch.cuda.memory_stats().get("allocated_bytes.all.current", 0)
    """
    if not is_available():
        return {}
    used, held = memory_allocated(device), memory_reserved(device)
    return {"allocated_bytes.all.current": used, "reserved_bytes.all.current": held}


def memory_summary(device=None, abbreviated: bool = False) -> str:
    """What is in use and reserved, in bytes, as a line of text.

    >>> import tensorgrad as torch
    >>> "reserved" in torch.cuda.memory_summary()
    True
    """
    return f"allocated: {memory_allocated(device):,} bytes, reserved: {memory_reserved(device):,} bytes"


def mem_get_info(device=None) -> tuple[int, int]:
    """(free, total) bytes of a GPU. Raises: RuntimeError without one.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     free, total = torch.cuda.mem_get_info()
    """
    cupy = _cupy()
    with cupy.cuda.Device(_index(device)):
        free, total = cupy.cuda.runtime.memGetInfo()
    return int(free), int(total)


def empty_cache() -> None:
    """Gives memory that no tensor occupies back to the driver.

    >>> import tensorgrad as torch
    >>> torch.cuda.empty_cache()
    """
    pool = _pool()
    if pool is not None:
        pool.free_all_blocks()


def ipc_collect() -> None:
    """Accepted for PyTorch's sake: no memory is shared between processes.

    >>> import tensorgrad as torch
    >>> torch.cuda.ipc_collect()
    """


class OutOfMemoryError(RuntimeError):
    """The GPU has no room for a tensor.

    >>> import tensorgrad as torch
    >>> def largest_batch(run, size):
    ...     while size > 1:
    ...         try:
    ...             return run(size)
    ...         except torch.cuda.OutOfMemoryError:
    ...             size //= 2
    >>> largest_batch(lambda size: size, 64)
    64
    """


# --- random numbers --------------------------------------------------------------------------------------------------
# Random numbers are drawn on the host from one generator, for every device: so that is what these seed.


def manual_seed(seed: int) -> None:
    """Seeds the GPU's random numbers. Without a GPU nothing happens, as in PyTorch.

    >>> import tensorgrad as torch
    >>> torch.cuda.manual_seed(0)
    """
    if is_available():
        generator.manual_seed(seed)


manual_seed_all = manual_seed


def seed() -> None:
    """Seeds the GPU's random numbers anew from the system.

    >>> import tensorgrad as torch
    >>> torch.cuda.seed()
    """
    if is_available():
        generator.seed()


seed_all = seed


def initial_seed() -> int:
    """The seed of the current GPU's random numbers. Raises: RuntimeError without one.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     number = torch.cuda.initial_seed()
    """
    _cupy()
    return generator.initial_seed()


def get_rng_state(device="cuda") -> Tensor:
    """The state of the GPU's random numbers. Raises: RuntimeError without one.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     state = torch.cuda.get_rng_state()
    """
    from tensorgrad import random

    _cupy()
    return random.get_rng_state()


def get_rng_state_all() -> list[Tensor]:
    """The state for every GPU: an empty list without one.

    >>> import tensorgrad as torch
    >>> len(torch.cuda.get_rng_state_all()) == torch.cuda.device_count()
    True
    """
    return [get_rng_state()] * device_count() if is_available() else []


def set_rng_state(new_state: Tensor, device="cuda") -> None:
    """Continues from a state. Without a GPU nothing happens, as in PyTorch.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     torch.cuda.set_rng_state(torch.cuda.get_rng_state())
    """
    from tensorgrad import random

    if is_available():
        random.set_rng_state(new_state)


def set_rng_state_all(new_states) -> None:
    """Continues from the states of all GPUs.

    >>> import tensorgrad as torch
    >>> torch.cuda.set_rng_state_all(torch.cuda.get_rng_state_all())
    """
    for state in new_states:
        set_rng_state(state)


def __getattr__(name: str):
    if name in _LAZY:
        import importlib

        return importlib.import_module(f"tensorgrad.cuda.{name}")
    if name.endswith("Tensor"):  # torch.cuda.FloatTensor
        from tensorgrad.tensor_types import types

        found = types("cuda").get(name)
        if found is not None:
            return found
    hint = "" if name.startswith("_") else " (what PyTorch has under this name is not implemented)"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
