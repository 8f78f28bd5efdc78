"""`torch.cuda`'s devices: the number of GPUs, the current one, and their properties."""

from __future__ import annotations

import uuid
from functools import cache
from typing import Any, ClassVar

from tensorgrad import devices
from tensorgrad.storage.stubs import BY_DEVICE, storage_class

__all__ = [
    "CudaError", "_is_in_bad_fork", "can_device_access_peer", "check_error", "cudaStatus", "current_device",
    "device", "device_count", "device_of", "get_arch_list", "get_device_capability", "get_device_name",
    "get_device_properties", "get_gencode_flags", "get_sync_debug_mode", "init", "is_available", "is_bf16_supported",
    "is_initialized", "is_tf32_supported", "set_device", "set_sync_debug_mode",
]  # fmt: skip


def module() -> Any:
    """Returns CuPy, if it is installed and finds a GPU. Raises: RuntimeError saying what is missing."""
    storage_class(devices.device("cuda"))  # raises an error that says what is missing
    import cupy

    return cupy


def module_or_none() -> Any:
    """Returns CuPy, if it is installed and finds a GPU, or None."""
    try:
        return module()
    except RuntimeError:
        return None


def index_of(device=None) -> int:
    """Returns the index of a device (an int, a name, a `torch.device`); that of the current one for None.

    Raises: ValueError if the device is not a GPU.
    """
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device
    if isinstance(device, _Device):
        return device.idx
    found = devices.device(device)
    if found.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {found}")
    return current_device() if found.index is None else found.index


def checked_index_of(device=None) -> int:
    """Returns the index of a device. Raises: AssertionError if the device does not exist."""
    index = index_of(device)
    if not 0 <= index < device_count():
        raise AssertionError("Invalid device id")
    return index


# --- availability ----------------------------------------------------------------------------------------------------


def is_available() -> bool:
    """Returns whether a GPU can be used.

    >>> device = "cuda" if torch.cuda.is_available() else "cpu"
    """
    return module_or_none() is not None


def _is_in_bad_fork() -> bool:
    """Returns whether this process cannot use GPUs, since it was forked from one that did.

    >>> torch.cuda._is_in_bad_fork()
    False
    """
    from tensorgrad.storage.cuda import State

    return State.forked


def device_count() -> int:
    """Returns the number of usable GPUs.

    >>> for index in range(torch.cuda.device_count()):
    ...     _ = torch.cuda.get_device_name(index)
    """
    cupy = module_or_none()
    return 0 if cupy is None else int(cupy.cuda.runtime.getDeviceCount())


def is_initialized() -> bool:
    """Returns whether this process has used a GPU.

    >>> torch.cuda.is_initialized() and not torch.cuda.is_available()
    False
    """
    return "cuda" in BY_DEVICE


def init() -> None:
    """Initializes the GPU.

    Raises:
        RuntimeError: If there is none.

    >>> if torch.cuda.is_available():
    ...     torch.cuda.init()
    """
    module()


# --- the current device ----------------------------------------------------------------------------------------------


def current_device() -> int:
    """Returns the index of the current GPU.

    Raises:
        RuntimeError: If there is none.

    >>> if torch.cuda.is_available():
    ...     index = torch.cuda.current_device()
    """
    return int(module().cuda.runtime.getDevice())


def set_device(device) -> None:
    """Makes a GPU the current one; a negative index has no effect.

    Raises:
        RuntimeError: If there is none.

    >>> if torch.cuda.is_available():
    ...     torch.cuda.set_device(0)
    """
    cuda = module().cuda
    index = index_of(device)
    if index >= cuda.runtime.getDeviceCount():
        raise RuntimeError(
            "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?"
        )
    if index >= 0:
        cuda.Device(index).use()


class _Device:
    """A context manager that makes another GPU the current one."""

    def __init__(self, index: int):
        self.idx, self.prev_idx = index, -1

    def __enter__(self):
        if self.idx >= 0 and is_available():
            self.prev_idx = current_device()
            set_device(self.idx)

    def __exit__(self, *exception):
        if self.prev_idx >= 0:
            set_device(self.prev_idx)
        return False


class device(_Device):
    """A context manager that makes another GPU the current one. No effect for None and for a negative index.

    >>> with torch.cuda.device(0 if torch.cuda.is_available() else -1):
    ...     x = torch.ones(2)
    """

    def __init__(self, device: Any):
        super().__init__(-1 if device is None else index_of(device))


class device_of(_Device):
    """A context manager that makes the GPU of a tensor or storage the current one. No effect if it is not on a GPU.

    >>> with torch.cuda.device_of(torch.ones(2)):
    ...     y = torch.ones(2)
    """

    def __init__(self, obj):
        super().__init__(obj.device.index if obj.device.type == "cuda" else -1)


# --- properties ------------------------------------------------------------------------------------------------------


class _CudaDeviceProperties:
    """The result of `get_device_properties`; memory is in bytes, clock rates are in kHz."""

    _FIELDS: ClassVar[dict[str, str]] = {
        "major": "major", "minor": "minor", "total_memory": "totalGlobalMem",
        "multi_processor_count": "multiProcessorCount", "warp_size": "warpSize",
        "max_threads_per_block": "maxThreadsPerBlock",
        "max_threads_per_multi_processor": "maxThreadsPerMultiProcessor",
        "shared_memory_per_block": "sharedMemPerBlock", "shared_memory_per_block_optin": "sharedMemPerBlockOptin",
        "shared_memory_per_multiprocessor": "sharedMemPerMultiprocessor",
        "regs_per_multiprocessor": "regsPerMultiprocessor", "L2_cache_size": "l2CacheSize",
        "is_multi_gpu_board": "isMultiGpuBoard", "is_integrated": "integrated", "clock_rate": "clockRate",
        "memory_clock_rate": "memoryClockRate", "memory_bus_width": "memoryBusWidth", "pci_bus_id": "pciBusID",
        "pci_device_id": "pciDeviceID", "pci_domain_id": "pciDomainID",
    }  # fmt: skip

    major: int
    minor: int
    total_memory: int
    multi_processor_count: int

    def __init__(self, properties: dict):
        name = properties["name"]
        self.name = name.decode() if isinstance(name, bytes) else str(name)
        for field, theirs in self._FIELDS.items():
            if theirs in properties:  # newer drivers no longer report the clock rates
                setattr(self, field, int(properties[theirs]))
        self.gcnArchName = self.name
        number = properties.get("uuid", b"")  # its bytes, or the C structure around them; C drops trailing zeros
        number = number["bytes"] if isinstance(number, dict) else number
        self.uuid = uuid.UUID(bytes=bytes(number)[:16].ljust(16, b"\0"))

    def __repr__(self) -> str:
        pci = "".join(
            f"{field}={getattr(self, field, 0)}, " for field in ("pci_bus_id", "pci_device_id", "pci_domain_id")
        )
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // 2**20}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}, {pci}L2_cache_size={getattr(self, 'L2_cache_size', 0) // 2**20}MB)"
        )


def get_device_properties(device=None) -> _CudaDeviceProperties:
    """Returns the properties of a GPU.

    Raises:
        RuntimeError: If there is none.
        AssertionError: If this one does not exist.

    >>> if torch.cuda.is_available():
    ...     gigabytes = torch.cuda.get_device_properties().total_memory / 2**30
    """
    module()
    return _properties(checked_index_of(device))


@cache
def _properties(index: int) -> _CudaDeviceProperties:
    """Asks once: the answer takes a millisecond, and autocast needs it at each block."""
    return _CudaDeviceProperties(module().cuda.runtime.getDeviceProperties(index))


def get_device_name(device=None) -> str:
    """Returns the name of a GPU.

    Raises:
        RuntimeError: If there is none.

    >>> name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    """
    return get_device_properties(device).name


def get_device_capability(device=None) -> tuple[int, int]:
    """Returns the (major, minor) compute capability of a GPU.

    Raises:
        RuntimeError: If there is none.

    >>> if torch.cuda.is_available():
    ...     major, minor = torch.cuda.get_device_capability()
    """
    properties = get_device_properties(device)
    return properties.major, properties.minor


def can_device_access_peer(device, peer_device) -> bool:
    """Returns whether one GPU can read another's memory directly.

    Raises:
        AssertionError: If one does not exist.

    >>> if torch.cuda.device_count() > 1:
    ...     direct = torch.cuda.can_device_access_peer(0, 1)
    """
    runtime = module().cuda.runtime
    first, second = checked_index_of(device), index_of(peer_device)
    if not 0 <= second < device_count():
        raise AssertionError("Invalid peer device id")
    return first != second and bool(runtime.deviceCanAccessPeer(first, second))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Returns whether the GPU supports bfloat16.

    >>> dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    """
    return is_available() and get_device_capability()[0] >= (5 if including_emulation else 8)


def is_tf32_supported() -> bool:
    """Returns whether the GPU can multiply float32 matrices in the shorter TF32 format.

    >>> torch.backends.cuda.matmul.allow_tf32 = torch.cuda.is_tf32_supported()
    >>> torch.backends.cuda.matmul.allow_tf32 = False
    """
    return is_available() and get_device_capability()[0] >= 8


def get_arch_list() -> list[str]:
    """Returns the architectures of precompiled kernels: none, since kernels are compiled on demand.

    >>> torch.cuda.get_arch_list()
    []
    """
    return []


def get_gencode_flags() -> str:
    """Returns the compiler flags of precompiled kernels: none, see `get_arch_list`.

    >>> torch.cuda.get_gencode_flags()
    ''
    """
    return ""


# --- errors and synchronization --------------------------------------------------------------------------------------


class cudaStatus:
    """Result codes of the CUDA runtime.

    >>> torch.cuda.cudaStatus.SUCCESS
    0
    """

    SUCCESS: int = 0
    ERROR_NOT_READY: int = 34


class CudaError(RuntimeError):
    """An error reported by the CUDA runtime.

    >>> issubclass(torch.cuda.CudaError, RuntimeError)
    True
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"{module().cuda.runtime.CUDARuntimeError(code)} ({code})")


def check_error(res: int) -> None:
    """Checks a result code of the CUDA runtime.

    Raises:
        CudaError: Unless it means success.

    >>> torch.cuda.check_error(torch.cuda.cudaStatus.SUCCESS)
    """
    if res != cudaStatus.SUCCESS:
        raise CudaError(res)


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Sets what happens when the host waits for the GPU (`.item()`, `.cpu()`, printing).

    "default" (0) allows it, "warn" (1) warns, "error" (2) raises an error. Helps to find what makes a training step
    wait.

    Raises:
        RuntimeError: If there is no GPU, or the mode is invalid.

    >>> if torch.cuda.is_available():
    ...     torch.cuda.set_sync_debug_mode("default")
    """
    module()
    if isinstance(debug_mode, str):
        modes = {"default": 0, "warn": 1, "error": 2}
        if debug_mode not in modes:
            raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
        debug_mode = modes[debug_mode]
    if debug_mode not in (0, 1, 2):
        raise RuntimeError("invalid value of debug_mode, expected one of 0,1,2")
    from tensorgrad.storage.cuda import set_sync_mode

    set_sync_mode(debug_mode)


def get_sync_debug_mode() -> int:
    """Returns the mode set by `set_sync_debug_mode` as an integer.

    Raises:
        RuntimeError: If there is no GPU.

    >>> torch.cuda.get_sync_debug_mode() if torch.cuda.is_available() else 0
    0
    """
    module()
    from tensorgrad.storage.cuda import State

    return State.sync_mode
