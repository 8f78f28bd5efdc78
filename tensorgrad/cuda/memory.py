"""`torch.cuda`'s memory: how much is in use, reserved and free; and releasing what is not needed.

CuPy's pool manages it, for tensors and for CuPy's own arrays. Everything is 0 without a GPU.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import Any

from tensorgrad.cuda.devices import index_of, is_initialized, module, module_or_none
from tensorgrad.cuda.memory_history import _dump_snapshot as _dump_snapshot
from tensorgrad.cuda.memory_history import _record_memory_history as _record_memory_history
from tensorgrad.cuda.memory_history import _snapshot as _snapshot
from tensorgrad.errors import AcceleratorError, warn
from tensorgrad.storage.cuda import capture, memory
from tensorgrad.storage.cuda.memory import OutOfMemoryError

__all__ = [
    "AcceleratorError", "OutOfMemoryError", "caching_allocator_alloc", "caching_allocator_delete", "device_memory_used",
    "empty_cache", "get_allocator_backend", "get_per_process_memory_fraction", "host_memory_stats", "ipc_collect",
    "list_gpu_processes", "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info",
    "memory_allocated", "memory_cached", "memory_reserved", "memory_stats", "memory_stats_as_nested_dict",
    "memory_summary", "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "reset_peak_memory_stats", "set_per_process_memory_fraction",
]  # fmt: skip


@contextlib.contextmanager
def _pool(device=None):
    """CuPy's pool, with a GPU as the current one, and its statistics."""
    cupy = module()
    index = index_of(device)
    with cupy.cuda.Device(index):
        yield cupy.get_default_memory_pool(), memory.COUNTS[index]


def memory_stats_as_nested_dict(device=None) -> dict[str, Any]:
    """Returns memory statistics under PyTorch's names, as nested dictionaries; empty without a GPU.

    >>> used = torch.cuda.memory_stats_as_nested_dict().get("allocated_bytes", {})
    """
    if not is_initialized():
        return {}
    memory.release_finished()
    with _pool(device) as (pool, count):
        used, held, blocks = count.settle(pool), memory.reserved(pool), int(pool.n_free_blocks())
    given = count.given - count.forgotten
    in_use = {"current": used, "peak": count.peak, "allocated": given, "freed": given - used}
    reserved = {"current": held, "peak": count.reserved_peak}
    return {
        "active_bytes": {"all": dict(in_use)},
        "allocated_bytes": {"all": in_use},
        "allocation": {"all": {"allocated": count.requests}},
        "inactive_split": {"all": {"current": blocks}},
        "inactive_split_bytes": {"all": {"current": held - used}},
        "num_ooms": count.failures,
        "reserved_bytes": {"all": reserved},
    }


def memory_stats(device=None) -> OrderedDict[str, Any]:
    """Returns memory statistics under PyTorch's names; empty without a GPU.

    `allocated_bytes.all` is what tensors occupy (`current`, `peak`, and the sums `allocated` and `freed`),
    `reserved_bytes.all` what the process has reserved, `inactive_split_bytes.all` what is reserved but unused,
    `allocation.all.allocated` the number of allocations, `num_ooms` the number of those that failed.

    >>> used = torch.cuda.memory_stats().get("allocated_bytes.all.current", 0)
    """
    flat: list[tuple[str, Any]] = []

    def walk(prefix: str, value) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(f"{prefix}.{name}" if prefix else name, inner)
        else:
            flat.append((prefix, value))

    walk("", memory_stats_as_nested_dict(device))
    return OrderedDict(sorted(flat))


def memory_allocated(device=None) -> int:
    """Returns the bytes that tensors occupy on the GPU; 0 without one.

    >>> megabytes = torch.cuda.memory_allocated() / 2**20
    """
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device=None) -> int:
    """Returns the peak of `memory_allocated` since the start, or since `reset_peak_memory_stats`.

    >>> megabytes = torch.cuda.max_memory_allocated() / 2**20
    """
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device=None) -> int:
    """Returns the bytes that the process has reserved on the GPU, used or not; 0 without one.

    >>> megabytes = torch.cuda.memory_reserved() / 2**20
    """
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device=None) -> int:
    """Returns the peak of `memory_reserved` since the start, or since `reset_peak_memory_stats`.

    >>> megabytes = torch.cuda.max_memory_reserved() / 2**20
    """
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


def memory_cached(device=None) -> int:
    """The former name of `memory_reserved`.

    >>> megabytes = torch.cuda.memory_reserved() / 2**20
    """
    warn("`torch.cuda.memory_cached` has been renamed to `torch.cuda.memory_reserved`", FutureWarning)
    return memory_reserved(device)


def max_memory_cached(device=None) -> int:
    """The former name of `max_memory_reserved`.

    >>> megabytes = torch.cuda.max_memory_reserved() / 2**20
    """
    warn("`torch.cuda.max_memory_cached` has been renamed to `torch.cuda.max_memory_reserved`", FutureWarning)
    return max_memory_reserved(device)


def reset_peak_memory_stats(device=None) -> None:
    """Resets the peaks to what is in use now.

    >>> torch.cuda.reset_peak_memory_stats()
    """
    if is_initialized():
        with _pool(device) as (pool, count):
            count.reset_peak(pool)


def reset_accumulated_memory_stats(device=None) -> None:
    """Resets the statistics that accumulate over time (`allocated`, `freed`, `num_ooms`).

    >>> torch.cuda.reset_accumulated_memory_stats()
    """
    if is_initialized():
        memory.COUNTS[index_of(device)].reset_sums()


def reset_max_memory_allocated(device=None) -> None:
    """The former name of `reset_peak_memory_stats`.

    >>> torch.cuda.reset_peak_memory_stats()
    """
    warn(
        "torch.cuda.reset_max_memory_allocated now calls torch.cuda.reset_peak_memory_stats, which resets /all/ peak "
        "memory stats.",
        FutureWarning,
    )
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device=None) -> None:
    """The former name of `reset_peak_memory_stats`.

    >>> torch.cuda.reset_peak_memory_stats()
    """
    warn(
        "torch.cuda.reset_max_memory_cached now calls torch.cuda.reset_peak_memory_stats, which resets /all/ peak "
        "memory stats.",
        FutureWarning,
    )
    reset_peak_memory_stats(device)


def memory_summary(device=None, abbreviated: bool = False) -> str:
    """Returns a table of the memory in use and reserved, and of the peaks.

    >>> "reserved" in torch.cuda.memory_summary()
    True
    """
    stats = memory_stats(device)
    number = index_of(device) if stats else 0
    rule = "-" * 59
    lines = [
        f"CUDA memory of GPU {number}; out of memory {stats.get('num_ooms', 0)} times",
        rule,
        f"{'':<21} | {'now':>16} | {'at most':>16}",
        rule,
    ]
    rows = [("allocated_bytes", "Allocated memory"), ("reserved_bytes", "GPU reserved memory")]
    if not abbreviated:
        rows.append(("inactive_split_bytes", "Reserved, not in use"))
    for key, name in rows:
        now, peak = (stats.get(f"{key}.all.{metric}", 0) for metric in ("current", "peak"))
        at_most = f"{peak:>16,}" if key != "inactive_split_bytes" else " " * 16
        lines.append(f"{name:<21} | {now:>16,} | {at_most}")
    return "\n".join([*lines, rule, "in bytes"])


def mem_get_info(device=None) -> tuple[int, int]:
    """Returns (free, total) memory of a GPU in bytes, across all processes.

    Raises:
        RuntimeError: If there is none.

    >>> if torch.cuda.is_available():
    ...     free, total = torch.cuda.mem_get_info()
    """
    cuda = module().cuda
    with cuda.Device(index_of(device)):
        free, total = cuda.runtime.memGetInfo()
    return int(free), int(total)


def device_memory_used(device=None) -> int:
    """Returns the bytes in use on a GPU by all processes.

    Raises:
        RuntimeError: If there is none.

    >>> if torch.cuda.is_available():
    ...     used = torch.cuda.device_memory_used()
    """
    free, total = mem_get_info(device)
    return total - free


def empty_cache() -> None:
    """Returns unused memory of all GPUs to the driver.

    >>> torch.cuda.empty_cache()
    """
    if is_initialized():
        memory.release_finished()
        capture.release_unused()
        memory.share_limits(module())
        for index in range(len(memory.COUNTS)):
            with _pool(index) as (pool, count):
                count.settle(pool)
                pool.free_all_blocks()


def set_per_process_memory_fraction(fraction: float, device=None) -> None:
    """Limits the fraction of a GPU's memory that this process may use; exceeding it raises OutOfMemoryError.

    Raises:
        TypeError or ValueError: If it is not a float from 0 to 1.
        RuntimeError: If there is no GPU.

    >>> if torch.cuda.is_available():
    ...     torch.cuda.set_per_process_memory_fraction(1.0)
    """
    module()
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    total = mem_get_info(device)[1]
    memory.LIMITS[index_of(device)] = 0 if fraction == 1 else max(1, int(fraction * total))
    memory.share_limits(module())


def get_per_process_memory_fraction(device=None) -> float:
    """Returns the limit set by `set_per_process_memory_fraction`.

    Raises:
        RuntimeError: If there is no GPU.

    >>> if torch.cuda.is_available():
    ...     part = torch.cuda.get_per_process_memory_fraction()
    """
    with _pool(device) as (pool, _):
        limit = memory.LIMITS.get(index_of(device), pool.get_limit())
    return limit / mem_get_info(device)[1] if limit else 1.0


_RAW: dict[int, Any] = {}  # allocations of `caching_allocator_alloc`: address -> CuPy's memory


def caching_allocator_alloc(size: int, device=None, stream=None) -> int:
    """Allocates `size` bytes on a GPU for other libraries and returns the address; see `caching_allocator_delete`.

    Raises:
        RuntimeError: If there is no GPU.
        TypeError: If `stream` is not a stream.

    >>> if torch.cuda.is_available():
    ...     torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(512))
    """
    from tensorgrad.cuda.streams import ExternalStream, Stream, StreamContext

    cupy = module()
    if isinstance(stream, int):
        stream = ExternalStream(stream, device)
    if stream is not None and not isinstance(stream, Stream):
        raise TypeError(
            "Invalid type for stream argument, must be `torch.cuda.Stream` or `int` representing a pointer to an "
            "existing stream"
        )
    with cupy.cuda.Device(index_of(device)), StreamContext(stream):
        memory = cupy.cuda.alloc(size)
    _RAW[memory.ptr] = memory
    return memory.ptr


def caching_allocator_delete(mem_ptr: int) -> None:
    """Frees memory allocated by `caching_allocator_alloc`.

    Raises:
        KeyError: For any other address.

    >>> if torch.cuda.is_available():
    ...     torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(512))
    """
    del _RAW[mem_ptr]


def get_allocator_backend() -> str:
    """Returns the name of the allocator: CuPy's pool.

    >>> torch.cuda.get_allocator_backend()
    'cupy'
    """
    return "cupy"


def host_memory_stats() -> OrderedDict[str, Any]:
    """Returns statistics of pinned memory: the number of free blocks kept for reuse; empty without a GPU.

    >>> blocks = torch.cuda.host_memory_stats().get("allocations.free", 0)
    """
    cupy = module_or_none()
    if cupy is None:
        return OrderedDict()
    return OrderedDict({"allocations.free": int(cupy.get_default_pinned_memory_pool().n_free_blocks())})


def list_gpu_processes(device=None) -> str:
    """Would list the processes that use a GPU.

    Raises:
        NotImplementedError: Always.

    >>> torch.cuda.list_gpu_processes()
    Traceback (most recent call last):
        ...
    NotImplementedError: torch.cuda.list_gpu_processes: CUDA does not provide this; use nvidia-smi
    """
    raise NotImplementedError("torch.cuda.list_gpu_processes: CUDA does not provide this; use nvidia-smi")


def ipc_collect() -> None:
    """Accepted for compatibility: no memory is shared between processes.

    >>> torch.cuda.ipc_collect()
    """
